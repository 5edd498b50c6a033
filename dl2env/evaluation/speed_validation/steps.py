"""Measured step times of one application, with the placements on which they were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
StringArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]  # of np.str_, which Sphinx takes for a reference


@dataclass(frozen=True)
class MeasuredSteps:
    """n measured steps of one application on up to S servers.

    Attributes:
        name: Name of the application; a job type of the catalogue has the same.
        workers: (n, S) workers on each server.
        ps: (n, S) parameter servers (PSs) on each server; zero without PSs.
        batch: (n,) samples per step: of each worker, or of all workers of a synchronous job type.
        step_s: (n,) measured seconds of a step, positive.
        configuration: (n,) label of the placement. Steps of one configuration are never split between the data that a
            model is fitted to and the data that it is tested on.
        group: (n,) label of a class of similar placements, which is left out as a whole.
        num_failed: Failed runs that the reader left out.
    """

    name: str
    workers: FloatArray
    ps: FloatArray
    batch: FloatArray
    step_s: FloatArray
    configuration: StringArray
    group: StringArray
    num_failed: int = 0

    @property
    def size(self) -> int:
        """Number of measured steps n."""
        return len(self.step_s)

    @property
    def num_tasks(self) -> FloatArray:
        """(n,) workers and PSs together."""
        return np.asarray(self.workers.sum(axis=1) + self.ps.sum(axis=1))

    def groups(self) -> list[str]:
        """Labels of the groups, smallest placements first."""
        names = np.unique(self.group)
        return sorted((str(name) for name in names), key=lambda name: float(self.num_tasks[self.group == name].mean()))


def repeat_error(steps: MeasuredSteps) -> float | None:
    """Mean absolute relative deviation of repeated measurements from their median.

    It bounds from below what a function of placement and batch size can reach on these measurements, about. None where
    nothing was measured twice.
    """
    keys = np.array([f"{c}|{b:g}" for c, b in zip(steps.configuration, steps.batch, strict=True)])
    _, cell, counts = np.unique(keys, return_inverse=True, return_counts=True)
    deviations = []
    for k in np.nonzero(counts > 1)[0]:
        values = steps.step_s[cell == k]
        deviations.append(np.abs(np.median(values) / values - 1.0))
    return float(np.concatenate(deviations).mean()) if deviations else None
