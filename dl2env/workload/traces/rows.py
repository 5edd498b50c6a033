"""Text rows of a trace file, block by block, with every row accounted for; needs polars."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.errors import TraceError
from dl2env.workload.traces.cells import Rows
from dl2env.workload.traces.head import Head, check_text, delimiter_name, latin_1, split_lines
from dl2env.workload.traces.report import BLANK, Account
from dl2env.workload.traces.source import BLOCK_BYTES, TraceFile, read_exactly

_LONGEST_RECORD = 1 << 22  # bytes of one row; more without a line end is no table
_JOINED_LINES = 20  # a quoted cell may hold line ends, but not more


@dataclass(frozen=True)
class Layout:
    """How the rows of a text file are cut.

    Attributes:
        columns: Names in lower case, in the file's order.
        delimiter: Between cells; None: any number of blanks.
        header_line: Line of the column names; 0 if the file has none.
        quoted: Whether double quotes enclose cells.
        comment: Lines that begin with it are not rows.
        may_lack: A row may have that many cells fewer at its end.
    """

    columns: tuple[str, ...]
    delimiter: str | None = ","
    header_line: int = 1
    quoted: bool = True
    comment: str = ""
    may_lack: int = 0

    def describe(self) -> str:
        """For the report."""
        header = f"header in line {self.header_line}" if self.header_line else "no header"
        return f"{delimiter_name(self.delimiter)} between cells, {header}, columns {', '.join(self.columns)}"


def header_layout(head: Head, required: Sequence[str], format_name: str, optional: Sequence[str] = ()) -> Layout:
    """Layout of a file whose first line that is not blank names the columns, in any order and with any others.

    Raises:
        TraceError: A required column is missing, or a name appears twice.
    """
    delimiter = head.best_delimiter((*required, *optional))
    names = list(head.header(delimiter))
    line = next((i for i, text in enumerate(split_lines(head.text), 1) if text.strip()), 1)
    where = f"{head.file.name}, line {line}"
    missing = [name for name in required if name.lower() not in names]
    if missing:
        raise TraceError(
            f"{where}: no column {', '.join(missing)}, which the {format_name} format needs; the header has: "
            f"{', '.join(names)[:300]}; rename the column or choose another format"
        )
    for i, name in enumerate(names):
        if not name:
            names[i] = f"column {i + 1}"
        elif names.count(name) > 1:
            raise TraceError(f"{where}: column {name!r} appears twice; rename or remove one")
    return Layout(tuple(names), delimiter, line)


def read_rows(file: TraceFile, layout: Layout, account: Account) -> Iterator[Rows]:
    """Rows of a text file in blocks of some 32 MiB. Blank lines and rows of another width are accounted as dropped.

    Raises:
        TraceError: The file is damaged, empty, binary, or has no line ends.
    """
    line = 1  # number of the first line of `rest`
    rest = b""
    is_first = True
    with file.open() as stream:
        while True:
            block = read_exactly(stream, BLOCK_BYTES)
            is_last = len(block) < BLOCK_BYTES
            content = rest + block
            if is_first:
                check_text(file.name, content)
                content = content.removeprefix(b"\xef\xbb\xbf")
                is_first = False
            elif b"\0" in block:
                check_text(file.name, content, line)
            # A CR at the end may be the first half of a CR LF.
            at_cr = b"" if is_last or not content.endswith(b"\r") else b"\r"
            content = content[: len(content) - len(at_cr)]
            if b"\r" in content:
                content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            cut = len(content) if is_last else content.rfind(b"\n") + 1
            if not cut and len(content) > _LONGEST_RECORD:
                raise TraceError(f"{file.name}, line {line}: {len(content)} bytes without a line end; this is no table")
            text = _decode(content[:cut], line, account)
            lines = text.split("\n")
            rest = content[cut:] + at_cr
            if lines and lines[-1] == "":
                lines.pop()
            elif is_last and lines and lines[-1]:
                account.add("noted", "the last line has no line end, so the file may be cut", [line + len(lines) - 1])
            held_back = 0
            skip = max(layout.header_line - line + 1, 0)
            if len(lines) > skip:
                rows, held_back = _cut(lines[skip:], line + skip, layout, account, is_last, '"' in text)
                if rows is not None:
                    yield rows
            if held_back:
                kept, lines = lines[len(lines) - held_back :], lines[: len(lines) - held_back]
                rest = ("\n".join(kept) + "\n").encode() + rest
            line += len(lines)
            if is_last:
                return


def _decode(content: bytes, line: int, account: Account) -> str:
    """Text of a block; bytes that are not UTF-8 are read as Latin-1, and their lines counted."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        escaped = content.decode("utf-8", "surrogateescape")
    lines = escaped.split("\n")
    wrong = [i for i, text in enumerate(lines) if _UNDECODABLE.search(text)]
    example = repr(latin_1(lines[wrong[0]]).strip()[:60])
    account.add("warned", "not UTF-8 text, read as Latin-1", [line + i for i in wrong], example)
    return latin_1(escaped)


_UNDECODABLE = re.compile("[\udc80-\udcff]")


