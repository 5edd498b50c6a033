"""The account of a reading: what became of every row, as a text for people and a mapping for machines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import TraceError

_NUM_SHOWN = 5


class TraceWarning(UserWarning):
    """Rows of a trace are wrong or suspicious, and were left out or kept; the message counts them."""


BLANK = "blank line"


@dataclass(frozen=True)
class RowCount:
    """How many rows something happened to.

    Attributes:
        count: Number of rows.
        first_rows: Lines of the first few, first line of the file = 1.
        example: The offending cell of the first one, such as `duration='-5'`; may be empty.
        is_warning: The rows are wrong or suspicious, not merely out of scope.
        file: File or archive member that the lines count in; empty for the only one.
    """

    count: int
    first_rows: tuple[int, ...] = ()
    example: str = field(default="", compare=False)
    is_warning: bool = field(default=False, compare=False)
    file: str = field(default="", compare=False)

    @classmethod
    def of(cls, rows: ArrayLike) -> RowCount:
        """Counts an array of line numbers."""
        numbers = np.sort(np.asarray(rows, dtype=np.int64).ravel())
        return cls(int(numbers.size), tuple(int(row) for row in numbers[:_NUM_SHOWN]))

    def __str__(self) -> str:
        if not self.count:
            return "0"
        more = ", ..." if self.count > len(self.first_rows) else ""
        lines = f" (line{'s' if self.count > 1 else ''} {', '.join(map(str, self.first_rows))}{more})"
        return f"{self.count}{lines if self.first_rows else ''}{f', first: {self.example}' if self.example else ''}"


KINDS = ("dropped", "merged", "clamped", "warned", "noted")


class Account:
    """Collects what happens to the rows of one file while it is read.

    Args:
        file: Name of the file or member, for messages.
        prefix: Put before each reason when a format reads several files, such as "task table: ".
    """

    def __init__(self, file: str, prefix: str = "") -> None:
        self.file = file
        self.prefix = prefix
        self.rows_read = 0
        self._counts: dict[str, dict[str, RowCount]] = {kind: {} for kind in KINDS}

    def add(
        self, kind: str, reason: str, lines: ArrayLike, example: str = "", *, is_warning: bool | None = None
    ) -> None:
        """Counts rows.

        Args:
            kind: One of `KINDS`. `dropped` rows are left out; `merged` ones are part of another row's job; `clamped`,
                `warned` and `noted` ones are kept.
            reason: Why, in a few words; rows of the same kind and reason add up.
            lines: Their line numbers.
            example: Offending cell of the first one.
            is_warning: Whether strict reading fails; by default all but `noted` and `merged` ones.
        """
        numbers: NDArray[np.int64] = np.asarray(lines, dtype=np.int64).ravel()
        if not numbers.size:
            return
        if is_warning is None:
            is_warning = kind in ("dropped", "clamped", "warned")
        key = f"{self.prefix}{reason}"
        old = self._counts[kind].get(key, RowCount(0))
        new = RowCount.of(numbers)
        first = tuple(sorted((*old.first_rows, *new.first_rows))[:_NUM_SHOWN])
        self._counts[kind][key] = RowCount(old.count + new.count, first, old.example or example, is_warning, self.file)

    def of_kind(self, kind: str) -> dict[str, RowCount]:
        """Counts of a kind by reason, in the order in which they came up."""
        return dict(self._counts[kind])

    @property
    def rows_left(self) -> int:
        """Rows neither dropped nor merged."""
        gone = (count.count for kind in ("dropped", "merged") for count in self._counts[kind].values())
        return self.rows_read - sum(gone)


@dataclass(frozen=True)
class ReadReport:
    """What a reader did with the rows of its files; `str()` is a text for people.

    `rows_read = rows_kept + rows_dropped + rows_merged` holds for every report.

    Attributes:
        path: The file, folder or archive.
        format: Its format.
        rows_read: Rows after the header, blank ones included, of all files read.
        rows_kept: Rows that became jobs, or what else the format holds (nodes).
        dropped: Rows left out, by reason.
        merged: Rows that are part of a job that another row stands for (tasks, attempts), by reason.
        clamped: Kept rows with a value that was changed, by reason.
        warned: Kept rows that look wrong, by reason.
        noted: Kept rows that a user may want to know of: short jobs, censored ones, arrivals before the row above.
        layout: How the text was read: compression, encoding, delimiter, header.
        origin: The first job's arrival as the file writes it.
        duration_rule: Where `JobTable.duration_s` comes from.
    """

    path: str
    format: str
    rows_read: int
    rows_kept: int
    dropped: Mapping[str, RowCount] = field(default_factory=dict)
    merged: Mapping[str, RowCount] = field(default_factory=dict)
    clamped: Mapping[str, RowCount] = field(default_factory=dict)
    warned: Mapping[str, RowCount] = field(default_factory=dict)
    noted: Mapping[str, RowCount] = field(default_factory=dict)
    layout: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    duration_rule: str = ""

    def __post_init__(self) -> None:
        if self.rows_read != self.rows_kept + self.rows_dropped + self.rows_merged:
            raise AssertionError(
                f"{self.path}: {self.rows_read} rows read, but {self.rows_kept} kept + {self.rows_dropped} dropped + "
                f"{self.rows_merged} merged: the {self.format} reader lost count"
            )

    @classmethod
    def build(
        cls,
        path: str,
        format: str,
        accounts: Sequence[Account],
        rows_kept: int,
        layout: Mapping[str, str],
        **texts: Any,
    ) -> ReadReport:
        """Joins the accounts of all files read."""
        counts: dict[str, Any] = {kind: {} for kind in KINDS}
        for account in accounts:
            for kind in KINDS:
                counts[kind].update(account.of_kind(kind))
        rows_read = sum(account.rows_read for account in accounts)
        return cls(path, format, rows_read, rows_kept, **counts, layout=layout, **texts)

    @property
    def rows_dropped(self) -> int:
        """Rows left out for any reason."""
        return sum(rows.count for rows in self.dropped.values())

    @property
    def rows_merged(self) -> int:
        """Rows that belong to another row's job."""
        return sum(rows.count for rows in self.merged.values())

    @property
    def warnings(self) -> dict[str, RowCount]:
        """Everything that strict reading does not accept, by kind and reason."""
        return {
            f"{kind}: {reason}": rows
            for kind in KINDS
            for reason, rows in getattr(self, kind).items()
            if rows.is_warning
        }

    def check_strict(self) -> None:
        """Raises a `TraceError` about the first warning, if there is one."""
        for reason, rows in self.warnings.items():
            line = f", line {rows.first_rows[0]}" if rows.first_rows else ""
            example = f" ({rows.example})" if rows.example else ""
            more = len(self.warnings) - 1
            raise TraceError(
                f"{rows.file or self.path}{line}: {reason}{example}, {rows.count} such rows"
                f"{f', and {more} other kinds of warnings' if more else ''}; mend the file or read it without strict"
            )

    def warn(self) -> None:
        """Issues one `TraceWarning` about everything in `warnings`, if there is something."""
        found = "; ".join(f"{reason}: {rows}" for reason, rows in self.warnings.items())
        if found:
            warnings.warn(f"{self.path}: {self.rows_kept} of {self.rows_read} rows are jobs; {found}", TraceWarning, 3)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        counts = {
            kind: {
                reason: {
                    "count": rows.count,
                    "first_lines": list(rows.first_rows),
                    "example": rows.example,
                    "is_warning": rows.is_warning,
                    "file": rows.file,
                }
                for reason, rows in getattr(self, kind).items()
            }
            for kind in KINDS
        }
        plain = ("path", "format", "rows_read", "rows_kept", "rows_dropped", "rows_merged", "origin", "duration_rule")
        return {**{key: getattr(self, key) for key in plain}, **counts, "layout": dict(self.layout)}

    def __str__(self) -> str:
        lines = [
            f"{self.path} ({self.format}): {self.rows_read} rows read = {self.rows_kept} kept + "
            f"{self.rows_dropped} dropped + {self.rows_merged} merged"
        ]
        for kind in KINDS:
            for reason, rows in getattr(self, kind).items():
                word = "kept" if kind in ("warned", "noted") else kind
                lines.append(f"  {'! ' if rows.is_warning else ''}{word}, {reason}: {rows}")
        lines += [f"  {key}: {text}" for key, text in self.layout.items()]
        if self.origin:
            lines.append(f"  first arrival: {self.origin}")
        if self.duration_rule:
            lines.append(f"  durations: {self.duration_rule}")
        return "\n".join(lines)
