"""Shortest remaining processing time, with the true remaining work: an oracle."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import SRPT
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.planned import DEFAULT_SPEED_SHARE, checked_share, name_with_share, want, write_requests


@inline_kernel
def plan_srpt(state, b, params, scratch):
    """The least true remaining work first. `params[0]`: `speed_share`."""
    write_requests(state, b, params[0], scratch)
    e = b % state.best_speed.shape[0]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        left = max(job.true_epochs - job.epochs_done, 0.0) * job.samples_per_epoch
        left_s = left / state.best_speed[e, job.type]
        want(scratch, i, -left_s, scratch.requests[job.type, 0], scratch.requests[job.type, 1])


class SrptScheduler(Heuristic):
    """Gives jobs the gang they ask for in the order of their true remaining work, ties by arrival: an oracle.

    It reads the epochs at which a job really completes, which no scheduler can know, so it is a reference and not a
    competitor; where `epoch_error` is 0 the user's estimate says the same. Speeds are not oracle: work is counted in
    seconds at the best isolated speed of the scenario's estimate.

    Source: Schrage, Operations Research 1968: optimal for the mean completion time on one server whose jobs do not
    speed up with more resources. Elastic jobs with concave speed-ups share better than they queue, and jobs on one link
    slow each other down, so it is no bound here.

    Adapted: as `SjfScheduler`, and preemptive by definition.

    Args:
        speed_share: Share of the best isolated speed that a request must reach. The default is an assumption.
    """

    code = SRPT
    is_oracle = True

    def __init__(self, speed_share: float = DEFAULT_SPEED_SHARE) -> None:
        super().__init__(checked_share("srpt", speed_share))
        self.name = name_with_share("srpt", speed_share)
