"""How loaded a scenario is, and how much its jobs slow each other down: what link sharing is calibrated on."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.metrics import completion_times
from dl2env.schedulers.base import ClusterView, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed import build_speed
from dl2env.speed.estimate import SpeedEstimate, exact_estimate
from dl2env.workload.job_types import load_job_types
from dl2env.workload.jobs import Workload


@dataclass(frozen=True)
class Contention:
    """What interference looks like under one scheduler.

    Attributes:
        speed_variation: Standard deviation over mean of the speed of jobs of one type at equal workers and PSs, pooled
            over groups with enough samples; NaN if there is no such group.
        num_samples: Job intervals behind it.
        num_groups: Groups (type, workers, PSs) behind it.
        mean_slowdown: Mean over all job intervals of 1 - speed / true isolated speed; NaN if there are none.
        share_full: Share of intervals at whose end some task fitted no server.
        mean_jct_intervals: Mean JCT over workloads; unfinished jobs count until the end of their episode.
        tasks_per_nic: Mean number of tasks on a server that has any, at the intervals' ends; NaN if none ever had.
        mean_jobs: Mean number of jobs in the system over the intervals of an episode, mean over workloads.
        peak_jobs: Largest number of jobs in the system at once, mean over workloads.
        num_unfinished: Jobs that the interval limit cut off, over all workloads.
    """

    speed_variation: float
    num_samples: int
    num_groups: int
    mean_slowdown: float
    share_full: float
    mean_jct_intervals: float
    tasks_per_nic: float
    mean_jobs: float
    peak_jobs: float
    num_unfinished: int


def measure_contention(
    scheduler: Scheduler, config: EnvConfig, workloads: Sequence[Workload], min_group: int = 10
) -> Contention:
    """Runs a scheduler and compares the speeds that jobs of equal type and allocation had.

    Speeds are of whole intervals of jobs that did not finish in them: progress over the interval's length, so that
    training time lost to a changed allocation shows as well.

    Args:
        scheduler: Usually DRF, the scheduler of the production cluster behind the published variation.
        config: The world. Intervals in which there is nothing to decide are not skipped, which changes no outcome.
        workloads: Episodes to run, all at once.
        min_group: Groups with fewer samples are left out.

    Raises:
        ConfigError: There are no workloads, or `min_group` is not positive.
    """
    if not workloads or min_group < 1:
        raise ConfigError(f"contention: {len(workloads)} workloads, min_group={min_group}; both must be at least 1")
    config = configured(scheduler, config)
    # An interval then ends with void only, and until that the cluster stands as it trains.
    config = dataclasses.replace(config, dynamics=dataclasses.replace(config.dynamics, auto_advance=False))
    sim = ClusterSimulator(config, len(workloads), max_jobs=max(workload.num_jobs for workload in workloads))
    sim.load(np.arange(len(workloads)), workloads)
    watch = _Watch(sim)
    view = ClusterView(sim)
    while not sim.is_done.all():
        actions = np.asarray(scheduler.act(sim.observation(), sim.action_masks(), view))
        watch.before_step()
        watch.after_step(sim.step(actions).interval_ended)
    samples = watch.speeds()
    isolated = SpeedEstimate(sim.speed, exact_estimate(sim.speed, config))
    slowdowns = [1.0 - values / float(isolated.samples_per_s(*key)) for key, values in samples.items()]
    used = [values for values in samples.values() if len(values) >= min_group]
    squares = np.concatenate([np.zeros(0), *((values / values.mean() - 1.0) ** 2 for values in used)])
    records = [sim.records(b) for b in range(len(workloads))]
    num_intervals = np.array([record.num_intervals for record in records])
    return Contention(
        speed_variation=float(np.sqrt(squares.mean())) if used else float("nan"),
        num_samples=len(squares),
        num_groups=len(used),
        mean_slowdown=float(np.concatenate(slowdowns).mean()) if slowdowns else float("nan"),
        share_full=float(np.mean([record.share_full for record in records])),
        mean_jct_intervals=float(np.mean([completion_times(record).mean() for record in records]))
        / config.dynamics.interval_s,
        tasks_per_nic=watch.num_tasks / watch.num_servers if watch.num_servers else float("nan"),
        mean_jobs=float((watch.num_jobs / np.maximum(num_intervals, 1)).mean()),
        peak_jobs=float(watch.peak_jobs.mean()),
        num_unfinished=sum(int(np.isnan(record.finish_s).sum()) for record in records),
    )


class _Watch:
    """Adds up what happens to the jobs of a simulator.

    Attributes:
        num_tasks: Tasks in the cluster, summed over intervals and environments.
        num_servers: Servers with a task, likewise.
        num_jobs: (B,) jobs in the system, summed over intervals.
        peak_jobs: (B,) largest number of them.
    """

    def __init__(self, sim: ClusterSimulator) -> None:
        self._sim = sim
        self._samples: dict[tuple[int, int, int], list[float]] = defaultdict(list)
        self.num_tasks = 0
        self.num_servers = 0
        self.num_jobs = np.zeros(sim.num_envs)
        self.peak_jobs = np.zeros(sim.num_envs)

    def before_step(self) -> None:
        """Notes how the cluster stands; it is cleared when an interval ends."""
        env, jobs = self._sim.state.env, self._sim.state.jobs
        is_in_system = np.isnan(jobs["finish_s"])
        self._epochs_done = jobs["epochs_done"].copy()
        self._tasks = ((jobs["workers"] + jobs["ps"]) * is_in_system).sum(axis=1)
        self._servers = env["busy_servers"].copy()
        self._active = env["num_active"].copy()

    def after_step(self, interval_ended: NDArray[np.bool_]) -> None:
        """Adds the intervals that the step has ended."""
        sim = self._sim
        self.num_tasks += int(self._tasks[interval_ended].sum())
        self.num_servers += int(self._servers[interval_ended].sum())
        self.num_jobs[interval_ended] += self._active[interval_ended]
        self.peak_jobs = np.maximum(self.peak_jobs, self._active)
        if not interval_ended.any():
            return
        jobs = sim.state.jobs
        # At an interval's start the counts of unfinished jobs move to `last_*`; after the last interval they stay.
        goes_on = (interval_ended & ~sim.is_done)[:, None] & np.isnan(jobs["finish_s"]) & (jobs["last_workers"] > 0)
        gained = (jobs["epochs_done"] - self._epochs_done) * jobs["samples_per_epoch"]
        b, i = np.nonzero(goes_on & (gained > 0))
        speeds = gained[b, i] / sim.config.dynamics.interval_s
        keys = np.stack([jobs[name][b, i] for name in ("type", "last_workers", "last_ps")], axis=1)
        for key, speed in zip(keys.tolist(), speeds.tolist(), strict=True):
            self._samples[tuple(key)].append(speed)

    def speeds(self) -> dict[tuple[int, int, int], NDArray[np.float64]]:
        """Samples/s of whole intervals by (type, workers, PSs)."""
        return {key: np.array(values) for key, values in self._samples.items()}


def offered_load(config: EnvConfig, workloads: Sequence[Workload]) -> dict[str, float]:
    """Resources that the arriving work needs with one worker and one PS per job, over those that the cluster has.

    Each job then runs for its epochs over its isolated speed, without contention. This is the least that it needs, as
    far as speed grows less than in proportion to tasks; above 1 no scheduler keeps up for long.

    Args:
        config: The world. Generated arrivals count at their stated mean rate, recorded ones at the rate of the
            workloads.
        workloads: Which jobs.

    Returns:
        Loads by resource, `cpus` and `gpus`; infinite where all jobs arrive at once, NaN where the cluster has none.

    Raises:
        ConfigError: There are no workloads.
    """
    if not workloads:
        raise ConfigError("offered load: no workloads; give at least one")
    job_types = load_job_types(config.workload.job_types, config.workload.include)
    speed = build_speed(job_types, config)
    has_ps = speed.types["max_ps"] > 0
    estimate = SpeedEstimate(speed, exact_estimate(speed, config))
    per_type = np.array([float(estimate.samples_per_s(t, 1, int(has_ps[t]))) for t in range(len(job_types))])
    busy_s = np.zeros(len(job_types))
    span_s = 0.0
    for workload in workloads:
        seconds = workload.true_epochs * workload.samples_per_epoch / per_type[workload.type_idx]
        busy_s += np.bincount(workload.type_idx, weights=seconds, minlength=len(job_types))
        span_s += _span_s(config, workload)
    loads = {}
    for resource in ("cpus", "gpus"):
        units = speed.types[f"worker_{resource}"] + has_ps * speed.types[f"ps_{resource}"]
        capacity = sum(group.count * getattr(group, resource) for group in config.cluster.servers)
        used = float((busy_s * units).sum())
        loads[resource] = float("nan") if capacity == 0 else used / capacity / span_s if span_s else float("inf")
    return loads


def _span_s(config: EnvConfig, workload: Workload) -> float:
    """Time in which a workload's jobs arrive, the gap after the last one included."""
    arrivals = config.workload.arrivals
    if config.workload.trace is None and arrivals.kind != "batch":
        return workload.num_jobs * config.dynamics.interval_s / arrivals.rate_per_interval
    first, last = float(workload.arrival_s[0]), float(workload.arrival_s[-1])
    return (last - first) * workload.num_jobs / max(workload.num_jobs - 1, 1)
