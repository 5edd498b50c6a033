"""Measures how fast simulator, environments and training are, in decisions per CPU-second of one process.

- `python scripts/benchmark.py`: everything, a few minutes
- `python scripts/benchmark.py repeats=2 seconds=0.2`: quick

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
from dl2env.errors import ConfigError
from scripts import command_line


@dataclass(frozen=True)
class BenchmarkSettings:
    """What is measured.

    Attributes:
        scenario: World of all measurements; only its window is changed.
        windows: Numbers of job slots J for the vector environment.
        batches: Numbers of environments B for the vector environment.
        repeats: Repetitions of each measurement.
        seconds: CPU seconds of each repetition, about.
        episodes: Workloads per repetition of a heuristic.
        num_envs: Environments that PPO learns in.
        threads: Numbers of torch threads to measure PPO with.
    """

    scenario: str
    windows: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int
    seconds: float
    episodes: int
    num_envs: int
    threads: tuple[int, ...]

    def __post_init__(self) -> None:
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
    from scripts.benchmark_cases import cases

    print(f"{settings.scenario}, one process, {settings.repeats} repetitions: median [smallest, largest]")
    measured = []
    for case in cases(settings):
        rates = case.measure(settings.repeats)
        print(rates.line(), flush=True)
        measured.append(rates.plain())
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


if __name__ == "__main__":
    command_line.run(benchmark, "benchmark")
