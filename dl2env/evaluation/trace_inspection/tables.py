"""An inspection as tables, for the terminal and for the HTML page alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dl2env.evaluation.html_page import Cell, Column, Row, Table, number_cell
from dl2env.evaluation.trace_inspection.findings import (
    CHECKS,
    QUANTILES,
    Inspection,
    arrivals_by_hour,
    jobs_by_gpus,
    quantiles,
)
from dl2env.evaluation.trace_inspection.load import load_series

_DAY_S, _HOUR_S = 86_400.0, 3600.0
_SHOWN_BINS = 14
_SHOWN_NAMES = 10
_WORDS = {"warned": "kept", "noted": "kept"}


def rows_table(found: Inspection) -> Table:
    """What became of the rows."""
    report = found.report
    shares = [("read", report.rows_read), ("kept", report.rows_kept), ("dropped", report.rows_dropped)]
    shares += [("merged into another row's job", report.rows_merged)]
    shares += [("clamped, among those kept", sum(rows.count for rows in report.clamped.values()))]
    shares += [("jobs after shaping", found.table.num_jobs)]
    if found.shaped is not None:
        shares += [("jobs in the replay", found.shaped.jobs.num_jobs)]
    rows = [Row((name, number_cell(count, 0), percent_cell(count, report.rows_read))) for name, count in shares]
    columns = (Column("rows"), Column("number", is_numeric=True), Column("share of those read", is_numeric=True))
    return Table("rows", f"{report.path}, format {report.format}", columns, rows)


def checks_table(found: Inspection) -> Table:
    """Each question with its answer."""
    rows = []
    for key, (text, _) in CHECKS.items():
        if key == "cluster" and found.world is None:
            rows.append(Row((text, Cell("–", math.nan), Cell("no cluster chosen", css="muted"))))
            continue
        mine = [finding for finding in found.findings if finding.check == key]
        count = sum(finding.rows.count for finding in mine)
        is_bad = any(finding.rows.is_warning for finding in mine)
        verdict = Cell("warning", css="bad") if is_bad else Cell("noted" if count else "none", css="muted")
        rows.append(Row((text, number_cell(count, 0), verdict)))
    return Table("checks", "Checks", (Column("check"), Column("rows", is_numeric=True), Column("verdict")), rows)


def findings_table(found: Inspection) -> Table:
    """Every reason with lines and an example."""
    columns = (
        Column("what became of them", "kept rows may be clamped, or only noted"),
        Column("reason"),
        Column("rows", is_numeric=True, is_descending=True),
        Column("first lines"),
        Column("example"),
        Column("severity"),
    )
    rows = []
    for finding in found.findings:
        count = finding.rows
        more = ", ..." if count.count > len(count.first_rows) else ""
        severity = Cell("warning", css="bad") if count.is_warning else Cell("note", css="muted")
        lines = ", ".join(map(str, count.first_rows)) + more
        texts = (_WORDS.get(finding.kind, finding.kind), finding.reason)
        cells = (*texts, number_cell(count.count, 0), lines, count.example, severity)
        rows.append(Row(cells, {"severity": severity.text}))
    filters = {"severity": ["warning", "note"]}
    return Table("findings", "Findings", columns, rows, is_searchable=True, filters=filters)


def facts_table(found: Inspection) -> Table:
    """The trace and its load in a few numbers."""
    table, series = found.table, found.series
    span = float(table.arrival_s[-1] - table.arrival_s[0])
    facts = [
        ("jobs", f"{table.num_jobs:,}"),
        ("first arrival, as the file writes it", found.report.origin or "–"),
        ("days from first to last arrival", f"{span / _DAY_S:,.2f}"),
        ("GPU hours", f"{float((table.num_gpus * table.duration_s).sum()) / _HOUR_S:,.1f}"),
        ("durations", found.report.duration_rule),
        ("censored jobs, share of recorded GPU time", _censored_share(found)),
    ]
    if found.shaped is not None and found.world is not None:
        assigned = found.shaped.assigned
        servers = ", ".join(f"{g.count} x {g.gpus} {g.gpu_type}" for g in found.world.cluster.servers[:6])
        facts += [
            ("cluster", f"{found.settings.cluster}: {found.capacity_gpus:,} GPUs ({servers})"),
            ("GPU hours of the training jobs", f"{assigned.assigned_gpu_s / _HOUR_S:,.1f}"),
            ("offered load at the jobs' own numbers of GPUs", _share(found.recorded_load)),
            ("offered load in the simulator", _share(found.load)),
        ]
    if found.unknown_gpus:
        kinds = ", ".join(f"{count:,} {kind or 'of no stated kind'}" for kind, count in found.unknown_gpus.items())
        facts += [("GPUs that the hardware catalogue lacks, its pai-base instead", kinds)]
    if series is not None:
        facts += [
            ("GPUs of arriving work on average", f"{series.mean_gpus:,.1f}"),
            ("GPUs in use at most, no waiting", f"{series.peak_gpus:,.1f}"),
        ]
    facts += [("digest of jobs and steps", found.digest)]
    facts += [(f"read as: {key}", text) for key, text in found.report.layout.items()]
    columns = (Column("fact", is_sortable=False), Column("value", is_sortable=False))
    shaped = " after shaping" if len(table.steps) > 1 else ""
    return Table("facts", f"The trace{shaped}", columns, [Row(fact) for fact in facts])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def _censored_share(found: Inspection) -> str:
    gpu_s = found.table.num_gpus * found.table.duration_s
    total, count = float(gpu_s.sum()), int(found.table.is_censored.sum())
    return f"{count:,}, {_share(float(gpu_s[found.table.is_censored].sum()) / total if total else None)}"


def steps_table(found: Inspection) -> Table:
    """What was done to the jobs, in order."""
    rows = []
    for step in found.table.steps:
        texts = ", ".join(f"{key}={value}" for key, value in step.items() if key not in ("step", "jobs"))
        rows.append(Row((str(step["step"]), texts, number_cell(float(step.get("jobs", math.nan)), 0))))
    columns = (Column("step"), Column("with"), Column("jobs left", is_numeric=True))
    return Table("steps", "Shaping, in this order", columns, rows)


def load_table(found: Inspection) -> Table | None:
    """Load by a few bins of time; None if all jobs arrive at once."""
    if found.shaped is not None:
        jobs = found.shaped.jobs
        series = load_series(jobs.arrival_s, jobs.duration_s, found.shaped.gpus.astype(np.float64), _SHOWN_BINS)
    else:
        series = load_series(found.table.arrival_s, found.table.duration_s, found.table.num_gpus, _SHOWN_BINS)
    if series is None:
        return None
    capacity = found.capacity_gpus
    columns = [
        Column("from day", "after the first arrival", is_numeric=True),
        Column("hours", is_numeric=True),
        Column("arrivals", is_numeric=True),
        Column("GPUs of arriving work", "GPU time of the jobs that arrive, over the time", is_numeric=True),
        Column("GPUs in use, no waiting", is_numeric=True),
    ]
    if capacity:
        columns += [Column("offered load", is_numeric=True), Column("demand over capacity", is_numeric=True)]
    rows = []
    for b in range(series.jobs.size):
        cells = [
            number_cell(series.edges_s[b] / _DAY_S, 2),
            number_cell(series.length_s[b] / _HOUR_S, 2),
            number_cell(float(series.jobs[b]), 0),
            number_cell(float(series.offered_gpus[b]), 1),
            number_cell(float(series.busy_gpus[b]), 1),
        ]
        if capacity:
            cells += [percent_cell(float(v[b]), capacity) for v in (series.offered_gpus, series.busy_gpus)]
        rows.append(Row(cells))
    caption = "Offered load over time" + (f", of {capacity:,} GPUs" if capacity else "")
    return Table("load", caption, columns, rows)


def parts_table(found: Inspection) -> Table:
    """Train, validation and test."""
    columns = [Column("part"), Column("jobs", is_numeric=True), Column("from day", is_numeric=True)]
    columns += [Column("until day", is_numeric=True), Column("GPU hours", is_numeric=True)]
    columns += [Column("offered load", is_numeric=True)] if found.capacity_gpus else []
    rows = []
    for part in found.parts:
        numbers = (part.from_s / _DAY_S, part.until_s / _DAY_S, part.gpu_s / _HOUR_S)
        cells = [Cell(part.name), number_cell(part.jobs, 0), *(number_cell(x, 2) for x in numbers)]
        if found.capacity_gpus:
            cells += [percent_cell(part.gpu_s, found.capacity_gpus * (part.until_s - part.from_s))]
        rows.append(Row(cells))
    return Table("parts", f"Parts by {found.settings.parts_by}", columns, rows)


def quantiles_table(found: Inspection) -> Table:
    """Quantiles of durations, GPUs and times between arrivals."""
    names = {0.0: "least", 0.5: "median", 1.0: "most"}
    columns = [Column("quantity")]
    columns += [Column(names.get(q, f"{100 * q:g} %"), is_numeric=True) for q in QUANTILES]
    rows = [
        Row((name, *(Cell(f"{x:,.4g}" if x < 1e4 else f"{x:,.0f}", float(x)) for x in values)))
        for name, values in quantiles(found).items()
    ]
    return Table("quantiles", "Quantiles", columns, rows)


def gpus_table(found: Inspection) -> Table:
    """Jobs and GPU time by size."""
    sizes = jobs_by_gpus(found.table)
    total = sum(gpu_s for _, _, gpu_s in sizes)
    rows = [
        Row((label, number_cell(n, 0), percent_cell(n, found.table.num_jobs), percent_cell(gpu_s, total)))
        for label, n, gpu_s in sizes
    ]
    columns = [Column("GPUs", is_sortable=False), *(Column(name, is_numeric=True) for name in _SIZE_COLUMNS)]
    return Table("gpus", "Jobs by number of GPUs", columns, rows)


_SIZE_COLUMNS = ("jobs", "share of jobs", "share of GPU time")


def hours_table(found: Inspection) -> Table:
    """Arrivals by hour of the day."""
    counts = arrivals_by_hour(found.table)
    rows = [
        Row((f"{hour:02d}:00", number_cell(float(n), 0), percent_cell(float(n), found.table.num_jobs)))
        for hour, n in enumerate(counts.tolist())
    ]
    columns = (Column("hour"), Column("arrivals", is_numeric=True), Column("share", is_numeric=True))
    return Table("hours", "Arrivals by hour of the day, on the trace's own clock", columns, rows)


def names_table(found: Inspection) -> Table:
    """The most frequent statuses, labels, users, groups and GPU kinds."""
    rows = []
    for name in ("status", "label", "gpu_kind", "group", "user"):
        counts = getattr(found.table, name).counts()
        if set(counts) <= {""}:
            continue
        shown = list(counts.items())[:_SHOWN_NAMES]
        rest = len(counts) - len(shown)
        for text, n in shown:
            label = Cell(text) if text else Cell("not stated", css="muted")
            rows.append(Row((name, label, number_cell(n, 0), percent_cell(n, found.table.num_jobs)), {"column": name}))
        if rest:
            n = sum(list(counts.values())[_SHOWN_NAMES:])
            more = Cell(f"{rest:,} others", css="muted")
            rows.append(Row((name, more, number_cell(n, 0), percent_cell(n, found.table.num_jobs)), {"column": name}))
    columns = (Column("column"), Column("value"), Column("jobs", is_numeric=True), Column("share", is_numeric=True))
    filters = {"column": list(dict.fromkeys(row.filters["column"] for row in rows))}
    return Table("names", "Statuses, labels, users", columns, rows, filters=filters)


def percent_cell(value: float, whole: float) -> Cell:
    """A share as a cell; a dash for a share of nothing."""
    return number_cell(100 * value / whole if whole else math.nan, 1, unit=" %")


def all_tables(found: Inspection) -> Sequence[Table]:
    """All of them, in the order of the report; those without rows are left out."""
    tables = (
        rows_table(found),
        checks_table(found),
        findings_table(found),
        steps_table(found),
        facts_table(found),
        load_table(found),
        parts_table(found),
        quantiles_table(found),
        gpus_table(found),
        hours_table(found),
        names_table(found),
    )
    return [table for table in tables if table is not None and table.rows]
