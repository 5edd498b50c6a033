"""The rules of the heuristics as plain as can be, for one environment at a time.

Each gives its candidates as {action: key}; the highest key wins, of equal keys the first. No candidate: void.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.schedulers.base import ClusterView
from dl2env.speed.parameters import SINGLE_SERVER

WORKER, PS, BUNDLE = range(3)
Candidates = dict[int, float]


@dataclass(frozen=True)
class Job:
    """What a rule sees of a job."""

    slot: int
    type: Any  # TYPE_DTYPE record
    workers: int
    ps: int
    left_samples: float
    left_s: float
    speeds: NDArray[np.float64]  # (W + 2, P + 2) estimated isolated samples/s
    fits_pair: bool  # some server of the empty cluster holds a worker and a PS
    room: tuple[int, int] = (0, 0)  # free CPUs and GPUs that more of its tasks could take

    @property
    def uses_ps(self) -> bool:
        return bool(self.type["max_ps"] > 0)

    def demand(self, kind: int) -> tuple[int, int]:
        """CPUs and GPUs of an action."""
        workers, ps = kind != PS, kind != WORKER
        return (
            int(workers * self.type["worker_cpus"] + ps * self.type["ps_cpus"]),
            int(workers * self.type["worker_gpus"] + ps * self.type["ps_gpus"]),
        )

    def speed_after(self, kind: int) -> float:
        """Estimated speed after an action; a job that must start with one role is judged by its first pair."""
        if self.uses_ps and not self.fits_pair and self.workers == self.ps == 0:
            return float(self.speeds[1, 1])
        return float(self.speeds[self.workers + (kind != PS), self.ps + (kind != WORKER)])

    @property
    def is_half_started(self) -> bool:
        """One role only, of a type whose pair fits no server: goes first."""
        return self.uses_ps and not self.fits_pair and (self.workers > 0) != (self.ps > 0)

    @property
    def speed(self) -> float:
        return float(self.speeds[self.workers, self.ps])


class Cluster:
    """One environment, read through the view."""

    def __init__(self, view: ClusterView, b: int, mask: NDArray[np.bool_]) -> None:
        self.mask = mask[b]
        groups = view.config.cluster.servers
        self.cpus = sum(group.count * group.cpus for group in groups)
        self.gpus = sum(group.count * group.gpus for group in groups)
        self.free = (int(view.free_cpus[b]), int(view.free_gpus[b]))
        self.interval_s = view.config.dynamics.interval_s
        tables = view.simulator.state.estimate
        step_s = tables[b if len(tables) > 1 else 0, ..., 0]
        types = view.simulator.speed.types
        self.jobs = []
        for slot in np.flatnonzero(view.is_present[b]).tolist():
            t = int(view.type_idx[b, slot])
            batches = 1.0 if types[t]["is_synchronous"] else np.arange(step_s.shape[1])[:, None]
            speeds = np.broadcast_to(batches * types[t]["batch_size"] / step_s[t], step_s[t].shape)
            pair = (
                types[t]["worker_cpus"] + types[t]["ps_cpus"],
                types[t]["worker_gpus"] + types[t]["ps_gpus"],
            )
            self.jobs.append(
                Job(
                    slot,
                    types[t],
                    int(view.workers[b, slot]),
                    int(view.ps[b, slot]),
                    float(view.remaining_samples[b, slot]),
                    float(view.remaining_samples[b, slot])
                    / float(speeds[: types[t]["max_workers"] + 1, : types[t]["max_ps"] + 1].max()),
                    speeds,
                    any(group.cpus >= pair[0] and group.gpus >= pair[1] for group in groups),
                    self._room(view, b, slot, types[t]),
                )
            )

    def _room(self, view: ClusterView, b: int, slot: int, job_type: Any) -> tuple[int, int]:
        """The cluster's free units, of its server for a type that may use one only; none before that is known."""
        if job_type["architecture"] not in SINGLE_SERVER:
            return self.free
        state = view.simulator.state
        i = int(view.job_idx[b, slot])
        if state.jobs[b, i]["num_entries"] == 0:
            return 0, 0
        server = state.servers[b, state.entries[b, i, 0]["server"]]
        return int(server["free_cpus"]), int(server["free_gpus"])

    def share(self, cpus: float, gpus: float) -> float:
        """Dominant share of a demand."""
        return float(max(cpus / self.cpus, gpus / self.gpus))

    def is_legal(self, job: Job, kind: int) -> bool:
        return bool(self.mask[3 * job.slot + kind])


def per(gain: float, share: float) -> float:
    """Gain per share; tasks that take nothing come first if they gain anything."""
    return gain / share if share > 0.0 else math.copysign(math.inf, gain) if gain else math.nan


