"""Settings of a training run as dataclasses, and the world that they describe.

A run is described by nested plain values with the keys of `RunSettings` (what `conf/` composes to). The groups
`workload`, `speed` and `env` change single values of the scenario; null leaves the scenario's value.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from agents.dl2_config import DL2Config
from agents.networks import NetworkConfig
from agents.ppo import PPOConfig
from agents.warmup import WarmupConfig
from agents.world_keys import WORLD_GROUPS
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError
from dl2env.scenarios import Scenario, get_scenario

Decide = Literal["best", "sampled", "deterministic"]

_NOT_COMPARED = ("reward.", "observation.type_encoding")
"""Overrides that change what a learner is told, not the world, and so are no part of the world's name."""


@dataclass(frozen=True)
class WarmupSettings(WarmupConfig):
    """The supervised warm-up and the recording before it; further attributes: `WarmupConfig`.

    Attributes:
        enabled: Off: fine-tuning starts from random weights.
        teacher: Scheduler to learn from: a registered name, `package.module:Class` or a checkpoint folder.
        num_envs: Environments that the teacher plays in at once.
        files: Recordings to learn from instead: files or folders of `scripts/make_traces.py`, or `minari:<dataset id>`.
            `teacher`, `num_envs` and `num_decisions` then have no effect.
        file_weights: How the decisions of an epoch are shared between the files; empty: every decision counts alike.
    """

    enabled: bool = True
    teacher: str = "drf"
    num_envs: int = 64
    files: tuple[str, ...] = ()
    file_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_envs < 1:
            raise ConfigError(f"warmup.num_envs={self.num_envs} must be at least 1")
        if self.file_weights and not self.files:
            raise ConfigError("warmup.file_weights: there are no warmup.files; give them or leave it out")


@dataclass(frozen=True)
class FineTuningSettings(PPOConfig):
    """Fine-tuning by PPO; further attributes: `PPOConfig`.

    Attributes:
        enabled: Off: the run ends with the warm-up.
        num_envs: B, environments to learn in.
        num_decisions: Decisions to learn from in all; rounded up to whole updates. The schedules end there.
        num_updates: End after that many updates, if that comes first; None: never.
        validate_every: Updates between validations; there is one more at the end.
        patience: Early stop: end after that many validations in a row without a lower mean JCT; None: never.
        checkpoint_every: Updates between checkpoints to resume from.
        scenarios: Learn in these scenarios at once, environments shared out evenly, instead of in the run's own.
            Validations are then made on the validation workloads of each; the figures are means over the scenarios.
    """

    enabled: bool = True
    num_envs: int = 64
    num_decisions: int = 2_000_000
    num_updates: int | None = None
    validate_every: int = 20
    patience: int | None = None
    checkpoint_every: int = 10
    scenarios: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_budget("ppo", self)
        if len(set(self.scenarios)) < len(self.scenarios):
            raise ConfigError(f"ppo.scenarios={list(self.scenarios)} names a scenario twice; remove one")
        if len(self.scenarios) > self.num_envs:
            raise ConfigError(
                f"ppo.scenarios: {len(self.scenarios)} scenarios need as many ppo.num_envs, not {self.num_envs}"
            )
        minibatch_size = self.minibatch_size or 0
        if self.enabled and minibatch_size > self.steps_per_update * self.num_envs:
            raise ConfigError(
                f"ppo.minibatch_size={minibatch_size} exceeds the decisions of an update, ppo.steps_per_update="
                f"{self.steps_per_update} times ppo.num_envs={self.num_envs}; lower it or collect more"
            )


