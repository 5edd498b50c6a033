"""AFS: elastic shares by comparing the gains of a shorter and a longer job."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import AFS
from dl2env.schedulers.growth import LEAST_SHARE, begin_growth, can_grow, grow, want_step
from dl2env.schedulers.heuristic import Heuristic


@inline_kernel
def _left_s(state, b, i, scratch):
    """Seconds job i has left at its step; infinite while it stands still."""
    job = state.jobs[b, i]
    speed = scratch.steps[job.type, scratch.candidates[i].step].speed
    left = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
    return left / speed if speed > 0.0 else math.inf


@inline_kernel
def _first_s(state, b, i, scratch):
    """Seconds job i has left at its first step."""
    job = state.jobs[b, i]
    left = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
    return left / scratch.steps[job.type, 1].speed


@inline_kernel
def _prefers(state, b, i, j, scratch):
    """Whether job i gets the next share rather than job j, of which i arrived first."""
    steps_i = scratch.steps[state.jobs[b, i].type]
    steps_j = scratch.steps[state.jobs[b, j].type]
    k_i = scratch.candidates[i].step
    k_j = scratch.candidates[j].step
    stands_i = steps_i[k_i].speed <= 0.0
    stands_j = steps_j[k_j].speed <= 0.0
    if stands_i or stands_j:
        if stands_i and stands_j:
            return _first_s(state, b, i, scratch) <= _first_s(state, b, j, scratch)
        return stands_i
    gain_i = steps_i[k_i + 1].speed - steps_i[k_i].speed
    gain_j = steps_j[k_j + 1].speed - steps_j[k_j].speed
    gain_i /= max(steps_i[k_i + 1].share - steps_i[k_i].share, LEAST_SHARE)
    gain_j /= max(steps_j[k_j + 1].share - steps_j[k_j].share, LEAST_SHARE)
    # The longer job must gain more relative to what it will have than the shorter one relative to what it has.
    if scratch.values[i] <= scratch.values[j]:
        return gain_j / steps_j[k_j + 1].speed <= gain_i / steps_i[k_i].speed
    return gain_i / steps_i[k_i + 1].speed > gain_j / steps_j[k_j].speed


@kernel
def plan_afs(state, b, params, scratch):
    """Gives steps one by one to the winner of a round of comparisons."""
    free_cpus, free_gpus = begin_growth(state, b, scratch)
    rivals = scratch.heap
    size = 0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        scratch.values[i] = _left_s(state, b, i, scratch)
        if can_grow(state, b, i, scratch):
            rivals[size] = i
            size += 1
    while size > 0:
        best = 0
        for x in range(1, size):
            if not _prefers(state, b, rivals[best], rivals[x], scratch):
                best = x
        i = rivals[best]
        moved, free_cpus, free_gpus = grow(state, b, i, scratch.candidates[i].step + 1, free_cpus, free_gpus, scratch)
        scratch.values[i] = _left_s(state, b, i, scratch)
        if not (moved and can_grow(state, b, i, scratch)):
            size -= 1
            for x in range(best, size):  # the others stay in the order of arrival
                rivals[x] = rivals[x + 1]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        want_step(state, b, i, -_left_s(state, b, i, scratch), scratch)


class AfsScheduler(Heuristic):
    """Shares grow where they shorten the mean completion time: shorter jobs first, unless longer ones use them better.

    Source: Hwang et al., NSDI 2021, the algorithm AFS-L as we understand it. Of two jobs the one with less remaining
    time under its present share gets the next GPU, unless the other gains more by it: (p'_l - p_l) / p'_l of the longer
    job against (p'_s - p_s) / p_s of the shorter one, where p and p' are its throughput without and with that GPU. All
    jobs are compared in turn, the winner with the next, in the order of arrival.

    Adapted: instead of one GPU a job is offered the next allocation of its type that pays (see `growth`), and gains are
    per dominant share, so that tasks of different size compare. Jobs that have nothing start first, the shortest
    first. A job whose next allocation does not fit stays as it is. Remaining work is the user's estimate (the form of
    AFS that does not know job lengths is not built), speeds are isolated ones. Where servers cannot hold all that was
    planned, the shortest remaining time is served first. AFS places jobs itself; here the scenario does.
    """

    name = "afs"
    code = AFS
