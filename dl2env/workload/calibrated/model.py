"""What is fitted to a recorded workload: a few parameters, enough to draw workloads like it.

**Arrivals.** A Cox process (a Poisson process whose rate is itself random), of rate

    lambda(t) = r * profile(hour of day, day of week) * X_1(t) * ... * X_K(t)

Each level X_k is Gamma distributed with mean 1 and variance v_k, and is drawn anew at exponential times of mean tau_k
(`Level`): a few time scales of busy and calm, down to seconds, where a level of large variance makes batches. For a
flat profile the pair correlation at lag h (how much more often than by chance two jobs lie h apart) is

    g(h) = prod_k (1 + v_k exp(-h / tau_k))

Why this process: recorded arrivals keep a correlation over seconds, hours and weeks at once, which one time constant (a
two-state Markov-modulated process) cannot have, and exponentials of several time constants are the usual approximation
to such a decay; Gamma values let the rate fall to nearly 0, as the calm hours of traces do (log-normal ones do not);
g is in closed form, so that a fit needs no simulation; and the integral of a rate that is constant on pieces is exact.
Background, as we understand it: Cox, Some statistical methods connected with series of events (1955); Moller and
Waagepetersen, Statistical Inference and Simulation for Spatial Point Processes (2003), on fitting by the pair
correlation (minimum contrast); Feitelson, Workload Modeling for Computer Systems Performance Evaluation (2015), on
cycles, self-similarity and repeated jobs in recorded workloads.

**Sizes.** The number of GPUs is categorical (`GpuClass`); the logarithm of the duration is a piecewise linear function
of a standard normal score z, by a table of quantiles or by a mixture of log-normals (`DurationModel`). Beyond its first
and last point the line goes on, which makes log-normal tails, cut at bounds.

**Resemblance.** Jobs that follow another within a short time often repeat it, as users send variants of one job
(`Repeats`). A repeat has the number of GPUs of the job before and a score that correlates with that of the job before.
This leaves the distribution of sizes as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config_checks import require, require_choice
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError

FloatArray = NDArray[np.float64]

SCHEMA, SCHEMA_VERSION = "dl2env-calibration", 1
HOURS, DAYS = 24, 7
_SHARES_OFF = 1e-3  # by how much shares may miss 1, as rounded numbers do
_LARGEST_VARIANCE = 100.0
_NUM_SCORES = 801  # of the table that durations are drawn by, z from -6 to 6
_LAST_SCORE = 6.0


@dataclass(frozen=True)
class Level:
    """One time scale of busy and calm.

    Attributes:
        variance: Of the Gamma distributed factor of mean 1.
        time_s: Mean time until it is drawn anew.
    """

    variance: float
    time_s: float

    def __post_init__(self) -> None:
        _in_range("arrivals.levels: variance", self.variance, 0.0, _LARGEST_VARIANCE)
        _positive("arrivals.levels: time_s", self.time_s)


@dataclass(frozen=True)
class ArrivalModel:
    """When jobs arrive.

    Attributes:
        jobs_per_day: Mean rate.
        hour_of_day: 24 relative rates, from midnight of the trace's clock.
        day_of_week: 7 relative rates, Monday first.
        has_dates: Whether that clock is a calendar's; without dates hour 0 is the time 0 of the trace, and so is day 0.
        levels: Time scales of busy and calm.
    """

    jobs_per_day: float
    hour_of_day: tuple[float, ...] = (1.0,) * HOURS
    day_of_week: tuple[float, ...] = (1.0,) * DAYS
    has_dates: bool = True
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        _positive("arrivals.jobs_per_day", self.jobs_per_day)
        for key, count in (("hour_of_day", HOURS), ("day_of_week", DAYS)):
            values = getattr(self, key)
            require(len(values) == count, f"arrivals.{key}: has {len(values)} values, must have {count}")
            for value in values:
                _positive(f"arrivals.{key}", value)
        require(len(self.levels) <= 8, f"arrivals.levels: has {len(self.levels)} levels, at most 8 are taken")

    @property
    def profile(self) -> FloatArray:
        """(168,) relative rate by hour of the week, Monday first, of mean 1."""
        week = np.outer(self.day_of_week, self.hour_of_day).ravel()
        return np.asarray(week / week.mean())


@dataclass(frozen=True)
class Repeats:
    """How much a job resembles the one before it.

    Attributes:
        within_s: Only jobs that arrive so soon after another may repeat it.
        share: Probability that such a job repeats its number of GPUs.
        correlation: Of the normal scores of the durations of both, if it does; below 1.
    """

    within_s: float
    share: float
    correlation: float

    def __post_init__(self) -> None:
        _positive("repeats.within_s", self.within_s)
        require(0.0 <= self.share <= 1.0, f"repeats.share={self.share} must lie in [0, 1]")
        require(0.0 <= self.correlation < 1.0, f"repeats.correlation={self.correlation} must lie in [0, 1)")


@dataclass(frozen=True)
class GpuClass:
    """A number of GPUs that jobs have.

    Attributes:
        gpus: Number; 0.5 is half a GPU, 0 a job without.
        share: Share of all jobs.
        durations: Name of the distribution of their durations.
    """

    gpus: float
    share: float
    durations: str

    def __post_init__(self) -> None:
        require(0.0 <= self.gpus <= 1e6, f"gpus: gpus={self.gpus} must lie in [0, 1000000]")
        _in_range("gpus: share", self.share, 0.0, 1.0)


@dataclass(frozen=True)
class DurationModel:
    """Distribution of durations.

    Attributes:
        name: What classes call it.
        kind: `quantiles`: `seconds` at `probabilities`, log-linear in the normal score between them and beyond;
            `lognormals`: a mixture with `shares`, `medians_s` and `sigmas` (standard deviations of the logarithm).
        shortest_s, longest_s: Durations are cut there.
        probabilities, seconds: Of `quantiles`, increasing; seconds may repeat.
        shares, medians_s, sigmas: Of `lognormals`. A sigma of 0 is a single duration.
    """

    name: str
    kind: str
    shortest_s: float
    longest_s: float
    probabilities: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    medians_s: tuple[float, ...] = ()
    sigmas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        where = f"durations: {self.name}"
        require_choice(f"{where}: kind", self.kind, ("quantiles", "lognormals"))
        _positive(f"{where}: shortest_s", self.shortest_s)
        require(
            self.shortest_s <= self.longest_s < 1e11,
            f"{where}: longest_s={self.longest_s} must not be below shortest_s={self.shortest_s}, and below 1e11",
        )
        used = ("probabilities", "seconds") if self.kind == "quantiles" else ("shares", "medians_s", "sigmas")
        for key in ("probabilities", "seconds", "shares", "medians_s", "sigmas"):
            count = len(getattr(self, key))
            require(key in used or count == 0, f"{where}: {key}: not used by kind={self.kind}; remove it")
            require(key not in used or 1 <= count <= 64, f"{where}: {key}: has {count} values, must have 1 to 64")
        for key in used[1:]:
            count, wanted = len(getattr(self, key)), len(getattr(self, used[0]))
            require(count == wanted, f"{where}: {key}: has {count} values, but {used[0]} has {wanted}")
        if self.kind == "quantiles":
            self._check_quantiles(where)
        else:
            for value in self.medians_s:
                _positive(f"{where}: medians_s", value)
            for value in self.sigmas:
                require(0.0 <= value <= 10.0, f"{where}: sigmas: {value} must lie in [0, 10]")
            for value in self.shares:
                _in_range(f"{where}: shares", value, 0.0, 1.0)
            _sums_to_one(f"{where}: shares", self.shares)

    def _check_quantiles(self, where: str) -> None:
        for value in self.seconds:
            _positive(f"{where}: seconds", value)
        for value in self.probabilities:
            require(0.0 < value < 1.0, f"{where}: probabilities: {value} must lie between 0 and 1")
        steps = np.diff(self.probabilities)
        require(bool((steps > 0).all()), f"{where}: probabilities: must increase; sort them")
        require(bool((np.diff(self.seconds) >= 0).all()), f"{where}: seconds: must not decrease; sort them")

    @cached_property
    def table(self) -> tuple[FloatArray, FloatArray]:
        """Normal scores from -6 to 6 and the logarithms of the durations there; linear in between."""
        scores = np.linspace(-_LAST_SCORE, _LAST_SCORE, _NUM_SCORES)
        logs = self._quantile_logs(scores) if self.kind == "quantiles" else self._mixture_logs(scores)
        return scores, np.clip(logs, math.log(self.shortest_s), math.log(self.longest_s))

    def _quantile_logs(self, scores: FloatArray) -> FloatArray:
        from statistics import NormalDist

        at = np.array([NormalDist().inv_cdf(p) for p in self.probabilities])
        logs = np.log(self.seconds)
        found = np.interp(scores, at, logs)
        if at.size > 1:
            for is_beyond, i, j in ((scores < at[0], 0, 1), (scores > at[-1], -1, -2)):
                slope = (logs[i] - logs[j]) / (at[i] - at[j])
                found = np.where(is_beyond, logs[i] + slope * (scores - at[i]), found)
        return np.asarray(found)

    def _mixture_logs(self, scores: FloatArray) -> FloatArray:
        means = np.log(self.medians_s)
        sigmas = np.maximum(self.sigmas, 1e-6)
        shares = np.array(self.shares) / sum(self.shares)
        # Inverse of the mixture's distribution function, on a grid that is fine where a component is narrow.
        grid = np.unique(np.concatenate([m + s * np.linspace(-_LAST_SCORE, _LAST_SCORE, 601) for m, s in zip(means, sigmas, strict=True)]))  # fmt: skip # noqa: E501
        tail = _normal_cdf((grid[:, None] - means) / sigmas) @ shares
        return np.asarray(np.interp(_normal_cdf(scores), tail, grid))

    @property
    def mean_s(self) -> float:
        """Mean duration."""
        scores, logs = self.table
        weights = np.exp(-(scores**2) / 2)
        return float((weights * np.exp(logs)).sum() / weights.sum())


@dataclass(frozen=True)
class Calibration:
    """Everything that generated workloads follow.

    Attributes:
        name: Name; that of the file.
        description: What it was fitted to.
        arrivals: When jobs arrive.
        gpus: Numbers of GPUs with their shares.
        durations: Distributions of durations, named by the classes.
        repeats: Resemblance of jobs that arrive shortly after each other; None: none.
        provenance: Where it comes from, as plain values; decides nothing.
        schema, version: Of the file's form.
    """

    name: str
    arrivals: ArrivalModel
    gpus: tuple[GpuClass, ...]
    durations: tuple[DurationModel, ...]
    repeats: Repeats | None = None
    description: str = ""
    schema: str = SCHEMA
    version: int = SCHEMA_VERSION
    provenance: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        require(self.schema == SCHEMA, f"schema={self.schema!r}: no calibration, whose schema is {SCHEMA}")
        require(
            self.version == SCHEMA_VERSION,
            f"version={self.version}: this dl2env reads version {SCHEMA_VERSION}; fit it again or update",
        )
        require(bool(self.name), "name: empty; give one")
        require(1 <= len(self.gpus) <= 256, f"gpus: has {len(self.gpus)} classes, must have 1 to 256")
        counts = [gpu_class.gpus for gpu_class in self.gpus]
        require(len(set(counts)) == len(counts), f"gpus: {_twice(counts)} GPUs come twice; join them")
        names = [model.name for model in self.durations]
        require(len(set(names)) == len(names), f"durations: {_twice(names)} comes twice; rename one")
        for gpu_class in self.gpus:
            require(
                gpu_class.durations in names,
                f"gpus: durations={gpu_class.durations!r} of {gpu_class.gpus:g} GPUs: no such distribution; durations "
                f"has: {', '.join(names) or 'none'}",
            )
        used = {gpu_class.durations for gpu_class in self.gpus}
        for name in names:
            require(name in used, f"durations: {name}: no class of gpus uses it; remove it")
        _sums_to_one("gpus: share", [gpu_class.share for gpu_class in self.gpus])

    @property
    def num_gpus(self) -> FloatArray:
        """(C,) GPUs of each class."""
        return np.array([gpu_class.gpus for gpu_class in self.gpus], dtype=np.float64)

    @property
    def shares(self) -> FloatArray:
        """(C,) share of each class, of sum 1."""
        shares = np.array([gpu_class.share for gpu_class in self.gpus], dtype=np.float64)
        return np.asarray(shares / shares.sum())

    @property
    def duration_of(self) -> tuple[DurationModel, ...]:
        """Distribution of durations of each class."""
        by_name = {model.name: model for model in self.durations}
        return tuple(by_name[gpu_class.durations] for gpu_class in self.gpus)

    def digest(self) -> str:
        """SHA-256 of all that decides what is drawn: not of names, descriptions or provenance."""
        values = config_to_dict(self)
        for key in ("name", "description", "provenance"):
            del values[key]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _normal_cdf(z: FloatArray) -> FloatArray:
    return np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)), otypes=[np.float64])(z)  # type: ignore[no-any-return]


def _positive(key: str, value: float) -> None:
    require(0.0 < value < math.inf, f"{key}={value} must be positive and finite")


def _in_range(key: str, value: float, above: float, most: float) -> None:
    require(above < value <= most, f"{key}={value} must lie in ({above:g}, {most:g}]")


def _sums_to_one(key: str, shares: Any) -> None:
    total = float(sum(shares))
    if abs(total - 1.0) > _SHARES_OFF:
        raise ConfigError(f"{key}: shares sum to {total:.6g}, must sum to 1")


def _twice(values: list[Any]) -> str:
    return str(next((value for value in values if values.count(value) > 1), ""))
