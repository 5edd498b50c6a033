"""Checked columns of a block of rows: every bad cell takes its row out, with a reason and a line number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.workload.traces.report import Account
from dl2env.workload.traces.table import TextColumn

_WORDS = ("na", "n/a", "nan", "NaN", "none", "null", "nat", "NaT")
MISSING = frozenset(("", *_WORDS, *(word.upper() for word in _WORDS), *(word.capitalize() for word in _WORDS)))
"""Cells that say nothing."""

LARGEST_TIME_S = 1e11
"""Times and durations above (3,000 years) are impossible."""

LARGEST_COUNT = 1e6

_STAMP = r"^\s*(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2})(?::(\d{2}(?:\.\d+)?))?)?\s*(Z|z|UTC|GMT|[+-]\d{2}:?\d{2})?\s*$"


class Rows:
    """A block of rows while its columns are read and checked.

    Every method takes the file's column by name. A row can be dropped once only: the first reason counts.

    Args:
        frame: Text columns, n rows.
        lines: (n,) line numbers.
        account: Where the rows are counted, `rows_read` included already.
        row_hash: (n,) hashes of whole rows, to find those that repeat another; None: rows cannot be compared.
    """

    def __init__(
        self, frame: pl.DataFrame, lines: NDArray[np.int64], account: Account, row_hash: NDArray[Any] | None = None
    ) -> None:
        self.frame = frame
        self.lines = lines
        self.account = account
        self.row_hash = row_hash
        self.is_dropped: NDArray[np.bool_] = np.zeros(len(lines), dtype=bool)
        self._remarks: list[tuple[str, str, NDArray[np.bool_], str]] = []
        self._series: dict[str, pl.Series] = {}

    def __len__(self) -> int:
        return int(self.lines.size)

    def __contains__(self, column: str) -> bool:
        return column in self.frame.columns

    @classmethod
    def of_columns(cls, columns: dict[str, Sequence[Any]], lines: Sequence[int], account: Account) -> Rows:
        """Rows of a format that is not a text table, such as JSON records; counts them as read.

        Args:
            columns: Values by name; they are turned into text, None into an empty cell.
            lines: A number for each row: its line, or its place in the list from 1.
            account: Where the rows are counted.
        """
        texts = {
            name: pl.Series(name, ["" if value is None else str(value) for value in values], dtype=pl.String)
            for name, values in columns.items()
        }
        frame = pl.DataFrame(texts)
        account.rows_read += len(lines)
        numbers = np.asarray(lines, dtype=np.int64)
        hashes = frame.hash_rows().to_numpy() if len(numbers) else None
        return cls(frame, numbers, account, hashes)

    # What becomes of rows.

    def drop(self, mask: NDArray[np.bool_], reason: str, column: str = "", *, is_warning: bool = True) -> None:
        """Leaves rows out that are not left out yet.

        Args:
            mask: (n,) which ones.
            reason: For the report.
            column: Whose cell is the example.
            is_warning: The rows are wrong, not merely out of scope.
        """
        mask = mask & ~self.is_dropped
        if mask.any():
            self.account.add("dropped", reason, self.lines[mask], self._example(mask, column), is_warning=is_warning)
            self.is_dropped |= mask

    def remark(self, kind: str, mask: NDArray[np.bool_], reason: str, column: str = "") -> None:
        """Counts rows as `clamped`, `warned`, `noted` or `merged`; those dropped for another reason do not count."""
        if mask.any():
            self._remarks.append((kind, reason, mask, column))

    def close(self) -> NDArray[np.bool_]:
        """Ends the checks of this block; returns the mask of rows that are kept."""
        for kind, reason, mask, column in self._remarks:
            kept = mask & ~self.is_dropped
            if kept.any():
                self.account.add(kind, reason, self.lines[kept], self._example(kept, column))
        self._remarks.clear()
        return ~self.is_dropped

    def _example(self, mask: NDArray[np.bool_], column: str) -> str:
        if not column or column not in self.frame.columns:
            return ""
        return f"{column}={(self.frame[column][int(np.argmax(mask))] or '')[:60]!r}"

    # Columns.

    def cell(self, row: int, column: str) -> str:
        """One cell as the file writes it."""
        return str(self.frame[column][row] or "")

    def series(self, column: str) -> pl.Series:
        """A text column, stripped; missing cells (`MISSING`) are empty."""
        if column not in self._series:
            text = pl.col(column).str.strip_chars().fill_null("")
            cleaned = pl.when(text.is_in(list(MISSING))).then(pl.lit("")).otherwise(text).alias(column)
            self._series[column] = self.frame.select(cleaned)[column]
        return self._series[column]

    def text(self, column: str, *, is_required: bool = False) -> TextColumn:
        """A text column; rows with a missing cell are dropped if it is required. An absent column is unknown."""
        if column not in self.frame.columns and not is_required:
            return TextColumn.unknown(len(self))
        return encode(self.required(column) if is_required else self.series(column))

    def required(self, column: str) -> pl.Series:
        """A text column as `series` gives it; rows with a missing cell are dropped."""
        values = self.series(column)
        self.drop((values == "").to_numpy(), f"{column} is missing", column)
        return values

    def number(
        self,
        column: str,
        *,
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
        is_whole: bool = False,
        if_missing: float | None = None,
        is_required: bool = True,
    ) -> NDArray[np.float64]:
        """A column of finite numbers; rows with another cell are dropped.

        Args:
            column: Its name.
            at_least: Smallest legal value.
            above: Values must be greater.
            at_most: Largest legal value.
            is_whole: Fractions are wrong.
            if_missing: Value of missing cells (`MISSING`); None: their rows are dropped.
            is_required: If not, an absent column gives `if_missing` (NaN if that is None) everywhere.

        Returns:
            (n,) values; those of dropped rows mean nothing.
        """
        if column not in self.frame.columns and not is_required:
            return np.full(len(self), np.nan if if_missing is None else if_missing)
        values, is_missing, wrong = self._numbers(column, at_least, above, at_most, is_whole)
        if if_missing is None:
            self.drop(is_missing, f"{column} is missing", column)
        for mask, reason in wrong:
            self.drop(mask, f"{column} {reason}", column)
        if if_missing is not None:
            values = np.where(is_missing, if_missing, values)
        return values

    def extra(
        self,
        column: str,
        *,
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
        if_missing: float = np.nan,
    ) -> NDArray[np.float64]:
        """A column of finite numbers that no job depends on: wrong cells count as missing, which the report says.

        Args:
            column: Its name; the file may lack it.
            at_least: Smallest legal value.
            above: Values must be greater.
            at_most: Largest legal value.
            if_missing: Value of missing and wrong cells.

        Returns:
            (n,) values.
        """
        if column not in self.frame.columns:
            return np.full(len(self), if_missing)
        values, is_unknown, wrong = self._numbers(column, at_least, above, at_most, False)
        for mask, reason in wrong:
            self.remark("clamped", mask & ~is_unknown, f"{column} {reason}, left unknown", column)
            is_unknown = is_unknown | mask
        return np.where(is_unknown, if_missing, values)

    def _numbers(
        self, column: str, at_least: float | None, above: float | None, at_most: float | None, is_whole: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[tuple[NDArray[np.bool_], str]]]:
        """((n,) values, (n,) missing cells, what is wrong: (n,) mask and reason, the first that holds counts)."""
        text = self.series(column)
        is_missing = (text == "").to_numpy()
        values = text.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)
        wrong = [
            (np.isinf(values), "is not finite"),
            (np.isnan(values) & ~is_missing, "is not a number"),
        ]
        with np.errstate(invalid="ignore"):
            if at_least is not None:
                wrong += [(values < at_least, "is negative" if at_least == 0 else f"is below {at_least:g}")]
            if above is not None:
                wrong += [(values <= above, "is not positive" if above == 0 else f"is not above {above:g}")]
            if at_most is not None:
                wrong += [(values > at_most, f"is above {at_most:g}")]
            if is_whole:
                wrong += [((values != np.floor(values)) & np.isfinite(values), "is not a whole number")]
        return values, is_missing, wrong

    def duration(self, column: str, **options: Any) -> NDArray[np.float64]:
        """Seconds, positive unless `options` (of `number`) say otherwise."""
        if "at_least" not in options:
            options.setdefault("above", 0.0)
        return self.number(column, at_most=LARGEST_TIME_S, **options)

    def count(self, column: str, *, at_least: float = 0, **options: Any) -> NDArray[np.float64]:
        """A number of GPUs, tasks or cores, up to a million."""
        return self.number(column, at_least=at_least, at_most=LARGEST_COUNT, **options)

    def stamp(self, column: str, *, if_missing: float | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Times like `2017-10-09 07:01:55`, `2017-10-09T07:01:55.5Z` or `2023-05-17 07:01:55+08:00` as seconds.

        Args:
            column: Its name.
            if_missing: Value of missing cells; None: their rows are dropped.

        Returns:
            (n,) seconds since 1970-01-01 00:00, of a time without zone on its own clock, else in UTC; and (n,) whether
            the cell has a zone. `TableBuilder` wants all rows of a file to be of one kind.
        """
        text = self.series(column)
        is_missing = (text == "").to_numpy()
        groups = text.str.extract_groups(_STAMP).struct.unnest()
        date, minutes, second, zone = (groups[name] for name in groups.columns)
        days = date.str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Float64)
        minute_of_day = _clock(minutes)
        seconds = second.cast(pl.Float64, strict=False).fill_null(0.0)
        has_zone = zone.is_not_null().to_numpy()
        offset = _zone_offset(zone)
        values = (days * 86400.0 + minute_of_day * 60.0 + seconds).fill_null(np.nan).to_numpy().astype(np.float64)
        values = values - offset
        values[(seconds.to_numpy() >= 61.0) | (np.abs(offset) > 86400)] = np.nan
        if if_missing is None:
            self.drop(is_missing, f"{column} is missing", column)
        else:
            values = np.where(is_missing, if_missing, values)
        self.drop(np.isnan(values) & ~is_missing, f"{column} is not a time like 2017-10-09 07:01:55", column)
        return values, has_zone


