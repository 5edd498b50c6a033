"""The limits of a scenario: what no scheduler can beat, and what a search that knows the future reached.

The JSON file lies beside the scenario's entries, as `<folder>/<scenario>/_limits.json`, and is written and checked like
one: a lower bound of the mean JCT of every workload (`evaluation.bounds`), and the mean JCT of the search
(`schedulers.search`) on the first of them. Both are over all jobs, so they say nothing about trimmed averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.leaderboard.entry import file_name
from dl2env.evaluation.leaderboard.json_file import (
    FileKind,
    is_number,
    require,
    require_digests,
    require_fields,
    rounded,
)

BOUND_IS = (
    "Lower bound: valid for every schedule of that workload, from what each job needs alone and from the CPU and GPU "
    "time that all share; it ignores placement and contention, so it may be out of reach."
)
SEARCH_IS = (
    "Search: in every interval the rule of a portfolio that gives the least total JCT when the episode is played on in "
    "a copy with all future arrivals and true speeds; an estimate of what is possible: a better plan may exist, and no "
    "scheduler knows that much."
)

OPTIONS = ("search_workloads", "search_seconds", "search_horizon")
_NAME = "_limits"  # no entry's name begins so, see `entry.file_name`
_TIMES = ("wall_s", "bound_cpu_s", "search_cpu_s")


class LimitsError(Dl2EnvError):
    """A file holds no limits that this code reads; the message names it and says why."""


_KIND = FileKind("dl2env-leaderboard-limits", 1, "file of limits", LimitsError, "run the leaderboard again")


@dataclass(frozen=True)
class Limits:
    """Limits of N workloads of one scenario.

    Attributes:
        scenario, scenario_hash, split, interval_s: As in an entry.
        workload_digests: (N) first 16 digits of each workload's SHA-256.
        metrics: Means of the next two over their workloads, by name; without a search only that of the bound.
        bound_jct_s: (N) lower bound of each workload's mean JCT in seconds.
        search_jct_s: (S) mean JCT of the search in seconds on the first S workloads.
        search_num_unfinished: Jobs that the search left unfinished.
        options: `search_workloads`, how many were wanted; `search_seconds`, the CPU budget after which no further one
            was begun, or null; `search_horizon`, for how many intervals a plan is played.
        timing: `wall_s`, `bound_cpu_s` and `search_cpu_s`; differs from run to run.
        version, code_digest, versions, command: As in an entry.
    """

    scenario: str
    scenario_hash: str
    split: str
    interval_s: float
    workload_digests: tuple[str, ...]
    metrics: Mapping[str, float]
    bound_jct_s: tuple[float, ...]
    search_jct_s: tuple[float, ...]
    search_num_unfinished: int
    options: Mapping[str, Any]
    timing: Mapping[str, float]
    version: str
    code_digest: str
    versions: Mapping[str, str]
    command: str

    @property
    def num_workloads(self) -> int:
        """Number of workloads N with a bound."""
        return len(self.workload_digests)

    @property
    def num_searched(self) -> int:
        """Number of workloads S with a result of the search."""
        return len(self.search_jct_s)

    @property
    def is_cut_short(self) -> bool:
        """Whether the budget ended the search before all wanted workloads."""
        return self.num_searched < min(int(self.options["search_workloads"]), self.num_workloads)


def limits_path(folder: Path, scenario: str, split: str = "test") -> Path:
    """Where the limits of a scenario lie."""
    return folder / file_name(scenario) / f"{_NAME}{'' if split == 'test' else f'.{split}'}.json"


def is_limits_path(path: Path) -> bool:
    """Whether a file of that name holds limits and no entry."""
    return path.name.startswith(_NAME)


def mean_metrics(bound_jct_s: NDArray[np.float64], search_jct_s: NDArray[np.float64]) -> dict[str, float]:
    """`Limits.metrics` of values per workload."""
    named = {"bound_jct_s": bound_jct_s, "search_jct_s": search_jct_s}
    return {name: rounded(float(values.mean())) for name, values in named.items() if len(values)}


def write_limits(path: Path, limits: Limits) -> Path:
    """Writes limits, whole or not at all, and returns the path.

    Raises:
        LimitsError: The file cannot be written, or a value is not plain and finite.
    """
    return _KIND.write(path, limits)


def read_limits(path: Path) -> Limits:
    """Reads and checks limits.

    Raises:
        LimitsError: The file cannot be read, is none of this schema version, or its content is inconsistent.
    """
    return _KIND.read(path, _checked)


def _checked(content: dict[str, Any]) -> Limits:
    names = tuple(f.name for f in fields(Limits))
    require_fields(content, names)
    for name in ("scenario", "scenario_hash", "split", "version", "code_digest", "command"):
        require(isinstance(content[name], str) and content[name], name, "a text")
    for name in ("metrics", "options", "timing", "versions"):
        require(isinstance(content[name], dict), name, "a group of keys")
    require(is_number(content["interval_s"]) and content["interval_s"] > 0, "interval_s", "a positive number")
    require_digests(content)
    count = len(content["workload_digests"])
    bound, search = content["bound_jct_s"], content["search_jct_s"]
    for name, most in (("bound_jct_s", count), ("search_jct_s", count)):
        values = content[name]
        is_list = isinstance(values, list) and all(is_number(v) and v > 0 for v in values)
        require(is_list and len(values) <= most, name, f"a list of positive numbers, {most} at most")
    require(len(bound) == count, "bound_jct_s", f"{count} numbers, one per workload")
    for k, (least, reached) in enumerate(zip(bound, search, strict=False)):
        require(reached >= least * (1.0 - 1e-5), f"search_jct_s[{k}]", f"at least the bound {least} (it is {reached})")
    expected = mean_metrics(np.array(bound, dtype=np.float64), np.array(search, dtype=np.float64))
    require(set(content["metrics"]) == set(expected), "metrics", f"a group of {', '.join(expected)}")
    for name, value in expected.items():
        given = content["metrics"][name]
        is_mean = is_number(given) and math.isclose(value, given, rel_tol=1e-5)
        require(is_mean, f"metrics.{name}", f"{value}, what the values per workload give (it is {given})")
    unfinished = content["search_num_unfinished"]
    require(is_number(unfinished) and unfinished >= 0, "search_num_unfinished", "a number of jobs")
    options = content["options"]
    require(set(OPTIONS) <= set(options), "options", f"a group of {', '.join(OPTIONS)}")
    for name in OPTIONS:
        is_open = name == "search_seconds" and options[name] is None
        require(is_open or (is_number(options[name]) and options[name] >= 0), f"options.{name}", "a number")
    timing = content["timing"]
    is_timing = set(_TIMES) <= set(timing) and all(map(is_number, timing.values()))
    require(is_timing, "timing", f"numbers by name, {', '.join(_TIMES)} among them")
    values = {name: content[name] for name in names}
    for name in ("workload_digests", "bound_jct_s", "search_jct_s"):
        values[name] = tuple(values[name])
    return Limits(**values)
