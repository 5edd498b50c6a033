"""Tiresias: discretised two-dimensional least attained service, and its Gittins index."""

from __future__ import annotations

import math

from dl2env.errors import ConfigError
from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import TIRESIAS_2DAS, TIRESIAS_GITTINS
from dl2env.schedulers.heuristic import NUM_LEVELS, Heuristic, checked_option
from dl2env.schedulers.las import attained_service
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests

LEVELS_PER_DOUBLING = 2.0
DIED, INSIDE, INDEX, RANK = range(4)  # columns of `Scratch.levels`

MAX_QUEUES = 10
_DEFAULT_THRESHOLD_GPU_H = 2.0
_DEFAULT_RATIO = 4.0


@inline_kernel
def queue_of(service, params):
    """Queue of a job by its attained service, 0 the first. `params`: share, first threshold, queues, ratio."""
    queue = 0
    threshold = params[1]
    while queue + 1 < params[2] and service >= threshold:
        queue += 1
        threshold *= params[3]
    return queue


@inline_kernel
def level_start(level, unit):
    """Least service of a level: 0, then `unit`, then two levels per doubling."""
    return 0.0 if level == 0 else unit * 2.0 ** ((level - 1) / LEVELS_PER_DOUBLING)


@inline_kernel
def level_of(service, unit):
    """Level of an attained service."""
    if service < unit:
        return 0
    return min(1 + int(LEVELS_PER_DOUBLING * math.log2(service / unit)), NUM_LEVELS - 1)


@inline_kernel
def write_indices(state, b, scratch):
    """Writes the Gittins index of each level of attained service, and how many levels have a higher one.

    The size distribution is a life table of the jobs admitted so far: of those that reached a level and have left it,
    the share that finished in it. Jobs that are still inside a level say nothing about it yet, but that they outlived
    the lower ones does count, so that long jobs under way are not forgotten.
    """
    levels = scratch.levels
    unit = state.rules[0].interval_s
    for x in range(NUM_LEVELS):
        levels[x, DIED] = 0.0
        levels[x, INSIDE] = 0.0
    for i in range(state.env[b].next_job):
        x = level_of(attained_service(state, b, i, scratch.requests), unit)
        levels[x, INSIDE if math.isnan(state.jobs[b, i].finish_s) else DIED] += 1.0
    outlived = 0.0
    for x in range(NUM_LEVELS - 1, -1, -1):
        died = levels[x, DIED]
        known = died + outlived
        outlived = known + levels[x, INSIDE]
        levels[x, DIED] = died / known if known > 0.0 else 0.0  # from here on: the hazard
    for x in range(NUM_LEVELS):
        best = 0.0
        alive = 1.0
        spent = 0.0
        for y in range(x, NUM_LEVELS - 1):
            width = level_start(y + 1, unit) - level_start(y, unit)
            hazard = levels[y, DIED]
            spent += alive * width * (1.0 - hazard / 2.0)  # who finishes in a level does so at its middle
            alive *= 1.0 - hazard
            best = max(best, (1.0 - alive) / spent)
        levels[x, INDEX] = best
    for x in range(NUM_LEVELS):
        higher = 0
        for y in range(NUM_LEVELS):
            higher += int(levels[y, INDEX] > levels[x, INDEX])
        levels[x, RANK] = higher


@inline_kernel
def _want_by_rank(state, b, i, rank, scratch):
    """Lower ranks first, then earlier starts: both are whole numbers, so one key holds them exactly."""
    job = state.jobs[b, i]
    rules = state.rules[0]
    start = state.env[b].interval
    if not math.isnan(job.start_s):
        start = int(job.start_s / rules.interval_s + 0.5)
    order = -(float(rank) * (rules.max_intervals + 1.0) + start)
    want(scratch, i, order, scratch.requests[job.type, 0], scratch.requests[job.type, 1])


@inline_kernel
def plan_2das(state, b, params, scratch):
    """The first queue first, in it by first start. `params`: see `queue_of`."""
    write_requests(state, b, params[0], scratch)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        queue = queue_of(attained_service(state, b, i, scratch.requests), params)
        _want_by_rank(state, b, i, queue, scratch)


