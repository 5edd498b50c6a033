"""What each job trained in an interval, for rewards that decisions get for their own job alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError


class JobProgress:
    """Watches how far the jobs of a vector environment are.

    Args:
        env: `SchedulingVectorEnv`, possibly wrapped.

    Raises:
        ConfigError: The environment has no simulator.
    """

    def __init__(self, env: Any) -> None:
        self._simulator: Any = getattr(env, "simulator", None)
        if self._simulator is None:
            raise ConfigError("dl2.credit=own_job: only environments with a simulator know how far each job is")
        self._before = self._epochs = np.zeros((0, 0))
        self._final: dict[int, NDArray[np.float64]] = {}
        env.unwrapped.before_autoreset.append(self._keep_final)

    def _keep_final(self, ended: NDArray[np.int64]) -> None:
        # The jobs of an episode that has ended are gone after the step.
        self._final = {b: self._simulator.state.jobs["epochs_done"][b].copy() for b in ended.tolist()}

    def jobs_of(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B,) job that each action is for, -1 for void; to be asked before the step."""
        window = self._simulator.state.window
        slot = actions // 3
        is_void = slot >= window.shape[1]
        jobs: NDArray[np.int64] = np.where(is_void, -1, window[np.arange(len(actions)), np.where(is_void, 0, slot)])
        return jobs

    def before_step(self) -> None:
        """Must be called before each step."""
        jobs = self._simulator.state.jobs
        self._before, self._epochs = jobs["epochs_done"].copy(), jobs["epochs"].copy()
        self._final = {}

    def rewards(self, b: int, jobs: NDArray[np.integer]) -> NDArray[np.float32]:
        """What decisions of environment b get whose interval the last step has ended.

        Args:
            b: Environment.
            jobs: (n,) the job of each decision.

        Returns:
            (n,) epochs that the job trained in the interval over all its epochs; 0 for void.
        """
        after = self._final.get(b, self._simulator.state.jobs["epochs_done"][b])
        share = (after - self._before[b])[jobs] / self._epochs[b][jobs]
        return np.where(jobs >= 0, share, 0.0).astype(np.float32)
