"""Dominant resource fairness."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import DRF
from dl2env.schedulers.heuristic import Heuristic, checked_option, grow_kind, is_half_started, shares_server


@inline_kernel
def score_drf(state, b, i, legal, params):
    """The smallest dominant share first; `params[0]` is the number of parameter servers per worker."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    is_paired = shares_server(state.classes[job.type], state.demands)
    key = math.inf if is_half_started(job, job_type, is_paired) else -job.dominant_share
    return key, grow_kind(legal, job, job_type, is_paired, params[0])


class DrfScheduler(Heuristic):
    """Gives the next worker and parameter server to the job with the smallest dominant share, ties by arrival.

    Source: Ghodsi et al., NSDI 2011; the form for elastic jobs is that of DL2's baseline. A job that nothing more can
    be given is passed over (the released DL2 stops the whole phase at the first task that does not fit).

    Args:
        ps_per_worker: Parameter servers per worker; DL2's baselines are fixed at 1.
    """

    code = DRF

    def __init__(self, ps_per_worker: float = 1.0) -> None:
        checked_option("drf", "ps_per_worker", ps_per_worker, 0.0, math.inf, above=True)
        self.name = "drf" if ps_per_worker == 1 else f"drf-1:{ps_per_worker:g}"
        super().__init__(ps_per_worker)


TUNED_PS_PER_WORKER = 8.0


class TunedDrfScheduler(DrfScheduler):
    """DRF with the ratio of parameter servers to workers that does best on validation workloads: 8 per worker.

    Mean JCT in intervals on 32 validation workloads of `dl2-small-v1` by parameter servers per worker: 0.5: 16.63,
    1: 13.74, 2: 10.67, 3: 9.71, 4: 8.99, 8: 8.18, 16 (the cap): 8.39. More of them means fewer workers, and fewer jobs
    disturbed, in that world; elsewhere the ratio may do harm (`pai-models-v1`: 4.97 instead of 4.08).
    """

    def __init__(self) -> None:
        super().__init__(TUNED_PS_PER_WORKER)
        self.name = "drf-tuned"
