"""What an online run found: a table, a JSON file and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agents.online.environment import ACCEPTED, LOG, NO_CHOICE, OVERRIDDEN, PRACTISED
from agents.online.measures import StreamMeasures
from agents.online.monitor import override_share
from agents.online.stream import Stream, segment_names
from agents.run_folder import write_json
from dl2env.config_dict import config_to_dict
from dl2env.evaluation.figures import new_figure, write_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMA = "dl2env-online"
SCHEMA_VERSION = 1
LIMIT = 1.05
"""Windowed cost over the teacher's that online learning should never exceed."""
_SHARE_WINDOW = 50


@dataclass(frozen=True)
class StreamResult:
    """The agent and other schedulers on one stream.

    Attributes:
        teacher: Name of the reference among `measures`.
        agent: Name of the learner among them.
        window: Intervals of a window.
        stream: The stream.
        measures: By scheduler.
        log: Rows of `environment.LOG`, one per interval that was decided.
        facts: What is needed to check or repeat the run.
        timing: Differs from run to run.
    """

    teacher: str
    agent: str
    window: int
    stream: Stream
    measures: Mapping[str, StreamMeasures]
    log: NDArray[np.float64]
    facts: Mapping[str, Any]
    timing: Mapping[str, float]

    @property
    def num_intervals(self) -> int:
        """Measured intervals: those of the stream, or fewer of a run that was stopped."""
        return len(self.measures[self.agent].costs)

    def guard(self) -> dict[str, Any]:
        """Who decided how often, over the stream and by segment; shares are of the intervals the guard was asked about.

        They are None without a guard.
        """
        interval, decider = self.log[:, LOG.index("interval")], self.log[:, LOG.index("decider")]
        segment = np.searchsorted(self.stream.starts[1:], interval, side="right")
        shares = [override_share(self.log[segment == s]) for s in range(len(self.stream.segments))]
        return {
            "accepted": int((decider == ACCEPTED).sum()),
            "from_practice": int((decider == PRACTISED).sum()),
            "overridden": int((decider == OVERRIDDEN).sum()),
            "no_choice": int((decider == NO_CHOICE).sum()),
            "override_share": _plain(override_share(self.log)),
            "segment_override_share": [_plain(share) for share in shares],
        }

    def table(self) -> str:
        """Aligned plain text, one line per scheduler."""
        names = segment_names(self.stream.segments)
        header = ["scheduler", "mean JCT", *(f"segment {i + 1}" for i in range(len(names)))]
        header += [f"worst {self.window}-interval ratio", "regret per interval"]
        rows = [header]
        for name, found in self.measures.items():
            row = [name, f"{found.mean_jct:.2f}", *(f"{value:.2f}" for value in found.segment_jct)]
            row += [f"{found.worst_ratio:.3f} at {found.worst_window}"]
            row += [f"{found.regret[-1] / len(found.regret):.2f}"]
            rows.append(row)
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        share = self.guard()["override_share"]
        lines.append(
            f"{self.num_intervals} intervals; JCT in intervals, by segment of arrival; ratio and regret "
            f"in job-intervals against {self.teacher}; segments: {', then '.join(names)}"
        )
        if share is not None:
            lines.append(f"the guard let {self.teacher} decide {100 * share:.1f} % of the intervals")
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            **self.facts,
            "teacher": self.teacher,
            "window": self.window,
            "num_intervals": self.num_intervals,
            "segments": [config_to_dict(segment) for segment in self.stream.segments],
            "segment_starts": self.stream.starts.tolist(),
            "guard": self.guard(),
            "schedulers": {name: found.summary() for name, found in self.measures.items()},
            "interval_costs": {name: np.round(found.costs, 6).tolist() for name, found in self.measures.items()},
            "timing": dict(self.timing),
        }


def write_result(path: Path, result: StreamResult) -> Path:
    """Writes figures beside the file and, last, the file; returns its path.

    Raises:
        ConfigError: Something cannot be written.
    """
    write_figures(PLOTS, result, path.parent)
    write_json(path, result.summary())
    return path


def plot_regret(result: StreamResult) -> Figure:
    """Cumulative cost minus the teacher's, over intervals."""
    figure, (axes,) = new_figure()
    for name, found in result.measures.items():
        if name != result.teacher:
            style = {"linewidth": 2.0} if name == result.agent else {"linewidth": 1.0, "linestyle": "--"}
            axes.plot(found.regret, label=name, **style)
    axes.axhline(0.0, color="black", linewidth=0.8)
    _mark_segments(axes, result)
    axes.set_xlabel("interval")
    axes.set_ylabel(f"job-intervals more than {result.teacher}")
    axes.set_title("Regret")
    axes.legend()
    return figure


def plot_window_ratio(result: StreamResult) -> Figure:
    """Windowed cost over the teacher's, by the last interval of the window."""
    figure, (axes,) = new_figure()
    for name, found in result.measures.items():
        if name != result.teacher:
            style = {"linewidth": 2.0} if name == result.agent else {"linewidth": 1.0, "linestyle": "--"}
            last = np.arange(len(found.ratios)) + len(found.costs) - len(found.ratios)
            axes.plot(last, found.ratios, label=name, **style)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.axhline(LIMIT, color="red", linewidth=0.8, label=f"{LIMIT:g}")
    _mark_segments(axes, result)
    axes.set_xlabel("last interval of the window")
    axes.set_ylabel(f"job time in system over {result.teacher}'s")
    axes.set_title(f"Cost of {result.window} intervals in a row")
    axes.legend()
    return figure


def plot_segments(result: StreamResult) -> Figure:
    """Mean JCT of the jobs that arrived in each segment."""
    figure, (axes,) = new_figure()
    names = segment_names(result.stream.segments)
    width = 0.8 / len(result.measures)
    for k, (name, found) in enumerate(result.measures.items()):
        places = np.arange(len(names)) + (k - (len(result.measures) - 1) / 2) * width
        axes.bar(places, found.segment_jct, width=0.9 * width, label=name)
    axes.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names])
    axes.set_ylabel("mean job completion time in intervals")
    axes.set_title("Jobs by the segment in which they arrive")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return figure


def plot_guard(result: StreamResult) -> Figure | None:
    """Share of the last 50 intervals with a choice in which the teacher decided; nothing without a guard."""
    asked = result.log[~np.isnan(result.log[:, LOG.index("teacher_cost")])]
    if len(asked) == 0:
        return None
    overridden = (asked[:, LOG.index("decider")] == OVERRIDDEN).astype(np.float64)
    window = min(_SHARE_WINDOW, len(overridden))
    total = np.concatenate([[0.0], np.cumsum(overridden)])
    figure, (axes,) = new_figure()
    axes.plot(asked[window - 1 :, 0], (total[window:] - total[:-window]) / window)
    _mark_segments(axes, result)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("interval")
    axes.set_ylabel(f"share of {window} intervals")
    axes.set_title(f"Intervals that the guard gave to {result.teacher}")
    return figure


def _mark_segments(axes: Axes, result: StreamResult) -> None:
    for start in result.stream.starts[1:-1]:
        axes.axvline(start, color="grey", linewidth=0.8, linestyle=":")
    axes.grid(alpha=0.3)


PLOTS: dict[str, tuple[Callable[[StreamResult], Figure | None], str]] = {
    "regret": (plot_regret, "Regret against the teacher."),
    "window_ratio": (plot_window_ratio, "Cost of windows over the teacher's."),
    "segments": (plot_segments, "JCT by segment."),
    "overrides": (plot_guard, "How often the guard let the teacher decide."),
}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
