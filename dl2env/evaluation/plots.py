"""Plots of an evaluation as PNG files. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dl2env.errors import ConfigError
from dl2env.evaluation.figures import new_figure, save_figure
from dl2env.evaluation.report import BASELINES, compare, counted_jct
from dl2env.evaluation.runner import Evaluation


def plot_jct_cdf(evaluation: Evaluation, path: Path) -> Path:
    """Draws the distribution of JCT over the jobs of all workloads, a curve per scheduler, and returns the path.

    Jobs that did not finish count as in the metrics: with their time until truncation and what their remaining work
    takes alone at its best allocation.

    Raises:
        ConfigError: matplotlib is missing, nothing was run, or the file cannot be written.
    """
    _require_results(evaluation)
    figure, (axes,) = new_figure()
    interval_s = evaluation.scenario.config.dynamics.interval_s
    for name, result in evaluation.results.items():
        jct = np.sort(np.concatenate(counted_jct(result, evaluation.workloads))) / interval_s
        axes.step(jct, np.arange(1, len(jct) + 1) / len(jct), where="post", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("job completion time in scheduling intervals")
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0.0, 1.0)
    axes.set_title(f"{evaluation.scenario.name}, {len(evaluation.workloads)} {evaluation.split} workloads")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    return save_figure(figure, path)


def plot_reductions(evaluation: Evaluation, path: Path, baselines: Sequence[str] = BASELINES, seed: int = 0) -> Path:
    """Draws each scheduler's reduction of mean JCT against the baselines with 95 % intervals, and returns the path.

    Args:
        evaluation: What was run.
        path: PNG file.
        baselines: Names of schedulers to compare with.
        seed: Seed of the bootstrap resamples, as in `report.compare`.

    Raises:
        ConfigError: matplotlib is missing, no baseline was run, or the file cannot be written.
    """
    shown = [b for b in baselines if b in evaluation.results]
    if not shown:
        raise ConfigError(f"no baseline to compare with was run; add one of: {', '.join(baselines)}")
    figure, (axes,) = new_figure()
    rows = compare(evaluation, shown, seed)
    height = 0.8 / len(shown)
    for k, baseline in enumerate(shown):
        present = [(i, row.reductions[baseline]) for i, row in enumerate(rows) if baseline in row.reductions]
        if not present:
            continue
        values = 100.0 * np.array([interval.estimate for _, interval in present])
        bounds = 100.0 * np.array([[interval.low, interval.high] for _, interval in present])
        errors = np.nan_to_num(np.abs(bounds.T - values))
        places = np.array([i for i, _ in present]) + (k - (len(shown) - 1) / 2) * height
        axes.barh(places, values, height=0.9 * height, xerr=errors, capsize=2.0, label=f"against {baseline}")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("reduction of mean job completion time in %, 95 % interval")
    axes.set_title(f"{evaluation.scenario.name}, {len(evaluation.workloads)} {evaluation.split} workloads")
    axes.grid(axis="x", alpha=0.3)
    if axes.containers:
        axes.legend()
    return save_figure(figure, path)


def _require_results(evaluation: Evaluation) -> None:
    if not evaluation.results:
        raise ConfigError("the evaluation holds no results; run at least one scheduler")
