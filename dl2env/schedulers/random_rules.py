"""Random actions corrected by DL2's exploration rules: what those rules are worth without any learning."""

from __future__ import annotations

import math

import numpy as np

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import RANDOM_RELEASED_RULES, RANDOM_RULES
from dl2env.schedulers.heuristic import Heuristic, checked_option, has_kind
from dl2env.schedulers.random import score_random
from dl2env.sim.noise import keyed_uniform
from dl2env.sim.placement import BUNDLE, PS, WORKER

# What a draw decides. Numbers of actions, which `random.draw` uses, stay below 2 ** 40.
FORCE, BALANCE_LIMIT, BALANCE_KIND, RATIO, TOWARDS_WORKERS, WORKERS_KIND, TOWARDS_PS, PS_KIND = range(1, 9)


@inline_kernel
def chance(state, b, purpose, i, counter, params):
    """The number in [0, 1) drawn for a purpose, a job and a decision or interval; `params[0]` is the seed."""
    return keyed_uniform(state.env[b].noise_key + np.uint64(params[0]), (purpose << 40) + i, counter)


@inline_kernel
def correction(job, job_type, ratio):
    """Kind of task that a poor state asks for, -1 when the job's state is not poor (DL2's paper)."""
    if job_type.max_ps == 0:
        return -1
    if job.ps == 0:
        return PS if job.workers > 0 else -1
    if job.workers == 0 or job.ps > ratio * job.workers:
        return WORKER
    return PS if job.workers > ratio * job.ps else -1


@inline_kernel
def prepare_random_rules(state, b, params, scratch):
    """Writes the job and the kind that are forced. `params`: seed, probability, ratio."""
    scratch.shared[0] = -1.0
    if chance(state, b, FORCE, 0, state.env[b].num_decisions, params) >= params[1]:
        return
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        kind = correction(job, state.types[job.type], params[2])
        if kind >= 0 and has_kind(scratch.candidates[i].legal, kind):
            scratch.shared[0] = i
            scratch.shared[1] = kind
            return


