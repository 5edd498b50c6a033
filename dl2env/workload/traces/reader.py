"""Reading a recorded workload of any known format."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dl2env.workload.traces.formats import ReadOptions, detect, trace_format
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.source import open_source
from dl2env.workload.traces.table import JobTable


def read_trace(
    path: str | Path, format: str = "auto", *, strict: bool = False, companion: str | Path | None = None
) -> tuple[JobTable, ReadReport]:
    """Reads a recorded workload.

    Args:
        path: A file, plain or packed (gzip, bzip2, xz), an archive (zip, tar) or `archive::member`, or a folder with
            the tables of one trace.
        format: Name of a format (`dl2env.workload.traces.format_names`), or `auto`: found by content.
        strict: Every dropped, clamped or suspicious row is an error.
        companion: Second file of formats that need one: Gavel's table of throughputs.

    Returns:
        The jobs, sorted by arrival, and the account of every row.

    Raises:
        TraceError: The file cannot be read or holds no job, or a row is wrong and reading is strict.
        UnknownNameError: No such format.
        ConfigError: polars is not installed.
    """
    chosen = None if format == "auto" else trace_format(format)
    source = open_source(path)
    if chosen is None:
        chosen, source = detect(source)
    if not chosen.takes_several:
        source.only()
    table, report = chosen.read(source, ReadOptions(strict, None if companion is None else str(companion)))
    if source.unused:
        layout = {**report.layout, "other files there, not read": ", ".join(source.unused)}
        report = dataclasses.replace(report, layout=layout)
    return table, report
