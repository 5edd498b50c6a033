"""Random clusters, job types, workloads and rules, small enough for the reference simulator."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    EstimateConfig,
    ObservationConfig,
    Placement,
    ScalingCost,
    ServerGroup,
    SpeedConfig,
    WorkloadConfig,
)
from dl2env.speed.parameters import (
    ALL_REDUCE,
    ARCHITECTURES,
    LOCAL_PS,
    PEARL,
    PS_WORKER,
    SINGLE,
    TYPE_DTYPE,
    SpeedParameters,
)
from dl2env.workload.jobs import Workload

GPU_KINDS = ("pai-base", "slow", "slower")


def random_config(rng: np.random.Generator, faithful: bool) -> EnvConfig:
    """A random configuration: the released rules, or any combination of switches."""
    interval_s = float(rng.choice([1200.0, 86.4, 7.3]))
    max_intervals = int(rng.choice([3, 6, 60, 200]))
    if faithful:
        dynamics = DynamicsConfig.faithful(
            interval_s=interval_s, max_intervals=max_intervals, exact_finish=_flip(rng), epoch_error=0.0
        )
    else:
        dynamics = DynamicsConfig(
            interval_s=interval_s,
            max_intervals=max_intervals,
            placement=rng.choice(get_args(Placement)),
            scaling_cost=rng.choice(get_args(ScalingCost)),
            initial_bundle=_flip(rng),
            mask_resources=_flip(rng),
            window_skips_capped=_flip(rng),
            auto_advance=_flip(rng, 0.7),
            exact_finish=_flip(rng, 0.7),
            load_by_sum=_flip(rng),
            speed_noise=float(rng.choice([0.0, 0.3])),
        )
    groups = tuple(
        ServerGroup(int(rng.integers(1, 4)), int(rng.integers(4, 25)), int(rng.integers(2, 13)), GPU_KINDS[kind])
        for kind in range(int(rng.choice([1, 2, 2, 3])))
    )
    is_measured = faithful or _flip(rng, 0.2)
    return EnvConfig(
        cluster=ClusterConfig(
            servers=groups,
            link_sharing=float(rng.choice([0.0, 0.3, 0.3, 1.0])),
            pcie_group=int(rng.choice([0, 2, 4])),
        ),
        workload=WorkloadConfig(
            num_jobs=int(rng.integers(2, 13)), max_workers=int(rng.integers(1, 7)), max_ps=int(rng.integers(1, 7))
        ),
        speed=SpeedConfig(
            model="measured" if is_measured else "analytic",
            table="given-by-the-test" if is_measured else None,
            overlap=rng.choice(["none", "ideal"]),
        ),
        estimate=EstimateConfig(kind=rng.choice(["exact", "noisy", "fitted"]), noise=0.2),
        dynamics=dynamics,
        observation=ObservationConfig(window=int(rng.integers(1, 10)), type_encoding="one_hot"),
    )


def random_parameters(rng: np.random.Generator, config: EnvConfig) -> SpeedParameters:
    """Random types of all architectures (PS/Worker only with a measured table); any task fits some server."""
    is_measured = config.speed.model == "measured"
    architectures = [PS_WORKER] * 3 if is_measured else [*ARCHITECTURES.values(), PS_WORKER]
    types = np.zeros(len(architectures), TYPE_DTYPE)
    cap_workers, cap_ps = config.workload.max_workers, config.workload.max_ps
    most_cpus = int(rng.choice([1, 4]))
    for record, architecture in zip(types, architectures, strict=True):
        uses_ps = architecture == PS_WORKER
        record["architecture"] = architecture
        record["is_synchronous"] = _flip(rng)
        record["max_workers"] = 1 if architecture == SINGLE else rng.integers(1, cap_workers + 1)
        record["max_ps"] = rng.integers(1, cap_ps + 1) if uses_ps else 0
        # Every server has at least 4 CPU and 2 GPU units, but not always room for a bundle.
        record["worker_cpus"], record["worker_gpus"] = rng.integers(0, 1 + most_cpus), rng.choice([0, 1, 1, 2])
        if uses_ps:
            record["ps_cpus"], record["ps_gpus"] = rng.integers(1, 1 + most_cpus), rng.choice([0, 0, 0, 1])
        record["batch_size"] = rng.choice([1.0, 32.0, 100.0])
        record["weight_bytes"] = rng.uniform(1e6, 1e10)
        for field in ("input_s", "fixed_s", "worker_cost_s", "ps_cost_s"):
            record[field] = rng.uniform(0.0, 0.1)
        record["ethernet_s"] = rng.uniform(0.0, 1.0) if architecture in (PS_WORKER, ALL_REDUCE) else 0.0
        record["weight_pcie_s"] = rng.uniform(0.0, 0.2) if architecture in (PS_WORKER, LOCAL_PS) else 0.0
        record["nvlink_s"] = rng.uniform(0.0, 0.2) if architecture in (ALL_REDUCE, PEARL) else 0.0
        record["exchange_s"] = rng.uniform(0.0, 0.5) * _flip(rng) if uses_ps else 0.0
        record["link_use"] = rng.uniform(0.0, 1.0)
        if uses_ps:
            record["exchange_s"] = rng.uniform(0.0, 0.5) * _flip(rng)
            record["ps_service_s"] = rng.uniform(0.0, 0.5) * _flip(rng)
        record["link_use"] = rng.uniform(0.0, 1.0) if architecture in (PS_WORKER, ALL_REDUCE) else 0.0
    compute_s = rng.uniform(0.01, 1.0, size=(len(types), len(GPU_KINDS)))
    table = np.zeros((len(types), 0, 0))
    if is_measured:
        table = rng.uniform(1.0, 100.0, size=(len(types), cap_workers + 2, cap_ps + 2))
        table[rng.random(table.shape) < 0.1] = 0.0
        table[:, 1, 1] = 5.0
        table[:, 0, :] = table[:, :, 0] = 0.0
    return SpeedParameters(types, compute_s, table, GPU_KINDS, tuple(f"type-{t}" for t in range(len(types))))


def random_workload(
    rng: np.random.Generator, config: EnvConfig, parameters: SpeedParameters, best_speed: Any
) -> Workload:
    """Jobs of a fraction of an interval to several intervals, some of them after a long gap.

    Args:
        rng: Source of randomness.
        config: Interval length and number of jobs (of which the workload may have fewer).
        parameters: Job types.
        best_speed: (T,) samples/s that scale the jobs' sizes.
    """
    interval_s = config.dynamics.interval_s
    num_jobs = int(rng.integers(1, config.workload.num_jobs + 1))
    gaps = rng.exponential(0.4, num_jobs) + rng.choice([0.0, 9.0], num_jobs, p=[0.95, 0.05])
    arrivals = np.cumsum(gaps) - (gaps[0] if _flip(rng) else 0.0)
    if _flip(rng):
        arrivals = np.floor(arrivals)  # several arrive at once, exactly at an interval's start
    arrivals -= max(0.0, np.ceil(arrivals[0]) - (config.dynamics.max_intervals - 1))  # admit one within the limit
    type_idx = rng.integers(0, len(parameters.types), num_jobs)
    samples_per_epoch = rng.uniform(1.0, 500.0, num_jobs)
    ideal_intervals = rng.lognormal(0.3, 1.0, num_jobs)
    epochs = ideal_intervals * interval_s * np.asarray(best_speed)[type_idx] / samples_per_epoch
    return Workload(
        arrival_s=arrivals * interval_s,
        type_idx=type_idx.astype(np.int32),
        epochs=epochs,
        true_epochs=epochs * rng.choice([0.7, 1.0, 1.4], num_jobs, p=[0.15, 0.7, 0.15]),
        samples_per_epoch=samples_per_epoch,
        type_names=parameters.type_names,
        noise_key=int(rng.integers(0, 2**63)),
    )


def random_action(rng: np.random.Generator, mask: list[bool], void_share: float, illegal_share: float) -> int:
    """Void, any action at all, or a legal job action if there is one."""
    draw = rng.random()
    legal = np.flatnonzero(mask[:-1])
    if draw < illegal_share:
        return int(rng.integers(len(mask)))
    if draw < illegal_share + void_share or len(legal) == 0:
        return len(mask) - 1
    return int(rng.choice(legal))


def _flip(rng: np.random.Generator, probability: float = 0.5) -> bool:
    return bool(rng.random() < probability)
