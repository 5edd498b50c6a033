"""Reading a recorded workload of any known format."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dl2env.workload.traces.formats import ReadOptions, TraceFormat, detect, trace_format
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.source import TraceSource, open_source
from dl2env.workload.traces.table import JobTable


@dataclass(frozen=True)
class Found:
    """What a path leads to: files of a format, and the second file that reading them takes.

    Attributes:
        format: Their format.
        source: The files of that format.
        companion: Path of the second file, named by the user or found; None if there is none.
    """

    format: TraceFormat
    source: TraceSource
    companion: str | None


def find_trace(path: str | Path, format: str = "auto", companion: str | Path | None = None) -> Found:
    """Finds what `read_trace` reads, without reading it.

    Raises:
        TraceError: The file cannot be read or is of no known format.
        UnknownNameError: No such format.
        ConfigError: polars is not installed.
    """
    chosen = None if format == "auto" else trace_format(format)
    source = open_source(path)
    if chosen is None:
        chosen, source = detect(source)
    if not chosen.takes_several:
        source.only()
    if companion is None and chosen.find_companion is not None:
        companion = chosen.find_companion(source.only())
    return Found(chosen, source, None if companion is None else str(companion))


def read_trace(
    path: str | Path, format: str = "auto", *, strict: bool = False, companion: str | Path | None = None
) -> tuple[JobTable, ReadReport]:
    """Reads a recorded workload.

    Args:
        path: A file, plain or packed (gzip, bzip2, xz), an archive (zip, tar) or `archive::member`, or a folder with
            the tables of one trace.
        format: Name of a format (`dl2env.workload.traces.format_names`), or `auto`: found by content.
        strict: Every dropped, clamped or suspicious row is an error.
        companion: Second file of formats that need one: Gavel's table of throughputs. None: the one beside the trace.

    Returns:
        The jobs, sorted by arrival, and the account of every row.

    Raises:
        TraceError: The file cannot be read or holds no job, or a row is wrong and reading is strict.
        UnknownNameError: No such format.
        ConfigError: polars is not installed.
    """
    return read_found(find_trace(path, format, companion), strict=strict)


def read_found(found: Found, *, strict: bool = False) -> tuple[JobTable, ReadReport]:
    """Reads what `find_trace` found; raises and returns as `read_trace`."""
    table, report = found.format.read(found.source, ReadOptions(strict, found.companion))
    if found.source.unused:
        layout = {**report.layout, "other files there, not read": ", ".join(found.source.unused)}
        report = dataclasses.replace(report, layout=layout)
    return table, report
