"""What the jobs of a running episode held in each past interval, for pictures of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.sim.simulator import ClusterSimulator

Allocations = NDArray[np.int16]
"""(N, 2) workers and parameter servers of each job."""


class AllocationHistory:
    """Allocations of one environment by interval.

    The simulator clears allocations when an interval begins, so they are noted before each step. A step may pass
    through further intervals in which there was nothing to decide (`DynamicsConfig.auto_advance`). Of these only the
    last allocation is known; if several of them follow each other in one step, it is shown for all.

    Args:
        simulator: The simulator to watch.
        b: Environment.
    """

    def __init__(self, simulator: ClusterSimulator, b: int) -> None:
        self._simulator = simulator
        self._b = b
        self._before: Allocations = np.zeros((0, 2), np.int16)
        self._action = (0, -1, 0)
        self.first_interval = 0
        self._past: list[Allocations] = []

    def start(self) -> None:
        """Forgets the past: a new episode begins."""
        self.first_interval = int(self._simulator.state.env[self._b]["interval"])
        self._past = []

    def before_step(self, action: int) -> None:
        """Notes what the jobs hold, and what the action would add."""
        state = self._simulator.state
        if self.first_interval + len(self._past) != int(state.env[self._b]["interval"]):
            self.start()  # someone has restored another moment of the simulator
        self._before = self.present()
        i, kind = -1, 0
        if 0 <= action < state.mask.shape[1] - 1:
            i, kind = int(state.window[self._b, action // 3]), action % 3
        self._action = (int(state.env[self._b]["interval"]), i, kind)

    def after_step(self, is_illegal: bool) -> None:
        """Keeps the allocations of the intervals that the step has ended.

        Args:
            is_illegal: The action was not carried out.
        """
        state, b = self._simulator.state, self._b
        interval, i, kind = self._action
        now = int(state.env[b]["interval"])
        if now == interval:
            return
        if i >= 0 and not is_illegal:
            self._before[i] += (kind != 1, kind != 0)
        self._past.append(self._before)
        jobs = state.jobs[b, : int(state.env[b]["num_jobs"])]
        # At an interval's start the counts of unfinished jobs move to `last_*`; after the last interval they stay.
        has_moved = np.isnan(jobs["finish_s"]) & (not self._simulator.is_done[b])
        held = np.stack(
            [
                np.where(has_moved, jobs["last_workers"], jobs["workers"]),
                np.where(has_moved, jobs["last_ps"], jobs["ps"]),
            ],
            axis=1,
        )
        interval_s = self._simulator.config.dynamics.interval_s
        for k in range(interval + 1, now):
            is_gone = jobs["finish_s"] <= (k + 1e-9) * interval_s
            is_in_system = (jobs["arrival_s"] <= k * interval_s) & ~is_gone
            self._past.append(held * is_in_system[:, None])

    def present(self) -> Allocations:
        """(N, 2) what the jobs hold in the current interval so far."""
        state, b = self._simulator.state, self._b
        env = state.env[b]
        held = np.zeros((int(env["num_jobs"]), 2), np.int16)
        active = state.active[b, : int(env["num_active"])]
        held[active, 0] = state.jobs["workers"][b, active]
        held[active, 1] = state.jobs["ps"][b, active]
        return held

    def past(self) -> NDArray[np.int16]:
        """(K, N, 2) workers and PSs of each job in the K intervals since `first_interval`."""
        num_jobs = int(self._simulator.state.env[self._b]["num_jobs"])
        return np.stack(self._past) if self._past else np.zeros((0, num_jobs, 2), np.int16)
