"""Bootstrap intervals for paired comparisons, and the aggregate scores used for results over several training seeds.

Every function takes the generator it draws from. Scores of a scheduler are an array (N,) over workloads or, for a
learned scheduler trained S times, (S, N). All schedulers are evaluated on the same N workloads, so comparisons are
paired: a resample draws the same workloads for both sides. A training seed is good or bad on all workloads at once;
resampling keeps its row whole, otherwise the variation between training runs would average out over workloads and the
interval would be too narrow.

Intervals are percentile bootstrap intervals (Efron 1979). With a single workload and seed there is nothing to resample
and the bounds are NaN, not a false certainty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95
_CHUNK = 4_000_000  # elements of one temporary array
_ALL_FLIPS = 16  # differences of which all flips of signs are gone through

Scores = NDArray[np.float64]


class Interval(NamedTuple):
    """A point estimate and its confidence bounds (NaN when there was nothing to resample)."""

    estimate: float
    low: float
    high: float


def mean_interval(
    scores: ArrayLike,
    rng: np.random.Generator,
    *,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Interval of the mean score over workloads (and training seeds).

    Args:
        scores: (N,) or (S, N) finite scores.
        rng: Source of the resamples.
        num_resamples: Bootstrap resamples.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ConfigError: Scores are empty or not finite.
    """
    matrix = _as_matrix(scores, "scores")
    seeds, workloads = _counts(rng, num_resamples, *matrix.shape)
    return _interval(float(matrix.mean()), _weighted_means(matrix, seeds, workloads), matrix.size, confidence)


