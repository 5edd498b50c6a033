"""Nothing beyond what every job is given."""

from __future__ import annotations

from dl2env.schedulers.codes import VOID
from dl2env.schedulers.heuristic import Heuristic


class VoidScheduler(Heuristic):
    """Always ends the interval: jobs keep what the dynamics give them at its start.

    With `initial_bundle` that is one worker and one parameter server each. It shows how much of a result comes from
    holding back alone. Without initial bundles nothing ever runs under it.
    """

    name = "void"
    code = VOID
