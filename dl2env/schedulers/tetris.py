"""Tetris: packing and shortest remaining work in one score."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import TETRIS
from dl2env.schedulers.heuristic import Heuristic, grow_kind, is_half_started, remaining_seconds, shares_server
from dl2env.sim.placement import action_demand


@inline_kernel
def _alignment_and_work(state, b, i, kind):
    """Alignment of a task with the cluster's free resources, and its size times the job's remaining time."""
    job = state.jobs[b, i]
    rules = state.rules[0]
    total_cpus = max(rules.total_cpus, 1.0)
    total_gpus = max(rules.total_gpus, 1.0)
    cpus, gpus = action_demand(state.types[job.type], kind)
    size = cpus / total_cpus + gpus / total_gpus
    free_cpus = state.env[b].free_cpus / total_cpus
    free_gpus = state.env[b].free_gpus / total_gpus
    alignment = free_cpus * cpus / total_cpus + free_gpus * gpus / total_gpus
    return alignment, size * remaining_seconds(job, state.best_speed[b % state.best_speed.shape[0], job.type])


@inline_kernel
def _growth(state, b, i, legal):
    job = state.jobs[b, i]
    is_paired = shares_server(state.classes[job.type], state.demands)
    return grow_kind(legal, job, state.types[job.type], is_paired, 1.0)


@inline_kernel
def prepare_tetris(state, b, scratch):
    """Weight of the work term: mean alignment over mean work of the candidates."""
    sum_alignment = 0.0
    sum_work = 0.0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        kind = _growth(state, b, i, scratch.candidates[i].legal)
        if kind >= 0:
            alignment, work = _alignment_and_work(state, b, i, kind)
            sum_alignment += alignment
            sum_work += work
    scratch.shared[0] = sum_alignment / sum_work if sum_work > 0.0 else 0.0


@inline_kernel
def score_tetris(state, b, i, legal, scratch):
    """Alignment less weighted work."""
    kind = _growth(state, b, i, legal)
    if kind < 0:
        return 0.0, -1
    job = state.jobs[b, i]
    if is_half_started(job, state.types[job.type], shares_server(state.classes[job.type], state.demands)):
        return math.inf, kind
    alignment, work = _alignment_and_work(state, b, i, kind)
    return alignment - scratch.shared[0] * work, kind


class TetrisScheduler(Heuristic):
    """Gives the next tasks to the job with the best alignment with free resources, less its weighted remaining work.

    Source: Grandl et al., SIGCOMM 2014: score = alignment - (mean alignment / mean work) * work. Adapted to elastic
    jobs as in DL2's baseline; demands and free resources are shares of the cluster, because the server is chosen by the
    placement strategy. (The released DL2 adds the work term, which prefers long jobs.)
    """

    name = "tetris"
    code = TETRIS
