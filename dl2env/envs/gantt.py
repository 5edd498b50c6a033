"""A Gantt chart of one environment as an RGB array. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from dl2env.envs.history import AllocationHistory
from dl2env.sim.simulator import ClusterSimulator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DPI = 960, 720, 100
"""Size of a frame in pixels, the same for all frames so that they make a video; and pixels per inch."""

_SPAN_STEP = 10  # intervals by which the time axis grows
_MIN_LABEL_PX = (30.0, 11.0)  # a bar at least that large carries its counts as text
_WAITING, _FINISHED, _GPU, _CPU = "0.72", "black", "0.55", "tab:blue"


def draw_gantt(simulator: ClusterSimulator, b: int, history: AllocationHistory) -> NDArray[np.uint8]:
    """Draws environment b.

    Upper part: one row per job in arrival order. A bar, coloured by type, shows that the job held tasks; its height
    grows with the square root of their number, up to the whole row for the most it may have, and large enough bars say
    workers + PSs. A thin grey line is time in the system, a black mark the finish. The current interval, still being
    decided, is pale. Lower part: the allocated share of GPUs and CPUs.

    Args:
        simulator: The simulator.
        b: Environment.
        history: Allocations of its past intervals.

    Returns:
        (HEIGHT, WIDTH, 3) uint8.

    Raises:
        DependencyNotInstalled: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyNotInstalled(
            "rgb_array rendering needs matplotlib; install it with: pip install 'dl2env[train]'"
        ) from error

    # The object interface: no window system, and no figures kept alive by pyplot.
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 1, height_ratios=(5, 1), left=0.07, right=0.985, bottom=0.075, top=0.92, hspace=0.06)
    jobs_axes = figure.add_subplot(grid[0])
    share_axes = figure.add_subplot(grid[1], sharex=jobs_axes)
    chart = _Chart(simulator, b, history)
    chart.draw_jobs(jobs_axes)
    chart.draw_shares(share_axes)
    figure.text(0.07, 0.97, chart.title(), fontsize=11)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


