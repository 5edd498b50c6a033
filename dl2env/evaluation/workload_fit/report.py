"""What a fit leaves: the calibration, `summary.json`, plots as PNG and one HTML page that needs no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_to_dict
from dl2env.evaluation.html_page import render_page, write_page
from dl2env.evaluation.report import package_versions, write_summary
from dl2env.evaluation.workload_fit import tables
from dl2env.evaluation.workload_fit.comparison import QUANTITIES, Comparison, Distances
from dl2env.evaluation.workload_fit.findings import WorkloadFit
from dl2env.evaluation.workload_fit.plots import PLOTS, write_plots
from dl2env.workload.calibrated.files import write_calibration

SCHEMA, SCHEMA_VERSION = "dl2env-workload-fit", 1


def header(found: WorkloadFit) -> str:
    """Comment at the top of the calibration's file."""
    return (
        f"Calibration {found.fit.calibration.name}: parameters of generated workloads, fitted to recorded jobs.\n"
        "Collective figures only: no row of the trace is in this file, and quantiles leave 10 jobs beyond at least.\n"
        f"Made by: {found.settings.command}\n"
        "Use: workload=calibrated workload.calibrated.file=<this file>. The fit: docs/calibrated_workloads.md."
    )


def verdict(found: WorkloadFit) -> str:
    """The whole in one sentence."""
    parts = [("in sample", found.in_sample)]
    if found.held_out is not None:
        parts.append(("held out", found.held_out.comparison))
    texts = [
        f"{name}: " + ", ".join(f"{quantity} {comparison.spread('ks', quantity)[0]:.3f}" for quantity in QUANTITIES)
        for name, comparison in parts
    ]
    without = "" if found.held_out is not None else f"; nothing held out: {found.why_not}"
    return f"{found.table.num_jobs:,} jobs fitted; KS distances {'; '.join(texts)}{without}."


def summary(found: WorkloadFit, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Plain values of all findings."""
    held_out = found.held_out
    fit = found.fit
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "settings": config_to_dict(found.settings),
        "command": list(command) if command else None,
        "versions": package_versions(),
        "reading": found.report.to_dict(),
        "num_jobs": found.table.num_jobs,
        "calibration": config_to_dict(fit.calibration),
        "digest": fit.calibration.digest(),
        "candidates": {str(k): list(values) for k, values in fit.arrivals.candidates.items()},
        "pair_correlation": {
            "edges_s": fit.arrivals.correlation.edges_s.tolist(),
            "recorded": fit.arrivals.correlation.values.tolist(),
            "fitted": fit.arrivals.fitted.tolist(),
        },
        "duration_errors": fit.sizes.errors,
        "in_sample": _comparison(found.in_sample),
        "plain": _comparison(found.plain),
        "held_out": None
        if held_out is None
        else {
            **_comparison(held_out.comparison),
            "drift": _distances(held_out.drift),
            "calibration": config_to_dict(held_out.fit.calibration),
        },
        "not_held_out": found.why_not,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "jobs": int(comparison.recorded.arrival_s.size),
        "draws": len(comparison.drawn),
        **{
            kind: {quantity: _spread(comparison.spread(kind, quantity)) for quantity in QUANTITIES}
            for kind in ("ks", "wasserstein")
        },
        "figures": {
            name: {"recorded": _finite(value), "drawn": _spread(comparison.figure_spread(name))}
            for name, value in comparison.figures.items()
        },
    }


def _distances(found: Distances) -> dict[str, Any]:
    return {"ks": dict(found.ks), "wasserstein": dict(found.wasserstein)}


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in zip(("mean", "least", "largest"), values, strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def html(found: WorkloadFit, plots: Mapping[str, Path], command: Sequence[str] | None = None) -> str:
    """The report as one HTML page.

    Args:
        found: Findings.
        plots: PNG files by name, as `write_plots` returns them.
        command: Command line that made them.

    Raises:
        ConfigError: jinja2 is missing, or a plot cannot be read.
    """
    return render_page(
        "workload_fit.html",
        title="A calibrated workload",
        subtitle=f"{Path(found.report.path).name}, format {found.report.format}",
        verdict=verdict(found),
        has_held_out=found.held_out is not None,
        why_not=found.why_not,
        held_out_share=100 * found.settings.held_out,
        draws=found.settings.draws,
        plots={name: (plots[name], caption) for name, (_, caption) in PLOTS.items() if name in plots},
        tables={table.table_id: table for table in tables.all_tables(found)},
        command=" ".join(command) if command else "",
        footer=f"dl2env {package_versions()['dl2env']}",
    )


def write_report(found: WorkloadFit, folder: Path, command: Sequence[str] | None = None) -> dict[str, Path]:
    """Writes plots, page, calibration and `summary.json`; returns their paths, the summary last.

    Raises:
        ConfigError: A package is missing, or a file cannot be written.
    """
    plots = write_plots(found, folder)
    paths = dict(plots)
    paths["report"] = write_page(folder / "report.html", html(found, plots, command))
    out = folder / "calibration.yaml" if found.settings.out is None else Path(found.settings.out)
    paths["calibration"] = write_calibration(found.fit.calibration, out, header(found))
    paths["summary"] = write_summary(folder / "summary.json", summary(found, command))
    return paths
