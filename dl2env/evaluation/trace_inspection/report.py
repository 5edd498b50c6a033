"""What an inspection leaves: `summary.json`, plots as PNG and one HTML page that needs no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_to_dict
from dl2env.evaluation.html_page import render_page, write_page
from dl2env.evaluation.report import package_versions, write_summary
from dl2env.evaluation.trace_inspection import tables
from dl2env.evaluation.trace_inspection.findings import (
    CHECKS,
    QUANTILES,
    Inspection,
    Part,
    arrivals_by_hour,
    jobs_by_gpus,
    quantiles,
)
from dl2env.evaluation.trace_inspection.plots import PLOTS, write_plots

SCHEMA, SCHEMA_VERSION = "dl2env-trace-inspection", 1


def verdict(found: Inspection) -> str:
    """The whole in one sentence."""
    report = found.report
    warnings = sum(finding.rows.count for finding in found.warnings)
    load = "" if found.load is None else f" They offer {100 * found.load:.2f} % load to {found.capacity_gpus:,} GPUs."
    return (
        f"{report.rows_read:,} rows read = {report.rows_kept:,} kept + {report.rows_dropped:,} dropped + "
        f"{report.rows_merged:,} merged; warnings: {warnings:,} rows of {len(found.warnings)} "
        f"kind{'' if len(found.warnings) == 1 else 's'}; "
        f"{found.table.num_jobs:,} jobs after shaping.{load}"
    )


def summary(found: Inspection, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Plain values of all findings."""
    series = found.series
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "settings": config_to_dict(found.settings),
        "command": list(command) if command else None,
        "versions": package_versions(),
        "reading": found.report.to_dict(),
        "checks": {
            key: sum(finding.rows.count for finding in found.findings if finding.check == key)
            for key in (*CHECKS, "other")
        },
        "findings": [
            {
                "kind": finding.kind,
                "check": finding.check,
                "reason": finding.reason,
                "count": finding.rows.count,
                "first_lines": list(finding.rows.first_rows),
                "example": finding.rows.example,
                "file": finding.rows.file,
                "is_warning": finding.rows.is_warning,
            }
            for finding in found.findings
        ],
        "num_jobs": found.table.num_jobs,
        "steps": [dict(step) for step in found.table.steps],
        "digest": found.digest,
        "assignment": None if found.shaped is None else found.shaped.assigned.to_dict(),
        "load": {
            "capacity_gpus": found.capacity_gpus,
            "offered": found.load,
            "offered_as_recorded": found.recorded_load,
            "mean_gpus": None if series is None else series.mean_gpus,
            "peak_gpus": None if series is None else series.peak_gpus,
            "edges_s": [] if series is None else series.edges_s.tolist(),
            "arrived_gpu_s": [] if series is None else series.arrived_gpu_s.tolist(),
            "busy_gpus": [] if series is None else series.busy_gpus.tolist(),
            "arrivals": [] if series is None else series.jobs.tolist(),
        },
        "parts": {part.name: _part_values(part, found.capacity_gpus) for part in found.parts},
        "distributions": {
            "quantiles": list(QUANTILES),
            **{name: values.tolist() for name, values in quantiles(found).items()},
            "arrivals_by_hour": arrivals_by_hour(found.table).tolist(),
            "by_gpus": [{"gpus": label, "jobs": n, "gpu_s": gpu_s} for label, n, gpu_s in jobs_by_gpus(found.table)],
            "by_status": found.table.status.counts(),
        },
    }


def _part_values(part: Part, capacity_gpus: int | None) -> dict[str, Any]:
    whole = (capacity_gpus or 0) * (part.until_s - part.from_s)
    load = part.gpu_s / whole if whole > 0 else math.nan
    values = {"jobs": part.jobs, "from_s": part.from_s, "until_s": part.until_s, "gpu_s": part.gpu_s}
    return {**values, "offered_load": None if math.isnan(load) else load}


def html(found: Inspection, plots: Mapping[str, Path], command: Sequence[str] | None = None) -> str:
    """The report as one HTML page.

    Args:
        found: Findings.
        plots: PNG files by name, as `write_plots` returns them.
        command: Command line that made them.

    Raises:
        ConfigError: jinja2 is missing, or a plot cannot be read.
    """
    return render_page(
        "trace_inspection.html",
        title="A recorded workload",
        subtitle=f"{Path(found.report.path).name}, format {found.report.format}",
        verdict=verdict(found),
        has_warnings=bool(found.warnings),
        plots={name: (plots[name], caption) for name, (_, caption) in PLOTS.items() if name in plots},
        tables={table.table_id: table for table in tables.all_tables(found)},
        command=" ".join(command) if command else "",
        footer=f"dl2env {package_versions()['dl2env']}",
    )


def write_report(found: Inspection, folder: Path, command: Sequence[str] | None = None) -> dict[str, Path]:
    """Writes plots, page, shaped jobs where asked for, and `summary.json`; returns their paths, the summary last.

    Raises:
        ConfigError: A package is missing, or a file cannot be written.
        TraceError: The table of jobs cannot be written.
    """
    plots = write_plots(found, folder)
    paths = dict(plots)
    paths["report"] = write_page(folder / "report.html", html(found, plots, command))
    if found.settings.write is not None:
        from dl2env.workload.traces.own import write_table

        paths["jobs"] = Path(found.settings.write)
        write_table(found.table, paths["jobs"])
    paths["summary"] = write_summary(folder / "summary.json", summary(found, command))
    return paths
