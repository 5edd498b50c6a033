"""Bootstrap intervals against closed forms, scipy and simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dl2env.errors import ConfigError
from dl2env.evaluation import statistics


def make_rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_mean_interval_agrees_with_scipy_and_the_normal_closed_form() -> None:
    scores = make_rng(1).lognormal(1.0, 0.5, size=60)
    interval = statistics.mean_interval(scores, make_rng(2), num_resamples=20_000)
    reference = stats.bootstrap(
        (scores,), np.mean, n_resamples=20_000, method="percentile", rng=make_rng(3)
    ).confidence_interval
    error = scores.std() / np.sqrt(scores.size)  # the bootstrap's own standard error of the mean
    assert interval.estimate == pytest.approx(scores.mean(), rel=1e-12)
    assert interval.low == pytest.approx(reference.low, abs=0.06 * error)
    assert interval.high == pytest.approx(reference.high, abs=0.06 * error)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_reduction_interval_agrees_with_scipy_on_pairs() -> None:
    baseline = make_rng(1).lognormal(2.0, 0.4, size=50)
    scores = baseline * make_rng(2).uniform(0.4, 0.9, size=50)
    interval = statistics.reduction_interval(scores, baseline, make_rng(4), num_resamples=20_000)
    reference = stats.bootstrap(
        (scores, baseline),
        lambda a, b, axis: 1 - a.mean(axis) / b.mean(axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        rng=make_rng(5),
    )
    width = reference.confidence_interval.high - reference.confidence_interval.low
    assert interval.estimate == pytest.approx(1 - scores.mean() / baseline.mean(), rel=1e-12)
    assert interval.low == pytest.approx(reference.confidence_interval.low, abs=0.03 * width)
    assert interval.high == pytest.approx(reference.confidence_interval.high, abs=0.03 * width)


def test_pairing_removes_the_variation_between_workloads() -> None:
    baseline = make_rng(1).lognormal(2.0, 1.0, size=40)
    interval = statistics.reduction_interval(0.7 * baseline, baseline, make_rng(2))
    assert interval == pytest.approx((0.3, 0.3, 0.3), abs=1e-12)
    difference = statistics.difference_interval(baseline - 2.0, baseline, make_rng(2))
    assert difference == pytest.approx((-2.0, -2.0, -2.0), abs=1e-9)


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = make_rng(7)
    covered = 0
    for _ in range(300):
        interval = statistics.mean_interval(rng.normal(3.0, 1.0, size=50), rng, num_resamples=400, confidence=0.9)
        covered += interval.low <= 3.0 <= interval.high
    # Binomial(300, about 0.89): five standard deviations are 0.09.
    assert 0.80 < covered / 300 < 0.97


def test_training_seeds_are_resampled_as_whole_rows() -> None:
    # Three runs, each equally good on every workload: the only uncertainty is which runs one happens to train, so the
    # resampled means are those of 3 draws from {0, 1, 2}, and the bounds are its 2.5 % and 97.5 % quantiles: P(sum = 0)
    # = 1/27 = 3.7 % > 2.5 %, hence the full range.
    scores = np.repeat(np.array([[0.0], [1.0], [2.0]]), 200, axis=1)
    interval = statistics.mean_interval(scores, make_rng(0))
    assert interval == pytest.approx((1.0, 0.0, 2.0))
    assert statistics.iqm_interval(scores, make_rng(0), num_resamples=2000)[1:] == pytest.approx((0.0, 2.0))


def test_two_sided_seeds_widen_the_reduction() -> None:
    rng = make_rng(3)
    baseline = rng.uniform(5, 10, size=30)
    runs = baseline * (0.6 + 0.1 * np.arange(3))[:, None]
    interval = statistics.reduction_interval(runs, baseline, make_rng(1))
    assert interval == pytest.approx((0.3, 0.2, 0.4), abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 15, 50])
def test_interquartile_mean_is_scipys_trimmed_mean(size: int) -> None:
    scores = make_rng(size).normal(size=size)
    assert statistics.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25), rel=1e-12)


def test_interquartile_mean_by_hand() -> None:
    assert statistics.interquartile_mean([[1.0, 2.0, 3.0, 100.0], [4.0, 5.0, -50.0, 6.0]]) == (2 + 3 + 4 + 5) / 4


def test_iqm_interval_agrees_with_scipy() -> None:
    scores = make_rng(1).lognormal(0.0, 1.0, size=40)
    interval = statistics.iqm_interval(scores, make_rng(2), num_resamples=8000)
    reference = stats.bootstrap(
        (scores,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), n_resamples=8000, method="percentile",
        rng=make_rng(3),
    ).confidence_interval  # fmt: skip
    assert interval.low == pytest.approx(reference.low, abs=0.02)
    assert interval.high == pytest.approx(reference.high, abs=0.03)


def test_probability_of_improvement_is_the_mann_whitney_statistic() -> None:
    rng = make_rng(5)
    ours, theirs = rng.integers(0, 5, size=(4, 6)).astype(float), rng.integers(0, 5, size=(3, 6)).astype(float)
    expected = np.mean(
        [stats.mannwhitneyu(theirs[:, n], ours[:, n]).statistic / (4 * 3) for n in range(6)]
    )  # lower is better: theirs above ours is a win
    interval = statistics.probability_of_improvement(ours, theirs, make_rng(1), num_resamples=2000)
    assert interval.estimate == pytest.approx(expected, rel=1e-12)
    assert interval.low <= interval.estimate <= interval.high
    mirrored = statistics.probability_of_improvement(
        ours, theirs, make_rng(1), num_resamples=2000, lower_is_better=False
    )
    assert mirrored.estimate == pytest.approx(1 - expected, rel=1e-12)


def test_probability_of_improvement_of_single_runs_is_a_binomial_proportion() -> None:
    ours = np.where(np.arange(100) < 80, 1.0, 3.0)
    interval = statistics.probability_of_improvement(ours, np.full(100, 2.0), make_rng(1))
    low, high = stats.binom.ppf([0.025, 0.975], 100, 0.8) / 100
    assert interval.estimate == pytest.approx(0.8)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.011)


def test_one_workload_has_no_interval() -> None:
    interval = statistics.mean_interval([4.0], make_rng(0))
    assert interval.estimate == 4.0
    assert np.isnan(interval.low) and np.isnan(interval.high)
    assert np.isnan(statistics.reduction_interval([4.0], [5.0], make_rng(0)).low)


def test_the_generator_decides_the_interval() -> None:
    scores = make_rng(1).normal(size=20)
    first = statistics.mean_interval(scores, make_rng(9), num_resamples=500)
    assert first == statistics.mean_interval(scores, make_rng(9), num_resamples=500)
    assert first != statistics.mean_interval(scores, make_rng(10), num_resamples=500)


@given(
    st.lists(st.floats(0.1, 100.0), min_size=2, max_size=30),
    st.floats(0.1, 10.0),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_reduction_does_not_depend_on_the_unit(values: list[float], unit: float, seed: int) -> None:
    scores = np.array(values)
    baseline = scores[::-1] + 1.0
    plain = statistics.reduction_interval(scores, baseline, make_rng(seed), num_resamples=200)
    scaled = statistics.reduction_interval(unit * scores, unit * baseline, make_rng(seed), num_resamples=200)
    assert plain == pytest.approx(scaled, rel=1e-9, abs=1e-9)
    assert plain.low <= plain.high < 1.0


@pytest.mark.parametrize(
    ("scores", "baseline", "message"),
    [
        ([1.0, float("nan")], [1.0, 1.0], "scores of seed 0, workload 1 is nan"),
        ([1.0, 2.0], [1.0], "same workloads on both sides, got 2 and 1"),
        ([], [1.0], "not empty"),
        ([1.0, 2.0], [0.0, 0.0], "must not be negative, nor all zero"),
    ],
)
def test_bad_scores_are_named(scores: list[float], baseline: list[float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        statistics.reduction_interval(scores, baseline, make_rng(0))


def test_bad_confidence_is_named() -> None:
    with pytest.raises(ConfigError, match="confidence=95"):
        statistics.mean_interval([1.0, 2.0], make_rng(0), confidence=95)


def test_sign_flips_by_hand() -> None:
    rng = np.random.default_rng(0)
    # Of the eight sums of +-1 +-2 +-4, 7 and -7 are as large as 7; 5, -5, 7 and -7 are as large as 5.
    assert statistics.sign_flip_p([1.0, 2.0, 4.0], rng) == 2 / 8
    assert statistics.sign_flip_p([-1.0, 2.0, 4.0], rng) == 4 / 8
    assert statistics.sign_flip_p([0.0, 0.0], rng) == 1.0
    assert statistics.sign_flip_p([3.0], rng) == 1.0
    assert (
        statistics.sign_flip_p(np.arange(1.0, 9.0), rng)
        == 2 / 256
        < 0.01
        < statistics.sign_flip_p(np.arange(1.0, 8.0), rng)
    )


def test_random_sign_flips_come_near_to_all_of_them() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0.4, 1.0, 17)
    flips = 1 - 2 * ((np.arange(2**17)[:, None] >> np.arange(17)) & 1)
    exact = np.mean(np.abs(flips @ values) >= abs(values.sum()) - 1e-9)
    assert statistics.sign_flip_p(values, rng) == pytest.approx(exact, abs=0.005)


def test_sign_flips_raise_false_alarms_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    alarms = [statistics.sign_flip_p(rng.lognormal(size=9) - rng.lognormal(size=9), rng) < 0.05 for _ in range(600)]
    assert 0.02 < np.mean(alarms) < 0.08


def test_wrong_differences() -> None:
    for values in ([], [[1.0], [2.0]], [np.nan]):
        with pytest.raises(ConfigError, match="differences"):
            statistics.sign_flip_p(values, np.random.default_rng(0))
