"""Gavel: heterogeneity-aware max-min fairness and makespan, over shares of time on kinds of GPUs."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import GAVEL_MAKESPAN, GAVEL_MAXMIN
from dl2env.schedulers.growth import given_counts, share_of, units
from dl2env.schedulers.heuristic import Heuristic, shares_server
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests
from dl2env.sim.speeds import estimated_speed

GIVEN_SPEED, GANG_SPEED, COST, EQUAL_SPEED = range(4)  # columns of `Scratch.rates`; the last one for kind 0 only
CPUS, GPUS, PRICE, LOAD, TOTAL_LOAD, PART = range(6)  # columns of `Scratch.kinds`

NOWHERE, ANYWHERE = -2, -1
"""Codes beside GPU kinds: a job that gets nothing, and one that may run on any kind."""

ROUNDS = 60
"""Responses to prices that are averaged, at most, before a level counts as out of reach."""

SLACK = 0.01
"""Kinds may be planned this much too full: placement is coarser than that."""

GOLDEN = 0.6180339887498949


@inline_kernel
def speed_on_kind(state, b, t, workers, num_ps, kind):
    """Estimated isolated speed of an allocation on servers of a GPU kind.

    The estimate is that of the first kind; the time of the computation is exchanged for that of the kind. Where
    computation and communication overlap, a kind only counts once its computation takes longer than the whole step.
    Measured tables know no kinds.
    """
    estimate = state.estimate[b % state.estimate.shape[0], t]
    job_type = state.types[t]
    rules = state.rules[0]
    speed = estimated_speed(estimate, job_type, workers, num_ps, 1.0)
    if speed <= 0.0 or rules.is_measured or kind < 0:
        return speed
    step_s = estimate[workers, num_ps, 0]
    fraction = 1.0 / workers if job_type.is_synchronous else 1.0
    compute_s = state.compute_s[t, kind] * fraction
    kind_s = step_s
    if not rules.is_ideal_overlap:
        kind_s += compute_s - state.compute_s[t, 0] * fraction
    return speed * step_s / max(kind_s, compute_s, 1e-3 * step_s)


@inline_kernel
def _gang(state, t, requests):
    """(workers, PSs) of a type's gang: its request, at least what jobs are given."""
    workers, num_ps = given_counts(state, t)
    return max(workers, requests[t, 0]), max(num_ps, requests[t, 1])


@inline_kernel
def _holds(state, t, kind):
    """Whether servers of a kind can hold the first tasks of a type."""
    job_type = state.types[t]
    cpus = 0
    gpus = 0
    is_paired = job_type.max_ps > 0 and shares_server(state.classes[t], state.demands)
    if is_paired:
        cpus = job_type.worker_cpus + job_type.ps_cpus
        gpus = job_type.worker_gpus + job_type.ps_gpus
    holds_worker = False
    holds_ps = job_type.max_ps == 0 or is_paired
    for s in range(state.specs.shape[0]):
        spec = state.specs[s]
        if spec.gpu_kind == kind:
            if spec.cpus >= max(cpus, job_type.worker_cpus) and spec.gpus >= max(gpus, job_type.worker_gpus):
                holds_worker = True
            if spec.cpus >= job_type.ps_cpus and spec.gpus >= job_type.ps_gpus:
                holds_ps = True
    return holds_worker and holds_ps


@inline_kernel
def _place_of(state, b, i):
    """Where job i may run: on the kind of its initial bundle, nowhere when that found no room, else anywhere."""
    job = state.jobs[b, i]
    if given_counts(state, job.type)[0] == 0:
        return ANYWHERE
    if job.num_entries == 0:
        return NOWHERE
    return int(state.specs[state.entries[b, i, 0].server].gpu_kind)


