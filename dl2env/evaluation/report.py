"""What an evaluation says: a printed table, `summary.json` and a table of all jobs.

Everything but the decision times is a function of the scenario, the schedulers and the seed, so two runs of one command
give the same table and the same summary, its `timing` part aside.
"""

from __future__ import annotations

import csv
import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import dl2env
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError
from dl2env.evaluation.metrics import METRIC_NAMES, IsolatedSpeeds, completion_times, penalised_completion_times
from dl2env.evaluation.runner import Evaluation, SchedulerResult
from dl2env.evaluation.statistics import (
    CONFIDENCE,
    NUM_RESAMPLES,
    Interval,
    mean_interval,
    probability_of_improvement,
    reduction_interval,
)
from dl2env.evaluation.whole_file import write_whole

if TYPE_CHECKING:
    from dl2env.workload.jobs import Workload

SCHEMA_VERSION = 1
BASELINES = ("drf", "optimus")
_PACKAGES = ("dl2env", "numpy", "numba", "gymnasium", "torch", "stable-baselines3", "sb3-contrib")


@dataclass(frozen=True)
class Comparison:
    """One scheduler's mean JCT and how it compares with the baselines, with 95 % intervals over workloads.

    Attributes:
        name: Scheduler.
        mean_jct: Mean JCT in intervals.
        reductions: Relative reduction of mean JCT against each baseline that was run, itself left out.
        improvements: Share of workloads on which its mean JCT is below each baseline's, ties counting one half.
    """

    name: str
    mean_jct: Interval
    reductions: dict[str, Interval]
    improvements: dict[str, Interval]


def compare(evaluation: Evaluation, baselines: Sequence[str] = BASELINES, seed: int = 0) -> list[Comparison]:
    """Compares every scheduler with the baselines.

    Every interval draws from a generator of the same seed: all schedulers see the same resamples of workloads, and a
    further scheduler in the run changes no one else's interval.

    Args:
        evaluation: What was run.
        baselines: Names of schedulers; those that were not run are left out.
        seed: Seed of the resamples.
    """
    rows = []
    for name in evaluation.results:
        scores = evaluation.scores(name)
        others = {b: evaluation.scores(b) for b in baselines if b in evaluation.results and b != name}
        rows.append(
            Comparison(
                name,
                mean_interval(scores, np.random.default_rng(seed)),
                {b: reduction_interval(scores, other, np.random.default_rng(seed)) for b, other in others.items()},
                {
                    b: probability_of_improvement(scores, other, np.random.default_rng(seed))
                    for b, other in others.items()
                },
            )
        )
    return rows


def format_table(evaluation: Evaluation, baselines: Sequence[str] = BASELINES, seed: int = 0) -> str:
    """The result as aligned plain text, one line per scheduler in the order they ran, with a line on how to read it."""
    shown = [b for b in baselines if b in evaluation.results]
    header = ["scheduler", "mean JCT", *(f"less than {b}" for b in shown)]
    header += ["p99 JCT", "GPU use", "illegal", "unfinished", "ms/decision"]
    rows = [header]
    for row in compare(evaluation, baselines, seed):
        result = evaluation.results[row.name]
        interval_s = evaluation.scenario.config.dynamics.interval_s
        rows.append(
            [
                row.name,
                _with_bounds(row.mean_jct, 1.0, 2),
                *(_with_bounds(row.reductions[b], 100.0, 1, " %") if b in row.reductions else "-" for b in shown),
                f"{result.values('p99_jct_s').mean() / interval_s:.2f}",
                f"{100 * result.values('gpu_utilisation').mean():.1f} %",
                str(int(result.num_illegal.sum())),
                _unfinished(result),
                f"{result.latency.ms_per_decision:.3g}",
            ]
        )
    lines = [
        f"{evaluation.scenario.name}, {len(evaluation.workloads)} {evaluation.split} workloads. JCT in intervals of "
        f"{evaluation.scenario.config.dynamics.interval_s:g} s, mean over workloads [95 % bootstrap interval]",
        *_aligned(rows),
    ]
    if any(result.values("num_unfinished").any() for result in evaluation.results.values()):
        lines.append(
            "* some jobs did not finish before truncation: their JCT counts as the time up to there and what their "
            "remaining work takes alone at its best allocation"
        )
    if evaluation.interrupted:
        lines.append("interrupted: schedulers that had not finished are missing")
    return "\n".join(lines)


