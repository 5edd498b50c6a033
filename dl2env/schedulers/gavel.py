"""Gavel: heterogeneity-aware max-min fairness and makespan, over shares of time on kinds of GPUs."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import GAVEL_MAKESPAN, GAVEL_MAXMIN
from dl2env.schedulers.gavel_program import write_fractions
from dl2env.schedulers.gavel_rates import (
    ANYWHERE,
    CPUS,
    GPUS,
    NOWHERE,
    free_kinds,
    gang,
    place_of,
    speed_on_kind,
    write_rates,
    write_weights,
)
from dl2env.schedulers.growth import fits, given_counts, units
from dl2env.schedulers.heap import replace_root, rise
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests

GOLDEN = 0.6180339887498949


@inline_kernel
def rounds_received(state, b, i, scratch):
    """Intervals' worth of its gang that job i has had, beyond what it is given.

    By the GPU time of its record; for gangs that take no further GPUs, by its progress at the gang's speed.
    """
    job = state.jobs[b, i]
    t = job.type
    interval_s = state.rules[0].interval_s
    workers, num_ps = gang(state, t, scratch.requests)
    given_workers, given_ps = given_counts(state, t)
    _, gang_gpus = units(state.types[t], workers, num_ps)
    _, given_gpus = units(state.types[t], given_workers, given_ps)
    if gang_gpus > given_gpus:
        held = job.gpu_s / interval_s - job.intervals_run * given_gpus
        return max(held / (gang_gpus - given_gpus), 0.0)
    speed = speed_on_kind(state, b, t, workers, num_ps, -1)
    return job.epochs_done * job.samples_per_epoch / (speed * interval_s) if speed > 0.0 else 0.0


@inline_kernel
def _kind_of_turn(state, b, i, total, scratch):
    """The kind that is job i's turn: over its intervals each kind comes up in proportion to its fraction."""
    turn = (state.jobs[b, i].intervals_run + 1) * GOLDEN
    at = (turn - math.floor(turn)) * total
    last = -1
    for g in range(state.compute_s.shape[1]):
        if scratch.fractions[0, i, g] > 0.0:
            last = g
            if at < scratch.fractions[0, i, g]:
                return g
            at -= scratch.fractions[0, i, g]
    return last


@inline_kernel
def _kind_of_round(state, b, i, scratch):
    """The kind for job i: that whose turn it is or, if its gang does not fit there, that of its largest fraction.

    Takes the gang's units. A job that fits nowhere stays where its turn is, and runs with what there is. Types without
    GPUs go anywhere.
    """
    t = state.jobs[b, i].type
    kinds = scratch.kinds
    workers, num_ps = gang(state, t, scratch.requests)
    cpus, gpus = units(state.types[t], workers, num_ps)
    turn = scratch.candidates[i].gpu_kind
    if state.types[t].worker_gpus == 0 or turn < 0:
        return -1
    chosen = turn
    if not fits(cpus, gpus, kinds[turn, CPUS], kinds[turn, GPUS]):
        largest = 0.0
        for g in range(state.compute_s.shape[1]):
            if scratch.fractions[0, i, g] > largest and fits(cpus, gpus, kinds[g, CPUS], kinds[g, GPUS]):
                largest = scratch.fractions[0, i, g]
                chosen = g
    kinds[chosen, CPUS] -= cpus
    kinds[chosen, GPUS] -= gpus
    return chosen


