"""Which workload each episode of each environment plays, and the weighted reward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig, RewardConfig
from dl2env.errors import ConfigError
from dl2env.scenarios import Scenario, Split, get_scenario
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.workload.generator import WorkloadSource, build_workload_source
from dl2env.workload.jobs import Workload


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


def outcome(simulator: ClusterSimulator, b: int) -> dict[str, Any]:
    """What an episode that has just ended adds to its last info.

    Returns:
        `jct_s` (N,), NaN for unfinished jobs; `mean_jct_s` over the finished ones, NaN if there is none;
        `num_unfinished`.
    """
    env = simulator.state.env[b]
    jobs = simulator.state.jobs[b, : env["num_jobs"]]
    jct_s = jobs["finish_s"] - jobs["arrival_s"]
    unfinished = int(env["num_jobs"] - env["num_finished"])
    finished_jct_s = jct_s[~np.isnan(jct_s)] if unfinished else jct_s
    num_finished = len(finished_jct_s)
    mean_jct_s = float(np.add.reduce(finished_jct_s)) / num_finished if num_finished else float("nan")
    return {"jct_s": jct_s, "mean_jct_s": mean_jct_s, "num_unfinished": unfinished}


class _ScenarioWorkloads:
    """Workloads of a scenario's split. Pickled by what it was built from, since a source may be a local function."""

    def __init__(self, scenario: Scenario, split: Split) -> None:
        self._scenario = scenario
        self._split = split
        self._source = scenario.workload_source(split)

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """The jobs of that episode."""
        return self._source(seed, env, episode)

    def __reduce__(self) -> tuple[Any, ...]:
        return _ScenarioWorkloads, (self._scenario, self._split)


def resolve(
    config: EnvConfig | None, scenario: str | None, workloads: WorkloadSource | None
) -> tuple[EnvConfig, WorkloadSource]:
    """Configuration and workloads of an environment built by keywords.

    Args:
        config: A configuration of the user's; its workloads are generated (or replayed) as it says.
        scenario: Name of a frozen scenario, whose training split is played. Default when both are None:
            `dl2-small-v1`.
        workloads: Where workloads come from instead.

    Raises:
        ConfigError: Both `config` and `scenario` are given, or `config` is no configuration.
        UnknownNameError: No such scenario.
    """
    if config is not None and scenario is not None:
        raise ConfigError("give either config or scenario, not both")
    if config is not None:
        if not isinstance(config, EnvConfig):
            raise ConfigError(f"config must be an EnvConfig, got {type(config).__name__}; give a name as scenario=")
        return config, workloads or build_workload_source(config)
    chosen = get_scenario(scenario or "dl2-small-v1")
    return chosen.config, workloads or _ScenarioWorkloads(chosen, "train")
