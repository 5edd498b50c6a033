"""What a trace reader returns: the jobs of a trace, and a report on what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NUM_SHOWN = 5


@dataclass(frozen=True)
class RowCount:
    """How many rows something happened to, and the first few row numbers (lines of the file, header = 1)."""

    count: int
    first_rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: ArrayLike) -> RowCount:
        """Counts an array of row numbers."""
        numbers = np.sort(np.asarray(rows, dtype=np.int64).ravel())
        return cls(int(numbers.size), tuple(int(row) for row in numbers[:_NUM_SHOWN]))

    def __str__(self) -> str:
        if not self.count:
            return "0"
        more = ", ..." if self.count > len(self.first_rows) else ""
        return f"{self.count} (rows {', '.join(map(str, self.first_rows))}{more})"


@dataclass(frozen=True)
class TraceTable:
    """Jobs of a trace in arrival order (equal arrivals in file order), one array entry per job.

    Attributes:
        format: `philly` or `pollux`.
        arrival_s: (N,) seconds since the first job.
        duration_s: (N,) run time in seconds at `num_gpus`, positive.
        num_gpus: (N,) int64 GPUs, at least 1.
        label: Text per job: the virtual cluster (`philly`), the application (`pollux`).
        source_row: (N,) int64 line of the file, header = 1.
    """

    format: str
    arrival_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    num_gpus: NDArray[np.int64]
    label: tuple[str, ...]
    source_row: NDArray[np.int64]

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return int(self.arrival_s.size)

    @property
    def offered_gpus(self) -> float:
        """Mean busy GPUs if no job had to wait: GPU seconds over the time between first and last arrival."""
        span = float(self.arrival_s[-1])
        return float((self.duration_s * self.num_gpus).sum()) / span if span > 0 else float("inf")


@dataclass(frozen=True)
class TraceReport:
    """What a reader did with the rows of a file; `str()` is a text for people.

    Attributes:
        path: The file.
        format: Its format.
        rows_read: Rows after the header, blank ones included.
        rows_kept: Rows that became jobs.
        dropped: Rows left out, by reason.
        noted: Kept rows that a user may want to know of: exact duplicates, arrivals before the previous row's, short
            jobs.
        origin: The first job's arrival as the file writes it.
        duration_rule: Where `TraceTable.duration_s` comes from.
    """

    path: str
    format: str
    rows_read: int
    rows_kept: int
    origin: str
    duration_rule: str
    dropped: Mapping[str, RowCount] = field(default_factory=dict)
    noted: Mapping[str, RowCount] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.path} ({self.format}): {self.rows_read} rows read, {self.rows_kept} kept"]
        lines += [f"  dropped, {reason}: {rows}" for reason, rows in self.dropped.items()]
        lines += [f"  kept, {reason}: {rows}" for reason, rows in self.noted.items()]
        lines += [f"  first arrival: {self.origin}", f"  durations: {self.duration_rule}"]
        return "\n".join(lines)
