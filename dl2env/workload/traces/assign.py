"""Gives recorded jobs a training type and the work that meets their recorded duration.

Traces say when a job came, how long it ran and on how many GPUs, not what it trained. The rule, with a seed of its own:

1. Workers. A job of g GPUs gets ceil(g / GPUs per worker) workers, but not fewer than its recorded workers where the
   trace has roles (each with a share of a GPU, so that every worker gets a whole one). It gets as many parameter
   servers as recorded, or as workers where roles are not recorded, if its type has them. All are clamped to the caps.
   The report counts what is rounded up and what is clamped.
2. Type. A type can take a job when its cap on workers is not below the job's workers, clamped to the largest cap of
   all types; jobs with recorded parameter servers go to types that have them, jobs with recorded roles but without
   parameter servers to the others, where there are such types. A job whose label is the name of a type, or resembles
   one (`TraceFormat.similar_types`), gets that one if it can take the job. Any other job gets, with equal
   probability, one of the types that can take it and whose workers use GPUs, by one random number per job in arrival
   order. Jobs without GPUs get types without GPUs; where the catalogue has none they are left out, and counted.
3. Work. epochs = duration * isolated samples/s of that type with these workers and parameter servers / samples per
   epoch: alone on the cluster, with this allocation all the time, the job takes exactly its recorded duration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError
from dl2env.workload.job_types import JobType
from dl2env.workload.sizes import epochs_for
from dl2env.workload.traces.formats import format_names, trace_format
from dl2env.workload.traces.report import RowCount
from dl2env.workload.traces.table import JobTable

_TOLERANCE = 1e-9  # GPUs; sums of shares such as 10 x 0.1 are not exact


@dataclass(frozen=True)
class TraceJobs:
    """Recorded jobs as training jobs, in arrival order, one array entry per job.

    Attributes:
        arrival_s: (N,) seconds since the first job.
        type_idx: (N,) int32 index into `type_names`.
        epochs: (N,) epochs that meet the recorded duration.
        samples_per_epoch: (N,) samples of one epoch.
        duration_s: (N,) recorded duration.
        workers, ps: (N,) int64 tasks at which it is met, without contention.
        source_row: (N,) line of the trace file.
        type_names: Names of the catalogue's types.
    """

    arrival_s: NDArray[np.float64]
    type_idx: NDArray[np.int32]
    epochs: NDArray[np.float64]
    samples_per_epoch: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    workers: NDArray[np.int64]
    ps: NDArray[np.int64]
    source_row: NDArray[np.int64]
    type_names: tuple[str, ...]

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return int(self.arrival_s.size)


@dataclass(frozen=True)
class AssignReport:
    """What the rule did.

    Attributes:
        clamped: Jobs with more workers or parameter servers than the caps allow.
        rounded_up: Jobs whose workers take more GPUs than recorded, because a worker takes whole ones.
        left_out: Jobs without GPU that no type of the catalogue can stand for.
        by_label: Jobs whose type follows from their label.
        jobs_per_type: Number of jobs by type name.
        recorded_gpu_s: GPU seconds of all jobs of the table, as recorded.
        assigned_gpu_s: GPU seconds that the workers take in the recorded durations.
    """

    clamped: RowCount
    rounded_up: RowCount
    left_out: RowCount
    by_label: int
    jobs_per_type: Mapping[str, int]
    recorded_gpu_s: float
    assigned_gpu_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for provenance and JSON."""
        rows = {name: getattr(self, name).count for name in ("clamped", "rounded_up", "left_out")}
        plain = {name: getattr(self, name) for name in ("by_label", "recorded_gpu_s", "assigned_gpu_s")}
        return {**rows, **plain, "jobs_per_type": dict(self.jobs_per_type)}

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.jobs_per_type.items())
        return (
            f"clamped to the caps on tasks: {self.clamped}\nshares of GPUs rounded up: {self.rounded_up}\n"
            f"left out, no type without GPUs: {self.left_out}\ntype from the label: {self.by_label}\njobs: {counts}\n"
            f"GPU hours: {self.recorded_gpu_s / 3600:.1f} recorded, {self.assigned_gpu_s / 3600:.1f} assigned"
        )