@dataclass(frozen=True)
class DL2Settings(DL2Config):
    """Fine-tuning by DL2's own learner; further attributes: `DL2Config`.

    Attributes:
        enabled: Off: the run ends with the warm-up.
        num_envs: B, environments to learn in: clusters that share one network. 1 is the paper's single scheduler.
        num_decisions: Decisions to learn from in all; rounded up to whole updates. The schedules end there.
        num_updates: End after that many updates, if that comes first; None: never.
        validate_every: Updates between validations; there is one more at the end.
        patience: Early stop: end after that many validations in a row without a lower mean JCT; None: never.
        checkpoint_every: Updates between checkpoints to resume from; each holds the experience replay.
    """

    enabled: bool = True
    num_envs: int = 1
    num_decisions: int = 400_000
    num_updates: int | None = None
    validate_every: int = 500
    patience: int | None = None
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_budget("dl2", self)


def _check_budget(group: str, settings: FineTuningSettings | DL2Settings) -> None:
    for name in ("num_envs", "num_decisions", "num_updates", "validate_every", "patience", "checkpoint_every"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ConfigError(f"{group}.{name}={value} must be at least 1")


@dataclass(frozen=True)
class EvaluationSettings:
    """Validation during training, and the comparison at its end.

    Attributes:
        baselines: Schedulers to compare with: registered names, `package.module:Class` or checkpoint folders.
        compare_with: Schedulers against which the table gives reductions of mean JCT; registered ones
            that did not run are left out.
        num_workloads: Test workloads.
        num_validation_workloads: Workloads of each validation.
        batch: Environments simulated at once; no effect on heuristics' results.
        decide: How the run's networks decide in the comparison: `sampled`, `deterministic` (the most probable action),
            or `best`, the one of the two that is better on the validation workloads.
        warmup_agent: Also compare the network as the warm-up left it, if it was fine-tuned.
        plots: Draw the comparison and the learning curve as PNG files.
        picture_every: Validations between two pictures of an episode in TensorBoard, its JCT distribution and its
            allocations, see `agents.run_tensorboard`; None: no pictures.
    """

    baselines: tuple[str, ...] = ("drf", "optimus-exact")
    compare_with: tuple[str, ...] = ("drf", "optimus-exact", "warm-up")
    num_workloads: int = 50
    num_validation_workloads: int = 16
    batch: int = 64
    decide: Decide = "best"
    warmup_agent: bool = True
    plots: bool = True
    picture_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_workloads", "num_validation_workloads", "batch", "picture_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"evaluation.{name}={value} must be at least 1")
        if self.decide not in get_args(Decide):
            known = ", ".join(get_args(Decide))
            raise ConfigError(f"evaluation.decide={self.decide!r} is unknown; choose one of: {known}")
        if len(set(self.baselines)) < len(self.baselines):
            raise ConfigError(f"evaluation.baselines={list(self.baselines)} names a scheduler twice; remove one")


@dataclass(frozen=True)
class ScenarioSettings:
    """The world.

    Attributes:
        name: Name of a scenario, or the path of a scenario's TOML file.
    """

    name: str = "dl2-small-v1"


