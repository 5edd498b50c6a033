"""The vector environment: equal to a loop of single ones, Gymnasium's SAME_STEP conventions, wrong use."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.envs import SchedulingEnv, SchedulingVectorEnv
from dl2env.errors import ConfigError
from dl2env.scenarios import get_scenario
from dl2env.sim.state import REWARD_TERMS
from tests.envs.worlds import WORLDS, random_legal, random_mixed, small_world

ALL_WORLDS = {**WORLDS, "dl2-small-v1": get_scenario("dl2-small-v1").config}
STEP_KEYS = ("interval_ended", "illegal_action")


def assert_same_observation(left: Any, right: Any, where: str) -> None:
    for key in ("jobs", "cluster"):
        np.testing.assert_array_equal(left[key], right[key], err_msg=f"{where}, {key}")


def assert_same_info(vector: dict[str, Any], single: dict[str, Any], b: int, where: str) -> None:
    """Every key of the single environment's info is in row b of the vector's, and marked as present."""
    for key, value in single.items():
        assert vector[f"_{key}"][b], f"{where}, {key}"
        if isinstance(value, dict):
            assert_same_info(vector[key], value, b, f"{where}, {key}")
        else:
            np.testing.assert_array_equal(vector[key][b], value, err_msg=f"{where}, {key}")


@pytest.mark.parametrize("name", ALL_WORLDS)
def test_vector_equals_loop_of_singles(name: str) -> None:
    config, num_envs = ALL_WORLDS[name], 4
    num_steps = 1300 if name == "dl2-small-v1" else 250
    rng = np.random.default_rng(1)
    vector = SchedulingVectorEnv(num_envs, config)
    singles = [SchedulingEnv(config, env_index=b) for b in range(num_envs)]
    observations, infos = vector.reset(seed=11)
    episodes, ends = np.zeros(num_envs, dtype=int), set()
    for b, env in enumerate(singles):
        observation, info = env.reset(seed=11)
        assert_same_observation({k: v[b] for k, v in observations.items()}, observation, f"reset of {b}")
        assert_same_info(infos, info, b, f"reset of {b}")
    for step in range(num_steps):
        actions = random_mixed(rng, infos["action_mask"])
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        assert ("final_obs" in infos) == bool((terminated | truncated).any())
        for b, env in enumerate(singles):
            where = f"step {step}, environment {b}"
            observation, reward, is_terminated, is_truncated, info = env.step(actions[b])
            assert rewards[b] == pytest.approx(reward, rel=1e-12, abs=1e-15), where
            assert (terminated[b], truncated[b]) == (is_terminated, is_truncated), where
            assert_same_info(infos, {key: info[key] for key in (*STEP_KEYS, "reward_terms")}, b, where)
            if is_terminated or is_truncated:
                episodes[b] += 1
                ends.add(step)
                assert infos["_final_obs"][b]
                assert_same_observation(infos["final_obs"][b], observation, f"{where}, final")
                assert infos["_final_info"][b]
                assert_same_info(infos["final_info"], info, b, f"{where}, final")
                observation, info = env.reset()
            elif "final_obs" in infos:
                assert not infos["_final_obs"][b] and infos["final_obs"][b] is None, where
                assert not infos["_final_info"][b] and not infos["final_info"]["_jct_s"][b], where
                assert not infos["final_info"]["reward_terms"]["_jct"][b], where
            assert_same_observation({k: v[b] for k, v in observations.items()}, observation, where)
            np.testing.assert_array_equal(infos["action_mask"][b], info["action_mask"], err_msg=where)
    assert (episodes >= (1 if name in ("dl2-small-v1", "fitted") else 3)).all(), (
        "the test must pass through several episodes"
    )
    assert len(ends) > episodes.max(), "and the environments must not always end together"


def test_mask_and_observation_after_autoreset_belong_to_the_new_episode() -> None:
    env = SchedulingVectorEnv(8, WORLDS["default"])
    rng = np.random.default_rng(0)
    _, infos = env.reset(seed=5)
    seen = 0
    for _ in range(300):
        observations, _, terminated, truncated, infos = env.step(random_legal(rng, infos["action_mask"]))
        np.testing.assert_array_equal(infos["action_mask"], env.action_masks())
        for b in np.flatnonzero(terminated | truncated):
            seen += 1
            assert infos["action_mask"][b].sum() > 1, "a new episode starts with a choice"
            assert observations["jobs"][b].any()
            # All jobs have finished: nothing is left in the window, only void is legal.
            assert terminated[b] and not infos["final_obs"][b]["jobs"].any()
            assert infos["final_info"]["action_mask"][b].tolist() == [False] * (env.simulator.num_actions - 1) + [True]
    assert seen > 8


def test_step_without_ends_has_no_final_keys_and_marks_every_environment() -> None:
    env = SchedulingVectorEnv(3, WORLDS["default"])
    _, infos = env.reset(seed=0)
    assert set(infos) == {"action_mask", "_action_mask"}
    *_, infos = env.step(np.full(3, env.simulator.num_actions - 1))
    keys = {"action_mask", "interval_ended", "illegal_action", "reward_terms"}
    assert set(infos) == keys | {f"_{key}" for key in keys}
    assert all(infos[f"_{key}"].all() for key in keys)
    assert set(infos["reward_terms"]) == set(REWARD_TERMS) | {f"_{term}" for term in REWARD_TERMS}


def arrays_of(value: Any) -> list[NDArray[Any]]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, np.ndarray)) else ()
    return [array for child in children for array in arrays_of(child)]


def test_arrays_are_fresh_at_every_step() -> None:
    env = SchedulingVectorEnv(3, WORLDS["default"])
    rng = np.random.default_rng(0)
    observations, infos = env.reset(seed=0)
    kept: list[tuple[Any, Any]] = []
    live = [values for values in env.simulator.state]
    for _ in range(60):
        mask = infos["action_mask"]
        kept += [(array, array.copy()) for array in arrays_of((observations, infos))]
        observations, rewards, terminated, truncated, infos = env.step(random_legal(rng, mask))
        new = arrays_of((observations, rewards, terminated, truncated, infos))
        assert not any(np.may_share_memory(array, other) for array in new for other in live)
        assert not any(np.may_share_memory(array, other) for array in new for other, _ in kept[-20:])
    for array, copy in kept:
        np.testing.assert_array_equal(array, copy)


def test_time_limit_of_make_vec_equals_that_of_make() -> None:
    limit, num_envs = 7, 3
    config = WORLDS["default"]
    vector = gymnasium.make_vec("dl2env/Scheduling-v0", num_envs=num_envs, max_episode_steps=limit, config=config)
    singles = [
        gymnasium.make("dl2env/Scheduling-v0", max_episode_steps=limit, config=config, env_index=b)
        for b in range(num_envs)
    ]
    rng = np.random.default_rng(3)
    _, infos = vector.reset(seed=2)
    for env in singles:
        env.reset(seed=2)
    num_cut = 0
    for _ in range(60):
        actions = random_legal(rng, infos["action_mask"])
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        for b, env in enumerate(singles):
            observation, reward, is_terminated, is_truncated, _ = env.step(actions[b])
            assert (terminated[b], truncated[b]) == (is_terminated, is_truncated)
            assert rewards[b] == pytest.approx(float(reward), rel=1e-12, abs=1e-15)
            if is_terminated or is_truncated:
                num_cut += is_truncated
                assert_same_observation(infos["final_obs"][b], observation, "final")
                assert infos["final_info"]["num_unfinished"][b] > 0 or not is_truncated
                observation, _ = env.reset()
            assert_same_observation({k: v[b] for k, v in observations.items()}, observation, "next")
    assert num_cut > num_envs


def test_time_limit_at_the_very_end_of_an_episode_truncates_too() -> None:
    plain: Any = gymnasium.make("dl2env/SchedulingToy-v0")
    plain.reset(seed=0)
    void, length, terminated = plain.action_space.n - 1, 0, False
    while not terminated:
        *_, terminated, _, _ = plain.step(void)
        length += 1
    single = gymnasium.make("dl2env/SchedulingToy-v0", max_episode_steps=length)
    vector = gymnasium.make_vec("dl2env/SchedulingToy-v0", num_envs=1, max_episode_steps=length)
    single.reset(seed=0)
    vector.reset(seed=0)
    for _ in range(length):
        expected, actual = single.step(void), vector.step(np.array([void]))
        assert (actual[2][0], actual[3][0]) == expected[2:4]
    assert expected[2:4] == (True, True)


def test_members_get_different_workloads_and_seeds_reproduce() -> None:
    config = WORLDS["default"]
    env = SchedulingVectorEnv(6, config)
    first, _ = env.reset(seed=4)
    rows = {row.tobytes() for row in env.simulator.state.jobs["epochs"]}
    assert len(rows) == 6
    second, _ = env.reset()
    assert not np.array_equal(first["jobs"], second["jobs"]), "reset() goes on to the next episodes"
    again, _ = env.reset(seed=4)
    np.testing.assert_array_equal(first["jobs"], again["jobs"])
    other, _ = env.reset(seed=5)
    assert not np.array_equal(first["jobs"], other["jobs"])


def test_a_list_of_seeds_keys_each_member() -> None:
    config = WORLDS["default"]
    env = SchedulingVectorEnv(3, config)
    observations, _ = env.reset(seed=[7, 8, 7])
    for b, seed in enumerate((7, 8, 7)):
        observation, _ = SchedulingEnv(config, env_index=b).reset(seed=seed)
        np.testing.assert_array_equal(observations["jobs"][b], observation["jobs"])
    # None leaves a member's sequence alone: it goes on to its episode 1.
    observations, _ = env.reset(seed=[7, None, 9])
    single = SchedulingEnv(config, env_index=1)
    single.reset(seed=8)
    np.testing.assert_array_equal(observations["jobs"][1], single.reset()[0]["jobs"])


def test_first_reset_with_some_seeds_missing_still_draws_them() -> None:
    starts = set()
    for _ in range(3):
        env = SchedulingVectorEnv(2, WORLDS["default"])
        env.reset(seed=[1, None])
        starts.add(env.simulator.state.jobs["epochs"][1].tobytes())
    assert len(starts) > 1


def test_wrong_use_is_one_clear_error() -> None:
    env = SchedulingVectorEnv(3, WORLDS["default"])
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros(3, dtype=np.int64))
    with pytest.raises(ConfigError, match="2 seeds for 3 environments"):
        env.reset(seed=[1, 2])
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"shape \(3,\)"):
        env.step(np.zeros(2, dtype=np.int64))


def test_snapshot_of_the_simulator_reproduces_the_rest_of_the_episodes() -> None:
    config: EnvConfig = small_world(dynamics=dict(speed_noise=0.2))
    env = SchedulingVectorEnv(5, config)
    rng = np.random.default_rng(9)
    _, infos = env.reset(seed=1)
    for _ in range(20):
        *_, infos = env.step(random_legal(rng, infos["action_mask"]))
    snapshot, counters = env.simulator.snapshot(), env.episodes.state()

    def play() -> list[NDArray[Any]]:
        own = np.random.default_rng(2)
        outcome: list[NDArray[Any]] = []
        masks = env.action_masks()
        for _ in range(80):
            observations, rewards, terminated, _, infos = env.step(random_legal(own, masks))
            masks = infos["action_mask"]
            outcome += [observations["jobs"], observations["cluster"], rewards, terminated, masks]
        return outcome

    first = play()
    assert any(values.any() for values in first[3::5]), "episodes end and restart in between"
    env.simulator.restore(snapshot)
    env.episodes.restore(counters)
    for left, right in zip(first, play(), strict=True):
        np.testing.assert_array_equal(left, right)
