"""Ranks with ties, win matrix and geometric means over scenarios."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.ranking import RankRange, Standing, compare_on_scenario, compare_over_scenarios, win_matrix
from dl2env.evaluation.statistics import difference_interval, resampled_means

BASE = np.random.default_rng(0).lognormal(2.0, 0.8, size=60)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_means_share_their_resamples() -> None:
    scores = np.stack([BASE, 2.0 * BASE, BASE + 1.0])
    draws = resampled_means(scores, rng(), 500)
    assert draws.shape == (3, 500)
    assert draws[1] == pytest.approx(2.0 * draws[0], rel=1e-12)
    assert draws[2] == pytest.approx(draws[0] + 1.0, rel=1e-12)
    assert draws[0].std() == pytest.approx(BASE.std() / np.sqrt(60), rel=0.15)


def test_ranks_of_clear_and_tied_schedulers() -> None:
    """A factor on every workload is beyond doubt whatever the spread; noise around zero is a tie."""
    noise = np.tile([1.05, 0.95], 30)
    standing = compare_on_scenario(["slow", "base", "tied", "fast"], [2 * BASE, BASE, BASE * noise, 0.5 * BASE], rng())
    assert [standing.names[k] for k in standing.order][0] == "fast"
    assert [str(rank) for rank in standing.ranks] == ["4", "2–3", "2–3", "1"]
    assert standing.is_better.sum() == 5
    ratios = dict(zip(standing.names, standing.ratios("base"), strict=True))
    assert ratios["slow"] == pytest.approx((2.0, 2.0, 2.0)) and ratios["base"] == (1.0, 1.0, 1.0)
    assert ratios["tied"].low < 1.0 < ratios["tied"].high
    with pytest.raises(UnknownNameError, match="reference scheduler 'none'"):
        standing.ratios("none")


def test_ties_are_not_transitive() -> None:
    """A ties with B and B with C, but A beats C."""
    spread = np.tile([1.0, -1.0], 50)
    scores = np.stack([np.full(100, 10.0), 10.12 + spread, np.full(100, 10.24)])
    standing = compare_on_scenario(["a", "b", "c"], scores, rng())
    assert standing.ranks == (RankRange(1, 2), RankRange(1, 3), RankRange(2, 3))


def test_a_tie_is_what_the_paired_interval_says() -> None:
    for seed in range(20):
        other = BASE * rng(seed).lognormal(0.02, 0.1, size=60)
        interval = difference_interval(other, BASE, rng(1))
        standing = compare_on_scenario(["base", "other"], [BASE, other], rng(1))
        assert standing.is_better[0, 1] == (interval.low > 0)
        assert standing.is_better[1, 0] == (interval.high < 0)


def test_identical_schedulers_tie() -> None:
    standing = compare_on_scenario(["a", "b"], [BASE, BASE.copy()], rng())
    assert standing.ranks == (RankRange(1, 2), RankRange(1, 2))
    assert standing.ratios("a")[1] == (1.0, 1.0, 1.0)


def test_one_workload_proves_nothing() -> None:
    standing = compare_on_scenario(["a", "b"], [[1.0], [3.0]], rng())
    assert standing.ranks == (RankRange(1, 2), RankRange(1, 2))
    ratio = standing.ratios("a")[1]
    assert ratio.estimate == pytest.approx(3.0) and np.isnan(ratio.low) and np.isnan(ratio.high)


def test_geometric_mean_over_scenarios() -> None:
    """Half on one scenario and twice on the other is as good as the reference; scale does not matter."""
    first = compare_on_scenario(["ref", "x"], [BASE, 0.5 * BASE], rng(1))
    second = compare_on_scenario(["ref", "x"], [1000 * BASE[:30], 2000 * BASE[:30]], rng(2))
    both = compare_over_scenarios([first, second])
    assert both.ratios("ref")[1] == pytest.approx((1.0, 1.0, 1.0))
    third = compare_on_scenario(["ref", "x"], [[7.0], [7.0 / 8.0]], rng(3))
    assert compare_over_scenarios([first, second, third]).ratios("ref")[1].estimate == pytest.approx(0.5)
    assert both.num_resampled == 60
    with pytest.raises(ConfigError, match="same schedulers"):
        compare_over_scenarios([first, compare_on_scenario(["x", "ref"], [BASE, BASE], rng())])
    with pytest.raises(ConfigError, match="there must be one"):
        compare_over_scenarios([])


def test_scenarios_average_out_independent_noise() -> None:
    """Four scenarios of equal spread halve the interval of one, because their resamples are independent."""
    noisy = BASE * rng(5).lognormal(0.0, 0.4, size=60)
    one = compare_on_scenario(["ref", "x"], [BASE, noisy], rng(0))
    four = compare_over_scenarios([compare_on_scenario(["ref", "x"], [BASE, noisy], rng(k)) for k in range(4)])
    width = [np.log(s.ratios("ref")[1].high / s.ratios("ref")[1].low) for s in (one, four)]
    assert width[1] / width[0] == pytest.approx(0.5, abs=0.05)


def test_win_matrix_by_hand() -> None:
    wins = win_matrix([[1.0, 5.0, 2.0, 2.0], [2.0, 4.0, 2.0, 3.0]])
    assert wins.tolist() == [[0.5, 0.625], [0.375, 0.5]]


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_ranks_are_consistent(size: int, workloads: int, seed: int) -> None:
    scores = rng(seed).choice([1.0, 2.0, 3.0, 10.0], size=(size, workloads))
    standing = compare_on_scenario([str(k) for k in range(size)], scores, rng(seed), num_resamples=200)
    better = standing.is_better
    assert not (better & better.T).any()
    for k, rank in enumerate(standing.ranks):
        assert 1 <= rank.best <= rank.worst <= size
        place = 1 + int((standing.log_mean < standing.log_mean[k]).sum())
        assert rank.best <= place
    wins = win_matrix(scores)
    assert wins + wins.T == pytest.approx(np.ones((size, size)))


@pytest.mark.parametrize(
    ("names", "scores", "words"),
    [
        (["a", "a"], [[1.0], [2.0]], "distinct"),
        (["a"], [[1.0], [2.0]], "one row of scores each"),
        (["a"], [[]], "one row of scores"),
        (["a"], [[0.0]], "score 0.0 of a on workload 0"),
        (["a", "b"], [[1.0, 1.0], [1.0, float("nan")]], "score nan of b on workload 1"),
    ],
)
def test_wrong_scores(names: list[str], scores: list[list[float]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compare_on_scenario(names, scores, rng())


def test_thirty_schedulers_on_fifteen_scenarios_take_seconds() -> None:
    names = [f"s{k}" for k in range(30)]
    started = time.process_time()
    standings = []
    for k in range(15):
        scores = rng(k).lognormal(2.0, 0.5, size=(30, 100))
        standing: Standing = compare_on_scenario(names, scores, rng(k))
        assert len(standing.ranks) == len(standing.ratios("s0")) == 30
        standings.append(standing)
    assert len(compare_over_scenarios(standings).ranks) == 30
    assert time.process_time() - started < 20.0
