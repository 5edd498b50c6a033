"""Tetris: packing and shortest remaining work in one score."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.jit import allocating_kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, grow_action, is_half_started, shares_server
from dl2env.schedulers.srtf import remaining_seconds
from dl2env.sim.placement import action_demand


@allocating_kernel
def choose_tetris(jobs, window, mask, types, classes, demands, best_speed, env, rules, actions):
    """Writes Tetris' action of each environment; `actions` comes filled with void."""
    total_cpus = max(rules[0].total_cpus, 1.0)
    total_gpus = max(rules[0].total_gpus, 1.0)
    alignment = np.empty(window.shape[1])
    work = np.empty(window.shape[1])
    grow = np.empty(window.shape[1], np.int64)
    for b in range(window.shape[0]):
        e = b % best_speed.shape[0]
        free_cpus = env[b].free_cpus / total_cpus
        free_gpus = env[b].free_gpus / total_gpus
        sum_alignment = 0.0
        sum_work = 0.0
        filled = 0
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            filled += 1
            job = jobs[b, i]
            is_paired = shares_server(classes[job.type], demands)
            grow[slot] = grow_action(mask[b], slot, job, types[job.type], is_paired, 1.0)
            if grow[slot] < 0:
                continue
            cpus, gpus = action_demand(types[job.type], grow[slot] % 3)
            size = cpus / total_cpus + gpus / total_gpus
            alignment[slot] = free_cpus * cpus / total_cpus + free_gpus * gpus / total_gpus
            work[slot] = size * remaining_seconds(job, best_speed[e, job.type])
            sum_alignment += alignment[slot]
            sum_work += work[slot]
        weight = sum_alignment / sum_work if sum_work > 0.0 else 0.0
        highest = -math.inf
        for slot in range(filled):
            if grow[slot] < 0:
                continue
            job = jobs[b, window[b, slot]]
            score = alignment[slot] - weight * work[slot]
            if is_half_started(job, types[job.type], shares_server(classes[job.type], demands)):
                score = math.inf
            if score > highest:
                highest = score
                actions[b] = grow[slot]


class TetrisScheduler(Heuristic):
    """Gives the next tasks to the job with the best alignment with free resources, less its weighted remaining work.

    Source: Grandl et al., SIGCOMM 2014: score = alignment - (mean alignment / mean work) * work. Adapted to elastic
    jobs as in DL2's baseline; demands and free resources are shares of the cluster, because the server is chosen by the
    placement strategy. (The released DL2 adds the work term, which prefers long jobs.)
    """

    name = "tetris"

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        s = view.simulator.state
        choose_tetris(s.jobs, s.window, mask, s.types, s.classes, s.demands, s.best_speed, s.env, s.rules, actions)
