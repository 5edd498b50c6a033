"""Plots of an inspection. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dl2env.evaluation.figures import new_figure, write_figures
from dl2env.evaluation.trace_inspection.findings import FloatArray, Inspection, arrivals_by_hour, jobs_by_gpus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREY = "#0072B2", "#D55E00", "#777777"  # of Okabe and Ito's palette, and differing in brightness
_DAY_S = 86_400.0
_LINE_POINTS = 2000  # of a CDF, more cannot be seen


def plot_load(found: Inspection) -> Figure | None:
    """Work that arrives and GPUs in use over time, with the cluster as a line."""
    series = found.series
    if series is None:
        return None
    figure, (axes,) = new_figure(10.0, 4.0, 1, 1)
    days = series.edges_s / _DAY_S
    axes.stairs(series.offered_gpus, days, color=_BLUE, fill=True, alpha=0.35, label="work that arrives")
    axes.stairs(series.busy_gpus, days, color=_RED, linewidth=1.5, baseline=None, label="in use, no waiting")
    axes.axhline(series.mean_gpus, color=_BLUE, linestyle=":", label="mean of the work that arrives")
    if found.capacity_gpus:
        axes.axhline(found.capacity_gpus, color="black", linestyle="--", label=f"cluster, {found.capacity_gpus:,} GPUs")
    axes.set_xlabel("days after the first arrival")
    axes.set_ylabel("GPUs")
    axes.set_xlim(0.0, days[-1])
    axes.set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def plot_arrivals(found: Inspection) -> Figure:
    """Arrivals by hour of the day."""
    figure, (axes,) = new_figure(7.0, 3.2, 1, 1)
    axes.bar(np.arange(24), arrivals_by_hour(found.table), color=_BLUE)
    axes.set_xlabel("hour of the day on the trace's own clock")
    axes.set_ylabel("arrivals")
    axes.set_xticks(range(0, 24, 3))
    return figure


def plot_distributions(found: Inspection) -> Figure:
    """Cumulative distributions of durations, GPUs and times between arrivals."""
    table = found.table
    figure, panels = new_figure(11.0, 3.6, 1, 3, sharey=True)
    _cdf(panels[0], table.duration_s, color=_BLUE, label="jobs")
    _cdf(panels[0], table.duration_s, table.num_gpus * table.duration_s, color=_RED, linestyle="--", label="GPU time")
    panels[0].set_xlabel("duration in s")
    panels[0].set_ylabel("%")
    titles = ("durations at most that long", "numbers of GPUs", "times at most that long")
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, fontsize=9)
    panels[0].legend(fontsize=8)
    sizes = jobs_by_gpus(table)
    for part, (colour, shift) in enumerate(((_BLUE, -0.2), (_RED, 0.2)), 1):
        values = np.array([size[part] for size in sizes], dtype=np.float64)
        share = 100 * values / values.sum() if values.sum() else values
        panels[1].bar(np.arange(len(sizes)) + shift, share, 0.4, color=colour)
    panels[1].set_xticks(range(len(sizes)), [size[0] for size in sizes], rotation=45, fontsize=8)
    panels[1].set_xlabel("GPUs (blue: jobs, red: GPU time)")
    gaps = np.diff(table.arrival_s)
    if (gaps > 0).any():
        _cdf(panels[2], gaps, color=_BLUE, label="recorded")
        x = np.geomspace(gaps[gaps > 0].min(), gaps.max(), 200)
        panels[2].plot(x, 100 * -np.expm1(-x / gaps.mean()), color=_GREY, linestyle="--", label="Poisson, same rate")
        panels[2].legend(fontsize=8)
    panels[2].set_xlabel("time between arrivals in s")
    for axes in (panels[0], panels[2]):
        if axes.lines:
            axes.set_xscale("log")
        axes.grid(alpha=0.3)
    return figure


PLOTS: Mapping[str, tuple[Callable[[Inspection], Figure | None], str]] = {
    "load": (
        plot_load,
        "GPUs needed over time: by the work that arrives, and by the jobs in progress if none ever waited",
    ),
    "arrivals": (plot_arrivals, "Arrivals by hour of the day"),
    "distributions": (
        plot_distributions,
        "Cumulative distribution of durations, shares by number of GPUs, times between arrivals",
    ),
}
"""How each plot is drawn, and what it shows."""


def write_plots(found: Inspection, folder: Path) -> dict[str, Path]:
    """Draws all plots as PNG files and returns their paths by name; a plot without data is left out.

    Raises:
        ConfigError: matplotlib is missing, or a file cannot be written.
    """
    return write_figures(PLOTS, found, folder)


def _cdf(axes: Axes, values: FloatArray, weights: FloatArray | None = None, **style: Any) -> None:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(np.ones(values.size) if weights is None else weights[order])
    if not total[-1] > 0:
        return
    ranks = total / total[-1]
    shown = np.unique(np.searchsorted(ranks, np.linspace(0.0, 1.0, _LINE_POINTS)).clip(max=values.size - 1))
    x, y = values[order][shown], 100 * ranks[shown]
    axes.step(np.concatenate((x[:1], x)), np.concatenate(([0.0], y)), where="post", linewidth=1.4, **style)
