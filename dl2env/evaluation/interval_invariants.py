"""What must hold of an interval whose decisions were not seen; see `evaluation.invariants`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.evaluation.state_invariants import check_lists
from dl2env.evaluation.violations import Claims
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.analytic import samples_per_s, step_time

GIVEN = ("arrival_s", "epochs", "true_epochs", "samples_per_epoch", "type")
"""Fields of a job that never change."""

_GROWING = ("interval", "next_job", "num_finished", "used_cpu_s", "used_gpu_s", "num_intervals_full", "num_decisions")


class Interval:
    """One environment before time passes, to judge what has become of it.

    Args:
        sim: The simulator.
        b: Environment.
    """

    def __init__(self, sim: ClusterSimulator, b: int) -> None:
        self._b = b
        self._env = sim.state.env[b].copy()
        self._jobs = sim.state.jobs[b, : int(self._env["num_jobs"])].copy()

    def check_forward(self, claims: Claims, env: Any, jobs: NDArray[Any]) -> NDArray[np.float64]:
        """Given fields stay and nothing runs backwards. Returns the (N,) epochs gained."""
        for name in ("num_jobs", "noise_key"):
            claims.same("fixed", name, int(env[name]), int(self._env[name]))
        for name in GIVEN:
            claims.close("fixed", name, jobs[name], self._jobs[name], jobs=range(len(jobs)))
        for name in _GROWING:
            claims.that(env[name] >= self._env[name], "time", f"{name} fell from {self._env[name]} to {env[name]}")
        gains: NDArray[np.float64] = jobs["epochs_done"] - self._jobs["epochs_done"]
        for i in np.flatnonzero(gains < 0)[:1].tolist():
            claims.that(False, "work", f"epochs_done fell by {-gains[i]:g}", i)
        return gains

    def check(self, sim: ClusterSimulator) -> None:
        """One interval has passed, and idle ones after it: no job can have gained more than its tasks could train."""
        b, env = self._b, sim.state.env[self._b]
        jobs, before = sim.state.jobs[b, : len(self._jobs)], self._jobs
        claims = Claims(b, int(self._env["interval"]))
        check_lists(sim, b)
        gains = self.check_forward(claims, env, jobs)
        every, interval_s = range(len(jobs)), sim.config.dynamics.interval_s
        claims.that(env["interval"] > self._env["interval"], "time", "the interval has not ended")
        runs = jobs["intervals_run"] - before["intervals_run"]
        claims.all((runs == 0) | (runs == 1), "work", "at most one interval of training", every)
        claims.all((gains == 0) | (runs == 1), "work", "who gained has trained", every)
        was_active = np.zeros(len(jobs), np.bool_)
        was_active[int(self._env["next_job"]) :] = True
        was_active |= ~np.isnan(before["finish_s"])
        claims.all((runs == 0) | ~was_active, "work", "only active jobs train", every)
        finished = np.isnan(before["finish_s"]) & ~np.isnan(jobs["finish_s"])
        start_s = float(self._env["interval"]) * interval_s
        ends = jobs["finish_s"][finished]
        claims.all(
            (ends > start_s) & (ends <= start_s + interval_s * (1 + 1e-9)),
            "times",
            "a job that finished did so in this interval",
            np.flatnonzero(finished),
        )
        self._check_held(sim, claims, env, jobs, runs == 1, finished)

    def _check_held(
        self,
        sim: ClusterSimulator,
        claims: Claims,
        env: Any,
        jobs: NDArray[Any],
        trained: NDArray[np.bool_],
        finished: NDArray[np.bool_],
    ) -> None:
        """What the jobs held: jobs that go on remember it as their last allocation, finished ones as their present."""
        interval_s = sim.config.dynamics.interval_s
        ends_episode = bool(sim.is_done[self._b])
        held = [np.where(finished | ends_episode, jobs[name], jobs[f"last_{name}"]) for name in ("workers", "ps")]
        counts = np.where(trained, np.stack(held), 0).astype(np.int64)  # (2, N)
        kinds = sim.speed.types[jobs["type"]]
        every = range(len(jobs))
        claims.all((counts[0] > 0) == trained, "work", "exactly the jobs with workers train", every)
        claims.all(counts[0] <= kinds["max_workers"], "caps", "workers within the cap", every)
        claims.all(counts[1] <= kinds["max_ps"], "caps", "parameter servers within the cap", every)
        gpu_s = (counts[0] * kinds["worker_gpus"] + counts[1] * kinds["ps_gpus"]) * interval_s
        more = jobs["gpu_s"] - self._jobs["gpu_s"]
        claims.close("work", "GPU seconds of the interval", more[trained], gpu_s[trained], np.flatnonzero(trained))
        groups = sim.config.cluster.servers
        for name in ("cpu", "gpu"):
            units = sum(group.count * getattr(group, f"{name}s") for group in groups)
            used = (env[f"used_{name}_s"] - self._env[f"used_{name}_s"]) / interval_s
            least = (counts[0] * kinds[f"worker_{name}s"] + counts[1] * kinds[f"ps_{name}s"]).sum()
            fits = least * (1 - 1e-9) <= used <= units * (1 + 1e-9)
            claims.that(fits, "capacity", f"{used:g} {name}s in use, the jobs held {least}, the cluster has {units}")
        best = fastest(sim, jobs["type"].astype(np.int64), *counts) * (1.0 + sim.config.dynamics.speed_noise)
        most = best * interval_s / jobs["samples_per_epoch"]
        gains = jobs["epochs_done"] - self._jobs["epochs_done"]
        claims.all(gains <= most * (1 + 1e-9), "work", "gain <= best speed of its tasks x time", every)


def fastest(
    sim: ClusterSimulator, type_idx: NDArray[np.int64], workers: NDArray[np.int64], ps: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(N,) samples/s that no placement of so many tasks exceeds: all on one server of the fastest kind, links free."""
    if sim.speed.table.size > 0:
        can_train = (workers > 0) & ((ps > 0) | (sim.speed.types["max_ps"][type_idx] == 0))
        return np.where(can_train, sim.speed.table[type_idx, workers, ps], 0.0)
    ideal = sim.config.speed.overlap == "ideal"
    speeds = []
    for kind in range(len(sim.speed.gpu_kinds)):
        times = step_time(sim.speed, type_idx, workers[:, None], ps[:, None], gpu_kind=kind, ideal_overlap=ideal)
        speeds.append(samples_per_s(sim.speed, type_idx, workers, times.total_s))
    best: NDArray[np.float64] = np.max(speeds, axis=0)
    return best
