"""Gymnasium views of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dl2env.envs.scheduling_env import SchedulingEnv
    from dl2env.envs.vector_env import SchedulingVectorEnv

__all__ = ["SchedulingEnv", "SchedulingVectorEnv"]


def __getattr__(name: str) -> Any:
    # Lazy, because the environments bring numba.
    if name == "SchedulingEnv":
        from dl2env.envs.scheduling_env import SchedulingEnv

        return SchedulingEnv
    if name == "SchedulingVectorEnv":
        from dl2env.envs.vector_env import SchedulingVectorEnv

        return SchedulingVectorEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
