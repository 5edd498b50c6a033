"""Lower bounds of the mean JCT that no scheduler can beat, whatever it knows.

Two relaxations, of which the larger counts. *Alone*: every job has the cluster to itself from its admission on, at the
fastest allocation of its type, on the fastest GPUs, without any traffic over Ethernet. *Area*: every job needs at least
so many CPU or GPU unit seconds, those of its most economical allocation; a single machine that works off one job at a
time with all units of the cluster cannot have a smaller total JCT than by shortest remaining time first (Schrage 1968).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.sim.build import build_state
from dl2env.sim.noise import earliest_finish
from dl2env.speed.estimate import estimated_speed, table_step_time
from dl2env.speed.parameters import SpeedParameters
from dl2env.workload.jobs import Workload

Vector = NDArray[np.float64]


class JctBound(NamedTuple):
    """Lower bounds of the mean JCT of one workload, in seconds.

    Attributes:
        alone_s: From what each job needs at least by itself.
        area_s: From the units that all jobs share.
    """

    alone_s: float
    area_s: float

    @property
    def mean_jct_s(self) -> float:
        """The larger of the two."""
        return max(self.alone_s, self.area_s)


class BoundCalculator:
    """Lower bounds for the workloads of one world.

    Args:
        config: The world.
        speed: Speed parameters to use instead of the ones of the configuration.

    Raises:
        Dl2EnvError: The configuration cannot be simulated.
    """

    def __init__(self, config: EnvConfig, speed: SpeedParameters | None = None) -> None:
        state, parameters, _ = build_state(config, 1, 1, speed=speed)
        self._dynamics = config.dynamics
        self._capacity = np.array([state.specs["cpus"].sum(), state.specs["gpus"].sum()], dtype=np.float64)
        speeds = _optimistic_speeds(parameters, config)
        self._fastest = speeds.max(axis=(1, 2))
        # Unit seconds per sample of each resource, (T, 2).
        workers = np.arange(speeds.shape[1], dtype=np.float64)[None, :, None]
        ps = np.arange(speeds.shape[2], dtype=np.float64)[None, None, :]
        self._cost = np.zeros((len(speeds), 2))
        for r, unit in enumerate(("cpus", "gpus")):
            by_worker = parameters.types[f"worker_{unit}"][:, None, None]
            by_ps = parameters.types[f"ps_{unit}"][:, None, None]
            cost = np.full(speeds.shape, np.inf)
            np.divide(workers * by_worker + ps * by_ps, speeds, out=cost, where=speeds > 0)
            self._cost[:, r] = cost.min(axis=(1, 2))

    def bound(self, workload: Workload) -> JctBound:
        """Lower bounds of a workload's mean JCT."""
        rules = self._dynamics
        samples = workload.true_epochs * workload.samples_per_epoch
        first = np.ceil(workload.arrival_s / rules.interval_s)
        # Rounding must not admit a job later than the simulator does.
        first -= (first - 1.0) * rules.interval_s >= workload.arrival_s
        first = np.maximum(first, 0.0)
        finish_s = samples / self._fastest[workload.type_idx]
        earliest_finish(
            np.uint64(workload.noise_key), rules.speed_noise, rules.interval_s, first.astype(np.int64), finish_s
        )
        alone_s = finish_s - workload.arrival_s
        area_s = 0.0
        for r in range(2):
            if self._capacity[r] > 0:
                fastest = self._capacity[r] * (1.0 + rules.speed_noise)
                need_s = samples * self._cost[workload.type_idx, r] / fastest
                total_s = srpt_total_s(first * rules.interval_s, need_s)
                waited_s = float((first * rules.interval_s - workload.arrival_s).sum())
                area_s = max(area_s, (total_s + waited_s) / workload.num_jobs)
        return JctBound(float(alone_s.mean()), area_s)


def srpt_total_s(release_s: Vector, need_s: Vector) -> float:
    """Total time from release to completion on one preemptive machine under shortest remaining processing time.

    No schedule of a single machine has a smaller total (Schrage, Operations Research 1968).

    Args:
        release_s: (N,) release times, in any order.
        need_s: (N,) processing times.
    """
    order = np.argsort(release_s, kind="stable")
    waiting: list[float] = []
    now = 0.0
    total = 0.0
    for n, i in enumerate(order):
        now = max(now, float(release_s[i]))
        heapq.heappush(waiting, float(need_s[i]))
        until = float(release_s[order[n + 1]]) if n + 1 < len(order) else np.inf
        while waiting and now < until:
            done = min(waiting[0], until - now)
            total += done * len(waiting)  # everyone in the system waits that long
            now += done
            if done == waiting[0]:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, waiting[0] - done)
    return total


def _optimistic_speeds(parameters: SpeedParameters, config: EnvConfig) -> Vector:
    """(T, W + 1, P + 1) samples/s that no placement exceeds; 0 where a job cannot train and beyond the caps."""
    from dl2env.speed.analytic import isolated_step_time

    types = parameters.types.copy()
    max_workers, max_ps = config.workload.max_workers, config.workload.max_ps
    if parameters.table.shape[1] > 0:
        step_s = table_step_time(parameters, parameters.table[:, : max_workers + 2, : max_ps + 2])
    else:
        types["ethernet_s"] = 0.0
        fastest_s = parameters.compute_s.min(axis=1, keepdims=True)
        step_s = isolated_step_time(
            parameters._replace(types=types, compute_s=fastest_s),
            max_workers,
            max_ps,
            ideal_overlap=config.speed.overlap == "ideal",
        )
    speed = estimated_speed(parameters, step_s)[:, :-1, :-1]
    workers = np.arange(speed.shape[1])[None, :, None]
    ps = np.arange(speed.shape[2])[None, None, :]
    within = (workers <= types["max_workers"][:, None, None]) & (ps <= types["max_ps"][:, None, None])
    return np.where(within & np.isfinite(speed), speed, 0.0)
