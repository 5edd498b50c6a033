"""Costs by interval are parts of the JCT; windows and regret by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.online.measures import interval_costs, measure, window_ratios, window_sums
from dl2env.errors import ConfigError

NAN = float("nan")


def test_costs_by_hand() -> None:
    # A job from 0.5 to 2.25, one from 1 to 1.5, one that never ends from 3.75 on; intervals of 10 s.
    costs = interval_costs([5.0, 10.0, 37.5], [22.5, 15.0, NAN], 10.0, 5)
    np.testing.assert_allclose(costs, [0.5, 1.5, 0.25, 0.25, 1.0])


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.floats(0, 30), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_costs_equal_the_overlap_and_sum_to_jct(jobs: list[tuple[float, float, bool]]) -> None:
    arrival = np.array([a for a, _, _ in jobs])
    finish = np.array([a + d if done else NAN for a, d, done in jobs])
    costs = interval_costs(arrival, finish, 1.0, 70)
    until = np.where(np.isnan(finish), 70.0, finish)
    overlap = [np.clip(np.minimum(until, k + 1) - np.maximum(arrival, k), 0, None).sum() for k in range(70)]
    np.testing.assert_allclose(costs, overlap, atol=1e-9)
    np.testing.assert_allclose(costs.sum(), (until - arrival).sum(), atol=1e-8)


def test_windows_by_hand() -> None:
    own, other = np.array([2.0, 0.0, 4.0, 6.0]), np.array([1.0, 1.0, 1.0, 3.0])
    np.testing.assert_allclose(window_sums(own, 2), [2.0, 4.0, 10.0])
    np.testing.assert_allclose(window_ratios(own, other, 2), [1.0, 2.0, 2.5])
    np.testing.assert_allclose(window_ratios(np.array([0.0, 3.0]), np.zeros(2), 1), [1.0, np.inf])
    with pytest.raises(ConfigError, match="window=5"):
        window_sums(own, 5)


def test_measures_by_hand() -> None:
    found = measure(
        np.array([0.0, 10.0, 20.0]),
        np.array([20.0, 15.0, NAN]),
        np.array([0, 0, 1]),
        np.array([1.0, 1.0, 4.0]),
        interval_s=10.0,
        num_segments=2,
        window=2,
    )
    np.testing.assert_allclose(found.costs, [1.0, 1.5, 1.0])
    np.testing.assert_allclose(found.regret, [0.0, 0.5, -2.5])
    np.testing.assert_allclose(found.ratios, [1.25, 0.5])
    assert (found.worst_ratio, found.worst_window, found.num_unfinished, found.mean_jct) == (1.25, 0, 1, 1.25)
    np.testing.assert_allclose(found.segment_jct, [1.25, NAN])
    assert found.summary()["segment_jct_intervals"] == [1.25, None]
    assert found.summary()["share_of_windows_above_1"] == 0.5
