from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer

from agents.returns import Discounting, discounted_returns, generalized_advantages
from dl2env.errors import ConfigError


def column(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def flags(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.bool_)[:, None]


def test_advantages_by_hand() -> None:
    # Two decisions in an interval, one in the next, which also ends the recording's interval but not the episode.
    discounting = Discounting(decision_gamma=1.0, gae_lambda=0.5, interval_gamma=0.9, interval_lambda=0.25)
    got = generalized_advantages(
        column([1, 2, 4]), column([10, 20, 30]), flags([0, 1, 1]), flags([0, 0, 0]), np.array([40.0]), discounting
    )
    last = 4 + 0.9 * 40 - 30  # 10
    middle = 2 + 0.9 * 30 - 20 + 0.9 * 0.25 * last  # 9 + 2.25
    first = 1 + 20 - 10 + 0.5 * middle  # 11 + 5.625
    np.testing.assert_allclose(got[:, 0], [first, middle, last])
    assert (first, middle, last) == (16.625, 11.25, 10.0)


def test_a_cut_interval_ignores_everything_after_it() -> None:
    discounting = Discounting(decision_gamma=1.0, gae_lambda=1.0, interval_gamma=0.0)
    rewards, ends = column([1, 2, 3, 4]), flags([0, 1, 0, 1])
    got = generalized_advantages(rewards, column([5, 6, 7, 8]), ends, flags([0, 0, 0, 0]), np.array([1e6]), discounting)
    np.testing.assert_allclose(got[:, 0], [3 - 5, 2 - 6, 7 - 7, 4 - 8])


def test_the_end_of_an_episode_cuts_whatever_the_discount() -> None:
    discounting = Discounting(1.0, 1.0, 1.0, 1.0)
    got = generalized_advantages(
        column([1, 2, 3]), column([0, 0, 0]), flags([0, 1, 0]), flags([0, 1, 0]), np.array([10.0]), discounting
    )
    np.testing.assert_allclose(got[:, 0], [3, 2, 13])


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.7, 1.0]))
def test_equal_numbers_give_the_usual_estimate(seed: int, gamma: float, lam: float) -> None:
    rng = np.random.default_rng(seed)
    steps, envs = 6, 3
    buffer = RolloutBuffer(
        steps, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), "cpu", gae_lambda=lam, gamma=gamma, n_envs=envs
    )
    buffer.rewards = rng.normal(size=(steps, envs)).astype(np.float32)
    buffer.values = rng.normal(size=(steps, envs)).astype(np.float32)
    done = rng.random((steps, envs)) < 0.3
    buffer.episode_starts[1:] = done[:-1]
    last = rng.normal(size=envs).astype(np.float32)
    buffer.compute_returns_and_advantage(torch.from_numpy(last), done[-1])
    got = generalized_advantages(
        buffer.rewards, buffer.values, rng.random((steps, envs)) < 0.5, done, last, Discounting(gamma, lam, gamma, lam)
    )
    np.testing.assert_allclose(got, buffer.advantages, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 10**6))
def test_lambda_one_is_the_discounted_sum_minus_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (8, 4)
    rewards, values = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    ends = rng.random(shape) < 0.4
    done = ends & (rng.random(shape) < 0.5)
    done[-1] = ends[-1] = True
    discounting = Discounting(0.9, 1.0, 0.5, 1.0)
    advantages = generalized_advantages(rewards, values, ends, done, np.zeros(4), discounting)
    returns, missing = discounted_returns(rewards, ends, done, np.zeros(shape, dtype=bool), discounting)
    np.testing.assert_allclose(advantages + values, returns, rtol=1e-4, atol=1e-5)
    assert not missing.any()


def test_returns_and_what_they_miss_by_hand() -> None:
    discounting = Discounting(decision_gamma=1.0, interval_gamma=0.5)
    returns, missing = discounted_returns(
        column([1, 2, 4, 8, 16, 32]),
        flags([0, 1, 1, 0, 1, 0]),
        flags([0, 0, 1, 0, 0, 0]),
        flags([0, 0, 1, 0, 0, 0]),
        discounting,
    )
    np.testing.assert_allclose(returns[:, 0], [1 + 2 + 0.5 * 4, 2 + 0.5 * 4, 4, 8 + 16 + 0.5 * 32, 16 + 16, 32])
    # The third step was truncated: what would have followed is missing with discount 0.5. The last one goes on.
    np.testing.assert_allclose(missing[:, 0], [0.25, 0.25, 0.5, 0.5, 0.5, 1.0])


def test_cut_intervals_have_complete_returns_but_for_the_last_one() -> None:
    _, missing = discounted_returns(
        column([1, 1, 1, 1]), flags([0, 1, 0, 0]), flags([0] * 4), flags([0] * 4), Discounting(interval_gamma=0.0)
    )
    np.testing.assert_allclose(missing[:, 0], [0, 0, 1, 1])


def test_discounts_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(ConfigError, match="interval_gamma=1.5"):
        Discounting(interval_gamma=1.5)
