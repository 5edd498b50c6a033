"""How plans let jobs grow: from what each has anyway, step by step, along the allocations of its type that pay best.

The steps of a type are the corners of the upper hull of its (dominant share, estimated isolated speed) points: each is
the allocation with the largest gain of speed per share beyond the one before. A step may add many tasks at once where
fewer do not pay (a second worker that only brings communication), gains per share never grow along the steps, and the
last one is the fastest allocation. A plan hands out the cluster's CPU and GPU units; on which servers they are, and
whether tasks fit there, is left to the placement.
"""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.heap import replace_root, rise
from dl2env.schedulers.heuristic import shares_server
from dl2env.schedulers.planned import want
from dl2env.sim.placement import is_single_server
from dl2env.sim.speeds import estimated_speed

LEAST_SHARE = 1e-12
"""Stands in for a share of nothing, so that what is free of charge has a finite gain per share."""

_SAME_SLOPE = 1.0 - 1e-9


@inline_kernel
def given_counts(state, t):
    """(workers, PSs) that a job of a type gets at an interval's start."""
    job_type = state.types[t]
    if not state.rules[0].initial_bundle or (
        job_type.max_ps > 0 and not shares_server(state.classes[t], state.demands)
    ):
        return 0, 0
    return 1, min(1, job_type.max_ps)


@inline_kernel
def units(job_type, workers, num_ps):
    """CPU and GPU units of some tasks."""
    cpus = float(workers * job_type.worker_cpus + num_ps * job_type.ps_cpus)
    return cpus, float(workers * job_type.worker_gpus + num_ps * job_type.ps_gpus)


@inline_kernel
def share_of(rules, cpus, gpus):
    """Dominant share of the cluster."""
    return max(cpus / max(rules.total_cpus, 1.0), gpus / max(rules.total_gpus, 1.0))


@inline_kernel
def fits(cpus, gpus, free_cpus, free_gpus):
    """Whether units are free. What is not needed need not be, where initial bundles overfill the cluster."""
    return (cpus <= 0.0 or cpus <= free_cpus) and (gpus <= 0.0 or gpus <= free_gpus)