def assign_work(
    table: JobTable,
    job_types: Sequence[JobType],
    speed: NDArray[np.float64],
    max_workers: ArrayLike,
    max_ps: ArrayLike,
    seed: int,
) -> tuple[TraceJobs, AssignReport]:
    """Applies the rule of this module.

    Args:
        table: Jobs of a trace.
        job_types: The catalogue, T types.
        speed: (T, > W, > P) isolated samples/s by type, workers and parameter servers.
        max_workers: (T,) or one cap on workers.
        max_ps: (T,) or one cap on parameter servers; types without parameter servers ignore it.
        seed: Seed of the draw of types.

    Raises:
        ConfigError: The table of speeds is too small, a type that is needed does not train at an allocation, or no
            job is left.
    """
    num_types = len(job_types)
    uses_ps = np.array([job_type.uses_ps for job_type in job_types])
    uses_gpu = np.array([job_type.worker_gpus > 0 for job_type in job_types])
    worker_caps = np.broadcast_to(np.asarray(max_workers, dtype=np.int64), (num_types,))
    ps_caps = np.broadcast_to(np.asarray(max_ps, dtype=np.int64), (num_types,)) * uses_ps
    if speed.shape[0] != num_types or speed.shape[1] <= worker_caps.max() or speed.shape[2] <= ps_caps.max():
        raise ConfigError(
            f"assign_work: speed has shape {speed.shape}, but {num_types} types need up to {worker_caps.max()} workers "
            f"and {ps_caps.max()} PSs"
        )
    is_left_out = (table.num_gpus == 0) & uses_gpu.all()
    left_out = RowCount.of(table.source_row[is_left_out])
    recorded_gpu_s = float((table.num_gpus * table.duration_s).sum())
    if is_left_out.all():
        raise ConfigError(
            "trace: no job uses a GPU and every job type does; add a type without GPUs to workload.include, or choose "
            "another trace"
        )
    if is_left_out.any():
        first_s = float(table.arrival_s[~is_left_out][0])
        table = table.take(~is_left_out)
        arrival_s = table.arrival_s - first_s
    else:
        arrival_s = table.arrival_s

    wanted, can_take = possible_types(table, job_types, worker_caps)
    type_idx = types_by_chance(can_take, np.random.default_rng(seed).random(table.num_jobs))
    by_label = _types_by_label(table, job_types)
    rows = np.arange(table.num_jobs)
    uses_label = (by_label >= 0) & _fits(wanted, worker_caps)[rows, by_label] & (table.num_gpus > 0)
    type_idx = np.where(uses_label, by_label, type_idx)

    wanted_workers = wanted[rows, type_idx]
    workers = np.minimum(wanted_workers, worker_caps[type_idx])
    wanted_ps = np.where((table.num_workers > 0) & (table.num_ps > 0), table.num_ps, workers)
    ps = np.minimum(wanted_ps, ps_caps[type_idx])
    job_speed = speed[type_idx, workers, ps]
    is_idle = ~(np.isfinite(job_speed) & (job_speed > 0))
    if is_idle.any():
        i = int(np.argmax(is_idle))
        raise ConfigError(
            f"trace line {table.source_row[i]}: type {job_types[type_idx[i]].name!r} trains {job_speed[i]} samples/s "
            f"with {workers[i]} workers and {ps[i]} PSs; lower workload.max_workers or leave the type out of "
            "workload.include"
        )
    samples_per_epoch = np.array([job_type.samples_per_epoch for job_type in job_types])[type_idx]
    names = tuple(job_type.name for job_type in job_types)
    jobs = TraceJobs(
        arrival_s=arrival_s,
        type_idx=type_idx.astype(np.int32),
        epochs=epochs_for(table.duration_s, job_speed, samples_per_epoch),
        samples_per_epoch=samples_per_epoch,
        duration_s=table.duration_s,
        workers=workers,
        ps=ps,
        source_row=table.source_row,
        type_names=names,
    )
    counts = np.bincount(type_idx, minlength=num_types).tolist()
    worker_gpus = np.array([job_type.worker_gpus for job_type in job_types])[type_idx]
    gpus = workers * worker_gpus
    is_ps_clamped = (table.num_ps > 0) & (wanted_ps > ps) & (ps_caps[type_idx] > 0)
    return jobs, AssignReport(
        clamped=RowCount.of(table.source_row[(wanted_workers > workers) | is_ps_clamped]),
        rounded_up=RowCount.of(table.source_row[gpus > table.num_gpus + _TOLERANCE]),
        left_out=left_out,
        by_label=int(uses_label.sum()),
        jobs_per_type=dict(zip(names, counts, strict=True)),
        recorded_gpu_s=recorded_gpu_s,
        assigned_gpu_s=float((gpus * table.duration_s).sum()),
    )


