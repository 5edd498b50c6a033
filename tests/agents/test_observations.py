from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agents.networks import NetworkConfig, build_network
from agents.observations import AgentVectorEnv, observe, observed_shape
from agents.scheduler import NetworkScheduler
from agents.vec_env import SB3VecEnv
from dl2env.envs.paper_observation import PaperVectorObservation
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.workload.generator import build_workload_source
from tests.agents.worlds import small_config


def agent(observation: Any, scale: Any = "raw", kind: Any = "flat") -> NetworkConfig:
    return NetworkConfig(
        kind, slot_width=8, context_width=8, hidden_width=8, observation=observation, observation_scale=scale
    )


@pytest.mark.parametrize("layout", ["paper", "released"])
@pytest.mark.parametrize("scale", ["raw", "log"])
def test_same_numbers_as_the_papers_observation(layout: Any, scale: Any) -> None:
    """Step for step, last observations included, beside the wrapper that is checked against the released one."""
    ours = AgentVectorEnv(SchedulingVectorEnv(3, small_config()), agent(layout, scale))
    theirs = PaperVectorObservation(SchedulingVectorEnv(3, small_config()), layout)

    def expected(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        jobs = flat if layout == "paper" else np.swapaxes(flat, -1, -2)
        return (jobs if scale == "raw" else np.sign(jobs) * np.log1p(np.abs(jobs))).astype(np.float32)

    (obs, _), (flat, _) = ours.reset(seed=3), theirs.reset(seed=3)
    rng = np.random.default_rng(0)
    finals = 0
    for _ in range(400):
        np.testing.assert_array_equal(obs["jobs"], expected(flat))
        assert ours.observation_space.contains(obs) and not obs["cluster"].any()
        np.testing.assert_array_equal(obs["jobs"], observe(agent(layout, scale), ours.simulator)["jobs"])
        masks = ours.action_masks()
        actions = np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)
        obs, rewards, terminated, _, infos = ours.step(actions)
        flat, other_rewards, _, _, other_infos = theirs.step(actions)
        np.testing.assert_array_equal(rewards, other_rewards)
        for b in np.flatnonzero(terminated):
            finals += 1
            np.testing.assert_array_equal(infos["final_obs"][b]["jobs"], expected(other_infos["final_obs"][b]))
    assert finals > 3


def test_shapes() -> None:
    config = small_config()
    num_types = 8
    assert observed_shape(agent("paper"), config).slot_features == num_types + 5
    assert observed_shape(agent("released"), config).slot_features == 6
    native = SchedulingVectorEnv(1, config).single_observation_space
    shape = observed_shape(agent("native"), config)
    assert (shape.num_slots, shape.slot_features) == native["jobs"].shape  # type: ignore[index]
    assert (shape.cluster_features,) == native["cluster"].shape  # type: ignore[index]


def test_an_environment_of_an_agent_continues_from_its_state() -> None:
    envs = [SB3VecEnv(AgentVectorEnv(SchedulingVectorEnv(2, small_config()), agent("paper"))) for _ in range(2)]
    envs[0].seed(1)
    envs[0].reset()
    for _ in range(7):
        obs, *_ = envs[0].step(envs[0].env.action_masks().argmax(axis=1))  # type: ignore[attr-defined]
    state = envs[0].state()
    assert state is not None
    restored = envs[1].restore(state)
    assert isinstance(obs, dict) and isinstance(restored, dict)
    np.testing.assert_array_equal(restored["jobs"], obs["jobs"])
    assert restored["jobs"].shape[2] == 13


@pytest.mark.parametrize("kind", ["flat", "equivariant"])
@pytest.mark.parametrize("layout", ["paper", "released"])
def test_a_network_decides_by_the_view(layout: Any, kind: Any) -> None:
    """The runner's own observation is the native one, whatever the network reads."""
    config, network_config = small_config(), agent(layout, "log", kind)
    torch.manual_seed(0)
    network = build_network(network_config, observed_shape(network_config, config))
    with torch.no_grad():
        for p in network.parameters():
            p.normal_(0.0, 0.5)
    env = AgentVectorEnv(SchedulingVectorEnv(5, config), network_config)
    obs, _ = env.reset(seed=0)
    scheduler = NetworkScheduler(network, deterministic=True)
    for _ in range(30):
        masks = env.action_masks()
        logits = network.logits(torch.from_numpy(obs["jobs"]), torch.from_numpy(obs["cluster"])).detach().numpy()
        actions = scheduler.act(env.simulator.observation(), masks, env.view())
        np.testing.assert_array_equal(actions, np.where(masks, logits, -np.inf).argmax(axis=1))
        obs, *_ = env.step(actions)
    source = build_workload_source(config)
    workloads = [source(0, 0, k) for k in range(2)]
    assert run_scheduler(NetworkScheduler(network, seed=1), config, workloads).num_illegal.tolist() == [0, 0]
    with pytest.raises(ConfigError, match="reads the observation .* pass the view"):
        scheduler.act(env.simulator.observation(), masks)


def test_unknown_observations_are_named() -> None:
    with pytest.raises(ConfigError, match=r"network\.observation='papers' is unknown; choose one of: native, paper"):
        agent("papers")
    with pytest.raises(ConfigError, match=r"network\.observation_scale='sqrt' is unknown; choose one of: raw, log"):
        agent("paper", "sqrt")
