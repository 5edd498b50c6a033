"""Optimus' resource-speed functions (Peng et al., EuroSys 2018), fitted to samples by non-negative least squares.

With w workers, p parameter servers (PSs) and batch size M a step takes

- synchronous (M: global batch): `T = t0 * M / w + t1 + t2 * w / p + t3 * w + t4 * p`, speed M / T
- asynchronous (M: each worker's batch): `T = t1 + t2 * w / p + t3 * w + t4 * p`, speed w * M / T

The paper writes steps/s as 1 / T and w / T and, in the asynchronous form, counts its four parameters from 0; here both
forms share one parameter vector, the asynchronous one with t0 = 0. Without PSs the terms in p vanish. The fit minimises
the relative error of T, so that slow allocations do not outweigh fast ones.

The kernels take the normal equations (5, 6): Gram matrix, and right-hand side as the last column. A sample can be added
at any time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import Dl2EnvError
from dl2env.jit import allocating_kernel, kernel
from dl2env.speed.nnls import nnls_gram
from dl2env.speed.parameters import ALL_REDUCE, PS_WORKER, SpeedParameters

NUM_TERMS = 5


@kernel
def speed_terms(
    is_synchronous: bool, batch_size: float, workers: float, num_ps: float
) -> tuple[float, float, float, float, float]:
    """The factors of the parameters t0..t4."""
    share = batch_size / workers if is_synchronous else 0.0
    ratio = workers / num_ps if num_ps > 0 else 0.0
    return share, 1.0, ratio, float(workers), float(num_ps)


@kernel
def add_sample(
    equations: NDArray[np.float64],
    is_synchronous: bool,
    batch_size: float,
    workers: float,
    num_ps: float,
    step_s: float,
    weight: float,
) -> None:
    """Adds one observed step time to the normal equations.

    Args:
        equations: (5, 6), changed in place.
        is_synchronous: Which form.
        batch_size: M.
        workers: w, at least 1.
        num_ps: p; 0 for types without PSs.
        step_s: Observed step seconds; samples that are not positive and finite (failed runs) are left out.
        weight: Weight of the squared relative error.
    """
    if not (step_s > 0.0 and step_s < math.inf):
        return
    terms = speed_terms(is_synchronous, batch_size, workers, num_ps)
    for i in range(NUM_TERMS):
        for j in range(NUM_TERMS):
            equations[i, j] += weight * terms[i] * terms[j] / (step_s * step_s)
        equations[i, NUM_TERMS] += weight * terms[i] / step_s


@allocating_kernel
def solve_fit(equations: NDArray[np.float64]) -> NDArray[np.float64]:
    """(5,) parameters t0..t4 that fit the samples best."""
    return nnls_gram(equations[:, :NUM_TERMS], equations[:, NUM_TERMS])


@kernel
def fill_estimate(
    theta: NDArray[np.float64], job_type: Any, has_communication: bool, estimate: NDArray[np.float64]
) -> float:
    """Overwrites a type's estimate where it can train, and returns its best speed within the caps.

    Args:
        theta: (5,) parameters.
        job_type: TYPE_DTYPE record.
        has_communication: False when link stretch has no effect (measured tables).
        estimate: (W + 2, P + 2, 2) step and communication seconds. Cells with an infinite step stay. What a scheduler
            takes for communication is t1 + t2 * w / p: the form cannot tell a worker's own exchange from a fixed cost.

    Returns:
        Best samples/s within the caps of the type; 0 if there are no samples.
    """
    best = 0.0
    for w in range(1, estimate.shape[0]):
        for p in range(estimate.shape[1]):
            if math.isinf(estimate[w, p, 0]):
                continue
            terms = speed_terms(job_type.is_synchronous, job_type.batch_size, w, p)
            step_s = 0.0
            for i in range(NUM_TERMS):
                step_s += theta[i] * terms[i]
            on_network = job_type.architecture == PS_WORKER or (job_type.architecture == ALL_REDUCE and w > 1)
            estimate[w, p, 0] = step_s
            estimate[w, p, 1] = theta[1] + theta[2] * terms[2] if has_communication and on_network else 0.0
            if step_s > 0.0 and w <= job_type.max_workers and p <= job_type.max_ps:
                best = max(best, (1.0 if job_type.is_synchronous else w) * job_type.batch_size / step_s)
    return best


@allocating_kernel
def _fit_types(
    types: NDArray[np.void],
    probes: NDArray[np.int64],
    factors: NDArray[np.float64],
    has_communication: bool,
    estimate: NDArray[np.float64],
    equations: NDArray[np.float64],
) -> None:
    for t in range(types.shape[0]):
        for k in range(probes.shape[1]):
            w = probes[t, k, 0]
            p = probes[t, k, 1]
            step_s = estimate[t, w, p, 0] / factors[t, k]
            add_sample(equations[t], types[t].is_synchronous, types[t].batch_size, w, p, step_s, 1.0)
    for t in range(types.shape[0]):
        fill_estimate(solve_fit(equations[t]), types[t], has_communication, estimate[t])


# Positions of the first probes on logarithmic axes from 1 to the cap, as (workers, PSs). The ends and unequal counts
# come first: with w = p throughout, the term w / p could not be told from the constant.
_PROBES = (
    (0.0, 0.0),
    (0.0, 1.0),
    (1.0, 1.0),
    (1.0, 0.4),
    (0.4, 1.0),
    (0.6, 0.2),
    (0.5, 0.5),
    (0.8, 0.7),
    (0.2, 0.6),
    (0.3, 0.0),
)


def probe_points(max_workers: int, max_ps: int, num_probes: int) -> NDArray[np.int64]:
    """Allocations to try before a job type is known.

    The first ten are a fixed spread over both axes; more follow the R2 low-discrepancy sequence. Small caps give
    repeated points, which average their errors.

    Args:
        max_workers: Cap of the type.
        max_ps: Cap of the type; 0 for types without parameter servers.
        num_probes: Number of points.

    Returns:
        (num_probes, 2) workers and PSs.
    """
    golden = 1.324717957244746  # root of x^3 = x + 1, the two-dimensional golden ratio
    k = np.arange(1, max(num_probes - len(_PROBES), 0) + 1)[:, None]
    further = (0.5 + k / golden ** np.array([1.0, 2.0])) % 1.0
    position = np.concatenate([np.array(_PROBES), further])[:num_probes]
    caps = np.array([max_workers, max(max_ps, 1)], dtype=np.float64)
    points: NDArray[np.int64] = np.rint(caps**position).astype(np.int64)
    if max_ps == 0:
        points[:, 1] = 0
    return points


def fit_probes(
    parameters: SpeedParameters, exact: NDArray[np.float64], num_probes: int, noise: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The estimate after isolated sample runs of every type.

    Args:
        parameters: Constants of the types.
        exact: (T, W + 2, P + 2, 2) true isolated step times.
        num_probes: Sample runs per type.
        noise: The speed seen in a run is off by a factor of 1 + U(-noise, noise).
        rng: Source of the errors.

    Returns:
        (T, W + 2, P + 2, 2) fitted step and communication seconds, and the (T, 5, 6) normal equations.
    """
    types = parameters.types
    probes = np.stack([probe_points(int(t["max_workers"]), int(t["max_ps"]), num_probes) for t in types])
    factors = 1.0 + rng.uniform(-noise, noise, size=probes.shape[:2])
    estimate = exact.copy()
    equations = np.zeros((len(types), NUM_TERMS, NUM_TERMS + 1))
    _fit_types(types, probes, factors, parameters.table.shape[1] == 0, estimate, equations)
    estimate[..., 0] = np.where(estimate[..., 0] > 0, estimate[..., 0], np.inf)
    return estimate, equations


