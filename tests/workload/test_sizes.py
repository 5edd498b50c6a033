"""Job sizes: the published statistics, and the work that meets a duration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.config import JobSizeConfig
from dl2env.workload.sizes import bin_shares, draw_durations, epochs_for

NUM = 400_000


def draw(config: JobSizeConfig, num_jobs: int = NUM) -> np.ndarray:
    return draw_durations(np.random.default_rng(0), num_jobs, config)


def test_bin_shares_by_hand() -> None:
    shares = bin_shares()
    assert sum(shares) == pytest.approx(1.0)
    assert (shares[0], shares[-1]) == (0.68, 0.03)
    ratios = np.divide(shares[2:7], shares[1:6])
    np.testing.assert_allclose(ratios, ratios[0])
    assert 0 < ratios[0] < 1
    # log-uniform on [10, 125] has mean (125 - 10) / ln 12.5; the other bins their middles
    means = [115 / np.log(12.5), *(125 * (k + 0.5) for k in range(1, 8))]
    assert np.dot(shares, means) == pytest.approx(147.0)


def test_published_statistics() -> None:
    minutes = draw(JobSizeConfig()) / 60
    assert minutes.mean() == pytest.approx(147.0, rel=0.01)
    assert (minutes > 60).mean() > 0.5
    shares = np.histogram(minutes, np.arange(9) * 125.0)[0] / NUM
    np.testing.assert_allclose(shares, bin_shares(), atol=0.003)
    assert minutes.min() >= 10.0 and minutes.max() <= 1000.0


def test_published_bins_scale_with_the_mean() -> None:
    np.testing.assert_allclose(
        draw(JobSizeConfig(mean_s=60.0), 100), draw(JobSizeConfig(mean_s=120.0), 100) / 2, rtol=1e-12
    )


def test_lognormal_and_fixed() -> None:
    durations = draw(JobSizeConfig(kind="lognormal", mean_s=500.0, sigma=0.7))
    assert durations.mean() == pytest.approx(500.0, rel=0.01)
    assert np.log(durations).std() == pytest.approx(0.7, rel=0.01)
    np.testing.assert_array_equal(draw(JobSizeConfig(kind="fixed", mean_s=7.0), 3), [7.0, 7.0, 7.0])


@given(st.floats(1.0, 1e6), st.floats(0.1, 1e5), st.floats(1.0, 1e8))
def test_epochs_meet_the_duration(duration_s: float, samples_per_s: float, samples_per_epoch: float) -> None:
    epochs = epochs_for(np.array([duration_s]), np.array([samples_per_s]), np.array([samples_per_epoch]))
    assert epochs[0] * samples_per_epoch / samples_per_s == pytest.approx(duration_s)


def test_epochs_by_hand() -> None:
    np.testing.assert_allclose(epochs_for(np.array([100.0]), np.array([32.0]), np.array([640.0])), [5.0])
