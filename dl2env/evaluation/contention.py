"""How much jobs of a scenario slow each other down: what link sharing is calibrated on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.metrics import completion_times
from dl2env.schedulers.base import ClusterView, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.estimate import SpeedEstimate, exact_estimate
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
    """

    speed_variation: float
    num_samples: int
    num_groups: int
    mean_slowdown: float
    share_full: float
    mean_jct_intervals: float


def measure_contention(
    scheduler: Scheduler, config: EnvConfig, workloads: Sequence[Workload], min_group: int = 10
) -> Contention:
    """Runs a scheduler and compares the speeds that jobs of equal type and allocation had.

    Only whole intervals of jobs that did not finish in them count. Speed is progress over the interval's length, so
    that training time lost to a changed allocation shows as well.

    Args:
        scheduler: Usually DRF, the scheduler of the production cluster behind the published variation.
        config: The world.
        workloads: Episodes to run, all at once.
        min_group: Groups with fewer samples are left out.

    Raises:
        ConfigError: There are no workloads, or `min_group` is not positive.
    """
    if not workloads or min_group < 1:
        raise ConfigError(f"contention: {len(workloads)} workloads, min_group={min_group}; both must be at least 1")
    config = configured(scheduler, config)
    sim = ClusterSimulator(config, len(workloads), max_jobs=max(workload.num_jobs for workload in workloads))
    sim.load(np.arange(len(workloads)), workloads)
    view = ClusterView(sim)
    isolated = SpeedEstimate(sim.speed, exact_estimate(sim.speed, config))
    groups: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    slowdowns: list[float] = []
    interval_s = config.dynamics.interval_s
    jobs, env = sim.state.jobs, sim.state.env
    while not sim.is_done.all():
        done_before, interval_before = jobs["epochs_done"].copy(), env["interval"].copy()
        report = sim.step(scheduler.act(sim.observation(), sim.action_masks(), view))
        one_interval = report.interval_ended & (env["interval"] == interval_before + 1)
        is_counted = (one_interval & ~sim.is_done)[:, None]
        trained = (jobs["last_workers"] > 0) & np.isnan(jobs["finish_s"]) & is_counted
        gained = (jobs["epochs_done"] - done_before) * jobs["samples_per_epoch"] / interval_s
        for b, i in zip(*np.nonzero(trained & (gained > 0)), strict=True):
            job = jobs[b, i]
            key = (int(job["type"]), int(job["last_workers"]), int(job["last_ps"]))
            groups[key].append(float(gained[b, i]))
            slowdowns.append(1.0 - float(gained[b, i]) / float(isolated.samples_per_s(*key)))
    used = [np.array(values) for values in groups.values() if len(values) >= min_group]
    squares = np.concatenate([np.zeros(0), *((values / values.mean() - 1.0) ** 2 for values in used)])
    records = [sim.records(b) for b in range(len(workloads))]
    return Contention(
        speed_variation=float(np.sqrt(squares.mean())) if used else float("nan"),
        num_samples=len(squares),
        num_groups=len(used),
        mean_slowdown=float(np.mean(slowdowns)) if slowdowns else float("nan"),
        share_full=float(np.mean([record.share_full for record in records])),
        mean_jct_intervals=float(np.mean([completion_times(record).mean() for record in records])) / interval_s,
    )
