"""Worlds small enough to solve on paper, and random ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    EstimateConfig,
    ObservationConfig,
    ServerGroup,
    WorkloadConfig,
)
from dl2env.schedulers.base import ClusterView, Scheduler
from dl2env.schedulers.heuristic import SeesAllJobs
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import PS_WORKER, TYPE_DTYPE, SpeedParameters
from dl2env.workload.jobs import Workload
from tests.sim.random_cases import random_action, random_config, random_parameters, random_workload

KINDS = "wpb"  # worker, parameter server, bundle
INTERVAL_S = 100.0


@dataclass(frozen=True)
class Type:
    """A job type whose step takes `compute_s / w + fixed_s + service_s * w / p + worker_cost_s * w + ps_cost_s * p`
    seconds and trains one sample; plus Ethernet where tasks are on several servers."""

    worker: tuple[int, int] = (1, 1)  # CPUs, GPUs
    ps: tuple[int, int] = (1, 0)
    caps: tuple[int, int] = (4, 4)  # workers, PSs
    compute_s: float = 0.0
    fixed_s: float = 0.0
    service_s: float = 0.0
    worker_cost_s: float = 0.0
    ps_cost_s: float = 0.0
    ethernet_s: float = 0.0
    link_use: float = 0.0
    architecture: int = PS_WORKER


@dataclass(frozen=True)
class Job:
    """A job that needs `samples` steps."""

    type: int = 0
    samples: float = 1e6
    arrival_s: float = 0.0
    done: float = 0.0  # samples trained before the first interval


def parameters(types: Sequence[Type]) -> SpeedParameters:
    records = np.zeros(len(types), TYPE_DTYPE)
    for record, t in zip(records, types, strict=True):
        values = dict(
            architecture=t.architecture,
            is_synchronous=True,
            batch_size=1.0,
            weight_bytes=1.0,
            fixed_s=t.fixed_s,
            ps_service_s=t.service_s,
            worker_cost_s=t.worker_cost_s,
            ps_cost_s=t.ps_cost_s,
            ethernet_s=t.ethernet_s,
            link_use=t.link_use,
            max_workers=t.caps[0],
            max_ps=t.caps[1] if t.architecture == PS_WORKER else 0,
            worker_cpus=t.worker[0],
            worker_gpus=t.worker[1],
            ps_cpus=t.ps[0] if t.architecture == PS_WORKER else 0,
            ps_gpus=t.ps[1] if t.architecture == PS_WORKER else 0,
        )
        for name, value in values.items():
            record[name] = value
    compute_s = np.array([[t.compute_s] for t in types])
    names = tuple(f"type-{i}" for i in range(len(types)))
    return SpeedParameters(records, compute_s, np.zeros((len(types), 0, 0)), ("pai-base",), names)


def world(
    types: Sequence[Type],
    jobs: Sequence[Job],
    servers: Sequence[tuple[int, int]],
    *,
    link_sharing: float = 0.0,
    estimate: EstimateConfig | None = None,
    num_envs: int = 1,
    **dynamics: Any,
) -> ClusterSimulator:
    """A simulator at its first decision; all environments play the same jobs.

    Args:
        types: Job types.
        jobs: Jobs in arrival order.
        servers: (CPUs, GPUs) of each server.
        link_sharing: See `ClusterConfig`.
        estimate: See `EnvConfig`.
        num_envs: Number of environments.
        **dynamics: Rules; by default no initial bundle, no cost, intervals of 100 s.
    """
    rules = dict(interval_s=INTERVAL_S, initial_bundle=False, scaling_cost="none") | dynamics
    config = EnvConfig(
        cluster=ClusterConfig(tuple(ServerGroup(1, *units) for units in servers), link_sharing=link_sharing),
        workload=WorkloadConfig(
            num_jobs=len(jobs), max_workers=max(t.caps[0] for t in types), max_ps=max(t.caps[1] for t in types)
        ),
        dynamics=DynamicsConfig(**rules),  # type: ignore[arg-type]
        estimate=estimate or EstimateConfig(),
        observation=ObservationConfig(window=len(jobs), type_encoding="one_hot"),
    )
    sim = ClusterSimulator(config, num_envs, speed=parameters(types))
    sim.load(range(num_envs), [workload(sim, jobs)] * num_envs)
    sim.state.jobs["epochs_done"][:, : len(jobs)] = [job.done for job in jobs]
    return sim


def workload(sim: ClusterSimulator, jobs: Sequence[Job], noise_key: int = 0) -> Workload:
    """A job table; one sample per epoch."""
    samples = np.array([job.samples for job in jobs])
    return Workload(
        arrival_s=np.array([job.arrival_s for job in jobs]),
        type_idx=np.array([job.type for job in jobs], np.int32),
        epochs=samples,
        true_epochs=samples,
        samples_per_epoch=np.ones(len(jobs)),
        type_names=sim.speed.type_names,
        noise_key=noise_key,
    )


def answers(scheduler: Scheduler, sim: ClusterSimulator) -> NDArray[np.int64]:
    """The scheduler's actions in the present state."""
    return np.asarray(scheduler.act(sim.observation(), sim.action_masks(), ClusterView(sim)))


