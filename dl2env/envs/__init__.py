"""Gymnasium views of the simulator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dl2env.envs.paper_observation import PaperObservation, PaperVectorObservation
    from dl2env.envs.scheduling_env import SchedulingEnv
    from dl2env.envs.vector_env import SchedulingVectorEnv

__all__ = ["PaperObservation", "PaperVectorObservation", "SchedulingEnv", "SchedulingVectorEnv"]

_MODULES = {
    "PaperObservation": "paper_observation",
    "PaperVectorObservation": "paper_observation",
    "SchedulingEnv": "scheduling_env",
    "SchedulingVectorEnv": "vector_env",
}


def __getattr__(name: str) -> Any:
    # Lazy, because the environments bring numba.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dl2env.envs.{_MODULES[name]}"), name)
