"""The runs behind the page: an experiment of `conf/experiment/paper` with one seed, and the record it leaves."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agents.multi_run import TrainingRun, settings_digest, without_null
from agents.paper.record import (
    Record,
    build_schedulers,
    read_record,
    record_path,
    thinned,
    workloads_digest,
    write_record,
)
from agents.run_folder import FINE_TUNING, TUNED_AGENT, WARM_AGENT, WARMUP, RunFolder, write_json
from agents.scheduler import CheckpointScheduler
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.code_digest import code_digest
from dl2env.evaluation.leaderboard.json_file import rounded

_MIN_WARMUP = 1024  # decisions
_OTHER_WORLD = "other_world.json"  # beside summary.json


@dataclass(frozen=True)
class PaperRun(TrainingRun):
    """A run that leaves a record.

    Attributes:
        experiment: Its experiment.
        scale: What its budgets were multiplied by.
        records: Folder of the records.
        tested_in: Experiment in whose world its networks are compared; empty: its own.
        test_settings: Settings of that experiment.
        is_timed: Time single decisions too.
        replace: A record of other settings may be replaced.
    """

    experiment: str = ""
    scale: float = 1.0
    records: Path = Path()
    tested_in: str = ""
    test_settings: Mapping[str, Any] | None = None
    is_timed: bool = False
    replace: bool = False

    @property
    def record_path(self) -> Path:
        """Where the record goes."""
        return record_path(self.records, self.experiment, int(self.settings["seed"]))

    @property
    def is_done(self) -> bool:
        """Whether its record is there.

        Raises:
            RecordError: The record is damaged.
            ConfigError: It is of other settings, and must not be replaced.
        """
        if not self.record_path.exists():
            return False
        record = read_record(self.record_path)
        if record.settings_digest == settings_digest(self.settings):
            return True
        if not self.replace:
            raise ConfigError(
                f"{self.record_path}: made with other settings (scale {record.scale:g}); replace it with replace=true, "
                "or choose another out"
            )
        return False

    def run(self, progress: Callable[[float], None]) -> str:
        """Runs what is not done yet and writes the record, whose path it returns."""
        started = time.process_time()
        summary_path = Path(super().run(progress))
        folder = RunFolder.open(self.path)
        summary = json.loads(summary_path.read_text(encoding="utf-8"))
        compared = self._in_other_world(folder, summary) if self.test_settings is not None else summary
        tuning = folder.result(FINE_TUNING)
        curve = [(v["num_decisions"], v["num_updates"], v["avg_jct"]) for v in folder.read_validations()]
        record = Record(
            experiment=self.experiment,
            seed=folder.settings.seed,
            scenario=compared["scenario"]["name"],
            scenario_hash=compared["scenario"]["hash"],
            tested_in=self.tested_in or self.experiment,
            settings=without_null(folder.plain_settings),
            settings_digest=settings_digest(self.settings),
            scale=self.scale,
            workloads=workloads_digest(compared["workload_digests"]),
            num_workloads=len(compared["workload_digests"]),
            schedulers=build_schedulers(compared, (WARM_AGENT, TUNED_AGENT, "drf")),
            curve=thinned(curve),
            levels={name: rounded(value) for name, value in summary["extra"]["validation_levels"].items()},
            num_updates=tuning.get("num_updates", 0),
            num_decisions=tuning.get("num_decisions", 0),
            decision_ms=self._decision_ms(folder) if self.is_timed else None,
            timing={
                "cpu_s": round(time.process_time() - started, 1),
                **{f"{name}_wall_s": round(r["wall_s"], 1) for name, r in folder.phases.items() if "wall_s" in r},
            },
            code_digest=learning_code_digest(),
            versions=summary["versions"],
            command=f"python scripts/train.py experiment=paper/{self.experiment} seed={folder.settings.seed}",
        )
        return str(write_record(self.records, record))

    def _in_other_world(self, folder: RunFolder, summary: Mapping[str, Any]) -> dict[str, Any]:
        """The summary of a comparison of the run's networks with the baselines of another experiment, in its world."""
        from agents.pipeline import build_world
        from dl2env.evaluation.report import build_summary
        from dl2env.evaluation.runner import evaluate

        path = self.path / _OTHER_WORLD
        if path.is_file():
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return content
        assert self.test_settings is not None
        other = RunFolder.create(self.path / "other", {**self.test_settings, "seed": folder.settings.seed})
        world = build_world(other)
        places = {WARM_AGENT: folder.warmup, TUNED_AGENT: folder.best}
        agents = {
            name: CheckpointScheduler(
                places[name], summary["extra"]["agents"][name]["way"] == "deterministic", folder.settings.seed, name
            )
            for name in summary["extra"]["agents"]
        }
        options = other.settings.evaluation
        result = evaluate({**world.baselines, **agents}, world.scenario, "test", options.num_workloads, options.batch)
        content = build_summary(result, options.compare_with)
        write_json(path, content)
        return content

    def _decision_ms(self, folder: RunFolder) -> float:
        """99th percentile of the time of one decision in ms, on a validation workload, one cluster at a time."""
        from agents.pipeline import build_world
        from dl2env.evaluation.runner import run_scheduler

        world = build_world(folder)
        agent = CheckpointScheduler(folder.best if folder.settings.fine_tuning.enabled else folder.warmup)
        latency = run_scheduler(agent, world.config, world.validation[:1], batch=1).latency
        return rounded(1e3 * latency.p99_call_s)


