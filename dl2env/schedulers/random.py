"""Uniformly random legal actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic


class RandomScheduler(Heuristic):
    """Chooses each legal action, void included, with equal probability: the floor of every table.

    Args:
        seed: Seed of its own generator; never shifts a workload.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        if seed < 0:
            raise ConfigError(f"random: seed={seed} must not be negative")
        self._rng = np.random.default_rng(seed)

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        del view
        actions[:] = np.argmax(np.where(mask, self._rng.random(mask.shape), -1.0), axis=1)
