"""Draws jobs from a calibration (`model.py` says what each part means)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.workload.calibrated.model import DAYS, HOURS, ArrivalModel, Calibration, Level

FloatArray = NDArray[np.float64]

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
_WEEK_HOURS = HOURS * DAYS
_BLOCK = 256  # values drawn at a time; a constant, so that further jobs extend the same sequence
_MOST_PIECES = 20_000_000


@dataclass(frozen=True)
class DrawnJobs:
    """Jobs in arrival order, one array entry per job.

    Attributes:
        arrival_s: (N,) seconds; the first job arrives at 0.
        gpu_class: (N,) int64 index into the calibration's classes.
        duration_s: (N,) seconds.
        is_repeat: (N,) whether the job repeats the one before it.
    """

    arrival_s: FloatArray
    gpu_class: NDArray[np.int64]
    duration_s: FloatArray
    is_repeat: NDArray[np.bool_]


def draw_jobs(
    calibration: Calibration,
    num_jobs: int,
    jobs_per_s: float,
    arrivals: np.random.Generator,
    gpus: np.random.Generator,
    sizes: np.random.Generator,
    shares: FloatArray | None = None,
) -> DrawnJobs:
    """Draws jobs. With the same generators, more jobs extend the same sequence.

    Args:
        calibration: What they follow.
        num_jobs: N, at least 1.
        jobs_per_s: Mean rate of arrivals.
        arrivals: Source of randomness of arrivals.
        gpus: Source of randomness of numbers of GPUs.
        sizes: Source of randomness of durations.
        shares: (C,) shares of the classes; by default the calibration's.

    Raises:
        ConfigError: The levels vary so much that so many jobs do not arrive within reach.
    """
    arrival_s = draw_arrivals(calibration.arrivals, num_jobs, jobs_per_s, arrivals)
    repeats = calibration.repeats
    chances = gpus.random((num_jobs, 2))
    is_repeat = np.zeros(num_jobs, dtype=bool)
    if repeats is not None:
        is_repeat[1:] = (np.diff(arrival_s) <= repeats.within_s) & (chances[1:, 1] < repeats.share)
    cumulative = np.cumsum(calibration.shares if shares is None else shares)
    fresh = np.minimum(np.searchsorted(cumulative, chances[:, 0], side="right"), cumulative.size - 1)
    original = np.maximum.accumulate(np.where(is_repeat, 0, np.arange(num_jobs)))
    gpu_class = fresh[original]
    scores = sizes.standard_normal(num_jobs)
    if repeats is not None and repeats.correlation > 0:
        scores = _correlated(scores, is_repeat, repeats.correlation)
    return DrawnJobs(arrival_s, gpu_class, durations_of(calibration, gpu_class, scores), is_repeat)


def durations_of(calibration: Calibration, gpu_class: NDArray[np.int64], scores: FloatArray) -> FloatArray:
    """(N,) durations of jobs of these classes at these standard normal scores."""
    duration_s = np.empty(scores.size)
    names = [gpu_class.durations for gpu_class in calibration.gpus]
    for model in calibration.durations:
        uses = np.array([name == model.name for name in names])[gpu_class]
        if uses.any():
            duration_s[uses] = np.exp(np.interp(scores[uses], *model.table))
    return duration_s


def _correlated(scores: FloatArray, is_repeat: NDArray[np.bool_], correlation: float) -> FloatArray:
    """Scores that follow an autoregression of order 1 within each run of repeats; each stays standard normal."""
    values = scores.tolist()
    rest = (1.0 - correlation**2) ** 0.5
    for i in np.flatnonzero(is_repeat).tolist():
        values[i] = correlation * values[i - 1] + rest * values[i]
    return np.array(values)


def draw_arrivals(
    model: ArrivalModel, num_jobs: int, jobs_per_s: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Arrival times, as seen from an arbitrary job: (num_jobs,) seconds, not decreasing, the first one 0.

    Seen from a job rather than from an arbitrary time, the mean time between arrivals is 1 / `jobs_per_s` however
    bursty the process is, so that episodes offer the load they are meant to; a replay that starts at a random job of a
    trace does the same. For a Cox process that means: the levels at time 0 are drawn with their value as the weight
    (Gamma of shape 1/v + 1), and so is the hour of the week. Arrivals are unit-rate exponential gaps mapped through the
    inverse of the rate's integral, which is exact.

    Raises:
        ConfigError: The levels vary so much that so many jobs do not arrive within reach.
    """
    # A generator for each part, so that further jobs extend the same sequence.
    words = rng.integers(2**63, size=(2 + len(model.levels), 2)).tolist()
    clock, gaps, *of_levels = (np.random.Generator(np.random.PCG64(pair)) for pair in words)
    rate = _Rate(model, jobs_per_s, clock, of_levels, num_jobs)
    return np.concatenate((np.zeros(1), rate.times(gaps.standard_exponential(num_jobs - 1).cumsum())))


