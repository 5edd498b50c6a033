"""Reads measured step times.

Two forms are known:

- Folders as published with AdaptDL (Pollux, OSDI 2021), one per application: `placements.csv` with the columns
  `placement` (a digit per server: its GPUs), `local_bsz`, `step_time`, and `scalability.csv` with `num_nodes`,
  `num_replicas`, `local_bsz`, `step_time` in seconds. Either may be missing, further columns are ignored. The second
  does not say how replicas are spread; they are taken to be as even as possible.
- Speeds by (workers, parameter servers), as `dl2env.speed.measured` reads them. Only measured cells count.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.steps import MeasuredSteps
from dl2env.speed.measured import FAILED_BELOW, MEASURED, TypeTable, read_speed_table
from dl2env.workload.job_types import JobType

PLACEMENTS, SCALABILITY = "placements.csv", "scalability.csv"
_COLUMNS = {
    PLACEMENTS: ("placement", "local_bsz", "step_time"),
    SCALABILITY: ("num_nodes", "num_replicas", "local_bsz", "step_time"),
}
TASK_BANDS = (6, 12, 18)
"""Upper ends of the groups of (worker, PS) cells by number of tasks; the last group is open."""

_EXTREME = 1e9  # larger values, or smaller ones than its inverse, come from a wrong unit or a damaged file
_MOST_SERVERS = 100_000

Placement = tuple[int, ...]


def read_applications(path: str | Path) -> list[MeasuredSteps]:
    """Reads all applications below a folder.

    Args:
        path: Folder with a folder per application, or one that holds such a folder as `traces`.

    Raises:
        ConfigError: The folder is missing or holds no application, or a file is wrong.
    """
    path = Path(path)
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; give the one with a folder per application")
    root = path / "traces" if (path / "traces").is_dir() else path
    folders = [f for f in sorted(root.iterdir()) if any((f / name).is_file() for name in _COLUMNS)]
    if not folders:
        raise ConfigError(f"{root}: no folder in it has {PLACEMENTS} or {SCALABILITY}; give the parent of such folders")
    return [read_application(folder) for folder in folders]


def read_application(folder: Path) -> MeasuredSteps:
    """Reads the tables of one application; the folder's name is the application's.

    Raises:
        ConfigError: Both tables are missing, or one is empty, lacks a column, or has a wrong value in some row.
    """
    rows: list[tuple[Placement, float, float]] = []
    for name, placement_of in ((PLACEMENTS, _digits), (SCALABILITY, _spread)):
        if (folder / name).is_file():
            rows += _read_table(folder / name, _COLUMNS[name], placement_of)
    if not rows:
        raise ConfigError(f"{folder}: neither {PLACEMENTS} nor {SCALABILITY} is there; add at least one")
    placements = [row[0] for row in rows]
    workers = np.zeros((len(rows), max(len(p) for p in placements)))
    for i, placement in enumerate(placements):
        workers[i, : len(placement)] = placement
    return MeasuredSteps(
        name=folder.name,
        workers=workers,
        ps=np.zeros_like(workers),
        batch=np.array([row[1] for row in rows]),
        step_s=np.array([row[2] for row in rows]),
        configuration=np.array(["+".join(str(n) for n in p) for p in placements]),
        group=np.array([_server_group(p) for p in placements]),
    )


def _server_group(placement: Placement) -> str:
    if len(placement) > 1:
        return f"{len(placement)} servers"
    return "1 GPU" if placement == (1,) else "1 server"


def _read_table(
    path: Path, columns: Sequence[str], placement_of: Callable[[str, Mapping[str, str]], Placement]
) -> list[tuple[Placement, float, float]]:
    rows = []
    for where, row in _rows(path, columns):
        batch = _number(where, "local_bsz", row["local_bsz"])
        step_s = _number(where, "step_time", row["step_time"])
        rows.append((placement_of(where, row), batch, step_s))
    if not rows:
        raise ConfigError(f"{path}: no row after the header; remove the file or add measurements")
    return rows


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row by column name, with its place for messages; blank lines are passed over."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give a CSV file in UTF-8") from error
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise ConfigError(f"{path}: empty; it needs the header {','.join(columns)}")
    if len(header) == 1 and len(columns) > 1:
        raise ConfigError(f"{path}: its header {header[0]!r} is one column; separate columns by commas")
    missing = [name for name in columns if name not in header]
    if missing:
        raise ConfigError(f"{path}: no column {', '.join(missing)}; it has: {', '.join(header)}")
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise ConfigError(f"{where}: {len(row)} values for {len(header)} columns; mend the row")
        yield where, {name: cell.strip() for name, cell in zip(header, row, strict=True)}


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"{where}: {name}={text!r} must be a positive number; mend or remove the row")
    if not 1 / _EXTREME <= value <= _EXTREME:
        raise ConfigError(f"{where}: {name}={text!r} is no sensible size; check its unit, mend or remove the row")
    return value


def _count(where: str, name: str, text: str) -> int:
    value = _number(where, name, text)
    if value != int(value):
        raise ConfigError(f"{where}: {name}={text!r} must be a whole number; mend or remove the row")
    return int(value)


def _digits(where: str, row: Mapping[str, str]) -> Placement:
    text = row["placement"]
    if not text.isascii() or not text.isdigit() or "0" in text:
        raise ConfigError(f"{where}: placement={text!r} must be a digit from 1 to 9 per server; mend or remove the row")
    return tuple(sorted((int(digit) for digit in text), reverse=True))  # servers are alike


def _spread(where: str, row: Mapping[str, str]) -> Placement:
    servers, replicas = (_count(where, name, row[name]) for name in ("num_nodes", "num_replicas"))
    if servers > replicas:
        raise ConfigError(f"{where}: num_nodes={servers} is more than num_replicas={replicas}; mend or remove the row")
    if servers > _MOST_SERVERS:
        raise ConfigError(f"{where}: num_nodes={servers} is more than {_MOST_SERVERS:,}; mend or remove the row")
    each, more = divmod(replicas, servers)
    return (each + 1,) * more + (each,) * (servers - more)


def read_ps_tables(path: str | Path, job_types: Sequence[JobType]) -> list[MeasuredSteps]:
    """Reads measured (worker, PS) speeds and turns them into step times.

    Args:
        path: A table, or a folder of JSON files with one table each. Tables of a folder must agree where they overlap.
        job_types: Catalogue: a type's batch size turns samples/s into step times.

    Raises:
        ConfigError: There is no readable table, tables contradict each other, or a type is not in the catalogue or has
            no usable cell.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path}: no JSON file in it; give a speed table or a folder of them")
    catalogue = {job_type.name: job_type for job_type in job_types}
    tables = _merged({file: read_speed_table(file) for file in files})
    for name in tables:
        if name not in catalogue:
            raise ConfigError(f"{path}: {name!r} is no job type of the catalogue, which has: {', '.join(catalogue)}")
    return [_table_steps(path, catalogue[name], table) for name, table in tables.items()]