class _Chart:
    """The quantities shown, taken from the simulator once. Times are in intervals."""

    def __init__(self, simulator: ClusterSimulator, b: int, history: AllocationHistory) -> None:
        state = simulator.state
        self._env, self._types, self._rules = state.env[b], state.types, state.rules[0]
        self._type_names = simulator.speed.type_names
        jobs = state.jobs[b, : int(self._env["num_jobs"])]
        interval_s = float(self._rules["interval_s"])
        self._interval_s = interval_s
        self._type = jobs["type"].astype(np.int64)
        self._arrival = jobs["arrival_s"] / interval_s
        self._finish = jobs["finish_s"] / interval_s
        self._caps = (self._types["max_workers"] + self._types["max_ps"]).astype(np.float64)[self._type]
        self._now = int(self._env["interval"])
        self._is_over = bool(simulator.is_done[b])
        self._first = history.first_interval
        held = history.past()
        if not self._is_over:
            held = np.concatenate([held, history.present()[None]])
        self._held = held.astype(np.int64)
        start = float(min(self._first, np.floor(self._arrival[0])))
        self._span = (start, start + _SPAN_STEP * max(1.0, np.ceil((self._first + len(held) - start) / _SPAN_STEP)))

    def title(self) -> str:
        num_jobs, done = len(self._type), ~np.isnan(self._finish)
        text = (
            f"interval {self._now} ({self._now * self._interval_s / 3600:.1f} h)   jobs: {self._env['num_active']} "
            f"active, {done.sum()} of {num_jobs} finished"
        )
        if done.any():
            text += f", mean JCT {(self._finish - self._arrival)[done].mean():.2f} intervals"
        return text

    def draw_jobs(self, axes: Axes) -> None:
        from matplotlib.collections import LineCollection, PolyCollection
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        colours = _type_colours(len(self._type_names))
        num_jobs = len(self._type)
        end = np.where(np.isnan(self._finish), self._now, self._finish)
        seen = np.flatnonzero(self._arrival <= self._now)
        axes.add_collection(
            LineCollection(
                [[(self._arrival[i], i), (max(end[i], self._arrival[i]), i)] for i in seen],
                colors=_WAITING,
                linewidths=1.0,
                zorder=1,
            )
        )
        bars = self._bars()
        height = 0.9 * np.sqrt(bars["tasks"] / self._caps[bars["job"]])
        left, right = bars["start"], bars["stop"]
        low, high = bars["job"] - height / 2, bars["job"] + height / 2
        corners = np.stack([left, low, left, high, right, high, right, low], axis=1).reshape(-1, 4, 2)
        face = colours[self._type[bars["job"]]]
        is_open = bars["start"] >= self._now
        face[is_open, 3] = 0.4
        axes.add_collection(PolyCollection(list(corners), facecolors=face, linewidths=0, antialiaseds=False, zorder=2))
        done = np.flatnonzero(~np.isnan(self._finish))
        row_pt = 72 / DPI * axes.bbox.height / num_jobs
        axes.scatter(
            self._finish[done], done, s=min(0.9 * row_pt, 20.0) ** 2, c=_FINISHED, marker="|", linewidths=1.4, zorder=3
        )
        axes.set_xlim(*self._span)
        axes.set_ylim(num_jobs - 0.5, -0.5)
        self._label_bars(axes, bars)
        if not self._is_over:
            axes.axvline(self._now, color=_FINISHED, linewidth=0.8, linestyle=":", zorder=4)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        axes.set_ylabel("job, in arrival order")
        axes.tick_params(labelbottom=False)
        axes.grid(axis="x", alpha=0.25)
        axes.legend(
            handles=[Patch(color=colours[t], label=name) for t, name in enumerate(self._type_names)],
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=min(len(self._type_names), 8),
            fontsize=8,
            frameon=False,
            handlelength=1.0,
            columnspacing=1.2,
            borderaxespad=0.1,
        )

    def _bars(self) -> dict[str, NDArray[Any]]:
        """Stretches of time in which a job held the same tasks, one array entry each."""
        num_held = len(self._held)
        rows: dict[str, list[Any]] = {key: [] for key in ("job", "start", "stop", "workers", "ps")}
        for i in np.flatnonzero(self._held.any(axis=(0, 2))):
            own = self._held[:, i]
            starts = np.flatnonzero(np.r_[True, (own[1:] != own[:-1]).any(axis=1)])
            if not self._is_over and starts[-1] != num_held - 1:
                starts = np.r_[starts, num_held - 1]  # the open interval is drawn by itself
            for start, stop in zip(starts, np.r_[starts[1:], num_held], strict=True):
                if own[start].any():
                    rows["job"].append(i)
                    rows["start"].append(self._first + start)
                    rows["stop"].append(np.fmin(self._first + stop, self._finish[i]))
                    rows["workers"].append(own[start, 0])
                    rows["ps"].append(own[start, 1])
        bars: dict[str, NDArray[Any]] = {key: np.array(values) for key, values in rows.items()}
        for key in ("job", "workers", "ps"):
            bars[key] = bars[key].astype(np.int64)
        bars["tasks"] = bars["workers"] + bars["ps"]
        return bars

    def _label_bars(self, axes: Axes, bars: dict[str, NDArray[Any]]) -> None:
        box = axes.bbox
        width_px = (bars["stop"] - bars["start"]) * box.width / (self._span[1] - self._span[0])
        if box.height / len(self._type) < _MIN_LABEL_PX[1]:
            return
        for n in np.flatnonzero(width_px >= _MIN_LABEL_PX[0]):
            axes.text(
                (bars["start"][n] + bars["stop"][n]) / 2,
                bars["job"][n],
                f"{bars['workers'][n]}+{bars['ps'][n]}",
                fontsize=7,
                ha="center",
                va="center",
                zorder=5,
            )

    def draw_shares(self, axes: Axes) -> None:
        types = self._types[self._type]
        workers, ps = self._held[:, :, 0], self._held[:, :, 1]
        edges = self._first + np.arange(len(self._held) + 1)
        for unit, name in (("gpus", "GPUs"), ("cpus", "CPUs")):
            total = float(self._rules[f"total_{unit}"])
            used = (workers * types[f"worker_{unit}"] + ps * types[f"ps_{unit}"]).sum(axis=1)
            share = used / total if total > 0 else np.zeros(len(used))
            if len(share):
                is_gpu = unit == "gpus"
                colour = _GPU if is_gpu else _CPU
                axes.stairs(share, edges, fill=is_gpu, color=colour, alpha=0.6 if is_gpu else 1.0, label=name)
        if not self._is_over:
            axes.axvline(self._now, color=_FINISHED, linewidth=0.8, linestyle=":")
        axes.set_ylim(0.0, 1.05)
        axes.set_yticks([0.0, 0.5, 1.0], ["0", "50 %", "100 %"], fontsize=8)
        axes.set_ylabel("allocated")
        axes.set_xlabel(f"scheduling interval of {self._interval_s:g} s")
        axes.grid(alpha=0.25)
        if len(self._held):
            axes.legend(loc="upper right", ncols=2, fontsize=8)


def _type_colours(num_types: int) -> NDArray[np.float64]:
    """(T, 4) RGBA colours, well apart for up to ten types."""
    from matplotlib import colormaps

    name = "tab10" if num_types <= 10 else "tab20"
    return np.asarray(colormaps[name](np.arange(num_types) % (10 if num_types <= 10 else 20)), dtype=np.float64)
