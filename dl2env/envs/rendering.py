"""Pictures of a running episode: a table of jobs as text, and a Gantt chart of allocations over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl2env.envs.history import AllocationHistory
from dl2env.errors import ConfigError
from dl2env.sim.simulator import ClusterSimulator

RENDER_MODES = ("ansi", "rgb_array")

_COLUMNS = ("slot", "job", "type", "age", "left", "ideal left", "workers", "PSs", "samples/s", "speed", "slowdown")
_LEFT_ALIGNED = ("type",)


def check_render_mode(render_mode: str | None) -> None:
    """Refuses unknown render modes.

    Raises:
        ConfigError: The mode is neither None nor one of `RENDER_MODES`.
    """
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ConfigError(f"render_mode={render_mode!r} is unknown; choose one of: {', '.join(RENDER_MODES)}")


class Renderer:
    """Draws one environment.

    Args:
        simulator: The simulator to draw.
        b: Environment.
    """

    def __init__(self, simulator: ClusterSimulator, b: int) -> None:
        self._simulator = simulator
        self._b = b
        self.history = AllocationHistory(simulator, b)

    def start(self) -> None:
        """Forgets the past: a new episode begins."""
        self.history.start()

    def before_step(self, action: int) -> None:
        """Must be called before each step, with its action."""
        self.history.before_step(action)

    def after_step(self, is_illegal: bool) -> None:
        """Must be called after each step, with whether its action was not carried out."""
        self.history.after_step(is_illegal)

    def frame(self, mode: str) -> Any:
        """The present picture: text (`ansi`) or a (height, width, 3) uint8 array (`rgb_array`).

        Raises:
            DependencyNotInstalled: The mode is `rgb_array` and matplotlib is missing.
        """
        if mode == "ansi":
            return job_table(self._simulator, self._b)
        from dl2env.envs.gantt import draw_gantt

        return draw_gantt(self._simulator, self._b, self.history)


def job_table(simulator: ClusterSimulator, b: int) -> str:
    """The jobs of environment b and the state of its cluster as aligned text.

    Columns: `age` and `ideal left` in intervals, the latter at the best isolated speed of the job's type; `left`, the
    share of its epochs; `samples/s`, the estimated speed of the present allocation, and `speed`, the same relative to
    the best isolated speed; `slowdown`, 1 - 1 / stretch of its communication.
    """
    state = simulator.state
    env, jobs, rules = state.env[b], state.jobs[b], state.rules[0]
    interval_s, interval = float(rules["interval_s"]), int(env["interval"])
    num_active, num_finished = int(env["num_active"]), int(env["num_finished"])
    num_to_come = int(env["num_jobs"]) - int(env["next_job"])
    best_speed = state.best_speed[b % len(state.best_speed)]
    lines = [
        f"interval {interval} ({interval * interval_s / 3600:.1f} h)   "
        f"free: {env['free_cpus']}/{rules['total_cpus']:.0f} CPUs, {env['free_gpus']}/{rules['total_gpus']:.0f} GPUs   "
        f"jobs: {num_active} active, {num_finished} finished, {num_to_come} to come"
    ]
    rows = []
    for slot, i in enumerate(state.window[b].tolist()):
        if i < 0:
            continue
        job = jobs[i]
        left = max(float(job["epochs"] - job["epochs_done"]), 0.0)
        best = float(best_speed[job["type"]])
        ideal = left * float(job["samples_per_epoch"]) / best / interval_s if best > 0 else np.inf
        rows.append(
            (
                str(slot),
                str(i),
                simulator.speed.type_names[job["type"]],
                f"{interval - job['arrival_s'] / interval_s:.1f}",
                f"{left / job['epochs']:.0%}",
                f"{ideal:.2f}",
                str(job["workers"]),
                str(job["ps"]),
                f"{job['speed']:.1f}",
                f"{job['relative_speed']:.0%}",
                f"{1 - 1 / job['stretch']:.0%}",
            )
        )
    lines += _aligned(rows) if rows else ["no jobs in the window"]
    shown = set(state.window[b].tolist())
    outside = [i for i in state.active[b, :num_active].tolist() if i not in shown]
    if outside:
        listed = ", ".join(f"{i} ({jobs[i]['workers']}+{jobs[i]['ps']})" for i in outside)
        lines.append(f"outside the window, with workers + PSs: {listed}")
    return "\n".join(lines) + "\n"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[c]) for row in (_COLUMNS, *rows)) for c in range(len(_COLUMNS))]
    return [
        "  ".join(
            text.ljust(width) if name in _LEFT_ALIGNED else text.rjust(width)
            for name, text, width in zip(_COLUMNS, row, widths, strict=True)
        )
        for row in (_COLUMNS, *rows)
    ]
