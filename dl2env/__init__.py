"""dl2env: a Gymnasium environment and benchmark for reinforcement learning on deep-learning cluster scheduling.

Importing the package registers the environments of `ENVIRONMENTS` and loads nothing heavy; numba is imported when the
first environment is made.
"""

from __future__ import annotations

import gymnasium

__version__ = "0.1.0"

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "dl2env/Scheduling-v0": {},
    "dl2env/SchedulingToy-v0": {"scenario": "toy-v1"},
}
"""Registered ids and the arguments they fix."""


def register() -> None:
    """Registers every id of `ENVIRONMENTS` that Gymnasium does not know yet."""
    for env_id, kwargs in ENVIRONMENTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="dl2env.envs.scheduling_env:SchedulingEnv",
                vector_entry_point="dl2env.envs.vector_env:SchedulingVectorEnv",
                kwargs=kwargs,
            )


register()
