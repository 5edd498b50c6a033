"""The folder of a training run: its settings, how far it is, and what it leaves.

| entry | content |
|---|---|
| `run.json` | settings, scenario hash, versions, results of the phases that are complete |
| `warmup/`, `last/`, `best/` | checkpoints: after the warm-up, to resume from, the best on validation workloads |
| `tensorboard/` | scalars of all phases |
| `validation.json` | figures of each validation |
| `summary.json`, `jobs.csv`, `table.txt`, `*.png` | the final comparison |
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.checkpoint import finish_swap
from agents.minari_data import is_minari
from agents.settings import RunSettings, read_settings
from dl2env.errors import ConfigError
from dl2env.evaluation.report import package_versions

SCHEMA = "dl2env-run"
SCHEMA_VERSION = 1

WARMUP, FINE_TUNING, EVALUATION = "warm-up", "fine-tuning", "evaluation"
PHASES = (WARMUP, FINE_TUNING, EVALUATION)
WARM_AGENT, TUNED_AGENT = AGENT_NAMES = "warm-up", "fine-tuned"
"""Names of the run's networks in tables."""


class RunFolder:
    """A run on disk; see the module's documentation.

    Attributes:
        path: The folder.
        settings: Settings of the run.
    """

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self._content = content
        self.settings: RunSettings = read_settings(content["settings"])

    @classmethod
    def create(cls, path: Path, settings: Mapping[str, Any]) -> RunFolder:
        """Starts a new run; nothing is written before the first `store`.

        Args:
            path: Folder.
            settings: Plain nested values, see `agents.settings.read_settings`.

        Raises:
            ConfigError: The settings are wrong, or the folder holds a run already.
        """
        if (path / "run.json").exists():
            raise ConfigError(f"{path}: holds a run already; continue it with resume={path} or choose another run_dir")
        content = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "settings": plain_settings(settings),
            "scenario": {},
            "versions": package_versions(),
            "phases": {},
        }
        return cls(path, content)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """A run that was started before.

        Raises:
            ConfigError: The folder holds no run that this code reads.
        """
        file = path / "run.json"
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ConfigError(f"{path}: no run to resume (run.json is missing); give the folder of a run") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: cannot be read ({error}); start a new run") from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ConfigError(f"{file}: not a training run; give a folder written by the training script")
        if content.get("schema_version") != SCHEMA_VERSION:
            raise ConfigError(
                f"{file}: schema version {content.get('schema_version')}, this code reads {SCHEMA_VERSION}; "
                "start a new run"
            )
        scenario = content.get("scenario")
        for key in ("settings", "scenario", "phases"):
            if not isinstance(content.get(key), dict):
                raise ConfigError(f"{file}: {key}: missing or not a group of keys; start a new run")
        if scenario and not (isinstance(scenario.get("hash"), str) and isinstance(scenario.get("name"), str)):
            raise ConfigError(f"{file}: scenario: name or hash is missing; start a new run")
        try:
            folder = cls(path, content)
        except ConfigError as error:
            raise ConfigError(f"{file}: settings: {error}") from error
        for checkpoint in (folder.warmup, folder.last, folder.best):
            finish_swap(checkpoint)
        return folder

    def store(self) -> None:
        """Writes `run.json`, whole or not at all."""
        write_json(self.path / "run.json", self._content)

    def bind_scenario(self, name: str, scenario_hash: str) -> None:
        """Notes the world of a new run, or makes sure that a resumed one is still in the same.

        Raises:
            ConfigError: The scenario, or a file that it reads, has changed since the run began.
        """
        known = self._content["scenario"]
        if known and known["hash"] != scenario_hash:
            raise ConfigError(
                f"{self.path}: scenario {known['name']} has changed since this run began; start a new run"
            )
        self._content["scenario"] = {"name": name, "hash": scenario_hash}
        self.store()

    def is_complete(self, phase: str) -> bool:
        """Whether a phase of `PHASES` is complete."""
        return phase in self._content["phases"]

    def result(self, phase: str) -> dict[str, Any]:
        """What a complete phase left with `complete`; empty if it is not complete."""
        return dict(self._content["phases"].get(phase, {}))

    def complete(self, phase: str, **result: Any) -> None:
        """Marks a phase as complete and keeps plain values with it."""
        self._content["phases"][phase] = result
        self.store()

    def adopt_warmup(self, other: RunFolder) -> None:
        """Takes the warm-up of a run whose settings would lead to the same one.

        Raises:
            ConfigError: That run has no complete warm-up.
        """
        if not (other.is_complete(WARMUP) and other.warmup.is_dir()):
            raise ConfigError(f"{other.path}: has no complete warm-up; run it first")
        draft = self.path / ".warmup.part"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(other.warmup, draft)
        shutil.rmtree(self.warmup, ignore_errors=True)
        draft.rename(self.warmup)
        self.complete(WARMUP, **other.result(WARMUP), taken_from=str(other.path))

    @property
    def plain_settings(self) -> dict[str, Any]:
        """The settings as they are stored."""
        return dict(self._content["settings"])

    @property
    def phases(self) -> dict[str, Any]:
        """Results of the complete phases."""
        return dict(self._content["phases"])

    @property
    def warmup(self) -> Path:
        """Checkpoint after the warm-up."""
        return self.path / "warmup"

    @property
    def last(self) -> Path:
        """Latest checkpoint of the fine-tuning."""
        return self.path / "last"

    @property
    def best(self) -> Path:
        """Checkpoint with the lowest mean JCT on the validation workloads."""
        return self.path / "best"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.path / "tensorboard"

    @property
    def table(self) -> Path:
        """The final comparison as text."""
        return self.path / "table.txt"

    @property
    def summary(self) -> Path:
        """The final comparison with everything needed to check or repeat it."""
        return self.path / "summary.json"

    def read_validations(self) -> list[dict[str, float]]:
        """Figures of the validations so far, in order, with `num_decisions`."""
        file = self.path / "validation.json"
        if not file.exists():
            return []
        try:
            validations: list[dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: cannot be read ({error}); remove it") from error
        is_list = isinstance(validations, list)
        if not is_list or not all(isinstance(v, dict) and "num_decisions" in v for v in validations):
            raise ConfigError(f"{file}: not a list of validations; remove it")
        return validations

    def write_validations(self, validations: list[dict[str, float]]) -> None:
        """Replaces the stored figures."""
        write_json(self.path / "validation.json", validations)


def write_json(path: Path, content: Any) -> None:
    """Writes plain values as JSON, whole or not at all.

    Raises:
        ConfigError: The file cannot be written.
    """
    draft = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another run_dir") from error


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are stored: plain JSON values, with file names that hold wherever the run is resumed."""
    absolute = json.loads(json.dumps(settings))
    trace = (absolute.get("workload") or {}).get("trace") or {}
    for group, key in ((absolute.get("workload"), "path"), (trace, "path"), (absolute.get("speed"), "table")):
        if group and group.get(key):
            group[key] = str(Path(group[key]).absolute())
    warmup = absolute.get("warmup") or {}
    if warmup.get("files"):
        warmup["files"] = [name if is_minari(name) else str(Path(name).absolute()) for name in warmup["files"]]
    scenario = absolute.get("scenario")
    if scenario and str(scenario.get("name", "")).endswith(".toml"):
        scenario["name"] = str(Path(scenario["name"]).absolute())
    return dict(absolute)
