"""A greedy form of Pollux' objective: the harmonic mean of speedups."""

from __future__ import annotations

from dl2env.jit import kernel
from dl2env.schedulers.codes import POLLUX
from dl2env.schedulers.growth import begin_growth, fair_speed, grow_by_gain, want_step, wanted_share
from dl2env.schedulers.heuristic import Heuristic


@kernel
def plan_pollux(state, b, params, scratch):
    """Lowers the sum of 1 / speedup step by step."""
    free_cpus, free_gpus = begin_growth(state, b, scratch)
    num_active = state.env[b].num_active
    for k in range(num_active):
        i = state.active[b, k]
        t = state.jobs[b, i].type
        scratch.values[i] = fair_speed(scratch.steps[t], scratch.num_steps[t], 1.0 / num_active)
    grow_by_gain(state, b, free_cpus, free_gpus, scratch)
    for k in range(num_active):
        i = state.active[b, k]
        want_step(state, b, i, -wanted_share(state, b, i, scratch), scratch)


class PolluxScheduler(Heuristic):
    """Makes the harmonic mean of the jobs' speedups over their fair shares as large as greedy steps can.

    Source: Qiao et al., OSDI 2021. Pollux allocates resources so that the generalised mean, with power p = -1, of the
    jobs' speedups is largest, where a speedup compares a job's goodput under an allocation with its goodput under a
    fair share, 1 / n of the cluster for n jobs. A negative power favours jobs that are far behind.

    What is Pollux: this objective. It is reached by greedy steps: the job whose next allocation (see `growth`) lowers
    the sum of 1 / speedup most per dominant share gets it, until nothing fits. Speeds are isolated estimates.

    What is not:
        * Goodput is throughput times statistical efficiency; here efficiency is 1. Jobs of this project progress by
          samples whatever their batch, and their types have no gradient noise scale; synchronous types keep their
          global batch anyway. So nothing tunes batch sizes and learning rates either.
        * Pollux searches with a genetic algorithm, with placements as genes, which also keeps distributed jobs from
          sharing a server; here counts are planned, and the scenario places tasks.
        * Throughput models are not fitted by the rule but come from the scenario's estimate (which may be fitted).
        * The penalty on re-allocating jobs is left out: it is near 1 for jobs that live for several intervals, which
          last minutes here, where Pollux re-allocates each minute.

    Jobs that have nothing start first, by arrival. Where servers cannot hold all that was planned, the smallest
    allocations are served first.
    """

    name = "pollux"
    code = POLLUX
