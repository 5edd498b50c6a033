"""Least attained service."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import LAS
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests


@inline_kernel
def attained_service(state, b, i, requests):
    """GPU-seconds that a job has held up to the start of the interval; of types without GPUs, worker-seconds.

    The record of a job counts GPUs only. A type that uses none is charged the worker-seconds that its progress is
    worth: the workers it asks for, for as long as the progress takes at its best isolated speed. Otherwise its jobs
    would stay at zero, before all others, for life.

    Args:
        state: The batch.
        b: Environment.
        i: Job, which may have finished.
        requests: (T, 2) workers and PSs that jobs of a type ask for.
    """
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    if job_type.worker_gpus > 0 or job_type.ps_gpus > 0:
        return job.gpu_s
    best_speed = state.best_speed[b % state.best_speed.shape[0], job.type]
    if best_speed <= 0.0:
        return 0.0
    return job.epochs_done * job.samples_per_epoch / best_speed * requests[job.type, 0]


@inline_kernel
def plan_las(state, b, params, scratch):
    """The least attained service first. `params[0]`: `speed_share`."""
    write_requests(state, b, params[0], scratch)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        service = attained_service(state, b, i, scratch.requests)
        want(scratch, i, -service, scratch.requests[t, 0], scratch.requests[t, 1])


class LasScheduler(Heuristic):
    """Gives jobs the gang they ask for in the order of the GPU-seconds they have held so far, ties by arrival.

    Source: least attained service (foreground-background), Kleinrock, Queueing Systems vol. 2, 1976; with GPUs times
    time as the service it is the undiscretised 2D-LAS of Tiresias (Gu et al., NSDI 2019). It needs neither a job's
    size nor its estimate.

    Adapted: the order is worked out once per interval, which is the quantum of its preemptions. Requests, gangs that
    fit in part and initial bundles (which count as service) are as in `SjfScheduler`. Types without GPUs are charged
    by `attained_service`.

    Args:
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = LAS

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE) -> None:
        super().__init__(checked_share("las", speed_share))
        self.name = name_with_share("las", speed_share)