def _merged(tables: Mapping[Path, Mapping[str, TypeTable]]) -> dict[str, TypeTable]:
    """Per type the table with most measured cells, after a check that no other one differs from it."""
    chosen: dict[str, tuple[Path, TypeTable]] = {}
    for file, types in tables.items():
        for name, table in types.items():
            if name not in chosen or _num_measured(table) > _num_measured(chosen[name][1]):
                chosen[name] = (file, table)
    for file, types in tables.items():
        for name, table in types.items():
            best_file, best = chosen[name]
            shape = tuple(min(a, b) for a, b in zip(table.origin.shape, best.origin.shape, strict=True))
            cut = (slice(shape[0]), slice(shape[1]))
            both = (table.origin[cut] == MEASURED) & (best.origin[cut] == MEASURED)
            if not np.allclose(table.samples_per_s[cut][both], best.samples_per_s[cut][both], rtol=1e-9, atol=0.0):
                raise ConfigError(f"{file}: measured speeds of {name!r} differ from {best_file}; give one of the two")
    return {name: table for name, (_, table) in chosen.items()}


def _num_measured(table: TypeTable) -> int:
    return int((table.origin == MEASURED).sum())


def _table_steps(path: Path, job_type: JobType, table: TypeTable) -> MeasuredSteps:
    if not job_type.uses_ps:
        raise ConfigError(f"{path}: {job_type.name!r} has no parameter servers; give a catalogue in which it has")
    if table.batch_size is not None and table.batch_size != job_type.batch_size:
        raise ConfigError(
            f"{path}: {job_type.name!r} was measured with batch_size {table.batch_size:g}, its job type has "
            f"{job_type.batch_size:g}; make them equal"
        )
    given = (table.origin == MEASURED) & np.isfinite(table.samples_per_s)
    usable = given & (table.samples_per_s >= FAILED_BELOW)
    if not usable.any():
        raise ConfigError(f"{path}: {job_type.name!r} has no measured speed; remove it or add measurements")
    counts = [axis + 1 for axis in np.nonzero(usable)]  # workers, PSs
    workers, ps = _one_task_per_server(*counts)
    batches = np.ones(len(counts[0])) if job_type.synchronous else counts[0].astype(np.float64)
    return MeasuredSteps(
        name=job_type.name,
        workers=workers,
        ps=ps,
        batch=np.full(len(batches), job_type.batch_size),
        step_s=batches * job_type.batch_size / table.samples_per_s[usable],
        configuration=np.array([f"{w} workers, {p} PSs" for w, p in zip(*counts, strict=True)]),
        group=np.array([_task_group(int(w + p)) for w, p in zip(*counts, strict=True)]),
        num_failed=int(given.sum() - usable.sum()),
    )


def _one_task_per_server(workers: np.ndarray, ps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    server = np.arange(int((workers + ps).max()))
    on_workers = server < workers[:, None]
    on_ps = ~on_workers & (server < (workers + ps)[:, None])
    return on_workers.astype(np.float64), on_ps.astype(np.float64)


def _task_group(tasks: int) -> str:
    low = 2
    for high in TASK_BANDS:
        if tasks <= high:
            return f"{low}-{high} tasks"
        low = high + 1
    return f"over {TASK_BANDS[-1]} tasks"