def name_of(sim: ClusterSimulator, action: int, b: int = 0) -> str:
    """Kind and job index of an action: `w0` one worker for job 0, `p0` one parameter server, `b0` both."""
    if action == sim.num_actions - 1:
        return "void"
    return f"{KINDS[action % 3]}{sim.state.window[b, action // 3]}"


def act(sim: ClusterSimulator, *names: str) -> None:
    """Takes the named actions, which must be legal, in every environment."""
    for name in names:
        slot = sim.state.window[0].tolist().index(int(name[1:]))
        report = sim.step([3 * slot + KINDS.index(name[0])] * sim.num_envs)
        assert not report.is_illegal.any() and not report.interval_ended.any(), name


def plan(scheduler: Scheduler, sim: ClusterSimulator) -> str:
    """What the scheduler does until the interval ends; void is told only where another action was legal."""
    names = []
    while True:
        action = int(answers(scheduler, sim)[0])
        names.append(name_of(sim, action))
        report = sim.step([action])
        assert not report.is_illegal[0], f"illegal: {' '.join(names)}"
        if report.interval_ended[0]:
            return " ".join(names)


def random_world(
    seed: int, num_envs: int = 3, is_wide: bool = False, **dynamics: Any
) -> tuple[np.random.Generator, ClusterSimulator]:
    """Random rules, servers, types of all architectures and jobs, at the first decision.

    Args:
        seed: Seed of everything.
        num_envs: Number of environments.
        is_wide: The window holds all jobs.
        **dynamics: Rules that are not random.
    """
    rng = np.random.default_rng([seed, 77])
    config = random_config(rng, faithful=False)
    if is_wide:
        config = SeesAllJobs().configure(config)
    config = dataclasses.replace(config, dynamics=dataclasses.replace(config.dynamics, **dynamics))
    speeds = random_parameters(rng, config)
    sim = ClusterSimulator(config, num_envs, speed=speeds)
    loads = [random_workload(rng, config, speeds, sim.state.best_speed[0]) for _ in range(num_envs)]
    sim.load(range(num_envs), loads)
    return rng, sim


def random_states(
    seed: int, num_steps: int = 40, **dynamics: Any
) -> Iterator[tuple[ClusterSimulator, ClusterView, NDArray[np.bool_]]]:
    """States of a random world under random decisions: (simulator, view, mask); some environments may have ended."""
    rng, sim = random_world(seed, **dynamics)
    view = ClusterView(sim)
    for _ in range(num_steps):
        if sim.is_done.all():
            return
        mask = sim.action_masks()
        yield sim, view, mask
        sim.step([random_action(rng, row, void_share=0.05, illegal_share=0.02) for row in mask.tolist()])
