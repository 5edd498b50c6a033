"""First in, first out."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import FIFO
from dl2env.schedulers.heuristic import Heuristic, grow_kind, shares_server


@inline_kernel
def score_fifo(state, b, i, legal):
    """All keys are equal: ties go to the earliest job."""
    job = state.jobs[b, i]
    is_paired = shares_server(state.classes[job.type], state.demands)
    return 0.0, grow_kind(legal, job, state.types[job.type], is_paired, 1.0)


class FifoScheduler(Heuristic):
    """Gives workers and parameter servers in equal numbers to the earliest job until its caps, then to the next.

    Source: DL2's baseline. Jobs that nothing more can be given are passed over.
    """

    name = "fifo"
    code = FIFO
