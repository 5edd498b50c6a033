"""Schedulers that misbehave, for cells that fail or do not end."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Broken:
    """Raises."""

    name = "broken"

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        raise RuntimeError("out of\norder")


class Sleepy:
    """Takes a while for each decision."""

    name = "sleepy"

    def __init__(self, delay_s: float = 0.2) -> None:
        self._delay_s = delay_s

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        time.sleep(self._delay_s)
        return np.full(len(action_mask), action_mask.shape[1] - 1)


class Drawing:
    """Legal actions at random, from one stream for all environments: a workload's result depends on the others."""

    name = "drawing"

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        return np.where(action_mask, self._rng.random(action_mask.shape), -1.0).argmax(axis=1)


class Knowing(Sleepy):
    """Says that it knows what no scheduler can."""

    name = "knowing"
    is_oracle = True

    def __init__(self) -> None:
        super().__init__(0.0)


class Counting:
    """Remembers how often it was asked, so that a workload's result depends on those before it."""

    name = "counting"

    def __init__(self) -> None:
        self._count = 0

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        self._count += 1
        void = np.full(len(action_mask), action_mask.shape[1] - 1)
        return action_mask.argmax(axis=1) if self._count % 7 < 3 else void


class Ending:
    """Ends its process in one of several ways."""

    name = "ending"

    def __init__(self, how: str = "exit") -> None:
        self._how = how

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        if self._how == "exit":
            sys.exit(3)
        if self._how == "interrupt":
            raise KeyboardInterrupt
        os._exit(4)


class Unready:
    """Cannot be built, or has no name for tables."""

    def __init__(self, name: Any = "unready", error: str | None = None, seed: int | None = None) -> None:
        if error is not None:
            raise RuntimeError(error)
        self.name = name

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        return np.full(len(action_mask), action_mask.shape[1] - 1)