@dataclass(frozen=True)
class FittedSpeed:
    """A fitted resource-speed function.

    Attributes:
        theta: (5,) parameters t0..t4, not negative.
        is_synchronous: Which form.
        batch_size: M in samples.
    """

    theta: NDArray[np.float64]
    is_synchronous: bool
    batch_size: float

    def step_s(self, workers: ArrayLike, ps: ArrayLike) -> NDArray[np.float64]:
        """Step seconds; the arguments broadcast."""
        return np.asarray(term_matrix(self.is_synchronous, self.batch_size, workers, ps) @ self.theta)

    def samples_per_s(self, workers: ArrayLike, ps: ArrayLike) -> NDArray[np.float64]:
        """Samples/s; the arguments broadcast."""
        batches = 1.0 if self.is_synchronous else np.asarray(workers, dtype=np.float64)
        return np.asarray(batches * self.batch_size / self.step_s(workers, ps))


def term_matrix(is_synchronous: bool, batch_size: float, workers: ArrayLike, ps: ArrayLike) -> NDArray[np.float64]:
    """(..., 5) factors of the parameters, see `speed_terms`."""
    w, p = np.broadcast_arrays(np.asarray(workers, dtype=np.float64), np.asarray(ps, dtype=np.float64))
    ratio = np.divide(w, p, out=np.zeros_like(w), where=p > 0)
    first = batch_size / w if is_synchronous else np.zeros_like(w)
    return np.stack([first, np.ones_like(w), ratio, w, p], axis=-1)


def fit_speed(
    workers: ArrayLike, ps: ArrayLike, samples_per_s: ArrayLike, *, is_synchronous: bool, batch_size: float
) -> FittedSpeed:
    """Fits a resource-speed function to measured speeds.

    Args:
        workers: (n,) workers of each sample, positive.
        ps: (n,) parameter servers of each sample; 0 for types without.
        samples_per_s: (n,) measured speeds; those that are not positive (failed runs) are left out.
        is_synchronous: Which form.
        batch_size: M in samples: global batch if synchronous, else each worker's.

    Raises:
        Dl2EnvError: No sample is left.
    """
    w, p, speed = (np.asarray(values, dtype=np.float64) for values in (workers, ps, samples_per_s))
    equations = np.zeros((NUM_TERMS, NUM_TERMS + 1))
    valid = (speed > 0) & np.isfinite(speed)
    if not valid.any():
        raise Dl2EnvError("speed fit: no sample has a positive speed; give at least one successful run")
    for w_k, p_k, speed_k in zip(w[valid], p[valid], speed[valid], strict=True):
        step_s = (1.0 if is_synchronous else w_k) * batch_size / speed_k
        add_sample(equations, is_synchronous, batch_size, w_k, p_k, step_s, 1.0)
    return FittedSpeed(solve_fit(equations), is_synchronous, batch_size)
