"""The registered ids, Gymnasium's and Stable-Baselines3's checkers, and what a user may do wrong when building."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from dl2env.config import EnvConfig, ObservationConfig
from dl2env.envs import SchedulingEnv, SchedulingVectorEnv
from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from tests.envs.worlds import IDS, WORLDS, random_legal


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_checker_passes(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_sb3_checker_passes(env_id: str) -> None:
    env: Any = gymnasium.make(env_id).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # One row per job is the point of `jobs`; SB3 warns because its default policy flattens 2-D boxes.
        warnings.filterwarnings("ignore", message="Your observation jobs has an unconventional shape")
        sb3_check_env(env)


@pytest.mark.parametrize("env_id", IDS)
def test_make_gives_the_single_and_the_native_vector_environment(env_id: str) -> None:
    single = gymnasium.make(env_id)
    assert isinstance(single.unwrapped, SchedulingEnv)
    vector = gymnasium.make_vec(env_id, num_envs=3)
    assert isinstance(vector, SchedulingVectorEnv)
    assert vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    observations, infos = vector.reset(seed=0)
    assert vector.observation_space.contains(observations)
    assert infos["action_mask"].shape == (3, single.action_space.n)
    vector.close()
    vector.close()


def test_make_imports_the_module_that_an_id_names() -> None:
    code = (
        "import sys, gymnasium; env = gymnasium.make('dl2env:dl2env/Scheduling-v0'); env.reset(seed=0); "
        "assert 'torch' not in sys.modules; print(type(env.unwrapped).__name__)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "SchedulingEnv"


def test_generic_vectorisation_works_too() -> None:
    # Episodes that are cut off at the same step with different numbers of finished jobs: infos must still stack.
    env = SyncVectorEnv(
        [lambda b=b: SchedulingEnv(WORLDS["truncated"], env_index=b) for b in range(4)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    _, infos = env.reset(seed=0)
    void = env.single_action_space.n - 1
    ended = 0
    for _ in range(40):
        _, _, _, _, infos = env.step(np.full(4, void))
        if "final_info" in infos:
            ended += int(infos["_final_info"].sum())
            assert infos["final_info"]["jct_s"].shape == (4, 8)
    assert ended >= 8
    env.close()


def test_episode_statistics_wrapper_records_returns() -> None:
    env = RecordEpisodeStatistics(gymnasium.make_vec("dl2env/SchedulingToy-v0", num_envs=4))
    _, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    returns, num_ended = np.zeros(4), np.zeros(4, dtype=int)
    while (num_ended == 0).any():
        _, rewards, terminated, truncated, infos = env.step(random_legal(rng, infos["action_mask"]))
        returns += rewards
        done = terminated | truncated
        # First episodes only: early versions of the wrapper leave the first step out of the later ones.
        first = done & (num_ended == 0)
        if first.any():
            np.testing.assert_allclose(infos["episode"]["r"][first], returns[first])
        num_ended += done


def test_random_seed_is_drawn_when_none_is_given() -> None:
    config = WORLDS["default"]
    ages = [SchedulingEnv(config).reset()[0]["jobs"].tobytes() for _ in range(3)]
    assert len(set(ages)) > 1
    vectors = [SchedulingVectorEnv(3, config).reset()[0]["jobs"].tobytes() for _ in range(3)]
    assert len(set(vectors)) > 1


BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Dl2EnvError], str]] = {
    "unknown scenario": (dict(scenario="dl2-tiny"), UnknownNameError, "dl2-tiny.*choose one of: .*toy-v1"),
    "unknown render mode": (dict(render_mode="human"), ConfigError, "'human'.*ansi, rgb_array"),
    "two worlds": (dict(config=EnvConfig(), scenario="toy-v1"), ConfigError, "either config or scenario"),
    "a name as config": (dict(config="toy-v1"), ConfigError, "scenario="),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_argument_is_one_clear_error(case: str) -> None:
    arguments, error, message = BAD_ARGUMENTS[case]
    for build in (SchedulingEnv, SchedulingVectorEnv):
        with pytest.raises(error, match=message) as caught:
            build(**arguments)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(num_envs=0), "num_envs=0"),
        (dict(num_envs=-1), "num_envs=-1"),
        (dict(max_episode_steps=0), "max_episode_steps=0"),
    ],
)
def test_bad_vector_argument_is_one_clear_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SchedulingVectorEnv(config=WORLDS["default"], **arguments)


def test_bad_window_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"observation\.window=0"):
        ObservationConfig(window=0)
