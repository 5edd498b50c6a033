"""Fits a calibration and judges it: on what it was fitted to, and on a later part that a second fit did not see."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dl2env
from dl2env.errors import ConfigError
from dl2env.evaluation.workload_fit.comparison import (
    Comparison,
    Distances,
    JobSample,
    compare,
    compare_plain,
    distances,
)
from dl2env.evaluation.workload_fit.settings import FitSettings
from dl2env.workload.calibrated.draw import DAY_S
from dl2env.workload.calibrated.fit import Fit, fit_calibration
from dl2env.workload.traces.reader import read_trace
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.shaping import digest, shape, split
from dl2env.workload.traces.source import content_digest
from dl2env.workload.traces.table import JobTable


@dataclass(frozen=True)
class HeldOut:
    """The judgement on jobs that the fit did not see.

    Attributes:
        fit: Of the first part.
        comparison: The last part against draws from that fit.
        drift: The last part against the first, without any model: what no fit of the first can foresee.
    """

    fit: Fit
    comparison: Comparison
    drift: Distances


@dataclass(frozen=True)
class WorkloadFit:
    """Everything that was found.

    Attributes:
        settings: What was asked for.
        report: The account of the reading.
        table: The jobs.
        fit: The calibration of all of them, and what led to it.
        in_sample: All jobs against draws from it.
        plain: All jobs against Poisson arrivals and log-normal durations.
        held_out: The judgement on the last part; None where it was not asked for or a part is too small.
        why_not: Why there is none; empty otherwise.
    """

    settings: FitSettings
    report: ReadReport
    table: JobTable
    fit: Fit
    in_sample: Comparison
    plain: Comparison
    held_out: HeldOut | None
    why_not: str


def fit_workload(settings: FitSettings) -> WorkloadFit:
    """Reads, shapes, fits and judges.

    Raises:
        Dl2EnvError: The trace cannot be read, or its jobs cannot be fitted.
    """
    read, report = read_trace(settings.path, settings.format, strict=settings.strict, companion=settings.companion)
    table = shape(read, settings.shaping)
    fit = _fitted(table, settings, _provenance(settings, report, table))
    recorded = JobSample.of(table)
    held_out, why_not = _held_out(table, settings)
    return WorkloadFit(
        settings,
        report,
        table,
        fit,
        compare(recorded, fit.calibration, settings.draws, [settings.seed, 0]),
        compare_plain(recorded, settings.draws, [settings.seed, 1]),
        held_out,
        why_not,
    )


def _fitted(table: JobTable, settings: FitSettings, provenance: dict[str, Any] | None = None) -> Fit:
    fit = fit_calibration(
        table,
        settings.calibration_name,
        description=settings.description,
        seed=settings.seed,
        fewest_jobs=settings.fewest_jobs,
    )
    if provenance is None:
        return fit
    provenance = {**provenance, "gpus_merged_jobs": fit.sizes.num_merged}
    return dataclasses.replace(fit, calibration=dataclasses.replace(fit.calibration, provenance=provenance))


def _held_out(table: JobTable, settings: FitSettings) -> tuple[HeldOut | None, str]:
    if settings.held_out == 0:
        return None, "not asked for"
    parts = split(table, {"first": (0.0, 1.0 - settings.held_out), "last": (1.0 - settings.held_out, 1.0)}, by="time")
    for name, part in parts.items():
        if part.num_jobs < settings.fewest_jobs:
            return None, f"the {name} part has {part.num_jobs} jobs, fewer than fewest_jobs={settings.fewest_jobs}"
    try:
        fit = _fitted(parts["first"], settings)
    except ConfigError as error:
        return None, f"the first part cannot be fitted: {error}"
    first, last = JobSample.of(parts["first"]), JobSample.of(parts["last"])
    if not last.arrival_s[-1] > 0:
        return None, "all jobs of the last part arrive at the same time"
    comparison = compare(last, fit.calibration, settings.draws, [settings.seed, 2])
    return HeldOut(fit, comparison, distances(last, first)), ""


def _provenance(settings: FitSettings, report: ReadReport, table: JobTable) -> dict[str, Any]:
    """Where the numbers come from, without rows, users or places of files."""
    companion = settings.companion
    return {
        "format": table.format,
        "file": Path(settings.path).name,
        "sha256": content_digest(settings.path),
        **(
            {}
            if companion is None
            else {"companion": Path(companion).name, "companion_sha256": content_digest(companion)}
        ),
        "rows_read": report.rows_read,
        "rows_kept": report.rows_kept,
        "jobs": table.num_jobs,
        "days": round(float(table.arrival_s[-1] - table.arrival_s[0]) / DAY_S, 1),
        "censored_share": round(float(table.is_censored.mean()), 4),
        "steps": [{key: value for key, value in step.items() if key != "origin_s"} for step in table.steps],
        "jobs_digest": digest(table),
        "durations": "as recorded, those of censored jobs too",
        "command": settings.command,
        "seed": settings.seed,
        "dl2env": dl2env.__version__,
    }