@inline_kernel
def most_workers(state, t):
    """Workers that a job of a type can have: its cap, and for single-server types what the largest server holds."""
    job_type = state.types[t]
    if not is_single_server(job_type.architecture):
        return int(job_type.max_workers)
    most = 1
    for s in range(state.specs.shape[0]):
        here = int(job_type.max_workers)
        if job_type.worker_cpus > 0:
            here = min(here, state.specs[s].cpus // job_type.worker_cpus)
        if job_type.worker_gpus > 0:
            here = min(here, state.specs[s].gpus // job_type.worker_gpus)
        most = max(most, here)
    return most


@inline_kernel
def _write(step, speed, share, workers, num_ps):
    step.speed = speed
    step.share = share
    step.workers = workers
    step.ps = num_ps


@kernel
def write_steps(state, b, t, scratch):
    """Writes the steps of a type: first what its jobs are given, then the corners of the hull.

    Of allocations with the same gain per share the smallest comes first.
    """
    job_type = state.types[t]
    rules = state.rules[0]
    estimate = state.estimate[b % state.estimate.shape[0], t]
    steps = scratch.steps[t]
    cells = scratch.cells
    given_workers, given_ps = given_counts(state, t)
    cpus, gpus = units(job_type, given_workers, given_ps)
    speed = estimated_speed(estimate, job_type, given_workers, given_ps, 1.0)
    _write(steps[0], speed, share_of(rules, cpus, gpus), given_workers, given_ps)
    num_cells = 0
    for w in range(max(given_workers, 1), most_workers(state, t) + 1):
        for p in range(max(given_ps, min(1, job_type.max_ps)), job_type.max_ps + 1):
            speed = estimated_speed(estimate, job_type, w, p, 1.0)
            if speed > steps[0].speed:
                cpus, gpus = units(job_type, w, p)
                _write(cells[num_cells], speed, share_of(rules, cpus, gpus), w, p)
                num_cells += 1
    num_steps = 0
    while num_cells > 0:
        here = steps[num_steps]
        steepest = 0.0
        for c in range(num_cells):
            gain = (cells[c].speed - here.speed) / max(cells[c].share - here.share, LEAST_SHARE)
            steepest = max(steepest, gain)
        chosen = -1
        for c in range(num_cells):
            gain = (cells[c].speed - here.speed) / max(cells[c].share - here.share, LEAST_SHARE)
            if gain >= steepest * _SAME_SLOPE and (chosen < 0 or cells[c].share < cells[chosen].share):
                chosen = c
        num_steps += 1
        cell = cells[chosen]
        _write(steps[num_steps], cell.speed, cell.share, cell.workers, cell.ps)
        kept = 0
        for c in range(num_cells):
            if cells[c].speed > steps[num_steps].speed:
                _write(cells[kept], cells[c].speed, cells[c].share, cells[c].workers, cells[c].ps)
                kept += 1
        num_cells = kept
    scratch.num_steps[t] = num_steps


@kernel
def begin_growth(state, b, scratch):
    """Puts every active job at the first of its type's steps; returns the CPU and GPU units that are left."""
    rules = state.rules[0]
    free_cpus = rules.total_cpus
    free_gpus = rules.total_gpus
    for t in range(state.types.shape[0]):
        scratch.num_steps[t] = -1
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        if scratch.num_steps[t] < 0:
            write_steps(state, b, t, scratch)
        scratch.candidates[i].step = 0
        cpus, gpus = units(state.types[t], scratch.steps[t, 0].workers, scratch.steps[t, 0].ps)
        free_cpus -= cpus
        free_gpus -= gpus
    return free_cpus, free_gpus


@inline_kernel
def speed_at(state, b, i, step, scratch):
    """Estimated isolated speed of job i at one of its steps."""
    return scratch.steps[state.jobs[b, i].type, step].speed


@inline_kernel
def can_grow(state, b, i, scratch):
    """Whether job i has a step to go."""
    return scratch.candidates[i].step < scratch.num_steps[state.jobs[b, i].type]


@inline_kernel
def grow(state, b, i, target, free_cpus, free_gpus, scratch):
    """Moves job i to a later step if its units are free. Returns (moved, CPU units left, GPU units left)."""
    t = state.jobs[b, i].type
    here = scratch.steps[t, scratch.candidates[i].step]
    there = scratch.steps[t, target]
    cpus, gpus = units(state.types[t], there.workers - here.workers, there.ps - here.ps)
    if not fits(cpus, gpus, free_cpus, free_gpus):
        return False, free_cpus, free_gpus
    scratch.candidates[i].step = target
    return True, free_cpus - cpus, free_gpus - gpus


@inline_kernel
def gain_per_share(state, b, i, scratch):
    """Seconds per sample that the next step of job i saves, per dominant share; infinite for one that stands still."""
    t = state.jobs[b, i].type
    here = scratch.steps[t, scratch.candidates[i].step]
    there = scratch.steps[t, scratch.candidates[i].step + 1]
    if here.speed <= 0.0:
        return math.inf
    return (1.0 / here.speed - 1.0 / there.speed) / max(there.share - here.share, LEAST_SHARE)


@kernel
def grow_by_gain(state, b, free_cpus, free_gpus, scratch):
    """Gives steps one by one to the job that gains most per share, weighted by `scratch.values`, until nothing fits.

    A job whose next step does not fit stays where it is. Ties go to the earlier job.
    """
    heap = scratch.heap
    candidates = scratch.candidates
    size = 0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        if can_grow(state, b, i, scratch):
            gain = gain_per_share(state, b, i, scratch)
            candidates[i].key = gain if gain == math.inf else scratch.values[i] * gain
            rise(heap, size, candidates, i)
            size += 1
    while size > 0:
        i = heap[0]
        moved, free_cpus, free_gpus = grow(state, b, i, candidates[i].step + 1, free_cpus, free_gpus, scratch)
        is_kept = moved and can_grow(state, b, i, scratch)
        if is_kept:
            candidates[i].key = scratch.values[i] * gain_per_share(state, b, i, scratch)
        size = replace_root(heap, size, candidates, is_kept)


@inline_kernel
def fair_speed(steps, num_steps, share):
    """Speed of a job alone in a share of the cluster: between two steps, that of both in turns; from nothing upwards.

    Args:
        steps: (C + 1,) STEP_DTYPE of the type.
        num_steps: How many of them are filled, the first not counted.
        share: Dominant share.
    """
    if num_steps == 0 or share <= steps[0].share:
        return steps[0].speed * share / max(steps[0].share, LEAST_SHARE) if steps[0].share > 0.0 else steps[0].speed
    for k in range(num_steps):
        if share < steps[k + 1].share:
            part = (share - steps[k].share) / (steps[k + 1].share - steps[k].share)
            return steps[k].speed + part * (steps[k + 1].speed - steps[k].speed)
    return steps[num_steps].speed


@inline_kernel
def want_step(state, b, i, order, scratch):
    """Wants the allocation of the step that job i has come to."""
    step = scratch.steps[state.jobs[b, i].type, scratch.candidates[i].step]
    want(scratch, i, order, step.workers, step.ps)


@inline_kernel
def wanted_share(state, b, i, scratch):
    """Dominant share of what job i wants."""
    return scratch.steps[state.jobs[b, i].type, scratch.candidates[i].step].share
