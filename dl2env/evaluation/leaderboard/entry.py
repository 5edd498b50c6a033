"""A leaderboard entry: one scheduler on the workloads of one scenario, as a JSON file.

A file holds one object with the fields of `Entry` and, first, `schema` and `schema_version`; it lies at
`<folder>/<scenario>/<scheduler>.json`. Numbers have six significant digits. Values per workload that are all equal are
stored once. Reading checks every field, and that the averages are those of the values per workload: a file that was
cut, edited or written by another program is one clear error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.leaderboard.json_file import (
    FileKind,
    is_number,
    require,
    require_digests,
    require_fields,
    rounded,
    rounded_all,
)
from dl2env.evaluation.metrics import METRIC_NAMES

ENTRY_METRICS = (*METRIC_NAMES, "num_illegal")
"""Metrics of an entry: those of an episode, and the illegal actions, each of which ended an interval."""

QUANTILE_LEVELS = (*(k / 100 for k in range(100)), 0.995, 0.999, 1.0)
"""Levels of `Entry.jct_quantiles_s`."""

_SUMS = ("num_jobs", "num_unfinished", "num_decisions", "num_intervals", "num_illegal")
_LARGEST = ("max_rho",)
_TIMES = ("wall_s", "ms_per_decision", "p99_call_ms", "cpu_ms_per_episode")
_ESTIMATE = ("kind", "noise", "num_probes")


class EntryError(Dl2EnvError):
    """A file is no entry that this code reads; the message names it and says why."""


_KIND = FileKind("dl2env-leaderboard-entry", 1, "leaderboard entry", EntryError, "run the cell again")


@dataclass(frozen=True)
class Entry:
    """One scheduler on N workloads of one scenario.

    Attributes:
        scheduler: Label in tables, unique on a board.
        scheduler_name: What `dl2env.schedulers.registry.get_scheduler` takes: a registered name or an import path.
        options: Arguments of its constructor.
        options_digest: Digest of the scheduler's plain attributes, and of the files and folders that options name (a
            checkpoint).
        scenario: Name of the scenario.
        scenario_hash: `Scenario.hash()`: entries of different hashes are not comparable.
        split: `test` for results.
        trim: Shares of the first and last jobs left out of averages, see `metrics.episode_metrics`.
        interval_s: Scheduling interval in seconds.
        seeds: `workloads`, the scenario's seed, and `scheduler`, that of a scheduler that draws, or null.
        is_deterministic: The result of a workload depends on nothing but the workload.
        is_oracle: The scheduler knows the future, or sizes that no scheduler is told: shown, but not ranked.
        estimate: What it was told about job speeds: `kind`, `noise` and `num_probes` of `config.EstimateConfig`.
        workload_digests: (N) first 16 digits of each workload's SHA-256.
        metrics: Averages over workloads by name; counts are summed, `max_rho` is the largest.
        per_workload: (N) values by name; a single number stands for N equal ones.
        jct_quantiles_s: Quantiles of JCT over the jobs of all workloads at `QUANTILE_LEVELS`.
        timing: `wall_s` of the cell, `ms_per_decision`, `p99_call_ms`, and `cpu_ms_per_episode`, simulation included;
            differs from run to run.
        version: Version of dl2env.
        code_digest: Digest of the code behind the result, see `leaderboard.code_digest`.
        versions: Versions of Python and packages.
        command: Command that makes this entry.
    """

    scheduler: str
    scheduler_name: str
    options: Mapping[str, Any]
    options_digest: str
    scenario: str
    scenario_hash: str
    split: str
    trim: tuple[float, float]
    interval_s: float
    seeds: Mapping[str, int | None]
    is_deterministic: bool
    is_oracle: bool
    estimate: Mapping[str, Any]
    workload_digests: tuple[str, ...]
    metrics: Mapping[str, float]
    per_workload: Mapping[str, float | Sequence[float]]
    jct_quantiles_s: tuple[float, ...]
    timing: Mapping[str, float]
    version: str
    code_digest: str
    versions: Mapping[str, str]
    command: str

    @property
    def num_workloads(self) -> int:
        """Number of workloads N."""
        return len(self.workload_digests)

    @property
    def knows(self) -> str:
        """What the scheduler was told, for tables: `exact`, `fitted ±5 %` or `noisy ±10 %` speeds, or `oracle`."""
        if self.is_oracle:
            return "oracle"
        kind = str(self.estimate["kind"])
        return kind if kind == "exact" else f"{kind} ±{100 * float(self.estimate['noise']):g} %"

    def values(self, metric: str) -> NDArray[np.float64]:
        """(N,) values of a metric per workload."""
        numbers = np.asarray(self.per_workload[metric], dtype=np.float64)
        return np.broadcast_to(numbers, (self.num_workloads,))


def aggregate(metric: str, values: NDArray[np.float64]) -> float:
    """The figure of a metric over workloads: their sum for counts, the largest of `max_rho`, else the mean."""
    if metric in _SUMS:
        return rounded(float(values.sum()))
    return rounded(float(values.max() if metric in _LARGEST else values.mean()))


def compact(values: NDArray[np.float64]) -> float | list[float]:
    """Rounded values per workload; one number if all are equal."""
    numbers = rounded_all(values)
    return numbers[0] if len(set(numbers)) == 1 else numbers


def entry_path(folder: Path, scenario: str, scheduler: str, split: str = "test") -> Path:
    """Where an entry lies; splits other than `test` are part of the file's name."""
    suffix = "" if split == "test" else f".{split}"
    return folder / file_name(scenario) / f"{file_name(scheduler)}{suffix}.json"


