"""EASY backfilling: first come first served, one reservation, and jobs that do not delay it."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import EASY
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests
from dl2env.sim.speeds import estimated_speed

WAITING, BACKFILLED, STARTED, RUNNING = 0.0, 1.0, 2.0, 3.0
"""Orders: gangs under way are served first, of equal order the earliest job."""

NEVER = 1 << 40  # intervals


@inline_kernel
def _given_counts(rules, job_type):
    """(workers, PSs) that every job gets at an interval's start."""
    if not rules.initial_bundle:
        return 0, 0
    return 1, min(1, job_type.max_ps)


@inline_kernel
def _gang_counts(rules, job_type, request):
    """(workers, PSs) of a job's gang: its request, at least what it gets anyway."""
    workers, num_ps = _given_counts(rules, job_type)
    return max(workers, request[0]), max(num_ps, request[1])


@inline_kernel
def _units(job_type, workers, num_ps):
    """CPU and GPU units of some tasks."""
    cpus = workers * job_type.worker_cpus + num_ps * job_type.ps_cpus
    return float(cpus), float(workers * job_type.worker_gpus + num_ps * job_type.ps_gpus)


@inline_kernel
def _needed_units(rules, job_type, request):
    """CPU and GPU units that starting a job's gang takes beyond what the job gets anyway."""
    workers, num_ps = _gang_counts(rules, job_type, request)
    given_workers, given_ps = _given_counts(rules, job_type)
    return _units(job_type, workers - given_workers, num_ps - given_ps)


@inline_kernel
def _fits(cpus, gpus, free_cpus, free_gpus):
    """Whether units are free. What is not needed need not be, where initial bundles overfill the cluster."""
    return cpus <= max(free_cpus, 0.0) and gpus <= max(free_gpus, 0.0)


@inline_kernel
def _intervals_left(state, b, i, workers, num_ps):
    """Intervals until a job with these tasks gives them back, by its estimate; at least 1, since none end sooner."""
    job = state.jobs[b, i]
    estimate = state.estimate[b % state.estimate.shape[0], job.type]
    speed = estimated_speed(estimate, state.types[job.type], workers, num_ps, 1.0)
    left = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
    if speed <= 0.0 or left >= speed * state.rules[0].interval_s * NEVER:
        return NEVER
    return max(int(math.ceil(left / (speed * state.rules[0].interval_s))), 1)


@inline_kernel
def _write_gangs(state, b, scratch):
    """Tells gangs under way from waiting jobs. Returns (gangs, free CPUs, free GPUs) of the cluster."""
    rules = state.rules[0]
    free_cpus = rules.total_cpus
    free_gpus = rules.total_gpus
    num_gangs = 0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        job_type = state.types[job.type]
        request = scratch.requests[job.type]
        workers, num_ps = _given_counts(rules, job_type)
        gang_workers, gang_ps = _gang_counts(rules, job_type, request)
        needs_more = gang_workers > workers or gang_ps > num_ps
        order = WAITING
        if not needs_more or job.last_workers > workers or job.last_ps > num_ps:
            order = RUNNING
            workers = gang_workers
            num_ps = gang_ps
            num_gangs += int(needs_more)
        want(scratch, i, order, workers, num_ps)
        cpus, gpus = _units(job_type, workers, num_ps)
        free_cpus -= cpus
        free_gpus -= gpus
    return num_gangs, free_cpus, free_gpus


@inline_kernel
def _start(state, b, i, order, scratch):
    """Wants a waiting job's gang."""
    job = state.jobs[b, i]
    workers, num_ps = _gang_counts(state.rules[0], state.types[job.type], scratch.requests[job.type])
    want(scratch, i, order, workers, num_ps)


@inline_kernel
def _free_after(state, b, intervals, head, free_cpus, free_gpus, scratch):
    """(CPUs, GPUs) free once every job but the head that is through within some intervals has given its tasks back."""
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        if i != head and scratch.values[i] <= intervals:
            candidate = scratch.candidates[i]
            cpus, gpus = _units(state.types[state.jobs[b, i].type], candidate.workers, candidate.ps)
            free_cpus += cpus
            free_gpus += gpus
    return free_cpus, free_gpus


