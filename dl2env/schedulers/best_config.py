"""The best configuration of each job type, shortest remaining time first."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import BEST_CONFIG
from dl2env.schedulers.heuristic import Heuristic, checked_option, remaining_seconds
from dl2env.schedulers.planned import want, write_requests


@inline_kernel
def plan_best_config(state, b, params, scratch):
    """Every job wants its type's request; the shortest remaining time comes first."""
    write_requests(state, b, params[0], scratch)
    e = b % state.best_speed.shape[0]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        job = state.jobs[b, i]
        left_s = remaining_seconds(job, state.best_speed[e, job.type])
        want(scratch, i, -left_s, scratch.requests[job.type, 0], scratch.requests[job.type, 1])


class BestConfigScheduler(Heuristic):
    """Gives jobs the fastest numbers of workers and parameter servers for their type, shortest remaining time first.

    Ours: what a table of the best configuration per model, looked up once, is worth. Speeds are isolated estimates.

    Args:
        speed_share: Take the smallest configuration that reaches this share of the best speed.
    """

    code = BEST_CONFIG

    def __init__(self, speed_share: float = 1.0) -> None:
        checked_option("best-config", "speed_share", speed_share, 0.0, 1.0, above=True)
        self.name = "best-config" if speed_share == 1 else f"best-config-{speed_share:g}"
        super().__init__(speed_share)
