"""Recorded workloads: readers for public trace formats, and the rule that turns recorded jobs into training jobs."""

from dl2env.workload.traces.assign import AssignReport, TraceJobs, assign_work
from dl2env.workload.traces.reader import FORMATS, read_trace
from dl2env.workload.traces.table import RowCount, TraceReport, TraceTable

__all__ = [
    "FORMATS",
    "AssignReport",
    "RowCount",
    "TraceJobs",
    "TraceReport",
    "TraceTable",
    "assign_work",
    "read_trace",
]