def reduction_interval(
    scores: ArrayLike,
    baseline: ArrayLike,
    rng: np.random.Generator,
    *,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Interval of the relative reduction of the mean, `1 - mean(scores) / mean(baseline)`, paired by workload.

    Args:
        scores: (N,) or (S, N) finite scores, such as mean JCTs.
        baseline: (N,) or (S', N) scores of the baseline on the same workloads; its mean must be positive.
        rng: Source of the resamples.
        num_resamples: Bootstrap resamples.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ConfigError: Scores are empty or not finite, the workloads differ in number, or the baseline is not positive.
    """
    ours, theirs = _as_pair(scores, baseline)
    if theirs.min() < 0 or theirs.mean() <= 0:
        raise ConfigError("reduction_interval: baseline scores must not be negative, nor all zero")
    seeds, workloads = _counts(rng, num_resamples, *ours.shape)
    # Training seeds of the two sides are unrelated, workloads are shared.
    their_seeds, _ = _counts(rng, num_resamples, theirs.shape[0], 1)
    denominators = _weighted_means(theirs, their_seeds, workloads)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = 1.0 - _weighted_means(ours, seeds, workloads) / denominators
    draws = draws[denominators > 0]
    estimate = float(1.0 - ours.mean() / theirs.mean())
    return _interval(estimate, draws, max(ours.size, theirs.size), confidence)


def difference_interval(
    scores: ArrayLike,
    baseline: ArrayLike,
    rng: np.random.Generator,
    *,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Interval of `mean(scores) - mean(baseline)`, paired by workload; arguments as in `reduction_interval`."""
    ours, theirs = _as_pair(scores, baseline)
    seeds, workloads = _counts(rng, num_resamples, *ours.shape)
    their_seeds, _ = _counts(rng, num_resamples, theirs.shape[0], 1)
    draws = _weighted_means(ours, seeds, workloads) - _weighted_means(theirs, their_seeds, workloads)
    return _interval(float(ours.mean() - theirs.mean()), draws, max(ours.size, theirs.size), confidence)


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle half of the scores: a quarter of them, rounded down, is cut at each end.

    Robust against the odd failed training run, less wasteful than the median (Agarwal et al., NeurIPS 2021).
    """
    return float(_iqm(_as_matrix(scores, "scores").reshape(1, -1))[0])


def iqm_interval(
    scores: ArrayLike,
    rng: np.random.Generator,
    *,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Interval of `interquartile_mean`; training seeds (rows) and workloads (columns) are resampled as wholes.

    Args:
        scores: (N,) or (S, N) finite scores.
        rng: Source of the resamples.
        num_resamples: Bootstrap resamples.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ConfigError: Scores are empty or not finite.
    """
    matrix = _as_matrix(scores, "scores")
    num_seeds, num_workloads = matrix.shape
    draws = np.empty(num_resamples)
    chunk = max(1, _CHUNK // matrix.size)
    for start in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - start)
        rows = rng.integers(num_seeds, size=(size, num_seeds))
        columns = rng.integers(num_workloads, size=(size, num_workloads))
        sample = matrix[rows[:, :, None], columns[:, None, :]]  # (size, S, N)
        draws[start : start + size] = _iqm(sample.reshape(size, -1))
    return _interval(interquartile_mean(matrix), draws, matrix.size, confidence)


def probability_of_improvement(
    scores: ArrayLike,
    baseline: ArrayLike,
    rng: np.random.Generator,
    *,
    lower_is_better: bool = True,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """How often a run of one side beats a run of the other on the same workload; ties count one half.

    The mean over workloads of the Mann-Whitney statistic over pairs of training seeds (Agarwal et al., NeurIPS 2021).

    Args:
        scores: (N,) or (S, N) finite scores.
        baseline: (N,) or (S', N) scores on the same workloads.
        rng: Source of the resamples.
        lower_is_better: True for JCT-like scores.
        num_resamples: Bootstrap resamples.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ConfigError: Scores are empty or not finite, or the workloads differ in number.
    """
    ours, theirs = _as_pair(scores, baseline)
    gain = theirs[None, :, :] - ours[:, None, :] if lower_is_better else ours[:, None, :] - theirs[None, :, :]
    wins = 0.5 * (1.0 + np.sign(gain))  # (S, S', N)
    seeds, workloads = _counts(rng, num_resamples, *ours.shape)
    their_seeds, _ = _counts(rng, num_resamples, theirs.shape[0], 1)
    draws = np.empty(num_resamples)
    chunk = max(1, _CHUNK // (theirs.size + ours.size))
    for start in range(0, num_resamples, chunk):
        part = slice(start, start + chunk)
        over_ours = np.einsum("rs,stn->rtn", seeds[part], wins)
        over_both = np.einsum("rt,rtn->rn", their_seeds[part], over_ours)
        draws[part] = np.einsum("rn,rn->r", workloads[part], over_both)
    return _interval(float(wins.mean()), draws, max(ours.size, theirs.size), confidence)


def sign_flip_p(differences: ArrayLike, rng: np.random.Generator, *, num_flips: int = 100_000) -> float:
    """Two-sided p-value of the mean of paired differences, by flipping their signs (Fisher's randomization test).

    Exact when both sides of a pair are draws of one distribution, which makes the sign of their difference a coin's.
    Up to 16 differences all flips are gone through, otherwise random ones. The smallest value that N differences can
    give is 2 / 2^N, so fewer than 8 cannot reach 0.01.

    Args:
        differences: (N,) finite differences.
        rng: Source of random flips.
        num_flips: Random flips, where there are more than 16 differences.

    Raises:
        ConfigError: Differences are empty, not finite or not of one dimension.
    """
    values = _as_matrix(differences, "differences")
    if len(values) != 1:
        raise ConfigError("differences must be (workloads,)")
    values = values[0]
    size = len(values)
    if size <= _ALL_FLIPS:
        flips = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
        sums = (1.0 - 2.0 * flips) @ values
        extra = 0
    else:
        sums = (1.0 - 2.0 * rng.integers(2, size=(num_flips, size))) @ values
        extra = 1  # what was seen counts as one of the flips, so that no p-value is 0
    is_as_large = np.abs(sums) >= abs(float(values.sum())) - 1e-9 * float(np.abs(values).sum())
    return float((is_as_large.sum() + extra) / (len(sums) + extra))


def resampled_means(scores: ArrayLike, rng: np.random.Generator, num_resamples: int = NUM_RESAMPLES) -> Scores:
    """(K, R) means of K schedulers' scores in R resamples of the workloads, the same ones for all of them.

    For comparing many schedulers: one matrix of resamples serves every difference, ratio and rank.

    Args:
        scores: (K, N) finite scores of K schedulers on the same N workloads.
        rng: Source of the resamples.
        num_resamples: Bootstrap resamples R.

    Raises:
        ConfigError: Scores are empty or not finite.
    """
    matrix = _as_matrix(scores, "scores")
    _, workloads = _counts(rng, num_resamples, 1, matrix.shape[1])
    means: Scores = matrix @ workloads.T
    return means


def _as_matrix(scores: ArrayLike, name: str) -> Scores:
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[None, :]
    if matrix.ndim != 2 or matrix.size == 0:
        raise ConfigError(f"{name} must be (workloads,) or (training seeds, workloads) and not empty")
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ConfigError(f"{name} of seed {row}, workload {column} is {matrix[row, column]}; scores must be finite")
    return matrix


def _as_pair(scores: ArrayLike, baseline: ArrayLike) -> tuple[Scores, Scores]:
    ours, theirs = _as_matrix(scores, "scores"), _as_matrix(baseline, "baseline")
    if ours.shape[1] != theirs.shape[1]:
        raise ConfigError(
            f"paired comparison needs the same workloads on both sides, got {ours.shape[1]} and {theirs.shape[1]}"
        )
    return ours, theirs


def _counts(rng: np.random.Generator, num_resamples: int, num_seeds: int, num_workloads: int) -> tuple[Scores, Scores]:
    """Relative frequencies (R, S) and (R, N) with which each resample takes a seed and a workload."""
    if num_resamples < 1:
        raise ConfigError(f"num_resamples={num_resamples} must be at least 1")

    def draw(size: int) -> Scores:
        return rng.multinomial(size, np.full(size, 1.0 / size), size=num_resamples) / size

    return draw(num_seeds), draw(num_workloads)


def _weighted_means(matrix: Scores, seeds: Scores, workloads: Scores) -> Scores:
    means: Scores = np.einsum("rn,rn->r", seeds @ matrix, workloads)
    return means


def _iqm(samples: Scores) -> Scores:
    """Interquartile mean of each row of (R, K)."""
    size = samples.shape[1]
    cut = size // 4
    means: Scores = np.sort(samples, axis=1)[:, cut : size - cut].mean(axis=1)
    return means


def _interval(estimate: float, draws: NDArray[Any], num_scores: int, confidence: float) -> Interval:
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence={confidence} must lie between 0 and 1")
    if num_scores < 2 or draws.size == 0:
        return Interval(estimate, float("nan"), float("nan"))
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(draws, [tail, 100.0 - tail])
    return Interval(estimate, float(low), float(high))
