"""Gives each environment its knowledge of job speeds, anew for every episode where it is drawn or fitted."""

from __future__ import annotations

import numpy as np

from dl2env.config import EnvConfig
from dl2env.sim.state import State
from dl2env.speed.estimate import EstimateTables, estimate_tables
from dl2env.speed.parameters import SpeedParameters

_ESTIMATE_STREAM = 1
"""Separates the estimate's draws from the simulator's other uses of a workload's noise key."""


class Estimator:
    """Estimate tables of a batch of environments.

    Exact estimates are shared by all environments; noisy and fitted ones belong to one episode and follow from the
    noise key of its workload, so that every scheduler knows the same.
    """

    def __init__(self, config: EnvConfig, speed: SpeedParameters) -> None:
        self._config = config
        self._speed = speed
        self._is_shared = config.estimate.kind == "exact"

    def allocate(self, num_envs: int) -> EstimateTables:
        """Arrays for `num_envs` environments (one, when they share it), filled with a first draw."""
        tables = estimate_tables(self._speed, self._config)
        count = 1 if self._is_shared else num_envs
        return EstimateTables(*(np.repeat(np.ascontiguousarray(array)[None], count, axis=0) for array in tables))

    def write(self, state: State, b: int, noise_key: int) -> None:
        """Draws the estimate of environment b's next episode."""
        if self._is_shared:
            return
        rng = np.random.default_rng([noise_key, _ESTIMATE_STREAM])
        tables = estimate_tables(self._speed, self._config, rng)
        state.estimate[b] = tables.estimate
        state.best_speed[b] = tables.best_speed
        state.fit[b] = tables.fit
