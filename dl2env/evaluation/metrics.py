"""Metrics of one episode, from the records of its jobs.

Unfinished jobs (of a truncated episode) are never dropped: their JCT is counted as the time from arrival to truncation,
a lower bound, and their number is reported beside every metric, so that a policy cannot gain by starving jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from dl2env.sim.simulator import ClusterSimulator, JobRecords
    from dl2env.workload.jobs import Workload

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class IsolatedSpeeds:
    """True training speeds of jobs that have the network to themselves, one task per server.

    A job whose tasks share a server can be faster than that, so a slowdown slightly below 1 is possible.

    Attributes:
        samples_per_s: (T, W + 1, P + 1) speed by type, workers and parameter servers (PSs); 0 where a job cannot train
            and beyond the type's caps.
        worker_demand: (T, 2) CPU and GPU units of a worker.
        ps_demand: (T, 2) CPU and GPU units of a PS.
    """

    samples_per_s: NDArray[np.float64]
    worker_demand: Vector
    ps_demand: Vector

    @classmethod
    def of(cls, sim: ClusterSimulator) -> IsolatedSpeeds:
        """Speeds of a simulator's world (the truth, whatever its schedulers are told)."""
        from dl2env.speed.estimate import estimated_speed, exact_estimate

        types = sim.speed.types
        speed = estimated_speed(sim.speed, exact_estimate(sim.speed, sim.config))[:, :-1, :-1]
        workers = np.arange(speed.shape[1])[None, :, None]
        ps = np.arange(speed.shape[2])[None, None, :]
        within = (workers <= types["max_workers"][:, None, None]) & (ps <= types["max_ps"][:, None, None])
        return cls(
            np.where(within, speed, 0.0),
            np.stack([types["worker_cpus"], types["worker_gpus"]], axis=1).astype(np.float64),
            np.stack([types["ps_cpus"], types["ps_gpus"]], axis=1).astype(np.float64),
        )

    def best(self, type_idx: ArrayLike) -> Vector:
        """(N,) samples/s of each job at its best (workers, PSs)."""
        best: Vector = self.samples_per_s.max(axis=(1, 2))[np.asarray(type_idx)]
        return best

    def best_within(self, type_idx: ArrayLike, capacity: ArrayLike) -> Vector:
        """(N,) samples/s of each job at its best (workers, PSs) within a share of the cluster.

        Args:
            type_idx: (N,) job types.
            capacity: (N, 2) CPU and GPU units. The smallest allocation that trains is allowed whatever it takes.
        """
        types = np.asarray(type_idx)
        speed = self.samples_per_s[types]  # (N, W + 1, P + 1)
        workers = np.arange(speed.shape[1])[None, :, None, None]
        ps = np.arange(speed.shape[2])[None, None, :, None]
        demand = workers * self.worker_demand[types][:, None, None, :] + ps * self.ps_demand[types][:, None, None, :]
        fits = (demand <= np.asarray(capacity, dtype=np.float64)[:, None, None, :]).all(axis=-1)
        smallest = np.where(speed[:, 1, 0] > 0, speed[:, 1, 0], speed[:, 1, 1] if speed.shape[2] > 1 else 0.0)
        best: Vector = np.maximum(np.where(fits, speed, 0.0).max(axis=(1, 2)), smallest)
        return best


@dataclass(frozen=True)
class EpisodeMetrics:
    """What one scheduler achieved on one workload.

    Attributes:
        num_jobs: Jobs of the workload.
        num_unfinished: Jobs that had not finished when the episode was truncated; if not 0, times are lower bounds.
        mean_jct_s, p50_jct_s, p90_jct_s, p99_jct_s: Job completion time, finish - arrival, in seconds.
        mean_jct_intervals: Mean JCT in scheduling intervals.
        makespan_s: Last completion (or truncation) - first arrival.
        mean_queueing_s: Start of the first training - arrival, mean over jobs.
        mean_slowdown, p99_slowdown: JCT / time the job takes alone at its best allocation.
        mean_rho, max_rho: Finish-time fairness (Mahajan et al., NSDI 2020): JCT / time the job takes alone in a share
            1/n of the cluster, n = mean number of jobs in the system during its stay. Above 1 is worse than sharing.
        gpu_utilisation, cpu_utilisation: Allocated share of the cluster, from time 0 to the end of the last interval.
        mean_resizes: Changes of allocation per job.
        num_decisions: Decisions taken.
        num_intervals: Scheduling intervals simulated.
        share_full: Share of intervals at whose end some job type's task fitted no server: how contended it was.
    """

    num_jobs: int
    num_unfinished: int
    mean_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p99_jct_s: float
    mean_jct_intervals: float
    makespan_s: float
    mean_queueing_s: float
    mean_slowdown: float
    p99_slowdown: float
    mean_rho: float
    max_rho: float
    gpu_utilisation: float
    cpu_utilisation: float
    mean_resizes: float
    num_decisions: int
    num_intervals: int
    share_full: float


