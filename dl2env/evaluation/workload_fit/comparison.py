"""How far generated jobs are from recorded ones.

Distances are between two samples: Kolmogorov-Smirnov (KS, largest difference of the distribution functions, 0 to 1) and
Wasserstein (W, mean difference of quantiles) of

- the natural logarithm of durations: W = 0.1 means that quantiles differ by 10 % on average
- GPUs: W of log2(1 + GPUs), so 1 is about a factor of 2
- times between arrivals: W of the natural logarithm of (1 + seconds)

Generated arrivals are recorded by a clock of the trace's resolution first: a trace in whole seconds has gaps of 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.workload.calibrated.draw import DAY_S, HOUR_S, draw_jobs
from dl2env.workload.calibrated.fit_arrivals import in_units, resolution_of
from dl2env.workload.calibrated.model import Calibration
from dl2env.workload.traces.table import JobTable

FloatArray = NDArray[np.float64]

AUTOCORRELATION_HOURS = (1, 6, 24)
QUANTITIES = ("durations", "GPUs", "times between arrivals")


@dataclass(frozen=True)
class JobSample:
    """Jobs in arrival order, as far as they are compared.

    Attributes:
        arrival_s: (N,) seconds, from the first job.
        num_gpus: (N,) GPUs.
        duration_s: (N,) seconds.
    """

    arrival_s: FloatArray
    num_gpus: FloatArray
    duration_s: FloatArray

    @classmethod
    def of(cls, table: JobTable) -> JobSample:
        """Recorded jobs."""
        return cls(table.arrival_s - table.arrival_s[0], table.num_gpus, table.duration_s)

    @property
    def gaps_s(self) -> FloatArray:
        """(N - 1,) seconds between arrivals."""
        return np.diff(self.arrival_s)

    def logs(self) -> Mapping[str, FloatArray]:
        """What distances are taken of, by quantity."""
        values = (np.log(self.duration_s), np.log2(1.0 + self.num_gpus), np.log1p(self.gaps_s))
        return dict(zip(QUANTITIES, values, strict=True))


@dataclass(frozen=True)
class Distances:
    """Distances of two samples by quantity."""

    ks: Mapping[str, float]
    wasserstein: Mapping[str, float]


def draw_sample(calibration: Calibration, num_jobs: int, unit_s: float, seed: Sequence[int]) -> JobSample:
    """Jobs from a calibration at its recorded rate, arrivals as a clock of resolution `unit_s` records them."""
    arrivals, gpus, sizes = (np.random.default_rng([*seed, k]) for k in range(3))
    jobs = draw_jobs(calibration, num_jobs, calibration.arrivals.jobs_per_day / DAY_S, arrivals, gpus, sizes)
    return JobSample(in_units(jobs.arrival_s, unit_s), calibration.num_gpus[jobs.gpu_class], jobs.duration_s)


def draw_plain(sample: JobSample, unit_s: float, seed: Sequence[int]) -> JobSample:
    """What one gets without a calibration: Poisson arrivals and log-normal durations, independent of the GPUs.

    Rate, shares of GPUs and the two parameters of durations are those of the sample.
    """
    rng = np.random.default_rng(list(seed))
    n = sample.arrival_s.size
    mean_s = sample.arrival_s[-1] / (n - 1)
    arrival_s = np.concatenate((np.zeros(1), np.cumsum(rng.standard_exponential(n - 1) * mean_s)))
    logs = np.log(sample.duration_s)
    duration_s = np.exp(logs.mean() + logs.std() * rng.standard_normal(n))
    return JobSample(in_units(arrival_s, unit_s), rng.choice(sample.num_gpus, n), duration_s)


def distances(first: JobSample, second: JobSample) -> Distances:
    """Distances of two samples.

    Raises:
        ConfigError: SciPy is missing.
    """
    try:
        from scipy.stats import ks_2samp, wasserstein_distance
    except ImportError as error:
        raise ConfigError("fitting a workload needs scipy; install dl2env with the extra train") from error
    pairs = {name: (values, second.logs()[name]) for name, values in first.logs().items()}
    return Distances(
        {name: float(ks_2samp(x, y, method="asymp").statistic) for name, (x, y) in pairs.items()},
        {name: float(wasserstein_distance(x, y)) for name, (x, y) in pairs.items()},
    )


def figures(sample: JobSample) -> dict[str, float]:
    """Figures that no single distribution shows, by name; NaN where there are too few hours."""
    arrival_s, gpus, duration_s = sample.arrival_s, sample.num_gpus, sample.duration_s
    counts = np.bincount((arrival_s // HOUR_S).astype(np.int64))[:-1].astype(np.float64)  # the last hour is not whole
    found = {
        "jobs per day": (arrival_s.size - 1) / max(float(arrival_s[-1]), 1e-9) * DAY_S,
        "hourly index of dispersion": float(counts.var() / counts.mean()) if counts.sum() else math.nan,
        "share of hours without arrivals": float((counts == 0).mean()) if counts.size else math.nan,
    }
    for lag in AUTOCORRELATION_HOURS:
        found[f"autocorrelation of hourly counts, {lag} h"] = _correlation(counts[:-lag], counts[lag:])
    found["GPU hours per job"] = float((gpus * duration_s).mean()) / HOUR_S
    found["rank correlation of GPUs and duration"] = _correlation(_ranks(gpus), _ranks(duration_s))
    found["same GPUs as the job before"] = float((gpus[1:] == gpus[:-1]).mean())
    ranks = _ranks(duration_s)
    found["rank correlation of duration and the one before"] = _correlation(ranks[1:], ranks[:-1])
    return found


def _ranks(values: FloatArray) -> FloatArray:
    """(N,) ranks; equal values share their mean rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[index], dtype=np.float64)