@inline_kernel
def _free_kinds(state, b, kinds):
    """Writes the units of each kind that initial bundles leave; returns how many kinds have servers."""
    rules = state.rules[0]
    for g in range(state.compute_s.shape[1]):
        kinds[g, CPUS] = 0.0
        kinds[g, GPUS] = 0.0
    for s in range(state.specs.shape[0]):
        kinds[state.specs[s].gpu_kind, CPUS] += state.specs[s].cpus
        kinds[state.specs[s].gpu_kind, GPUS] += state.specs[s].gpus
    num_kinds = 0
    for g in range(state.compute_s.shape[1]):
        num_kinds += int(kinds[g, CPUS] + kinds[g, GPUS] > 0.0)
        kinds[g, PART] = kinds[g, CPUS] / max(rules.total_cpus, 1.0)
        if rules.total_gpus > 0.0:
            kinds[g, PART] = kinds[g, GPUS] / rules.total_gpus
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        place = _place_of(state, b, i)
        if place >= 0:
            t = state.jobs[b, i].type
            workers, num_ps = given_counts(state, t)
            cpus, gpus = units(state.types[t], workers, num_ps)
            kinds[place, CPUS] -= cpus
            kinds[place, GPUS] -= gpus
    return num_kinds


@inline_kernel
def _write_rates(state, b, scratch):
    """Writes what a gang of each type is on each kind: speeds without and with it, and its part of the kind's units.

    And its speed with equal shares of time on every GPU.
    """
    kinds = scratch.kinds
    for t in range(state.types.shape[0]):
        workers, num_ps = _gang(state, t, scratch.requests)
        given_workers, given_ps = given_counts(state, t)
        cpus, gpus = units(state.types[t], workers - given_workers, num_ps - given_ps)
        scratch.rates[t, 0, EQUAL_SPEED] = 0.0
        for g in range(state.compute_s.shape[1]):
            rates = scratch.rates[t, g]
            rates[GIVEN_SPEED] = speed_on_kind(state, b, t, given_workers, given_ps, g)
            rates[GANG_SPEED] = speed_on_kind(state, b, t, workers, num_ps, g)
            scratch.rates[t, 0, EQUAL_SPEED] += kinds[g, PART] * rates[GANG_SPEED]
            rates[COST] = 0.0
            if cpus > 0.0:
                rates[COST] = cpus / kinds[g, CPUS] if kinds[g, CPUS] > 0.0 else math.inf
            if gpus > 0.0:
                rates[COST] = max(rates[COST], gpus / kinds[g, GPUS] if kinds[g, GPUS] > 0.0 else math.inf)
            if rates[COST] == math.inf or not _holds(state, t, g):
                rates[COST] = math.inf
                rates[GANG_SPEED] = rates[GIVEN_SPEED]


@inline_kernel
def _gain(state, b, i, kind, scratch):
    """What a whole interval of its gang on a kind adds to the normalised speed of job i; 0 where it cannot run."""
    place = scratch.candidates[i].gpu_kind
    rates = scratch.rates[state.jobs[b, i].type, kind]
    if rates[COST] == math.inf or not (place == kind or place == ANYWHERE):
        return 0.0
    return scratch.values[i] * max(rates[GANG_SPEED] - rates[GIVEN_SPEED], 0.0)


@inline_kernel
def _given(state, b, i, scratch):
    """Normalised speed that job i has anyway."""
    place = scratch.candidates[i].gpu_kind
    return scratch.values[i] * scratch.rates[state.jobs[b, i].type, place, GIVEN_SPEED] if place >= 0 else 0.0


@inline_kernel
def _write_weights(state, b, code, scratch):
    """Writes by what each job's speed is multiplied to be compared."""
    rules = state.rules[0]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        if code == GAVEL_MAKESPAN:
            left = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
            # A job that is through by its estimate counts as if it had a second left.
            scratch.values[i] = 1.0 / max(left, state.best_speed[b % state.best_speed.shape[0], job.type])
            continue
        workers, num_ps = _gang(state, job.type, scratch.requests)
        cpus, gpus = units(state.types[job.type], workers, num_ps)
        equal = scratch.rates[job.type, 0, EQUAL_SPEED]
        scratch.values[i] = share_of(rules, cpus, gpus) / equal if equal > 0.0 else 0.0


