"""Fits the arrival process of a calibration to recorded arrivals.

1. *Profile.* Hourly counts give the hour's and the day's relative rates. How much of a cycle there is, is chosen by
   cross-validation over days and weeks: bursts make raw hourly means of a few weeks noise. A day counts with weight
   1 / (its jobs + mean jobs of a day), so that the busiest ones do not decide alone.
2. *Pair correlation* g at about 30 lags from the resolution of the times to a quarter of the span, profile divided out.
   One number per lag, whatever the number of jobs.
3. *Levels* by least squares on log g against the closed form of `model.py`, for 0 to 3 levels, from several starts.
   g alone cannot tell a few large clusters of jobs from many small ones, so the number of levels is chosen by both
   errors: that of log g, and the distance of the times between (simulated) arrivals.

SciPy is needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.workload.calibrated.draw import draw_arrivals
from dl2env.workload.calibrated.model import DAYS, HOURS, ArrivalModel, Level

FloatArray = NDArray[np.float64]

HOUR_S, DAY_S = 3600.0, 86_400.0
_FIRST_DATE_S = 315_532_800.0  # 1980: clocks that start later are calendars
_MOST_HARMONICS = 4
_NUM_LAGS = 32
_MOST_LEVELS = 3
_LAG_ERROR = 0.05  # relative error of g at a lag, beside that of counting: the process is one draw
_START_TIMES = 7  # time constants that searches start from
_MOST_DRAWN, _NUM_DRAWS = 10_000, 4  # jobs and repetitions of the draws that candidates are judged by
_SMALL_DISTANCE = 0.02  # distances that differ by less hardly differ
_SMALLEST_VARIANCE, _LARGEST_VARIANCE = 0.01, 30.0
_SIGNIFICANT = 4  # digits that are kept


@dataclass(frozen=True)
class PairCorrelation:
    """How much more often than by chance two jobs lie some time apart.

    Attributes:
        edges_s: (L + 1,) edges of the lags.
        values: (L,) g, 1 for independent arrivals; levels off with the profile divided out.
        pairs: (L,) pairs of jobs counted.
    """

    edges_s: FloatArray
    values: FloatArray
    pairs: NDArray[np.int64]

    @property
    def lags_s(self) -> FloatArray:
        """(L,) middle of each lag."""
        return np.asarray((self.edges_s[1:] + self.edges_s[:-1]) / 2)


@dataclass(frozen=True)
class ArrivalFit:
    """A fitted process and what led to it.

    Attributes:
        model: The process.
        correlation: Pair correlation of the recorded arrivals.
        fitted: (L,) that of the process.
        harmonics: Harmonics of the daily cycle; 0: none.
        days: `flat`, `weekend` or `each`: what the weekly cycle tells apart.
        candidates: By number of levels: root mean squared error of log g in units of its error, Kolmogorov-Smirnov
            distance of the times between arrivals, and the score; the lowest one is taken.
    """

    model: ArrivalModel
    correlation: PairCorrelation
    fitted: FloatArray
    harmonics: int
    days: str
    candidates: dict[int, tuple[float, float, float]]


def fit_arrivals(arrival_s: FloatArray, origin_s: float = 0.0, seed: int = 0) -> ArrivalFit:
    """Fits the process.

    Args:
        arrival_s: (N,) seconds, not decreasing.
        origin_s: Time 0 of these on the trace's own clock.
        seed: Of the draws that candidates are judged by.

    Raises:
        ConfigError: SciPy is missing, or all jobs arrive at once.
    """
    span = float(arrival_s[-1] - arrival_s[0])
    if not span > 0:
        raise ConfigError("calibration: all jobs arrive at the same time, so there is no arrival process to fit")
    clock_s = origin_s + arrival_s
    hours, harmonics = _hour_profile(clock_s)
    has_dates = bool(clock_s[0] >= _FIRST_DATE_S)
    days, kind = _day_profile(clock_s, has_dates)
    jobs_per_day = arrival_s.size / span * DAY_S
    model = ArrivalModel(
        _rounded(jobs_per_day), tuple(map(_rounded, hours)), tuple(map(_rounded, days)), has_dates=has_dates
    )
    correlation = pair_correlation(arrival_s, _rates_at(model, clock_s))
    candidates = _candidates(model, correlation, arrival_s, seed)
    best = min(candidates, key=lambda candidate: candidate.score)
    model = dataclasses.replace(model, levels=best.levels)
    tried = {len(c.levels): (c.error**0.5, c.distance, c.score) for c in candidates}
    return ArrivalFit(model, correlation, model_correlation(model, correlation.lags_s), harmonics, kind, tried)


def model_correlation(model: ArrivalModel, lags_s: FloatArray) -> FloatArray:
    """(L,) pair correlation of a process at lags, its profile divided out."""
    g = np.ones(lags_s.size)
    for level in model.levels:
        g *= 1.0 + level.variance * np.exp(-lags_s / level.time_s)
    return g


def resolution_of(arrival_s: FloatArray) -> float:
    """Resolution of recorded times in seconds: a day, an hour, a minute or a second if all are multiples, else 0."""
    shifted = arrival_s - arrival_s[0]
    for unit in (DAY_S, HOUR_S, 60.0, 1.0):
        if not np.any(shifted % unit):
            return unit
    return 0.0


def pair_correlation(arrival_s: FloatArray, rates: FloatArray | None = None) -> PairCorrelation:
    """Estimates g. Jobs that are nearer to the end than a lag do not count as first ones of its pairs.

    Args:
        arrival_s: (N,) seconds, not decreasing, of a span above 0.
        rates: (N,) relative rate of the profile at each arrival.
    """
    n = arrival_s.size
    span = float(arrival_s[-1] - arrival_s[0])
    gaps = np.diff(arrival_s)
    first = max(1.5 * resolution_of(arrival_s), float(np.quantile(gaps[gaps > 0], 0.01)), span * 1e-9)
    last = max(span / 4, 2 * first)
    edges = np.concatenate(([0.0], np.geomspace(first, last, _NUM_LAGS)))
    if resolution_of(arrival_s) > 0:  # whole units: an edge half way between two counts each lag once
        unit = resolution_of(arrival_s)
        edges = np.unique(np.concatenate(([0.0], (np.floor(edges[1:] / unit) + 0.5) * unit)))
    weights = np.ones(n) if rates is None else 1.0 / rates
    total = np.concatenate(([0.0], np.cumsum(weights)))
    index = np.arange(n)
    values, pairs = [], []
    for low, high in itertools.pairwise(edges.tolist()):
        inside = arrival_s + high <= arrival_s[-1]
        begin = index + 1 if low == 0 else np.searchsorted(arrival_s, arrival_s + low, side="left")
        end = np.maximum(np.searchsorted(arrival_s, arrival_s + high, side="left"), begin)
        found = weights * (total[end] - total[np.minimum(begin, n)])
        expected = float(weights[inside].sum()) * total[-1] / span * (high - low)
        values.append(float(found[inside].sum()) / expected if expected > 0 else 1.0)
        pairs.append(int((end - begin)[inside].sum()))
    return PairCorrelation(edges, np.array(values), np.array(pairs, dtype=np.int64))


def _rates_at(model: ArrivalModel, clock_s: FloatArray) -> FloatArray:
    hour = (clock_s // HOUR_S).astype(np.int64)
    day = _weekday(hour // HOURS, model.has_dates)
    return np.asarray(model.profile[day * HOURS + hour % HOURS])


def _weekday(day: NDArray[np.int64], has_dates: bool) -> NDArray[np.int64]:
    """Day of the week, Monday 0; 1970-01-01 was a Thursday."""
    return np.asarray((day + 3) % DAYS if has_dates else day % DAYS)


def _counts(clock_s: FloatArray, unit_s: float, per_row: int, shift: int) -> FloatArray:
    """(rows, per_row) counts per unit of time, whole rows only."""
    unit = (clock_s // unit_s).astype(np.int64) + shift
    first, last = -(-int(unit[0]) // per_row), (int(unit[-1]) + 1) // per_row
    if last <= first:
        return np.zeros((0, per_row))
    inside = unit[(unit >= first * per_row) & (unit < last * per_row)] - first * per_row
    return np.bincount(inside, minlength=(last - first) * per_row).reshape(-1, per_row).astype(np.float64)


def _hour_profile(clock_s: FloatArray) -> tuple[FloatArray, int]:
    counts = _counts(clock_s, HOUR_S, HOURS, 0)
    angle = 2 * np.pi * (np.arange(HOURS) + 0.5) / HOURS
    waves = np.stack([f(k * angle) for k in range(1, _MOST_HARMONICS + 1) for f in (np.cos, np.sin)], axis=1)
    designs = {h: waves[:, : 2 * h] for h in range(_MOST_HARMONICS + 1)}
    chosen = _cross_validated(counts, designs, 5)
    return _fitted_shares(counts, designs[chosen]), int(chosen)


def _day_profile(clock_s: FloatArray, has_dates: bool) -> tuple[FloatArray, str]:
    counts = _counts(clock_s, DAY_S, DAYS, 3 if has_dates else 0)
    designs: dict[str, FloatArray] = {"flat": np.zeros((DAYS, 0)), "each": np.eye(DAYS)[:, 1:]}
    if has_dates:
        designs["weekend"] = (np.arange(DAYS) >= 5).astype(np.float64)[:, None]
    chosen = _cross_validated(counts, designs, 3)
    return _fitted_shares(counts, designs[chosen]), str(chosen)


def _cross_validated(counts: FloatArray, designs: dict[Any, FloatArray], folds: int) -> Any:
    """The design whose shares best foretell rows that they were not fitted to; the plainest of too few rows."""
    plainest = min(designs, key=lambda key: designs[key].shape[1])
    if counts.shape[0] < 2 * folds or not counts.sum():
        return plainest
    row_weights = _row_weights(counts)
    fold_of = np.arange(counts.shape[0]) % folds
    scores = {}
    for key, design in designs.items():
        score = 0.0
        for fold in range(folds):
            shares = _fitted_shares(counts[fold_of != fold], design)
            mine = fold_of == fold
            score += float((row_weights[mine, None] * counts[mine] * np.log(shares)).sum())
        scores[key] = score
    return max(scores, key=lambda key: (scores[key], -designs[key].shape[1]))


def _row_weights(counts: FloatArray) -> FloatArray:
    jobs = counts.sum(axis=1)
    return np.asarray(1.0 / (jobs + jobs.mean())) if jobs.sum() else np.ones(jobs.size)


def _fitted_shares(counts: FloatArray, design: FloatArray) -> FloatArray:
    """(columns,) relative rates of mean 1: a log-linear model of the weighted counts of each column."""
    num = design.shape[0]
    if design.shape[1] == 0 or not counts.sum():
        return np.ones(num)
    seen = (_row_weights(counts)[:, None] * counts).sum(axis=0)
    seen = num * seen / seen.sum() + 1e-2  # a column without jobs keeps a rate above 0
    x = np.column_stack((np.ones(num), design))
    beta = np.zeros(x.shape[1])
    for _ in range(100):  # Newton's method for the Poisson likelihood, which is concave
        mean = np.exp(np.clip(x @ beta, -20, 20))
        step = np.linalg.solve((x * mean[:, None]).T @ x + 1e-9 * np.eye(beta.size), x.T @ (seen - mean))
        beta = beta + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    rates = np.exp(x @ beta)
    return np.asarray(rates / rates.mean())


@dataclass(frozen=True)
class _Candidate:
    """Levels, with the mean squared error of log g and the distance of the times between arrivals."""

    levels: tuple[Level, ...]
    error: float
    distance: float
    num_lags: int

    @property
    def score(self) -> float:
        """Lower is better: logarithms of both errors, and what the Bayesian criterion charges for parameters."""
        charge = 2 * len(self.levels) * math.log(self.num_lags) / (2 * self.num_lags)
        return 0.5 * math.log(self.error) + math.log(self.distance + _SMALL_DISTANCE) + charge


def _candidates(base: ArrivalModel, correlation: PairCorrelation, arrival_s: FloatArray, seed: int) -> list[_Candidate]:
    try:
        from scipy.optimize import least_squares
        from scipy.stats import ks_2samp
    except ImportError as error:
        raise ConfigError("fitting a workload needs scipy; install dl2env with the extra train") from error
    lags, pairs = correlation.lags_s, correlation.pairs
    jobs_per_s, span_s = base.jobs_per_day / DAY_S, float(arrival_s[-1] - arrival_s[0])
    # A lag without pairs counts as half a pair.
    by_chance = np.diff(correlation.edges_s) * arrival_s.size * jobs_per_s
    log_seen = np.log(np.where(pairs > 0, correlation.values, 0.5 / by_chance))
    scale = np.sqrt(1.0 / (pairs + 0.5) + _LAG_ERROR**2)
    short = float(correlation.edges_s[1])
    starts = np.geomspace(max(4 * short, 1e-3 * span_s**0.5), max(span_s / 8, 8 * short), _START_TIMES)
    found = []
    x = np.zeros(0)
    for num_levels in range(_MOST_LEVELS + 1):
        if 2 * num_levels + 4 > lags.size:
            break
        low = [math.log(1e-3), math.log(2 * short)] * num_levels
        high = [math.log(_LARGEST_VARIANCE), math.log(max(4 * span_s, 4 * short))] * num_levels
        residuals = _residuals(lags, log_seen, scale)
        cost, x = _searched(least_squares, residuals, x, starts if num_levels else [], (low, high))
        values = [(v, time) for v, time in np.exp(x).reshape(-1, 2).tolist() if v >= _SMALLEST_VARIANCE]
        if len(values) < num_levels:
            break  # a further level says nothing
        levels = [Level(_rounded(v), _rounded(time)) for v, time in values]
        model = dataclasses.replace(base, levels=tuple(sorted(levels, key=lambda level: level.time_s)))
        distance = _gap_distance(ks_2samp, model, arrival_s, seed)
        found.append(_Candidate(model.levels, max(cost / lags.size, 1e-6), distance, lags.size))
    return found


def _gap_distance(ks_2samp: Callable[..., Any], model: ArrivalModel, arrival_s: FloatArray, seed: int) -> float:
    """Kolmogorov-Smirnov distance of the times between arrivals, the mean of several draws."""
    unit = resolution_of(arrival_s)
    num = min(arrival_s.size, _MOST_DRAWN)
    distances = []
    for k in range(_NUM_DRAWS):
        drawn = draw_arrivals(model, num, model.jobs_per_day / DAY_S, np.random.default_rng([seed, k]))
        distances.append(float(ks_2samp(np.diff(arrival_s), np.diff(in_units(drawn, unit)), method="asymp").statistic))
    return max(float(np.mean(distances)), 1e-4)


def in_units(times_s: FloatArray, unit_s: float) -> FloatArray:
    """Times as a clock of that resolution records them; 0: exactly."""
    return np.floor(times_s / unit_s) * unit_s if unit_s > 0 else times_s


def _searched(
    least_squares: Callable[..., Any],
    residuals: Callable[[FloatArray], FloatArray],
    before: FloatArray,
    times_s: Sequence[float] | FloatArray,
    bounds: tuple[list[float], list[float]],
) -> tuple[float, FloatArray]:
    """Sum of squares and parameters of the best fit with a level more than `before`, from each of the times."""
    low, high = np.array(bounds[0]), np.array(bounds[1])
    starts = [np.concatenate(([0.0, math.log(time)], before)) for time in times_s] or [before]
    found: tuple[float, FloatArray] | None = None
    for start in starts:
        if start.size == 0:
            return float((residuals(start) ** 2).sum()), start
        result = least_squares(residuals, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high), max_nfev=100)
        if found is None or 2 * result.cost < found[0] - 1e-9:
            found = 2 * float(result.cost), np.asarray(result.x)
    assert found is not None
    return found


def _residuals(lags: FloatArray, log_seen: FloatArray, scale: FloatArray) -> Callable[[FloatArray], FloatArray]:
    def residuals(x: FloatArray) -> FloatArray:
        values = np.exp(x)
        g = np.ones(lags.size)
        for variance, time_s in zip(values[::2], values[1::2], strict=True):
            g = g * (1.0 + variance * np.exp(-lags / time_s))
        return np.asarray((np.log(g) - log_seen) / scale)

    return residuals


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT}g}")
