"""Settings of the whole suite: reproducible property tests, no window system, GPU tests only where there is a GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# The same examples at every run, so that a change is judged by what it changes; HYPOTHESIS_PROFILE=explore draws new
# ones. No deadline: the first call of a numba kernel compiles it.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works() -> Iterator[None]:
    """Restores what SIGINT does: a shell starts its background jobs, and so maybe this suite, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `gpu` where torch sees no CUDA device."""
    on_gpu = [item for item in items if "gpu" in item.keywords]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