@inline_kernel
def _respond(state, b, i, level, scratch):
    """Adds the cheapest time fractions with which job i reaches a level (or its most) to the loads and sums.

    Returns what they cost at the present prices.
    """
    kinds = scratch.kinds
    rates = scratch.rates[state.jobs[b, i].type]
    need = level - _given(state, b, i, scratch)
    most = 0.0
    for g in range(state.compute_s.shape[1]):
        most = max(most, _gain(state, b, i, g, scratch))
    need = min(need, most)
    if need <= 0.0:
        return 0.0
    cheapest = math.inf
    first = -1
    second = -1
    for g in range(state.compute_s.shape[1]):  # one kind, for a part of the time
        gain = _gain(state, b, i, g, scratch)
        if gain >= need:
            cost = need / gain * rates[g, COST] * kinds[g, PRICE]
            if cost < cheapest:
                cheapest = cost
                first = g
                second = -1
    for g in range(state.compute_s.shape[1]):  # a slow kind and a fast one, all of the time
        slow = _gain(state, b, i, g, scratch)
        if slow <= 0.0 or slow >= need:
            continue
        for h in range(state.compute_s.shape[1]):
            fast = _gain(state, b, i, h, scratch)
            if fast > need:
                part = (need - slow) / (fast - slow)
                cost = part * rates[h, COST] * kinds[h, PRICE] + (1.0 - part) * rates[g, COST] * kinds[g, PRICE]
                if cost < cheapest:
                    cheapest = cost
                    first = h
                    second = g
    fraction = need / _gain(state, b, i, first, scratch)
    if second >= 0:
        slow = _gain(state, b, i, second, scratch)
        fraction = (need - slow) / (_gain(state, b, i, first, scratch) - slow)
        scratch.fractions[1, i, second] += 1.0 - fraction
        kinds[second, LOAD] += (1.0 - fraction) * rates[second, COST]
    scratch.fractions[1, i, first] += fraction
    kinds[first, LOAD] += fraction * rates[first, COST]
    return cheapest


@kernel
def _reaches(state, b, level, num_kinds, scratch):
    """Whether time fractions exist with which every job reaches a level or its most; if so, they are kept.

    Kinds have prices. Jobs answer with their cheapest fractions, and the prices of kinds that are asked for too much
    rise (multiplicative weights). If even the cheapest answers cost more than all kinds are worth, no fractions exist;
    if the average of the answers fits, it is a solution.
    """
    kinds = scratch.kinds
    num_active = state.env[b].num_active
    for g in range(state.compute_s.shape[1]):
        kinds[g, PRICE] = 1.0 / num_kinds if kinds[g, CPUS] + kinds[g, GPUS] > 0.0 else 0.0
        kinds[g, TOTAL_LOAD] = 0.0
    for k in range(num_active):
        scratch.fractions[1, state.active[b, k], :] = 0.0
    for r in range(ROUNDS):
        for g in range(state.compute_s.shape[1]):
            kinds[g, LOAD] = 0.0
        cost = 0.0
        for k in range(num_active):
            cost += _respond(state, b, state.active[b, k], level, scratch)
        if cost > 1.0 + SLACK:
            return False
        highest = 0.0
        for g in range(state.compute_s.shape[1]):
            kinds[g, TOTAL_LOAD] += kinds[g, LOAD]
            highest = max(highest, kinds[g, TOTAL_LOAD] / (r + 1.0))
        if highest <= 1.0 + SLACK:
            for k in range(num_active):
                i = state.active[b, k]
                for g in range(state.compute_s.shape[1]):
                    scratch.fractions[0, i, g] = scratch.fractions[1, i, g] / (r + 1.0)
            return True
        total = 0.0
        for g in range(state.compute_s.shape[1]):
            kinds[g, PRICE] *= math.exp(0.5 * (min(kinds[g, LOAD], 3.0) - 1.0))
            total += kinds[g, PRICE]
        for g in range(state.compute_s.shape[1]):
            kinds[g, PRICE] /= total
    return False


