"""The error that tells which invariant of the simulation is violated, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Jobs = Sequence[int] | NDArray[np.integer[Any]]

TOLERANCE = 1e-9
"""Relative to the larger value, and absolute below 1: sums are kept up to date in another order than recomputed."""


class InvariantError(AssertionError):
    """The simulation broke one of its own rules: an error in the simulator or the scheduler, not in the user's input.

    Attributes:
        invariant: Name of the rule.
        env: Environment of the batch; None where it is about no single one.
        interval: Scheduling interval, or None.
        job: Index of the job, or None.
        detail: What was found.
    """

    def __init__(
        self, invariant: str, detail: str, env: int | None = None, interval: int | None = None, job: int | None = None
    ) -> None:
        places = [
            f"{name} {value}"
            for name, value in (("environment", env), ("interval", interval), ("job", job))
            if value is not None
        ]
        where = f" in {', '.join(places)}" if places else ""
        super().__init__(f"invariant {invariant!r} violated{where}: {detail}")
        self.invariant = invariant
        self.detail = detail
        self.env = env
        self.interval = interval
        self.job = job


class Claims:
    """Claims about one environment at one time.

    Args:
        env: Environment.
        interval: Scheduling interval.
    """

    def __init__(self, env: int | None, interval: int | None) -> None:
        self._env = env
        self._interval = interval

    def that(self, holds: bool | np.bool_, invariant: str, detail: str, job: int | None = None) -> None:
        """Raises `InvariantError` unless the claim holds."""
        if not holds:
            raise InvariantError(invariant, detail, self._env, self._interval, job)

    def all(self, holds: ArrayLike, invariant: str, detail: str, jobs: Jobs) -> None:
        """The claim holds for each of the jobs; `detail` says what is claimed."""
        for k in np.flatnonzero(~np.asarray(holds, np.bool_))[:1].tolist():
            self.that(False, invariant, f"{detail} does not hold", int(jobs[k]))

    def same(self, invariant: str, what: str, found: Any, expected: Any) -> None:
        """Plain values are equal."""
        self.that(found == expected, invariant, f"{what} is {found}, not {expected}")

    def close(
        self,
        invariant: str,
        what: str,
        found: ArrayLike,
        expected: ArrayLike,
        jobs: Jobs | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Numbers or arrays are equal to within rounding, whole numbers exactly; NaN equals NaN.

        Args:
            invariant: Name of the rule.
            what: What is compared.
            found: Values of the simulator.
            expected: Values recomputed.
            jobs: Jobs that the first axis goes over.
            tolerance: Relative and absolute.
        """
        a, b = np.asarray(found), np.asarray(expected)
        self.that(a.shape == b.shape, invariant, f"{what} has shape {a.shape}, not {b.shape}")
        if np.array_equal(a, b):
            return  # `isclose` is slow
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":
            differs = a != b
        else:
            differs = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        if differs.any():
            at = tuple(np.argwhere(differs)[0].tolist())
            where = f" at {at}" if at and (jobs is None or len(at) > 1) else ""
            job = int(jobs[at[0]]) if jobs is not None else None
            self.that(False, invariant, f"{what}{where} is {a[at]}, not {b[at]}", job)
