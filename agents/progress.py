"""A progress bar for a phase of a run."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from tqdm import tqdm

_LOG_EVERY_S = 10.0
"""Seconds between two states of a bar that goes to a file, where every state is kept."""


class PhaseBar:
    """A tqdm bar on stderr whose total becomes known with the first step.

    Args:
        description: Name of the phase.
        unit: What is counted.
        is_shown: False: no output.
    """

    def __init__(self, description: str, unit: str, is_shown: bool = True) -> None:
        self._bar: Any = tqdm(
            desc=description,
            unit=unit,
            unit_scale=True,
            dynamic_ncols=True,
            disable=not is_shown,
            mininterval=0.2 if sys.stderr.isatty() else _LOG_EVERY_S,
        )

    def move_to(self, done: int, total: int, **shown: str) -> None:
        """Sets the position, and figures to show beside it."""
        self._bar.total = total
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> PhaseBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
