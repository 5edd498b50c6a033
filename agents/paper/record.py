"""What a run leaves for the page: a small JSON file, written whole or not at all, read with checks.

It lies at `<folder>/<experiment>/seed-<seed>.json` and holds scores on each test workload, so that intervals over seeds
and workloads can be worked out again from the files alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.paper.claims import METRICS
from dl2env.errors import Dl2EnvError
from dl2env.evaluation.leaderboard.json_file import FieldError, FileKind, is_number, require, require_fields, rounded

MAX_CURVE = 50
"""Points of a curve at most."""

JCT = "mean_jct_intervals"
_TEXTS = ("experiment", "scenario", "scenario_hash", "tested_in", "settings_digest", "workloads", "code_digest")


class RecordError(Dl2EnvError):
    """A file holds no result that this code reads; the message names it and says why."""


_KIND = FileKind("dl2env-paper-run", 1, "result of a paper experiment", RecordError, "remove it and run that again")


@dataclass(frozen=True)
class Record:
    """A run's result.

    Attributes:
        experiment: File of `conf/experiment/paper`.
        seed: Training seed.
        scenario: Name of the world that it was tested in, changes to the scenario included.
        scenario_hash: Hash of that world.
        tested_in: The experiment whose world that is: its own, unless the table of claims says otherwise.
        settings: Settings of the run, those that are null left out.
        settings_digest: Digest of them.
        scale: Factor on the budgets that the experiment's file gives.
        workloads: First 16 digits of the SHA-256 of the test workloads' digests.
        num_workloads: N, test workloads.
        schedulers: Per scheduler and metric N values; utilisation only of the networks and DRF.
        curve: Validations: decisions, updates, mean JCT in intervals; thinned to `MAX_CURVE`.
        levels: Mean JCT of baselines on the same validation workloads.
        num_updates, num_decisions: What the fine-tuning took; 0 without one.
        decision_ms: 99th percentile of the time of one decision; None where it was not measured.
        timing: `cpu_s` of the process that finished it and `wall_s` by phase; differ from run to run.
        code_digest: Of the code that learns and simulates.
        versions, command: As in a summary.
    """

    experiment: str
    seed: int
    scenario: str
    scenario_hash: str
    tested_in: str
    settings: Mapping[str, Any]
    settings_digest: str
    scale: float
    workloads: str
    num_workloads: int
    schedulers: Mapping[str, Mapping[str, Sequence[float]]]
    curve: Sequence[Sequence[float]]
    levels: Mapping[str, float]
    num_updates: int
    num_decisions: int
    decision_ms: float | None
    timing: Mapping[str, float]
    code_digest: str
    versions: Mapping[str, str]
    command: str

    def scores(self, scheduler: str, metric: str = JCT) -> NDArray[np.float64] | None:
        """(N,) values of a scheduler; None if it was not compared."""
        values = self.schedulers.get(scheduler, {}).get(metric)
        return None if values is None else np.array(values, dtype=np.float64)


def record_path(folder: Path, experiment: str, seed: int) -> Path:
    """Where a result lies."""
    return folder / experiment / f"seed-{seed}.json"


def write_record(folder: Path, record: Record) -> Path:
    """Writes a result and returns its path.

    Raises:
        RecordError: The file cannot be written.
    """
    return _KIND.write(record_path(folder, record.experiment, record.seed), record)


def read_record(path: Path) -> Record:
    """Reads and checks a result.

    Raises:
        RecordError: The file cannot be read, is none of this schema version, or its content is inconsistent.
    """
    record = _KIND.read(path, _checked)
    if path != record_path(path.parents[1], record.experiment, record.seed):
        raise RecordError(
            f"{path}: holds seed {record.seed} of {record.experiment}; give the file that place and name, or remove it"
        )
    return record


def read_records(folder: Path) -> dict[str, list[Record]]:
    """All results below a folder by experiment, in order of their seeds.

    Raises:
        RecordError: A file is damaged.
    """
    found: dict[str, list[Record]] = {}
    for path in sorted(folder.glob("*/seed-*.json")):
        record = read_record(path)
        found.setdefault(record.experiment, []).append(record)
    return {name: sorted(records, key=lambda record: record.seed) for name, records in found.items()}


def _checked(content: dict[str, Any]) -> Record:
    names = tuple(f.name for f in fields(Record))
    require_fields(content, names)
    for name in _TEXTS:
        require(isinstance(content[name], str) and content[name], name, "a text")
    for name in ("settings", "schedulers", "levels", "timing", "versions"):
        require(isinstance(content[name], dict), name, "a group of keys")
    for name in ("seed", "num_workloads", "num_updates", "num_decisions", "scale"):
        require(is_number(content[name]) and content[name] >= 0, name, "a number, not negative")
    require(content["decision_ms"] is None or is_number(content["decision_ms"]), "decision_ms", "a number or null")
    for name, metrics in content["schedulers"].items():
        require(isinstance(metrics, dict) and JCT in metrics, f"schedulers.{name}", f"a group of keys with {JCT}")
        for metric, values in metrics.items():
            is_list = isinstance(values, list) and all(is_number(v) and v >= 0 for v in values)
            count = content["num_workloads"]
            is_right = is_list and len(values) == count
            require(is_right, f"schedulers.{name}.{metric}", f"a list of {count} numbers, none negative")
    curve = content["curve"]
    is_list = isinstance(curve, list) and all(isinstance(p, list) and len(p) == 3 for p in curve)
    require(is_list and len(curve) <= MAX_CURVE, "curve", f"a list of at most {MAX_CURVE} points of three numbers")
    require(all(is_number(value) for point in curve for value in point), "curve", "numbers")
    for group in ("levels", "timing"):
        for name, value in content[group].items():
            if not is_number(value):
                raise FieldError(f"{group}.{name} must be a number")
    return Record(**{name: content[name] for name in names})


def build_schedulers(summary: Mapping[str, Any], with_utilisation: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """`Record.schedulers` from a run's `summary.json`."""
    interval_s = float(summary["config"]["dynamics"]["interval_s"])
    schedulers: dict[str, dict[str, list[float]]] = {}
    for name, entry in summary["schedulers"].items():
        values = entry["per_workload"]
        schedulers[name] = {JCT: [rounded(value / interval_s) for value in values["mean_jct_s"]]}
        if name in with_utilisation:
            schedulers[name].update({metric: [round(value, 4) for value in values[metric]] for metric in METRICS})
    return schedulers


def thinned(curve: Sequence[Sequence[float]]) -> list[list[float]]:
    """At most `MAX_CURVE` points, evenly spaced, the first and last among them."""
    count = len(curve)
    kept = sorted({round(k * (count - 1) / (MAX_CURVE - 1)) for k in range(MAX_CURVE)}) if count > MAX_CURVE else None
    return [[rounded(float(v)) for v in curve[k]] for k in (range(count) if kept is None else kept)]


def workloads_digest(digests: Sequence[str]) -> str:
    """`Record.workloads`."""
    return sha256("\n".join(digests).encode()).hexdigest()[:16]
