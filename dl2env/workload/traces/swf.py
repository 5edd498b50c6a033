"""Standard Workload Format 2.2 of the Parallel Workloads Archive: `*.swf`.

Eighteen fields between blanks, -1 where unknown; lines that begin with ";" are comments and hold the header
(`MaxProcs`, `UnixStartTime`, ...). Times in seconds from the start of the log, memory in KB per processor. The format
knows processors, not GPUs: one processor counts as one GPU.

Rules: size is the number of requested processors, else of allocated ones; duration is the run time. A run time of 0 is
legal (rounded down) and counts as 1 s. Cancelled jobs without run time or processors never started. Rows with status
2 to 4 are pieces of a job that was stopped and resumed: merged with its summary row (status 0 or 1), and dropped with a
warning where there is none.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_COUNT, LARGEST_TIME_S, Rows, encode
from dl2env.workload.traces.formats import NO_MATCH, Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.head import DELIMITERS, delimiter_name
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import Layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable, TextColumn

COLUMNS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average cpu time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
_COMMENT = ";"
_STATUSES = {0: "failed", 1: "completed", 5: "killed"}
_PIECES = (2, 3, 4)
_SHORTEST_S = 1.0
_SHOWN = ("Version", "Computer", "Installation", "MaxNodes", "MaxProcs", "UnixStartTime", "TimeZoneString")


def sniff(head: Head) -> Match:
    """Recognises rows of eighteen numbers."""
    rows = [line for line in head.lines[:200] if not line.lstrip().startswith(_COMMENT)][:100]
    if not rows:
        return Match(0.6, "there are only comments at its beginning") if _header(head) else NO_MATCH
    if _share(rows, None) > 0.5:
        return Match(1.1)
    for delimiter in DELIMITERS:
        if _share(rows, delimiter) > 0.5:
            return Match(0.8, f"its cells are separated by {delimiter_name(delimiter)}, not by blanks")
    return Match(0.6, f"its rows are not {len(COLUMNS)} numbers") if _header(head) else NO_MATCH


def _share(lines: list[str], delimiter: str | None) -> float:
    """Part of the lines that are eighteen numbers."""
    return sum(_is_row(line.split(delimiter)) for line in lines) / len(lines)


def _is_row(cells: list[str]) -> bool:
    return len(cells) == len(COLUMNS) and all(re.fullmatch(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", cell) for cell in cells)


def _header(head: Head) -> dict[str, str]:
    """What the comments say, by key."""
    found = (re.match(r"\s*;\s*(\w+):\s*(.*\S)", line) for line in head.lines[:1000])
    return {match[1]: match[2] for match in found if match and match[1] in _SHOWN}


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a workload log."""
    file = source.only()
    head = Head(file)
    builder = TableBuilder("swf", source.path, options)
    pieces: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
    whole: list[NDArray[np.float64]] = []
    layout = Layout(COLUMNS, None, header_line=0, quoted=False, comment=_COMMENT)
    for rows in builder.rows(file, layout):
        number = rows.number("job number")
        status = rows.number("status", if_missing=-1.0, is_whole=True)
        is_piece = np.isin(status, _PIECES) & ~rows.is_dropped
        pieces.append((number[is_piece], rows.lines[is_piece]))
        rows.is_dropped |= is_piece  # counted at the end, when all summary rows are known
        whole.append(number[~rows.is_dropped])
        _add(builder, rows, status)
    _count_pieces(builder, pieces, whole)
    builder.layout.update({f"header {key}": text for key, text in _header(head).items()})
    builder.layout["unit"] = "a processor counts as a GPU"
    return builder.finish("run time")


def _known(rows: Rows, column: str, at_most: float) -> NDArray[np.float64]:
    """A column with -1 for unknown."""
    return rows.number(column, at_least=-1, at_most=at_most, if_missing=-1.0)


def _or_nan(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values < 0, np.nan, values)


def _name(rows: Rows, column: str) -> TextColumn:
    values = rows.series(column)
    return encode(pl.select(pl.when(values == "-1").then(pl.lit("")).otherwise(values)).to_series())


def _add(builder: TableBuilder, rows: Rows, status: NDArray[np.float64]) -> None:
    submit = rows.number("submit time", at_least=0, at_most=LARGEST_TIME_S)
    run = _known(rows, "run time", LARGEST_TIME_S)
    requested = _known(rows, "requested processors", LARGEST_COUNT)
    allocated = _known(rows, "allocated processors", LARGEST_COUNT)
    size = np.where(requested > 0, requested, allocated)
    is_cancelled = status == 5
    has_run = (run > 0) & (size > 0)
    rows.drop(is_cancelled & ~has_run, "cancelled before it started", "run time", is_warning=False)
    rows.drop(run < 0, "run time is unknown", "run time")
    rows.drop(size <= 0, "number of processors is unknown", "requested processors")
    rows.remark("clamped", run == 0, f"run time 0, counted as {_SHORTEST_S:g} s", "run time")
    is_known = np.isin(status, (-1, *_STATUSES))
    rows.remark("warned", ~is_known, "status is none of -1 to 5", "status")
    words = pl.Series(status).replace_strict(_STATUSES, default="unknown", return_dtype=pl.String)
    memory = rows.extra("requested memory", at_least=-1, at_most=1e15)
    memory = np.where(memory > 0, memory, rows.extra("used memory", at_least=-1, at_most=1e15))
    builder.add(
        rows,
        submit,
        np.maximum(run, _SHORTEST_S * (run == 0)),
        size,
        time_column="submit time",
        job_id=rows.text("job number", is_required=True),
        status=encode(words),
        user=_name(rows, "user"),
        group=_name(rows, "group"),
        memory_gib=np.where(memory > 0, memory, np.nan) * size / 2**20,
        extra={
            "wait_s": _or_nan(rows.extra("wait time", at_least=-1, at_most=LARGEST_TIME_S)),
            "requested_s": _or_nan(rows.extra("requested time", at_least=-1, at_most=LARGEST_TIME_S)),
        },
    )


def _count_pieces(
    builder: TableBuilder,
    pieces: list[tuple[NDArray[np.float64], NDArray[np.int64]]],
    whole: list[NDArray[np.float64]],
) -> None:
    """Accounts for the rows of resumed jobs."""
    if not pieces:
        return
    numbers = np.concatenate([number for number, _ in pieces])
    lines = np.concatenate([line for _, line in pieces])
    has_summary = np.isin(numbers, np.concatenate(whole))
    account = builder.accounts[-1]
    account.add("merged", "piece of a job that was stopped and resumed", lines[has_summary])
    account.add("dropped", "piece of a resumed job that has no row of its own", lines[~has_summary])


FORMAT = TraceFormat(
    name="swf",
    title="Standard Workload Format of the Parallel Workloads Archive",
    columns="18 numbers between blanks; lines of comments begin with a semicolon",
    sniff=sniff,
    read=read,
)
