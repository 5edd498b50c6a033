"""The paper's and the released code's observation: hand-made values, recorded transitions, wrappers."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from pathlib import Path
from typing import Any, get_args

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.vec_env import DummyVecEnv

from dl2env.envs import PaperObservation, PaperVectorObservation, SchedulingEnv, SchedulingVectorEnv
from dl2env.envs.paper_observation import PAPER_COLUMNS, RELEASED_ROWS, Layout, PaperState
from dl2env.errors import ConfigError
from dl2env.scenarios import get_scenario
from dl2env.sim.simulator import ClusterSimulator
from tests.envs.worlds import WORLDS, given_jobs, random_mixed, small_world
from tests.golden import golden_params, load_golden

LAYOUTS = get_args(Layout)
load = cache(load_golden)


def toy(layout: Layout) -> PaperObservation:
    """Two jobs of 120 samples per epoch that train one epoch per interval of 120 s with one worker and one PS."""
    config = get_scenario("toy-v1").config
    workloads = given_jobs(config, [0.0, 60.0], [2.5, 3.0], samples_per_epoch=120.0)
    return PaperObservation(SchedulingEnv(config, workloads=workloads), layout)


def test_paper_layout_of_hand_computed_jobs() -> None:
    assert PAPER_COLUMNS == ("intervals_run", "remaining_epochs", "dominant_share", "workers", "ps")
    env = toy("paper")
    # Types: toy-compute and another one. Cluster: 6 CPUs, 4 GPUs; a worker takes 1 CPU and 1 GPU, a PS 1 CPU.
    observation, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2, 2 + 5)
    np.testing.assert_allclose(observation, [[1, 0, 0, 2.5, 2 / 6, 1, 1], [0] * 7], rtol=1e-6)
    observation, *_ = env.step(0)  # one worker more: 3 of 6 CPUs, 2 of 4 GPUs
    np.testing.assert_allclose(observation, [[1, 0, 0, 2.5, 3 / 6, 2, 1], [0] * 7], rtol=1e-6)
    observation, *_ = env.step(6)
    np.testing.assert_allclose(
        observation, [[1, 0, 1, 0.5, 2 / 6, 1, 1], [1, 0, 0, 3.0, 2 / 6, 1, 1]], rtol=1e-6, atol=1e-9
    )


def test_released_layout_of_hand_computed_jobs() -> None:
    assert RELEASED_ROWS == ("type", "intervals_since_arrival", "remaining_fraction", "dominant_share", "workers", "ps")
    env = toy("released")
    observation, _ = env.reset(seed=0)
    np.testing.assert_allclose(observation[:, 0], [1, 0, 1.0, 2 / 6, 1, 1], rtol=1e-6)
    env.step(0)
    observation, *_ = env.step(6)
    np.testing.assert_allclose(observation[:, 0], [1, 1, 0.5 / 2.5, 2 / 6, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(observation[:, 1], [1, 0.5, 1.0, 2 / 6, 1, 1], rtol=1e-6)


def test_released_fraction_is_negative_when_the_estimate_was_too_low() -> None:
    config = small_world(dynamics=dict(epoch_error=0.9))
    workloads = given_jobs(config, [0.0], [3.0])
    late = dataclasses.replace(workloads(0, 0, 0), true_epochs=np.array([1e9]))
    env = PaperObservation(SchedulingEnv(config, workloads=lambda *_: late), "released")
    env.reset(seed=0)
    paper = PaperState(env.unwrapped.simulator, "paper")
    void = env.action_space.n - 1
    for _ in range(1000):
        observation, *_ = env.step(void)
        if observation[2, 0] < 0:
            break
    assert observation[2, 0] < 0
    assert observation in env.observation_space
    assert paper.read()[0, 0, 9] == 0.0, "the paper's remaining epochs stop at 0"


@pytest.mark.parametrize("path", golden_params())
def test_released_layout_equals_recorded_states(path: Path) -> None:
    golden = load(path)
    simulator = ClusterSimulator(golden.config, 1, golden.workload.num_jobs, speed=golden.parameters)
    simulator.load([0], [golden.workload])
    state = PaperState(simulator, "released")
    compared = 0
    for number, step in enumerate(golden.rl["steps"]):
        if "state" not in step:
            break
        np.testing.assert_allclose(state.read()[0], step["state"], rtol=0, atol=1e-9, err_msg=f"step {number}")
        assert state.read()[0] in state.space(), f"step {number}"
        simulator.step([step["a"]])
        compared += 1
    assert compared >= 50


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WORLDS)
def test_vector_wrapper_equals_single_wrappers_inside_the_space(name: str, layout: Layout) -> None:
    config, num_envs = WORLDS[name], 3
    vector = PaperVectorObservation(SchedulingVectorEnv(num_envs, config), layout)
    singles = [PaperObservation(SchedulingEnv(config, env_index=b), layout) for b in range(num_envs)]
    space = vector.single_observation_space
    assert space == singles[0].observation_space and vector.observation_space.shape == (num_envs, *space.shape)
    rng = np.random.default_rng(0)
    observations, infos = vector.reset(seed=5)
    for b, env in enumerate(singles):
        np.testing.assert_array_equal(observations[b], env.reset(seed=5)[0])
    ended = 0
    for step in range(150):
        np.testing.assert_array_equal(vector.action_masks(), infos["action_mask"])
        actions = random_mixed(rng, infos["action_mask"])
        observations, _, terminated, truncated, infos = vector.step(actions)
        assert observations.dtype == space.dtype
        for b, env in enumerate(singles):
            where = f"step {step}, environment {b}"
            observation, _, is_terminated, is_truncated, _ = env.step(actions[b])
            assert observation in space, where
            if is_terminated or is_truncated:
                ended += 1
                assert terminated[b] or truncated[b]
                np.testing.assert_array_equal(infos["final_obs"][b], observation, err_msg=where)
                assert (observation != 0).any() == is_truncated
                observation, _ = env.reset()
            np.testing.assert_array_equal(observations[b], observation, err_msg=where)
            np.testing.assert_array_equal(vector.action_masks()[b], env.action_masks(), err_msg=where)
    assert ended > 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stable_baselines_finds_the_masks(layout: Layout) -> None:
    env: Any = PaperObservation(gymnasium.make("dl2env/Scheduling-v0"), layout)
    assert is_masking_supported(env)
    env.reset(seed=0)
    np.testing.assert_array_equal(get_action_masks(env), env.unwrapped.action_masks())
    vector = DummyVecEnv([lambda: FlattenObservation(PaperObservation(SchedulingEnv(WORLDS["default"]), layout))])
    assert is_masking_supported(vector)
    vector.reset()
    assert get_action_masks(vector).shape == (1, 10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_wrapped_environment_can_be_made_again_from_its_spec(layout: Layout) -> None:
    env = PaperObservation(gymnasium.make("dl2env/SchedulingToy-v0"), layout)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    np.testing.assert_array_equal(env.reset(seed=0)[0], again.reset(seed=0)[0])


def test_wrong_use_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="'flat'.*paper, released"):
        PaperObservation(SchedulingEnv(WORLDS["default"]), "flat")
    with pytest.raises(ConfigError, match="'flat'.*paper, released"):
        PaperVectorObservation(SchedulingVectorEnv(2, WORLDS["default"]), "flat")
    with pytest.raises(ConfigError, match="not CartPoleEnv"):
        PaperObservation(gymnasium.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="not CartPoleVectorEnv"):
        PaperVectorObservation(gymnasium.make_vec("CartPole-v1", num_envs=2))


def test_observations_are_fresh() -> None:
    env = PaperVectorObservation(SchedulingVectorEnv(2, WORLDS["default"]))
    first, _ = env.reset(seed=0)
    kept = first.copy()
    void = env.single_action_space.n - 1
    for _ in range(5):
        env.step(np.full(2, void))
    np.testing.assert_array_equal(first, kept)
    assert math.isfinite(first.sum())
