"""The cluster moves as agent or teacher decide, copies know nothing of the future, and the guard keeps its word."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.networks import NetworkConfig
from agents.online.environment import ACCEPTED, OVERRIDDEN, PRACTISED, StreamVecEnv, StreamVectorEnv
from agents.online.replay import play_stream
from agents.online.shadow import RolloutGuard, copy_present, shadow_simulator
from dl2env.config import EstimateConfig
from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import IntervalScheduler
from dl2env.sim.simulator import ClusterSimulator
from tests.agents.online.worlds import small_stream

GUARD = {"horizon": 40, "tolerance": 0.0}


def teacher(name: str = "drf") -> IntervalScheduler:
    found = get_scheduler(name)
    assert isinstance(found, IntervalScheduler)
    return found


def random_actions(masks: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)


def play(env: StreamVectorEnv, seed: int = 0, act: Any = random_actions) -> dict[str, Any]:
    """Goes through the stream; returns rewards and flags of environment 0."""
    rng = np.random.default_rng(seed)
    _, infos = env.reset()
    rewards, ended = [], []
    while not env.is_finished:
        _, reward, _, _, infos = env.step(act(infos["action_mask"], rng))
        rewards.append(reward[0])
        ended.append(infos["interval_ended"][0])
    return {"rewards": np.array(rewards), "ended": np.array(ended), "jobs": env.cluster.records(0)}


def always_void(masks: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    return np.full(len(masks), masks.shape[1] - 1)


@pytest.mark.parametrize("name", ["void", "drf"])
def test_decisions_reach_the_cluster_with_the_noise_of_the_stream(name: str) -> None:
    """An agent that decides as a scheduler does ends every job at the moment at which that scheduler does."""
    stream = small_stream()
    scheduler = get_scheduler(name)
    env = StreamVectorEnv(stream, 1, teacher())

    def follow(masks: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
        return np.asarray(scheduler.act(env.simulator.observation(), masks, env.view()))

    wide = dataclasses.replace(stream.config, observation=dataclasses.replace(stream.config.observation, window=60))
    env = StreamVectorEnv(dataclasses.replace(stream, config=wide), 1, teacher())
    own = play(env, act=follow)["jobs"]
    np.testing.assert_array_equal(own.finish_s, play_stream(scheduler, stream).finish_s)
    assert not np.isnan(own.finish_s).any()


def test_teacher_in_every_interval_is_the_teacher() -> None:
    """A guard that accepts nothing leaves the teacher's stream, noise included, whatever the agent does."""
    stream = small_stream()
    env = StreamVectorEnv(stream, 2, teacher(), GUARD)
    assert env._guard is not None
    env._guard.accepts = lambda cost, teacher_cost: False  # type: ignore[method-assign]
    jobs = play(env)["jobs"]
    np.testing.assert_array_equal(jobs.finish_s, play_stream(teacher(), stream).finish_s)


def test_copies_know_only_what_the_operator_knows() -> None:
    stream = small_stream(epoch_error=0.5)
    cluster = ClusterSimulator(stream.config, 1)
    cluster.load([0], [stream.workload])
    copies = shadow_simulator(cluster, 2)
    for _ in range(4):
        teacher().run_intervals(cluster, 1)
    copy_present(cluster, copies, [1])
    known = int(cluster.state.env["next_job"][0])
    assert 0 < known < stream.workload.num_jobs
    assert copies.state.env["num_jobs"][1] == known
    jobs = copies.state.jobs[1, :known]
    running = np.isnan(jobs["finish_s"])
    stated = np.maximum(jobs["epochs"], 1.1 * jobs["epochs_done"])
    np.testing.assert_array_equal(jobs["true_epochs"][running], stated[running])
    assert (cluster.state.jobs[0, :known]["true_epochs"] != cluster.state.jobs[0, :known]["epochs"]).all()
    assert copies.config.dynamics.speed_noise == 0.0
    # No job arrives in it, however long it runs, and the cluster does not notice.
    before = cluster.snapshot()
    with copies.only([1]):
        teacher().run_intervals(copies, 500)
    assert copies.is_done[1] and copies.state.env["num_finished"][1] == known
    for name, values in cluster.snapshot().arrays.items():
        for field in values.dtype.names or (...,):  # type: ignore[assignment]
            np.testing.assert_array_equal(values[field], before.arrays[name][field], f"{name}, {field}")


@pytest.mark.parametrize("is_searching", [False, True])
def test_guard_never_carries_out_what_it_predicts_to_be_worse(is_searching: bool) -> None:
    env = StreamVectorEnv(small_stream(), 4, teacher(), GUARD, choose_from_practice=is_searching)
    play(env)
    log = np.array(env.log)
    decider, agent_cost, teacher_cost = log[:, 1], log[:, 2], log[:, 3]
    taken = np.isin(decider, (ACCEPTED, PRACTISED))
    assert (agent_cost[taken] <= teacher_cost[taken] + 1e-9).all()
    assert (agent_cost[decider == OVERRIDDEN] > teacher_cost[decider == OVERRIDDEN]).all()
    assert taken.any() and (decider == OVERRIDDEN).any()
    assert (decider == PRACTISED).any() == is_searching
    assert (np.diff(log[:, 0]) > 0).all()


