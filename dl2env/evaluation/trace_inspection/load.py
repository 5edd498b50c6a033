"""Offered load of recorded jobs over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0
_BIN_S = (
    *(minutes * _MINUTE_S for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 6, 12)),
    *(days * _DAY_S for days in (1, 2, 7, 14, 28)),
)


@dataclass(frozen=True)
class LoadSeries:
    """Load by bins of time; the last bin ends with the last arrival and may be shorter.

    Attributes:
        edges_s: (B + 1,) seconds after the first arrival.
        arrived_gpu_s: (B,) GPU seconds of the jobs that arrive in a bin.
        busy_gpus: (B,) mean GPUs in use if no job ever waited.
        jobs: (B,) arrivals.
        peak_gpus: Most GPUs in use at once if no job ever waited.
    """

    edges_s: FloatArray
    arrived_gpu_s: FloatArray
    busy_gpus: FloatArray
    jobs: NDArray[np.int64]
    peak_gpus: float

    @property
    def length_s(self) -> FloatArray:
        """(B,) lengths of the bins."""
        return np.diff(self.edges_s)

    @property
    def offered_gpus(self) -> FloatArray:
        """(B,) GPUs that would be busy if the work that arrives in a bin were done in it."""
        return np.asarray(self.arrived_gpu_s / self.length_s)

    @property
    def mean_gpus(self) -> float:
        """GPU seconds of all jobs over the time from first to last arrival."""
        return float(self.arrived_gpu_s.sum() / self.edges_s[-1])


def load_series(arrival_s: FloatArray, duration_s: FloatArray, gpus: FloatArray, most_bins: int) -> LoadSeries | None:
    """Cuts the time from first to last arrival into at most so many bins; None if all jobs arrive at once.

    Args:
        arrival_s: (N,) seconds, not decreasing.
        duration_s: (N,) seconds.
        gpus: (N,) GPUs.
        most_bins: Most bins; their length is a round number of minutes, hours or days.
    """
    start = arrival_s - arrival_s[0]
    span = float(start[-1])
    if span <= 0:
        return None
    length = next((length for length in _BIN_S if span / length <= most_bins), span / most_bins)
    edges = np.append(np.arange(0.0, span, length), span)
    which = np.minimum(np.searchsorted(edges, start, side="right") - 1, edges.size - 2)
    arrived = np.bincount(which, weights=gpus * duration_s, minlength=edges.size - 1).astype(np.float64)
    jobs = np.bincount(which, minlength=edges.size - 1)
    used = _used_by(edges, start, gpus) - _used_by(edges, start + duration_s, gpus)
    return LoadSeries(edges, arrived, np.diff(used) / np.diff(edges), jobs, peak(start, start + duration_s, gpus))


def _used_by(times: FloatArray, since: FloatArray, gpus: FloatArray) -> FloatArray:
    """(T,) GPU seconds until each time if each job held its GPUs from `since` on for ever."""
    order = np.argsort(since, kind="stable")
    held = np.concatenate(([0.0], np.cumsum(gpus[order])))
    offset = np.concatenate(([0.0], np.cumsum(gpus[order] * since[order])))
    count = np.searchsorted(since[order], times)
    return np.asarray(held[count] * times - offset[count])


def peak(start_s: FloatArray, end_s: FloatArray, gpus: FloatArray) -> float:
    """Most GPUs held at once; a job that ends when another starts has given back its GPUs."""
    times = np.concatenate((end_s, start_s))
    changes = np.concatenate((-gpus, gpus))
    order = np.argsort(times, kind="stable")  # ends come first at equal times
    return float(np.cumsum(changes[order]).max())
