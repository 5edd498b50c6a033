"""Non-negative least squares on normal equations, as a kernel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.jit import allocating_kernel

_SINGULAR = 1e-12  # smallest squared pivot of unit columns that still counts as independent
_FLAT = 1e-11  # gradient, relative to the largest right-hand side, that counts as zero


@allocating_kernel
def _solve_passive(
    gram: NDArray[np.float64], rhs: NDArray[np.float64], passive: NDArray[np.bool_], solution: NDArray[np.float64]
) -> bool:
    """Solves gram z = rhs on the passive variables by Cholesky decomposition; False if they are dependent."""
    n = rhs.shape[0]
    index = np.empty(n, np.int64)
    count = 0
    for j in range(n):
        solution[j] = 0.0
        if passive[j]:
            index[count] = j
            count += 1
    lower = np.empty((count, count))
    z = np.empty(count)
    for r in range(count):
        for c in range(r + 1):
            total = gram[index[r], index[c]]
            for k in range(c):
                total -= lower[r, k] * lower[c, k]
            if r > c:
                lower[r, c] = total / lower[c, c]
            elif total > _SINGULAR:
                lower[r, r] = math.sqrt(total)
            else:
                return False
        total = rhs[index[r]]
        for k in range(r):
            total -= lower[r, k] * z[k]
        z[r] = total / lower[r, r]
    for r in range(count - 1, -1, -1):
        for k in range(r + 1, count):
            z[r] -= lower[k, r] * z[k]
        z[r] /= lower[r, r]
        solution[index[r]] = z[r]
    return True


@allocating_kernel
def nnls_gram(gram: NDArray[np.float64], rhs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimises x' gram x / 2 - rhs' x over x >= 0: the active-set method of Lawson and Hanson (1974).

    With gram = X'X and rhs = X'y this is non-negative least squares. Columns that repeat others get 0.

    Args:
        gram: (n, n) symmetric, positive semidefinite.
        rhs: (n,) right-hand side.

    Returns:
        (n,) solution.
    """
    n = rhs.shape[0]
    scale = np.zeros(n)  # columns of very different size are brought to unit length
    for j in range(n):
        if gram[j, j] > 0.0:
            scale[j] = 1.0 / math.sqrt(gram[j, j])
    a = np.empty((n, n))
    b = np.empty(n)
    largest = 0.0
    for j in range(n):
        b[j] = rhs[j] * scale[j]
        largest = max(largest, abs(b[j]))
        for k in range(n):
            a[j, k] = gram[j, k] * scale[j] * scale[k]
    x = np.zeros(n)
    z = np.zeros(n)
    passive = np.zeros(n, np.bool_)
    blocked = np.zeros(n, np.bool_)  # entered and had to leave at once, by rounding
    for _ in range(20 * n):
        entering = -1
        steepest = _FLAT * largest
        for j in range(n):
            if passive[j] or blocked[j] or scale[j] == 0.0:
                continue
            gradient = b[j]
            for k in range(n):
                gradient -= a[j, k] * x[k]
            if gradient > steepest:
                steepest = gradient
                entering = j
        if entering < 0:
            break
        passive[entering] = True
        if not _solve_passive(a, b, passive, z) or z[entering] <= 0.0:
            passive[entering] = False
            blocked[entering] = True
            continue
        blocked[:] = False
        while True:
            step = 1.0
            leaving = -1
            for j in range(n):
                if passive[j] and z[j] <= 0.0 and x[j] / (x[j] - z[j]) < step:
                    step = x[j] / (x[j] - z[j])
                    leaving = j
            if leaving < 0:
                break
            for j in range(n):
                if passive[j]:
                    x[j] += step * (z[j] - x[j])
            x[leaving] = 0.0
            passive[leaving] = False
            for j in range(n):
                if passive[j] and x[j] <= 0.0:
                    x[j] = 0.0
                    passive[j] = False
            _solve_passive(a, b, passive, z)
        for j in range(n):
            x[j] = z[j] if passive[j] else 0.0
    for j in range(n):
        x[j] *= scale[j]
    return x