def build_summary(
    evaluation: Evaluation,
    baselines: Sequence[str] = BASELINES,
    *,
    seed: int = 0,
    command: Sequence[str] | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything needed to check or repeat a result, as plain values for `summary.json`.

    Args:
        evaluation: What was run.
        baselines: As in `compare`.
        seed: Seed of the bootstrap resamples.
        command: Command line that made the result.
        extra: Further plain values of the caller's (training seeds, budget, checkpoint), under the key `extra`.
    """
    scenario = evaluation.scenario
    comparisons = {row.name: row for row in compare(evaluation, baselines, seed)}
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": {"name": scenario.name, "version": scenario.version, "hash": scenario.hash()},
        "config": config_to_dict(scenario.config),
        "split": evaluation.split,
        "workload_seed": scenario.seed,
        "workload_digests": [workload.digest() for workload in evaluation.workloads],
        "bootstrap": {"seed": seed, "num_resamples": NUM_RESAMPLES, "confidence": CONFIDENCE},
        "schedulers": {
            name: {
                "mean_jct_intervals": _interval_values(comparisons[name].mean_jct),
                "reduction_vs": {b: _interval_values(x) for b, x in comparisons[name].reductions.items()},
                "improvement_probability_vs": {
                    b: _interval_values(x) for b, x in comparisons[name].improvements.items()
                },
                "window": result.config.observation.window,
                "estimate": config_to_dict(result.config.estimate),
                "num_illegal": result.num_illegal.tolist(),
                "num_unfinished": int(result.values("num_unfinished").sum()),
                "per_workload": {
                    metric: [getattr(metrics, metric) for metrics in result.metrics] for metric in METRIC_NAMES
                },
            }
            for name, result in evaluation.results.items()
        },
        "interrupted": evaluation.interrupted,
        "versions": package_versions(),
        "command": None if command is None else list(command),
        "extra": extra or {},
        "timing": {
            name: {
                "ms_per_decision": result.latency.ms_per_decision,
                "p99_call_ms": 1e3 * result.latency.p99_call_s,
                "num_decisions": result.latency.num_decisions,
                "total_s": result.latency.total_s,
            }
            for name, result in evaluation.results.items()
        },
    }


def write_summary(path: Path, summary: dict[str, Any]) -> Path:
    """Writes a summary as JSON, whole or not at all, and returns the path.

    Raises:
        ConfigError: The file cannot be written, or a value is no plain finite value.
    """
    try:
        text = json.dumps(summary, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: the summary holds a value that JSON cannot ({error}); convert it first") from error
    try:
        return write_whole(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error


def write_jobs(path: Path, evaluation: Evaluation) -> Path:
    """Writes one CSV row per scheduler, workload and job (times in seconds), and returns the path.

    `jct_s` of an unfinished job, whose `finish_s` is empty, is what the metrics count: its time until truncation, and
    what its remaining work takes alone at its best allocation.

    Raises:
        ConfigError: The file cannot be written.
    """
    header = "scheduler,workload,job,type,arrival_s,start_s,finish_s,jct_s,gpu_s,num_resizes,intervals_run".split(",")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            for name, result in evaluation.results.items():
                jct_of_workloads = counted_jct(result, evaluation.workloads)
                for w, (records, workload) in enumerate(zip(result.records, evaluation.workloads, strict=True)):
                    jct_s = jct_of_workloads[w]
                    for i in range(workload.num_jobs):
                        times = (records.arrival_s[i], records.start_s[i], records.finish_s[i], jct_s[i])
                        writer.writerow(
                            [
                                name,
                                w,
                                i,
                                workload.type_names[workload.type_idx[i]],
                                *("" if math.isnan(value) else repr(float(value)) for value in times),
                                repr(float(records.gpu_s[i])),
                                int(records.num_resizes[i]),
                                int(records.intervals_run[i]),
                            ]
                        )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    return path


def counted_jct(result: SchedulerResult, workloads: Sequence[Workload]) -> list[NDArray[np.float64]]:
    """Per workload the JCT of its jobs in seconds as the metrics count it, `metrics.penalised_completion_times`."""
    from dl2env.sim.simulator import ClusterSimulator

    if not result.values("num_unfinished").any():
        return [completion_times(records) for records in result.records]
    speeds = IsolatedSpeeds.of(ClusterSimulator(result.config, 1, max_jobs=1))
    pairs = zip(result.records, workloads, strict=True)
    return [penalised_completion_times(records, workload, speeds) for records, workload in pairs]


def package_versions() -> dict[str, str]:
    """Versions of Python, of this package and of the packages that can influence a result, if they are loaded."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        if package.replace("-", "_") not in sys.modules:
            continue
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # a checkout on the path, not installed
            if package == "dl2env":
                versions[package] = dl2env.__version__
    return versions


def _unfinished(result: SchedulerResult) -> str:
    count = int(result.values("num_unfinished").sum())
    return f"{count}*" if count else "0"


def _interval_values(interval: Interval) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in interval._asdict().items()}


def _with_bounds(interval: Interval, scale: float, digits: int, unit: str = "") -> str:
    value, low, high = (f"{scale * x:.{digits}f}" for x in interval)
    bounds = "" if math.isnan(interval.low) else f" [{low}, {high}]"
    return f"{value}{unit}{bounds}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
