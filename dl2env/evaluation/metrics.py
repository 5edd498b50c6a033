"""Metrics of one episode, from the records of its jobs.

Unfinished jobs (of a truncated episode) are never dropped: their JCT is the time from arrival to truncation plus what
their remaining work would take alone at its best allocation, a lower bound, and their number is reported beside every
metric, so that a policy cannot gain by starving jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError

if TYPE_CHECKING:
    from dl2env.sim.simulator import ClusterSimulator, JobRecords
    from dl2env.workload.jobs import Workload

Vector = NDArray[np.float64]

NO_TRIM = (0.0, 0.0)
_CHUNK = 1_000_000  # elements of one temporary array

BOUND_S = 10.0
"""Jobs shorter than this count as this long in the bounded slowdown."""


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

        Jobs are compared with the allocations of their type that no other one dominates, a part of them at a time, so
        memory grows with the number of jobs only.

        Args:
            type_idx: (N,) job types.
            capacity: (N, 2) CPU and GPU units. The smallest allocation that trains is allowed whatever it takes.
        """
        types = np.asarray(type_idx)
        limits = np.asarray(capacity, dtype=np.float64)
        best = np.zeros(len(types))
        for kind in np.unique(types):
            speed = self.samples_per_s[kind]
            smallest = speed[1, 0] if speed[1, 0] > 0 or speed.shape[1] == 1 else speed[1, 1]
            fastest, demands = self._useful_allocations[int(kind)]
            rows = np.flatnonzero(types == kind)
            part = max(1, _CHUNK // max(len(fastest), 1))
            for some in (rows[start : start + part] for start in range(0, len(rows), part)):
                fits = np.all(demands <= limits[some, None, :], axis=2)  # (jobs, allocations), the fastest first
                found = fastest[fits.argmax(axis=1)] if len(fastest) else 0.0
                best[some] = np.maximum(np.where(np.any(fits, axis=1), found, 0.0), smallest)
        return best

    def best_per_gpu(self) -> Vector:
        """(T,) largest samples per GPU unit second of any allocation; 0 for types that use no GPU."""
        workers = np.arange(self.samples_per_s.shape[1])[None, :, None]
        ps = np.arange(self.samples_per_s.shape[2])[None, None, :]
        gpus = workers * self.worker_demand[:, 1, None, None] + ps * self.ps_demand[:, 1, None, None]
        per_gpu = np.divide(self.samples_per_s, gpus, out=np.zeros_like(self.samples_per_s), where=gpus > 0)
        best: Vector = per_gpu.max(axis=(1, 2))
        return best

    @cached_property
    def _useful_allocations(self) -> tuple[tuple[Vector, Vector], ...]:
        """(K,) speeds and (K, 2) demands per type, fastest first, without allocations that another one dominates."""
        grid = np.indices(self.samples_per_s.shape[1:])
        workers, ps = grid[0], grid[1]
        useful = []
        for kind in range(len(self.samples_per_s)):
            speed: Vector = self.samples_per_s[kind].ravel()
            demand = workers[..., None] * self.worker_demand[kind] + ps[..., None] * self.ps_demand[kind]
            order = np.argsort(-speed, kind="stable")
            speeds, demands = speed[order], demand.reshape(-1, 2)[order]
            kept: list[int] = []
            for k in np.flatnonzero(speeds > 0).tolist():
                if not (demands[kept] <= demands[k]).all(axis=1).any():
                    kept.append(k)
            useful.append((speeds[kept], demands[kept]))
        return tuple(useful)


@dataclass(frozen=True)
class EpisodeMetrics:
    """What one scheduler achieved on one workload.

    Averages and quantiles are over all jobs, or over those that `trim` leaves (see `episode_metrics`); counts,
    makespan, resources and goodput are always those of the whole episode.

    Attributes:
        num_jobs: Jobs of the workload.
        num_unfinished: Jobs that had not finished when the episode was truncated; if not 0, times are lower bounds.
        mean_jct_s, p50_jct_s, p90_jct_s, p95_jct_s, p99_jct_s: Job completion time, finish - arrival, in seconds.
        mean_jct_intervals: Mean JCT in scheduling intervals.
        makespan_s: Last completion - first arrival.
        mean_queueing_s: Start of the first training - arrival, mean over jobs.
        mean_slowdown, p99_slowdown: JCT / time the job takes alone at its best allocation.
        mean_bounded_slowdown: `max(JCT / max(time alone, 10 s), 1)`, so that very short jobs do not rule the mean
            (bounded slowdown of Feitelson et al.; 10 s as in RLScheduler). An elastic job has no run time of its own,
            so the time alone at its best allocation stands for it.
        mean_rho, max_rho: Finish-time fairness (Mahajan et al., NSDI 2020): JCT / time the job takes alone in a share
            1/n of the cluster, n = mean number of jobs in the system during its stay. Above 1 is worse than sharing.
        unfair_share: Share of jobs with rho > 1.
        gpu_utilisation, cpu_utilisation: Allocated share of the cluster, from time 0 to the end of the last interval.
        gpu_hours: GPU unit hours held.
        gpu_efficiency: GPU unit hours that the work done would have taken at each type's most economical allocation,
            over those held; 0 without GPUs. Low values pay for speed with GPUs.
        goodput: Useful work per time: seconds that the work done would have taken alone at the best allocation, per
            second of makespan. The number of jobs at full speed that the cluster was worth on average.
        mean_resizes: Changes of allocation per job between intervals in which it trained.
        mean_paused_intervals: Intervals per job, between its first training and its end, in which it did not train;
            each stretch of them means a restart.
        num_decisions: Decisions taken.
        num_intervals: Scheduling intervals simulated.
        share_full: Share of intervals at whose end some job type's task fitted no server: how contended it was.
    """

    num_jobs: int
    num_unfinished: int
    mean_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_jct_intervals: float
    makespan_s: float
    mean_queueing_s: float
    mean_slowdown: float
    p99_slowdown: float
    mean_bounded_slowdown: float
    mean_rho: float
    max_rho: float
    unfair_share: float
    gpu_utilisation: float
    cpu_utilisation: float
    gpu_hours: float
    gpu_efficiency: float
    goodput: float
    mean_resizes: float
    mean_paused_intervals: float
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
    trim: tuple[float, float] = NO_TRIM,
) -> EpisodeMetrics:
    """Metrics of a finished or truncated episode.

    Args:
        records: Records of its jobs, in the workload's order.
        workload: What was simulated; holds the true work.
        speeds: Isolated speeds of the job types.
        capacity: CPU and GPU units of the cluster.
        interval_s: Length of a scheduling interval in seconds.
        trim: Share of the first and of the last jobs, by arrival, that averages and quantiles leave out, to see the
            steady state of a long trace without its warm-up and drain (as Gavel measures a window of jobs). All jobs
            are simulated, and all count for fairness shares, whatever is left out.

    Raises:
        ConfigError: `trim` leaves no job.
    """
    measured = measured_jobs(workload.num_jobs, trim)
    jct_s = penalised_completion_times(records, workload, speeds)
    seen_s = completion_times(records)
    left_s = records.arrival_s + seen_s  # when a job left the system, or the episode was cut
    waited_until_s = np.where(np.isnan(records.start_s), left_s, records.start_s)
    samples = workload.true_epochs * workload.samples_per_epoch
    done = np.minimum(records.epochs_done, workload.true_epochs) * workload.samples_per_epoch
    best = speeds.best(workload.type_idx)
    alone_s = samples / best
    num_shares = mean_jobs_in_system(records.arrival_s, left_s)
    share = np.asarray(capacity, dtype=np.float64) / num_shares[:, None]
    cpus, gpus = capacity
    makespan_s = float((records.arrival_s + jct_s).max() - records.arrival_s.min())
    per_gpu = speeds.best_per_gpu()[workload.type_idx]
    useful_gpu_s = float((done[per_gpu > 0] / per_gpu[per_gpu > 0]).sum())
    jct = jct_s[measured]
    slowdown = jct / alone_s[measured]
    rho = (jct_s * speeds.best_within(workload.type_idx, share) / samples)[measured]
    p50, p90, p95, p99 = np.percentile(jct, [50, 90, 95, 99])
    return EpisodeMetrics(
        num_jobs=workload.num_jobs,
        num_unfinished=int(np.isnan(records.finish_s).sum()),
        mean_jct_s=float(jct.mean()),
        p50_jct_s=float(p50),
        p90_jct_s=float(p90),
        p95_jct_s=float(p95),
        p99_jct_s=float(p99),
        mean_jct_intervals=float(jct.mean() / interval_s),
        makespan_s=makespan_s,
        mean_queueing_s=float((waited_until_s - records.arrival_s)[measured].mean()),
        mean_slowdown=float(slowdown.mean()),
        p99_slowdown=float(np.percentile(slowdown, 99)),
        mean_bounded_slowdown=float(np.maximum(jct / np.maximum(alone_s[measured], BOUND_S), 1.0).mean()),
        mean_rho=float(rho.mean()),
        max_rho=float(rho.max()),
        unfair_share=float((rho > 1.0).mean()),
        gpu_utilisation=_ratio(records.used_gpu_s, gpus * records.end_s),
        cpu_utilisation=_ratio(records.used_cpu_s, cpus * records.end_s),
        gpu_hours=records.used_gpu_s / 3600.0,
        gpu_efficiency=_ratio(useful_gpu_s, records.used_gpu_s),
        goodput=_ratio(float((done / best).sum()), makespan_s),
        mean_resizes=float(records.num_resizes[measured].mean()),
        mean_paused_intervals=float(_paused_intervals(records, interval_s)[measured].mean()),
        num_decisions=records.num_decisions,
        num_intervals=records.num_intervals,
        share_full=records.share_full,
    )