class _Rate:
    """Rate of arrivals over time, constant on pieces, with its integral."""

    def __init__(
        self,
        model: ArrivalModel,
        rate: float,
        clock: np.random.Generator,
        of_levels: list[np.random.Generator],
        num_jobs: int,
    ) -> None:
        profile = model.profile
        cumulative = np.cumsum(profile / profile.sum())
        self._hour = min(int(np.searchsorted(cumulative, clock.random(), side="right")), _WEEK_HOURS - 1)
        self._into_s = clock.random() * HOUR_S
        self._profile = profile
        self._rate = rate
        self._levels = [_LevelPath(level, rng) for level, rng in zip(model.levels, of_levels, strict=True)]
        self._until_s = 2.0 * (num_jobs + 8) / rate
        self._fastest_s = min([HOUR_S, *(level.time_s for level in model.levels)])
        self._build()

    def times(self, targets: FloatArray) -> FloatArray:
        """Times at which the integral of the rate reaches these values."""
        while targets.size and self._integral[-1] < targets[-1]:
            if self._until_s / self._fastest_s > _MOST_PIECES:
                raise ConfigError(
                    "calibration: arrivals.levels vary so much that the jobs of an episode do not arrive within reach; "
                    "lower their variance or workload.num_jobs"
                )
            self._until_s *= 2.0
            self._build()
        return np.asarray(np.interp(targets, self._integral, self._times))

    def _build(self) -> None:
        until = self._until_s
        hours = np.arange(1, int((until + self._into_s) / HOUR_S) + 1) * HOUR_S - self._into_s
        paths = [path.until(until) for path in self._levels]
        parts = [np.zeros(1), hours, *(times[1:] for times, _ in paths)]
        times = np.unique(np.concatenate(parts))
        times = times[times < until]
        week_hour = (self._hour + np.searchsorted(hours, times, side="right")) % _WEEK_HOURS
        rate = self._rate * self._profile[week_hour]
        for starts, values in paths:
            rate = rate * values[np.searchsorted(starts, times, side="right") - 1]
        self._times = np.append(times, until)
        self._integral = np.concatenate((np.zeros(1), np.cumsum(rate * np.diff(self._times))))


class _LevelPath:
    """A level's values over time, drawn as far as they are asked for."""

    def __init__(self, level: Level, rng: np.random.Generator) -> None:
        self._level = level
        self._rng = rng
        shape = 1.0 / level.variance
        self._starts = np.zeros(1)
        self._values = np.array([rng.standard_gamma(shape + 1.0) / shape])
        self._end_s = rng.standard_exponential() * level.time_s

    def until(self, time_s: float) -> tuple[FloatArray, FloatArray]:
        """Starts of pieces from 0 on and the value on each, up to a time at least."""
        shape = 1.0 / self._level.variance
        starts, values = [self._starts], [self._values]
        while self._end_s <= time_s:
            ends = self._end_s + self._rng.standard_exponential(_BLOCK).cumsum() * self._level.time_s
            starts.append(np.concatenate(([self._end_s], ends[:-1])))
            values.append(self._rng.standard_gamma(shape, _BLOCK) / shape)
            self._end_s = float(ends[-1])
        self._starts, self._values = np.concatenate(starts), np.concatenate(values)
        return self._starts, self._values
