"""Plots of a characterization. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dl2env.evaluation.characterization.findings import LABELS, PORTED, TARGETS, Characterization
from dl2env.evaluation.characterization.tables import PART_LABELS, WEIGHTINGS
from dl2env.evaluation.figures import new_figure, write_figures
from dl2env.speed.characterization import PARTS, FloatArray
from dl2env.speed.what_if import QUANTITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which the colour-blind can tell apart; classes also differ by line style or marker.
_PART_COLOURS = {
    "input": "#999999",
    "compute_bound": "#0072B2",
    "memory_bound": "#56B4E9",
    "ethernet": "#D55E00",
    "pcie": "#E69F00",
    "nvlink": "#CC79A7",
}
_DARK = ("compute_bound", "ethernet")
_QUANTITY_STYLES = {
    "peak_flops": ("#0072B2", "o"),
    "memory_bytes_per_s": ("#56B4E9", "s"),
    "pcie_bytes_per_s": ("#E69F00", "^"),
    "ethernet_bytes_per_s": ("#D55E00", "D"),
    "nvlink_bytes_per_s": ("#CC79A7", "v"),
}
_CLASS_COLOURS = {
    "1w1g": "#0072B2",
    "1wng": "#E69F00",
    "ps_worker": "#D55E00",
    "allreduce_local": "#CC79A7",
    "allreduce_cluster": "#009E73",
    "pearl": "#000000",
}
_LINE_POINTS = 2000  # of a CDF, more cannot be seen


def plot_breakdown(found: Characterization) -> Figure:
    """Mean share of a step by component and medium: a bar per architecture, a panel per weighting."""
    figure, panels = new_figure(10.0, 1.6 + 0.5 * len(found.classes), 1, 2, sharey=True)
    names = [LABELS[view.name] for view in found.classes]
    for axes, (weighting, title) in zip(panels, WEIGHTINGS.items(), strict=True):
        start = np.zeros(len(names))
        for part in PARTS:
            shares = np.array([view.shares[weighting][part] for view in found.classes])
            if not shares.any():
                continue
            bars = axes.barh(names, 100 * shares, left=100 * start, color=_PART_COLOURS[part], label=PART_LABELS[part])
            texts = [f"{100 * share:.0f}" if share >= 0.04 else "" for share in shares]
            ink = "white" if part in _DARK else "black"
            axes.bar_label(bars, texts, label_type="center", fontsize=8, color=ink)
            start += shares
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("mean share of a step in %")
        axes.set_xlim(0.0, 100.0)
        axes.margins(y=0.02)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def plot_distributions(found: Characterization) -> Figure:
    """Cumulative distributions of job size and of the three components' shares, for each architecture."""
    figure, panels = new_figure(10.0, 7.0, 2, 2)
    shares, workloads = found.step.shares(), found.workloads
    quantities: dict[str, FloatArray] = {
        "cNodes of a job": workloads.num_cnodes,
        "input data, % of a step": 100 * shares["input"],
        "computation, % of a step": 100 * (shares["compute_bound"] + shares["memory_bound"]),
        "weights and gradients, % of a step": 100 * found.step.weight_share(),
    }
    for axes, (label, values) in zip(panels, quantities.items(), strict=True):
        for view in found.classes[:-1]:
            mask, colour = workloads.is_on(view.name), _CLASS_COLOURS[view.name]
            _cdf(axes, values[mask], None, color=colour, label=f"{LABELS[view.name]}, each job once")
            if view.name != "1w1g":  # with one cNode each the two weightings are one
                cnodes = workloads.num_cnodes[mask]
                style: dict[str, Any] = {"linestyle": "--", "label": f"{LABELS[view.name]}, by cNodes"}
                _cdf(axes, values[mask], cnodes, color=colour, **style)
        axes.set_xlabel(label)
        _finish_cdf(axes)
    _log_scale(panels[0], 10)
    for axes in panels[::2]:
        axes.set_ylabel("jobs (dashed: cNodes) up to here in %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def plot_speedups(found: Characterization) -> Figure | None:
    """Cumulative distributions of PS/Worker jobs' speedups on both all-reduce architectures; None without such jobs."""
    if found.port_result("ps_worker", TARGETS[0], "none") is None:
        return None
    figure, panels = new_figure(10.0, 4.4, 1, 2, sharey=True)
    for axes, target in zip(panels, TARGETS, strict=True):
        for overlap, style in (("none", "-"), ("ideal", "--")):
            result = found.port_result("ps_worker", target, overlap)
            assert result is not None
            gains = {"per cNode": result.gain.single_cnode, "throughput": result.gain.throughput}
            if target == "allreduce_cluster":  # keeps its cNodes
                gains = {"per cNode and throughput": result.gain.single_cnode}
            for colour, (kind, values) in zip(("#0072B2", "#D55E00"), gains.items(), strict=False):
                label = kind if overlap == "none" else f"{kind}, ideal overlap"
                _cdf(axes, values, None, color=colour, linestyle=style, label=label)
        axes.axvline(1.0, color="black", linewidth=0.8)
        _log_scale(axes, 2 if target == "allreduce_cluster" else 10)
        axes.set_title(f"PS/Worker jobs on {LABELS[target]}", fontsize=10)
        axes.set_xlabel("speedup (right of the line: gains)")
        _finish_cdf(axes)
        axes.legend(fontsize=8, loc="upper left")
    panels[0].set_ylabel("jobs up to here in %")
    return figure


def plot_hardware(found: Characterization) -> Figure:
    """Mean speedup over the capacity of one resource in units of its base: a panel per class, a line per resource."""
    names = list(found.curves)
    columns = min(len(names), 2)
    rows = -(-len(names) // columns)
    figure, panels = new_figure(5.0 * columns, 0.6 + 3.2 * rows, rows, columns, sharey=True)
    for axes, name in zip(panels, names, strict=False):
        for curve in found.curves[name]:
            colour, marker = _QUANTITY_STYLES[curve.quantity]
            label = QUANTITIES[curve.quantity].label
            axes.plot(curve.capacity_ratios, curve.speedups, color=colour, marker=marker, markersize=4, label=label)
        axes.axhline(1.0, color="black", linewidth=0.6)
        _log_scale(axes, 2)
        axes.set_title(LABELS[name], fontsize=10)
        axes.set_xlabel("capacity over base")
        axes.grid(alpha=0.3)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    for axes in panels[: len(names) : columns]:
        axes.set_ylabel("mean speedup")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return figure


PLOTS: Mapping[str, tuple[Callable[[Characterization], Figure | None], str]] = {
    "breakdown": (plot_breakdown, "Where the time of a step goes, by component and medium."),
    "distributions": (
        plot_distributions,
        "Cumulative distributions over the jobs of each architecture; dashed: over their cNodes.",
    ),
    "speedups": (
        plot_speedups,
        "Speedups of PS/Worker jobs ported to AllReduce-Local (at most 8 cNodes) and to AllReduce-Cluster.",
    ),
    "hardware": (
        plot_hardware,
        f"Mean speedup with one faster (or slower) resource. {LABELS[PORTED]}: the same jobs after the port.",
    ),
}
"""Plots by file name, each with its caption."""


def write_plots(found: Characterization, folder: Path) -> dict[str, Path]:
    """Draws all plots as PNG files and returns their paths by name; a plot without data is left out.

    Raises:
        ConfigError: matplotlib is missing, or a file cannot be written.
    """
    return write_figures(PLOTS, found, folder)


def _cdf(axes: Axes, values: FloatArray, weights: FloatArray | None, **style: Any) -> None:
    order = np.argsort(values)
    total = np.cumsum(np.ones(len(values)) if weights is None else weights[order])
    ranks = total / total[-1]
    # Points evenly spaced in rank, the ends included.
    shown = np.unique(np.searchsorted(ranks, np.linspace(0.0, 1.0, _LINE_POINTS)).clip(max=len(values) - 1))
    x = np.concatenate(([values[order[0]]], values[order][shown]))
    y = np.concatenate(([0.0], ranks[shown]))
    axes.step(x, 100 * y, where="post", linewidth=1.4, **style)


def _finish_cdf(axes: Axes) -> None:
    axes.set_ylim(0.0, 101.0)
    axes.grid(alpha=0.3)


def _log_scale(axes: Axes, base: int) -> None:
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
