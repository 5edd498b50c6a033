"""A training repeated with several seeds: a folder of runs that differ in nothing else, and the table over them.

| entry | content |
|---|---|
| `run.json` | settings, seeds, versions |
| `seed-<seed>/` | the run of each seed, see `agents.run_folder` |
| `table.md`, `summary.json` | means and intervals over seeds and workloads |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.multi_run import TrainingRun, read_seeds
from agents.run_folder import TUNED_AGENT, WARM_AGENT, plain_settings, write_json
from agents.settings import read_settings
from dl2env.errors import ConfigError
from dl2env.evaluation.report import package_versions
from dl2env.evaluation.seeds import per_seed_lines, read_summaries, scores, seeds_table
from dl2env.evaluation.statistics import Interval, mean_interval, reduction_interval

SCHEMA = "dl2env-seeds"
SCHEMA_VERSION = 1


class SeedsFolder:
    """Runs on disk; see the module's documentation.

    Attributes:
        path: The folder.
        seeds: Training seeds.
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path = path
        self._content = dict(content)
        self.seeds = read_seeds(content["seeds"])
        self._settings: dict[str, Any] = content["settings"]
        self.compare_with = read_settings({**self._settings, "seed": self.seeds[0]}).evaluation.compare_with

    @classmethod
    def create(cls, path: Path, settings: Mapping[str, Any], seeds: Sequence[int]) -> SeedsFolder:
        """Starts a new set of runs and notes it on disk.

        Args:
            path: Folder.
            settings: Plain nested values, see `agents.settings.read_settings`; `seed` has no effect.
            seeds: Training seeds.

        Raises:
            ConfigError: The settings or the seeds are wrong, or the folder holds a run already.
        """
        if (path / "run.json").exists():
            raise ConfigError(f"{path}: holds a run already; continue it with resume={path} or choose another run_dir")
        shared = {key: value for key, value in plain_settings(settings).items() if key != "seed"}
        content = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "settings": shared,
            "seeds": read_seeds(seeds),
            "versions": package_versions(),
        }
        folder = cls(path, content)
        write_json(path / "run.json", content)
        return folder

    @classmethod
    def open(cls, path: Path) -> SeedsFolder:
        """A set of runs that was started before.

        Raises:
            ConfigError: The folder holds none that this code reads.
        """
        content = _read(path)
        if content.get("schema") != SCHEMA or content.get("schema_version") != SCHEMA_VERSION:
            raise ConfigError(f"{path / 'run.json'}: not a set of runs that this code reads; start a new one")
        if not isinstance(content.get("settings"), dict) or "seeds" not in content:
            raise ConfigError(f"{path / 'run.json'}: settings or seeds are missing; start a new one")
        try:
            return cls(path, content)
        except ConfigError as error:
            raise ConfigError(f"{path / 'run.json'}: {error}") from error

    def runs(self, command: Sequence[str] = ()) -> list[TrainingRun]:
        """The run of each seed."""
        return [
            TrainingRun(f"seed {seed}", self._folder(seed), {**self._settings, "seed": seed}, command=command)
            for seed in self.seeds
        ]

    def _folder(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def aggregate(self, command: Sequence[str] = ()) -> tuple[str, Path]:
        """Puts the finished runs together; returns the table and the path of `summary.json`.

        Raises:
            ConfigError: A run is not finished.
        """
        summaries = read_summaries([self._folder(seed) for seed in self.seeds])
        first = summaries[0]
        names = list(first["schedulers"])
        agent = TUNED_AGENT if TUNED_AGENT in names else WARM_AGENT
        lines = [
            f"{first['scenario']['name']}, {len(first['workload_digests'])} {first['split']} workloads, "
            f"{len(summaries)} training seeds",
            "",
            seeds_table(summaries, self.compare_with),
            "",
            *per_seed_lines(summaries, agent, self.compare_with),
        ]
        table = "\n".join(lines)
        (self.path / "table.md").write_text(table + "\n", encoding="utf-8")
        rows = {name: scores(summaries, name) for name in names}
        content = {
            "seeds": self.seeds,
            "scenario": first["scenario"],
            "split": first["split"],
            "workload_digests": first["workload_digests"],
            "schedulers": {
                name: {
                    "mean_jct_intervals": _plain(mean_interval(_once(own), np.random.default_rng(0))),
                    "reduction_vs": {
                        other: _plain(reduction_interval(_once(own), _once(rows[other]), np.random.default_rng(0)))
                        for other in self.compare_with
                        if other in rows and other != name
                    },
                }
                for name, own in rows.items()
            },
            "runs": [f"{self._folder(seed).name}/summary.json" for seed in self.seeds],
            "versions": package_versions(),
            "command": list(command),
        }
        path = self.path / "summary.json"
        write_json(path, content)
        return table, path


def is_seeds_folder(path: Path) -> bool:
    """Whether a folder holds a set of runs, finished or not.

    Raises:
        ConfigError: It holds neither a set of runs nor a run.
    """
    return _read(path).get("schema") == SCHEMA


def _read(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); start a new run") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: not a run; start a new one")
    return content


def _once(rows: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Scores that no training touches are the same in every run and count once, as in `seeds_table`."""
    return rows[:1] if (rows == rows[0]).all() else rows


def _plain(interval: Interval) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in interval._asdict().items()}
