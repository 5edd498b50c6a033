"""Contention-aware marginal gain: charges a task for the slowdown it causes to other jobs."""

from __future__ import annotations

import math

import numpy as np

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import MARGINAL
from dl2env.schedulers.heuristic import (
    Heuristic,
    checked_option,
    counts_after,
    has_kind,
    is_half_started,
    remaining_seconds,
    shares_server,
)
from dl2env.sim.contention import effect_of_task, gain_ahead
from dl2env.sim.noise import keyed_uniform
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand, find_server_for_action


@inline_kernel
def _net_gain(state, b, i, kind, weight):
    """What an action adds to the weighted relative speed of job i, less what it takes from the others.

    Returns:
        (the gain, whether the job's links are shared then, its stretch, the loss of others). The gain is minus infinity
        when no server can hold the tasks, infinity when they complete a job's first pair.
    """
    rules = state.rules[0]
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    entries = state.entries[b, i]
    s = find_server_for_action(
        state.servers[b], state.least_loaded[b], job, job_type, entries, kind, rules.placement, -1
    )
    if s < 0:
        return -math.inf, False, 1.0, 0.0
    is_paired = shares_server(state.classes[job.type], state.demands)
    workers, num_ps = counts_after(job, job_type, is_paired, kind)
    if is_half_started(job, job_type, is_paired):
        return math.inf if workers > 0 and num_ps > 0 else -math.inf, False, 1.0, 0.0
    relative, loss, is_shared, stretch = effect_of_task(state, b, i, kind, s, workers, num_ps)
    gain = weight * (relative - job.relative_speed) - loss
    return gain, is_shared, stretch, loss


@inline_kernel
def score_marginal(state, b, i, legal, params):
    """The largest net gain.

    `params`: exponent of the remaining time, whether gains are per dominant share, spread and seed of the weights, and
    how many equal actions are considered at once, at most.
    """
    rules = state.rules[0]
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    left_s = remaining_seconds(job, state.best_speed[b % state.best_speed.shape[0], job.type])
    weight = max(left_s / rules.interval_s, 0.05) ** -params[0]
    if params[2] > 0.0:
        key = state.env[b].noise_key + np.uint64(params[3])
        weight *= math.exp(params[2] * (2.0 * keyed_uniform(key, i, state.env[b].interval) - 1.0))
    best = 0.0
    best_kind = -1
    for kind in (PS, WORKER, BUNDLE):
        if not has_kind(legal, kind):
            continue
        gain, is_shared, stretch, loss = _net_gain(state, b, i, kind, weight)
        # A job without its first pair has its own rule; without a server there is nothing to look at.
        if gain > -math.inf and (job_type.max_ps == 0 or (job.workers > 0 and job.ps > 0)):
            gain = max(gain, gain_ahead(state, b, i, kind, weight, params[4], is_shared, stretch, loss))
        if gain > 0.0 and params[1] != 0.0:
            cpus, gpus = action_demand(job_type, kind)
            gain /= max(cpus / max(rules.total_cpus, 1.0), gpus / max(rules.total_gpus, 1.0))
        if gain > best:
            best = gain
            best_kind = kind
    return best, best_kind


class MarginalGainScheduler(Heuristic):
    """Greedy net gain: relative speed (speed over the best isolated speed) a job gains, less what its neighbours lose.

    Ours, in the spirit of Optimus but aware of contention: it predicts the server of the task and, for the job and all
    that share links with it, the stretch after its placement. Considers one worker, one parameter server, and both;
    stops when nothing is gained.

    Args:
        exponent: A job's gain is weighted by its remaining intervals at best speed to the power of minus this.
        per_share: Divide the net gain by the dominant share of the task.
        spread: Jobs' weights are multiplied by exp(U(-spread, spread)), drawn anew for every job and interval: variants
            to choose from for a search.
        seed: Seed of these draws.
        look_ahead: Also consider 2, 4, ... actions of a kind at once, up to this many, and count the gain of one of
            them. It gets jobs over places where the first further task does not pay and more of them do: the second
            worker of an all-reduce job on a slow network, or a dip of a noisy estimate. `marginal-lookahead` has 4.
    """

    code = MARGINAL

    def __init__(
        self,
        exponent: float = 0.0,
        per_share: bool = True,
        spread: float = 0.0,
        seed: int = 0,
        look_ahead: int = 1,
    ) -> None:
        checked_option("marginal", "exponent", exponent, 0.0, math.inf)
        checked_option("marginal", "spread", spread, 0.0, 10.0)
        checked_option("marginal", "seed", seed, 0, 2**53 - 1)
        checked_option("marginal", "look_ahead", look_ahead, 1, 64)
        parts = ["marginal", *([f"lookahead-{look_ahead:g}"] if look_ahead > 1 else [])]
        parts += [*([f"{exponent:g}"] if exponent else []), *([] if per_share else ["total"])]
        self.name = "-".join([*parts, *([f"spread-{spread:g}"] if spread else [])])
        super().__init__(exponent, per_share, spread, seed, look_ahead)


class TunedMarginalGainScheduler(MarginalGainScheduler):
    """Marginal gain with the exponent and the division by share that do best on validation workloads.

    Of the exponents 0, 0.25, 0.5, 0.75, 1, 1.5 and 2, each with and without the division, the choice is the smallest
    mean over the suite's scenarios of the ratio of JCTs to DRF, 32 validation workloads each (docs/schedulers.md has
    the table). It falls on those of `marginal`: exponent 0, per share. So the two are one rule; this name says that it
    was a choice.
    """

    def __init__(self) -> None:
        super().__init__(exponent=0.0, per_share=True)
        self.name = "marginal-tuned"
