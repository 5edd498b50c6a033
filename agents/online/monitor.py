"""Callbacks while the agent learns on the stream: the end of the stream, scalars, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from agents.online.environment import LOG, OVERRIDDEN, StreamVectorEnv
from agents.online.measures import StreamMeasures, measure
from agents.progress import PhaseBar
from dl2env.sim.simulator import ClusterSimulator

if TYPE_CHECKING:
    from agents.learner import Learner
    from agents.online.stream import Stream

_RECENT = 50
"""Intervals over which the share of overridden ones is shown."""


def measure_cluster(
    cluster: ClusterSimulator, stream: Stream, reference_costs: NDArray[np.float64], window: int
) -> StreamMeasures | None:
    """Measures a cluster up to its present interval; None before the first interval has ended.

    Args:
        cluster: The cluster, on the stream.
        stream: The stream.
        reference_costs: (K,) costs of the reference over the whole stream.
        window: Intervals of a window.
    """
    jobs = cluster.state.jobs[0, : stream.workload.num_jobs]
    past = min(int(cluster.state.env["interval"][0]), len(reference_costs))
    if past == 0:
        return None
    return measure(
        jobs["arrival_s"],
        jobs["finish_s"],
        stream.segment_of_job,
        reference_costs[:past],
        interval_s=stream.config.dynamics.interval_s,
        num_segments=len(stream.segments),
        window=window,
    )


def override_share(log: NDArray[np.float64]) -> float:
    """Share of the intervals that a guard was asked about in which the teacher decided; NaN if there are none."""
    asked = ~np.isnan(log[:, LOG.index("teacher_cost")])
    overridden = log[:, LOG.index("decider")] == OVERRIDDEN
    return float(overridden.sum() / asked.sum()) if asked.any() else float("nan")


class StopAtEnd(BaseCallback):
    """Ends the training when the stream is over."""

    def __init__(self, env: StreamVectorEnv) -> None:
        super().__init__()
        self._env = env

    def _on_step(self) -> bool:
        return not self._env.is_finished


class StreamMonitor(BaseCallback):
    """After each rollout, logs `online/*` and moves the bar.

    Scalars: `online/interval`, `online/jobs_in_system`, `online/regret` (job-intervals), `online/window_ratio` (of the
    last full window), `online/worst_window_ratio`, and with a guard `online/override_share` of the last 50 intervals.

    Args:
        env: The stream.
        teacher_costs: (K,) costs of the teacher.
        window: Intervals of a window.
        bar: Shows the intervals.
    """

    model: Learner  # type: ignore[assignment]

    def __init__(self, env: StreamVectorEnv, teacher_costs: NDArray[np.float64], window: int, bar: PhaseBar) -> None:
        super().__init__()
        self._env = env
        self._costs = teacher_costs
        self._window = window
        self._bar = bar
        self._shown_at = -1

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        env = self._env
        if env.interval == self._shown_at:
            return
        self._shown_at = env.interval
        self.logger.record("online/interval", env.interval)
        self.logger.record("online/jobs_in_system", int(env.cluster.state.env["num_active"][0]))
        shown = {}
        overrides = override_share(np.array(env.log[-_RECENT:]).reshape(-1, len(LOG)))
        if not np.isnan(overrides):
            self.logger.record("online/override_share", overrides)
            shown["overridden"] = f"{100 * overrides:.0f}%"
        found = measure_cluster(env.cluster, env.stream, self._costs, self._window)
        if found is not None:
            self.logger.record("online/regret", float(found.regret[-1]))
            shown["regret"] = f"{found.regret[-1]:.0f}"
            if len(found.costs) >= self._window:
                self.logger.record("online/window_ratio", float(found.ratios[-1]))
                self.logger.record("online/worst_window_ratio", found.worst_ratio)
                shown["ratio"] = f"{found.ratios[-1]:.2f}"
        self._bar.move_to(min(env.interval, env.stream.num_intervals), env.stream.num_intervals, **shown)
