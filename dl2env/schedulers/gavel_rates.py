"""What gangs are worth and cost on kinds of GPUs, for Gavel."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import GAVEL_MAKESPAN
from dl2env.schedulers.growth import given_counts, share_of, units
from dl2env.schedulers.heuristic import shares_server
from dl2env.sim.speeds import estimated_speed

GIVEN_SPEED, GANG_SPEED, COST, EQUAL_SPEED = range(4)  # columns of `Scratch.rates`; the last one for kind 0 only
CPUS, GPUS, PRICE, LOAD, PART = range(5)  # columns of `Scratch.kinds`

NOWHERE, ANYWHERE = -2, -1
"""Codes beside GPU kinds: a job that gets nothing, and one that may run on any kind."""


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
def gang(state, t, requests):
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
def place_of(state, b, i):
    """Where job i may run: on the kind of its initial bundle, nowhere when that found no room, else anywhere."""
    job = state.jobs[b, i]
    if given_counts(state, job.type)[0] == 0:
        return ANYWHERE
    if job.num_entries == 0:
        return NOWHERE
    return int(state.specs[state.entries[b, i, 0].server].gpu_kind)


@inline_kernel
def free_kinds(state, b, kinds):
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
        place = place_of(state, b, i)
        if place >= 0:
            t = state.jobs[b, i].type
            workers, num_ps = given_counts(state, t)
            cpus, gpus = units(state.types[t], workers, num_ps)
            kinds[place, CPUS] -= cpus
            kinds[place, GPUS] -= gpus
    return num_kinds


@inline_kernel
def write_rates(state, b, scratch):
    """Writes what a gang of each type is on each kind: speeds without and with it, and its part of the kind's units.

    And its speed with equal shares of time on every GPU.
    """
    kinds = scratch.kinds
    for t in range(state.types.shape[0]):
        workers, num_ps = gang(state, t, scratch.requests)
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
def gain_on(state, b, i, kind, scratch):
    """What a whole interval of its gang on a kind adds to the normalised speed of job i; 0 where it cannot run."""
    place = scratch.candidates[i].gpu_kind
    rates = scratch.rates[state.jobs[b, i].type, kind]
    if rates[COST] == math.inf or not (place == kind or place == ANYWHERE):
        return 0.0
    return scratch.values[i] * max(rates[GANG_SPEED] - rates[GIVEN_SPEED], 0.0)


@inline_kernel
def given_level(state, b, i, scratch):
    """Normalised speed that job i has anyway."""
    place = scratch.candidates[i].gpu_kind
    return scratch.values[i] * scratch.rates[state.jobs[b, i].type, place, GIVEN_SPEED] if place >= 0 else 0.0


@inline_kernel
def write_weights(state, b, code, scratch):
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
        workers, num_ps = gang(state, job.type, scratch.requests)
        cpus, gpus = units(state.types[job.type], workers, num_ps)
        equal = scratch.rates[job.type, 0, EQUAL_SPEED]
        scratch.values[i] = share_of(rules, cpus, gpus) / equal if equal > 0.0 else 0.0
