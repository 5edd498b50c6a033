"""The last step of every reader: sort by arrival and count what is odd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dl2env.workload.traces.csv_file import CsvFile
from dl2env.workload.traces.table import RowCount, TraceReport, TraceTable

SHORT_S = 60.0
"""Jobs that run for less are counted in the report."""


def arrange(
    file: CsvFile,
    format_name: str,
    seconds: NDArray[np.float64],
    stamps: Sequence[str],
    duration_s: NDArray[np.float64],
    num_gpus: NDArray[np.float64],
    labels: Sequence[str],
    duration_rule: str,
) -> tuple[TraceTable, TraceReport]:
    """Table in (arrival, file) order with times from the first arrival, and the report.

    Args:
        file: The file read; all other arrays have one entry per row of it.
        format_name: Its format.
        seconds: Arrival times from any origin.
        stamps: The same as the file writes them.
        duration_s: Run times.
        num_gpus: Whole numbers of GPUs.
        labels: One text per job.
        duration_rule: Where the run times come from.
    """
    order = np.argsort(seconds, kind="stable")
    rows = file.row_numbers
    seen: set[tuple[str, ...]] = set()
    duplicates = []
    for i, cells in enumerate(file.rows):
        key = tuple(cells)
        if key in seen:
            duplicates.append(i)
        seen.add(key)
    table = TraceTable(
        format=format_name,
        arrival_s=seconds[order] - seconds[order[0]],
        duration_s=duration_s[order],
        num_gpus=num_gpus[order].astype(np.int64),
        label=tuple(labels[i] for i in order),
        source_row=rows[order],
    )
    report = TraceReport(
        path=str(file.path),
        format=format_name,
        rows_read=len(file.rows) + len(file.blank_rows),
        rows_kept=table.num_jobs,
        origin=stamps[order[0]],
        duration_rule=duration_rule,
        dropped={"blank last line": RowCount.of(file.blank_rows)},
        noted={
            "repeats another row exactly": RowCount.of(rows[duplicates]),
            "arrives before the row above": RowCount.of(rows[1:][np.diff(seconds) < 0]),
            f"runs for less than {SHORT_S:g} s": RowCount.of(rows[duration_s < SHORT_S]),
        },
    )
    return table, report