def file_name(label: str) -> str:
    """A label as a file name that every system takes."""
    return re.sub(r"[^A-Za-z0-9._=+,-]+", "_", label).strip("._") or "_"


def write_entry(path: Path, entry: Entry) -> Path:
    """Writes an entry, whole or not at all, and returns its path.

    Raises:
        EntryError: The file cannot be written, or a value is not plain and finite.
    """
    return _KIND.write(path, entry)


def read_entry(path: Path) -> Entry:
    """Reads and checks an entry.

    Raises:
        EntryError: The file cannot be read, is none of this schema version, or its content is inconsistent.
    """
    return _KIND.read(path, _checked)


def _checked(content: dict[str, Any]) -> Entry:
    names = [f.name for f in fields(Entry)]
    require_fields(content, tuple(names))
    for name in ("scheduler", "scheduler_name", "scenario", "scenario_hash", "split", "version", "code_digest"):
        require(isinstance(content[name], str) and content[name], name, "a text")
    for name in ("scheduler", "scenario"):  # they stand in tables
        require(content[name].isprintable(), name, "one line of printable characters")
    for name in ("options_digest", "command"):
        require(isinstance(content[name], str), name, "a text")
    for name in ("options", "seeds", "estimate", "metrics", "per_workload", "timing", "versions"):
        require(isinstance(content[name], dict), name, "a group of keys")
    for name in ("trim", "workload_digests", "jct_quantiles_s"):
        require(isinstance(content[name], list), name, "a list")
    for name in ("is_deterministic", "is_oracle"):
        require(isinstance(content[name], bool), name, "true or false")
    estimate = content["estimate"]
    is_estimate = set(_ESTIMATE) <= set(estimate) and all(is_number(estimate[k]) for k in _ESTIMATE[1:])
    require(is_estimate, "estimate", f"a group of {', '.join(_ESTIMATE)}")
    require(is_number(content["interval_s"]) and content["interval_s"] > 0, "interval_s", "a positive number")
    require(len(content["trim"]) == 2 and all(map(is_number, content["trim"])), "trim", "two numbers")
    timing = content["timing"]
    is_timing = set(_TIMES) <= set(timing) and all(map(is_number, timing.values()))
    require(is_timing, "timing", f"numbers by name, {', '.join(_TIMES)} among them")
    require_digests(content)
    quantiles = content["jct_quantiles_s"]
    require(len(quantiles) == len(QUANTILE_LEVELS), "jct_quantiles_s", f"{len(QUANTILE_LEVELS)} numbers")
    require(all(map(is_number, quantiles)) and quantiles == sorted(quantiles), "jct_quantiles_s", "rising numbers")
    values = {name: content[name] for name in names}
    for name in ("trim", "workload_digests", "jct_quantiles_s"):
        values[name] = tuple(values[name])
    entry = Entry(**values)
    for metric in ENTRY_METRICS:
        _check_metric(entry, metric)
    in_intervals = entry.values("mean_jct_s") / entry.interval_s
    is_same = np.allclose(entry.values("mean_jct_intervals"), in_intervals, rtol=2e-5, atol=0.0)
    require(is_same, "per_workload.mean_jct_intervals", "mean_jct_s in intervals of interval_s")
    return entry


def _check_metric(entry: Entry, metric: str) -> None:
    for group in ("metrics", "per_workload"):
        require(metric in getattr(entry, group), f"{group}.{metric}", "there")
    values, total = entry.per_workload[metric], entry.metrics[metric]
    numbers = values if isinstance(values, list) else [values]
    is_right = len(numbers) in (1, entry.num_workloads) and all(map(is_number, numbers))
    require(is_right, f"per_workload.{metric}", f"a number or {entry.num_workloads} numbers")
    require(is_number(total), f"metrics.{metric}", "a number")
    if "jct" in metric:
        require(min(numbers) > 0, f"per_workload.{metric}", "positive")
    expected = aggregate(metric, entry.values(metric))
    require(
        math.isclose(expected, total, rel_tol=1e-5, abs_tol=1e-9),
        f"metrics.{metric}",
        f"{expected}, what the values per workload give (it is {total})",
    )
