"""Fits find the parameters that made the jobs, and say what they cannot fit."""

from __future__ import annotations

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.workload.calibrated import fit_calibration
from dl2env.workload.calibrated.draw import draw_arrivals
from dl2env.workload.calibrated.files import format_calibration, parse_calibration
from dl2env.workload.calibrated.fit import Fit
from dl2env.workload.calibrated.fit_arrivals import fit_arrivals, resolution_of
from dl2env.workload.calibrated.fit_sizes import MOST_CLASSES, fit_durations, fit_repeats, fit_sizes
from dl2env.workload.calibrated.model import ArrivalModel, Level
from dl2env.workload.traces.table import JobTable
from tests.workload.calibrated.models import CYCLE, MONDAY_S, SMALL, drawn_table

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def refit() -> Fit:
    return fit_calibration(drawn_table(SMALL, 30_000), "small")


@pytest.mark.parametrize("is_dated", [True, False])
def test_cycles_are_recovered(is_dated: bool) -> None:
    """Eight weeks of hourly Poisson counts from a Monday on."""
    rng = np.random.default_rng(0)
    hour = np.arange(8 * 7 * 24)
    mean = 15.0 * np.array(CYCLE)[hour % 24] * np.where(hour // 24 % 7 >= 5, 0.4, 1.0)
    arrival_s = np.sort(np.repeat(hour, rng.poisson(mean)) * 3600.0)
    arrival_s = np.sort(arrival_s + rng.uniform(0.0, 3600.0, arrival_s.size))
    fit = fit_arrivals(arrival_s - arrival_s[0], (MONDAY_S if is_dated else 0.0) + arrival_s[0])
    model = fit.model
    assert (model.has_dates, fit.days) == (is_dated, "weekend" if is_dated else "each")
    assert model.hour_of_day == pytest.approx(CYCLE, abs=0.12)
    assert np.mean(model.day_of_week[5:]) / np.mean(model.day_of_week[:5]) == pytest.approx(0.4, abs=0.05)
    assert model.jobs_per_day == pytest.approx(arrival_s.size / 56, rel=0.01)
    lasts = fit.correlation.lags_s > 60.0
    assert fit.correlation.values[lasts] == pytest.approx(1.0, abs=0.06)  # the cycle is divided out


def test_levels_are_recovered() -> None:
    """From arrivals that start at the clock's zero, averaged over draws: a level is a random thing itself."""
    model = ArrivalModel(2000.0, levels=(Level(3.0, 200.0), Level(0.6, 10_000.0)))
    found = []
    for seed in range(3):
        arrival_s = draw_arrivals(model, 20_000, 2000 / 86_400, np.random.default_rng(seed))
        fit = fit_arrivals(arrival_s)
        assert len(fit.model.levels) >= 2
        assert fit.candidates[0][2] > fit.candidates[2][2]
        found.append(fit.fitted[np.searchsorted(fit.correlation.lags_s, [20.0, 2000.0])])
    expected = [(1 + 3 * np.exp(-0.1)) * 1.6, (1 + 0.6 * np.exp(-0.2))]
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=0.2)


def test_poisson_arrivals_need_no_level() -> None:
    arrival_s = draw_arrivals(ArrivalModel(1.0), 8_000, 0.02, np.random.default_rng(1))
    fit = fit_arrivals(arrival_s)
    assert fit.fitted[fit.correlation.lags_s > 25.0] == pytest.approx(1.0, abs=0.1)  # half a mean gap and more
    assert (fit.harmonics, fit.days) == (0, "flat") or np.ptp(fit.model.hour_of_day) < 0.15


def test_sizes_are_recovered(refit: Fit) -> None:
    calibration = refit.calibration
    assert calibration.num_gpus.tolist() == [1.0, 4.0, 8.0]
    assert calibration.shares == pytest.approx([0.7, 0.2, 0.1], abs=0.02)
    for fitted, made in zip(calibration.duration_of, SMALL.duration_of, strict=True):
        scores, logs = fitted.table
        middle = np.abs(scores) < 1.8
        assert np.abs(logs - made.table[1])[middle].mean() < 0.12
        assert fitted.mean_s == pytest.approx(made.mean_s, rel=0.3)