@dataclass(frozen=True)
class RunSettings:
    """Everything that defines a training run.

    Attributes:
        name: Folder of `runs/` that it goes to.
        seed: Seeds weights, training workloads, minibatches and sampling.
        threads: Threads of torch.
        scenario: The world.
        overrides: Values of the scenario's `EnvConfig` to change, by dotted key.
        agent: The network.
        warmup: Supervised warm-up.
        algorithm: Fine-tuning by `ppo` or by `dl2`.
        ppo: Settings of `ppo`.
        dl2: Settings of `dl2`, DL2's actor-critic.
        evaluation: Validation and final comparison.
    """

    name: str = "default"
    seed: int = 1
    threads: int = 1
    scenario: ScenarioSettings = field(default_factory=ScenarioSettings)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    agent: NetworkConfig = field(default_factory=NetworkConfig)
    warmup: WarmupSettings = field(default_factory=WarmupSettings)
    algorithm: str = "ppo"
    ppo: FineTuningSettings = field(default_factory=FineTuningSettings)
    dl2: DL2Settings = field(default_factory=DL2Settings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed={self.seed} must lie in 0..2**32 - 1")
        if self.threads < 1:
            raise ConfigError(f"threads={self.threads} must be at least 1")
        if self.algorithm not in ("ppo", "dl2"):
            raise ConfigError(f"algorithm={self.algorithm!r} is unknown; choose one of: ppo, dl2")
        if not (self.warmup.enabled or self.fine_tuning.enabled):
            raise ConfigError(
                f"warmup.enabled and {self.algorithm}.enabled are both false: nothing to train; enable one"
            )

    @property
    def fine_tuning(self) -> FineTuningSettings | DL2Settings:
        """Settings of the algorithm that is used."""
        return self.dl2 if self.algorithm == "dl2" else self.ppo


def read_settings(values: Mapping[str, Any]) -> RunSettings:
    """Settings from plain nested values.

    Args:
        values: Values by key; those left out have their defaults. `workload.path` is short for `workload.trace.path`.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    direct = dict(values)
    overrides: dict[str, Any] = {}
    workload = dict(_group(direct.pop("workload", None), "workload"))
    path = workload.pop("path", None)
    if path is not None:
        workload["trace"] = {**_group(workload.get("trace"), "workload.trace"), "path": path}
    env = _group(direct.pop("env", None), "env")
    for key in env:
        if key not in WORLD_GROUPS:
            raise ConfigError(f"env.{key}: unknown key; env has: {', '.join(WORLD_GROUPS)}")
    changed = {"workload": workload, "speed": _group(direct.pop("speed", None), "speed"), **env}
    for key, value in _leaves(changed):
        overrides[key] = value
    if "overrides" in direct:
        raise ConfigError("overrides: unknown key; use the groups workload, speed and env")
    if any(key.startswith("workload.trace.") for key in overrides) and "workload.trace.path" not in overrides:
        raise ConfigError(
            "workload.path: not set, but the workload replays a trace; give its file: workload.path=<csv>"
        )
    parts = {f.name: f for f in dataclasses.fields(RunSettings)}
    hints = typing.get_type_hints(RunSettings)
    built: dict[str, Any] = {}
    for key, value in direct.items():
        if key not in parts:
            known = sorted({*parts, "workload", "speed", "env"} - {"overrides"})
            raise ConfigError(f"{key}: unknown key; a run has: {', '.join(known)}")
        if dataclasses.is_dataclass(hints[key]):
            built[key] = config_from_dict(typing.cast(type, hints[key]), dict(_group(value, key)), key)
        elif isinstance(value, bool) or not isinstance(value, hints[key]):
            raise ConfigError(f"{key}: expected {hints[key].__name__}, got {value!r}")
        else:
            built[key] = value
    return RunSettings(overrides=overrides, **built)


def _group(value: Any, key: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: expected a group of keys, got {value!r}")
    return value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Values that are not null, by dotted key."""
    leaves: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            leaves += _leaves(value, f"{prefix}{key}.")
        elif value is not None:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def build_scenario(settings: RunSettings, name: str | None = None) -> Scenario:
    """A scenario with the overrides applied; default: the run's own.

    Raises:
        Dl2EnvError: There is no such scenario, or an override is wrong or would have no effect.
    """
    scenario = get_scenario(settings.scenario.name if name is None else name)
    if not settings.overrides:
        return scenario
    if scenario.fixed_workloads:
        for key in settings.overrides:
            if key.startswith("workload."):
                raise ConfigError(f"{key}: scenario {scenario.name} has fixed workloads; leave it out ({key}=null)")
    # The first name goes into error messages.
    derived = scenario.derive(settings.overrides, name=scenario.name)
    return dataclasses.replace(derived, name=_derived_name(scenario.name, settings.overrides))


def _derived_name(scenario: str, overrides: Mapping[str, Any]) -> str:
    changes = []
    for key, value in overrides.items():
        if key in ("workload.trace.path", "speed.table"):
            changes.append(Path(str(value)).name)
        elif not key.startswith((*_NOT_COMPARED, "workload.trace.")):
            changes.append(f"{key}={value}")
    return f"{scenario}+{','.join(changes)}" if changes else scenario
