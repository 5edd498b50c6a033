"""CSV files of job features.

A comma-separated text file, UTF-8, with a header line; one job a line, all features per cNode (GPU replica) and step:

| column                 | unit    | meaning                                                                 |
|------------------------|---------|-------------------------------------------------------------------------|
| architecture           |         | 1w1g, 1wng, ps_worker, allreduce_local, allreduce_cluster or pearl      |
| num_cnodes             | count   | GPU replicas; 1 for 1w1g, at most 8 for 1wng, allreduce_local and pearl |
| batch_size             | samples | per replica, at least 1                                                 |
| flops                  | FLOP    | operations of compute-bound kernels, forward and backward               |
| memory_bytes           | B       | moved by memory-bound kernels                                           |
| input_bytes            | B       | input data copied to the GPU                                            |
| weight_traffic_bytes   | B       | weights and gradients, sent and received                                |
| dense_weight_bytes     | B       | optional: trainable weights without embeddings and optimiser state      |
| embedding_weight_bytes | B       | optional: trainable embeddings, likewise                                |
| optimizer_slots        | count   | optional: values the optimiser keeps per weight                         |

A file with one of the two weight columns says that its jobs have no weights of the other kind; with neither, weights
are unknown. Columns may come in any order. Others are read past and named in `PopulationTable.ignored`.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.speed.characterization import ARCHITECTURES, GPUS_PER_SERVER

FloatArray = NDArray[np.float64]

REQUIRED = ("num_cnodes", "batch_size", "flops", "memory_bytes", "input_bytes", "weight_traffic_bytes")
OPTIONAL = ("dense_weight_bytes", "embedding_weight_bytes", "optimizer_slots")
_AT_LEAST_1 = ("num_cnodes", "batch_size")
_WHOLE = ("num_cnodes", "optimizer_slots")
_LOCAL = ("1wng", "allreduce_local", "pearl")
# Sizes beyond these come from a wrong unit, and their sums or ratios would overflow.
_HUGE = 1e60
_TINY = 1e-60
_CHUNK = 50_000  # rows whose text is held at a time


@dataclass(frozen=True)
class PopulationTable:
    """Checked columns of a file.

    Attributes:
        architecture: (N,) indices into `ARCHITECTURES`.
        columns: The other columns that the file has, (N,) each, by name.
        ignored: Columns that nothing reads.
    """

    architecture: NDArray[np.int8]
    columns: dict[str, FloatArray]
    ignored: tuple[str, ...] = ()


def read_population_table(path: str | Path) -> PopulationTable:
    """Reads and checks a file, a part at a time: the text of a large one is never held whole.

    Raises:
        ConfigError: The file is missing, no text or malformed; the message names row and column.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            _check_text(path)
            return _read(path, file)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text ({error.reason}); save it as a comma-separated UTF-8 file"
        ) from error
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; check the path of the population") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a folder; give the path of a CSV file in it") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error


def _check_text(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(4096)
    if not start.strip():
        raise ConfigError(f"{path}: empty; it needs a header line and at least one job")
    if b"\0" in start or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}: not UTF-8 text; save it as a comma-separated UTF-8 file (no spreadsheet format)")


def _read(path: Path, file: TextIO) -> PopulationTable:
    rows = _rows(path, file)
    header = _checked_header(path, next(rows, (1, []))[1])
    read = {name: header.index(name) for name in ("architecture", *REQUIRED, *OPTIONAL) if name in header}
    parts: list[dict[str, NDArray[Any]]] = []
    for chunk in iter(lambda: list(itertools.islice(rows, _CHUNK)), []):
        parts.append(_checked_chunk(path, header, read, chunk))
    if not parts:
        raise ConfigError(f"{path}: a header but no jobs; add at least one row")
    columns = {name: np.concatenate([part[name] for part in parts]) for name in read}
    return PopulationTable(columns.pop("architecture"), columns, tuple(name for name in header if name not in read))


