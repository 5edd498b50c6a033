"""Which workload each episode of each environment plays, and the weighted reward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig, RewardConfig
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.workload.generator import WorkloadSource


class Episodes:
    """Loads the next workload of an environment: episode k of environment e is keyed (seed, e, k).

    Args:
        simulator: The simulator to load.
        source: Where workloads come from.
        first_env: Key of the simulator's environment 0; environment b has key first_env + b.
    """

    def __init__(self, simulator: ClusterSimulator, source: WorkloadSource, first_env: int = 0) -> None:
        self._simulator = simulator
        self._source = source
        self._first_env = first_env
        self._seeds = [0] * simulator.num_envs
        self._next_episode = [0] * simulator.num_envs

    def seed(self, b: int, seed: int) -> None:
        """Makes episode 0 of that seed the next one of environment b."""
        self._seeds[b] = seed
        self._next_episode[b] = 0

    def start(self, env_idx: NDArray[np.int64]) -> None:
        """Loads the next episode of each of the given environments."""
        workloads = []
        for b in env_idx.tolist():
            workloads.append(self._source(self._seeds[b], self._first_env + b, self._next_episode[b]))
            self._next_episode[b] += 1
        self._simulator.load(env_idx, workloads)

    @property
    def next_episode(self) -> list[int]:
        """Index of the next episode of each environment."""
        return list(self._next_episode)

    def state(self) -> dict[str, list[int]]:
        """Seeds and episode counters, for `restore`."""
        return {"seeds": list(self._seeds), "next_episode": list(self._next_episode)}

    def restore(self, state: dict[str, list[int]]) -> None:
        """Continues from a `state`."""
        self._seeds = list(state["seeds"])
        self._next_episode = list(state["next_episode"])


def reward_weights(config: RewardConfig) -> NDArray[np.float64]:
    """(len(REWARD_TERMS),) weights in the order of the simulator's reward terms."""
    return np.array([getattr(config, term) for term in REWARD_TERMS], dtype=np.float64)


def resolve(config: EnvConfig | None, scenario: str | None) -> tuple[EnvConfig, WorkloadSource]:
    """Configuration and workloads of an environment built by keywords.

    Args:
        config: A configuration of the user's; its workloads are generated (or replayed) as it says.
        scenario: Name of a frozen scenario, whose training split is played. Default when both are None:
            `dl2-small-v1`.

    Raises:
        ConfigError: Both are given.
        UnknownNameError: No such scenario.
    """
    from dl2env.errors import ConfigError
    from dl2env.scenarios import get_scenario
    from dl2env.workload.generator import build_workload_source

    if config is not None and scenario is not None:
        raise ConfigError("give either config or scenario, not both")
    if config is not None:
        return config, build_workload_source(config)
    chosen = get_scenario(scenario or "dl2-small-v1")
    return chosen.config, chosen.workload_source("train")
