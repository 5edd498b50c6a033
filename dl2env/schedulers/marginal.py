"""Contention-aware marginal gain: charges a task for the slowdown it causes to other jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.srtf import remaining_seconds
from dl2env.sim.decisions import is_single_server
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand, find_server_for_action
from dl2env.sim.speeds import estimated_speed, link_stretch


@kernel
def _loss_of_others(state, b, s, source, added_use):
    """Relative speed that the jobs on server s lose when its link use grows by `added_use`."""
    loss = 0.0
    e = b % state.best_speed.shape[0]
    server = state.servers[b, s]
    sharing = state.rules[0].link_sharing
    for m in range(server.num_jobs):
        j = state.server_jobs[b, s, m]
        job = state.jobs[b, j]
        if j == source or not job.is_on_network:
            continue
        job_type = state.types[job.type]
        entry = state.entries[b, j, state.server_entries[b, s, m]]
        stretch = link_stretch(server, entry, job_type.link_use, sharing) + sharing * added_use
        if stretch > job.stretch:
            speed = estimated_speed(state.estimate[e, job.type], job_type, job.workers, job.ps, stretch)
            loss += job.relative_speed - speed / state.best_speed[e, job.type]
    return loss


@kernel
def choose_marginal(state, mask, exponent, per_share, actions):
    """Writes the action with the largest net gain of each environment; `actions` comes filled with void."""
    rules = state.rules[0]
    total_cpus = max(rules.total_cpus, 1.0)
    total_gpus = max(rules.total_gpus, 1.0)
    for b in range(mask.shape[0]):
        best = 0.0
        e = b % state.best_speed.shape[0]
        servers = state.servers[b]
        for slot in range(state.window.shape[1]):
            i = state.window[b, slot]
            if i < 0:
                break
            job = state.jobs[b, i]
            job_type = state.types[job.type]
            estimate = state.estimate[e, job.type]
            best_speed = state.best_speed[e, job.type]
            single = is_single_server(job_type.architecture)
            weight = max(remaining_seconds(job, best_speed) / rules.interval_s, 0.05) ** -exponent
            for kind in (PS, WORKER, BUNDLE):
                if not mask[b, 3 * slot + kind]:
                    continue
                s = find_server_for_action(
                    servers,
                    state.least_loaded[b],
                    job,
                    job_type,
                    state.entries[b, i],
                    single,
                    kind,
                    rules.placement,
                    -1,
                )
                if s < 0:
                    continue
                workers = job.workers + (0 if kind == PS else 1)
                num_ps = job.ps + (0 if kind == WORKER else 1)
                stretch = max(job.stretch, 1.0 + rules.link_sharing * servers[s].link_use)
                speed = estimated_speed(estimate, job_type, workers, num_ps, stretch)
                added_use = job_type.link_use * (2 if kind == BUNDLE else 1)
                gain = speed / best_speed - job.relative_speed
                gain = weight * gain - _loss_of_others(state, b, s, i, added_use)
                if gain > 0.0 and per_share:
                    cpus, gpus = action_demand(job_type, kind)
                    gain /= max(cpus / total_cpus, gpus / total_gpus)
                if gain > best:
                    best = gain
                    actions[b] = 3 * slot + kind


class MarginalGainScheduler(Heuristic):
    """Greedy net gain: relative speed (speed over the best isolated speed) a job gains, less what its neighbours lose.

    Ours, in the spirit of Optimus but aware of contention: it predicts the server of the task, the job's stretch there
    and the stretch of the jobs on that server. Considers one worker, one PS, and both; stops when nothing is gained.

    Args:
        exponent: A job's gain is weighted by its remaining intervals at best speed to the power of minus this.
        per_share: Divide the net gain by the dominant share of the task.
    """

    def __init__(self, exponent: float = 0.0, per_share: bool = True) -> None:
        if exponent < 0:
            raise ConfigError(f"marginal: exponent={exponent} must not be negative")
        self.name = "marginal" if exponent == 0 else f"marginal-{exponent:g}"
        self._exponent = float(exponent)
        self._per_share = per_share

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        choose_marginal(view.simulator.state, mask, self._exponent, self._per_share, actions)