def _rows(path: Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row; blank rows at the end are left out, others are errors."""
    reader = csv.reader(file, strict=True)
    first_blank = None
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ConfigError(f"{path}, row {reader.line_num}: not valid CSV ({error}); mend the row") from error
        if row is None:
            return
        if not any(cell.strip() for cell in row):
            first_blank = first_blank or reader.line_num
            continue
        if first_blank is not None:
            raise ConfigError(f"{path}, row {first_blank}: blank; remove it")
        yield reader.line_num, row


def _checked_header(path: Path, cells: Sequence[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if len(header) == 1:
        for delimiter, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if delimiter in header[0]:
                raise ConfigError(f"{path}, row 1: cells are separated by {name}; separate them by commas")
    for name in header:
        if header.count(name) > 1:
            raise ConfigError(f"{path}, row 1: column {name!r} appears twice; rename or remove one")
    missing = [name for name in ("architecture", *REQUIRED) if name not in header]
    if missing:
        raise ConfigError(
            f"{path}, row 1: no column {', '.join(missing)}; the file has: {', '.join(header)}; add or rename columns"
        )
    return header


def _checked_chunk(
    path: Path, header: Sequence[str], read: dict[str, int], chunk: list[tuple[int, list[str]]]
) -> dict[str, NDArray[Any]]:
    lines = [line for line, _ in chunk]
    for line, row in chunk:
        if len(row) != len(header):
            raise ConfigError(
                f"{path}, row {line}: has {len(row)} cells, the header has {len(header)}; mend or remove the row"
            )
    texts = list(zip(*(row for _, row in chunk), strict=True))
    found: dict[str, NDArray[Any]] = {}
    for name, k in read.items():
        if name == "architecture":
            found[name] = _architectures(path, lines, [text.strip() for text in texts[k]])
        else:
            found[name] = _numbers(path, lines, name, texts[k])
    _check_sizes(path, lines, found)
    return found


def _error(path: Path, line: int, column: str, what: str) -> ConfigError:
    return ConfigError(f"{path}, row {line}, column {column}: {what}")


def _architectures(path: Path, lines: Sequence[int], cells: Sequence[str]) -> NDArray[np.int8]:
    index = {name: k for k, name in enumerate(ARCHITECTURES)}
    found = np.array([index.get(cell, -1) for cell in cells], dtype=np.int8)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        known = ", ".join(ARCHITECTURES)
        raise _error(
            path, lines[row], "architecture", f"{cells[row]!r} is no known architecture; choose one of: {known}"
        )
    return found


def _numbers(path: Path, lines: Sequence[int], column: str, cells: Sequence[str]) -> FloatArray:
    try:
        values = np.array([_number(cell) for cell in cells] if "_" in "".join(cells) else list(map(float, cells)))
    except ValueError:
        row = next(k for k, cell in enumerate(cells) if not _is_number(cell))
        cell = cells[row].strip()
        what = f"{cell!r} is not a number; mend it" if cell else "is empty; fill it in or remove the row"
        raise _error(path, lines[row], column, what) from None
    least = 1.0 if column in _AT_LEAST_1 else 0.0
    checks = [
        (~np.isfinite(values), "must be finite; give the measured value or remove the row"),
        (values < least, f"must be at least {least:g}; mend it or remove the row"),
        (
            (values > _HUGE) | ((values > 0) & (values < _TINY)),
            f"is no sensible size, beyond {_HUGE:g} or below {_TINY:g}; check the unit",
        ),
    ]
    if column in _WHOLE:
        checks.append((values != np.floor(values), "must be a whole number; mend it"))
    for is_bad, what in checks:
        if is_bad.any():
            row = int(np.argmax(is_bad))
            raise _error(path, lines[row], column, f"{cells[row].strip()!r} {what}")
    return values


def _number(cell: str) -> float:
    if "_" in cell:  # Python would read 1_000
        raise ValueError(cell)
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _check_sizes(path: Path, lines: Sequence[int], found: dict[str, NDArray[Any]]) -> None:
    """What one cell alone does not show: sizes that an architecture cannot have, and steps without time."""
    architecture, num_cnodes = found["architecture"], found["num_cnodes"]
    most = np.full(len(ARCHITECTURES), np.inf)
    most[[ARCHITECTURES.index(name) for name in _LOCAL]] = GPUS_PER_SERVER
    most[ARCHITECTURES.index("1w1g")] = 1
    is_large = num_cnodes > most[architecture]
    if is_large.any():
        row = int(np.argmax(is_large))
        name, limit = ARCHITECTURES[architecture[row]], most[architecture[row]]
        raise _error(
            path,
            lines[row],
            "num_cnodes",
            f"{num_cnodes[row]:g} replicas on one server, {name} has at most {limit:g}; "
            "mend the number or the architecture",
        )
    is_idle = (found["flops"] == 0) & (found["memory_bytes"] == 0) & (found["input_bytes"] == 0)
    is_idle &= (found["weight_traffic_bytes"] == 0) | (architecture == ARCHITECTURES.index("1w1g"))
    if is_idle.any():
        raise _error(
            path, lines[int(np.argmax(is_idle))], "flops", "a step that does nothing takes no time; give flops or bytes"
        )


def write_population_table(path: str | Path, table: PopulationTable) -> None:
    """Writes a file that `read_population_table` reads back, value for value.

    Raises:
        ConfigError: The file cannot be written.
    """
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in table.columns]
    columns = [table.columns[name] for name in names]
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["architecture", *names])
            for start in range(0, table.architecture.size, _CHUNK):
                part = slice(start, start + _CHUNK)
                architectures = [ARCHITECTURES[index] for index in table.architecture[part]]
                writer.writerows(zip(architectures, *(column[part].tolist() for column in columns), strict=True))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
