"""The jobs that a configuration names: read, shaped, and given a type and work."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.workload.generator import active_type_indices, training_speeds
from dl2env.workload.traces.assign import AssignReport, TraceJobs, assign_work
from dl2env.workload.traces.formats import trace_format
from dl2env.workload.traces.reader import Found, find_trace, read_found
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.shaping import digest, gpu_load, scale_load, shape
from dl2env.workload.traces.source import TraceSource, unpacking
from dl2env.workload.traces.table import JobTable


@dataclass(frozen=True)
class ShapedJobs:
    """A trace as it is replayed.

    Attributes:
        table: Recorded jobs after all steps.
        jobs: The training jobs that they become.
        assigned: What the rule that made them did.
        gpus: (N,) GPUs of each training job's workers.
        load: Offered load: GPU seconds of the training jobs over those of the cluster between first and last arrival.
    """

    table: JobTable
    jobs: TraceJobs
    assigned: AssignReport
    gpus: NDArray[np.int64]
    load: float


def shaped_jobs(config: EnvConfig, table: JobTable) -> ShapedJobs:
    """Shapes recorded jobs and gives them a type and work, as `config.workload.trace` says.

    The load is set last, by the GPUs that the jobs are given: a share of a GPU counts as a whole one, as in the
    simulator.

    Raises:
        ConfigError: A step leaves no job, the load cannot be set, or the configuration names no trace.
        Dl2EnvError: The catalogue or the speed table is wrong.
    """
    trace = config.workload.trace
    if trace is None:
        raise ConfigError("workload.trace: not set; name the trace to replay")
    shaping, seed = trace.shaping, trace.seed
    all_types, speed, max_workers, max_ps = training_speeds(config)
    active = active_type_indices(config.workload, all_types)
    job_types = [all_types[t] for t in active]
    worker_gpus = np.array([job_type.worker_gpus for job_type in all_types], dtype=np.int64)
    capacity = float(sum(group.count * group.gpus for group in config.cluster.servers))
    names = tuple(job_type.name for job_type in all_types)

    def assigned(table: JobTable) -> ShapedJobs:
        jobs, report = assign_work(table, job_types, speed[active], max_workers[active], max_ps[active], seed)
        jobs = dataclasses.replace(jobs, type_idx=active[jobs.type_idx], type_names=names)
        gpus = jobs.workers * worker_gpus[jobs.type_idx]
        return ShapedJobs(table, jobs, report, gpus, gpu_load(jobs.arrival_s, gpus * jobs.duration_s, capacity))

    shaped = assigned(shape(table, shaping))
    if shaping.target_load is None:
        return shaped
    # Types and workers follow from GPUs and the order of jobs, so assigning again changes only times and work.
    return assigned(scale_load(shaped.table, shaped.load, shaping.target_load, shaping.load_by))


def configured_jobs(config: EnvConfig) -> tuple[TraceJobs, dict[str, Any]]:
    """Training jobs of the trace that a configuration names, and how they came about as plain values.

    Rows that are wrong or suspicious are told by a `TraceWarning`, or are errors if `trace.strict`.

    Raises:
        Dl2EnvError: As `shaped_jobs`, or the trace cannot be read.
    """
    trace = config.workload.trace
    if trace is None:
        raise ConfigError("workload.trace: not set; name the trace to replay")
    found = find_trace(trace.path, trace.format, trace.companion)
    paths = [file.path for file in found.source.files] + ([Path(found.companion)] if found.companion else [])
    table, report = _read(found.format.name, found.source, found.companion, trace.strict, _stamps(paths))
    report.warn()
    shaped = shaped_jobs(config, table)
    return shaped.jobs, provenance(shaped, report)


@functools.lru_cache(maxsize=2)
def _read(
    format: str, source: TraceSource, companion: str | None, strict: bool, stamps: tuple[tuple[str, int, int, int], ...]
) -> tuple[JobTable, ReadReport]:
    """Reads a trace; the splits of a scenario share the table, whose arrays are read-only, while its files stay."""
    table, report = read_found(Found(trace_format(format), source, companion), strict=strict)
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        for array in (value, getattr(value, "codes", None), *(value.values() if field.name == "extra" else ())):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return table, report


def _stamps(paths: Iterable[Path]) -> tuple[tuple[str, int, int, int], ...]:
    """What changes when files do: name, time, size and inode of each."""
    stamps = []
    for path in paths:
        with unpacking(str(path).partition("::")[0]):
            stat = Path(str(path).partition("::")[0]).stat()
        stamps.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(stamps)


def provenance(shaped: ShapedJobs, report: ReadReport) -> dict[str, Any]:
    """How replayed jobs came about, as plain values: reading, every shaping step, assignment and a digest of all."""
    counts = {
        "rows_read": report.rows_read,
        "rows_kept": report.rows_kept,
        **{kind: {reason: rows.count for reason, rows in getattr(report, kind).items()} for kind in _KINDS},
    }
    return {
        "format": shaped.table.format,
        "reading": counts,
        "steps": [dict(step) for step in shaped.table.steps],
        "digest": digest(shaped.table),
        "assignment": shaped.assigned.to_dict(),
    }


_KINDS = ("dropped", "merged", "clamped", "warned")
