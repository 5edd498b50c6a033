"""First in, first out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, grow_action, shares_server


@kernel
def choose_fifo(jobs, window, mask, types, classes, demands, actions):
    """Writes FIFO's action of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            is_paired = shares_server(classes[job.type], demands)
            action = grow_action(mask[b], slot, job, types[job.type], is_paired, 1.0)
            if action >= 0:
                actions[b] = action
                break


class FifoScheduler(Heuristic):
    """Gives workers and parameter servers in equal numbers to the earliest job until its caps, then to the next.

    Source: DL2's baseline. Jobs that nothing more can be given are passed over.
    """

    name = "fifo"

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        s = view.simulator.state
        choose_fifo(s.jobs, s.window, mask, s.types, s.classes, s.demands, actions)