def measured_jobs(num_jobs: int, trim: tuple[float, float]) -> slice:
    """The jobs that averages are taken over, in order of arrival; see `episode_metrics`.

    Raises:
        ConfigError: `trim` leaves no job.
    """
    first, last = trim
    if not (0.0 <= first < 1.0 and 0.0 <= last < 1.0 and first + last < 1.0):
        raise ConfigError(f"trim=({first}, {last}): two shares from 0 to below 1, together below 1")
    jobs = slice(int(first * num_jobs), num_jobs - int(last * num_jobs))
    assert jobs.start < jobs.stop
    return jobs


def penalised_completion_times(records: JobRecords, workload: Workload, speeds: IsolatedSpeeds) -> Vector:
    """(N,) JCT in seconds; for unfinished jobs a lower bound, see the module's documentation."""
    left = np.maximum(workload.true_epochs - records.epochs_done, 0.0) * workload.samples_per_epoch
    further_s = np.where(np.isnan(records.finish_s), left / speeds.best(workload.type_idx), 0.0)
    jct_s: Vector = completion_times(records) + further_s
    return jct_s


def completion_times(records: JobRecords) -> Vector:
    """(N,) JCT in seconds; for unfinished jobs the time until the records were taken (0 for jobs yet to arrive)."""
    seen_s = np.maximum(records.end_s - records.arrival_s, 0.0)
    return np.where(np.isnan(records.finish_s), seen_s, records.finish_s - records.arrival_s)


