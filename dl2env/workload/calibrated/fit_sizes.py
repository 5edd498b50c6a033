"""Fits numbers of GPUs, durations and the resemblance of neighbours to recorded jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dl2env.workload.calibrated.model import DurationModel, GpuClass, Repeats

FloatArray = NDArray[np.float64]

MOST_CLASSES = 24
MOST_GROUPS = 8
FEWEST_IN_GROUP = 60
FEWEST_BEYOND = 10  # jobs beyond an outermost quantile, so that it is nobody's own
_PROBABILITIES = (
    *(0.001, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9),
    *(0.95, 0.98, 0.99, 0.995, 0.999),
)
_MOST_COMPONENTS = 4
_SMALLEST_SIGMA = 0.05
_WITHIN_S = (2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_ONE_CLASS = 0.999  # probability of equal classes by chance, above which classes say nothing about repeats


@dataclass(frozen=True)
class SizeFit:
    """Fitted sizes.

    Attributes:
        gpus, durations: Of the calibration.
        class_of_job: (N,) class of each recorded job.
        num_merged: Jobs whose rare number of GPUs counts as the nearest other.
        errors: Cross-validated distance (Wasserstein, of log durations) by distribution and kind.
    """

    gpus: tuple[GpuClass, ...]
    durations: tuple[DurationModel, ...]
    class_of_job: NDArray[np.int64]
    num_merged: int
    errors: dict[str, dict[str, float]]


def fit_sizes(num_gpus: FloatArray, duration_s: FloatArray, seed: int) -> SizeFit:
    """Fits classes and the distributions of their durations.

    Args:
        num_gpus: (N,) GPUs of each job.
        duration_s: (N,) seconds, positive.
        seed: Of the halves that the kinds of distributions are compared on.
    """
    values, class_of_job, counts, num_merged = _classes(num_gpus)
    groups = _groups(values, counts)
    names = [_group_name(values[group]) for group in groups]
    models, errors = [], {}
    for name, group in zip(names, groups, strict=True):
        mine = duration_s[np.isin(class_of_job, group)]
        model, errors[name] = fit_durations(name, mine, seed)
        models.append(model)
    group_of = {c: names[i] for i, group in enumerate(groups) for c in group.tolist()}
    shares = _rounded_shares(counts / counts.sum())
    gpus = tuple(GpuClass(float(f"{values[c]:.4g}"), shares[c], group_of[c]) for c in range(values.size))
    return SizeFit(gpus, tuple(models), class_of_job, num_merged, errors)


def _classes(num_gpus: FloatArray) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64], int]:
    """Distinct numbers of GPUs; the rarest count as their nearest neighbour until there are few enough."""
    rounded = np.array([float(f"{value:.4g}") for value in np.unique(num_gpus)])
    _, index = np.unique(num_gpus, return_inverse=True)
    values, back = np.unique(rounded, return_inverse=True)
    class_of_job = back[index]
    counts = np.bincount(class_of_job, minlength=values.size)
    target = np.arange(values.size)
    alive = list(range(values.size))
    live = counts.copy()
    while len(alive) > MOST_CLASSES:
        positive = [c for c in alive if values[c] > 0]
        rare = min(positive, key=lambda c: (live[c], -values[c]))
        others = [c for c in positive if c != rare]
        near = min(others, key=lambda c: abs(math.log(values[c] / values[rare])))
        live[near] += live[rare]
        target[target == rare] = near
        alive.remove(rare)
    num_merged = int(counts[target != np.arange(values.size)].sum())
    place = np.searchsorted(alive, target)
    return values[alive], place[class_of_job], live[alive], num_merged


def _groups(values: FloatArray, counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Neighbouring classes that share a distribution of durations: enough jobs each, and not too many."""
    groups = [[c] for c in range(values.size)]

    def size(group: Sequence[int]) -> int:
        return int(counts[group].sum())

    while len(groups) > 1:
        smallest = min(range(len(groups)), key=lambda i: size(groups[i]))
        if size(groups[smallest]) >= FEWEST_IN_GROUP and len(groups) <= MOST_GROUPS:
            break
        near = [i for i in (smallest - 1, smallest + 1) if 0 <= i < len(groups)]
        # Jobs without GPUs are a kind of their own: others join them last.
        other = min(near, key=lambda i: (values[groups[i][0]] == 0, size(groups[i])))
        first, second = sorted((smallest, other))
        groups[first : second + 1] = [groups[first] + groups[second]]
    return [np.array(group) for group in groups]