@cache
def learning_code_digest() -> str:
    """Digest of the code that a run's result depends on."""
    return code_digest(["agents.pipeline", "dl2env.evaluation.runner"])


def scaled(settings: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Settings with budgets multiplied: decisions of warm-up and fine-tuning, updates, and updates between validations.

    Raises:
        ConfigError: The scale is not positive.
    """
    if not (isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale < float("inf")):
        raise ConfigError(f"scale={scale} must be a positive number")
    values: dict[str, Any] = json.loads(json.dumps(settings))
    warmup, tuning = values["warmup"], values[values["algorithm"]]
    budgets = [(warmup, "num_decisions", _MIN_WARMUP)]
    budgets += [(tuning, key, 1) for key in ("num_decisions", "num_updates", "validate_every")]
    for group, key, least in budgets:
        value = group[key]
        if isinstance(value, int) and value > 0:  # what is wrong stays so, and is found
            group[key] = max(least, round(scale * value))
    return values


def share_warmups(runs: Sequence[PaperRun], folder: Path) -> tuple[list[TrainingRun], list[PaperRun]]:
    """Finds runs that would make the same warm-up, which then one run makes for all of them.

    Args:
        runs: Runs that are not done.
        folder: Where the runs of the warm-ups go.

    Returns:
        The runs of the warm-ups, and the runs, told where theirs is.
    """
    waiting = [run for run in runs if run.checked.warmup.enabled and not _has_warmup(run.path)]
    settings = {run.label: only_warmup(run.settings) for run in waiting}
    keys = {label: settings_digest(values) for label, values in settings.items()}
    shared = {key for key in keys.values() if list(keys.values()).count(key) > 1}
    makers: dict[str, TrainingRun] = {}
    for run in waiting:
        key = keys[run.label]
        if key in shared and key not in makers:
            seed = run.settings["seed"]
            path = folder / run_folder_name(seed, key)
            makers[key] = TrainingRun(f"warm-up {key}, seed {seed}", path, settings[run.label], command=run.command)
    told = [
        dataclasses.replace(run, warmup_of=makers[keys[run.label]].path) if keys.get(run.label) in makers else run
        for run in runs
    ]
    return list(makers.values()), told


def run_folder_name(seed: int, digest: str) -> str:
    """Name of a run's folder: other settings and other code have folders of their own."""
    return f"seed-{seed}-{digest}-{learning_code_digest()[:6]}"


def _has_warmup(path: Path) -> bool:
    return (path / "run.json").is_file() and RunFolder.open(path).is_complete(WARMUP)


def only_warmup(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same run up to the end of its warm-up, without what has no part in it, compared no more than it must be."""
    values: dict[str, Any] = json.loads(json.dumps(settings))
    values["name"] = "paper/warmup"
    is_critic_trained = bool(values["warmup"]["value_coef"])
    for algorithm in ("ppo", "dl2"):
        kept = values[algorithm] if is_critic_trained and algorithm == values["algorithm"] else {}
        values[algorithm] = {**kept, "enabled": False}
    if not is_critic_trained:
        values["env"].pop("reward", None)
    values["evaluation"] = {
        "baselines": [],
        "compare_with": [],
        "num_workloads": 1,
        "num_validation_workloads": 1,
        "decide": "sampled",
        "plots": False,
    }
    return values
