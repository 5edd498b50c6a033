"""Dominant resource fairness."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, grow_action, is_half_started, shares_server


@kernel
def choose_drf(jobs, window, mask, types, classes, demands, ps_per_worker, actions):
    """Writes DRF's action of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        lowest = math.inf
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            is_paired = shares_server(classes[job.type], demands)
            share = -1.0 if is_half_started(job, types[job.type], is_paired) else job.dominant_share
            if share < lowest:
                action = grow_action(mask[b], slot, job, types[job.type], is_paired, ps_per_worker)
                if action >= 0:
                    lowest = share
                    actions[b] = action


class DrfScheduler(Heuristic):
    """Gives the next worker and parameter server to the job with the smallest dominant share, ties by arrival.

    Source: Ghodsi et al., NSDI 2011; the form for elastic jobs is that of DL2's baseline. A job that nothing more can
    be given is passed over (the released DL2 stops the whole phase at the first task that does not fit).

    Args:
        ps_per_worker: Parameter servers per worker; DL2's baselines are fixed at 1.
    """

    def __init__(self, ps_per_worker: float = 1.0) -> None:
        if not ps_per_worker > 0:
            raise ConfigError(f"drf: ps_per_worker={ps_per_worker} must be positive")
        self.name = "drf" if ps_per_worker == 1 else f"drf-1:{ps_per_worker:g}"
        self._ps_per_worker = float(ps_per_worker)

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        s = view.simulator.state
        choose_drf(s.jobs, s.window, mask, s.types, s.classes, s.demands, self._ps_per_worker, actions)
