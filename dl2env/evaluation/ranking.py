"""Ranks many schedulers over many scenarios, with ties where the workloads do not tell them apart.

The score of a scheduler on a scenario is its mean over workloads of a positive metric, lower being better (mean JCT),
and over scenarios the geometric mean of these: a factor won on short jobs weighs as much as on long ones. All
uncertainty is that of the workloads: a bootstrap resample takes the same workloads for every scheduler, and the same
places in every scenario, because the k-th workloads of scenarios often come from one seed and vary together. All
schedulers, pairs and averages are read off the same draws.

Two schedulers tie when the 95 % interval of their paired difference includes no difference. Ties are not transitive (A
may tie with B, and B with C, but A beat C), so a rank is a range: one plus the number of schedulers that are better
beyond doubt, to the number of all less those that are worse beyond doubt. No correction is made for the number of
pairs: with 30 schedulers some of the 435 pairs will differ by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.statistics import CONFIDENCE, NUM_RESAMPLES, Interval, resampled_means

Scores = NDArray[np.float64]

_ROUNDING = 1e-9
"""Relative differences below this come from the order of a sum, not from schedulers."""


@dataclass(frozen=True)
class RankRange:
    """The ranks that the workloads leave open to a scheduler; 1 is the best.

    Attributes:
        best: One plus the number of schedulers that are better beyond doubt.
        worst: Number of schedulers less those that are worse beyond doubt.
    """

    best: int
    worst: int

    def __str__(self) -> str:
        return f"{self.best}" if self.best == self.worst else f"{self.best}–{self.worst}"


@dataclass(frozen=True)
class Standing:
    """Schedulers compared by the logarithm of their mean scores.

    Attributes:
        names: (K) schedulers.
        log_mean: (K,) logarithm of the mean score, or its average over scenarios.
        draws: (K, R) the same in each resample.
        num_resampled: Largest number of workloads of a scenario; below 2 there was nothing to resample.
    """

    names: tuple[str, ...]
    log_mean: Scores
    draws: Scores
    num_resampled: int

    @cached_property
    def is_better(self) -> NDArray[np.bool_]:
        """(K, K) whether the scheduler of a row is better than that of a column beyond doubt."""
        size = len(self.names)
        better = np.zeros((size, size), dtype=np.bool_)
        if self.num_resampled < 2:
            return better
        tail = 50.0 * (1.0 - CONFIDENCE)
        for i in range(size - 1):
            low, high = np.percentile(self.draws[i + 1 :] - self.draws[i], [tail, 100.0 - tail], axis=1)
            better[i, i + 1 :] = low > _ROUNDING
            better[i + 1 :, i] = high < -_ROUNDING
        return better

    @cached_property
    def ranks(self) -> tuple[RankRange, ...]:
        """(K) rank of each scheduler."""
        above, below = self.is_better.sum(axis=0), self.is_better.sum(axis=1)
        return tuple(RankRange(1 + int(a), len(self.names) - int(b)) for a, b in zip(above, below, strict=True))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """(K) indices of the schedulers, the best score first; equal scores by name."""
        return tuple(sorted(range(len(self.names)), key=lambda k: (float(self.log_mean[k]), self.names[k])))

    def ratios(self, reference: str) -> tuple[Interval, ...]:
        """(K) score over that of a reference scheduler, with its interval; below 1 is better than the reference.

        Raises:
            UnknownNameError: The reference is none of the schedulers.
        """
        if reference not in self.names:
            raise UnknownNameError("reference scheduler", reference, self.names)
        k = self.names.index(reference)
        ratio = np.exp(self.log_mean - self.log_mean[k])
        if self.num_resampled < 2:
            return tuple(Interval(float(r), float("nan"), float("nan")) for r in ratio)
        tail = 50.0 * (1.0 - CONFIDENCE)
        bounds = np.exp(np.percentile(self.draws - self.draws[k], [tail, 100.0 - tail], axis=1))
        return tuple(Interval(float(r), float(lo), float(hi)) for r, lo, hi in zip(ratio, *bounds, strict=True))


def compare_on_scenario(
    names: Sequence[str], scores: ArrayLike, rng: np.random.Generator, num_resamples: int = NUM_RESAMPLES
) -> Standing:
    """Compares schedulers on the workloads of one scenario.

    Args:
        names: (K) distinct names.
        scores: (K, N) positive scores per scheduler and workload, lower being better.
        rng: Source of the resamples.
        num_resamples: Bootstrap resamples R.

    Raises:
        ConfigError: Names are not distinct, or scores are not positive, finite and (K, N).
    """
    matrix = np.asarray(scores, dtype=np.float64)
    if len(set(names)) != len(names) or matrix.ndim != 2 or matrix.shape[0] != len(names) or matrix.size == 0:
        raise ConfigError(f"ranking: {len(names)} names must be distinct and have one row of scores each")
    if not (np.isfinite(matrix) & (matrix > 0)).all():
        k, n = np.argwhere(~(np.isfinite(matrix) & (matrix > 0)))[0]
        raise ConfigError(f"ranking: score {matrix[k, n]} of {names[k]} on workload {n}; it must be positive")
    draws = resampled_means(matrix, rng, num_resamples)
    return Standing(tuple(names), np.log(matrix.mean(axis=1)), np.log(draws), matrix.shape[1])


def compare_over_scenarios(standings: Sequence[Standing]) -> Standing:
    """Compares schedulers by the geometric mean of their scores over scenarios, each of equal weight.

    Args:
        standings: Of each scenario, on the same schedulers in the same order. From generators of one state if the k-th
            workloads of the scenarios may vary together (that is right too where they do not), from independent ones
            only if they surely do not: those make correlated scenarios look too certain.

    Raises:
        ConfigError: There is none, or the schedulers differ.
    """
    if len({standing.names for standing in standings}) != 1:
        raise ConfigError("ranking: scenarios must have the same schedulers in the same order, and there must be one")
    return Standing(
        standings[0].names,
        np.mean([standing.log_mean for standing in standings], axis=0),
        np.mean([standing.draws for standing in standings], axis=0),
        max(standing.num_resampled for standing in standings),
    )


def win_matrix(scores: ArrayLike) -> Scores:
    """(K, K) share of workloads on which the scheduler of a row scores lower than that of a column.

    Ties count one half.

    Args:
        scores: (K, N) scores per scheduler and workload, lower being better.
    """
    matrix = np.asarray(scores, dtype=np.float64)
    wins: Scores = 0.5 * (1.0 + np.sign(matrix[None, :, :] - matrix[:, None, :])).mean(axis=2)
    return wins
