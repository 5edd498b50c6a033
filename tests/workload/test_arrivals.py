"""Arrival processes: exact ones by hand, random ones by their statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dl2env.config import ArrivalConfig
from dl2env.errors import ConfigError
from dl2env.workload.arrivals import PROCESSES, draw_arrivals

INTERVAL_S = 1200.0


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def hourly_counts(arrival_s: NDArray[np.float64], hours: int) -> NDArray[np.int64]:
    assert arrival_s[-1] > hours * 3600
    return np.bincount((arrival_s // 3600).astype(np.int64))[:hours]


def test_uniform_and_batch_by_hand() -> None:
    even = draw_arrivals(rng(), 4, ArrivalConfig(kind="uniform", rate_per_interval=3.0), INTERVAL_S)
    np.testing.assert_allclose(even, [0, 400, 800, 1200])
    np.testing.assert_array_equal(draw_arrivals(rng(), 3, ArrivalConfig(kind="batch"), INTERVAL_S), [0, 0, 0])


def test_poisson_gaps_are_exponential() -> None:
    arrival_s = draw_arrivals(rng(), 200_000, ArrivalConfig(kind="poisson", rate_per_interval=4.0), INTERVAL_S)
    gaps = np.diff(arrival_s, prepend=0.0)
    assert gaps.mean() == pytest.approx(300.0, rel=0.01)
    assert gaps.std() == pytest.approx(300.0, rel=0.01)
    assert (gaps > 600.0).mean() == pytest.approx(np.exp(-2), rel=0.02)


@given(
    st.sampled_from(sorted(PROCESSES)),
    st.integers(1, 300),
    st.floats(0.01, 100.0),
    st.floats(0.0, 0.99),
    st.floats(0.0, 2.0),
    st.tuples(st.floats(1.0, 1e4), st.floats(1e-3, 0.999), st.floats(1.0, 1e6)),
    st.integers(0, 2**32),
)
@settings(max_examples=150)
def test_times_are_sorted_and_repeatable(
    kind: str, num_jobs: int, rate: float, swing: float, sd: float, burst: tuple[float, float, float], seed: int
) -> None:
    config = ArrivalConfig(kind, rate, swing, sd, *burst)  # type: ignore[arg-type]
    arrival_s = draw_arrivals(rng(seed), num_jobs, config, INTERVAL_S)
    assert arrival_s.shape == (num_jobs,)
    assert np.isfinite(arrival_s).all() and arrival_s[0] >= 0.0
    assert (np.diff(arrival_s) >= 0.0).all()
    np.testing.assert_array_equal(arrival_s, draw_arrivals(rng(seed), num_jobs, config, INTERVAL_S))


def diurnal_statistics(rate_per_hour: float, num_weeks: int, **changes: float) -> tuple[float, float, float]:
    """Mean, coefficient of variation and lag-1 autocorrelation of hourly counts over many 72-hour windows."""
    config = ArrivalConfig(kind="diurnal", rate_per_interval=rate_per_hour * INTERVAL_S / 3600, **changes)  # type: ignore[arg-type]
    source = rng(1)
    counts = np.array(
        [
            hourly_counts(draw_arrivals(source, int(rate_per_hour * 130), config, INTERVAL_S), 72)
            for _ in range(num_weeks)
        ]
    )
    deviation = counts - counts.mean()
    lag_1 = (deviation[:, 1:] * deviation[:, :-1]).mean() / (deviation**2).mean()
    return float(counts.mean()), float(counts.std() / counts.mean()), float(lag_1)


def test_diurnal_defaults_meet_the_published_hourly_counts() -> None:
    """Published: mean 33.7, sd 19.2 (0.57 of the mean), lag-1 autocorrelation 0.48 over 72 hours.

    A 72-hour window of this process scatters by 0.08 in sd/mean and 0.14 in autocorrelation; the means must be closer.
    """
    mean, variation, lag_1 = diurnal_statistics(33.7, 200)
    assert mean == pytest.approx(33.7, rel=0.02)
    assert variation == pytest.approx(19.2 / 33.7, abs=0.04)
    assert lag_1 == pytest.approx(0.48, abs=0.07)


def test_diurnal_range_covers_the_published_extremes() -> None:
    config = ArrivalConfig(kind="diurnal", rate_per_interval=33.7 / 3)
    source = rng(2)
    counts = [hourly_counts(draw_arrivals(source, 4400, config, INTERVAL_S), 72) for _ in range(100)]
    smallest, largest = (
        np.percentile([c.min() for c in counts], [5, 95]),
        np.percentile([c.max() for c in counts], [5, 95]),
    )
    assert smallest[0] <= 3 <= smallest[1]
    assert largest[0] <= 82 <= largest[1]


def test_diurnal_formula() -> None:
    """Variance and lag-1 covariance of the hourly counts as the docstring derives them, at another setting."""
    m, swing, v = 60.0, 0.8, 0.3
    _, variation, lag_1 = diurnal_statistics(m, 200, diurnal_swing=swing, diurnal_sd=v**0.5)
    variance = m + m**2 * ((1 + swing**2 / 2) * (1 + 2 * v / 3) - 1)
    covariance = m**2 * ((1 + np.cos(2 * np.pi / 24) * swing**2 / 2) * (1 + v / 6) - 1)
    assert variation == pytest.approx(variance**0.5 / m, rel=0.04)
    assert lag_1 == pytest.approx(covariance / variance, rel=0.06)


def test_absurd_variation_is_refused() -> None:
    with pytest.raises(ConfigError, match="diurnal_sd=50"):
        draw_arrivals(rng(), 5, ArrivalConfig(kind="diurnal", diurnal_sd=50.0), INTERVAL_S)


def test_diurnal_without_variation_is_poisson() -> None:
    _, variation, lag_1 = diurnal_statistics(40.0, 100, diurnal_swing=0.0, diurnal_sd=0.0)
    assert variation == pytest.approx(40.0**-0.5, rel=0.05)
    assert abs(lag_1) < 0.05


BURSTY = {"kind": "bursty", "rate_per_interval": 3.0, "burst_factor": 10.0, "burst_share": 0.2, "burst_s": 1800.0}


def bursty_counts(hours: float, num_episodes: int, **changes: float) -> NDArray[np.int64]:
    """Arrivals up to a time, in many episodes."""
    config = ArrivalConfig(**{**BURSTY, **changes})  # type: ignore[arg-type]
    source = rng(4)
    episodes = [draw_arrivals(source, 400, config, INTERVAL_S) for _ in range(num_episodes)]
    assert min(arrival_s[-1] for arrival_s in episodes) > hours * 3600
    return np.array([(arrival_s < hours * 3600).sum() for arrival_s in episodes])


@pytest.mark.parametrize("hours", [0.5, 4.0])
def test_bursty_mean_and_dispersion(hours: float) -> None:
    """The mean is the stated rate from time 0 on; the variance is the one that the docstring gives."""
    counts = bursty_counts(hours, 5000)
    t = hours * 3600 / INTERVAL_S
    calm = 3.0 / (1 + 0.2 * 9)
    a, k = 0.2 * 0.8 * (9 * calm) ** 2, INTERVAL_S / (1800.0 * 0.8)
    variance = 3.0 * t + 2 * a * (t / k - (1 - np.exp(-k * t)) / k**2)
    assert counts.mean() == pytest.approx(3.0 * t, abs=4 * (variance / 5000) ** 0.5)
    assert counts.var() == pytest.approx(variance, rel=0.1)
    assert counts.var() / counts.mean() > (3.0 if hours < 1 else 10.0)  # Poisson: 1


def test_bursts_bring_their_share_of_the_jobs() -> None:
    """In a long episode, the busiest fifth of the time brings f q / (1 + q (f - 1)) of the jobs, 71 %."""
    config = ArrivalConfig(**{**BURSTY, "burst_s": 50 * INTERVAL_S, "rate_per_interval": 30.0})  # type: ignore[arg-type]
    arrival_s = draw_arrivals(rng(1), 1_000_000, config, INTERVAL_S)
    counts = np.sort(np.bincount((arrival_s // INTERVAL_S).astype(np.int64)))[::-1]
    is_busy = counts > 50  # rates are 10.7 and 107 per interval
    assert is_busy.mean() == pytest.approx(0.2, abs=0.05)
    assert counts[is_busy].mean() == pytest.approx(10 * 30 / 2.8, rel=0.02)
    assert counts[~is_busy].mean() == pytest.approx(30 / 2.8, rel=0.05)


def test_bursts_of_the_same_rate_are_a_poisson_process() -> None:
    config = ArrivalConfig(**{**BURSTY, "burst_factor": 1.0})  # type: ignore[arg-type]
    gaps = np.diff(draw_arrivals(rng(), 200_000, config, INTERVAL_S), prepend=0.0)
    assert gaps.mean() == pytest.approx(400.0, rel=0.01)
    assert gaps.std() == pytest.approx(400.0, rel=0.01)


def test_more_bursty_jobs_extend_the_same_sequence() -> None:
    config = ArrivalConfig(**BURSTY)  # type: ignore[arg-type]
    few, many = (draw_arrivals(rng(7), n, config, INTERVAL_S) for n in (20, 500))
    np.testing.assert_array_equal(few, many[:20])
