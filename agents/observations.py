"""What an agent reads: the environment's own observation, or that of the DL2 paper or of its released code.

All three have the form `jobs` (J, F) and `cluster` (C,), so that every network and learner takes each of them. The
observations of DL2 know nothing of the cluster; the one number that stands for it is always 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.networks import NetworkConfig, ObservationShape
from dl2env.config import EnvConfig
from dl2env.envs.episodes import Episodes
from dl2env.envs.paper_observation import PaperState
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator

Observation = dict[str, NDArray[np.float32]]


def observe(
    network: NetworkConfig, simulator: ClusterSimulator, env_idx: NDArray[np.int64] | None = None
) -> Observation:
    """Fresh observations of the present state, in the form that a network reads.

    Args:
        network: Says which observation, and how its numbers are scaled.
        simulator: The clusters.
        env_idx: Environments; all by default.

    Returns:
        `jobs` (B, J, F) and `cluster` (B, C).
    """
    if network.observation == "native":
        return simulator.observation(env_idx)
    jobs = PaperState(simulator, network.observation).read(slice(None) if env_idx is None else env_idx)
    if network.observation == "released":
        jobs = jobs.transpose(0, 2, 1)  # (6, J): one row per feature
    if network.observation_scale == "log":
        jobs = np.sign(jobs) * np.log1p(np.abs(jobs))
    return {
        "jobs": np.ascontiguousarray(jobs, dtype=np.float32),
        "cluster": np.zeros((len(jobs), 1), dtype=np.float32),
    }


def observed_shape(network: NetworkConfig, config: EnvConfig) -> ObservationShape:
    """Sizes of the observations that a network with these settings gets in a world.

    Raises:
        Dl2EnvError: The configuration cannot be simulated.
    """
    simulator = ClusterSimulator(config, 1, max_jobs=1)
    state = simulator.state
    if network.observation == "native":
        return ObservationShape(state.obs_jobs.shape[1], state.obs_jobs.shape[2], state.obs_cluster.shape[1])
    shape = PaperState(simulator, network.observation).space().shape
    num_slots, features = shape if network.observation == "paper" else shape[::-1]
    return ObservationShape(num_slots, features, 1)


if TYPE_CHECKING:
    _Wrapper = VectorWrapper[Observation, NDArray[np.int64], Observation, NDArray[np.int64], NDArray[Any]]
else:
    _Wrapper = VectorWrapper


class AgentVectorEnv(_Wrapper):
    """A `SchedulingVectorEnv` whose observations are those that a network reads; see `observe`.

    Args:
        env: The environment.
        network: Says which observation.
    """

    def __init__(self, env: SchedulingVectorEnv, network: NetworkConfig) -> None:
        super().__init__(env)
        self._base = env
        self._network = network
        shape = observed_shape(network, env.config)
        self.single_observation_space: Any = spaces.Dict(
            {
                "cluster": spaces.Box(-np.inf, np.inf, (shape.cluster_features,), np.float32),
                "jobs": spaces.Box(-np.inf, np.inf, (shape.num_slots, shape.slot_features), np.float32),
            }
        )
        self.observation_space: Any = batch_space(self.single_observation_space, env.num_envs)
        # The last observation of an episode must be read before the next one starts, within the environment's step.
        self._final: dict[int, Observation] = {}
        env.before_autoreset.append(self._keep_final)

    @property
    def config(self) -> EnvConfig:
        """Configuration of the environments."""
        return self._base.config

    @property
    def simulator(self) -> ClusterSimulator:
        """The clusters."""
        return self._base.simulator

    @property
    def episodes(self) -> Episodes:
        """Where workloads come from."""
        return self._base.episodes

    def view(self) -> ClusterView:
        """Structured access to the clusters, for schedulers."""
        return self._base.view()

    def action_masks(self) -> NDArray[np.bool_]:
        """(B, 3 J + 1) legal actions."""
        return self._base.action_masks()

    def observe(self) -> Observation:
        """Observations of the present state."""
        return observe(self._network, self._base.simulator)

    def _keep_final(self, ended: NDArray[np.int64]) -> None:
        observation = observe(self._network, self._base.simulator, ended)
        self._final = {
            int(b): {name: values[i] for name, values in observation.items()} for i, b in enumerate(ended.tolist())
        }

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts a new episode everywhere."""
        _, infos = self._base.reset(seed=seed, options=options)
        return self.observe(), infos

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Takes one decision in each environment; `final_obs` of ended episodes has the agent's form too."""
        _, rewards, terminated, truncated, infos = self._base.step(actions)
        if "final_obs" in infos:
            for b, observation in self._final.items():
                infos["final_obs"][b] = observation
            self._final = {}
        return self.observe(), rewards, terminated, truncated, infos