def grow(cluster: Cluster, job: Job, ratio: float = 1.0) -> int | None:
    """The action that keeps (or brings) a job to `ratio` PSs per worker."""
    if not job.uses_ps:
        kind = WORKER
    elif job.workers > 0 and job.ps + 1 <= job.workers * ratio:
        kind = PS  # one PS more is not too many for the workers there are
    elif job.ps > 0 and job.ps >= (job.workers + 1) * ratio:
        kind = WORKER  # the PSs there are suffice for one worker more
    elif job.fits_pair:
        kind = BUNDLE
    else:
        kind = PS if job.workers > 0 and job.ps == 0 else WORKER
    return 3 * job.slot + kind if cluster.is_legal(job, kind) else None


def growing(cluster: Cluster, key: Callable[[Job], float], ratio: float = 1.0) -> Candidates:
    """Growth of each job, by a key."""
    actions = [(grow(cluster, job, ratio), job) for job in cluster.jobs]
    return {action: math.inf if job.is_half_started else key(job) for action, job in actions if action is not None}


def drf(cluster: Cluster, ratio: float = 1.0) -> Candidates:
    def share(job: Job) -> float:
        t = job.type
        return cluster.share(
            job.workers * t["worker_cpus"] + job.ps * t["ps_cpus"],
            job.workers * t["worker_gpus"] + job.ps * t["ps_gpus"],
        )

    return growing(cluster, lambda job: -share(job), ratio)


def fifo(cluster: Cluster) -> Candidates:
    return growing(cluster, lambda job: 0.0)


def srtf(cluster: Cluster) -> Candidates:
    return growing(cluster, lambda job: -job.left_s)


def tetris(cluster: Cluster) -> Candidates:
    alignment: dict[int | None, float] = {}
    work: dict[int | None, float] = {}
    for job in cluster.jobs:
        action = grow(cluster, job)
        if action is not None:
            cpus, gpus = job.demand(action % 3)
            size = cpus / cluster.cpus + gpus / cluster.gpus
            free = cluster.free[0] / cluster.cpus, cluster.free[1] / cluster.gpus
            alignment[action] = free[0] * cpus / cluster.cpus + free[1] * gpus / cluster.gpus
            work[action] = size * job.left_s
    total = sum(work.values())
    weight = sum(alignment.values()) / total if total > 0 else 0.0
    return growing(cluster, lambda job: alignment[grow(cluster, job)] - weight * work[grow(cluster, job)])


def optimus(cluster: Cluster, bundle: bool = False) -> Candidates:
    found: Candidates = {}
    for job in cluster.jobs:
        lacks_role = job.workers == 0 or (job.uses_ps and job.ps == 0)
        for kind in (PS, WORKER, BUNDLE):
            if not cluster.is_legal(job, kind) or (kind == BUNDLE and not (bundle or lacks_role)):
                continue
            speed = job.speed_after(kind)
            if speed == 0.0:
                continue
            saved = job.left_samples / job.speed - job.left_samples / speed if job.speed > 0.0 else math.inf
            key = per(saved, cluster.share(*job.demand(kind)))
            if key > 0.0:
                found[3 * job.slot + kind] = key
    return found


def gains_ahead(job: Job, kind: int, look_ahead: int) -> list[float]:
    """Speed gained per action by 2, 4, ... actions of a kind, if there is room for them."""
    cpus, gpus = job.demand(kind)
    gains = []
    for n in (2**x for x in range(1, look_ahead.bit_length())):
        workers, ps = job.workers + n * (kind != PS), job.ps + n * (kind != WORKER)
        has_room = n * cpus <= job.room[0] and n * gpus <= job.room[1]
        if not has_room or workers > job.type["max_workers"] or ps > job.type["max_ps"]:
            break
        gains.append((float(job.speeds[workers, ps]) - job.speed) / n)
    return gains


def marginal(cluster: Cluster, exponent: float = 0.0, per_share: bool = True, look_ahead: int = 1) -> Candidates:
    """Without contention: what the job's own relative speed gains."""
    found: Candidates = {}
    for job in cluster.jobs:
        caps = job.type["max_workers"] + 1, job.type["max_ps"] + 1
        best = float(job.speeds[: caps[0], : caps[1]].max())
        for kind in (PS, WORKER, BUNDLE):
            if cluster.is_legal(job, kind):
                gain = job.speed_after(kind) - job.speed
                if not job.uses_ps or (job.workers > 0 and job.ps > 0):
                    gain = max([gain, *gains_ahead(job, kind, look_ahead)])
                gain /= best
                gain *= max(job.left_s / cluster.interval_s, 0.05) ** -exponent
                if job.is_half_started:
                    gain = math.inf if job.speed_after(kind) > 0.0 else -math.inf
                if per_share:
                    gain = per(gain, cluster.share(*job.demand(kind)))
                if gain > 0.0:
                    found[3 * job.slot + kind] = gain
    return found
