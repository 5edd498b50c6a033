"""Worlds simple enough for theory: rigid jobs of one worker, at one sample per second, on servers that hold one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    ObservationConfig,
    ServerGroup,
    WorkloadConfig,
)
from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from dl2env.speed.parameters import SINGLE, SpeedParameters
from dl2env.workload.jobs import Workload
from tests.schedulers.worlds import Type, parameters

RIGID = Type(fixed_s=1.0, caps=(1, 0), architecture=SINGLE)
PAIR = Type(fixed_s=1.0, caps=(1, 1))  # the same with a parameter server, for schedulers that give bundles only


def rigid_config(
    num_servers: int, num_jobs: int, interval_s: float, *, max_intervals: int = 10**8, cpus: int = 1
) -> EnvConfig:
    """A cluster of servers that hold one worker each (two CPUs: a `PAIR`), without costs, noise or gifts."""
    return EnvConfig(
        cluster=ClusterConfig((ServerGroup(num_servers, cpus, 1),)),
        workload=WorkloadConfig(num_jobs=num_jobs, max_workers=1, max_ps=1),
        dynamics=DynamicsConfig(
            interval_s=interval_s, max_intervals=max_intervals, initial_bundle=False, scaling_cost="none"
        ),
        observation=ObservationConfig(window=num_jobs, type_encoding="one_hot"),
    )


def rigid_workload(arrival_s: ArrayLike, service_s: ArrayLike) -> Workload:
    """Jobs by arrival and service time."""
    service = np.asarray(service_s, dtype=np.float64)
    return Workload(
        arrival_s=np.asarray(arrival_s, dtype=np.float64),
        type_idx=np.zeros(len(service), np.int32),
        epochs=service,
        true_epochs=service,
        samples_per_epoch=np.ones(len(service)),
        type_names=("type-0",),
        noise_key=1,
    )


def run(
    scheduler: Scheduler | str, config: EnvConfig, workload: Workload, speed: SpeedParameters | None = None
) -> JobRecords:
    """Plays one episode, decision by decision.

    Raises:
        ConfigError: The scheduler is not for such a world.
    """
    chosen = get_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    sim = ClusterSimulator(configured(chosen, config), 1, speed=parameters([RIGID]) if speed is None else speed)
    sim.load([0], [workload])
    view = ClusterView(sim)
    while not sim.is_done[0]:
        sim.step(chosen.act(sim.observation(), sim.action_masks(), view))
    return sim.records(0)


def accepting(names: Sequence[str], config: EnvConfig) -> list[str]:
    """The schedulers that are meant for such a world."""
    kept = []
    for name in names:
        try:
            configured(get_scheduler(name), config)
        except ConfigError:
            continue
        kept.append(name)
    return kept


def fifo_starts(
    arrival_s: NDArray[np.float64], service_s: NDArray[np.float64], num_servers: int
) -> NDArray[np.float64]:
    """(N,) start times of first-come-first-served service, by the recursion of Kiefer and Wolfowitz."""
    free_s = np.zeros(num_servers)
    starts = np.empty(len(arrival_s))
    for i, (arrival, service) in enumerate(zip(arrival_s, service_s, strict=True)):
        server = int(np.argmin(free_s))
        starts[i] = max(arrival, free_s[server])
        free_s[server] = starts[i] + service
    return starts
