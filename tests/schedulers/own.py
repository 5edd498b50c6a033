"""Schedulers of a user, found by import path."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.schedulers.base import ClusterView


class LongestQueue:
    """A worker and a parameter server at a time for the job with most work left."""

    name = "longest-queue"

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.int64]:
        can_grow = action_mask[:, 2:-1:3]
        slot = np.where(can_grow, view.remaining_s, -1.0).argmax(axis=1)
        return np.where(can_grow.any(axis=1), 3 * slot + 2, action_mask.shape[1] - 1)


class Named:
    """Takes an option, has no `act`."""

    def __init__(self, name: Any = "named") -> None:
        self.name = name


class Nameless:
    """Has no name."""

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.int64]:
        return np.full(len(action_mask), action_mask.shape[1] - 1)


NOT_A_CLASS = 3
