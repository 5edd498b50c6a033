"""Shortest remaining time first."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, grow_action, is_half_started, shares_server


@kernel
def remaining_seconds(job, best_speed):
    """Seconds a job has left at the best isolated speed of its type, by the user's estimate of its epochs."""
    return max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch / best_speed


@kernel
def choose_srtf(jobs, window, mask, types, classes, demands, best_speed, actions):
    """Writes SRTF's action of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        shortest = math.inf
        e = b % best_speed.shape[0]
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            is_paired = shares_server(classes[job.type], demands)
            left_s = remaining_seconds(job, best_speed[e, job.type])
            if is_half_started(job, types[job.type], is_paired):
                left_s = -1.0
            if left_s < shortest:
                action = grow_action(mask[b], slot, job, types[job.type], is_paired, 1.0)
                if action >= 0:
                    shortest = left_s
                    actions[b] = action


class SrtfScheduler(Heuristic):
    """Gives workers and parameter servers in equal numbers to the job with the least remaining time, up to its caps.

    Remaining time is the remaining work at the best isolated speed of the type. (The released DL2 sorts by the
    remaining *fraction*, which ranks a nearly finished long job before a new short one.)
    """

    name = "srtf"

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        s = view.simulator.state
        choose_srtf(s.jobs, s.window, mask, s.types, s.classes, s.demands, s.best_speed, actions)
