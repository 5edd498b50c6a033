"""Recorded workloads: readers for public trace formats, and the rule that turns recorded jobs into training jobs.

`read_trace` returns the canonical `JobTable` and a `ReadReport` that accounts for every row; docs/traces.md describes
the formats and how to add one.
"""

from dl2env.workload.traces.assign import AssignReport, TraceJobs, assign_work
from dl2env.workload.traces.formats import ReadOptions, TraceFormat, format_names, trace_format
from dl2env.workload.traces.reader import read_trace
from dl2env.workload.traces.report import ReadReport, RowCount, TraceWarning
from dl2env.workload.traces.table import STATUSES, JobTable, TextColumn

__all__ = [
    "STATUSES",
    "AssignReport",
    "JobTable",
    "ReadOptions",
    "ReadReport",
    "RowCount",
    "TextColumn",
    "TraceFormat",
    "TraceJobs",
    "TraceWarning",
    "assign_work",
    "format_names",
    "read_trace",
    "trace_format",
]
