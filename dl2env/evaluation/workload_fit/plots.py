"""Plots of a fitted workload. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dl2env.evaluation.figures import new_figure, write_figures
from dl2env.evaluation.workload_fit.comparison import Comparison, FloatArray
from dl2env.evaluation.workload_fit.findings import WorkloadFit
from dl2env.workload.calibrated.draw import HOUR_S
from dl2env.workload.calibrated.fit_arrivals import pair_correlation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREY = "#0072B2", "#D55E00", "#777777"  # of Okabe and Ito's palette, and differing in brightness
_MOST_POINTS = 200
_SHOWN_DRAWS = 5


def plot_quantiles(found: WorkloadFit) -> Figure:
    """Quantiles of drawn jobs over those of the recorded ones, in sample."""
    return _quantile_panels(found.in_sample)


def plot_held_out(found: WorkloadFit) -> Figure | None:
    """The same for the last part of the trace, drawn from a fit of the first."""
    return None if found.held_out is None else _quantile_panels(found.held_out.comparison)


def plot_classes(found: WorkloadFit) -> Figure:
    """Quantiles of durations for each distribution of the calibration, in sample."""
    calibration = found.fit.calibration
    names = [model.name for model in calibration.durations]
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    figure, panels = new_figure(3.0 * columns, 3.0 * rows, rows, columns)
    class_of = {gpu_class.gpus: gpu_class.durations for gpu_class in calibration.gpus}
    of_job = np.array([gpu_class.durations for gpu_class in calibration.gpus])[found.fit.sizes.class_of_job]
    for axes, name in zip(panels, names, strict=False):
        recorded = found.in_sample.recorded.duration_s[of_job == name]
        for sample in found.in_sample.drawn[:_SHOWN_DRAWS]:
            mine = np.array([class_of[g] for g in sample.num_gpus.tolist()]) == name
            if mine.any():
                _quantiles(axes, recorded, sample.duration_s[mine], color=_BLUE)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{name.replace('_', ' ')}: {recorded.size:,} jobs", fontsize=9)
        _diagonal(axes)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    figure.supxlabel("recorded duration in s", fontsize=9)
    figure.supylabel("drawn duration in s", fontsize=9)
    return figure


def plot_arrivals(found: WorkloadFit) -> Figure:
    """Pair correlation, relative rate over the week, and counts by hour."""
    fit, recorded = found.fit.arrivals, found.in_sample.recorded
    figure, panels = new_figure(12.0, 3.8, 1, 3)
    axes = panels[0]
    for k, sample in enumerate(found.in_sample.drawn[:_SHOWN_DRAWS]):
        drawn = pair_correlation(sample.arrival_s)
        axes.plot(drawn.lags_s, drawn.values, color=_BLUE, alpha=0.4, linewidth=0.8, label="drawn" if not k else None)
    axes.plot(fit.correlation.lags_s, fit.fitted, color=_BLUE, label="calibration, without cycles")
    axes.plot(
        *(fit.correlation.lags_s, fit.correlation.values), color=_RED, linestyle="none", marker="o", markersize=3,
        label="recorded, cycles divided out",
    )  # fmt: skip
    axes.axhline(1.0, color=_GREY, linestyle=":", label="independent arrivals")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("time between two jobs in s")
    axes.set_ylabel("pair correlation")
    axes.legend(fontsize=7)
    axes = panels[1]
    profile = fit.model.profile
    axes.stairs(profile, np.arange(profile.size + 1) / 24, color=_BLUE, label="calibration")
    axes.set_xlabel("day of the week, Monday 0" if fit.model.has_dates else "day after time 0 of the trace")
    axes.set_ylabel("relative rate of arrivals")
    axes.set_ylim(bottom=0.0)
    axes = panels[2]
    for k, sample in enumerate(found.in_sample.drawn[:_SHOWN_DRAWS]):
        _hourly(axes, sample.arrival_s, color=_BLUE, alpha=0.5, linewidth=0.8, label="drawn" if not k else "")
    _hourly(axes, recorded.arrival_s, color=_RED, linewidth=1.4, label="recorded")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlabel("arrivals in an hour")
    axes.set_ylabel("% of hours with at most so many")
    axes.legend(fontsize=7)
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure


PLOTS: Mapping[str, tuple[Callable[[WorkloadFit], Figure | None], str]] = {
    "quantiles": (plot_quantiles, "Quantiles of drawn jobs over recorded ones; on the diagonal both are equal"),
    "classes": (plot_classes, "Quantiles of durations, drawn over recorded, by number of GPUs"),
    "arrivals": (plot_arrivals, "Pair correlation of arrivals, rate over the week, arrivals by hour"),
    "held_out": (plot_held_out, "The last part of the trace against jobs drawn from a fit of the first part"),
}
"""How each plot is drawn, and what it shows."""


def write_plots(found: WorkloadFit, folder: Path) -> dict[str, Path]:
    """Draws all plots as PNG files and returns their paths by name; a plot without data is left out.

    Raises:
        ConfigError: matplotlib is missing, or a file cannot be written.
    """
    return write_figures(PLOTS, found, folder)


def _quantile_panels(comparison: Comparison) -> Figure:
    figure, panels = new_figure(12.0, 4.0, 1, 3)
    recorded = comparison.recorded
    for k, sample in enumerate(comparison.drawn[:_SHOWN_DRAWS]):
        _quantiles(panels[0], recorded.duration_s, sample.duration_s, color=_BLUE)
        _quantiles(panels[1], recorded.gaps_s + 1.0, sample.gaps_s + 1.0, color=_BLUE)
        _gpu_shares(panels[2], sample.num_gpus, color=_BLUE, label="drawn" if not k else "")
    _gpu_shares(panels[2], recorded.num_gpus, color=_RED, label="recorded")
    for axes, what in zip(panels, ("duration in s", "1 s + time between arrivals", ""), strict=True):
        if what:
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(f"recorded: {what}")
            axes.set_ylabel(f"drawn: {what}")
            _diagonal(axes)
        axes.grid(alpha=0.3)
    panels[2].set_xlabel("GPUs")
    panels[2].set_ylabel("% of jobs with more")
    panels[2].set_xscale("symlog", linthresh=1.0)
    panels[2].set_yscale("log")
    panels[2].legend(fontsize=8)
    return figure


def _quantiles(axes: Axes, recorded: FloatArray, drawn: FloatArray, color: str) -> None:
    ranks = (np.arange(min(_MOST_POINTS, recorded.size)) + 0.5) / min(_MOST_POINTS, recorded.size)
    x, y = np.quantile(recorded, ranks), np.quantile(drawn, ranks)
    axes.plot(x, y, color=color, marker=".", markersize=3, linewidth=0.6, alpha=0.6)


def _diagonal(axes: Axes) -> None:
    low = max(min(axes.get_xlim()[0], axes.get_ylim()[0]), 1e-3)
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot((low, high), (low, high), color=_GREY, linestyle="--", linewidth=0.8)


def _gpu_shares(axes: Axes, gpus: FloatArray, color: str, label: str) -> None:
    values, counts = np.unique(gpus, return_counts=True)
    above = 100.0 * (1.0 - np.cumsum(counts) / counts.sum())
    axes.step(values[:-1], above[:-1], where="post", color=color, marker=".", label=label or None, linewidth=1.0)


def _hourly(axes: Axes, arrival_s: FloatArray, label: str, **style: Any) -> None:
    counts = np.sort(np.bincount((arrival_s // HOUR_S).astype(np.int64))[:-1])
    if counts.size:
        axes.step(
            counts, 100.0 * np.arange(1, counts.size + 1) / counts.size, where="post", label=label or None, **style
        )
