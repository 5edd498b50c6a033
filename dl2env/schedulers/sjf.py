"""Shortest job first."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import SJF
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests


@inline_kernel
def plan_sjf(state, b, params, scratch):
    """The least total work first; what has been done of it does not count. `params[0]`: `speed_share`."""
    write_requests(state, b, params[0], scratch)
    e = b % state.best_speed.shape[0]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        total_s = job.epochs * job.samples_per_epoch / state.best_speed[e, job.type]
        want(scratch, i, -total_s, scratch.requests[job.type, 0], scratch.requests[job.type, 1])


class SjfScheduler(Heuristic):
    """Gives jobs the gang they ask for in the order of their total estimated work, ties by arrival.

    Source: shortest job first as in every scheduling text; for gangs of deep-learning jobs it is a baseline of Tiresias
    (Gu et al., NSDI 2019) and of the simulator published with the PAI traces. Work is the user's estimate of the
    epochs over the best isolated speed of the type, and it stays the key for life, so the order is that of a rigid,
    non-elastic job.

    Adapted: jobs here do not say how many tasks they want, so a job asks for the smallest gang that reaches
    `speed_share` of its best speed. The order is applied afresh in each interval (a shorter job that arrives takes the
    tasks of a longer one; the textbook rule does not preempt), a gang that fits only in part runs with that part, and
    scenarios with initial bundles give each job its first tasks before the rule is asked.

    Args:
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = SJF

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE) -> None:
        super().__init__(checked_share("sjf", speed_share))
        self.name = name_with_share("sjf", speed_share)
