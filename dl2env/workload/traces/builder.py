"""From checked rows to a job table: joins blocks, sorts by arrival, counts what is odd, closes the account."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import TraceError
from dl2env.workload.traces.cells import LARGEST_COUNT, LARGEST_TIME_S, Rows
from dl2env.workload.traces.formats import ReadOptions
from dl2env.workload.traces.report import Account, ReadReport
from dl2env.workload.traces.rows import Layout, read_rows
from dl2env.workload.traces.source import TraceFile
from dl2env.workload.traces.table import JobTable, TextColumn

SHORT_S = 60.0
"""Jobs that run for less are counted in the report."""

_TEXT_NAMES = ("job_id", "status", "user", "group", "label", "gpu_kind")
_FLOAT_DEFAULTS = {"num_cpus": np.nan, "memory_gib": np.nan}


class TableBuilder:
    """Collects the jobs of a format.

    A reader calls `rows` (or makes `Rows` of its own), reads and checks columns, and hands them to `add`; at the end
    `finish` returns table and report. Rows that it dropped are left out by `add`.

    Args:
        format: Name of the format.
        path: What the user named, for the report.
        options: How to read.
    """

    def __init__(self, format: str, path: str, options: ReadOptions) -> None:
        self.format = format
        self.path = path
        self.options = options
        self.accounts: list[Account] = []
        self.layout: dict[str, str] = {}
        self._files: list[str] = []
        self._blocks: dict[str, list[NDArray[Any]]] = {}
        self._text_codes: dict[str, dict[str, int]] = {name: {} for name in _TEXT_NAMES}
        self._extra_names: tuple[str, ...] | None = None
        self._has_zone: bool | None = None
        self._first: tuple[float, str] = (np.inf, "")
        self._last_time = -np.inf
        self._hashes: list[NDArray[Any]] = []

    def account(self, file: TraceFile, prefix: str = "") -> Account:
        """Opens the account of a file; jobs added from now on come from it."""
        account = Account(file.name, prefix)
        self.accounts.append(account)
        self._files.append(file.name)
        if file.kind != "plain":
            self.layout[f"{prefix}packing"] = file.kind
        return account

    def rows(self, file: TraceFile, layout: Layout, prefix: str = "") -> Iterator[Rows]:
        """Rows of a text file, block by block, with an account of their own."""
        account = self.account(file, prefix)
        self.layout[f"{prefix}text"] = layout.describe()
        return read_rows(file, layout, account)

    def stamps(self, rows: Rows, column: str, *, if_missing: float | None = None) -> NDArray[np.float64]:
        """`Rows.stamp`, where rows whose time has a zone and the file's first does not, or the reverse, are dropped."""
        values, has_zone = rows.stamp(column, if_missing=if_missing)
        present = ~rows.is_dropped & (rows.series(column) != "").to_numpy()
        if self._has_zone is None and present.any():
            self._has_zone = bool(has_zone[np.argmax(present)])
            self.layout["times"] = "with a zone, read as UTC" if self._has_zone else "local, without a zone"
        other = present & (has_zone != self._has_zone)
        rows.drop(other, f"{column} {'lacks' if self._has_zone else 'has'} a time zone, unlike the rows above", column)
        return values

    def add(
        self,
        rows: Rows,
        time_s: NDArray[np.float64],
        duration_s: NDArray[np.float64],
        num_gpus: NDArray[np.float64],
        *,
        time_column: str = "",
        extra: Mapping[str, NDArray[np.float64]] | None = None,
        **columns: Any,
    ) -> None:
        """Adds the jobs of a block.

        Args:
            rows: The block; its dropped rows are left out.
            time_s: (n,) arrivals in seconds from any origin, the same for all blocks.
            duration_s: (n,) seconds run.
            num_gpus: (n,) GPUs, fractions allowed.
            time_column: Column of the arrival as written, for the report.
            extra: (n,) further numeric columns, the same names in every block.
            **columns: Other columns of `JobTable`: arrays, or `TextColumn` for texts.
        """
        rows.drop(~np.isfinite(time_s) | (np.abs(time_s) > LARGEST_TIME_S), "arrival time is impossible", time_column)
        rows.drop(~(duration_s > 0) | (duration_s > LARGEST_TIME_S), "duration is impossible")
        rows.drop(~(num_gpus >= 0) | (num_gpus > LARGEST_COUNT), "number of GPUs is impossible")
        keep = rows.close()
        n = int(keep.sum())
        if not n:
            return
        times = time_s[keep]
        earliest = int(np.argmin(times))
        if times[earliest] < self._first[0]:
            row = int(np.flatnonzero(keep)[earliest])
            self._first = (float(times[earliest]), rows.cell(row, time_column) if time_column in rows else "")
        self._note_order(rows, times, keep)
        self._put("time_s", times)
        self._put("duration_s", duration_s[keep])
        self._put("num_gpus", num_gpus[keep])
        self._put("source_row", rows.lines[keep])
        self._put("source_file", np.full(n, self.accounts.index(rows.account), dtype=np.int64))
        self._hashes.append(np.zeros(0) if rows.row_hash is None else rows.row_hash[keep])
        for name in _TEXT_NAMES:
            self._put_text(name, columns.pop(name, None), keep)
        for name, default in _FLOAT_DEFAULTS.items():
            values = columns.pop(name, None)
            self._put(name, np.full(n, default) if values is None else np.asarray(values, dtype=np.float64)[keep])
        for name in ("num_workers", "num_ps"):
            values = columns.pop(name, None)
            self._put(name, np.zeros(n, np.int64) if values is None else np.asarray(values)[keep].astype(np.int64))
        censored = columns.pop("is_censored", None)
        self._put("is_censored", np.zeros(n, dtype=bool) if censored is None else np.asarray(censored)[keep])
        if columns:
            raise TypeError(f"unknown columns {', '.join(columns)}")
        names = tuple(extra or ())
        if self._extra_names not in (None, names):
            raise TypeError(f"extra columns {names} differ from those of earlier blocks")
        self._extra_names = names
        for name in names:
            assert extra is not None
            self._put(f"extra.{name}", np.asarray(extra[name], dtype=np.float64)[keep])

    def _put(self, name: str, values: NDArray[Any]) -> None:
        self._blocks.setdefault(name, []).append(values)

    def _put_text(self, name: str, column: TextColumn | None, keep: NDArray[np.bool_]) -> None:
        if column is None:
            self._put(name, np.full(int(keep.sum()), -1, dtype=np.int32))
            return
        codes = self._text_codes[name]
        used = column.codes[keep]
        is_used = np.zeros(len(column.names) + 1, dtype=bool)
        is_used[used] = True  # -1, unknown, is the last place
        is_used[-1] = False
        lookup = np.full(len(column.names) + 1, -1, dtype=np.int32)
        if not codes:
            lookup[is_used] = np.arange(is_used.sum(), dtype=np.int32)
            codes.update(zip(itertools.compress(column.names, is_used), itertools.count(), strict=False))
        else:
            for code in np.flatnonzero(is_used).tolist():
                lookup[code] = codes.setdefault(column.names[code], len(codes))
        self._put(name, lookup[used])

    def _note_order(self, rows: Rows, times: NDArray[np.float64], keep: NDArray[np.bool_]) -> None:
        is_before = np.diff(times, prepend=self._last_time) < 0
        self._last_time = float(times[-1])
        rows.account.add("noted", "arrives before the row above", rows.lines[keep][is_before])

    def finish(
        self, duration_rule: str = "recorded run times", *, time_origin: str = ""
    ) -> tuple[JobTable, ReadReport]:
        """The table and the report.

        Args:
            duration_rule: Where durations come from.
            time_origin: The first arrival as text; by default its cell.

        Raises:
            TraceError: No job is left, or there are warnings and reading is strict.
        """
        if "time_s" not in self._blocks:
            self._fail_empty()
        columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in self._blocks.items()}
        order = np.argsort(columns["time_s"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        texts: dict[str, Any] = {
            name: TextColumn(columns.pop(name), tuple(self._text_codes[name])) for name in _TEXT_NAMES
        }
        time_s = columns.pop("time_s")
        extra = {name.removeprefix("extra."): columns.pop(name) for name in list(columns) if name.startswith("extra.")}
        has_ids = bool(texts["job_id"].names)
        hashes = np.concatenate(self._hashes)
        if hashes.size == time_s.size:
            self._count_duplicates(hashes[order], columns, texts["job_id"], has_ids)
        table = JobTable(
            format=self.format,
            arrival_s=time_s - time_s[0],
            files=tuple(self._files) or ("",),
            origin_s=float(time_s[0]),
            extra=extra,
            steps=({"step": "read", "format": self.format, "jobs": int(time_s.size), "origin_s": float(time_s[0])},),
            **columns,
            **texts,
        )
        self._note(table, "noted", f"runs for less than {SHORT_S:g} s", table.duration_s < SHORT_S)
        self._note(table, "noted", "censored: the recording stopped before the job did", table.is_censored)
        report = ReadReport.build(
            self.path,
            self.format,
            self.accounts,
            table.num_jobs,
            self.layout,
            origin=time_origin or self._first[1],
            duration_rule=duration_rule,
        )
        if self.options.strict:
            report.check_strict()
        return table, report

    def _note(self, table: JobTable, kind: str, reason: str, mask: NDArray[np.bool_]) -> None:
        self._count(kind, reason, table.source_file[mask], table.source_row[mask])

    def _count(self, kind: str, reason: str, files: ArrayLike, lines: NDArray[np.int64]) -> None:
        by_file = np.asarray(files)
        for file in np.unique(by_file).tolist():
            self.accounts[file].add(kind, reason, lines[by_file == file])

    def _count_duplicates(
        self, hashes: NDArray[Any], columns: Mapping[str, NDArray[Any]], job_id: TextColumn, has_ids: bool
    ) -> None:
        """Counts kept rows that repeat another one, or another one's identifier."""
        line_order = np.lexsort((columns["source_row"], columns["source_file"]))
        repeats = line_order[_repeats(hashes[line_order])]
        files, lines = columns["source_file"], columns["source_row"]
        self._count("warned" if has_ids else "noted", "repeats another row exactly", files[repeats], lines[repeats])
        if has_ids:
            codes = job_id.codes[line_order]
            again = line_order[_repeats(codes) & (codes >= 0)]
            again = np.setdiff1d(again, repeats)
            self._count("warned", "has the job id of another row", files[again], lines[again])

    def _fail_empty(self) -> None:
        reasons = [
            (account.file, reason, rows)
            for account in self.accounts
            for reason, rows in account.of_kind("dropped").items()
        ]
        wrong = [entry for entry in reasons if entry[2].is_warning] or reasons
        if not wrong:
            raise TraceError(f"{self.path}, line 1: no jobs, only a header; choose a trace with at least one row")
        file, reason, rows = max(wrong, key=lambda entry: entry[2].count)
        line = rows.first_rows[0] if rows.first_rows else 1
        example = f" ({rows.example})" if rows.example else ""
        raise TraceError(f"{file}, line {line}: {reason}{example}; no row is left as a job of the {self.format} format")


def _repeats(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,) whether a value appeared before."""
    _, first = np.unique(values, return_index=True)
    mask = np.ones(values.size, dtype=bool)
    mask[first] = False
    return mask
