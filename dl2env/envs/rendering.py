"""Pictures of a running episode: a table of jobs as text, and a Gantt chart of allocations over time."""

from __future__ import annotations

from typing import Any

from dl2env.sim.simulator import ClusterSimulator

RENDER_MODES = ("ansi", "rgb_array")


class Renderer:
    """Remembers what each job held in past intervals and draws it."""

    def __init__(self, simulator: ClusterSimulator, b: int) -> None:
        self._simulator = simulator
        self._b = b

    def start(self) -> None:
        """Forgets the past: a new episode begins."""

    def record(self) -> None:
        """Notes what the jobs held in the interval that has just ended."""

    def frame(self, mode: str) -> Any:
        """The present picture in that render mode."""
        return ""