def possible_types(
    table: JobTable, job_types: Sequence[JobType], max_workers: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What each job would want of each type, and which types it may be given (rules 1 and 2 of this module).

    Args:
        table: N jobs.
        job_types: T types.
        max_workers: (T,) or one cap on workers.

    Returns:
        (N, T) workers before caps, and (N, T) whether the type may be drawn; no type where none can stand for the job.
    """
    caps = np.broadcast_to(np.asarray(max_workers, dtype=np.int64), (len(job_types),))
    uses_ps = np.array([job_type.uses_ps for job_type in job_types])
    uses_gpu = np.array([job_type.worker_gpus > 0 for job_type in job_types])
    wanted = _wanted_workers(table, job_types)
    return wanted, _can_take(table, wanted, caps, uses_ps, uses_gpu)


def types_by_chance(can_take: NDArray[np.bool_], chances: NDArray[np.float64]) -> NDArray[np.int64]:
    """(N,) types drawn uniformly from those that can take each job.

    Args:
        can_take: (N, T), one type at least in every row.
        chances: (N,) random numbers in [0, 1), one per job.
    """
    nth = (chances * can_take.sum(axis=1)).astype(np.int64)  # which of the types that can take it, counted from 0
    return np.asarray((can_take.cumsum(axis=1) > nth[:, None]).argmax(axis=1))


def _wanted_workers(table: JobTable, job_types: Sequence[JobType]) -> NDArray[np.int64]:
    """(N, T) workers of each job if it had that type, before caps."""
    gpus_per_worker = np.maximum([job_type.worker_gpus for job_type in job_types], 1)
    by_gpus = np.ceil(table.num_gpus[:, None] / gpus_per_worker - _TOLERANCE)
    if (table.num_gpus == 0).any():
        cpus_per_worker = np.maximum([job_type.worker_cpus for job_type in job_types], 1)
        cpus = np.nan_to_num(table.num_cpus, nan=1.0)
        by_cpus = np.ceil(cpus[:, None] / cpus_per_worker - _TOLERANCE)
        by_gpus = np.where(table.num_gpus[:, None] == 0, by_cpus, by_gpus)
    return np.maximum(by_gpus.astype(np.int64), np.maximum(table.num_workers, 1)[:, None])


def _fits(wanted: NDArray[np.int64], worker_caps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N, T) whether a type's cap on workers is large enough for a job, or is the largest there is."""
    return np.asarray((wanted <= worker_caps) | (worker_caps == worker_caps.max()))


def _can_take(
    table: JobTable,
    wanted: NDArray[np.int64],
    worker_caps: NDArray[np.int64],
    uses_ps: NDArray[np.bool_],
    uses_gpu: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """(N, T) types that may be drawn for each job."""
    has_gpu = (table.num_gpus > 0)[:, None]
    wants_gpu = uses_gpu if uses_gpu.any() else ~uses_gpu
    allowed = np.where(has_gpu, wants_gpu, ~uses_gpu)
    caps = np.where(allowed, worker_caps, 0)
    allowed = allowed & ((wanted <= worker_caps) | (caps == caps.max(axis=1, keepdims=True)))
    # Roles narrow the choice where the trace has them and a type is left.
    has_roles = (table.num_workers > 0) & ((table.num_ps > 0) | (table.num_workers > 1))
    narrowed = allowed & (uses_ps == (table.num_ps > 0)[:, None])
    use_narrowed = (has_roles & narrowed.any(axis=1))[:, None]
    return np.asarray(np.where(use_narrowed, narrowed, allowed))


def _types_by_label(table: JobTable, job_types: Sequence[JobType]) -> NDArray[np.int64]:
    """(N,) type that the job's label names or resembles, -1 where none does."""
    names = [job_type.name for job_type in job_types]
    similar = trace_format(table.format).similar_types if table.format in format_names() else {}
    chosen = np.full(len(table.label.names) + 1, -1, dtype=np.int64)
    for code, label in enumerate(table.label.names):
        present = [names.index(name) for name in (label, *similar.get(label, ())) if name in names]
        if present:
            chosen[code] = present[0]
    return chosen[table.label.codes]
