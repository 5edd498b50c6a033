"""Themis: finish-time fairness."""

from __future__ import annotations

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import THEMIS
from dl2env.schedulers.growth import begin_growth, can_grow, fair_speed, grow, speed_at, want_step
from dl2env.schedulers.heap import replace_root, rise
from dl2env.schedulers.heuristic import Heuristic


@inline_kernel
def _left_samples(job):
    return max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch


@inline_kernel
def finish_time_ratio(state, b, i, step, scratch):
    """Ratio (rho) of job i at a step: its time in the system when it finishes, over its time alone in a fair share.

    `scratch.values` holds the latter.
    """
    job = state.jobs[b, i]
    age_s = state.env[b].interval * state.rules[0].interval_s - job.arrival_s
    speed = speed_at(state, b, i, step, scratch)
    left_s = _left_samples(job) / speed if speed > 0.0 else 0.0
    alone_s = scratch.values[i]
    return (age_s + left_s) / alone_s if alone_s > 0.0 else 0.0


@kernel
def plan_themis(state, b, params, scratch):
    """The job with the worst ratio grows next, until nothing fits. Jobs that stand still start first."""
    free_cpus, free_gpus = begin_growth(state, b, scratch)
    heap = scratch.heap
    candidates = scratch.candidates
    num_active = state.env[b].num_active
    size = 0
    for k in range(num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        fair = fair_speed(scratch.steps[job.type], scratch.num_steps[job.type], 1.0 / num_active)
        scratch.values[i] = job.epochs * job.samples_per_epoch / fair if fair > 0.0 else 0.0
        stands = speed_at(state, b, i, 0, scratch) <= 0.0 and can_grow(state, b, i, scratch)
        ratio = finish_time_ratio(state, b, i, int(stands), scratch)
        candidates[i].order = ratio
        candidates[i].key = ratio
        if stands:
            rise(heap, size, candidates, i)
            size += 1
    while size > 0:
        _, free_cpus, free_gpus = grow(state, b, heap[0], 1, free_cpus, free_gpus, scratch)
        size = replace_root(heap, size, candidates, False)
    for k in range(num_active):
        i = state.active[b, k]
        if can_grow(state, b, i, scratch) and speed_at(state, b, i, candidates[i].step, scratch) > 0.0:
            rise(heap, size, candidates, i)
            size += 1
    while size > 0:
        i = heap[0]
        moved, free_cpus, free_gpus = grow(state, b, i, candidates[i].step + 1, free_cpus, free_gpus, scratch)
        candidates[i].key = finish_time_ratio(state, b, i, candidates[i].step, scratch)
        size = replace_root(heap, size, candidates, moved and can_grow(state, b, i, scratch))
    for k in range(num_active):
        i = state.active[b, k]
        want_step(state, b, i, candidates[i].order, scratch)


class ThemisScheduler(Heuristic):
    """Finish-time fairness: the jobs that sharing hurts most come first.

    Source: Mahajan et al., NSDI 2020. A job's ratio rho = T_shared / T_alone compares when it finishes here, counted
    from its arrival, with how long it would have taken alone in a fair share of the cluster, 1 / n of it for n jobs.
    Sharing is fair when no rho exceeds 1; Themis makes the worst one as small as it can.

    Here:
        * T_shared is the time in the system so far plus the remaining work (the user's epochs) over the isolated speed
          of an allocation. T_alone is the whole work over the isolated speed in a share of 1 / n, with n the jobs
          active now (the paper, as we understand it, uses the average contention over a job's life).
        * In each interval the job with the worst rho under what is planned for it so far gets the next allocation of
          its type that pays (see `growth`), and so on until nothing fits. Jobs that have nothing start first, the worst
          rho at their first allocation first.
        * Where servers cannot hold all that was planned, the worst rho before any growth is served first.

    Not Themis: there is no auction (no partial allocation mechanism, no hidden payments, so no claim of truthfulness;
    all jobs take part, not the share 1 - f that is worst off), and no lease but the scheduling interval. Placement
    sensitivity is not part of the bids, since the scenario places tasks; contention is not foreseen.
    """

    name = "themis"
    code = THEMIS