def test_guarded_total_is_no_worse_than_the_teacher_where_the_model_is_exact() -> None:
    """No noise and no later arrivals: the promise of policy improvement by rollout holds for any agent."""
    stream = small_stream(speed_noise=0.0)
    early = dataclasses.replace(stream.workload, arrival_s=np.zeros(stream.workload.num_jobs))
    stream = dataclasses.replace(stream, workload=early)
    reference = np.sum(play_stream(teacher(), stream).jct_s)
    deciders: set[float] = set()
    for seed in range(5):
        env = StreamVectorEnv(stream, 1, teacher(), {"horizon": 10_000})
        total = float(np.sum(play(env, seed)["jobs"].jct_s))
        assert total <= reference * (1 + 1e-9)
        deciders |= set(np.array(env.log)[:, 1].tolist())
    assert {ACCEPTED, OVERRIDDEN} <= deciders
    free = [np.sum(play(StreamVectorEnv(stream, 1, teacher()), seed)["jobs"].jct_s) for seed in range(5)]
    assert max(free) > reference, "the guard had nothing to do"


def test_prediction_is_what_happens_where_the_model_is_exact() -> None:
    stream = small_stream(speed_noise=0.0)
    early = dataclasses.replace(stream.workload, arrival_s=np.zeros(stream.workload.num_jobs))
    stream = dataclasses.replace(stream, workload=early)
    cluster = ClusterSimulator(stream.config, 1)
    cluster.load([0], [stream.workload])
    predicted = RolloutGuard(cluster, teacher(), 10_000).predict_teacher()
    assert predicted == pytest.approx(np.sum(play_stream(teacher(), stream).jct_s) / 1200.0)


def test_rewards_are_those_that_the_cluster_pays() -> None:
    """With the jct reward the cluster's own environment sums to minus the total JCT, noise and arrivals included."""
    stream = small_stream()
    reward = dataclasses.replace(stream.config.reward, jct=1.0, speed_gain=0.0)
    stream = dataclasses.replace(stream, config=dataclasses.replace(stream.config, reward=reward))
    played = play(StreamVectorEnv(stream, 1, teacher()))
    # Waiting before the first decision is charged with the first step, which a copy makes; see `copy_present`.
    assert played["rewards"].sum() == pytest.approx(-np.sum(played["jobs"].jct_s) / 1200.0, rel=1e-6)


def test_practice_starts_at_the_present_and_changes_nothing() -> None:
    stream = small_stream()
    alone, beside = StreamVectorEnv(stream, 1, teacher()), StreamVectorEnv(stream, 3, teacher())
    a, b = play(alone, act=always_void)["jobs"], play(beside, act=always_void)["jobs"]
    np.testing.assert_array_equal(a.finish_s, b.finish_s)
    beside.reset()
    rng = np.random.default_rng(1)
    masks = beside.action_masks()
    for _ in range(200):
        if beside.is_finished:
            break
        before = beside.interval
        _, _, _, _, infos = beside.step(random_actions(masks, rng))
        masks = infos["action_mask"]
        moved = np.flatnonzero(infos["interval_ended"])
        for c in moved[moved > 0].tolist():
            assert beside.simulator.state.env["interval"][c] == beside.interval
        assert beside.interval >= before


def test_practice_ends_episodes_only_where_learners_need_it() -> None:
    for flagged in (False, True):
        env = StreamVectorEnv(small_stream(), 3, teacher(), practice_intervals=2, practice_ends_episodes=flagged)
        env.reset()
        seen = np.zeros(3, dtype=np.int64)
        for _ in range(12):
            _, _, terminated, truncated, infos = env.step(always_void(env.action_masks(), np.random.default_rng(0)))
            assert not terminated.any()
            seen += truncated
            if truncated.any():
                last = infos["final_obs"][np.flatnonzero(truncated)[0]]
                assert last["jobs"].shape == env.single_observation_space["jobs"].shape
        assert seen[0] == 0
        assert (seen[1:] > 0).all() == flagged


@pytest.mark.parametrize("is_searching", [False, True])
def test_restored_stream_goes_on_step_for_step(is_searching: bool) -> None:
    def fresh() -> StreamVecEnv:
        options: dict[str, Any] = {"choose_from_practice": is_searching}
        return StreamVecEnv(StreamVectorEnv(small_stream(), 3, teacher(), GUARD, **options), NetworkConfig())

    rng = np.random.default_rng(5)
    first, second = fresh(), fresh()
    first.reset()
    for _ in range(37):
        first.step(random_actions(first.env.action_masks(), rng))
    state = first.state()
    assert state is not None
    second.reset()
    obs = second.restore(state)
    np.testing.assert_array_equal(obs["jobs"], first.stream_env.simulator.observation()["jobs"])
    for _ in range(60):
        if first.stream_env.is_finished:
            break
        masks = first.env.action_masks()
        np.testing.assert_array_equal(masks, second.env.action_masks())
        actions = random_actions(masks, rng)
        one, two = first.step(actions), second.step(actions)
        np.testing.assert_array_equal(one[0]["jobs"], two[0]["jobs"])
        np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(first.stream_env.log, second.stream_env.log)
    with pytest.raises(ValueError, match="changed"):
        other = StreamVectorEnv(small_stream(seed=1), 3, teacher())
        other.restore(first.stream_env.state())


def test_looking_ahead_needs_known_speeds() -> None:
    stream = small_stream()
    config = dataclasses.replace(stream.config, estimate=EstimateConfig("noisy", 0.1))
    unsure = dataclasses.replace(stream, config=config)
    with pytest.raises(ConfigError, match=r"practice.*estimate\.kind=noisy"):
        StreamVectorEnv(unsure, 2, teacher())
    with pytest.raises(ConfigError, match=r"guard.*estimate\.kind=noisy"):
        StreamVectorEnv(unsure, 1, teacher(), GUARD)
    assert not np.isnan(play(StreamVectorEnv(unsure, 1, teacher()), act=always_void)["jobs"].finish_s).any()