@kernel
def write_fractions(state, b, code, num_kinds, scratch):
    """Writes each job's shares of time on the kinds: the highest level that all jobs can reach, or their most."""
    highest = 0.0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        scratch.fractions[0, i, :] = 0.0
        for g in range(state.compute_s.shape[1]):
            highest = max(highest, _given(state, b, i, scratch) + _gain(state, b, i, g, scratch))
    if highest <= 0.0 or _reaches(state, b, highest, num_kinds, scratch):
        return
    lowest = 1e-9 * highest  # if not even this can be reached, nobody gets a planned share
    while highest > 1.001 * lowest:
        level = math.sqrt(lowest * highest)
        if _reaches(state, b, level, num_kinds, scratch):
            lowest = level
        else:
            highest = level


@inline_kernel
def rounds_received(state, b, i, scratch):
    """Intervals' worth of its gang that job i has had, beyond what it is given.

    By the GPU time of its record; for gangs that take no further GPUs, by its progress at the gang's speed.
    """
    job = state.jobs[b, i]
    t = job.type
    interval_s = state.rules[0].interval_s
    workers, num_ps = _gang(state, t, scratch.requests)
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


@kernel
def plan_gavel(state, b, code, params, scratch):
    """Priority: fraction of time over the fraction received. `params[0]`: `speed_share`; `code`: the objective."""
    write_requests(state, b, params[0], scratch)
    num_kinds = _free_kinds(state, b, scratch.kinds)
    _write_rates(state, b, scratch)
    _write_weights(state, b, code, scratch)
    rules = state.rules[0]
    candidates = scratch.candidates
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        place = _place_of(state, b, i)
        workers, num_ps = _gang(state, t, scratch.requests)
        if place == NOWHERE:
            workers = 0
            num_ps = 0
        want(scratch, i, 0.0, workers, num_ps)
        candidates[i].gpu_kind = place
    write_fractions(state, b, code, num_kinds, scratch)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        candidate = candidates[i]
        total = 0.0
        for g in range(state.compute_s.shape[1]):
            total += scratch.fractions[0, i, g]
        elapsed = state.env[b].interval - state.jobs[b, i].arrival_s / rules.interval_s + 1.0
        candidate.order = total * elapsed / max(rounds_received(state, b, i, scratch), 1e-6)
        if candidate.gpu_kind == ANYWHERE:
            candidate.gpu_kind = _kind_of_turn(state, b, i, total, scratch)
        if num_kinds == 1 or candidate.gpu_kind == NOWHERE or state.types[state.jobs[b, i].type].worker_gpus == 0:
            candidate.gpu_kind = -1


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

    as large as it can, where no job has more than all of its time and no kind more than all of its units. Where that
    leaves room, jobs that can still gain get more (water filling). On one kind it is max-min fairness of the amounts
    X_j * size_j of gangs that take turns. The size of a gang is its dominant share of the cluster, its part of a kind
    the larger of its parts of the kind's CPU and GPU units.

    Each interval is a round. A job's priority is its X over the share of rounds it has received; the highest comes
    first, and its tasks go to servers of one kind only: that whose turn it is, so that over its intervals the kinds
    come up in proportion to X.

    Adapted:
        * Instead of by an LP solver, X is found inside the kernel: bisection of the level that all jobs reach, with
          prices for the kinds (`_reaches`), to about 1 %. With one kind this is plain water filling.
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

    Source: Narayanan et al., OSDI 2020: the smallest of sum_g X[j, g] speed[j, g] / remaining work of j is made as large
    as it can. Remaining work follows from the user's epochs; jobs that have not arrived yet are not known. Everything
    else is as in `GavelMaxMinScheduler`. Long jobs get most, which is not what keeps mean completion times short.

    Args:
        speed_share: Share of the best isolated speed that a gang must reach. The default is an assumption.
    """

    code = GAVEL_MAKESPAN
    rule = "gavel-makespan"
