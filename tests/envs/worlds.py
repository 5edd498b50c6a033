"""Small worlds for tests of the environments, and random players."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dl2env
from dl2env.config import EnvConfig, EstimateConfig, ObservationConfig, RewardConfig, ServerGroup
from dl2env.scenarios import get_scenario
from dl2env.workload.generator import FixedWorkloads
from dl2env.workload.job_types import load_job_types
from dl2env.workload.jobs import Workload

IDS = sorted(dl2env.ENVIRONMENTS)


def small_world(
    dynamics: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    reward: RewardConfig | None = None,
    estimate: EstimateConfig | None = None,
    window: int = 3,
    link_sharing: float = 0.5,
) -> EnvConfig:
    """Six servers and eight jobs: an episode of some tens of decisions, with contention and jobs outside the window."""
    base = get_scenario("dl2-small-v1").config
    group = base.cluster.servers[0]
    sizes = dataclasses.replace(base.workload.sizes, kind="lognormal", mean_s=4000.0)
    changes: dict[str, Any] = dict(num_jobs=8, max_workers=3, max_ps=2, sizes=sizes) | (workload or {})
    return EnvConfig(
        cluster=dataclasses.replace(
            base.cluster,
            servers=(ServerGroup(6, cpus=8, gpus=2, gpu_type=group.gpu_type),),
            link_sharing=link_sharing,
        ),
        workload=dataclasses.replace(base.workload, **changes),
        dynamics=dataclasses.replace(base.dynamics, **(dynamics or {})),
        reward=reward or base.reward,
        estimate=estimate or base.estimate,
        observation=ObservationConfig(window=window),
    )


def given_jobs(
    config: EnvConfig, arrival_s: list[float], epochs: list[float], samples_per_epoch: float = 1e5
) -> FixedWorkloads:
    """Jobs of the catalogue's first type, the same in every episode."""
    names = tuple(job_type.name for job_type in load_job_types(config.workload.job_types, config.workload.include))
    n = len(arrival_s)
    workload = Workload(
        arrival_s=np.array(arrival_s),
        type_idx=np.zeros(n, np.int32),
        epochs=np.array(epochs),
        true_epochs=np.array(epochs),
        samples_per_epoch=np.full(n, samples_per_epoch),
        type_names=names,
    )
    return FixedWorkloads([workload])


def random_legal(rng: np.random.Generator, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(B,) legal actions, each drawn uniformly from its row."""
    return np.asarray(np.argmax(rng.random(masks.shape) * masks, axis=-1))


def random_mixed(rng: np.random.Generator, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(B,) actions: mostly legal ones, some arbitrary ones, out of range too."""
    arbitrary = rng.integers(-2, masks.shape[-1] + 2, size=masks.shape[:-1])
    return np.where(rng.random(masks.shape[:-1]) < 0.1, arbitrary, random_legal(rng, masks))


WORLDS: dict[str, EnvConfig] = {
    "default": small_world(),
    "truncated": small_world(dynamics=dict(max_intervals=5)),
    "released": small_world(
        dynamics=dict(
            placement="least_loaded_single",
            mask_resources=False,
            window_skips_capped=True,
            auto_advance=False,
            load_by_sum=True,
            scaling_cost="none",
        )
    ),
    "uncertain": small_world(
        dynamics=dict(speed_noise=0.3, epoch_error=0.3, scaling_cost="checkpoint", placement="pack"),
        estimate=EstimateConfig("noisy", noise=0.2),
    ),
    "fitted": small_world(
        dynamics=dict(placement="spread", initial_bundle=False), estimate=EstimateConfig("fitted", noise=0.1)
    ),
}
"""Worlds that differ in the rules that an environment has to follow."""
