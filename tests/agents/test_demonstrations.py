from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents.demonstrations import DecisionMix, Demonstrations
from agents.recording import record_demonstrations
from agents.returns import Discounting
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from tests.agents.picking_env import PickingEnv, PickingTeacher
from tests.agents.worlds import small_config


def test_recording_holds_what_the_teacher_saw_and_did() -> None:
    steps: list[tuple[int, int]] = []
    demos = record_demonstrations(
        PickingEnv(4), PickingTeacher(), 38, seed=1, progress=lambda now, total: steps.append((now, total))
    )
    assert demos.actions.shape == (10, 4) and demos.num_decisions == 40 and demos.num_envs == 4
    assert steps[-1] == (40, 40)
    np.testing.assert_array_equal(demos.rewards, 1.0)
    np.testing.assert_array_equal(demos.interval_ended[:, 0], np.arange(10) % 3 == 2)
    np.testing.assert_array_equal((demos.terminated | demos.truncated)[:, 0], np.arange(10) % 6 == 5)
    flat_jobs = demos.jobs[:, :, :, 1:4].reshape(10, 4, -1)
    np.testing.assert_array_equal(flat_jobs.argmax(axis=2), demos.actions)
    assert np.take_along_axis(demos.masks, demos.actions[..., None], axis=2).all()
    returns, missing = demos.returns(Discounting(interval_gamma=0.0))
    np.testing.assert_array_equal(returns[:9, 0], [3, 2, 1] * 3)
    np.testing.assert_array_equal(missing[:, 0] > 0, np.arange(10) == 9)


def test_a_heuristic_in_the_real_environment() -> None:
    env = SchedulingVectorEnv(3, small_config())
    first, second = (record_demonstrations(env, get_scheduler("drf"), 300, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.jobs, second.jobs)
    np.testing.assert_array_equal(first.actions, second.actions)
    assert first.terminated.any() and first.provenance["teacher"] == "drf"
    assert first.provenance["env"]["observation"]["window"] == 4
    other = record_demonstrations(env, get_scheduler("drf"), 300, seed=3)
    assert not np.array_equal(first.actions, other.actions)


def test_a_teacher_that_ignores_the_mask_is_refused() -> None:
    class Careless:
        name = "careless"

        def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
            return (~action_mask).argmax(axis=1)

    with pytest.raises(ConfigError, match="careless"):
        record_demonstrations(PickingEnv(4), Careless(), 10)
    with pytest.raises(ConfigError, match="at least 1"):
        record_demonstrations(PickingEnv(4), PickingTeacher(), 0)


def made_up(
    rewards: list[float], *, taken: list[int] | None = None, ends: list[int], done: list[int]
) -> Demonstrations:
    """One environment; the teacher always takes action 1."""
    T = len(rewards)
    at = np.arange(T)
    return Demonstrations(
        jobs=np.zeros((T, 1, 2, 3), np.float32),
        cluster=np.zeros((T, 1, 1), np.float32),
        masks=np.ones((T, 1, 7), np.bool_),
        actions=np.ones((T, 1), np.int64),
        rewards=np.array(rewards, np.float32)[:, None],
        interval_ended=np.isin(at, ends)[:, None],
        terminated=np.isin(at, done)[:, None],
        truncated=np.zeros((T, 1), np.bool_),
        taken=None if taken is None else np.array(taken)[:, None],
    )


def test_returns_after_an_action_the_teacher_would_not_take_are_not_known() -> None:
    """Intervals of three decisions; the second one is left at its second decision."""
    demos = made_up([1.0] * 6, taken=[1, 1, 1, 1, 0, 1], ends=[2, 5], done=[5])
    _, cut = demos.returns(Discounting(interval_gamma=0.0))
    np.testing.assert_array_equal(cut[:, 0], [0, 0, 0, 1, 1, 0])
    _, across = demos.returns(Discounting(interval_gamma=0.5, decision_gamma=0.9))
    np.testing.assert_allclose(across[:, 0], [0.9**3 * 0.5, 0.9**2 * 0.5, 0.9 * 0.5, 0.9, 1.0, 0.0], rtol=1e-6)
    _, on_policy = made_up([1.0] * 6, taken=[1] * 6, ends=[2, 5], done=[5]).returns(Discounting())
    np.testing.assert_array_equal(on_policy, 0.0)


def test_an_episodes_end_separates_what_is_known() -> None:
    demos = made_up([1.0] * 4, taken=[1, 1, 0, 1], ends=[1, 3], done=[1, 3])
    _, missing = demos.returns(Discounting(interval_gamma=1.0))
    np.testing.assert_array_equal(missing[:, 0], [0, 0, 1, 0])


def test_shares_of_a_mix() -> None:
    short, long = made_up([1.0] * 2, ends=[1], done=[1]), made_up([1.0] * 6, ends=[5], done=[5])
    assert DecisionMix((short, long)).shares == (0.25, 0.75)
    assert DecisionMix((short, long), (3.0, 1.0)).shares == (0.75, 0.25)
    assert DecisionMix((short, long)).num_decisions == 8
    with pytest.raises(ConfigError, match="1 weights"):
        DecisionMix((short, long), (1.0,))
    with pytest.raises(ConfigError, match="positive"):
        DecisionMix((short, long), (1.0, 0.0))
    with pytest.raises(ConfigError, match="no recording"):
        DecisionMix(())