@inline_kernel
def plan_gittins(state, b, params, scratch):
    """The first queue first, in it the highest Gittins index, then by first start. `params`: see `queue_of`."""
    write_requests(state, b, params[0], scratch)
    write_indices(state, b, scratch)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        service = attained_service(state, b, i, scratch.requests)
        level = level_of(service, state.rules[0].interval_s)
        rank = queue_of(service, params) * NUM_LEVELS + scratch.levels[level, RANK]
        _want_by_rank(state, b, i, rank, scratch)


class _Tiresias(Heuristic):
    """Base: the options that both forms share."""

    rule: str

    def __init__(
        self,
        threshold_gpu_h: float = _DEFAULT_THRESHOLD_GPU_H,
        num_queues: int = 2,
        ratio: float = _DEFAULT_RATIO,
        speed_share: float = DEFAULT_SPEED_SHARE,
    ) -> None:
        checked_option(self.rule, "threshold_gpu_h", threshold_gpu_h, 0.0, math.inf, above=True)
        checked_option(self.rule, "num_queues", num_queues, 1, MAX_QUEUES)
        if num_queues != int(num_queues):
            raise ConfigError(f"{self.rule}: num_queues={num_queues!r} must be a whole number")
        checked_option(self.rule, "ratio", ratio, 1.0, 1000.0, above=True)
        super().__init__(checked_share(self.rule, speed_share), threshold_gpu_h * 3600.0, num_queues, ratio)
        parts = [name_with_share(self.rule, speed_share)]
        if num_queues > 1 and threshold_gpu_h != _DEFAULT_THRESHOLD_GPU_H:
            parts.append(f"{threshold_gpu_h:g}h")
        if num_queues != 2:
            parts.append(f"{num_queues}q")
        if num_queues > 2 and ratio != _DEFAULT_RATIO:
            parts.append(f"x{ratio:g}")
        self.name = "-".join(parts)


class Tiresias2dasScheduler(_Tiresias):
    """Multi-level queues by attained service (GPUs times time), first in first out inside a queue.

    Source: Gu et al., NSDI 2019, sections 3.2 and 3.3 as we understand them: a job starts in the first queue and moves
    down when the GPU-seconds it has held cross a threshold; in a queue, jobs are served in the order of their first
    start (those not started come last, by arrival). Neither sizes nor estimates are used.

    Adapted: queues are worked out once per interval, the quantum of all preemptions. Requests, gangs that fit in part
    and initial bundles are as in `SjfScheduler`; service of types without GPUs as in `LasScheduler`.

    Left out: promotion of jobs that wait too long (a job's record does not say since when it waits; off by default in
    the paper as we understand it), and its placement by tensor-size skew, since the scenario places tasks.

    Args:
        threshold_gpu_h: Service at which a job leaves the first queue, in GPU-hours. The paper derives it from its
            cluster's history; the default is the best of 1, 2, 4, 8 and 16 on 32 validation workloads of
            `saturated-12-v1` without initial bundles. (With them all orders of gangs come within 2 % of each other.)
        num_queues: Number of queues. Two, as we understand the paper's evaluation.
        ratio: Each further threshold is the one before times this.
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = TIRESIAS_2DAS
    rule = "tiresias-2das"


class TiresiasGittinsScheduler(_Tiresias):
    """Multi-level queues by attained service, in a queue by the Gittins index for that service.

    Source: Gu et al., NSDI 2019, section 3.2 as we understand it. The index of a job that has attained service a, with
    S the random total service of a job, is the largest over D > 0 of P(S - a <= D | S > a) / E[min(S - a, D) | S > a]:
    the best chance of finishing it per GPU-second spent.

    The paper takes the distribution of S from the logs of its cluster. Here it is estimated from what this episode has
    shown up to the interval's start: the service of finished jobs, and of running ones that they outlived the service
    they have had (`write_indices`). So the rule knows nothing that a scheduler could not know, and remembers nothing
    outside the cluster's state; the price is that it starts blind, when all indices are 0 and it is first in first out
    within a queue. Service that no finished job has exceeded has index 0 as well.

    Adapted: service is told apart in 32 levels, two per doubling from one GPU for one interval on; D is not tied to the
    queue's quantum but is the best of all levels, as in the definition. Everything else is as in
    `Tiresias2dasScheduler`.

    Args:
        threshold_gpu_h: As for `Tiresias2dasScheduler`.
        num_queues: Number of queues; 1 orders all jobs by the index alone.
        ratio: Each further threshold is the one before times this.
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = TIRESIAS_GITTINS
    rule = "tiresias-gittins"