def _cut(
    lines: list[str], first_line: int, layout: Layout, account: Account, is_last: bool, has_quotes: bool
) -> tuple[Rows | None, int]:
    """Rows of some lines, and how many lines at the end are to be read again with the next block."""
    numbers: NDArray[np.int64] = np.arange(first_line, first_line + len(lines), dtype=np.int64)
    held_back = 0
    if layout.quoted and has_quotes:
        lines, numbers, held_back = _join_quoted(lines, numbers, layout, account, is_last)
    series = pl.Series("line", lines, dtype=pl.String)
    if layout.comment:
        is_comment = series.str.strip_chars_start(" \t").str.starts_with(layout.comment).to_numpy()
        series, numbers = series.filter(pl.Series(~is_comment)), numbers[~is_comment]
    account.rows_read += len(series)
    blanks = " \t" + (layout.delimiter or "")
    is_blank = (series.str.strip_chars(blanks) == "").to_numpy()
    account.add("dropped", BLANK, numbers[is_blank], is_warning=False)
    series, numbers = series.filter(pl.Series(~is_blank)), numbers[~is_blank]
    frame, width = _split(series, layout)
    is_ragged = (width > len(layout.columns)) | (width < len(layout.columns) - layout.may_lack)
    if is_ragged.any():
        first = int(np.argmax(is_ragged))
        account.add(
            "dropped",
            f"not {len(layout.columns)} cells",
            numbers[is_ragged],
            f"{width[first]} cells in {series[first][:80]!r}",
        )
        keep = pl.Series(~is_ragged)
        frame, series, numbers = frame.filter(keep), series.filter(keep), numbers[~is_ragged]
    if not len(numbers):
        return None, held_back
    return Rows(frame, numbers, account, series.hash().to_numpy()), held_back


def _split(series: pl.Series, layout: Layout) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """(one text column per name, cells per row); cells that a row lacks are null, surplus ones are left out."""
    delimiter, columns = layout.delimiter, layout.columns
    if delimiter is None:
        series, delimiter = series.str.strip_chars().str.replace_all(r"[ \t]+", " "), " "
    width = series.str.count_matches(delimiter, literal=True).to_numpy().astype(np.int64) + 1
    parts = series.str.split_exact(delimiter, len(columns)).struct.unnest()
    frame = parts.select(pl.col(parts.columns[i]).alias(name) for i, name in enumerate(columns))
    if not layout.quoted:
        return frame, width
    has_quote = series.str.contains('"', literal=True).to_numpy()
    if has_quote.any():
        where = np.flatnonzero(has_quote)
        rows = [_quoted_cells(text, delimiter) for text in series.filter(pl.Series(has_quote))]
        width[where] = [len(row) for row in rows]
        picked = [[row[i] if i < len(row) else None for row in rows] for i in range(len(columns))]
        index = pl.Series(where)
        frame = frame.with_columns(
            frame[name].scatter(index, pl.Series(values, dtype=pl.String)).alias(name)
            for name, values in zip(columns, picked, strict=True)
        )
    return frame, width


def _quoted_cells(text: str, delimiter: str) -> list[str]:
    """Cells of a row with quotes; none if they make no sense."""
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _join_quoted(
    lines: list[str], numbers: NDArray[np.int64], layout: Layout, account: Account, is_last: bool
) -> tuple[list[str], NDArray[np.int64], int]:
    """Joins lines within a quoted cell. Rows keep the number of their first line; a quote left open drops its line.

    Lines are joined only if that makes a row of the table's width, so that a stray quote cannot swallow rows.
    """
    joined: list[str] = []
    kept: list[int] = []
    i = 0
    while i < len(lines):
        text = lines[i]
        stop = i + 1
        if text.count('"') % 2 and _is_open(text, layout.delimiter):
            most = min(len(lines), i + _JOINED_LINES)
            while stop < most and _is_open(text, layout.delimiter):
                text += "\n" + lines[stop]
                stop += 1
            is_open = _is_open(text, layout.delimiter)
            if is_open and not is_last and stop == len(lines) and len(lines) - i < _JOINED_LINES:
                return joined, numbers[kept], len(lines) - i
            width = len(_quoted_cells(text, layout.delimiter or " "))
            if is_open or not len(layout.columns) - layout.may_lack <= width <= len(layout.columns):
                account.rows_read += 1
                account.add("dropped", "a quote that never closes", [int(numbers[i])], repr(lines[i][:80]))
                i += 1
                continue
        joined.append(text)
        kept.append(i)
        i = stop
    return joined, numbers[kept], 0


def _is_open(text: str, delimiter: str | None) -> bool:
    """Whether a row ends within a quoted cell. A quote opens a cell only at its beginning."""
    is_open, is_start, i = False, True, 0
    while i < len(text):
        if is_open:
            if text[i] == '"' and text[i + 1 : i + 2] == '"':
                i += 1  # a doubled quote stands for one
            elif text[i] == '"':
                is_open = False
        elif text[i] == '"' and is_start:
            is_open = True
        else:
            is_start = text[i] == delimiter
        i += 1
    return is_open