@inline_kernel
def _reserve(state, b, head, head_cpus, head_gpus, free_cpus, free_gpus, scratch):
    """Reservation of the head: (intervals from now, CPUs and GPUs that will be free beside it then).

    A gang that would not even fit beside the initial bundles of the jobs that stay gets it when all gangs are through.
    """
    last = 1
    last_gang = 1
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        candidate = scratch.candidates[i]
        intervals = _intervals_left(state, b, i, candidate.workers, candidate.ps)
        scratch.values[i] = intervals
        if i != head and intervals < NEVER:
            last = max(last, intervals)
            if candidate.order > WAITING:
                last_gang = max(last_gang, intervals)
    cpus, gpus = _free_after(state, b, last, head, free_cpus, free_gpus, scratch)
    if not _fits(head_cpus, head_gpus, cpus, gpus):
        return last_gang, 0.0, 0.0
    first = 1
    while first < last:
        middle = (first + last) // 2
        cpus, gpus = _free_after(state, b, middle, head, free_cpus, free_gpus, scratch)
        if _fits(head_cpus, head_gpus, cpus, gpus):
            last = middle
        else:
            first = middle + 1
    cpus, gpus = _free_after(state, b, last, head, free_cpus, free_gpus, scratch)
    return last, cpus - head_cpus, gpus - head_gpus


@inline_kernel
def plan_easy(state, b, params, scratch):
    """Which gangs run in this interval. `params[0]`: `speed_share`."""
    write_requests(state, b, params[0], scratch)
    rules = state.rules[0]
    num_gangs, free_cpus, free_gpus = _write_gangs(state, b, scratch)
    head = -1
    shadow = 0  # intervals from now until the head's reservation
    spare_cpus = 0.0  # free beside the head at that time
    spare_gpus = 0.0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        if scratch.candidates[i].order != WAITING:
            continue
        job = state.jobs[b, i]
        job_type = state.types[job.type]
        cpus, gpus = _needed_units(rules, job_type, scratch.requests[job.type])
        fits = _fits(cpus, gpus, free_cpus, free_gpus)
        if head < 0:
            if fits or num_gangs == 0:  # with no gang under way there is nothing to wait for
                _start(state, b, i, STARTED, scratch)
                num_gangs += 1
                free_cpus -= cpus
                free_gpus -= gpus
            else:
                head = i
                shadow, spare_cpus, spare_gpus = _reserve(state, b, i, cpus, gpus, free_cpus, free_gpus, scratch)
            continue
        workers, num_ps = _gang_counts(rules, job_type, scratch.requests[job.type])
        is_through = _intervals_left(state, b, i, workers, num_ps) <= shadow
        if fits and (is_through or _fits(cpus, gpus, spare_cpus, spare_gpus)):
            _start(state, b, i, BACKFILLED, scratch)
            free_cpus -= cpus
            free_gpus -= gpus
            if not is_through:
                spare_cpus -= cpus
                spare_gpus -= gpus


class EasyScheduler(Heuristic):
    """Rigid gangs first come first served, with a reservation for the first that does not fit, and backfilling.

    Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; in the form of Mu'alem and Feitelson, IEEE TPDS 2001.
    Jobs start in the order of arrival as long as their gangs fit. The first that does not (the head) gets a reservation
    at the earliest time at which, by the estimated ends of the others, it will fit. A later job may start now if it
    fits and either ends before that time or takes only what will be free beside the head.

    Adapted:
        * A job asks for the smallest gang that reaches `speed_share` of its best isolated speed. Ends follow from the
          user's epochs and the gang's isolated speed, rounded up to whole intervals, since tasks are given back at an
          interval's end. A job that outruns its estimate is not killed but expected to end with the interval.
        * Gangs are not preempted: one that had more than its initial bundle in the last interval gets its tasks before
          all others. (Allocations are cleared at each interval's start, so they may move to other servers; the tasks of
          a job whose request changes, because speeds are fitted online, follow it.)
        * Where scenarios give initial bundles, waiting jobs train with theirs; starting a gang takes what it needs
          beyond it, and a bundle counts as occupied until its job ends.
        * Fit is judged by the cluster's CPU and GPU units. A gang that fragmentation or bundles of new arrivals leave
          with a part runs with that part; one that is left with no more than a bundle waits again.
        * The head starts whatever its size when no gang is under way, so requests above the cluster's size do not block
          the queue.

    Args:
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = EASY

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE) -> None:
        super().__init__(checked_share("easy", speed_share))
        self.name = name_with_share("easy", speed_share)