@kernel
def plan_gavel(state, b, code, params, scratch):
    """Priority: fraction of time over the fraction received. `params[0]`: `speed_share`; `code`: the objective."""
    write_requests(state, b, params[0], scratch)
    num_kinds = free_kinds(state, b, scratch.kinds)
    write_rates(state, b, scratch)
    write_weights(state, b, code, scratch)
    rules = state.rules[0]
    candidates = scratch.candidates
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        place = place_of(state, b, i)
        workers, num_ps = gang(state, t, scratch.requests)
        if place == NOWHERE:
            workers = 0
            num_ps = 0
        want(scratch, i, 0.0, workers, num_ps)
        candidates[i].gpu_kind = place
    write_fractions(state, b, num_kinds, scratch)
    size = 0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        total = 0.0
        for g in range(state.compute_s.shape[1]):
            total += scratch.fractions[0, i, g]
        elapsed = state.env[b].interval - state.jobs[b, i].arrival_s / rules.interval_s + 1.0
        candidates[i].order = total * elapsed / max(rounds_received(state, b, i, scratch), 1e-6)
        candidates[i].key = candidates[i].order
        if candidates[i].gpu_kind == ANYWHERE:
            candidates[i].gpu_kind = _kind_of_turn(state, b, i, total, scratch)
            rise(scratch.heap, size, candidates, i)
            size += 1
        if num_kinds == 1 or candidates[i].gpu_kind == NOWHERE:
            candidates[i].gpu_kind = -1
    while size > 0 and num_kinds > 1:
        i = scratch.heap[0]
        candidates[i].gpu_kind = _kind_of_round(state, b, i, scratch)
        size = replace_root(scratch.heap, size, candidates, False)


class _Gavel(Heuristic):
    """Base: what both objectives share."""

    rule: str

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE) -> None:
        super().__init__(checked_share(self.rule, speed_share))
        self.name = name_with_share(self.rule, speed_share)


class GavelMaxMinScheduler(_Gavel):
    """Heterogeneity-aware max-min fairness: shares of time on kinds of GPUs so that the worst-off job has most.

    Source: Narayanan et al., OSDI 2020, the policy for max-min fairness (least attained service) and the round-based
    mechanism. X[j, g] is the share of time that job j spends on GPU kind g. The policy makes the smallest of

        size_j * sum_g X[j, g] speed[j, g] / speed_j(equal shares of all kinds)

    as large as it can, where no job has more than all of its time and no kind more than all of its units. Jobs that
    could not use more do not hold the others down, and what is left after that goes to the jobs in the order of
    arrival. On one kind it is max-min fairness of the amounts X_j * size_j of gangs that take turns. The size of a gang
    is its dominant share of the cluster, its part of a kind the larger of its parts of the kind's CPU and GPU units.

    Each interval is a round. A job's priority is its X over the share of rounds it has received; the highest comes
    first, and its workers go to servers of one kind only: that whose turn it is, so that over its intervals the kinds
    come up in proportion to X; or, where jobs before it leave no room for its gang, the one with its next largest X.

    Adapted:
        * X is found inside the kernel: bisection of the level that all jobs reach, and for each level a program with
          one row per kind (`gavel_program.reaches`). With one kind this is plain water filling.
        * A gang is the smallest that reaches `speed_share` of its type's best isolated speed, as in `MaxMinScheduler`;
          a gang that fits only in part runs with that part.
        * The throughput matrix is the scenario's estimate, which is that of the first GPU kind, with the computation's
          time exchanged for that of each kind (`speed_on_kind`).
        * A job's record has no rounds per kind. Rounds received are its GPU time, beyond its initial bundles, in units
          of its gang's (`rounds_received`); which kind's turn it is follows from `intervals_run`. Gavel keeps both per
          kind.
        * With initial bundles a job runs on the kind where its bundle lies, since its slowest GPU sets its pace; a job
          whose bundle found no room gets nothing in that interval. The plan then shares out what bundles leave. Kinds
          can be chosen only in scenarios without initial bundles.
        * Packing of two jobs on one GPU is left out: tasks have whole GPUs here.

    Args:
        speed_share: Share of the best isolated speed that a gang must reach. The default is an assumption.
    """

    code = GAVEL_MAXMIN
    rule = "gavel-maxmin"


class GavelMakespanScheduler(_Gavel):
    """Heterogeneity-aware makespan: shares of time on kinds of GPUs so that the last job ends as early as possible.

    Source: Narayanan et al., OSDI 2020: the smallest of sum_g X[j, g] speed[j, g] / remaining work of j is made as
    large as it can. Remaining work follows from the user's epochs; jobs that have not arrived yet are not known.
    Everything else is as in `GavelMaxMinScheduler`. Long jobs get most, which keeps mean completion times long.

    Args:
        speed_share: Share of the best isolated speed that a gang must reach. The default is an assumption.
    """

    code = GAVEL_MAKESPAN
    rule = "gavel-makespan"
