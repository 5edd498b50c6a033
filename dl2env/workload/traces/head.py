"""The beginning of a file, as formats look at it to recognise their own."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dl2env.errors import TraceError
from dl2env.workload.traces.source import HEAD_BYTES, TraceFile

DELIMITERS = (",", "\t", ";", "|")
_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", None: "blanks"}


def delimiter_name(delimiter: str | None) -> str:
    """Word for a delimiter in messages."""
    return _NAMES.get(delimiter, repr(delimiter))


def decode(content: bytes) -> tuple[str, bool]:
    """(text, whether all of it is UTF-8); bytes that are not are read as Latin-1."""
    try:
        return content.decode("utf-8"), True
    except UnicodeDecodeError:
        return latin_1(content.decode("utf-8", "surrogateescape")), False


def latin_1(text: str) -> str:
    """Text whose undecodable bytes are surrogates (error handler `surrogateescape`), with these read as Latin-1."""
    return text.translate(_LATIN_1)


_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}


def split_lines(text: str) -> list[str]:
    """Lines of a text with line ends of any kind (LF, CR LF, CR), and of no other: cells may hold the rest."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass(frozen=True)
class Match:
    """How well a file fits a format.

    Attributes:
        score: 0: no; below 1: some of it fits, as a file with a missing column; 1 and more: yes, the more the surer.
        reason: What does not fit, for a message.
    """

    score: float
    reason: str = ""


NO_MATCH = Match(0.0)


@dataclass(frozen=True)
class Head:
    """The first lines of a text file.

    Attributes:
        file: The file.
    """

    file: TraceFile
    _cells: dict[str | None, list[list[str]]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def text(self) -> str:
        """The first 256 KiB as text, without byte-order mark; cut at the last line end; empty for Parquet.

        Raises:
            TraceError: The file is empty or no text.
        """
        if self.file.is_parquet():
            return ""
        content = self.file.head
        check_text(self.file.name, content)
        content = content.removeprefix(b"\xef\xbb\xbf")
        if len(self.file.head) == HEAD_BYTES:  # the last line may be cut
            content = content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1] or content
        return decode(content)[0]

    @cached_property
    def lines(self) -> list[str]:
        """Its lines that are not blank, without line ends."""
        return [line for line in split_lines(self.text) if line.strip()]

    @property
    def start(self) -> str:
        """The first characters that are not blank."""
        return self.text.lstrip()[:1]

    def cells(self, delimiter: str | None, *, quoted: bool = True) -> list[list[str]]:
        """Cells of the first hundred lines, stripped; None splits at blanks."""
        lines = self.lines[:100]
        if delimiter is None:
            return [line.split() for line in lines]
        if not quoted:
            return [[cell.strip() for cell in line.split(delimiter)] for line in lines]
        if delimiter not in self._cells:
            try:
                rows = list(csv.reader(lines, delimiter=delimiter))
            except csv.Error:
                rows = [line.split(delimiter) for line in lines]
            self._cells[delimiter] = [[cell.strip() for cell in row] for row in rows]
        return self._cells[delimiter]

    def header(self, delimiter: str) -> tuple[str, ...]:
        """Column names in lower case, if the first line is a header."""
        cells = self.cells(delimiter)
        return tuple(cell.lower() for cell in cells[0]) if cells else ()

    def match_header(self, required: Sequence[str], optional: Sequence[str] = ()) -> Match:
        """How well the header line fits a format whose columns are found by name, with any delimiter and order.

        Returns:
            Score 1 + 0.01 for each known column if all required ones are there, else the share that is.
        """
        best = NO_MATCH
        for delimiter in DELIMITERS:
            header = self.header(delimiter)
            missing = [name for name in required if name.lower() not in header]
            share = 1 - len(missing) / len(required)
            if not missing:
                known = sum(name.lower() in header for name in (*required, *optional))
                match = Match(1 + 0.01 * known)
            else:
                match = Match(0.9 * share, f"no column {', '.join(missing)}")
            if match.score > best.score:
                best = match
        return best

    def best_delimiter(self, columns: Sequence[str]) -> str:
        """The delimiter that finds most of these column names in the first line; a comma if none does."""
        names = {name.lower() for name in columns}
        return max(DELIMITERS, key=lambda delimiter: len(names.intersection(self.header(delimiter))))

    def describe(self) -> str:
        """The beginning of the first line, for messages."""
        if self.file.is_parquet():
            return "a Parquet file"
        line = self.lines[0] if self.lines else ""
        return f"it begins with {line[:100]!r}"


def check_text(name: str, content: bytes, first_line: int = 1) -> None:
    """Raises a `TraceError` if bytes at the start of a file, or from a line on, are no text."""
    if not content.strip() or content.strip() == b"\xef\xbb\xbf":
        raise TraceError(f"{name}, line {first_line}: the file is empty; give a trace with jobs")
    if content.startswith(b"version https://git-lfs"):
        raise TraceError(f"{name}, line {first_line}: a pointer of Git LFS, not the file itself; fetch it with git lfs")
    if content.lstrip()[:1] == b"<" and b"<html" in content[:2048].lower():
        raise TraceError(f"{name}, line {first_line}: a web page, not a trace; fetch the file itself")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TraceError(f"{name}, line {first_line}: UTF-16 text; save it as UTF-8")
    line = first_line + content.count(b"\n", 0, max(content.find(b"\0"), 0))
    if b"\0" in content:
        raise TraceError(f"{name}, line {line}: a binary file (or UTF-16 text); give a text file, or unpack it first")
    sample = content[:4096]
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample) + sample.count(b"\x7f")
    if control > 0.02 * len(sample):
        raise TraceError(f"{name}, line {first_line}: a binary file; give a text file, or unpack it first")
