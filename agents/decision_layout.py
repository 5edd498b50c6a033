"""What the columns of recorded observations mean, and whether a run's network can learn from them.

Imports no torch, so that wrong files are told at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.world_keys import world_keys
from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.envs.paper_observation import PAPER_COLUMNS, RELEASED_ROWS
from dl2env.errors import ConfigError, TraceError
from dl2env.sim.features import CLUSTER_FEATURES, JOB_FEATURES
from dl2env.workload.job_types import load_job_types, type_feature_names

OBSERVATIONS = ("native", "paper", "released")
_MAX_NAMED = 6


@dataclass(frozen=True)
class ObservationLayout:
    """Meaning of an observation's numbers. Files and runs of different layouts do not fit together.

    Attributes:
        observation: `native`, the environment's own (numbers in [-1, 1]), or DL2's: `paper`, `released`.
        window: Job slots J; there are 3 J + 1 actions.
        job_columns: Names of the F columns of a job slot.
        cluster_columns: Names of the C numbers of the cluster.
        max_workers: Cap on workers per job, the unit of the column `workers`.
        max_ps: Cap on parameter servers per job.
        scale: How raw numbers of DL2's observations were mapped; `raw` where they were not.
    """

    observation: str
    window: int
    job_columns: tuple[str, ...]
    cluster_columns: tuple[str, ...]
    max_workers: int
    max_ps: int
    scale: str = "raw"

    def __post_init__(self) -> None:
        if self.observation not in OBSERVATIONS:
            raise ConfigError(f"observation={self.observation!r} is unknown; choose one of: {', '.join(OBSERVATIONS)}")
        if self.window < 1 or not self.job_columns or not self.cluster_columns:
            raise ConfigError("window, job_columns and cluster_columns must not be empty")

    @property
    def num_actions(self) -> int:
        """3 J + 1."""
        return 3 * self.window + 1

    @property
    def jobs_shape(self) -> tuple[int, int]:
        """(J, F), shape of one observation's `jobs`."""
        return self.window, len(self.job_columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the inverse of `from_dict`."""
        return config_to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "layout") -> ObservationLayout:
        """From plain values.

        Raises:
            ConfigError: A key is missing, unknown or has the wrong type.
        """
        missing = [f.name for f in dataclasses.fields(cls) if f.name not in values and f.name != "scale"]
        if missing:
            raise ConfigError(f"{where}: {', '.join(missing)} is missing")
        layout: ObservationLayout = config_from_dict(cls, dict(values), where)
        return layout


def layout_of(config: EnvConfig, observation: str = "native", scale: str = "raw") -> ObservationLayout:
    """Layout of the observations that a world gives.

    Args:
        config: The world.
        observation: `native`, `paper` or `released`.
        scale: Mapping of the raw numbers of the latter two.

    Raises:
        ConfigError: The world's job types cannot be read, or the observation is unknown.
    """
    names = tuple(f"type={t.name}" for t in load_job_types(config.workload.job_types, config.workload.include))
    cluster: tuple[str, ...] = ("zero",)
    if observation == "native":
        encoding = config.observation.type_encoding
        features = type_feature_names()
        columns = {"one_hot": names, "features": features, "both": names + features}[encoding] + JOB_FEATURES
        cluster, scale = CLUSTER_FEATURES, "raw"
    elif observation == "paper":
        columns = names + PAPER_COLUMNS
    else:  # the number of the type: its meaning is the catalogue's order
        columns = tuple(f"type of {','.join(names)}" if row == "type" else row for row in RELEASED_ROWS)
    return ObservationLayout(
        observation,
        config.observation.window,
        columns,
        cluster,
        config.workload.max_workers,
        config.workload.max_ps,
        scale,
    )


def check_layout(where: str, found: ObservationLayout, wanted: ObservationLayout) -> None:
    """Makes sure that recorded observations mean what a network will see.

    Args:
        where: Name of the file.
        found: Its layout.
        wanted: That of the run.

    Raises:
        TraceError: They differ; the message says in what, and the cure.
    """
    keys = {
        "observation": "agent.observation",
        "scale": "agent.observation_scale",
        "window": "env.observation.window",
        "max_workers": "workload.max_workers",
        "max_ps": "workload.max_ps",
    }
    for name, key in keys.items():
        has, wants = getattr(found, name), getattr(wanted, name)
        if has != wants:
            raise TraceError(
                f"{where}: recorded with {name} {has}, this run has {wants}; record it again, or train with {key}={has}"
            )
    for name in ("job_columns", "cluster_columns"):
        has, wants = getattr(found, name), getattr(wanted, name)
        if has != wants:
            raise TraceError(
                f"{where}: {name} differ from this run's: {_difference(has, wants)}; record it again, or train with "
                "the job types and env.observation.type_encoding of the recording"
            )


def _difference(has: tuple[str, ...], wants: tuple[str, ...]) -> str:
    parts = []
    for title, names in (
        ("not in this run", [name for name in has if name not in wants]),
        ("not in the file", [name for name in wants if name not in has]),
    ):
        if names:
            rest = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            parts.append(f"{title}: {', '.join(names[:_MAX_NAMED])}{rest}")
    return "; ".join(parts) or "the same columns in another order"


def world_differences(recorded: Mapping[str, Any], config: EnvConfig) -> list[str]:
    """Dotted keys of the world in which a recording differs from a run, though their observations have one layout.

    Learning from another cluster, load or speed model is legitimate; the user should only know.

    Args:
        recorded: The `EnvConfig` of the recording as plain values.
        config: The run's.
    """
    mine = config_to_dict(config)
    return [
        key
        for key in _leaves(world_keys())
        if key != "workload.path" and not key.startswith("reward.") and _at(recorded, key) != _at(mine, key)
    ]


def has_same_reward(recorded: Mapping[str, Any], config: EnvConfig) -> bool:
    """Whether rewards of a recording are in the units of a run's."""
    return bool(recorded.get("reward") == config_to_dict(config)["reward"])


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys as `EnvConfig` has them: the groups below `env` are its own."""
    keys = []
    for key, value in values.items():
        inner = "" if not prefix and key == "env" else f"{prefix}{key}."
        keys += _leaves(value, inner) if isinstance(value, Mapping) else [f"{prefix}{key}"]
    return keys


def _at(values: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(values, Mapping):
            return None
        values = values.get(part)
    return values
