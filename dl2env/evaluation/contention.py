"""How much jobs of a scenario slow each other down: what link sharing is calibrated on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2env.config import EnvConfig
from dl2env.schedulers.base import ClusterView, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload.jobs import Workload


@dataclass(frozen=True)
class Contention:
    """What interference looks like under one scheduler.

    Attributes:
        speed_variation: Standard deviation over mean of the speed of jobs of one type at equal workers and PSs, pooled
            over groups with enough samples.
        num_samples: Job intervals behind it.
        num_groups: Groups (type, workers, PSs) behind it.
        mean_slowdown: Mean over job intervals of 1 - speed / estimated isolated speed.
        share_full: Share of intervals at whose end some task fitted no server.
        mean_jct_intervals: Mean JCT.
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

    Only whole intervals of jobs that did not finish in them count.

    Args:
        scheduler: Usually DRF, the scheduler of the production cluster behind the published variation.
        config: The world.
        workloads: Episodes to run, all at once.
        min_group: Groups with fewer samples are left out.
    """
    config = configured(scheduler, config)
    sim = ClusterSimulator(config, len(workloads))
    sim.load(np.arange(len(workloads)), workloads)
    view = ClusterView(sim)
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
            slowdowns.append(1.0 - float(gained[b, i]) / float(view.estimate.samples_per_s(*key)))
    used = [np.array(values) for values in groups.values() if len(values) >= min_group]
    squares = np.concatenate([(values / values.mean() - 1.0) ** 2 for values in used]) if used else np.array([np.nan])
    records = [sim.records(b) for b in range(len(workloads))]
    return Contention(
        speed_variation=float(np.sqrt(squares.mean())),
        num_samples=len(squares),
        num_groups=len(used),
        mean_slowdown=float(np.mean(slowdowns)),
        share_full=float(np.mean([record.share_full for record in records])),
        mean_jct_intervals=float(np.nanmean([record.jct_s.mean() for record in records])) / interval_s,
    )
