"""Nothing beyond what every job is given."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic


class VoidScheduler(Heuristic):
    """Always ends the interval: jobs keep what the dynamics give them at its start.

    With `initial_bundle` that is one worker and one parameter server each. It shows how much of a result comes from
    holding back alone. Without initial bundles nothing ever runs under it.
    """

    name = "void"

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        del mask, view, actions  # they come filled with void
