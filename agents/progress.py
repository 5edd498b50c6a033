"""A progress bar for a phase of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tqdm import tqdm

Watch = Callable[[str, int, int], None]
"""Called with the name of a phase, what is done of it, and its total."""

_LOG_EVERY_S = 10.0
"""Seconds between two states of a bar that goes to a file, where every state is kept."""


class PhaseBar:
    """A tqdm bar on stderr whose total becomes known with the first step.

    Args:
        description: Name of the phase.
        unit: What is counted.
        show: True: a bar. False: no output. A function: is called instead, for a bar over several runs.
    """

    def __init__(self, description: str, unit: str, show: bool | Watch = True) -> None:
        self._description = description
        self._watch = show if callable(show) else None
        self._bar: Any = tqdm(
            desc=description,
            unit=unit,
            unit_scale=True,
            dynamic_ncols=True,
            disable=show is not True,
            mininterval=0.2 if sys.stderr.isatty() else _LOG_EVERY_S,
        )

    def move_to(self, done: int, total: int, **shown: str) -> None:
        """Sets the position, and figures to show beside it."""
        self._bar.total = total
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)
        if self._watch is not None:
            self._watch(self._description, done, total)

    def __enter__(self) -> PhaseBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