def test_repeats_are_recovered(refit: Fit) -> None:
    repeats = refit.calibration.repeats
    assert repeats is not None
    assert repeats.within_s == 30.0
    assert repeats.share == pytest.approx(0.6, abs=0.05)
    assert repeats.correlation == pytest.approx(0.8, abs=0.1)


def test_the_fit_is_deterministic_and_its_file_exact(refit: Fit) -> None:
    table = drawn_table(SMALL, 2000)
    assert fit_calibration(table, "small").calibration == fit_calibration(table, "small").calibration
    assert parse_calibration(format_calibration(refit.calibration)) == refit.calibration


def test_too_few_jobs_and_no_arrival_process() -> None:
    with pytest.raises(ConfigError, match="199 jobs are too few to fit, at least 200"):
        fit_calibration(drawn_table(SMALL, 199), "x")
    at_once = JobTable.of(np.zeros(300), np.ones(300), np.ones(300))
    with pytest.raises(ConfigError, match="all jobs arrive at the same time"):
        fit_calibration(at_once, "x")


def test_equal_durations_and_one_class() -> None:
    arrival_s = draw_arrivals(SMALL.arrivals, 2000, 0.02, np.random.default_rng(0))
    calibration = fit_calibration(JobTable.of(arrival_s, np.full(2000, 61.0), np.full(2000, 2.0)), "x").calibration
    (model,) = calibration.durations
    assert np.exp(model.table[1]) == pytest.approx(61.0)
    assert [(c.gpus, c.share) for c in calibration.gpus] == [(2.0, 1.0)]
    jobs = drawn_table(calibration, 500)
    assert (jobs.num_gpus == 2.0).all()
    assert jobs.duration_s == pytest.approx(61.0)


def test_jobs_without_gpus_and_shares() -> None:
    rng = np.random.default_rng(0)
    gpus = rng.choice([0.0, 0.25, 0.5, 1.0, 16.0], 5000, p=[0.3, 0.2, 0.2, 0.29, 0.01])
    fit = fit_sizes(gpus, rng.lognormal(7, 1, 5000), 0)
    assert [c.gpus for c in fit.gpus] == [0.0, 0.25, 0.5, 1.0, 16.0]
    assert fit.gpus[4].durations == fit.gpus[3].durations == "1_to_16_gpus"  # 50 jobs are too few for their own
    assert fit.gpus[0].durations == "0_gpus"
    assert fit.num_merged == 0


def test_many_numbers_of_gpus_become_few() -> None:
    rng = np.random.default_rng(0)
    gpus = np.concatenate((np.ones(5000), rng.integers(2, 300, 400).astype(float)))
    fit = fit_sizes(gpus, rng.lognormal(7, 1, gpus.size), 0)
    assert len(fit.gpus) == MOST_CLASSES
    assert fit.num_merged > 0
    assert sum(c.share for c in fit.gpus) == pytest.approx(1.0)
    assert np.bincount(fit.class_of_job).sum() == gpus.size


def test_kind_of_durations_is_chosen_by_fit() -> None:
    rng = np.random.default_rng(0)
    table, errors = fit_durations("x", rng.uniform(50.0, 51.0, 3000) ** rng.choice([1, 2, 3], 3000), 0)
    assert set(errors) == {"quantiles", "lognormals"}
    assert table.kind == min(errors, key=errors.__getitem__)
    few, _ = fit_durations("x", rng.lognormal(5, 1, 60), 0)
    assert few.mean_s == pytest.approx(np.exp(5.5), rel=0.5)


def test_independent_jobs_have_no_repeats() -> None:
    rng = np.random.default_rng(0)
    arrival_s = np.cumsum(rng.exponential(20.0, 5000))
    classes = rng.choice(3, 5000, p=[0.6, 0.3, 0.1])
    assert fit_repeats(arrival_s, classes, rng.lognormal(5, 1, 5000), np.array([0.6, 0.3, 0.1])) is None


@pytest.mark.parametrize(("unit", "expected"), [(1.0, 1.0), (60.0, 60.0), (0.37, 0.0)])
def test_resolution(unit: float, expected: float) -> None:
    assert resolution_of(5.0 + np.arange(50) * unit) == expected
