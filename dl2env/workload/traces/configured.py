"""The jobs that a configuration names: read, shaped, and given a type and work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import TraceConfig
from dl2env.workload.job_types import JobType
from dl2env.workload.traces.assign import TraceJobs, assign_work
from dl2env.workload.traces.reader import read_trace
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.table import JobTable


def configured_table(trace: TraceConfig) -> tuple[JobTable, ReadReport]:
    """The job table of a configuration, shaped as it says, and the account of its reading.

    Rows that are wrong or suspicious are told by a `TraceWarning`, or are errors if `trace.strict`.
    """
    table, report = read_trace(trace.path, trace.format, strict=trace.strict, companion=trace.companion)
    report.warn()
    return table, report


def configured_jobs(
    trace: TraceConfig,
    job_types: Sequence[JobType],
    speed: NDArray[np.float64],
    max_workers: ArrayLike,
    max_ps: ArrayLike,
) -> tuple[TraceJobs, dict[str, Any]]:
    """Training jobs of a configured trace, and how they came about as plain values.

    The other arguments are those of `assign_work`.
    """
    table, report = configured_table(trace)
    jobs, assigned = assign_work(table, job_types, speed, max_workers, max_ps, trace.seed)
    counts = {
        "rows_read": report.rows_read,
        "rows_kept": report.rows_kept,
        **{kind: {reason: rows.count for reason, rows in getattr(report, kind).items()} for kind in _KINDS},
    }
    steps = [dict(step) for step in table.steps]
    return jobs, {"format": table.format, "reading": counts, "steps": steps, "assignment": assigned.to_dict()}


_KINDS = ("dropped", "merged", "clamped", "warned")
