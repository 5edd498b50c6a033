"""Measures how fast simulator, environments and training are, in decisions per CPU-second of one process.

- `python scripts/benchmark.py`: everything, a few minutes
- `python scripts/benchmark.py repeats=2 seconds=0.2`: quick
- `python scripts/benchmark.py part=scaling scaling.trace=<philly.csv>`: CPU time and memory of whole traces over their
  number of jobs, with a plot; without a file on a synthetic trace only

CPU time does not count other programs, but they still cost caches and clock rate: compare figures of one machine, taken
one after the other, and look at the calibration lines first.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, UnknownNameError
from scripts import command_line
from scripts.benchmark_scaling import ScalingSettings

PARTS = ("speed", "scaling")


@dataclass(frozen=True)
class BenchmarkSettings:
    """What is measured.

    Attributes:
        part: `speed`: decisions per second; `scaling`: how cost grows with the number of jobs, by the keys of
            `scaling` alone.
        scenario: World of all measurements; only its window is changed.
        windows: Numbers of job slots J for the vector environment.
        batches: Numbers of environments B for the vector environment.
        repeats: Repetitions of each measurement.
        seconds: CPU seconds of each repetition, about.
        episodes: Workloads per repetition of a heuristic.
        num_envs: Environments that PPO learns in.
        threads: Numbers of torch threads to measure PPO with.
        scaling: What is run for `part=scaling`.
    """

    part: str
    scenario: str
    windows: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int
    seconds: float
    episodes: int
    num_envs: int
    threads: tuple[int, ...]
    scaling: ScalingSettings

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise UnknownNameError("part", self.part, PARTS)
        for name in ("repeats", "seconds", "episodes", "num_envs"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be positive")
        for name in ("windows", "batches", "threads"):
            if any(value < 1 for value in getattr(self, name)):
                raise ConfigError(f"{name}={list(getattr(self, name))}: every entry must be at least 1")


def read_settings(values: Mapping[str, Any]) -> BenchmarkSettings:
    """Settings from what `conf/benchmark.yaml` composes to; of the group `scenario` only the name.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    settings: BenchmarkSettings = config_from_dict(
        BenchmarkSettings, {**values, "scenario": values["scenario"]["name"]}, "benchmark"
    )
    return settings


def benchmark(values: dict[str, Any], path: Path) -> None:
    """Measures, prints a line per measurement, and writes `summary.json`."""
    settings = read_settings(values)
    from agents.run_folder import write_json
    from dl2env.evaluation.report import package_versions

    measured = _scaling(settings.scaling, path) if settings.part == "scaling" else _speed(settings)
    summary = {
        "schema": "dl2env-benchmark",
        "schema_version": 1,
        "settings": asdict(settings),
        "machine": {"processor": platform.processor() or platform.machine(), "system": platform.platform()},
        "versions": package_versions(),
        "command": sys.argv,
        "measurements": measured,
    }
    write_json(path / "summary.json", summary)
    print(path / "summary.json")


def _speed(settings: BenchmarkSettings) -> list[dict[str, Any]]:
    from scripts.benchmark_cases import cases

    print(f"{settings.scenario}, one process, {settings.repeats} repetitions: median [smallest, largest]")
    measured = []
    for case in cases(settings):
        rates = case.measure(settings.repeats)
        print(rates.line(), flush=True)
        measured.append(rates.plain())
    return measured


def _scaling(settings: ScalingSettings, path: Path) -> list[dict[str, Any]]:
    from dl2env.schedulers import get_scheduler
    from scripts.benchmark_scaling import HEAD, curves, exponent, measure, plain, plot

    for name in settings.schedulers:
        get_scheduler(name)  # a wrong name is found before anything runs
    if settings.trace is None:
        print("recorded trace skipped: no file; scaling.trace=<the Philly-derived CSV> adds it", file=sys.stderr)
    print(f"{settings.servers} servers, a process per line\n{HEAD}", flush=True)
    points = []
    for point in measure(settings):
        print(point.line(), flush=True)
        points.append(point)
    for (workload, scheduler), found in curves(points).items():
        growth = exponent(found)
        if growth is not None:
            print(f"{scheduler} on {workload}: CPU time grows as jobs^{growth[1]:.2f} from {growth[0]:,} jobs on")
    print(plot(points, path / "scaling.png"))
    return plain(points)


if __name__ == "__main__":
    command_line.run(benchmark, "benchmark")