def _clock(minutes: pl.Series) -> pl.Series:
    """Minutes since midnight of texts like 07:01; 0 where there is none, null where impossible."""
    hour = minutes.str.slice(0, 2).cast(pl.Float64, strict=False)
    minute = minutes.str.slice(3, 2).cast(pl.Float64, strict=False)
    frame = pl.DataFrame({"h": hour, "m": minute})
    is_wrong = (pl.col("h") > 23) | (pl.col("m") > 59)
    total = pl.when(is_wrong).then(None).otherwise((pl.col("h") * 60 + pl.col("m")).fill_null(0.0))
    return frame.select(total.alias("t"))["t"]


def _zone_offset(zone: pl.Series) -> NDArray[np.float64]:
    """Seconds east of UTC of texts like Z or +08:00."""
    digits = zone.str.replace_all(":", "", literal=True)
    hours = digits.str.slice(1, 2).cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    minutes = digits.str.slice(3, 2).cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    sign = np.where(digits.str.starts_with("-").fill_null(False).to_numpy(), -1.0, 1.0)
    return np.asarray(sign * (hours * 3600.0 + minutes * 60.0))


def encode(values: pl.Series) -> TextColumn:
    """Texts as codes in the order in which they first appear; empty ones and nulls are unknown."""
    names = values.filter(values.is_not_null() & (values != "")).unique(maintain_order=True)
    if not len(names):
        return TextColumn.unknown(len(values))
    lookup = pl.DataFrame({"text": names, "code": np.arange(len(names), dtype=np.int32)})
    codes = values.alias("text").to_frame().join(lookup, on="text", how="left", maintain_order="left")["code"]
    return TextColumn(codes.fill_null(-1).to_numpy().astype(np.int32), tuple(names.to_list()))
