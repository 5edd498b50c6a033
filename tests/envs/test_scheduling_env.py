"""The single environment: what its rewards add up to, illegal actions, truncation, determinism, copies."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from dl2env.config import EnvConfig, RewardConfig
from dl2env.envs import SchedulingEnv, SchedulingVectorEnv
from dl2env.scenarios import get_scenario
from dl2env.sim.state import REWARD_TERMS
from tests.envs.worlds import WORLDS, given_jobs, random_legal, small_world

Policy = Callable[[np.random.Generator, Any], Any]


def play(env: SchedulingEnv, seed: int | None, policy: Policy = random_legal, steps: int = 10_000) -> dict[str, Any]:
    """One episode (or its first steps): observations, rewards, terms, and the last info."""
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=seed)
    observations, rewards, terms = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated) and len(rewards) < steps:
        observation, reward, terminated, truncated, info = env.step(int(policy(rng, info["action_mask"])))
        observations.append(observation)
        rewards.append(reward)
        terms.append([info["reward_terms"][term] for term in REWARD_TERMS])
    return dict(
        observations=observations,
        rewards=np.array(rewards),
        terms=np.array(terms),
        info=info,
        terminated=terminated,
        truncated=truncated,
    )


def assert_same_play(left: dict[str, Any], right: dict[str, Any]) -> None:
    np.testing.assert_array_equal(left["rewards"], right["rewards"])
    np.testing.assert_array_equal(left["terms"], right["terms"])
    for one, other in zip(left["observations"], right["observations"], strict=True):
        np.testing.assert_array_equal(one["jobs"], other["jobs"])
        np.testing.assert_array_equal(one["cluster"], other["cluster"])


def void_only(_: np.random.Generator, mask: Any) -> int:
    return len(mask) - 1


# Rewards


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["default", "released", "uncertain"])
def test_jct_reward_sums_to_total_jct_in_intervals(name: str, seed: int) -> None:
    env = SchedulingEnv(_rewarded(WORLDS[name], RewardConfig(jct=1.0, speed_gain=0.0)))
    outcome = play(env, seed)
    assert outcome["terminated"]
    jct_s = outcome["info"]["jct_s"]
    assert outcome["info"]["num_unfinished"] == 0 and not np.isnan(jct_s).any() and len(jct_s) == 8
    total = jct_s.sum() / env.config.dynamics.interval_s
    assert outcome["rewards"].sum() == pytest.approx(-total, rel=1e-12)
    assert outcome["info"]["mean_jct_s"] == pytest.approx(jct_s.mean())


def test_jct_of_hand_computed_jobs() -> None:
    config = _rewarded(get_scenario("toy-v1").config, RewardConfig(jct=1.0, speed_gain=0.0))
    # Type toy-compute trains one epoch per interval of 120 s with the initial bundle, wherever it is. Job 0 trains in
    # intervals 0 and 1 and half of 2; job 1 arrives at 0.5, is admitted at 1 and trains in intervals 1 to 3.
    env = SchedulingEnv(config, workloads=given_jobs(config, [0.0, 60.0], [2.5, 3.0], samples_per_epoch=120.0))
    outcome = play(env, 0, void_only)
    np.testing.assert_allclose(outcome["info"]["jct_s"], [2.5 * 120.0, 3.5 * 120.0], rtol=1e-6)
    # Job-time in the system by interval: 1; 0.5 (waiting) + 2; 0.5 + 1; 1.
    np.testing.assert_allclose(outcome["rewards"], [-1.5, -2.0, -1.5, -1.0], rtol=1e-6)


@pytest.mark.parametrize("name", ["default", "uncertain"])
def test_progress_reward_sums_to_number_of_jobs(name: str) -> None:
    env = SchedulingEnv(_rewarded(WORLDS[name], RewardConfig(progress=1.0, speed_gain=0.0)))
    outcome = play(env, 3)
    jobs = env.simulator.state.jobs[0]
    assert outcome["rewards"].sum() == pytest.approx((jobs["true_epochs"] / jobs["epochs"]).sum())


def test_speed_gain_telescopes_within_an_interval() -> None:
    config = small_world(dynamics=dict(auto_advance=False), reward=RewardConfig(speed_gain=1.0))
    env = SchedulingEnv(config)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=1)
    start, gained, intervals = speed_sum(env), 0.0, 0
    while True:
        before = speed_sum(env)
        # Void one time in six, so that intervals end with room left and without.
        mask = info["action_mask"].copy()
        mask[-1] = not mask[:-1].any() or rng.random() < 1 / 6
        _, reward, terminated, _, info = env.step(int(random_legal(rng, mask)))
        if not info["interval_ended"]:
            gained += reward
            continue
        assert info["illegal_action"] or reward == 0.0
        assert gained == pytest.approx(before - start, abs=1e-9)
        start, gained, intervals = speed_sum(env), 0.0, intervals + 1
        if terminated:
            break
    assert intervals >= 8


def speed_sum(env: SchedulingEnv) -> float:
    """Sum of relative speeds over active jobs, from the jobs themselves."""
    state = env.simulator.state
    active = state.active[0, : state.env[0]["num_active"]]
    jobs = state.jobs[0, active]
    best = state.best_speed[0]
    return float((jobs["speed"] / best[jobs["type"]]).sum())


def test_reward_is_the_weighted_sum_of_its_terms() -> None:
    weights = RewardConfig(progress=0.5, jct=2.0, ideal_progress=-1.0, speed_gain=3.0)
    outcome = play(SchedulingEnv(_rewarded(WORLDS["default"], weights)), 0)
    expected = outcome["terms"] @ np.array([0.5, 2.0, -1.0, 3.0])
    np.testing.assert_allclose(outcome["rewards"], expected, rtol=1e-12, atol=1e-15)
    assert (np.abs(outcome["terms"]).sum(axis=0) > 0).all(), "each term occurs"


# Actions


@pytest.mark.parametrize("action", [-1, -7, "void + 1", 10**6])
def test_action_out_of_range_is_void_with_a_flag(action: int | str) -> None:
    env, twin = SchedulingEnv(WORLDS["default"]), SchedulingEnv(WORLDS["default"])
    env.reset(seed=0)
    twin.reset(seed=0)
    void = env.simulator.num_actions - 1
    observation, reward, _, _, info = env.step(void + 1 if action == "void + 1" else int(action))
    expected, expected_reward, _, _, expected_info = twin.step(void)
    assert info["illegal_action"] and not expected_info["illegal_action"]
    assert info["interval_ended"] and expected_info["interval_ended"]
    assert reward == expected_reward
    np.testing.assert_array_equal(observation["jobs"], expected["jobs"])


def test_masked_action_is_void_with_a_flag() -> None:
    env, twin = SchedulingEnv(WORLDS["default"]), SchedulingEnv(WORLDS["default"])
    rng = np.random.default_rng(1)
    _, info = env.reset(seed=0)
    twin.reset(seed=0)
    flags = 0
    for _ in range(60):
        masked = np.flatnonzero(~info["action_mask"])
        action = int(rng.choice(masked)) if len(masked) and rng.random() < 0.5 else int(info["action_mask"].argmax())
        is_legal = bool(info["action_mask"][action])
        observation, reward, terminated, truncated, info = env.step(action)
        expected, expected_reward, *_ = twin.step(action if is_legal else env.simulator.num_actions - 1)
        assert info["illegal_action"] is not is_legal
        assert reward == expected_reward
        np.testing.assert_array_equal(observation["jobs"], expected["jobs"])
        flags += not is_legal
        if terminated or truncated:
            _, info = env.reset()
            twin.reset()
    assert flags > 5


def test_unmasked_action_that_fits_nowhere_is_void_with_a_flag() -> None:
    # Released rules: resources are not masked. One server takes two bundles (2 GPUs), so a third worker must fail.
    config = WORLDS["released"]
    env = SchedulingEnv(config)
    _, info = env.reset(seed=0)
    for _ in range(100):
        action = int(info["action_mask"].argmax())
        was_legal = bool(info["action_mask"][action])
        *_, info = env.step(action)
        if info["illegal_action"]:
            break
    assert was_legal and info["interval_ended"], "the action was not masked, failed, and ended the interval"


def test_step_needs_a_running_episode() -> None:
    env = SchedulingEnv(WORLDS["truncated"])
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)
    play(env, 0)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)


# Ends


def test_truncation_leaves_unfinished_jobs() -> None:
    env = SchedulingEnv(WORLDS["truncated"])
    outcome = play(env, 0, void_only)
    info = outcome["info"]
    assert outcome["truncated"] and not outcome["terminated"]
    assert info["num_unfinished"] > 0
    assert np.isnan(info["jct_s"]).sum() == info["num_unfinished"]
    finished = info["jct_s"][~np.isnan(info["jct_s"])]
    assert len(finished) > 0 and info["mean_jct_s"] == pytest.approx(finished.mean())
    records = env.simulator.records(0)
    assert records.num_intervals == 5
    np.testing.assert_array_equal(np.isnan(records.finish_s), np.isnan(info["jct_s"]))


def test_truncation_before_any_job_finishes() -> None:
    config = small_world(dynamics=dict(max_intervals=1))
    env = SchedulingEnv(config, workloads=given_jobs(config, [0.0], [1000.0]))
    outcome = play(env, 0, void_only)
    assert outcome["truncated"]
    assert np.isnan(outcome["info"]["mean_jct_s"]) and outcome["info"]["num_unfinished"] == 1


# Determinism


@pytest.mark.parametrize("name", WORLDS)
def test_two_copies_agree_and_episodes_differ(name: str) -> None:
    left, right = SchedulingEnv(WORLDS[name]), SchedulingEnv(WORLDS[name])
    plays = []
    for seed in (3, None, None):
        one = play(left, seed)
        assert_same_play(one, play(right, seed))
        plays.append(one)
    assert len({p["rewards"].tobytes() for p in plays}) == 3
    # A seed starts the sequence again; decisions and time in between do not matter.
    assert_same_play(play(left, 3), plays[0])
    left.reset()
    right.reset(seed=3)
    right.reset()
    assert_same_play(play(left, None), play(right, None))


def test_episode_does_not_depend_on_what_was_played_before() -> None:
    left, right = SchedulingEnv(WORLDS["uncertain"]), SchedulingEnv(WORLDS["uncertain"])
    play(left, 8)
    play(right, 8, void_only, steps=1)
    assert_same_play(play(left, None), play(right, None))


def test_global_random_generators_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def poison(module: Any, owner: Any) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("a global random generator was used")

        for name in dir(module):
            if getattr(getattr(module, name), "__self__", None) is owner:
                monkeypatch.setattr(module, name, refuse)

    expected = play(SchedulingEnv(WORLDS["uncertain"]), 1)
    before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    poison(np.random, np.random.mtrand._rand)
    poison(random, random._inst)
    with pytest.raises(AssertionError, match="global"):
        np.random.random()  # noqa: NPY002
    with pytest.raises(AssertionError, match="global"):
        random.random()
    assert_same_play(play(SchedulingEnv(WORLDS["uncertain"]), 1), expected)
    vector = SchedulingVectorEnv(2, WORLDS["fitted"])
    vector.reset()
    vector.step(np.zeros(2, dtype=np.int64))
    monkeypatch.undo()
    after = np.random.get_state()[1], random.getstate()  # noqa: NPY002
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1] == after[1]


# Copies


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize("arguments", [dict(scenario="toy-v1"), dict(), dict(config=WORLDS["uncertain"])])
def test_a_copy_goes_on_alike_and_apart(how: str, arguments: dict[str, Any]) -> None:
    env = SchedulingEnv(**arguments, render_mode="ansi")
    play(env, 4, steps=1)
    twin = copy.deepcopy(env) if how == "deepcopy" else pickle.loads(pickle.dumps(env))
    mask = env.action_masks()
    twin.step(void_only(np.random.default_rng(), mask))
    np.testing.assert_array_equal(env.action_masks(), mask)
    if how == "deepcopy":
        twin = copy.deepcopy(env)
    else:
        twin = pickle.loads(pickle.dumps(env))
    rng = np.random.default_rng(0)
    for _ in range(40):
        action = int(random_legal(rng, env.action_masks()))
        left, right = env.step(action), twin.step(action)
        np.testing.assert_array_equal(left[0]["jobs"], right[0]["jobs"])
        assert left[1:4] == right[1:4]
        assert env.render() == twin.render()
        if left[2] or left[3]:
            env.reset()
            twin.reset()


def test_a_copied_vector_environment_goes_on_alike() -> None:
    env = SchedulingVectorEnv(3)
    env.reset(seed=0)
    twin = pickle.loads(pickle.dumps(env))
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = random_legal(rng, env.action_masks())
        left, right = env.step(actions), twin.step(actions)
        np.testing.assert_array_equal(left[0]["jobs"], right[0]["jobs"])
        np.testing.assert_array_equal(left[1], right[1])


def test_snapshot_of_the_simulator_reproduces_the_rest_of_the_episode() -> None:
    env = SchedulingEnv(WORLDS["uncertain"])
    rng = np.random.default_rng(0)
    env.reset(seed=2)
    for _ in range(15):
        env.step(int(random_legal(rng, env.action_masks())))
    snapshot = env.simulator.snapshot()

    def rest() -> list[Any]:
        own, outcome, is_over = np.random.default_rng(3), [], False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(int(random_legal(own, env.action_masks())))
            outcome += [observation["jobs"].tobytes(), reward]
            is_over = terminated or truncated
        return outcome

    first = rest()
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.simulator.restore(snapshot)
    assert rest() == first


def _rewarded(config: EnvConfig, reward: RewardConfig) -> EnvConfig:
    return dataclasses.replace(config, reward=reward)
