from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.replay import PendingIntervals, ReplayBuffer


def step(pending: PendingIntervals, kept: list[bool], rewards: list[float], number: int) -> None:
    num_envs = len(kept)
    marks = 100 * np.arange(num_envs) + number
    pending.add(np.array(kept), np.array(rewards), {"mark": marks, "jobs": np.repeat(marks[:, None], 2, axis=1)})


def test_decisions_wait_until_their_interval_ends() -> None:
    pending = PendingIntervals(2)
    step(pending, [True, True], [1.0, 10.0], 0)
    step(pending, [True, False], [2.0, 20.0], 1)
    first = pending.pop(0, "interval")
    assert first["mark"].tolist() == [0, 1]
    assert first["jobs"].tolist() == [[0, 0], [1, 1]]
    assert first["rewards"].tolist() == [3.0, 3.0]
    step(pending, [True, True], [4.0, 40.0], 2)
    # The reward of the decision that was not kept belongs to the interval all the same.
    assert pending.pop(1, "to_go")["rewards"].tolist() == [70.0, 60.0]
    assert pending.pop(0, "to_go")["mark"].tolist() == [2]
    assert len(pending.pop(0, "interval")["rewards"]) == 0


def test_intervals_of_any_length_fit() -> None:
    pending = PendingIntervals(2)
    for number in range(99):
        step(pending, [True, number % 9 == 0], [1.0, 0.0], number)
    taken = pending.pop(0, "to_go")
    assert taken["mark"].tolist() == list(range(99))
    assert taken["rewards"].tolist() == list(range(99, 0, -1))
    assert pending.pop(1, "interval")["mark"].tolist() == [100 + n for n in range(0, 99, 9)]


def test_waiting_decisions_survive_a_restart() -> None:
    pending, other = PendingIntervals(2), PendingIntervals(2)
    for number in range(40):
        step(pending, [True, number < 3], [1.0, 2.0], number)
    other.restore(pending.state())
    for p in (pending, other):
        step(p, [True, True], [5.0, 6.0], 77)
    for b in range(2):
        ours, theirs = pending.pop(b, "interval"), other.pop(b, "interval")
        for name, values in ours.items():
            np.testing.assert_array_equal(values, theirs[name])
    with pytest.raises(ValueError, match="2 environments were saved, this run has 3"):
        PendingIntervals(3).restore(pending.state())


def samples(*rewards: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"rewards": np.array(rewards, dtype=np.float32), "mark": np.array(rewards, dtype=np.int64)}


@given(st.lists(st.integers(1, 12), max_size=12), st.integers(1, 9))
def test_first_in_first_out(sizes: list[int], capacity: int) -> None:
    buffer = ReplayBuffer(capacity)
    everything: list[int] = []
    for size in sizes:
        marks = range(len(everything), len(everything) + size)
        buffer.add(samples(*marks))
        everything += marks
    assert len(buffer) == min(capacity, len(everything))
    if everything:
        drawn, _, weights = buffer.sample(capacity)
        assert sorted(drawn["mark"].tolist()) == everything[-capacity:]
        assert (weights == 1.0).all()
        assert buffer.mean_reward == pytest.approx(np.mean(everything[-capacity:]))


def test_uniform_batches_hold_each_sample_at_most_once_and_all_alike() -> None:
    buffer = ReplayBuffer(20, seed=1)
    buffer.add(samples(*range(20)))
    counts = np.zeros(20)
    for _ in range(2000):
        drawn, _, _ = buffer.sample(5)
        assert len(set(drawn["mark"].tolist())) == 5
        counts[drawn["mark"]] += 1
    # 2000 * 5 / 20 = 500 each; standard deviation below 20.
    assert np.abs(counts - 500).max() < 100


def test_priorities_by_hand() -> None:
    """Mean reward 3 at insertion: priorities max(1, 0 - 3) = 1, max(1, 6 - 3) = 3. P = 1/4, 3/4."""
    buffer = ReplayBuffer(2, "prioritized", seed=0)
    buffer.add(samples(0.0, 6.0))
    drawn, index, weights = buffer.sample(4000)
    assert np.mean(drawn["mark"] == 6) == pytest.approx(0.75, abs=0.03)
    # Weights (2 P)^-0.1, the larger made 1: 3^-0.1 for the likelier one.
    assert weights[drawn["mark"] == 0].tolist() == [1.0] * int((drawn["mark"] == 0).sum())
    np.testing.assert_allclose(weights[drawn["mark"] == 6], 3.0**-0.1, rtol=1e-6)
    np.testing.assert_array_equal(index == 1, drawn["mark"] == 6)
    # TD errors -1.99 and 100: priorities 2^0.9 and 4^0.9; the exponent is now 0.1001.
    buffer.set_priorities(np.array([0, 1]), np.array([-1.99, 100.0]))
    drawn, _, weights = buffer.sample(4000)
    share = 4**0.9 / (4**0.9 + 2**0.9)
    assert np.mean(drawn["mark"] == 6) == pytest.approx(share, abs=0.03)
    np.testing.assert_allclose(weights[drawn["mark"] == 6], 2.0 ** (-0.9 * 0.1001), rtol=1e-6)


@pytest.mark.parametrize("sampling", ["uniform", "prioritized"])
def test_buffer_survives_a_restart(sampling: Any) -> None:
    buffer, other = (ReplayBuffer(7, sampling, seed) for seed in (3, 4))
    buffer.add(samples(*range(5)))
    buffer.sample(3)
    buffer.add(samples(*range(5, 10)))
    other.restore(*buffer.state())
    for b in (buffer, other):
        b.add(samples(10.0, 30.0))
    for _ in range(3):
        (ours, index, weights), (theirs, other_index, other_weights) = buffer.sample(4), other.sample(4)
        np.testing.assert_array_equal(ours["mark"], theirs["mark"])
        np.testing.assert_array_equal(index, other_index)
        np.testing.assert_array_equal(weights, other_weights)
        for b in (buffer, other):
            b.set_priorities(index, np.linspace(0.1, 5.0, 4))
    with pytest.raises(ValueError, match="7 samples were saved, this run keeps 2"):
        ReplayBuffer(2).restore(*buffer.state())
