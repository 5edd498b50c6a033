"""What the heuristics share: they see every job, and each is one kernel over the simulator's arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView, Observation


@kernel
def grow_action(mask, slot, job, job_type, ps_per_worker):
    """Legal action that adds tasks to a job in the given ratio, -1 when there is none.

    Args:
        mask: (A,) legal actions.
        slot: Job slot.
        job: JOB_DTYPE record of its job.
        job_type: TYPE_DTYPE record.
        ps_per_worker: Wanted parameter servers per worker; types without parameter servers just get workers.
    """
    if job_type.max_ps == 0:
        return 3 * slot if mask[3 * slot] else -1
    if job.workers > 0 and job.ps + 1 <= job.workers * ps_per_worker:
        return 3 * slot + 1 if mask[3 * slot + 1] else -1
    if job.ps > 0 and job.ps >= (job.workers + 1) * ps_per_worker:
        return 3 * slot if mask[3 * slot] else -1
    return 3 * slot + 2 if mask[3 * slot + 2] else -1


class Heuristic:
    """Base of the heuristics: sees every job of the episode in its window and decides in a kernel.

    Attributes:
        name: What tables call it.
    """

    name = "heuristic"

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Widens the window to all jobs: a heuristic has no input layer to keep small."""
        window = max(config.workload.num_jobs, config.observation.window)
        return dataclasses.replace(config, observation=dataclasses.replace(config.observation, window=window))

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """Chooses one action per environment; see `Scheduler.act`."""
        del observation
        actions = np.full(len(action_mask), action_mask.shape[1] - 1, dtype=np.int64)
        self._choose(action_mask, view, actions)
        return actions

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        """Overwrites the void actions given."""
        raise NotImplementedError
