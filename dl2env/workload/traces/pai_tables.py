"""The seven tables of Alibaba's gpu-v2020 release: recognising them, and their rows as numbers.

The published files have no header row; files with one, in any order and with further columns, are read by name. Units:
plan_cpu and plan_gpu count 100 for one vCPU or GPU, plan_mem GB, all three for each of `inst_num` instances; times are
seconds of a hidden origin, 0 or an empty cell where unknown. Status Terminated is success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.errors import TraceError
from dl2env.workload.traces import pai_simulator
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S, Rows
from dl2env.workload.traces.head import DELIMITERS, Head
from dl2env.workload.traces.rows import Layout, header_layout
from dl2env.workload.traces.source import TraceFile

COLUMNS: dict[str, tuple[str, ...]] = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
        "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
    ),
    "instance": (
        "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine",
    ),
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "sensor": (
        "job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util",
        "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count",
    ),
    "machine_metric": (
        "worker_name", "machine", "start_time", "end_time", "machine_cpu_iowait", "machine_cpu_kernel",
        "machine_cpu_usr", "machine_gpu", "machine_load_1", "machine_net_receive", "machine_num_worker", "machine_cpu",
    ),
}  # fmt: skip
"""Columns of each table in the order of the published files (its `.header` files)."""

# Columns that make a file with a header row that table; a file that joins tables is a task table.
_REQUIRED = {
    "task": ("job_name", "start_time", "end_time", "plan_gpu"),
    "sensor": ("worker_name", "gpu_wrk_util"),
    "machine_metric": ("worker_name", "machine_gpu"),
    "instance": ("job_name", "worker_name", "start_time", "end_time"),
    "job": ("job_name", "status", "start_time", "end_time"),
    "group_tag": ("inst_id", "workload"),
    "simulator": pai_simulator.REQUIRED,
}
_NUMERIC = {
    "job": ("start_time", "end_time"),
    "task": ("inst_num", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu"),
    "instance": ("start_time", "end_time"),
    "group_tag": (),
    "sensor": COLUMNS["sensor"][6:],
    "machine_metric": COLUMNS["machine_metric"][4:],
}
STATUSES = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "waiting"}
_GPU_TYPES = ("", "MISC", "T4", "P100", "V100", "V100M32", "CPU")


@dataclass(frozen=True)
class Table:
    """A file as one of the tables.

    Attributes:
        kind: Key of `COLUMNS`, or `simulator`: the job list of the release's simulator.
        file: The file.
        delimiter: Between its cells.
        has_header: Whether its first line names the columns.
    """

    kind: str
    file: TraceFile
    delimiter: str
    has_header: bool

    def rows(self, builder: TableBuilder) -> Iterator[Rows]:
        """Its rows, block by block."""
        if self.has_header:
            optional = COLUMNS.get(self.kind, pai_simulator.OPTIONAL)
            layout = header_layout(Head(self.file), _REQUIRED[self.kind], "pai", optional)
        else:
            layout = Layout(COLUMNS[self.kind], self.delimiter, header_line=0)
        return builder.rows(self.file, layout, f"{self.kind} table: ")


def recognise(head: Head) -> tuple[Table | None, str]:
    """The table that a file is, and what is missing if it is almost one."""
    if not head.lines:
        return None, ""
    almost = ""
    for delimiter in DELIMITERS:
        header = head.header(delimiter)
        for kind, names in _REQUIRED.items():
            missing = [name for name in names if name not in header]
            if not missing:
                return Table(kind, head.file, delimiter, True), ""
            if len(missing) < len(names) and "job_name" in header:
                almost = f"no column {', '.join(missing)}"
        rows = head.cells(delimiter)[:50]
        for kind, columns in COLUMNS.items():
            fitting = sum(_fits(kind, row) for row in rows if len(row) == len(columns))
            if fitting > 0.5 * len(rows):
                return Table(kind, head.file, delimiter, False), ""
    return None, almost


def _fits(kind: str, row: list[str]) -> bool:
    """Whether the cells of a row without header may be of a table."""
    cells = dict(zip(COLUMNS[kind], row, strict=True))
    if "status" in cells and cells["status"] not in STATUSES:
        return False
    if kind == "group_tag":
        is_hash = len(cells["inst_id"]) >= 16 and not _is_number(cells["user"])
        return is_hash and cells["gpu_type_spec"] in _GPU_TYPES and not _is_number(cells["workload"] or "-")
    numbers = [cells[name] for name in _NUMERIC[kind]]
    return all(_is_number(cell) or not cell for cell in numbers) and any(numbers)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _time(rows: Rows, column: str) -> NDArray[np.float64]:
    """Seconds, NaN where 0 or empty."""
    values = rows.number(column, at_least=0, at_most=LARGEST_TIME_S, if_missing=0.0)
    return np.where(values == 0, np.nan, values)


def _status(rows: Rows) -> pl.Series:
    """Status in the words of the job table, `unknown` (with a warning) where the file has another word."""
    if "status" not in rows:
        return pl.Series("status", ["unknown"] * len(rows))
    values = rows.series("status")
    rows.remark(
        "warned", ~values.is_in(list(STATUSES)).to_numpy(), f"status is none of {', '.join(STATUSES)}", "status"
    )
    return values.replace_strict(STATUSES, default="unknown", return_dtype=pl.String)


def _name(rows: Rows, column: str = "job_name") -> pl.Series:
    return rows.required(column)


def _optional(rows: Rows, column: str) -> pl.Series:
    return rows.series(column) if column in rows else pl.Series(column, [""] * len(rows), dtype=pl.String)


def read_jobs(table: Table, builder: TableBuilder) -> pl.DataFrame:
    """Job table: job_name, inst_id, user, status, submit, end, line, row_hash."""
    frames = []
    for rows in table.rows(builder):
        columns = {
            "job_name": _name(rows),
            "inst_id": _optional(rows, "inst_id"),
            "user": _optional(rows, "user"),
            "status": _status(rows),
            "submit": _time(rows, "start_time"),
            "end": _time(rows, "end_time"),
        }
        frames.append(_kept(rows, columns))
    return _concat(frames, table)


def read_tasks(table: Table, builder: TableBuilder) -> pl.DataFrame:
    """Task table: job_name, status, start, end, gpus, cpus, memory, workers, ps, others, gpu_type, texts, line."""
    frames = []
    for rows in table.rows(builder):
        name, task = _name(rows), _optional(rows, "task_name").str.to_lowercase()
        instances = rows.count("inst_num", at_least=0, if_missing=np.nan, is_required=False)
        is_alone = ~(instances > 0)
        if "inst_num" in rows:
            rows.remark("clamped", is_alone, "inst_num is 0 or missing, counted as 1", "inst_num")
        instances = np.where(is_alone, 1.0, instances)
        limits = {"at_least": 0, "at_most": 1e8, "is_required": False}
        gpus = rows.number("plan_gpu", if_missing=0.0, **limits) / 100.0 * instances  # type: ignore[arg-type]
        cpus = rows.number("plan_cpu", if_missing=0.0, **limits) / 100.0 * instances  # type: ignore[arg-type]
        memory = rows.number("plan_mem", if_missing=0.0, **limits) * instances  # type: ignore[arg-type]
        is_ps = (task == "ps").to_numpy()
        is_worker = (task.str.contains("worker|chief").to_numpy() | (gpus > 0)) & ~is_ps
        columns = {
            "job_name": name,
            "status": _status(rows),
            "start": _time(rows, "start_time"),
            "end": _time(rows, "end_time"),
            "gpus": gpus,
            "cpus": cpus,
            "memory": memory,
            "workers": np.where(is_worker, instances, 0.0),
            "others": np.where(is_worker | is_ps, 0.0, instances),
            "ps": np.where(is_ps, instances, 0.0),
            "gpu_type": _optional(rows, "gpu_type"),
            **{key: _optional(rows, key) for key in ("inst_id", "user", "group", "workload")},
        }
        frames.append(_kept(rows, columns))
    return _concat(frames, table)


def read_instances(table: Table, builder: TableBuilder, job_names: pl.Series) -> pl.DataFrame:
    """Instance table, reduced to job_name, start, end (earliest and latest of a job); its rows count as merged."""
    reduced = [pl.DataFrame(schema={"job_name": pl.String, "start": pl.Float64, "end": pl.Float64})]
    for rows in table.rows(builder):
        name = _name(rows)
        columns = {"job_name": name, "start": _time(rows, "start_time"), "end": _time(rows, "end_time")}
        rows.drop(~name.is_in(job_names.implode()).to_numpy(), "job has no row in the job or task table", "job_name")
        frame = _kept(rows, columns)
        rows.account.add("merged", "instance of a job", frame["line"].to_numpy())
        reduced.append(
            frame.group_by("job_name").agg(pl.col("start").drop_nans().min(), pl.col("end").drop_nans().max())
        )
    return pl.concat(reduced).group_by("job_name").agg(pl.col("start").min(), pl.col("end").max())


def read_tags(table: Table, builder: TableBuilder, inst_ids: pl.Series) -> pl.DataFrame:
    """Group-tag table: inst_id, group, workload, the last row of each instance id; its rows count as merged."""
    frames = [pl.DataFrame(schema={"inst_id": pl.String, "group": pl.String, "workload": pl.String})]
    for rows in table.rows(builder):
        inst_id = _name(rows, "inst_id")
        is_known = inst_id.is_in(inst_ids.implode()).to_numpy()
        rows.drop(~is_known, "tag of no job of these tables", "inst_id", is_warning=False)
        columns = {"inst_id": inst_id, "group": _optional(rows, "group"), "workload": _optional(rows, "workload")}
        frame = _kept(rows, columns)
        rows.account.add("merged", "tag of a job", frame["line"].to_numpy())
        frames.append(frame.select("inst_id", "group", "workload"))
    return pl.concat(frames).unique("inst_id", keep="last", maintain_order=True)


def _kept(rows: Rows, columns: Mapping[str, object]) -> pl.DataFrame:
    keep = rows.close()
    hashes = rows.row_hash if rows.row_hash is not None else np.zeros(len(rows), dtype=np.uint64)
    frame = pl.DataFrame({**columns, "line": rows.lines, "row_hash": hashes})
    return frame.filter(pl.Series(keep))


def _concat(frames: list[pl.DataFrame], table: Table) -> pl.DataFrame:
    if not frames:
        raise TraceError(f"{table.file.name}, line 1: the {table.kind} table holds no rows that can be read")
    return pl.concat(frames)
