"""The figure of a claim: what was published on the left, what we found on the right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agents.paper.claims import Claim, Picture
from agents.paper.effects import Results
from dl2env.evaluation.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 7.0, 2.7  # inches; a figure has about 25 kB
_PUBLISHED, _OURS = "0.6", "C0"


def draw_claim(claim: Claim, results: Results, path: Path) -> Path | None:
    """Draws a claim's figure as a PNG file; None if nothing that it shows has been run.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    picture = claim.picture
    has_bars = any(results.mean(reference) for _, reference in picture.labelled)
    has_curves = any(_curves(results, name) for _, name in picture.curves)
    if not (has_bars or has_curves):
        return None
    has_published = bool(picture.published_bars or picture.published_sweep)
    num_panels = has_published + has_bars + has_curves
    num_rows = max(len(picture.bars), len(picture.published_bars))
    height = max(_HEIGHT, 0.26 * num_rows + 1.1)
    figure, panels = new_figure(_WIDTH if num_panels < 3 else 1.3 * _WIDTH, height, columns=num_panels)
    waiting = list(panels)
    if has_published:
        _published(waiting.pop(0), picture)
    if has_curves:
        _draw_curves(waiting.pop(0), picture, results)
    if has_bars:
        (_draw_sweep if picture.sweep else _draw_bars)(waiting.pop(0), picture, results)
    for axes in panels:
        axes.tick_params(labelsize=8)
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(8)
        axes.yaxis.label.set_fontsize(8)
    return save_figure(figure, path)


def _published(axes: Axes, picture: Picture) -> None:
    assert picture.mark is not None
    axes.set_title(f"published ({picture.mark})")
    if picture.published_sweep:
        for k, (label, points) in enumerate(picture.published_sweep):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, marker="o", markersize=3, color=f"C{k}", linestyle="--", label=label)
        _finish_sweep(axes, picture, len(picture.published_sweep))
        return
    labels = [label for label, _ in picture.published_bars]
    _bars(axes, labels, [value for _, value in picture.published_bars], None, _PUBLISHED)


def _bars(
    axes: Axes,
    labels: Sequence[str],
    values: Sequence[float],
    bounds: Sequence[tuple[float, float]] | None,
    colour: str,
) -> None:
    places = np.arange(len(labels))
    errors = None
    if bounds is not None:
        errors = np.nan_to_num(np.abs(np.array(bounds).T - np.array(values)))
    axes.barh(places, values, height=0.7, color=colour, xerr=errors, capsize=2.0)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlabel("mean JCT in intervals")
    axes.grid(axis="x", alpha=0.3)


def _draw_bars(axes: Axes, picture: Picture, results: Results) -> None:
    found = [(label, results.mean(reference)) for label, reference in picture.bars]
    axes.set_title("here, 95 % interval")
    labels = [label if mean else f"{label} (not run)" for label, mean in found]
    bounds = [(mean.low, mean.high) if mean else (0.0, 0.0) for _, mean in found]
    _bars(axes, labels, [mean.estimate if mean else 0.0 for _, mean in found], bounds, _OURS)


def _draw_sweep(axes: Axes, picture: Picture, results: Results) -> None:
    axes.set_title("here, 95 % interval")
    for k, (label, points) in enumerate(picture.sweep):
        found = [(x, mean) for x, reference in points if (mean := results.mean(reference)) is not None]
        if not found:
            continue
        values = np.array([mean.estimate for _, mean in found])
        bounds = np.array([(mean.low, mean.high) for _, mean in found])
        errors = np.nan_to_num(np.abs(bounds.T - values))
        x = [x for x, _ in found]
        axes.errorbar(x, values, yerr=errors, marker="o", markersize=3, capsize=2.0, color=f"C{k}", label=label)
    _finish_sweep(axes, picture, len(picture.sweep))


def _finish_sweep(axes: Axes, picture: Picture, num_lines: int) -> None:
    axes.set_xlabel(picture.x)
    axes.set_ylabel("mean JCT in intervals")
    axes.grid(alpha=0.3)
    if num_lines > 1:
        axes.legend(fontsize=7)


def _curves(results: Results, experiment: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """(K, 3) decisions, updates and validation JCT of each run."""
    return [np.array(record.curve) for record in results.records.get(experiment, ()) if record.curve]


def _draw_curves(axes: Axes, picture: Picture, results: Results) -> None:
    """The mean curve over runs of each experiment, and the range of its runs."""
    levels: dict[str, float] = {}
    for k, (label, experiment) in enumerate(picture.curves):
        curves = _curves(results, experiment)
        if not curves:
            continue
        # Runs validate after the same updates, but for the last time.
        updates = np.unique(np.concatenate([curve[:, 1] for curve in curves]))
        updates = updates[updates <= min(curve[-1, 1] for curve in curves)]
        jct = np.stack([np.interp(updates, curve[:, 1], curve[:, 2]) for curve in curves])
        axes.plot(updates, jct.mean(axis=0), color=f"C{k}", label=label)
        axes.fill_between(updates, jct.min(axis=0), jct.max(axis=0), color=f"C{k}", alpha=0.2, linewidth=0)
        levels = dict(results.records[experiment][0].levels)
    for name, style in (("drf", ":"), ("optimus-fitted", "-.")):
        if name in levels:
            axes.axhline(levels[name], color="black", linestyle=style, linewidth=0.9, label=name)
    axes.set_title("here, validation workloads")
    axes.set_xlabel("updates")
    axes.set_ylabel("mean JCT in intervals")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