def _correlation(x: FloatArray, y: FloatArray) -> float:
    if x.size < 10:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt(float((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / norm if norm > 0 else math.nan


@dataclass(frozen=True)
class Comparison:
    """Recorded jobs against several draws.

    Attributes:
        recorded: What is to be met.
        drawn: The draws, as many jobs each.
        distances: Of each draw.
        figures: Of the recorded jobs.
        drawn_figures: Of each draw.
    """

    recorded: JobSample
    drawn: tuple[JobSample, ...]
    distances: tuple[Distances, ...]
    figures: Mapping[str, float]
    drawn_figures: tuple[Mapping[str, float], ...]

    @classmethod
    def of(cls, recorded: JobSample, drawn: Sequence[JobSample]) -> Comparison:
        """Compares them."""
        return cls(
            recorded,
            tuple(drawn),
            tuple(distances(recorded, sample) for sample in drawn),
            figures(recorded),
            tuple(figures(sample) for sample in drawn),
        )

    def spread(self, kind: str, quantity: str) -> tuple[float, float, float]:
        """Mean, least and largest distance of the draws; `kind` is `ks` or `wasserstein`."""
        values = [getattr(found, kind)[quantity] for found in self.distances]
        return float(np.mean(values)), min(values), max(values)

    def figure_spread(self, name: str) -> tuple[float, float, float]:
        """Mean, least and largest value of a figure over the draws."""
        values = np.array([found[name] for found in self.drawn_figures])
        values = values[np.isfinite(values)]
        if not values.size:
            return math.nan, math.nan, math.nan
        return float(values.mean()), float(values.min()), float(values.max())


def compare(recorded: JobSample, calibration: Calibration, draws: int, seed: Sequence[int]) -> Comparison:
    """Compares recorded jobs with draws of the same number of jobs from a calibration."""
    unit = resolution_of(recorded.arrival_s)
    size = recorded.arrival_s.size
    return Comparison.of(recorded, [draw_sample(calibration, size, unit, [*seed, k]) for k in range(draws)])


def compare_plain(recorded: JobSample, draws: int, seed: Sequence[int]) -> Comparison:
    """The same with what one gets without a calibration (`draw_plain`)."""
    unit = resolution_of(recorded.arrival_s)
    return Comparison.of(recorded, [draw_plain(recorded, unit, [*seed, k]) for k in range(draws)])