@inline_kernel
def _balance(state, b, params, scratch):
    """(job, kind) of the released balance rule; kind -1 when it does not fire."""
    env = state.env[b]
    least = -1
    fewest = 0
    most = 0
    for k in range(env.num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        job_type = state.types[job.type]
        if job.workers >= job_type.max_workers and job.ps >= job_type.max_ps:
            continue
        num_tasks = job.workers + job.ps
        most = max(most, num_tasks)
        if least < 0 or num_tasks < fewest:
            least = i
            fewest = num_tasks
    if fewest == 0:
        return least, -1
    limit = 3 + int(3.0 * chance(state, b, BALANCE_LIMIT, 0, env.num_decisions, params))
    if most // fewest <= limit:
        return least, -1
    kind = BUNDLE if chance(state, b, BALANCE_KIND, 0, env.num_decisions, params) < 0.5 else WORKER
    return least, kind if has_kind(scratch.candidates[least].legal, kind) else -1


@inline_kernel
def _released_correction(state, b, i, ratio, params):
    """Kind that the released rules force for a job, -1 when none fires."""
    job = state.jobs[b, i]
    decision = state.env[b].num_decisions
    if state.types[job.type].max_ps == 0:
        return WORKER if job.workers == 0 else -1
    if job.ps == 0:
        return PS
    if job.workers == 0:
        return WORKER
    if job.ps > ratio * job.workers:
        if chance(state, b, TOWARDS_WORKERS, i, decision, params) < 0.5:
            return BUNDLE if chance(state, b, WORKERS_KIND, i, decision, params) < 0.5 else WORKER
    elif 2 * job.workers >= job.ps and chance(state, b, TOWARDS_PS, i, decision, params) < 0.5:
        return PS if chance(state, b, PS_KIND, i, decision, params) < 0.99 else BUNDLE
    return -1


@inline_kernel
def prepare_released_rules(state, b, params, scratch):
    """Writes the job and the kind that are forced. `params[0]`: seed."""
    env = state.env[b]
    forced, forced_kind = _balance(state, b, params, scratch)
    ratio = 3 + int(5.0 * chance(state, b, RATIO, 0, env.interval, params))
    for k in range(env.num_active):
        i = state.active[b, k]
        kind = _released_correction(state, b, i, ratio, params)
        if kind >= 0 and has_kind(scratch.candidates[i].legal, kind):
            forced = i
            forced_kind = kind
            break
    scratch.shared[0] = forced if forced_kind >= 0 else -1.0
    scratch.shared[1] = forced_kind


@inline_kernel
def score_forced(state, b, i, legal, params, scratch):
    """The forced action if there is one, else a random one."""
    if scratch.shared[0] < 0.0:
        return score_random(state, b, i, legal, params)
    return 0.0, int(scratch.shared[1]) if scratch.shared[0] == i else -1


class RandomRulesScheduler(Heuristic):
    """Uniformly random legal actions, void included, corrected by the exploration rules of DL2's paper.

    Source: Peng et al., arXiv 1909.06040, "job-aware exploration": with a probability of 0.4, a job in a poor state has
    it corrected: workers but no parameter server (PS), one PS; PSs but no worker, one worker; more than ten times as
    many of one role as of the other, one task of the other.

    Where several jobs are in a poor state, the earliest whose correction is legal gets it (the paper does not say).
    Types without PSs cannot be in a poor state. All jobs are seen, not a window of them. With initial bundles only
    the ratio matters.

    Args:
        seed: Seed of its draws, which never shift a workload.
        probability: Probability of a correction at each decision at which one is called for.
        ratio: Largest ratio of the two roles that is not poor.
    """

    code = RANDOM_RULES

    def __init__(self, seed: int = 0, probability: float = 0.4, ratio: float = 10.0) -> None:
        checked_option("random-rules", "seed", seed, 0, 2**53 - 1)
        checked_option("random-rules", "probability", probability, 0.0, 1.0)
        checked_option("random-rules", "ratio", ratio, 1.0, math.inf)
        super().__init__(seed, probability, ratio)
        parts = ["random-rules", *([f"{probability:g}"] if probability != 0.4 else [])]
        self.name = "-".join([*parts, *([f"1:{ratio:g}"] if ratio != 10 else [])])


class RandomReleasedRulesScheduler(Heuristic):
    """Uniformly random legal actions, void included, overridden by the exploration rules of DL2's released code.

    They differ from the paper's and lean towards PSs. In this order, each only where its action is legal:

    1. Balance: if the largest number of tasks of a job is more than 3, 4 or 5 (drawn per decision) times the smallest,
       by whole division, and every job has a task, the least-served job gets a pair or a worker (one half each).
    2. The earliest job for which one of these fires gets its task instead:
       a job without PS a PS, or without worker a worker;
       one with more PSs than 3 to 7 (drawn per interval) times its workers, with probability 1/2, a pair or a worker
       (one half each);
       else one with at most two PSs per worker, with probability 1/2, a PS (99 %) or a pair.

    Left out: the rule that forces the rarest kind of action when it makes up less than 0.1 % of all actions so far,
    because it depends on what was decided before and not on the cluster's state. Jobs at both caps do not count in
    rule 1, as in the released window; all others are seen, not a window of them. Types without PSs take part in
    rule 1, and in rule 2 where they lack a worker. The code also has a probability check that looks at the wrong
    action; it makes no difference where a mask says what is legal.

    Args:
        seed: Seed of its draws, which never shift a workload.
    """

    code = RANDOM_RELEASED_RULES
    name = "random-released-rules"

    def __init__(self, seed: int = 0) -> None:
        checked_option("random-released-rules", "seed", seed, 0, 2**53 - 1)
        super().__init__(seed)
