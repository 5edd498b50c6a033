"""The keys of a scenario's world that a run may change. Imports no torch, so that wrong keys are told at once."""

from __future__ import annotations

import dataclasses
import typing
from types import UnionType
from typing import Any

from dl2env.config import EnvConfig

WORLD_GROUPS = ("cluster", "estimate", "dynamics", "reward", "observation")
"""Fields of `EnvConfig` that the group `env` holds; `workload` and `speed` are groups of their own."""


def override_keys(cls: type) -> dict[str, Any]:
    """Every key of a configuration dataclass, nested ones included, with the value null."""
    keys: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(cls).items():
        options = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
        nested = next((option for option in options if dataclasses.is_dataclass(option)), None)
        keys[name] = None if nested is None else override_keys(typing.cast(type, nested))
    return keys


def world_keys() -> dict[str, Any]:
    """The groups `workload`, `speed` and `env` with every key, all null."""
    keys = override_keys(EnvConfig)
    return {
        "workload": {"path": None, **keys["workload"]},
        "speed": keys["speed"],
        "env": {name: keys[name] for name in WORLD_GROUPS},
    }