METRIC_NAMES = tuple(field.name for field in fields(EpisodeMetrics))


def episode_metrics(
    records: JobRecords,
    workload: Workload,
    speeds: IsolatedSpeeds,
    *,
    capacity: tuple[float, float],
    interval_s: float,
) -> EpisodeMetrics:
    """Metrics of a finished or truncated episode.

    Args:
        records: Records of its jobs, in the workload's order.
        workload: What was simulated; holds the true work.
        speeds: Isolated speeds of the job types.
        capacity: CPU and GPU units of the cluster.
        interval_s: Length of a scheduling interval in seconds.
    """
    jct_s = completion_times(records)
    is_unfinished = np.isnan(records.finish_s)
    left_s = records.arrival_s + jct_s  # when a job left the system, or the episode was cut
    waited_until_s = np.where(np.isnan(records.start_s), left_s, records.start_s)
    samples = workload.true_epochs * workload.samples_per_epoch
    num_shares = mean_jobs_in_system(records.arrival_s, left_s)
    share = np.asarray(capacity, dtype=np.float64) / num_shares[:, None]
    slowdown = jct_s * speeds.best(workload.type_idx) / samples
    rho = jct_s * speeds.best_within(workload.type_idx, share) / samples
    cpus, gpus = capacity
    p50, p90, p99 = np.percentile(jct_s, [50, 90, 99])
    return EpisodeMetrics(
        num_jobs=len(jct_s),
        num_unfinished=int(is_unfinished.sum()),
        mean_jct_s=float(jct_s.mean()),
        p50_jct_s=float(p50),
        p90_jct_s=float(p90),
        p99_jct_s=float(p99),
        mean_jct_intervals=float(jct_s.mean() / interval_s),
        makespan_s=float(left_s.max() - records.arrival_s.min()),
        mean_queueing_s=float((waited_until_s - records.arrival_s).mean()),
        mean_slowdown=float(slowdown.mean()),
        p99_slowdown=float(np.percentile(slowdown, 99)),
        mean_rho=float(rho.mean()),
        max_rho=float(rho.max()),
        gpu_utilisation=_ratio(records.used_gpu_s, gpus * records.end_s),
        cpu_utilisation=_ratio(records.used_cpu_s, cpus * records.end_s),
        mean_resizes=float(records.num_resizes.mean()),
        num_decisions=records.num_decisions,
        num_intervals=records.num_intervals,
        share_full=records.share_full,
    )


def completion_times(records: JobRecords) -> Vector:
    """(N,) JCT in seconds; for unfinished jobs the time until the records were taken (0 for jobs yet to arrive)."""
    seen_s = np.maximum(records.end_s - records.arrival_s, 0.0)
    return np.where(np.isnan(records.finish_s), seen_s, records.finish_s - records.arrival_s)


def mean_jobs_in_system(arrival_s: Vector, left_s: Vector) -> Vector:
    """(N,) time-average of the number of jobs in the system (itself included) while each job was there."""
    overlap = np.minimum(left_s[:, None], left_s) - np.maximum(arrival_s[:, None], arrival_s)
    stay = left_s - arrival_s
    totals = np.maximum(overlap, 0.0).sum(axis=1)
    mean: Vector = np.divide(totals, stay, out=np.ones_like(stay), where=stay > 0)
    return mean


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
