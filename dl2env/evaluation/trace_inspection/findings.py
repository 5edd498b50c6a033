"""Inspecting a recorded workload: reading, shaping, what looks wrong, load and distributions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import TraceError
from dl2env.evaluation.trace_inspection.fit import cluster_findings, row_count
from dl2env.evaluation.trace_inspection.load import LoadSeries, load_series
from dl2env.evaluation.trace_inspection.settings import InspectionSettings
from dl2env.scenarios import TRACE_PARTS
from dl2env.workload.traces.configured import ShapedJobs, shaped_jobs
from dl2env.workload.traces.reader import read_trace
from dl2env.workload.traces.report import KINDS, ReadReport, RowCount
from dl2env.workload.traces.shaping import digest, part_bounds, shape
from dl2env.workload.traces.table import JobTable

FloatArray = NDArray[np.float64]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
MOST_BINS = 200
_TOLERANCE = 1e-9
_HOUR_S = 3600.0
_ROUNDING = 1e-9  # hours; a load that was set and undone leaves times a little off

CHECKS: Mapping[str, tuple[str, str]] = {
    "duplicates": ("same identifier or same row twice", r"^repeats another row|has the job id of another row"),
    "order": ("not sorted by arrival", r"^arrives before the row above"),
    "censored": ("still running when the recording stopped", r"^censored"),
    "encoding": ("text, quotes, or a file that ends early", r"Latin-1|quote|cut|file ends|blank line|time zone"),
    "missing": (
        "values missing or unreadable, times included",
        r"\bmissing\b|is unknown$|not a time|not a number|no .* (start|end) time|lacks|no row in|names its GPUs|"
        r"cells?\b",
    ),
    "impossible": (
        "impossible values and times",
        r"impossible|negative|not finite|not positive|not above|is above|whole number|\b0\b|before|none of|more than",
    ),
    "contradicting": ("columns that contradict each other", r"is not .* used|inferred|and is used"),
    "never_ran": ("never ran", r"never|cancelled"),
    "cluster": ("jobs that the cluster cannot hold", r"whole cluster has|^fits no|asks for a GPU kind"),
    "short": ("jobs of less than a minute", r"^runs for less"),
}
"""Questions by key: what is asked, and the reasons that answer it. A reason answers the first that fits."""


@dataclass(frozen=True)
class Finding:
    """What was found in some rows.

    Attributes:
        kind: What became of them: `dropped`, `merged`, `clamped`, `warned` or `noted` as in `ReadReport`.
        check: Key of `CHECKS`, or `other`.
        reason: In words.
        rows: How many, which, an example.
    """

    kind: str
    check: str
    reason: str
    rows: RowCount


@dataclass(frozen=True)
class Part:
    """A part of the trace by time or by jobs; times are seconds after the first job of the shaped trace."""

    name: str
    jobs: int
    from_s: float
    until_s: float
    gpu_s: float


@dataclass(frozen=True)
class Inspection:
    """All findings of a trace.

    Attributes:
        settings: What was asked for.
        report: The account of its reading.
        table: Its jobs after shaping.
        digest: SHA-256 of these and of all steps.
        world: The world of the chosen cluster; None without one.
        shaped: The training jobs on that cluster; None without one.
        findings: What was found, in the order of `KINDS`.
        series: Load over time: of the training jobs with a cluster, else of the recorded ones; None if all jobs
            arrive at once.
        recorded_load: Load of the shaped jobs at their own numbers of GPUs; None without a cluster or span.
        parts: Train, validation and test.
        unknown_gpus: GPUs of the cluster by those kinds that the hardware catalogue lacks.
    """

    settings: InspectionSettings
    report: ReadReport
    table: JobTable
    digest: str
    world: EnvConfig | None
    shaped: ShapedJobs | None
    findings: tuple[Finding, ...]
    series: LoadSeries | None
    recorded_load: float | None
    parts: tuple[Part, ...]
    unknown_gpus: Mapping[str, int] = field(default_factory=dict)

    @property
    def capacity_gpus(self) -> int | None:
        """GPUs of the cluster; None without one."""
        return None if self.world is None else sum(g.count * g.gpus for g in self.world.cluster.servers)

    @property
    def load(self) -> float | None:
        """Offered load of the training jobs; None without a cluster with GPUs or if all jobs arrive at once."""
        return self.shaped.load if self.shaped is not None and np.isfinite(self.shaped.load) else None

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that strict inspection does not accept."""
        return tuple(finding for finding in self.findings if finding.rows.is_warning)

    def check_strict(self) -> None:
        """Raises a `TraceError` about the first warning, if there is one."""
        for finding in self.warnings:
            rows, more = finding.rows, len(self.warnings) - 1
            line = f", line {rows.first_rows[0]}" if rows.first_rows else ""
            raise TraceError(
                f"{rows.file or self.report.path}{line}: {finding.reason}"
                f"{f' ({rows.example})' if rows.example else ''}, {rows.count} such rows"
                f"{f', and {more} other kinds of warnings' if more else ''}; mend the file or inspect it without strict"
            )


