"""Reading a CSV file with a header into checked columns, with errors that name the row."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import TraceError

_LARGEST_COUNT = 1_000_000


@dataclass(frozen=True)
class CsvFile:
    """Text cells of a CSV file.

    Attributes:
        path: The file, for messages.
        header: Column names.
        rows: Cells of each row, as many as there are columns; blank rows at the end are left out.
        row_numbers: (N,) line of the file on which each row ends, header = 1.
        blank_rows: Lines of the blank rows at the end.
    """

    path: Path
    header: tuple[str, ...]
    rows: list[list[str]]
    row_numbers: NDArray[np.int64]
    blank_rows: tuple[int, ...]

    def fail(self, row: int, column: str, text: str, cure: str) -> NoReturn:
        """Raises the error of one cell; `row` indexes `rows`."""
        raise TraceError(f"{self.path}, row {self.row_numbers[row]}, column {column}: {text!r} {cure}")

    def text_column(self, column: str) -> list[str]:
        """Cells of a column, stripped of blanks around them; none may be empty."""
        k = self.header.index(column)
        cells = [row[k].strip() for row in self.rows]
        if not all(cells):
            self.fail(cells.index(""), column, "", "is empty; fill it in or remove the row")
        return cells

    def number_column(self, column: str, *, at_least: float | None = None, whole: bool = False) -> NDArray[np.float64]:
        """Finite numbers of a column.

        Args:
            column: Its name.
            at_least: Smallest legal value; None: any value above 0.
            whole: Values are counts: fractions and more than a million are errors.
        """
        cells = self.text_column(column)
        try:
            values = np.array(cells, dtype=np.float64)
        except ValueError:
            row = _first_failure(float, cells)
            self.fail(row, column, cells[row], "is not a number; mend it or remove the row")
        bound = "must be positive" if at_least is None else f"must be at least {at_least:g}"
        checks = [
            (~np.isfinite(values), "must be finite"),
            ((values <= 0) if at_least is None else (values < at_least), bound),
        ]
        if whole:
            checks.append((values != np.floor(values), "must be a whole number"))
            checks.append((values > _LARGEST_COUNT, f"must be at most {_LARGEST_COUNT}"))
        for is_bad, message in checks:
            if is_bad.any():
                row = int(np.argmax(is_bad))
                self.fail(row, column, cells[row], f"{message}; mend it or remove the row")
        return values

    def require(self, columns: Sequence[str], format_name: str) -> None:
        """Checks that columns are there.

        Raises:
            TraceError: Names those that are missing and those that the file has.
        """
        missing = [column for column in columns if column not in self.header]
        if missing:
            raise TraceError(
                f"{self.path}, row 1: no column {', '.join(missing)}, which the {format_name} format needs; "
                f"the file has: {', '.join(self.header)}; rename the column or choose another format"
            )


def _first_failure(convert: Callable[[str], object], cells: Sequence[str]) -> int:
    for row, cell in enumerate(cells):
        try:
            convert(cell)
        except ValueError:
            return row
    raise AssertionError("every cell converts alone")


def read_csv(path: str | Path) -> CsvFile:
    """Reads a comma-separated text file with a header line, UTF-8 with or without byte-order mark.

    Raises:
        TraceError: The file is missing, no text, empty, or a row has too many or too few cells.
    """
    path = Path(path)
    text = _read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    try:
        header = tuple(cell.strip() for cell in next(reader, []))
        for row in reader:
            rows.append(row)
            numbers.append(reader.line_num)
    except csv.Error as error:
        raise TraceError(f"{path}, row {reader.line_num}: not valid CSV ({error}); mend the row") from error
    blank: list[int] = []
    while rows and _is_blank(rows[-1]):
        rows.pop()
        blank.append(numbers.pop())
    if not any(header):
        raise TraceError(f"{path}, row 1: blank, but it must hold the column names; add a header line")
    for name in header:
        if header.count(name) > 1:
            raise TraceError(f"{path}, row 1: column {name!r} appears twice; rename or remove one")
    if not rows:
        raise TraceError(f"{path}: a header but no jobs; choose a trace with at least one row")
    for row, number in zip(rows, numbers, strict=True):
        if len(row) != len(header):
            what = "is blank" if _is_blank(row) else f"has {len(row)} cells, the header has {len(header)}"
            raise TraceError(f"{path}, row {number}: {what}; mend or remove the row")
    return CsvFile(path, header, rows, np.array(numbers, dtype=np.int64), tuple(reversed(blank)))


def _is_blank(row: list[str]) -> bool:
    return not any(cell.strip() for cell in row)


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file; check the path of the trace") from error
    except IsADirectoryError as error:
        raise TraceError(f"{path}: is a folder; give the path of a CSV file in it") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error
    if not content.strip():
        raise TraceError(f"{path}: empty; give a trace with a header line and jobs")
    if b"\0" in content:
        raise TraceError(f"{path}: binary or UTF-16, not UTF-8 text; unpack the file or save it as CSV in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}: not UTF-8 text (byte {error.start}); unpack the file or save it as CSV in UTF-8"
        ) from error