def _group_name(values: FloatArray) -> str:
    return f"{values[0]:g}_gpus" if values.size == 1 else f"{values[0]:g}_to_{values[-1]:g}_gpus"


def _rounded_shares(shares: FloatArray) -> list[float]:
    """Shares to 6 digits; the largest takes what rounding leaves."""
    rounded = [max(round(float(share), 6), 1e-6) for share in shares]
    largest = int(np.argmax(shares))
    rounded[largest] = round(1.0 - sum(r for i, r in enumerate(rounded) if i != largest), 6)
    return rounded


def fit_durations(name: str, duration_s: FloatArray, seed: int) -> tuple[DurationModel, dict[str, float]]:
    """The better of a table of quantiles and a mixture of log-normals, by two-fold cross-validation.

    Args:
        name: Of the distribution.
        duration_s: (N,) seconds, positive.
        seed: Of the halves.

    Returns:
        The distribution and the distance of each kind: the Wasserstein distance of log durations between a half
        and what was fitted to the other one.
    """
    shortest, longest = _outward(duration_s.min(), down=True), _outward(duration_s.max(), down=False)
    if duration_s.min() == duration_s.max():
        value = _digits(float(duration_s[0]), 4)
        bounds = min(shortest, value), max(longest, value)
        return DurationModel(name, "quantiles", *bounds, probabilities=(0.5,), seconds=(value,)), {"quantiles": 0.0}
    makers = {"quantiles": _quantiles, "lognormals": _lognormals}
    half = np.random.default_rng(seed).permutation(duration_s.size) % 2 == 0
    errors = {}
    for kind, make in makers.items():
        distance = 0.0
        for mine in (half, ~half):
            model = make(name, duration_s[mine], shortest, longest)
            distance += log_distance(model, duration_s[~mine]) / 2
        errors[kind] = float(f"{distance:.3g}")
    chosen = min(errors, key=lambda kind: (errors[kind], kind))
    return makers[chosen](name, duration_s, shortest, longest), errors


def log_distance(model: DurationModel, duration_s: FloatArray) -> float:
    """Wasserstein distance between the logarithms of recorded durations and those of a distribution."""
    ordered = np.sort(np.log(duration_s))
    inverse = NormalDist().inv_cdf
    scores = np.array([inverse(p) for p in (np.arange(ordered.size) + 0.5) / ordered.size])
    return float(np.abs(np.interp(scores, *model.table) - ordered).mean())


def _quantiles(name: str, duration_s: FloatArray, shortest: float, longest: float) -> DurationModel:
    n = duration_s.size
    at = [p for p in _PROBABILITIES if min(p, 1 - p) * n >= FEWEST_BEYOND] or [0.5]
    seconds = tuple(_digits(float(x), 3) for x in np.quantile(duration_s, at))
    return DurationModel(name, "quantiles", shortest, longest, probabilities=tuple(at), seconds=seconds)


def _lognormals(name: str, duration_s: FloatArray, shortest: float, longest: float) -> DurationModel:
    """A mixture by expectation maximisation, with the number of components by the Bayesian information criterion."""
    values, counts = np.unique(np.log(duration_s), return_counts=True)
    best: tuple[float, FloatArray, FloatArray, FloatArray] | None = None
    for k in range(1, _MOST_COMPONENTS + 1):
        if 10 * k > counts.sum():
            break
        shares, means, sigmas, likelihood = _mixture(values, counts, k)
        criterion = -2 * likelihood + (3 * k - 1) * math.log(counts.sum())
        if best is None or criterion < best[0]:
            best = criterion, shares, means, sigmas
    assert best is not None
    _, shares, means, sigmas = best
    order = np.argsort(means)
    return DurationModel(
        name,
        "lognormals",
        shortest,
        longest,
        shares=tuple(_rounded_shares(shares[order])),
        medians_s=tuple(_digits(float(np.exp(m)), 3) for m in means[order]),
        sigmas=tuple(_digits(float(s), 3) for s in sigmas[order]),
    )


