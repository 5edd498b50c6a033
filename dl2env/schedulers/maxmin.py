"""Max-min fairness by progressive filling."""

from __future__ import annotations

from dl2env.errors import ConfigError
from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import MAXMIN
from dl2env.schedulers.growth import fits, given_counts, share_of, units
from dl2env.schedulers.heap import replace_root, rise
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests

RESOURCES = ("dominant", "gpus")


@inline_kernel
def _portion(state, t, request, step):
    """(workers, PSs) of a type's request after `step` workers, at least what jobs are given."""
    workers, num_ps = given_counts(state, t)
    part = (step * request[1] + request[0] - 1) // request[0]  # rounded up
    return max(workers, step), max(num_ps, part)


@inline_kernel
def _amount(state, t, workers, num_ps, resource):
    """What is to be equal: the dominant share, or the share of all GPUs."""
    rules = state.rules[0]
    cpus, gpus = units(state.types[t], workers, num_ps)
    if resource == 1 and state.types[t].worker_gpus + state.types[t].ps_gpus > 0:
        return gpus / rules.total_gpus
    return share_of(rules, cpus, gpus)


@kernel
def plan_maxmin(state, b, params, scratch):
    """Fills requests from the bottom up. `params`: `speed_share`, index of the resource."""
    write_requests(state, b, params[0], scratch)
    rules = state.rules[0]
    heap = scratch.heap
    candidates = scratch.candidates
    free_cpus = rules.total_cpus
    free_gpus = rules.total_gpus
    size = 0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        workers, num_ps = given_counts(state, t)
        cpus, gpus = units(state.types[t], workers, num_ps)
        free_cpus -= cpus
        free_gpus -= gpus
        want(scratch, i, 0.0, workers, num_ps)
        candidates[i].step = 0
        candidates[i].key = -_amount(state, t, workers, num_ps, params[1])
        rise(heap, size, candidates, i)
        size += 1
    while size > 0:
        i = heap[0]
        candidate = candidates[i]
        t = state.jobs[b, i].type
        is_kept = candidate.step < scratch.requests[t, 0]
        if is_kept:
            workers, num_ps = _portion(state, t, scratch.requests[t], candidate.step + 1)
            cpus, gpus = units(state.types[t], workers - candidate.workers, num_ps - candidate.ps)
            is_kept = fits(cpus, gpus, free_cpus, free_gpus)
        if is_kept:
            free_cpus -= cpus
            free_gpus -= gpus
            candidate.step += 1
            candidate.workers = workers
            candidate.ps = num_ps
            candidate.key = -_amount(state, t, workers, num_ps, params[1])
        size = replace_root(heap, size, candidates, is_kept)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        candidate = candidates[i]
        candidate.order = -_amount(state, state.jobs[b, i].type, candidate.workers, candidate.ps, params[1])


class MaxMinScheduler(Heuristic):
    """Max-min fair shares of the cluster: no job can have more unless one with no more than that has less.

    Source: the textbook water-filling (Bertsekas and Gallager, Data Networks, section 6.5.2). Each job has a demand:
    the smallest gang that reaches `speed_share` of its type's best isolated speed. All jobs are filled from the bottom
    up, each time the one that has least, one worker and its part of the request's parameter servers at a time, until it
    has its demand or the next portion does not fit. Jobs that want little get all of it; the rest is for the others.

    How it differs from `drf`: DRF in this project grows every job to the caps of its type, at one PS per worker. Here a
    job stops at a demand, in the proportions of its request, so that a cluster may stay partly idle. And the plan is
    made once per interval with the CPU and GPU units of the whole cluster, where DRF sees at each task whether a server
    can hold it. With `resource="gpus"` shares are of GPUs only.

    Adapted: allocations are recomputed in each interval; a job's initial bundle counts as the first of what it has.
    Where servers cannot hold all that was planned, the smallest allocations are served first. Equal amounts are filled
    in the order of arrival, so that in a cluster too small for all the latest jobs wait.

    Args:
        speed_share: Share of the best isolated speed that a demand must reach. The default is an assumption.
        resource: What is shared out equally: `dominant` (the dominant share) or `gpus` (types without GPUs: the
            dominant share).

    Raises:
        ConfigError: An option is wrong.
    """

    code = MAXMIN

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE, resource: str = "dominant") -> None:
        if resource not in RESOURCES:
            raise ConfigError(f"maxmin: resource={resource!r} must be one of: {', '.join(RESOURCES)}")
        super().__init__(checked_share("maxmin", speed_share), RESOURCES.index(resource))
        self.name = name_with_share("maxmin" if resource == "dominant" else f"maxmin-{resource}", speed_share)
