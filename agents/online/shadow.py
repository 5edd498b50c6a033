"""Copies of a running cluster that hold what its operator knows, and the guard that looks ahead in them.

A copy has the jobs that have arrived, their progress, and the speed model. It has no jobs of the future, no noise, and
of a job's true length only the user's statement: a copy cannot tell what the operator could not. What it does assume is
that the speed model is right up to that noise, contention included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.schedulers.base import IntervalScheduler
from dl2env.sim.simulator import ClusterSimulator

_NO_LIMIT = 2**30
"""Intervals; copies end by other means."""
_OVERTIME = 1.1
"""A job that has trained longer than its user said is assumed to need a tenth more than it has had."""


def shadow_simulator(cluster: ClusterSimulator, num_envs: int, window: int | None = None) -> ClusterSimulator:
    """A simulator for copies of a cluster: the same world without noise.

    Args:
        cluster: What will be copied.
        num_envs: Copies.
        window: Job slots; default: the cluster's.
    """
    config: EnvConfig = cluster.config
    dynamics = dataclasses.replace(config.dynamics, speed_noise=0.0, max_intervals=_NO_LIMIT)
    observation = config.observation if window is None else dataclasses.replace(config.observation, window=window)
    return ClusterSimulator(
        dataclasses.replace(config, dynamics=dynamics, observation=observation),
        num_envs,
        max_jobs=cluster.max_jobs,
        speed=cluster.speed,
    )


def copy_present(cluster: ClusterSimulator, copies: ClusterSimulator, targets: Sequence[int]) -> None:
    """Puts the present of a cluster (its environment 0) into copies, without what only the future will tell.

    Args:
        cluster: The cluster.
        copies: A `shadow_simulator` of it.
        targets: Copies to overwrite.
    """
    index = np.asarray(targets, dtype=np.int64)
    copies.copy_env(cluster, 0, index)
    known = int(cluster.state.env["next_job"][0])
    copies.state.env["num_jobs"][index] = known
    jobs = cluster.state.jobs[0, :known]
    stated = np.maximum(jobs["epochs"], jobs["epochs_done"] * _OVERTIME)
    copies.state.jobs["true_epochs"][index, :known] = stated


def check_model_is_known(config: EnvConfig, purpose: str) -> None:
    """Looking ahead uses the speeds that the simulator itself uses.

    Raises:
        ConfigError: Schedulers of this world do not know those speeds.
    """
    if config.estimate.kind != "exact":
        raise ConfigError(
            f"{purpose} looks ahead with the true speed model, which schedulers do not know under "
            f"env.estimate.kind={config.estimate.kind}; set env.estimate.kind=exact or choose method=naive"
        )


class RolloutGuard:
    """Lets an agent decide an interval only if that is predicted to be no worse than its teacher's decisions.

    Both alternatives are played in copies of the present cluster, the teacher deciding from the next interval on, until
    the jobs that are there now are done. Where the model holds and no jobs arrive, a scheduler that follows this rule
    in every interval is never worse in total than the teacher: its cost so far plus the teacher's cost from here on
    never grows (policy improvement by rollout, Bertsekas and Castanon, J. Heuristics 1999). Noise and jobs that arrive
    later are what can break the promise.

    Args:
        cluster: The cluster.
        teacher: The scheduler to fall back on.
        horizon: Intervals to look ahead; jobs unfinished then count with twice their time left at best speed.
        tolerance: Accept a predicted cost up to (1 + tolerance) times the teacher's.

    Raises:
        ConfigError: Schedulers of this world do not know its speeds.
    """

    def __init__(
        self, cluster: ClusterSimulator, teacher: IntervalScheduler, horizon: int = 200, tolerance: float = 0.0
    ) -> None:
        check_model_is_known(cluster.config, "the guard")
        self._cluster = cluster
        self._teacher = teacher
        self._horizon = horizon
        self._tolerance = tolerance
        self._copy = shadow_simulator(cluster, 1, window=1)

    def predict(self, decided: ClusterSimulator, source: int) -> float:
        """What decisions for the present interval are predicted to cost.

        Args:
            decided: Copies of the same cluster.
            source: The one in which the decisions have been carried out, that is which stands at a later interval.

        Returns:
            Job time in the system from the present interval on, in intervals, of the jobs that are there now, if the
            teacher decides from the next interval on.
        """
        self._copy.copy_env(decided, source, np.array([0]))
        return self._follow()

    def predict_teacher(self) -> float:
        """The same if the teacher decides the present interval too."""
        copy_present(self._cluster, self._copy, [0])
        return self._follow()

    def accepts(self, cost: float, teacher_cost: float) -> bool:
        """Whether decisions of that predicted cost may be carried out."""
        return cost <= teacher_cost * (1.0 + self._tolerance) + 1e-9

    def _follow(self) -> float:
        """Lets the teacher go on, and counts."""
        state, interval_s = self._copy.state, self._copy.config.dynamics.interval_s
        now = int(self._cluster.state.env["interval"][0])
        ahead = int(state.env["interval"][0]) - now
        if ahead < self._horizon and not self._copy.is_done[0]:
            self._teacher.run_intervals(self._copy, self._horizon - ahead)
        jobs = state.jobs[0, self._cluster.state.active[0, : self._cluster.state.env["num_active"][0]]]
        left_s = (jobs["true_epochs"] - jobs["epochs_done"]) * jobs["samples_per_epoch"]
        left_s = left_s / state.best_speed[0][jobs["type"]]
        end_s = float(state.env["interval"][0]) * interval_s + 2.0 * left_s
        until_s: NDArray[np.float64] = np.where(np.isnan(jobs["finish_s"]), end_s, jobs["finish_s"])
        return float(((until_s - now * interval_s) / interval_s).sum())
