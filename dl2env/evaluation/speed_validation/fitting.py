"""Non-negative fits of step-time forms in relative error.

A form is T = (A_1^q + A_2^q + ...)^(1/q) + L with every A and L linear in the constants: q = 1 adds all up, as the
simulator does; a larger q lets the parts overlap, and their maximum is the limit. The q-norm is homogeneous, so the
Gauss-Newton step from given constants is again a non-negative least-squares problem, in columns that are weighted by
(A_k / T)^(q - 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dl2env.evaluation.speed_validation.steps import FloatArray

Loss = Literal["absolute", "squared"]

_ITERATIONS = 30
_SMALLEST_ERROR = 1e-3  # relative errors below it weigh alike, so that weights stay finite
_PRIOR_WEIGHT = 1e-3  # in measurements
_LADDER = (1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 64.0)  # exponents on the way to the maximum


@dataclass(frozen=True)
class Combination:
    """How columns make up a step time.

    Attributes:
        parts: Columns of each overlapping part; none: everything is added.
        exponents: Values of q to choose from by the error on the data of the fit; infinite: the maximum of the parts.
    """

    parts: tuple[tuple[int, ...], ...] = ()
    exponents: tuple[float, ...] = (1.0,)

    @property
    def chooses_exponent(self) -> bool:
        """Whether q is one more fitted parameter."""
        return len(self.exponents) > 1


@dataclass(frozen=True)
class StepFit:
    """A fitted form.

    Attributes:
        theta: (K,) constants, not negative.
        exponent: The q that was taken.
        combination: The form.
    """

    theta: FloatArray
    exponent: float
    combination: Combination

    def predict(self, columns: FloatArray) -> FloatArray:
        """(n,) step seconds from (n, K) columns."""
        return combined(columns, self.theta, self.combination.parts, self.exponent)


def combined(columns: FloatArray, theta: FloatArray, parts: Sequence[Sequence[int]], exponent: float) -> FloatArray:
    """(n,) step seconds of constants; see the module's documentation."""
    if not parts or exponent == 1.0:
        return np.asarray(columns @ theta)
    values = _part_values(columns, theta, parts)
    outside = _outside(columns.shape[1], parts)
    rest = columns[:, outside] @ theta[outside]
    return np.asarray(_norm(values, exponent) + rest)


def fit_steps(
    columns: FloatArray,
    step_s: FloatArray,
    combination: Combination | None = None,
    *,
    prior: FloatArray | None = None,
    loss: Loss = "absolute",
) -> StepFit:
    """Fits constants to measured step times.

    Args:
        columns: (n, K) what each constant is multiplied by.
        step_s: (n,) measured seconds, positive.
        combination: How columns combine; by default they add up.
        prior: (K,) expected constants. One of them counts as a thousandth of a measurement: it decides only what the
            data leave open. Entries that are zero expect nothing.
        loss: `absolute`: the mean absolute relative error, by reweighting; `squared`: the mean squared one, as in
            `dl2env.speed.fitted`.
    """
    combination = combination or Combination()
    theta = _solve(columns, step_s, np.ones(len(step_s)), prior)
    candidates = []
    # From the sum towards the maximum, each from the constants before it: the problem is convex at q = 1 only.
    for exponent in _stages(combination):
        theta, error = _fit(columns, step_s, combination.parts, exponent, theta, prior, loss)
        if exponent in combination.exponents:
            candidates.append((error, exponent, theta))
    _, exponent, theta = min(candidates, key=lambda candidate: candidate[0])
    return StepFit(theta, exponent, combination)


def _stages(combination: Combination) -> list[float]:
    last = max(combination.exponents)
    return sorted({1.0, *combination.exponents, *(q for q in _LADDER if q < last and combination.parts)})


def _fit(
    columns: FloatArray,
    step_s: FloatArray,
    parts: tuple[tuple[int, ...], ...],
    exponent: float,
    start: FloatArray,
    prior: FloatArray | None,
    loss: Loss,
) -> tuple[FloatArray, float]:
    """The best constants seen on the way from `start`, and their loss."""
    theta, best = start, (start, math.inf)
    for _ in range(_ITERATIONS):
        residual = np.abs(combined(columns, theta, parts, exponent) / step_s - 1.0)
        error = float(residual.mean() if loss == "absolute" else (residual**2).mean())
        if error < best[1]:
            best = (theta, error)
        weights = 1.0 / np.maximum(residual, _SMALLEST_ERROR) if loss == "absolute" else np.ones(len(step_s))
        new = _solve(_linearised(columns, theta, parts, exponent), step_s, weights, prior)
        if exponent > 1.0:
            new = 0.5 * (theta + new)  # full steps overshoot where the parts are far from linear
        if np.allclose(new, theta, rtol=1e-5, atol=0.0):
            break
        theta = new
    return best


def _solve(columns: FloatArray, step_s: FloatArray, weights: FloatArray, prior: FloatArray | None) -> FloatArray:
    from dl2env.speed.nnls import nnls_gram  # numba

    scaled = columns * (np.sqrt(weights) / step_s)[:, None]
    gram, rhs = scaled.T @ scaled, scaled.T @ np.sqrt(weights)
    if prior is not None:
        # A wrong prior costs what a step time would that is wrong by as many seconds.
        strength = np.where(prior > 0, _PRIOR_WEIGHT * float((1.0 / step_s**2).mean()), 0.0)
        gram = gram + np.diag(strength)
        rhs = rhs + strength * prior
    return np.asarray(nnls_gram(np.ascontiguousarray(gram), np.ascontiguousarray(rhs)))


def _linearised(columns: FloatArray, theta: FloatArray, parts: Sequence[Sequence[int]], exponent: float) -> FloatArray:
    """Columns of the Gauss-Newton problem at theta."""
    if not parts or exponent == 1.0:
        return columns
    values = _part_values(columns, theta, parts)
    total = _norm(values, exponent)
    weighted = columns.copy()
    for k, part in enumerate(parts):
        share = np.divide(values[k], total, out=np.zeros_like(total), where=total > 0)
        weighted[:, list(part)] *= (share ** (exponent - 1.0))[:, None]
    return weighted


def _part_values(columns: FloatArray, theta: FloatArray, parts: Sequence[Sequence[int]]) -> FloatArray:
    return np.stack([columns[:, list(part)] @ theta[list(part)] for part in parts])


def _outside(num_columns: int, parts: Sequence[Sequence[int]]) -> list[int]:
    inside = {column for part in parts for column in part}
    return [k for k in range(num_columns) if k not in inside]


def _norm(values: FloatArray, exponent: float) -> FloatArray:
    """(n,) q-norm over the first axis, without overflow."""
    largest = values.max(axis=0)
    if not math.isfinite(exponent):
        return np.asarray(largest)
    ratio = np.divide(values, largest, out=np.zeros_like(values), where=largest > 0)
    return np.asarray(largest * (ratio**exponent).sum(axis=0) ** (1.0 / exponent))
