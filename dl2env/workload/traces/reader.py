"""Reading a recorded workload of any known format."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from dl2env.errors import TraceError, UnknownNameError
from dl2env.workload.traces import philly, pollux
from dl2env.workload.traces.csv_file import CsvFile, read_csv
from dl2env.workload.traces.table import TraceReport, TraceTable

FORMATS: dict[str, ModuleType] = {"philly": philly, "pollux": pollux}


def read_trace(path: str | Path, format: str = "auto") -> tuple[TraceTable, TraceReport]:
    """Reads a trace file.

    Args:
        path: A CSV file with a header line.
        format: `philly`, `pollux`, or `auto`: the format whose columns the header has.

    Returns:
        The jobs, sorted by arrival, and a report on every row that is odd or left out. Rows with missing or impossible
        values are errors, not left out.

    Raises:
        TraceError: The file cannot be read or a row is wrong.
        UnknownNameError: No such format.
    """
    if format != "auto" and format not in FORMATS:
        raise UnknownNameError("trace format", format, ["auto", *FORMATS])
    file = read_csv(path)
    reader = FORMATS[_detect(file) if format == "auto" else format]
    table, report = reader.read(file)
    return table, report


def _detect(file: CsvFile) -> str:
    """The format that shares the most columns with the header, at least half of its own."""
    shares = {
        name: sum(column in file.header for column in module.COLUMNS) / len(module.COLUMNS)
        for name, module in FORMATS.items()
    }
    best = max(shares, key=lambda name: shares[name])
    if shares[best] < 0.5:
        needs = "; ".join(f"{name}: {', '.join(module.COLUMNS)}" for name, module in FORMATS.items())
        raise TraceError(
            f"{file.path}, row 1: the columns {', '.join(file.header)[:200]} are of no known format; it must have the "
            f"columns of one of these: {needs}"
        )
    return best
