"""Settings of an online run: those of a training run, the stream, and how the agent is let loose on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agents.online.stream import Segment, StreamConfig, segment_overrides
from agents.settings import FineTuningSettings, RunSettings, build_scenario, read_settings
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError
from dl2env.scenarios import Scenario

GuardKind = Literal["none", "rollout"]
_UNUSED = ("evaluation",)


@dataclass(frozen=True)
class OnlineConfig:
    """How the agent learns and decides on the stream.

    Attributes:
        checkpoint: Checkpoint folder to start from; None: the warm-up on the teacher, or random weights if
            `warmup.enabled` is false. Must have been made with the run's `agent`.
        guard: `rollout`: an interval's decisions are carried out only if looking ahead with the speed model predicts
            them to be no worse than the teacher's, see `agents.online.shadow.RolloutGuard`; `none`: always.
        guard_horizon: Intervals that the guard looks ahead.
        guard_tolerance: Relative loss against the teacher that the guard lets pass.
        choose_from_practice: Carry out, of all decisions for the present interval that the agent has made, in practice
            too, those that the guard predicts to cost least. The agent then searches, with its policy as the proposer.
        practice_intervals: Intervals for which a copy is practised in before it returns to the cluster's present. The
            number of copies is one less than `num_envs` of the learner.
        baselines: Schedulers that play the same stream for comparison, besides the teacher.
        window: Intervals of the windows in which cost is compared with the teacher's.
    """

    checkpoint: str | None = None
    guard: GuardKind = "rollout"
    guard_horizon: int = 200
    guard_tolerance: float = 0.0
    choose_from_practice: bool = False
    practice_intervals: int = 1
    baselines: tuple[str, ...] = ("optimus-exact", "marginal", "void")
    window: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "baselines", tuple(self.baselines))
        if self.guard not in get_args(GuardKind):
            raise ConfigError(
                f"online.guard={self.guard!r} is unknown; choose one of: {', '.join(get_args(GuardKind))}"
            )
        for name in ("guard_horizon", "practice_intervals", "window"):
            if getattr(self, name) < 1:
                raise ConfigError(f"online.{name}={getattr(self, name)} must be at least 1")
        if not 0.0 <= self.guard_tolerance < math.inf:
            raise ConfigError(f"online.guard_tolerance={self.guard_tolerance} must not be negative")
        if self.choose_from_practice and self.guard == "none":
            raise ConfigError("online.choose_from_practice: needs the guard's predictions; set online.guard=rollout")
        if len(set(self.baselines)) < len(self.baselines):
            raise ConfigError(f"online.baselines={list(self.baselines)} names a scheduler twice; remove one")


@dataclass(frozen=True)
class OnlineSettings:
    """Everything that defines an online run.

    Attributes:
        run: World, network, warm-up and learner. `warmup.teacher` is the teacher: the warm-up copies it, regret is
            counted against it, and the guard falls back on it. Budgets and validations of the learner have no effect;
            a stream has no end towards which rates could fall, so `final_*` values of PPO have none either.
        stream: The stream.
        online: How the agent learns and decides.
    """

    run: RunSettings = field(default_factory=RunSettings)
    stream: StreamConfig = field(default_factory=StreamConfig)
    online: OnlineConfig = field(default_factory=OnlineConfig)

    def __post_init__(self) -> None:
        if not self.run.fine_tuning.enabled:
            raise ConfigError(f"{self.run.algorithm}.enabled=false: online learning needs its learner; set it to true")
        if self.online.window > self.stream.intervals:
            raise ConfigError(
                f"online.window={self.online.window} exceeds the stream's {self.stream.intervals} intervals; lower it"
            )

    @property
    def learner(self) -> FineTuningSettings | Any:
        """Settings of the learner."""
        return self.run.fine_tuning

    @property
    def discounts_intervals(self) -> bool:
        """Whether the learner looks beyond the end of an interval."""
        return bool(self.learner.interval_gamma > 0.0)


def read_online_settings(values: Mapping[str, Any]) -> OnlineSettings:
    """Settings from plain nested values: the groups `stream` and `online`, all else as in `read_settings`.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    rest = dict(values)
    stream = config_from_dict(StreamConfig, rest.pop("stream", None) or {}, "stream")
    online = config_from_dict(OnlineConfig, rest.pop("online", None) or {}, "online")
    for name in _UNUSED:
        if name in rest:
            raise ConfigError(f"{name}: unknown key; an online run is measured on its stream")
    return OnlineSettings(read_settings(rest), stream, online)


def first_world(settings: OnlineSettings, segment: Segment) -> Scenario:
    """The world as it is known before the stream begins: with the job types and the load of its first segment.

    Raises:
        Dl2EnvError: There is no such scenario, or an override is wrong.
    """
    scenario = build_scenario(settings.run)
    overrides = segment_overrides(segment)
    return scenario.derive(overrides, name=scenario.name) if overrides else scenario
