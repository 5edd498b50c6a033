"""What a stream cost: job time in the system by interval, windows of it, and regret.

The cost of an interval is the time that jobs spend in the system during it, waiting or training, in units of the
interval ("job-intervals"). A job is in the system from its arrival to its completion, so the costs of all intervals sum
to the total JCT: these are parts of the objective, not a stand-in for it. They follow from arrival and completion times
alone, whoever scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError

Floats = NDArray[np.float64]


def interval_costs(arrival_s: ArrayLike, finish_s: ArrayLike, interval_s: float, num_intervals: int) -> Floats:
    """(num_intervals,) job time in the system during each interval, in intervals.

    Args:
        arrival_s: (N,) arrival times in seconds.
        finish_s: (N,) completion times; NaN for jobs that are in the system until the end and beyond.
        interval_s: Length of an interval.
        num_intervals: How many intervals, from time 0.
    """
    borders = np.arange(num_intervals + 1, dtype=np.float64)
    arrivals = np.asarray(arrival_s, dtype=np.float64) / interval_s
    finishes = np.nan_to_num(np.asarray(finish_s, dtype=np.float64) / interval_s, nan=np.inf)
    # Time in the system up to a moment t: sum of (t - arrival)+ minus sum of (t - finish)+.
    return np.diff(_elapsed(arrivals, borders) - _elapsed(finishes[np.isfinite(finishes)], borders))


def _elapsed(events: Floats, moments: Floats) -> Floats:
    """For each moment t, the sum over events e of max(t - e, 0)."""
    ordered = np.sort(events)
    count = np.searchsorted(ordered, moments)
    total: Floats = count * moments - np.concatenate([[0.0], np.cumsum(ordered)])[count]
    return total


def window_sums(costs: Floats, window: int) -> Floats:
    """(K - window + 1,) sums over every run of `window` intervals; the t-th starts at interval t.

    Raises:
        ConfigError: There are fewer intervals than a window has.
    """
    if not 1 <= window <= len(costs):
        raise ConfigError(f"online.window={window}: must lie in 1..{len(costs)}, the intervals of the stream")
    total = np.concatenate([[0.0], np.cumsum(costs)])
    sums: Floats = total[window:] - total[:-window]
    return np.maximum(sums, 0.0)


def window_ratios(costs: Floats, reference: Floats, window: int) -> Floats:
    """Cost over the reference's cost, for every window of `window` intervals in a row.

    Both systems see the same arrivals, but each has the backlog that its own earlier decisions left it: that is part of
    the ratio. Where the reference costs nothing the ratio is 1 if nothing was spent either, else infinite.
    """
    own, other = window_sums(costs, window), window_sums(reference, window)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = np.where(other > 1e-9, own / other, np.where(own > 1e-9, np.inf, 1.0))
    return ratios


@dataclass(frozen=True)
class StreamMeasures:
    """A scheduler on a stream, compared with a reference on the same one.

    Attributes:
        costs: (K,) job time in the system per interval, in intervals.
        regret: (K,) summed cost minus the reference's, up to and including each interval. Negative: a gain.
        ratios: (K - window + 1,) windowed cost over the reference's.
        segment_jct: (S,) mean JCT in intervals of the jobs that arrived in each segment; NaN if none finished.
        mean_jct: Of all finished jobs, in intervals.
        num_unfinished: Jobs that did not finish.
    """

    costs: Floats
    regret: Floats
    ratios: Floats
    segment_jct: Floats
    mean_jct: float
    num_unfinished: int

    @property
    def worst_ratio(self) -> float:
        """Largest windowed ratio."""
        return float(self.ratios.max())

    @property
    def worst_window(self) -> int:
        """First interval of the window with the largest ratio."""
        return int(self.ratios.argmax())

    def summary(self) -> dict[str, Any]:
        """The figures as plain values, series left out."""
        return {
            "mean_jct_intervals": _plain(self.mean_jct),
            "total_cost": float(self.costs.sum()),
            "final_regret": float(self.regret[-1]),
            "largest_regret": float(self.regret.max()),
            "worst_window_ratio": _plain(self.worst_ratio),
            "worst_window_start": self.worst_window,
            "share_of_windows_above_1": float((self.ratios > 1.0).mean()),
            "segment_jct_intervals": [_plain(value) for value in self.segment_jct.tolist()],
            "num_unfinished": self.num_unfinished,
        }


def measure(
    arrival_s: Floats,
    finish_s: Floats,
    segment_of_job: NDArray[np.int64],
    reference_costs: Floats,
    *,
    interval_s: float,
    num_segments: int,
    window: int,
) -> StreamMeasures:
    """Measures the intervals that `reference_costs` covers.

    Args:
        arrival_s: (N,) arrival times in seconds.
        finish_s: (N,) completion times, NaN for unfinished jobs.
        segment_of_job: (N,) segment of each job.
        reference_costs: (K,) costs of the reference.
        interval_s: Length of an interval.
        num_segments: S.
        window: Intervals of a window; fewer if the stream is shorter.
    """
    costs = interval_costs(arrival_s, finish_s, interval_s, len(reference_costs))
    jct = (finish_s - arrival_s) / interval_s
    done = ~np.isnan(jct)
    window = min(window, len(costs))
    return StreamMeasures(
        costs=costs,
        regret=np.cumsum(costs - reference_costs),
        ratios=window_ratios(costs, reference_costs, window),
        segment_jct=np.array([_mean(jct[done & (segment_of_job == s)]) for s in range(num_segments)]),
        mean_jct=_mean(jct[done]),
        num_unfinished=int((~done).sum()),
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _plain(value: float) -> float | None:
    """JSON has no infinities."""
    return float(value) if np.isfinite(value) else None