def mean_jobs_in_system(arrival_s: Vector, left_s: Vector) -> Vector:
    """(N,) number of jobs in the system, itself included, averaged over each job's stay; 1 for stays of no length.

    O(N log N): the number of jobs is constant between arrivals and departures, so its integral is known at these times.
    """
    times = np.unique(np.concatenate([arrival_s, left_s]))
    arrived = np.searchsorted(np.sort(arrival_s), times, side="right")
    departed = np.searchsorted(np.sort(left_s), times, side="right")
    integral = np.concatenate([[0.0], np.cumsum((arrived - departed)[:-1] * np.diff(times))])
    stay = left_s - arrival_s
    totals = integral[np.searchsorted(times, left_s)] - integral[np.searchsorted(times, arrival_s)]
    mean: Vector = np.divide(totals, stay, out=np.ones_like(stay), where=stay > 0)
    return mean


def _paused_intervals(records: JobRecords, interval_s: float) -> Vector:
    """(N,) intervals from a job's first training to its end, or to truncation, less those in which it trained."""
    end_s = np.where(np.isnan(records.finish_s), records.end_s, records.finish_s)
    # A job that ends exactly with an interval has no part of the next one; rounding absorbs the division's error.
    last = np.ceil(np.round(end_s / interval_s, 9))
    first = np.floor(np.round(np.where(np.isnan(records.start_s), end_s, records.start_s) / interval_s, 9))
    paused: Vector = np.where(np.isnan(records.start_s), 0.0, np.maximum(last - first - records.intervals_run, 0.0))
    return paused


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
