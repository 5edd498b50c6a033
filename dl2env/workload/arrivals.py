"""Arrival processes: when the jobs of an episode arrive."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ArrivalConfig
from dl2env.errors import ConfigError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
_PIECE_S = 900.0  # the daily cycle is constant on pieces of this length
_PIECES_PER_HOUR = int(HOUR_S / _PIECE_S)
_SMALLEST_SD = 1e-6  # below it the hourly load does not vary
_LARGEST_SD = 5.0  # far above it nearly all hours have no load at all

ArrivalProcess = Callable[[np.random.Generator, int, ArrivalConfig, float], NDArray[np.float64]]


def poisson_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """Poisson process of constant rate; the first job comes one exponential gap after time 0."""
    gaps: NDArray[np.float64] = rng.standard_exponential(num_jobs)
    gaps *= interval_s / config.rate_per_interval
    return np.cumsum(gaps)


def uniform_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """Evenly spaced arrivals from time 0 on; draws nothing."""
    return np.arange(num_jobs, dtype=np.float64) * (interval_s / config.rate_per_interval)


def batch_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """All jobs at time 0; draws nothing."""
    return np.zeros(num_jobs)


def diurnal_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """Poisson process whose rate has a daily cycle and a load that changes from hour to hour.

    The rate is `r * (1 + swing * sin(2 pi t / 24 h + phase)) * X(t)`: r the configured mean rate, the phase uniform (an
    episode starts at any time of day), X one Gamma value of mean 1 and coefficient of variation `diurnal_sd` per hour,
    the hours starting at a random minute. Arrivals are unit-rate exponential gaps mapped through the inverse of the
    rate's integral, which is exact for a rate that is constant on pieces (here quarter hours).

    The defaults follow the published hourly counts of the DL2 production trace (72 hours: mean 33.7, standard
    deviation 19.2, smallest 3, largest 82, lag-1 autocorrelation 0.48; values of the authors' 2018 plotting scripts).
    With v = diurnal_sd^2, hours that start at a random minute leave a variance of 2v/3 in a clock hour's mean load and
    a covariance of v/6 with the next hour's. Hence for a mean hourly count m: variance
    `m + m^2 [(1 + swing^2/2)(1 + 2v/3) - 1]`, lag-1 covariance
    `m^2 [(1 + cos(2 pi/24) swing^2/2)(1 + v/6) - 1]`. At m = 33.7 that is a standard deviation of 18.7 and an
    autocorrelation of 0.52, within the error of statistics over 72 hours.

    Raises:
        ConfigError: `diurnal_sd` is above 5.
    """
    if config.diurnal_sd > _LARGEST_SD:
        raise ConfigError(f"arrivals.diurnal_sd={config.diurnal_sd} must be at most {_LARGEST_SD:g}")
    targets = rng.standard_exponential(num_jobs).cumsum()
    phase, offset = rng.random(2)
    rate_per_piece = config.rate_per_interval * _PIECE_S / interval_s
    first_piece = int(offset * _PIECES_PER_HOUR)
    expected_hours = num_jobs / (rate_per_piece * _PIECES_PER_HOUR)
    chunk_hours = math.ceil(1.5 * expected_hours) + 8

    expected = np.zeros(1)  # expected arrivals up to each piece's end, after a leading 0
    while expected[-1] < targets[-1]:
        first = expected.size - 1
        piece = np.arange(first, first + chunk_hours * _PIECES_PER_HOUR)
        if config.diurnal_sd > _SMALLEST_SD:
            shape = config.diurnal_sd**-2
            load = rng.standard_gamma(shape, chunk_hours).repeat(_PIECES_PER_HOUR) / shape
        else:
            load = np.ones(piece.size)
        cycle = 1.0 + config.diurnal_swing * np.sin(2 * np.pi * ((piece + 0.5) * _PIECE_S / DAY_S + phase))
        if first == 0:
            load, cycle = load[first_piece:], cycle[: load.size - first_piece]
        expected = np.concatenate((expected, expected[-1] + rate_per_piece * (load * cycle).cumsum()))
    arrival_s: NDArray[np.float64] = np.interp(targets, expected, np.arange(expected.size) * _PIECE_S)
    return arrival_s


def bursty_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """Markov-modulated Poisson process of two states, burst and calm, that starts in a random state.

    With f = `burst_factor` and q = `burst_share` the rate is `r f / (1 + q (f - 1))` in bursts and f times less
    outside, so that the mean is r, the configured one, at every time. Bursts last `burst_s` on average and calm
    `burst_s (1 - q) / q`, both exponentially distributed. Arrivals are unit-rate exponential gaps mapped through the
    inverse of the rate's integral, which is exact.

    For counts N over a time t (Fischer and Meier-Hellstern 1993, for two states): with a = q (1 - q) d^2, d the
    difference of the two rates, and k = 1 / (burst_s (1 - q)), the variance is
    `r t + 2 a (t / k - (1 - exp(-k t)) / k^2)`; the excess over a Poisson process decays with the time 1 / k.

    The defaults are rounded from the Philly trace (Microsoft, 82,247 jobs in 109 days, counted per 20 minutes): the
    busiest tenth of the time brings 71 % of the jobs, and the relative autocovariance falls to 1 / e of its value at
    small lags within two hours. One time constant cannot follow the trace further: it has shorter spikes and slower
    swings as well.
    """
    f, q = config.burst_factor, config.burst_share
    calm_rate = config.rate_per_interval / interval_s / (1.0 + q * (f - 1.0))
    # States have a generator of their own, so that further jobs extend the same sequence.
    states = np.random.Generator(np.random.PCG64(rng.integers(2**63, size=2).tolist()))
    targets = rng.standard_exponential(num_jobs).cumsum()
    starts_in_burst = states.random() < q
    mean_s = np.array([config.burst_s, config.burst_s * (1.0 - q) / q])  # of a burst and of a calm
    rate = np.array([f * calm_rate, calm_rate])
    if not starts_in_burst:
        mean_s, rate = mean_s[::-1], rate[::-1]

    times, expected = np.zeros(1), np.zeros(1)  # ends of the periods, and expected arrivals up to them
    while expected[-1] < targets[-1]:
        length_s = (states.standard_exponential((64, 2)) * mean_s).ravel()
        count = length_s * np.tile(rate, 64)
        times = np.concatenate((times, times[-1] + length_s.cumsum()))
        expected = np.concatenate((expected, expected[-1] + count.cumsum()))
    arrival_s: NDArray[np.float64] = np.interp(targets, expected, times)
    return arrival_s


PROCESSES: dict[str, ArrivalProcess] = {
    "poisson": poisson_arrivals,
    "uniform": uniform_arrivals,
    "batch": batch_arrivals,
    "diurnal": diurnal_arrivals,
    "bursty": bursty_arrivals,
}


def draw_arrivals(
    rng: np.random.Generator, num_jobs: int, config: ArrivalConfig, interval_s: float
) -> NDArray[np.float64]:
    """Arrival times of an episode's jobs.

    Args:
        rng: Source of randomness of this stream alone.
        num_jobs: Number of jobs.
        config: Process and its parameters.
        interval_s: Length of a scheduling interval, the unit of `rate_per_interval`.

    Returns:
        (num_jobs,) seconds, not decreasing, first one >= 0.
    """
    return PROCESSES[config.kind](rng, num_jobs, config, interval_s)
