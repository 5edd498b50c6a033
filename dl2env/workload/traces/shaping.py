"""Shaping of recorded workloads: which of the jobs, with how many GPUs, at what load.

The order is fixed: time window, sample, GPU numbers, load. Each step that a configuration asks for is written into
`JobTable.steps` with its parameters and the number of jobs that it leaves; `digest` covers jobs and steps. Arrivals
stay on the clock of the file (seconds after its first job) until a load is set by arrivals. Extra columns stay as
recorded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import ShapingConfig
from dl2env.errors import ConfigError
from dl2env.workload.traces.table import JobTable, TextColumn

FloatArray = NDArray[np.float64]

_TOLERANCE = 1e-9  # GPUs; sums of shares such as 10 x 0.1 are not exact
_HASHED = ("arrival_s", "duration_s", "num_gpus", "num_cpus", "memory_gib", "num_workers", "num_ps", "is_censored")


def shape(table: JobTable, config: ShapingConfig) -> JobTable:
    """Applies all steps but the load, which needs the cluster and the jobs' types (`scale_load`).

    Raises:
        ConfigError: A step leaves no job, or whole users or groups are asked for and the trace has none.
    """
    if config.from_s is not None or config.until_s is not None:
        table = time_window(table, config.from_s, config.until_s)
    if config.sample_share < 1.0:
        if config.sample_by == "jobs":
            table = thin(table, config.sample_share, config.sample_seed)
        else:
            table = sample_owners(table, config.sample_by, config.sample_share, config.sample_seed)
    return map_gpus(table, config)


def time_window(table: JobTable, from_s: float | None, until_s: float | None) -> JobTable:
    """Jobs that arrive in [from_s, until_s) seconds after the first of the file; None is no limit.

    Raises:
        ConfigError: No job does.
    """
    keep = np.ones(table.num_jobs, dtype=bool)
    if from_s is not None:
        keep &= table.arrival_s >= from_s
    if until_s is not None:
        keep &= table.arrival_s < until_s
    if not keep.any():
        raise ConfigError(
            f"shaping: no job arrives from from_s={from_s} to until_s={until_s}; the trace has arrivals from "
            f"{table.arrival_s[0]:g} to {table.arrival_s[-1]:g} s"
        )
    return _taken(table, keep, {"step": "time_window", "from_s": from_s, "until_s": until_s})


def thin(table: JobTable, share: float, seed: int) -> JobTable:
    """Each job is kept with this probability, on its own: a thinned arrival process at `share` times the rate.

    Raises:
        ConfigError: No job is left.
    """
    keep = np.random.default_rng(seed).random(table.num_jobs) < share
    step = {"step": "thin", "share": share, "seed": seed}
    return _taken(table, keep, step, f"shaping: sample_share={share:g} leaves none of {table.num_jobs} jobs; raise it")


def sample_owners(table: JobTable, by: str, share: float, seed: int) -> JobTable:
    """All jobs of a share of the users or groups, at least one of them; so bursts and habits of each stay whole.

    Users are put in random order and the first ones are kept, so a smaller share keeps a part of a larger one's. A
    job that names no user counts as a user of its own.

    Args:
        table: Jobs.
        by: `users` or `groups`.
        share: Of users, not of jobs.
        seed: Of the order.

    Raises:
        ConfigError: No job names one.
    """
    column: TextColumn = table.user if by == "users" else table.group
    if (column.codes < 0).all():
        other = "groups" if by == "users" else "users"
        raise ConfigError(
            f"shaping: sample_by={by}, but no job of this {table.format} trace names any; choose sample_by=jobs or "
            f"{other}"
        )
    owner = np.where(column.codes < 0, np.arange(table.num_jobs) + len(column.names), column.codes)
    # By first appearance, so that the order of names in the reader's tables does not count.
    _, first, index = np.unique(owner, return_index=True, return_inverse=True)
    rank_of = np.empty(first.size, dtype=np.int64)
    rank_of[np.argsort(first)] = np.random.default_rng(seed).permutation(first.size)
    count = max(1, round(share * first.size))
    keep = rank_of[index] < count
    step = {"step": "sample", "by": by, "share": share, "seed": seed, "kept": count, "of": int(first.size)}
    return _taken(table, keep, step)


def map_gpus(table: JobTable, config: ShapingConfig) -> JobTable:
    """Numbers of GPUs by `gpu_map`, then rounding, then the limit. Roles of jobs that change are forgotten.

    Raises:
        ConfigError: No job is left, or a mapping would have jobs with GPUs keep their GPU time on none.
    """
    counts, rounding, limit = config.gpu_counts(), config.gpu_rounding, config.max_gpus
    if not counts and rounding == "none" and limit is None:
        return table
    gpus = table.num_gpus.copy()
    for recorded, new in counts.items():
        gpus[np.abs(table.num_gpus - recorded) <= _TOLERANCE] = new
    has_gpu = gpus > 0
    gpus[has_gpu] = _ROUNDINGS[rounding](gpus[has_gpu])
    keep = np.ones(table.num_jobs, dtype=bool)
    if limit is not None:
        is_above = gpus > limit + _TOLERANCE
        if config.above_max_gpus == "drop":
            keep = ~is_above
        else:
            gpus[is_above] = limit
    is_changed = (gpus != table.num_gpus) & keep
    step = {
        "step": "map_gpus",
        "map": list(config.gpu_map),
        "rounding": rounding,
        "max_gpus": limit,
        "above_max_gpus": config.above_max_gpus,
        "keeps": config.gpu_change_keeps,
        "changed": int(is_changed.sum()),
    }
    duration_s = table.duration_s
    if config.gpu_change_keeps == "gpu_time":
        # Where there were no GPUs or will be none, there is no GPU time to keep.
        is_stretched = is_changed & (table.num_gpus > 0)
        if (gpus[is_stretched] == 0).any():
            row = int(table.source_row[is_stretched & (gpus == 0)][0])
            raise ConfigError(
                f"shaping: gpu_map takes all GPUs from the job of line {row}, which cannot keep its gpu_time; choose "
                "gpu_change_keeps=duration"
            )
        stretch = np.divide(table.num_gpus, gpus, out=np.ones(gpus.size), where=is_stretched)
        duration_s = duration_s * stretch
    changed = dataclasses.replace(
        table,
        num_gpus=gpus,
        duration_s=duration_s,
        num_workers=np.where(is_changed, 0, table.num_workers),
        num_ps=np.where(is_changed, 0, table.num_ps),
    )
    message = f"shaping: every job has more than max_gpus={limit} GPUs; raise it or choose above_max_gpus=clamp"
    return _taken(changed, keep, step, message)


def _power_of_two(rounded: Callable[[FloatArray], FloatArray]) -> Callable[[FloatArray], FloatArray]:
    return lambda gpus: np.maximum(np.exp2(rounded(np.log2(gpus))), 1.0)


_ROUNDINGS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "none": lambda gpus: gpus,
    "whole": lambda gpus: np.maximum(np.ceil(gpus - _TOLERANCE), 1.0),
    "power_of_two_up": _power_of_two(lambda logs: np.ceil(logs - _TOLERANCE)),
    "power_of_two_down": _power_of_two(lambda logs: np.floor(logs + _TOLERANCE)),
    "power_of_two_nearest": _power_of_two(np.round),
}


def gpu_load(arrival_s: FloatArray, gpu_s: FloatArray, capacity_gpus: float) -> float:
    """Offered load: GPU seconds over those of the cluster between the first and the last arrival.

    Args:
        arrival_s: (N,) seconds, not decreasing.
        gpu_s: (N,) GPUs times duration.
        capacity_gpus: GPUs of the cluster.

    Returns:
        The load; infinite if all jobs arrive at once, NaN if the cluster has no GPU.
    """
    if capacity_gpus <= 0 or not arrival_s.size:
        return float("nan")
    span = float(arrival_s[-1] - arrival_s[0])
    return float(gpu_s.sum()) / (capacity_gpus * span) if span > 0 else float("inf")


def scale_load(table: JobTable, load: float, target: float, by: str) -> JobTable:
    """Brings an offered load to a target.

    Args:
        table: Jobs.
        load: Their load now (`gpu_load`).
        target: Load wanted.
        by: `arrivals` divides the times between arrivals, `sizes` multiplies durations by target / load.

    Raises:
        ConfigError: There is no load to scale: no GPU in jobs or cluster, or all jobs arrive at once.
    """
    if not 0.0 < load < np.inf:
        raise ConfigError(
            f"shaping: target_load={target:g} cannot be reached from a load of {load}: jobs and cluster need GPUs, and "
            "jobs different arrival times"
        )
    factor = target / load
    first = table.arrival_s[0]
    changes: dict[str, Any] = (
        {"arrival_s": first + (table.arrival_s - first) / factor}
        if by == "arrivals"
        else {"duration_s": table.duration_s * factor}
    )
    if not all(np.isfinite(values).all() for values in changes.values()):
        raise ConfigError(f"shaping: target_load={target:g} needs times beyond all numbers; the load is {load:g} now")
    step = {"step": "scale_load", "by": by, "from": load, "to": target, "factor": factor, "jobs": table.num_jobs}
    return dataclasses.replace(table, **changes, steps=(*table.steps, step))


def part_bounds(arrival_s: FloatArray, start: float, stop: float, by: str) -> tuple[int, int]:
    """First job of a part, and the first one after it.

    Args:
        arrival_s: (N,) seconds, not decreasing.
        start: Share of the whole where it begins, from 0.
        stop: Share of the whole where it ends, above `start` and at most 1.
        by: `jobs`, or `time`: jobs that arrive in [start, stop) of the time from first to last arrival, the last
            arrival included in a part that reaches to 1.
    """
    if by == "jobs":
        return int(np.ceil(start * arrival_s.size)), int(np.ceil(stop * arrival_s.size))
    if not arrival_s.size:
        return 0, 0
    span = arrival_s[-1] - arrival_s[0]
    # The same expression for the end of one part and the start of the next: no job is in both or in none.
    first, end = (int(np.searchsorted(arrival_s, arrival_s[0] + share * span)) for share in (start, stop))
    return first, int(arrival_s.size) if stop >= 1.0 else end


def split(table: JobTable, parts: Mapping[str, tuple[float, float]], by: str = "time") -> dict[str, JobTable]:
    """Tables of the parts that a trace is cut into, such as train, validation and test; a part may be empty.

    Args:
        table: Jobs.
        parts: (start, stop) as shares by name, see `part_bounds`.
        by: `time` or `jobs`.
    """
    tables = {}
    for name, (start, stop) in parts.items():
        first, end = part_bounds(table.arrival_s, start, stop, by)
        step = {"step": "part", "name": name, "by": by, "start": start, "stop": stop, "jobs": max(end - first, 0)}
        tables[name] = table.take(slice_index(first, end), step)
    return tables


def slice_index(first: int, end: int) -> NDArray[np.int64]:
    """Positions from `first` to before `end`."""
    return np.arange(first, max(first, end))


def digest(table: JobTable) -> str:
    """SHA-256 of the jobs and of every step that led to them, as hexadecimal text."""
    sha = hashlib.sha256()
    for name in _HASHED:
        sha.update(np.ascontiguousarray(getattr(table, name)).tobytes())
    steps = [dict(step) for step in table.steps]
    sha.update(json.dumps(steps, sort_keys=True, separators=(",", ":")).encode())
    return sha.hexdigest()


def _taken(table: JobTable, keep: ArrayLike, step: Mapping[str, Any], message: str = "") -> JobTable:
    mask = np.asarray(keep)
    if not mask.any():
        raise ConfigError(message or f"shaping: {step['step']} leaves no job")
    return table.take(mask, {**step, "jobs": int(mask.sum())})
