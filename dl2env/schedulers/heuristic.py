"""What the heuristics share: they see every job, and each is one kernel over the simulator's arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.jit import inline_kernel
from dl2env.schedulers.base import ClusterView, Observation
from dl2env.sim.placement import BUNDLE, PS, WORKER


@inline_kernel
def shares_server(classes, demands):
    """Whether one worker and one parameter server of a type can share a server of the empty cluster.

    Args:
        classes: TYPE_CLASSES_DTYPE record of the type.
        demands: (D,) DEMAND_DTYPE.
    """
    return demands[classes.bundle].initial_fit > 0


@inline_kernel
def is_half_started(job, job_type, is_paired):
    """Whether a job of a type that cannot start on one server has one role only.

    It goes first, or workers of many jobs could take the room of all parameter servers.
    """
    return not is_paired and job_type.max_ps > 0 and (job.workers > 0) != (job.ps > 0)


@inline_kernel
def counts_after(job, job_type, is_paired, kind):
    """(workers, parameter servers) by which to judge an action: those after it.

    A job whose first worker and parameter server no server can hold together starts with one of them; that one is
    judged as if it brought the other.
    """
    workers = job.workers + (0 if kind == PS else 1)
    num_ps = job.ps + (0 if kind == WORKER else 1)
    if not is_paired and job_type.max_ps > 0 and job.workers == 0 and job.ps == 0:
        return 1, 1
    return workers, num_ps


@inline_kernel
def grow_action(mask, slot, job, job_type, is_paired, ps_per_worker):
    """Legal action that adds tasks to a job in the given ratio, -1 when there is none.

    Args:
        mask: (A,) legal actions.
        slot: Job slot.
        job: JOB_DTYPE record of its job.
        job_type: TYPE_DTYPE record.
        is_paired: Add a worker and a parameter server (PS) at once where both are wanted. Off, for types whose pair no
            server can hold, they come one after the other.
        ps_per_worker: Wanted parameter servers per worker; types without parameter servers just get workers.
    """
    kind = BUNDLE
    if job_type.max_ps == 0:
        kind = WORKER
    elif job.workers > 0 and job.ps + 1 <= job.workers * ps_per_worker:
        kind = PS
    elif job.ps > 0 and job.ps >= (job.workers + 1) * ps_per_worker:
        kind = WORKER
    elif not is_paired:
        kind = PS if job.workers > 0 and job.ps == 0 else WORKER
    return 3 * slot + kind if mask[3 * slot + kind] else -1


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
