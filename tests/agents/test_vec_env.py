from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

from agents.vec_env import SB3VecEnv
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from tests.agents.picking_env import PickingEnv
from tests.agents.worlds import small_config


def masked_random(env: SB3VecEnv, rng: np.random.Generator) -> np.ndarray:
    masks = get_action_masks(env)
    return np.array([rng.choice(np.flatnonzero(row)) for row in masks])


def test_masks_reach_maskable_ppo() -> None:
    env = SB3VecEnv(PickingEnv(3))
    env.reset()
    assert is_masking_supported(env)
    np.testing.assert_array_equal(get_action_masks(env), env.env.action_masks())  # type: ignore[attr-defined]


def test_infos_of_ended_episodes() -> None:
    env = SB3VecEnv(PickingEnv(3, num_intervals=2))
    env.seed(4)
    env.reset()
    native: Any = env.env
    void = np.full(3, env.action_space.n - 1)  # type: ignore[attr-defined]
    env.step(native.answer.copy())
    assert not env.interval_ended.any()
    env.step(void)
    assert env.interval_ended.all()
    _, _, dones, infos = env.step(void)
    assert dones.all() and dones.dtype == bool
    assert [info["TimeLimit.truncated"] for info in infos] == [False] * 3
    assert infos[0]["episode"]["r"] == 1.0 and infos[0]["episode"]["l"] == 3
    assert infos[0]["episode"]["mean_jct_s"] == 0.0
    env.step(void)
    obs, rewards, dones, infos = env.step(void)
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * 3
    assert infos[1]["episode"] | {"t": 0} == {"r": 0.0, "l": 2, "t": 0, "mean_jct_s": 100.0}
    assert infos[1]["terminal_observation"]["jobs"].shape == (4, 5)
    assert not np.array_equal(infos[1]["terminal_observation"]["jobs"], obs["jobs"][1])  # type: ignore[index, call-overload]
    assert rewards.dtype == np.float32


def test_running_environments_share_an_empty_info() -> None:
    env = SB3VecEnv(PickingEnv(3))
    env.reset()
    first, second = (env.step(env.env.answer.copy())[3] for _ in range(2))  # type: ignore[attr-defined]
    assert first == [{}, {}, {}] and first[0] is first[2] and first[0] is not second[0]


def test_observations_do_not_change_under_the_caller() -> None:
    env = SB3VecEnv(PickingEnv(3, reuse_arrays=True))
    env.seed(1)
    kept: Any = env.reset()
    copy = {name: values.copy() for name, values in kept.items()}
    for _ in range(3):
        new: Any = env.step(env.env.answer.copy())[0]  # type: ignore[attr-defined]
        for name in kept:
            np.testing.assert_array_equal(kept[name], copy[name])
            assert not np.array_equal(new[name], copy[name])
        kept, copy = new, {name: values.copy() for name, values in new.items()}


def test_seed_is_passed_once() -> None:
    env = SB3VecEnv(PickingEnv(3))
    env.seed(7)
    env.reset()
    env.reset()
    assert env.env.seeds == [7, None]  # type: ignore[attr-defined]


def test_statistics_are_averages_since_the_last_call() -> None:
    env = SB3VecEnv(PickingEnv(4))
    env.reset()
    assert env.pop_statistics() == {}
    right: Any = env.env.answer.copy()  # type: ignore[attr-defined]
    right[0] = env.action_space.n - 1  # type: ignore[attr-defined]
    env.step(right)
    assert env.pop_statistics() == {
        "void_share": 0.25,
        "illegal_share": 0.0,
        "decisions_per_interval": 4.0,
        "reward_right": 0.75,
    }
    assert env.pop_statistics() == {}


def test_environments_that_reset_in_the_next_step_are_refused() -> None:
    native = PickingEnv(2)
    native.metadata = {**native.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="SAME_STEP"):
        SB3VecEnv(native)


def test_attributes_and_methods() -> None:
    env = SB3VecEnv(PickingEnv(3))
    env.reset()
    assert env.get_attr("num_slots") == [4, 4, 4]
    assert env.get_attr("num_slots", indices=1) == [4]
    assert len(env.env_method("action_masks", indices=[0, 2])) == 2
    assert not env.has_attr("no_such_thing")
    with pytest.raises(NotImplementedError):
        env.set_attr("num_slots", 3, indices=[0])
    env.set_attr("num_intervals", 9)
    assert env.env.num_intervals == 9  # type: ignore[attr-defined]
    assert env.state() is None  # nothing to take a snapshot of


def test_rewards_and_dones_are_the_native_ones() -> None:
    config = small_config()
    env, native = SB3VecEnv(SchedulingVectorEnv(4, config)), SchedulingVectorEnv(4, config)
    env.seed(3)
    obs: Any = env.reset()
    native_obs, _ = native.reset(seed=3)
    rng = np.random.default_rng(0)
    returns, num_episodes = np.zeros(4), 0
    for _ in range(300):
        np.testing.assert_array_equal(obs["jobs"], native_obs["jobs"])
        actions = masked_random(env, rng)
        obs, rewards, dones, infos = env.step(actions)
        native_obs, native_rewards, terminated, truncated, native_infos = native.step(actions)
        np.testing.assert_allclose(rewards, native_rewards, rtol=1e-6)
        np.testing.assert_array_equal(dones, terminated | truncated)
        np.testing.assert_array_equal(env.interval_ended, native_infos["interval_ended"])
        returns += native_rewards
        for b in np.flatnonzero(dones):
            num_episodes += 1
            episode = infos[b]["episode"]
            assert episode["r"] == pytest.approx(returns[b])
            assert episode["mean_jct_s"] == pytest.approx(native_infos["final_info"]["jct_s"][b].mean())
            assert episode["num_unfinished"] == 0
            returns[b] = 0.0
    assert num_episodes > 0


def test_restored_state_continues_step_for_step() -> None:
    env, other = (SB3VecEnv(SchedulingVectorEnv(3, small_config())) for _ in range(2))
    env.seed(5)
    env.reset()
    rng = np.random.default_rng(1)
    for _ in range(40):
        env.step(masked_random(env, rng))
    state = env.state()
    assert state is not None
    obs: Any = other.restore(state)
    ends = 0
    for _ in range(150):
        np.testing.assert_array_equal(get_action_masks(env), get_action_masks(other))
        actions = masked_random(env, rng)
        expected, got = env.step(actions), other.step(actions)
        for name in obs:
            np.testing.assert_array_equal(expected[0][name], got[0][name])  # type: ignore[index, call-overload]
        np.testing.assert_array_equal(expected[1], got[1])
        np.testing.assert_array_equal(expected[2], got[2])
        for a, b in zip(expected[3], got[3], strict=True):
            assert {**a.get("episode", {}), "t": 0} == {**b.get("episode", {}), "t": 0}
            ends += bool(a)
    assert ends > 0
