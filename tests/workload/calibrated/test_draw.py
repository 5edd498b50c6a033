"""Jobs drawn from a calibration follow it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.errors import ConfigError
from dl2env.workload.calibrated.draw import draw_arrivals, draw_jobs
from dl2env.workload.calibrated.fit_arrivals import model_correlation, pair_correlation
from dl2env.workload.calibrated.model import ArrivalModel, DurationModel, Level
from tests.workload.calibrated.models import CYCLE, SMALL


def drawn(num_jobs: int, seed: int = 0, calibration=SMALL):  # type: ignore[no-untyped-def]
    return draw_jobs(calibration, num_jobs, 0.01, *(np.random.default_rng([seed, k]) for k in range(3)))


def test_the_same_seed_gives_the_same_jobs_and_more_jobs_extend_them() -> None:
    first, again, more, other = drawn(300), drawn(300), drawn(1000), drawn(300, seed=1)
    for name in ("arrival_s", "gpu_class", "duration_s", "is_repeat"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(first, name), getattr(more, name)[:300])
    assert not np.array_equal(first.arrival_s, other.arrival_s)


def test_without_levels_and_cycle_arrivals_are_poisson() -> None:
    arrival_s = draw_arrivals(ArrivalModel(100.0), 50_000, 0.5, np.random.default_rng(0))
    gaps = np.diff(arrival_s)
    assert gaps.mean() == pytest.approx(2.0, rel=0.02)
    assert np.quantile(gaps, 0.5) == pytest.approx(2.0 * math.log(2), rel=0.03)
    assert pair_correlation(arrival_s).values == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("levels", [(), (Level(2.0, 300.0),), (Level(4.0, 50.0), Level(0.5, 5000.0))])
def test_the_mean_rate_seen_from_a_job_is_exact(levels: tuple[Level, ...]) -> None:
    """However bursty, 30 gaps last 30 times the mean gap on average: that is what `target_load` rests on."""
    model = ArrivalModel(1.0, CYCLE, levels=levels)
    spans = np.array([draw_arrivals(model, 31, 0.01, np.random.default_rng(s))[-1] for s in range(3000)])
    error = spans.std() / len(spans) ** 0.5
    assert abs(spans.mean() - 3000.0) < 4 * error
    assert error < 130.0


def test_pair_correlation_is_the_closed_form() -> None:
    model = ArrivalModel(1.0, levels=(Level(2.0, 100.0), Level(1.0, 3000.0)))
    seen = [pair_correlation(draw_arrivals(model, 40_000, 0.1, np.random.default_rng(s))) for s in range(5)]
    for lag in (10.0, 100.0, 1000.0, 4000.0):
        values = [float(np.interp(lag, c.lags_s, c.values)) for c in seen]
        expected = float(model_correlation(model, np.array([lag]))[0])
        assert np.mean(values) == pytest.approx(expected, rel=0.12), lag


def test_the_cycle_is_met() -> None:
    model = ArrivalModel(1.0, CYCLE)
    # The first hour of a draw is unknown, but the spread of rates over hours of a long one is not.
    arrival_s = draw_arrivals(model, 40_000, 40_000 / (100 * 86_400), np.random.default_rng(3))
    counts = np.bincount((arrival_s // 3600).astype(int) % 24, minlength=24) / 40_000 * 24
    assert np.sort(counts) == pytest.approx(np.sort(CYCLE), abs=0.15)
    assert counts.max() / counts.min() > 3


def test_sizes_follow_their_distributions() -> None:
    calibration = dataclasses.replace(SMALL, repeats=None)
    jobs = drawn(40_000, calibration=calibration)
    assert np.bincount(jobs.gpu_class) / 40_000 == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
    large = jobs.duration_s[jobs.gpu_class > 0]
    assert np.quantile(large, [0.1, 0.5, 0.9]) == pytest.approx([100.0, 1000.0, 40_000.0], rel=0.1)
    one = np.log(jobs.duration_s[jobs.gpu_class == 0])
    assert (one < math.log(600)).mean() == pytest.approx(0.5, abs=0.01)
    assert np.std(one[one < math.log(200)]) == pytest.approx(0.4, abs=0.03)
    assert not jobs.is_repeat.any()


def test_repeats_leave_sizes_as_they_are_and_resemble() -> None:
    jobs = drawn(60_000)
    assert np.bincount(jobs.gpu_class) / 60_000 == pytest.approx([0.7, 0.2, 0.1], abs=0.02)
    repeat = np.flatnonzero(jobs.is_repeat)
    gaps = np.diff(jobs.arrival_s)
    assert (gaps[repeat - 1] <= 30.0).all()
    assert repeat.size / (gaps <= 30.0).sum() == pytest.approx(0.6, abs=0.02)
    assert (jobs.gpu_class[repeat] == jobs.gpu_class[repeat - 1]).all()
    logs = np.log(jobs.duration_s)
    assert np.corrcoef(logs[repeat], logs[repeat - 1])[0, 1] > 0.5
    fresh = np.setdiff1d(np.arange(1, 60_000), repeat)
    assert abs(np.corrcoef(logs[fresh], logs[fresh - 1])[0, 1]) < 0.05


def test_a_single_duration_and_bounds() -> None:
    constant = DurationModel("x", "quantiles", 42.0, 42.0, probabilities=(0.5,), seconds=(42.0,))
    assert np.exp(constant.table[1]) == pytest.approx(42.0)
    assert constant.mean_s == pytest.approx(42.0)
    same = DurationModel("x", "lognormals", 1.0, 1e5, shares=(1.0,), medians_s=(50.0,), sigmas=(0.0,))
    assert np.exp(same.table[1]) == pytest.approx(50.0, rel=1e-4)


def test_mean_of_lognormals_is_the_closed_form() -> None:
    model = DurationModel(
        "x", "lognormals", 1e-6, 1e10, shares=(0.3, 0.7), medians_s=(100.0, 5000.0), sigmas=(0.5, 1.2)
    )
    assert model.mean_s == pytest.approx(0.3 * 100 * math.exp(0.125) + 0.7 * 5000 * math.exp(0.72), rel=2e-3)


def test_quantiles_go_on_as_a_lognormal() -> None:
    """Two quantiles of a log-normal give that log-normal, tails included."""
    seconds = tuple(1000.0 * math.exp(0.9 * z) for z in (-1.0, 1.0))
    p = 0.5 * math.erfc(1 / math.sqrt(2))
    model = DurationModel("x", "quantiles", 1e-3, 1e9, probabilities=(p, 1 - p), seconds=seconds)
    scores, logs = model.table
    assert logs == pytest.approx(math.log(1000.0) + 0.9 * scores, abs=1e-6)


def test_jobs_out_of_reach_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl2env.workload.calibrated.draw._MOST_PIECES", 100)
    model = ArrivalModel(1.0, levels=(Level(100.0, 1e6),))
    with pytest.raises(ConfigError, match="lower their variance"):
        for seed in range(100):  # some soon get into a long calm
            draw_arrivals(model, 1000, 1e-4, np.random.default_rng(seed))


@settings(max_examples=40, deadline=None)
@given(
    num_jobs=st.integers(1, 80),
    rate=st.floats(1e-5, 10.0),
    variances=st.lists(st.floats(0.01, 20.0), max_size=3),
    time_s=st.floats(60.0, 1e6),
    seed=st.integers(0, 2**32),
)
def test_arrivals_are_sorted_from_zero(
    num_jobs: int, rate: float, variances: list[float], time_s: float, seed: int
) -> None:
    model = ArrivalModel(1.0, CYCLE, levels=tuple(Level(v, time_s) for v in variances))
    arrival_s = draw_arrivals(model, num_jobs, rate, np.random.default_rng(seed))
    assert arrival_s.shape == (num_jobs,) and arrival_s[0] == 0.0
    assert np.isfinite(arrival_s).all() and (np.diff(arrival_s) >= 0).all()