def inspect(settings: InspectionSettings) -> Inspection:
    """Reads, shapes and examines a trace.

    Raises:
        Dl2EnvError: The trace or the cluster cannot be read, or a shaping step leaves no job.
    """
    world = settings.world()
    read, report = read_trace(settings.path, settings.format, companion=settings.companion)
    if world is None:
        shaped, table = None, shape(read, settings.shaping)
        arrival_s, duration_s, gpus = table.arrival_s, table.duration_s, table.num_gpus
    else:
        shaped = shaped_jobs(world, read)
        table = shaped.table
        arrival_s, duration_s, gpus = shaped.jobs.arrival_s, shaped.jobs.duration_s, shaped.gpus.astype(np.float64)
    found = _reading(report) + _suspicious(table)
    recorded_load = None
    if world is not None and shaped is not None:
        found += _of_cluster(table, world, shaped)
        capacity = sum(group.count * group.gpus for group in world.cluster.servers)
        if capacity and table.num_jobs > 1 and np.isfinite(table.offered_gpus):
            recorded_load = table.offered_gpus / capacity
    found.sort(key=lambda finding: KINDS.index(finding.kind))
    return Inspection(
        settings,
        report,
        table,
        digest(table),
        world,
        shaped,
        tuple(found),
        load_series(arrival_s, duration_s, gpus, MOST_BINS),
        recorded_load,
        _parts(arrival_s, gpus * duration_s, settings.parts_by),
        settings.gpus_of_unknown_kind(),
    )


def check_of(reason: str) -> str:
    """The key of `CHECKS` that a reason answers, or `other`."""
    return next((key for key, (_, pattern) in CHECKS.items() if re.search(pattern, reason)), "other")


def _reading(report: ReadReport) -> list[Finding]:
    return [
        Finding(kind, check_of(reason), reason, rows)
        for kind in KINDS
        for reason, rows in getattr(report, kind).items()
    ]


def _suspicious(table: JobTable) -> list[Finding]:
    """What every kept row may be, that a user may want to know of."""
    span = float(table.arrival_s[-1] - table.arrival_s[0])
    parts_of_gpus = np.abs(table.num_gpus - np.round(table.num_gpus)) > _TOLERANCE
    masks = {
        "uses no GPU": (table.num_gpus == 0, "num_gpus"),
        "uses a share of a GPU, the simulator gives whole ones": (parts_of_gpus, "num_gpus"),
        "lasts longer than all arrivals take": ((table.duration_s > span) & (span > 0), "duration_s"),
    }
    counts = {reason: row_count(table, mask, column) for reason, (mask, column) in masks.items()}
    return [Finding("noted", "other", reason, rows) for reason, rows in counts.items() if rows.count]


def _of_cluster(table: JobTable, world: EnvConfig, shaped: ShapedJobs) -> list[Finding]:
    found = [
        Finding("warned" if rows.is_warning else "noted", "cluster", reason, rows)
        for reason, rows in cluster_findings(table, world.cluster).items()
    ]
    assigned = shaped.assigned
    caps = f"{world.workload.max_workers} workers and {world.workload.max_ps} parameter servers"
    texts = {
        f"gets fewer tasks than recorded: a job has at most {caps} (max_workers)": assigned.clamped,
        "left out of the replay: no job type runs without GPUs": assigned.left_out,
    }
    return found + [Finding("noted", "cluster", reason, rows) for reason, rows in texts.items() if rows.count]


def _parts(arrival_s: FloatArray, gpu_s: FloatArray, by: str) -> tuple[Part, ...]:
    parts = []
    for name, (start, stop) in TRACE_PARTS.items():
        first, end = part_bounds(arrival_s, start, stop, by)
        if by == "time":
            span = float(arrival_s[-1] - arrival_s[0])
            bounds = start * span, stop * span
        else:
            last = float(arrival_s[min(end, arrival_s.size - 1)])
            bounds = float(arrival_s[min(first, arrival_s.size - 1)]) - float(arrival_s[0]), last - float(arrival_s[0])
        parts.append(Part(name, max(end - first, 0), *bounds, float(gpu_s[first:end].sum())))
    return tuple(parts)


def quantiles(found: Inspection) -> dict[str, FloatArray]:
    """Quantiles (`QUANTILES`) of the shaped jobs by quantity, in seconds, GPUs and GPU hours."""
    table = found.table
    values = {
        "duration (s)": table.duration_s,
        "GPUs": table.num_gpus,
        "GPU hours": table.num_gpus * table.duration_s / _HOUR_S,
        "time between arrivals (s)": np.diff(table.arrival_s),
    }
    if np.isfinite(table.num_cpus).any():
        values["CPU cores"] = table.num_cpus[np.isfinite(table.num_cpus)]
    if np.isfinite(table.memory_gib).any():
        values["memory (GiB)"] = table.memory_gib[np.isfinite(table.memory_gib)]
    return {name: np.quantile(column, QUANTILES) for name, column in values.items() if column.size}


def arrivals_by_hour(table: JobTable) -> NDArray[np.int64]:
    """(24,) jobs by hour of the day on the trace's own clock; where that has no dates, hour 0 starts at its time 0.

    A load that was set by arrivals is undone for that: their times of day are those of the recording.
    """
    arrival_s = table.arrival_s
    for step in reversed(table.steps):
        if step["step"] == "scale_load" and step["by"] == "arrivals":
            arrival_s = arrival_s[0] + (arrival_s - arrival_s[0]) * step["factor"]
    hours = np.floor((table.origin_s + arrival_s) / _HOUR_S + _ROUNDING).astype(np.int64) % 24
    return np.bincount(hours, minlength=24)


def jobs_by_gpus(table: JobTable) -> list[tuple[str, int, float]]:
    """(label, jobs, GPU seconds) by number of GPUs, in powers of two: 0, shares, 1, 2, 3-4, 5-8, ..."""
    gpus = table.num_gpus
    group = np.where(gpus <= 0, -2, np.where(gpus < 1, -1, np.ceil(np.log2(np.maximum(gpus, 1)) - _TOLERANCE)))
    rows = []
    for key in np.unique(group).astype(int).tolist():
        mask = group == key
        low, high = 2 ** max(key - 1, 0) + 1, 2 ** max(key, 0)
        label = {-2: "none", -1: "a share", 0: "1"}.get(key, str(high) if low == high else f"{low} to {high}")
        rows.append((label, int(mask.sum()), float((gpus * table.duration_s)[mask].sum())))
    return rows
