"""ElasticFlow-like: the least that meets each deadline, then the largest marginal return."""

from __future__ import annotations

import math

from dl2env.jit import kernel
from dl2env.schedulers.codes import ELASTICFLOW
from dl2env.schedulers.growth import begin_growth, grow, grow_by_gain, want_step
from dl2env.schedulers.heap import replace_root, rise
from dl2env.schedulers.heuristic import Heuristic, checked_option

DEFAULT_FACTOR = 1.5

_BEST_EFFORT = 1e12  # seconds: later than any deadline


@kernel
def plan_elasticflow(state, b, params, scratch):
    """Least allocations by deadline, the rest by marginal return. `params[0]`: the factor."""
    free_cpus, free_gpus = begin_growth(state, b, scratch)
    heap = scratch.heap
    candidates = scratch.candidates
    num_active = state.env[b].num_active
    now_s = state.env[b].interval * state.rules[0].interval_s
    e = b % state.best_speed.shape[0]
    for k in range(num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        ideal_s = job.epochs * job.samples_per_epoch / state.best_speed[e, job.type]
        candidates[i].key = -(job.arrival_s + params[0] * ideal_s)
        scratch.values[i] = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
        rise(heap, k, candidates, i)
    size = int(num_active)
    while size > 0:
        i = heap[0]
        t = state.jobs[b, i].type
        slack_s = -candidates[i].key - now_s
        least = scratch.num_steps[t] + 1
        for k in range(scratch.num_steps[t], -1, -1):
            if scratch.steps[t, k].speed * slack_s >= scratch.values[i]:
                least = k
        is_met = False
        if slack_s > 0.0 and least <= scratch.num_steps[t]:
            is_met, free_cpus, free_gpus = grow(state, b, i, least, free_cpus, free_gpus, scratch)
        candidates[i].order = candidates[i].key if is_met else candidates[i].key - _BEST_EFFORT
        size = replace_root(heap, size, candidates, False)
    grow_by_gain(state, b, free_cpus, free_gpus, scratch)
    for k in range(num_active):
        i = state.active[b, k]
        want_step(state, b, i, candidates[i].order, scratch)


class ElasticFlowScheduler(Heuristic):
    """First to each job the least that meets its deadline, the earliest deadline first, then the largest return.

    Source: Gu et al., ASPLOS 2023: a job's minimum satisfactory share is the smallest allocation with which it makes
    its deadline; what is left goes, unit by unit, where the marginal return is largest.

    Here jobs have no deadlines. Each is given one: its arrival plus `factor` times the time that its whole work takes
    at its best isolated speed. In each interval:
        * In the order of deadlines a job gets the smallest of its type's allocations that pay (see `growth`) with which
          its remaining work (the user's epochs) fits into the time to its deadline, if that is free.
        * The rest goes step by step to the job whose next allocation saves most remaining time per dominant share. Jobs
          that have nothing start first, by arrival.
        * Where servers cannot hold all that was planned, jobs whose deadlines can be met are served first, by deadline.

    Not ElasticFlow: no job is refused (there is no admission control; jobs that cannot make their deadline are served
    with what is left), the plan looks at the present interval only, where the paper plans the shares of future slots,
    and counts are not powers of two. Speeds are isolated estimates, so contention lets jobs miss deadlines that looked
    safe; the least share then grows with each interval.

    Args:
        factor: Deadlines in units of the ideal time; at least 1. The default is the best of 1, 1.5, 2, 3, 4, 6, 8 and
            16 by mean JCT on 32 validation workloads each of `dl2-small-v1`, `dl2-large-v1`, `testbed-v1`,
            `saturated-12-v1` and `pai-models-v1`; all are within about 2 % of each other.
    """

    code = ELASTICFLOW

    def __init__(self, factor: float = DEFAULT_FACTOR) -> None:
        checked_option("elasticflow", "factor", factor, 1.0, math.inf)
        super().__init__(factor)
        self.name = "elasticflow" if factor == DEFAULT_FACTOR else f"elasticflow-{factor:g}"
