"""Job sizes: how long a job runs at a reference allocation, and the epochs that make it so."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dl2env.config import JobSizeConfig

# Published statistics of the DL2 production trace: the mean is stated in the paper, the shares of the shortest and
# longest of eight 125-minute bins come from the authors' 2018 plotting scripts.
MEAN_MIN = 147.0
BIN_MIN = 125.0
NUM_BINS = 8
SHORTEST_SHARE = 0.68
LONGEST_SHARE = 0.03
SHORTEST_MIN = 10.0  # ours: where the first bin starts


@functools.cache
def bin_shares() -> tuple[float, ...]:
    """Shares of jobs in the eight 125-minute bins: published ends, geometric decay between them.

    The shares of bins 2 to 7 fall by a constant factor q, the one at which the mean duration is 147 min with durations
    log-uniform on [10, 125] min in bin 1 and uniform in the others. More than half of the jobs (52 %) then last over an
    hour, as published of the trace's runs. Shares that fall all the way to 3 % in bin 8 are not possible with these
    numbers: they need a mean of 12 min in bin 1, and then far fewer than half last an hour. So bin 8 is a bump, as the
    published shares are of a histogram that ends there.
    """
    middle_share = 1.0 - SHORTEST_SHARE - LONGEST_SHARE
    first_mean = (BIN_MIN - SHORTEST_MIN) / math.log(BIN_MIN / SHORTEST_MIN)
    last_mean = (NUM_BINS - 0.5) * BIN_MIN
    middle_mean = (MEAN_MIN - SHORTEST_SHARE * first_mean - LONGEST_SHARE * last_mean) / middle_share
    wanted = middle_mean / BIN_MIN - 1.5  # mean index of the middle bins, counted from 0
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection: the mean index grows with q
        q = (low + high) / 2
        weights = [q**k for k in range(NUM_BINS - 2)]
        mean_index = sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
        low, high = (q, high) if mean_index < wanted else (low, q)
    return (SHORTEST_SHARE, *(middle_share * weight / sum(weights) for weight in weights), LONGEST_SHARE)


@functools.cache
def _bin_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cumulative shares and bin edges in units of the mean, (NUM_BINS + 1,) each."""
    cumulative = np.concatenate(([0.0], np.cumsum(bin_shares())))
    cumulative[-1] = 1.0
    return cumulative, np.arange(NUM_BINS + 1, dtype=np.float64) * (BIN_MIN / MEAN_MIN)


def published_durations(rng: np.random.Generator, num_jobs: int, config: JobSizeConfig) -> NDArray[np.float64]:
    """Durations after the published bins (`bin_shares`), scaled as a whole to the configured mean."""
    u = rng.random(num_jobs)
    cumulative, edges = _bin_table()
    durations = np.interp(u, cumulative, edges)
    shortest = SHORTEST_MIN / MEAN_MIN * (BIN_MIN / SHORTEST_MIN) ** (u / SHORTEST_SHARE)
    return config.mean_s * np.where(u < SHORTEST_SHARE, shortest, durations)


def lognormal_durations(rng: np.random.Generator, num_jobs: int, config: JobSizeConfig) -> NDArray[np.float64]:
    """Log-normal durations of the configured mean; `sigma` is the standard deviation of the logarithm."""
    return config.mean_s * np.exp(config.sigma * rng.standard_normal(num_jobs) - config.sigma**2 / 2)


def draw_durations(rng: np.random.Generator, num_jobs: int, config: JobSizeConfig) -> NDArray[np.float64]:
    """Durations in seconds at the reference allocation, (num_jobs,), positive."""
    if config.kind == "published_bins":
        return published_durations(rng, num_jobs, config)
    if config.kind == "lognormal":
        return lognormal_durations(rng, num_jobs, config)
    return np.full(num_jobs, config.mean_s)


def epochs_for(
    duration_s: NDArray[np.float64], samples_per_s: NDArray[np.float64], samples_per_epoch: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Epochs that a job at this speed trains in this time; any common shape."""
    return duration_s * samples_per_s / samples_per_epoch
