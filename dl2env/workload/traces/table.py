"""The canonical job table: what every reader of recorded workloads returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import TraceError

STATUSES = ("completed", "failed", "killed", "running", "waiting", "unknown")
"""How a job ended, in the table's words: `killed` by its user or the system, `running` when the recording stopped."""


@dataclass(frozen=True)
class TextColumn:
    """Texts of N jobs, each distinct text stored once.

    Attributes:
        codes: (N,) int32 index into `names`; -1 where the trace says nothing.
        names: The distinct texts.
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> TextColumn:
        """Encodes texts; None and empty ones count as unknown."""
        codes: dict[str, int] = {}
        encoded = [codes.setdefault(text, len(codes)) if text else -1 for text in texts]
        return cls(np.array(encoded, dtype=np.int32), tuple(codes))

    @classmethod
    def unknown(cls, num_jobs: int) -> TextColumn:
        """A column that says nothing."""
        return cls(np.full(num_jobs, -1, dtype=np.int32), ())

    def take(self, index: ArrayLike) -> TextColumn:
        """The column of some jobs, by index or mask."""
        return TextColumn(self.codes[np.asarray(index)], self.names)

    def is_name(self, name: str) -> NDArray[np.bool_]:
        """(N,) whether a job has this text."""
        return np.asarray(self.codes == (self.names.index(name) if name in self.names else -2))

    def counts(self) -> dict[str, int]:
        """Jobs by text, most frequent first; jobs without a text under the empty one."""
        counts = np.bincount(self.codes + 1, minlength=len(self.names) + 1).tolist()
        named = {name: count for name, count in zip(("", *self.names), counts, strict=True) if count}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def tolist(self) -> list[str]:
        """One text per job, empty where there is none."""
        names = (*self.names, "")
        return [names[code] for code in self.codes.tolist()]

    def __len__(self) -> int:
        return int(self.codes.size)

    def __getitem__(self, job: int) -> str:
        code = int(self.codes[job])
        return self.names[code] if code >= 0 else ""


_FLOATS = ("arrival_s", "duration_s", "num_gpus", "num_cpus", "memory_gib")
_COUNTS = ("num_workers", "num_ps", "source_row", "source_file")
_TEXTS = ("job_id", "status", "user", "group", "label", "gpu_kind")


@dataclass(frozen=True)
class JobTable:
    """Jobs of a trace in arrival order (equal arrivals in file order), one array entry per job.

    A trace that says nothing about a column leaves NaN, 0 tasks or an empty text there; `num_gpus` is always known.

    Attributes:
        format: Name of the trace format.
        arrival_s: (N,) seconds since the first job of the file; not below 0, not decreasing.
        duration_s: (N,) seconds that the job ran, as recorded; positive.
        num_gpus: (N,) GPUs in use while it ran; 0.5 is half a GPU, 0 a job without GPU.
        num_cpus: (N,) CPU cores.
        memory_gib: (N,) host memory.
        num_workers, num_ps: (N,) tasks by role; 0 where roles are not recorded.
        is_censored: (N,) the recording stopped before the job did: it ran for at least `duration_s`.
        job_id: Identifier in the trace.
        status: One of `STATUSES`.
        user, group: Who submitted it; `group` is a virtual cluster, organisation or department.
        label: What the job trains, in the trace's words: model, application, workload tag.
        gpu_kind: GPU model it asked for or ran on, in the trace's words.
        source_row: (N,) int64 line of the source file, first line = 1.
        source_file: (N,) int64 index into `files`.
        files: Files or archive members that the jobs come from.
        origin_s: Time of the first job on the trace's own clock.
        extra: Further numeric columns of the format, (N,) each, such as `iterations` or `deadline_s` (relative).
        steps: What was done to the table, in order, as plain values; part of a workload's provenance.
    """

    format: str
    arrival_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    num_gpus: NDArray[np.float64]
    num_cpus: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    num_workers: NDArray[np.int64]
    num_ps: NDArray[np.int64]
    is_censored: NDArray[np.bool_]
    job_id: TextColumn
    status: TextColumn
    user: TextColumn
    group: TextColumn
    label: TextColumn
    gpu_kind: TextColumn
    source_row: NDArray[np.int64]
    source_file: NDArray[np.int64]
    files: tuple[str, ...] = ("",)
    origin_s: float = 0.0
    extra: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    steps: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        n = self.arrival_s.size
        for name in (*_FLOATS, *_COUNTS, "is_censored"):
            if getattr(self, name).shape != (n,):
                raise TraceError(f"job table: {name} must be a vector with one entry per job ({n})")
        for name in _TEXTS:
            if len(getattr(self, name)) != n:
                raise TraceError(f"job table: {name} must have one entry per job ({n})")
        for name, values in self.extra.items():
            if values.shape != (n,):
                raise TraceError(f"job table: extra column {name} must have one entry per job ({n})")

    @classmethod
    def of(
        cls,
        arrival_s: ArrayLike,
        duration_s: ArrayLike,
        num_gpus: ArrayLike,
        *,
        format: str = "dl2env",
        source_row: ArrayLike | None = None,
        texts: Mapping[str, TextColumn | Sequence[str | None]] | None = None,
        **columns: Any,
    ) -> JobTable:
        """A table of jobs that are sorted by arrival, with "unknown" in every column that is not given.

        Args:
            arrival_s: (N,) seconds.
            duration_s: (N,) seconds.
            num_gpus: (N,) GPUs.
            format: Name of the format.
            source_row: (N,) lines; by default 1 to N.
            texts: Text columns by name.
            **columns: Other attributes of the class.
        """
        arrival = np.asarray(arrival_s, dtype=np.float64)
        n = arrival.size
        values: dict[str, Any] = {
            "num_cpus": np.full(n, np.nan),
            "memory_gib": np.full(n, np.nan),
            "num_workers": np.zeros(n, dtype=np.int64),
            "num_ps": np.zeros(n, dtype=np.int64),
            "is_censored": np.zeros(n, dtype=bool),
            "source_file": np.zeros(n, dtype=np.int64),
            **{name: TextColumn.unknown(n) for name in _TEXTS},
        }
        for name, column in (texts or {}).items():
            values[name] = column if isinstance(column, TextColumn) else TextColumn.of(column)
        return cls(
            format=format,
            arrival_s=arrival,
            duration_s=np.asarray(duration_s, dtype=np.float64),
            num_gpus=np.asarray(num_gpus, dtype=np.float64),
            source_row=np.arange(1, n + 1) if source_row is None else np.asarray(source_row, dtype=np.int64),
            **{**values, **columns},
        )

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return int(self.arrival_s.size)

    @property
    def offered_gpus(self) -> float:
        """Mean busy GPUs if no job had to wait: GPU seconds over the time between first and last arrival."""
        span = float(self.arrival_s[-1] - self.arrival_s[0]) if self.num_jobs else 0.0
        return float((self.duration_s * self.num_gpus).sum()) / span if span > 0 else float("inf")

    def take(self, index: ArrayLike, step: Mapping[str, Any] | None = None) -> JobTable:
        """The table of some jobs, by increasing index or mask; arrivals keep their values.

        Args:
            index: (M,) positions or (N,) mask.
            step: What this selection is, for `steps`.
        """
        chosen = np.asarray(index)
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in (*_FLOATS, *_COUNTS, "is_censored")}
        columns.update({name: getattr(self, name).take(chosen) for name in _TEXTS})
        columns["extra"] = {name: values[chosen] for name, values in self.extra.items()}
        return dataclasses.replace(self, **columns, steps=(*self.steps, *([step] if step else [])))
