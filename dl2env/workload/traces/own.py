"""The project's own format, CSV or Parquet: the columns of the job table, as data/schemas/job-table-v1.json describes.

Required: `arrival_s` (seconds from any origin), `duration_s`, `num_gpus`. Columns that the schema does not name are
kept where their name begins with `x_` (numbers), else left out, which the report says. `write_table` writes it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.errors import TraceError
from dl2env.resources import data_path
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import Rows
from dl2env.workload.traces.formats import NO_MATCH, Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import Account, ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceFile, TraceSource
from dl2env.workload.traces.table import JobTable

REQUIRED = ("arrival_s", "duration_s", "num_gpus")
_BATCH = 1_000_000
_EXTRA = "x_"


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of the format."""
    content: dict[str, Any] = json.loads(data_path("schemas", "job-table-v1.json").read_text(encoding="utf-8"))
    return content


def properties() -> dict[str, dict[str, Any]]:
    """Columns by name as the schema describes them."""
    found: dict[str, dict[str, Any]] = schema()["items"]["properties"]
    return found


def sniff(head: Head) -> Match:
    """Recognises the header or the columns of a Parquet file."""
    if not head.file.is_parquet():
        return head.match_header(REQUIRED, tuple(properties()))
    names = _parquet(head.file, lambda content: list(pl.read_parquet_schema(content)))
    missing = [name for name in REQUIRED if name not in names]
    if not missing:
        return Match(1.0 + 0.01 * len(set(names) & set(properties())))
    return Match(0.5, f"no column {', '.join(missing)}") if len(missing) < len(REQUIRED) else NO_MATCH


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a table in the project's own format."""
    file = source.only()
    builder = TableBuilder("dl2env", source.path, options)
    if file.is_parquet():
        blocks = _parquet_rows(file, builder.account(file))
        builder.layout["text"] = "Apache Parquet"
    else:
        blocks = builder.rows(file, header_layout(Head(file), REQUIRED, "dl2env", tuple(properties())))
    for rows in blocks:
        values = {name: _column(rows, name, described) for name, described in properties().items()}
        extra = {name.removeprefix(_EXTRA): rows.extra(name) for name in rows.frame.columns if name.startswith(_EXTRA)}
        unknown = [c for c in rows.frame.columns if c not in values and not c.startswith(_EXTRA)]
        if unknown:
            builder.layout["columns left out"] = ", ".join(unknown)
        required = [values.pop(name) for name in REQUIRED]
        values["is_censored"] = values["is_censored"] > 0
        builder.add(rows, *required, time_column="arrival_s", extra=extra, **values)
    return builder.finish()


def _column(rows: Rows, name: str, described: dict[str, Any]) -> Any:
    """A column of the schema, checked; unknown where the file lacks it."""
    if described["type"] == "string":
        if "enum" in described and name in rows:
            text = rows.series(name)
            allowed = ["", *described["enum"]]
            rows.drop(~text.is_in(allowed).to_numpy(), f"{name} is none of {', '.join(allowed[1:])}", name)
        return rows.text(name)
    is_required = name in REQUIRED
    missing = None if is_required else (0.0 if described["type"] == "integer" else np.nan)
    return rows.number(
        name,
        at_least=described.get("minimum"),
        above=described.get("exclusiveMinimum"),
        at_most=described.get("maximum"),
        is_whole=described["type"] == "integer",
        if_missing=missing,
        is_required=is_required,
    )


def _parquet(file: TraceFile, use: Any) -> Any:
    """Applies a polars function to a Parquet file.

    Raises:
        TraceError: The file is damaged.
    """
    content: Any = file.path if file.kind == "plain" else io.BytesIO(file.content())
    try:
        with _quiet():
            return use(content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        first = str(error).strip().split("\n")[0]
        raise TraceError(f"{file.name}, row 1: a damaged Parquet file ({first[:120]}); write it again") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps back what polars writes to the process's error stream, call stacks of its own code, before it raises."""
    try:
        stream = os.dup(2)
    except OSError:  # the process has none
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stream, 2)
            os.close(stream)
        kept.seek(0)
        if text := kept.read():  # nothing was raised, so it is something else
            os.write(2, text)


def _parquet_rows(file: TraceFile, account: Account) -> Iterator[Rows]:
    """Rows of a Parquet file as text; line numbers count its rows from 1."""
    start = 0
    while True:
        frame: pl.DataFrame = _parquet(file, lambda at, start=start: pl.scan_parquet(at).slice(start, _BATCH).collect())
        if start == 0:
            for name in REQUIRED:
                if name not in frame.columns:
                    raise TraceError(f"{file.name}, row 1: no column {name}, which the dl2env format needs")
        if not len(frame):
            return
        columns = [_text(file, frame[name]) for name in frame.columns]
        lines: NDArray[np.int64] = np.arange(start + 1, start + 1 + len(frame), dtype=np.int64)
        account.rows_read += len(frame)
        text = pl.DataFrame(columns)
        yield Rows(text, lines, account, text.hash_rows().to_numpy())
        start += len(frame)


def _text(file: TraceFile, values: pl.Series) -> pl.Series:
    if values.dtype == pl.Boolean:
        values = values.cast(pl.Int8)
    try:
        return values.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise TraceError(
            f"{file.name}, row 1, column {values.name}: holds {values.dtype}, not numbers or text; leave it out"
        ) from error


def write_table(table: JobTable, path: str | Path) -> None:
    """Writes a job table in the project's own format.

    Args:
        table: The jobs.
        path: A file that ends in `.parquet` or `.csv`. Columns that say nothing are left out.

    Raises:
        TraceError: The path ends in something else or cannot be written.
    """
    target = Path(path)
    columns: dict[str, Any] = {name: getattr(table, name) for name in REQUIRED}
    for name, described in properties().items():
        if name in columns:
            continue
        values = getattr(table, name)
        if described["type"] == "string":
            if values.names:
                columns[name] = pl.Series(values.tolist(), dtype=pl.String).replace("", None)
        elif np.nan_to_num(np.asarray(values, dtype=np.float64)).any():
            columns[name] = values.astype(np.int64) if described["type"] == "integer" else values
    columns.update({f"{_EXTRA}{name}": values for name, values in table.extra.items()})
    frame = pl.DataFrame(columns).with_columns(pl.selectors.float().fill_nan(None))
    try:
        if target.suffix == ".parquet":
            frame.write_parquet(target)
        elif target.suffix == ".csv":
            frame.write_csv(target)
        else:
            raise TraceError(f"{target}: job tables are written as .csv or .parquet; choose one of these endings")
    except OSError as error:
        raise TraceError(f"{target}: cannot be written ({error.strerror or error})") from error


FORMAT = TraceFormat(
    name="dl2env",
    title="the project's own job table, CSV or Parquet (data/schemas/job-table-v1.json)",
    columns="header with arrival_s, duration_s, num_gpus",
    sniff=sniff,
    read=read,
)