def _mixture(values: FloatArray, counts: NDArray[np.int64], k: int) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Shares, means, standard deviations and log likelihood of k normal components."""
    rank = (np.cumsum(counts) - counts / 2) / counts.sum()
    part = np.minimum((rank * k).astype(np.int64), k - 1)
    weights = np.stack([np.where(part == j, 0.9, 0.1 / max(k - 1, 1)) if k > 1 else np.ones(values.size) for j in range(k)])  # fmt: skip # noqa: E501
    likelihood = -math.inf
    for _ in range(500):
        mass = np.maximum((weights * counts).sum(axis=1), 1e-9)
        means = (weights * counts) @ values / mass
        spread = (weights * counts * (values - means[:, None]) ** 2).sum(axis=1) / mass
        sigmas = np.sqrt(np.maximum(spread, _SMALLEST_SIGMA**2))
        shares = mass / mass.sum()
        z = (values - means[:, None]) / sigmas[:, None]
        log_density = np.log(shares / sigmas)[:, None] - z**2 / 2 - 0.5 * math.log(2 * math.pi)
        top = log_density.max(axis=0)
        total = top + np.log(np.exp(log_density - top).sum(axis=0))
        weights = np.exp(log_density - total)
        before, likelihood = likelihood, float((counts * total).sum())
        if likelihood - before < 1e-7 * abs(likelihood):
            break
    return shares, means, sigmas, likelihood


def fit_repeats(
    arrival_s: FloatArray, class_of_job: NDArray[np.int64], duration_s: FloatArray, shares: FloatArray
) -> Repeats | None:
    """How much a job resembles the one before it; None if that says less than its parameters cost.

    For each candidate of `within_s` the probability of a repeat follows from how often close neighbours have equal
    classes, and the correlation from the normal scores of equal ones; the candidate of the highest likelihood stays.

    Args:
        arrival_s: (N,) seconds, not decreasing.
        class_of_job: (N,) class of GPUs.
        duration_s: (N,) seconds.
        shares: (C,) shares of the classes.
    """
    gaps = np.diff(arrival_s)
    before, after = class_of_job[:-1], class_of_job[1:]
    is_same = before == after
    scores = _normal_scores(class_of_job, duration_s)
    by_chance = float((shares**2).sum())
    best: tuple[float, Repeats] | None = None
    for within_s in _WITHIN_S:
        near = gaps <= within_s
        count = int(near.sum())
        if count < 20:
            continue
        if by_chance > _ONE_CLASS:
            share = 1.0
        else:
            share = float(np.clip((is_same[near].mean() - by_chance) / (1 - by_chance), 0.0, 0.999))
        if share <= 0.0:
            continue
        q = shares[after[near]]
        same = is_same[near]
        gain = np.log(np.where(same, share + (1 - share) * q, (1 - share) * q) / q).sum() if share < 1 else 0.0
        x, y = scores[:-1][near][same], scores[1:][near][same]
        if x.size < 10:
            continue
        norm = math.sqrt(float((x**2).sum() * (y**2).sum()))
        seen = float(np.clip((x * y).sum() / norm, 0.0, 0.95)) if norm > 0 else 0.0
        gain += float(
            (-0.5 * math.log(1 - seen**2) - (seen**2 * (x**2 + y**2) - 2 * seen * x * y) / (2 * (1 - seen**2))).sum()
        )
        # Equal neighbours are repeats, or equal by chance; only the former correlate.
        of_repeats = float((share / (share + (1 - share) * q[same])).mean())
        correlation = min(seen / of_repeats, 0.95)
        if best is None or gain > best[0]:
            best = float(gain), Repeats(within_s, _digits(share, 3), _digits(correlation, 3))
    if best is None or best[0] < 1.5 * math.log(class_of_job.size):
        return None
    return best[1]


def _normal_scores(class_of_job: NDArray[np.int64], duration_s: FloatArray) -> FloatArray:
    """(N,) normal scores of the ranks of durations within each class; equal durations share their mean rank."""
    scores = np.zeros(duration_s.size)
    inverse = NormalDist().inv_cdf
    for c in np.unique(class_of_job):
        mine = np.flatnonzero(class_of_job == c)
        _, index, counts = np.unique(duration_s[mine], return_inverse=True, return_counts=True)
        rank = (np.cumsum(counts) - counts / 2) / mine.size
        scores[mine] = np.array([inverse(float(p)) for p in rank])[index]
    return scores


def _digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _outward(value: float, down: bool) -> float:
    """The next number of one significant digit below or above."""
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{(math.floor if down else math.ceil)(value / unit) * unit:.1g}")
