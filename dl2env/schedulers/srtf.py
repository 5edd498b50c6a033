"""Shortest remaining time first."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import SRTF
from dl2env.schedulers.heuristic import Heuristic, grow_kind, is_half_started, remaining_seconds, shares_server


@inline_kernel
def score_srtf(state, b, i, legal):
    """The shortest remaining time first."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    is_paired = shares_server(state.classes[job.type], state.demands)
    key = -remaining_seconds(job, state.best_speed[b % state.best_speed.shape[0], job.type])
    if is_half_started(job, job_type, is_paired):
        key = math.inf
    return key, grow_kind(legal, job, job_type, is_paired, 1.0)


class SrtfScheduler(Heuristic):
    """Gives workers and parameter servers in equal numbers to the job with the least remaining time, up to its caps.

    Remaining time is the remaining work at the best isolated speed of the type. (The released DL2 sorts by the
    remaining *fraction*, which ranks a nearly finished long job before a new short one.)
    """

    name = "srtf"
    code = SRTF
