"""Gives recorded jobs a training type and the work that meets their recorded duration.

Traces say when a job came, how long it ran and on how many GPUs, not what it trained. The rule, with a seed of its own:

1. Workers. A job of g GPUs gets ceil(g / GPUs per worker) workers, and as many parameter servers if its type has them;
   both are clamped to the caps, which the report counts.
2. Type. A type can take a job when its cap on workers is not below the job's workers, clamped to the largest cap of
   all types. Pollux applications get the type of the catalogue that resembles them (`SIMILAR_TYPES`) if it can take the
   job. Any other job gets, with equal probability, one of the types that can take it and whose workers use GPUs, by
   one random number per job in arrival order.
3. Work. epochs = duration * isolated samples/s of that type with these workers and parameter servers / samples per
   epoch: alone on the cluster, with its recorded GPUs all the time, the job takes exactly its recorded duration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError
from dl2env.workload.job_types import JobType
from dl2env.workload.sizes import epochs_for
from dl2env.workload.traces.table import RowCount, TraceTable

SIMILAR_TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "pollux": {
        "cifar10": ("resnext-110",),  # residual network on CIFAR-10
        "imagenet": ("resnet-50", "resnet50"),
        "bert": ("bert",),
        "ncf": ("multi-interests", "dssm"),  # recommenders made of embeddings
        # yolov3 and deepspeech2 resemble no type that runs on several GPUs
    },
}
"""Trace format -> label -> names of similar types, best first; the first one in the catalogue is used."""


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
        clamped: Jobs with more GPUs than their type's largest number of workers can use.
        by_label: Jobs whose type follows from their label.
        jobs_per_type: Number of jobs by type name.
    """

    clamped: RowCount
    by_label: int
    jobs_per_type: Mapping[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.jobs_per_type.items())
        return f"clamped to the cap on workers: {self.clamped}\ntype from the label: {self.by_label}\njobs: {counts}"


def assign_work(
    table: TraceTable,
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
        ConfigError: The table of speeds is too small, or a type that is needed does not train at an allocation.
    """
    num_types = len(job_types)
    uses_ps = np.array([job_type.uses_ps for job_type in job_types])
    worker_caps = np.broadcast_to(np.asarray(max_workers, dtype=np.int64), (num_types,))
    ps_caps = np.broadcast_to(np.asarray(max_ps, dtype=np.int64), (num_types,)) * uses_ps
    if speed.shape[0] != num_types or speed.shape[1] <= worker_caps.max() or speed.shape[2] <= ps_caps.max():
        raise ConfigError(
            f"assign_work: speed has shape {speed.shape}, but {num_types} types need up to {worker_caps.max()} workers "
            f"and {ps_caps.max()} PSs"
        )
    gpus_per_worker = np.maximum([job_type.worker_gpus for job_type in job_types], 1)
    wanted = -(-table.num_gpus[:, None] // gpus_per_worker)  # (N, T) workers by type
    type_idx = _choose_types(table, job_types, wanted, worker_caps, seed)
    by_label = _types_by_label(table, job_types)
    rows = np.arange(table.num_jobs)
    uses_label = (by_label >= 0) & _can_take(wanted, worker_caps)[rows, by_label]
    type_idx = np.where(uses_label, by_label, type_idx)

    workers = np.minimum(wanted[rows, type_idx], worker_caps[type_idx])
    ps = np.minimum(workers, ps_caps[type_idx])
    job_speed = speed[type_idx, workers, ps]
    is_idle = ~(np.isfinite(job_speed) & (job_speed > 0))
    if is_idle.any():
        i = int(np.argmax(is_idle))
        raise ConfigError(
            f"trace row {table.source_row[i]}: type {job_types[type_idx[i]].name!r} trains {job_speed[i]} samples/s "
            f"with {workers[i]} workers and {ps[i]} PSs; lower workload.max_workers or leave the type out of "
            "workload.include"
        )
    samples_per_epoch = np.array([job_type.samples_per_epoch for job_type in job_types])[type_idx]
    names = tuple(job_type.name for job_type in job_types)
    jobs = TraceJobs(
        arrival_s=table.arrival_s,
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
    return jobs, AssignReport(
        clamped=RowCount.of(table.source_row[wanted[rows, type_idx] > workers]),
        by_label=int(uses_label.sum()),
        jobs_per_type=dict(zip(names, counts, strict=True)),
    )


def _can_take(wanted: NDArray[np.int64], worker_caps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N, T) whether a type's cap on workers is large enough for a job, or is the largest there is."""
    return np.asarray((wanted <= worker_caps) | (worker_caps == worker_caps.max()))


def _types_by_label(table: TraceTable, job_types: Sequence[JobType]) -> NDArray[np.int64]:
    """(N,) type that resembles the job's label, -1 where none does."""
    names = [job_type.name for job_type in job_types]
    chosen: dict[str, int] = {}
    for label, similar in SIMILAR_TYPES.get(table.format, {}).items():
        present = [names.index(name) for name in similar if name in names]
        if present:
            chosen[label] = present[0]
    return np.array([chosen.get(label, -1) for label in table.label], dtype=np.int64)


def _choose_types(
    table: TraceTable,
    job_types: Sequence[JobType],
    wanted: NDArray[np.int64],
    worker_caps: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int64]:
    """(N,) types drawn uniformly from those that can take each job; types without GPUs only if there are no others."""
    uses_gpu = np.array([job_type.worker_gpus > 0 for job_type in job_types])
    candidates = np.flatnonzero(uses_gpu if uses_gpu.any() else ~uses_gpu)
    can_take = _can_take(wanted[:, candidates], worker_caps[candidates])
    u = np.random.default_rng(seed).random(table.num_jobs)
    nth = (u * can_take.sum(axis=1)).astype(np.int64)  # which of the types that can take it, counted from 0
    return np.asarray(candidates[(can_take.cumsum(axis=1) > nth[:, None]).argmax(axis=1)])
