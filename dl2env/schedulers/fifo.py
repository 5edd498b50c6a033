"""First in, first out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, grow_action


@kernel
def choose_fifo(jobs, window, mask, types, actions):
    """Writes FIFO's action of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            action = grow_action(mask[b], slot, jobs[b, i], types[jobs[b, i].type], 1.0)
            if action >= 0:
                actions[b] = action
                break


class FifoScheduler(Heuristic):
    """Gives workers and parameter servers in equal numbers to the earliest job until its caps, then to the next.

    Source: DL2's baseline. Jobs that nothing more can be given are passed over.
    """

    name = "fifo"

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        state = view.simulator.state
        choose_fifo(state.jobs, state.window, mask, state.types, actions)
