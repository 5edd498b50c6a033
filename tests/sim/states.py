"""Comparing complete states of simulators."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.sim.simulator import Snapshot


def differences(one: Snapshot, other: Snapshot) -> list[str]:
    """Arrays, and fields of records, in which two snapshots differ; NaN equals NaN, padding does not count."""
    names = [] if np.array_equal(one.is_done, other.is_done) else ["is_done"]
    assert one.arrays.keys() == other.arrays.keys()
    for name, values in one.arrays.items():
        for field in values.dtype.names or (None,):
            if not _equal(values, other.arrays[name], field):
                names.append(name if field is None else f"{name}.{field}")
    return names


def _equal(one: NDArray[np.generic], other: NDArray[np.generic], field: str | None) -> bool:
    a, b = (one, other) if field is None else (one[field], other[field])
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
