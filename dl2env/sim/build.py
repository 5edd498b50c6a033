"""Turns a configuration into the simulator's arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, EnvConfig
from dl2env.errors import PlacementError
from dl2env.sim import state as st
from dl2env.sim.estimates import Estimator
from dl2env.sim.features import CLUSTER_FEATURES, JOB_FEATURES
from dl2env.speed import build_speed
from dl2env.speed.parameters import SINGLE_SERVER, SpeedParameters
from dl2env.workload.job_types import JobType, load_job_types, type_features


def build_state(
    config: EnvConfig,
    num_envs: int,
    max_jobs: int,
    job_types: Sequence[JobType] | None = None,
    speed: SpeedParameters | None = None,
) -> tuple[st.State, SpeedParameters, Estimator]:
    """Allocates the arrays of `num_envs` clusters and fills in everything that never changes.

    Raises:
        Dl2EnvError: The configuration is inconsistent, for example because a type's task fits no server.
    """
    if job_types is None:
        job_types = load_job_types(config.workload.job_types, config.workload.include)
    if speed is None:
        speed = build_speed(job_types, config)
    specs = _server_specs(config.cluster, speed)
    classes, demands = _demand_classes(speed, specs, config.cluster)
    estimator = Estimator(config, speed)
    tables = estimator.allocate(num_envs)
    features = type_columns(config, speed, job_types)
    num_servers = len(specs)
    entries = min(num_servers, config.workload.max_workers + config.workload.max_ps)
    # A task that asks for nothing fits any number of times.
    has_free_task = bool((demands["cpus"] + demands["gpus"] == 0).any())
    jobs_on_server = max_jobs if has_free_task else min(int((specs["cpus"] + specs["gpus"]).max()), max_jobs)
    window = config.observation.window
    mask = np.zeros((num_envs, 3 * window + 1), dtype=np.bool_)
    mask[:, -1] = True
    state = st.State(
        env=np.zeros(num_envs, st.ENV_DTYPE),
        jobs=np.zeros((num_envs, max_jobs), st.JOB_DTYPE),
        active=np.zeros((num_envs, max_jobs), np.int32),
        entries=np.zeros((num_envs, max_jobs, entries), st.ENTRY_DTYPE),
        servers=np.zeros((num_envs, num_servers), st.SERVER_DTYPE),
        least_loaded=np.zeros((num_envs, 2 << (num_servers - 1).bit_length()), np.int16),
        server_jobs=np.zeros((num_envs, num_servers, jobs_on_server), np.int32),
        server_entries=np.zeros((num_envs, num_servers, jobs_on_server), np.int16),
        num_fit=np.zeros((num_envs, len(demands)), np.int32),
        specs=specs,
        types=speed.types,
        classes=classes,
        demands=demands,
        compute_s=speed.compute_s,
        table=speed.table,
        estimate=tables.estimate,
        best_speed=tables.best_speed,
        fit=tables.fit,
        type_features=features,
        rules=_rules(config, speed, specs),
        window=np.full((num_envs, window), -1, np.int32),
        obs_jobs=np.zeros((num_envs, window, features.shape[1] + len(JOB_FEATURES)), np.float32),
        obs_cluster=np.zeros((num_envs, len(CLUSTER_FEATURES)), np.float32),
        mask=mask,
    )
    return state, speed, estimator


def type_columns(config: EnvConfig, speed: SpeedParameters, job_types: Sequence[JobType]) -> NDArray[np.float32]:
    """(T, K) columns of a job's observation row that describe its type."""
    one_hot = np.eye(len(speed.type_names), dtype=np.float32)
    encoding = config.observation.type_encoding
    if encoding == "one_hot":
        return one_hot
    features, _ = type_features(job_types)
    return features if encoding == "features" else np.concatenate([one_hot, features], axis=1)


def _server_specs(cluster: ClusterConfig, speed: SpeedParameters) -> NDArray[np.void]:
    specs = np.zeros(cluster.num_servers, st.SERVER_SPEC_DTYPE)
    s = 0
    for group in cluster.servers:
        part = specs[s : s + group.count]
        part["cpus"] = group.cpus
        part["gpus"] = group.gpus
        part["gpu_kind"] = speed.gpu_kinds.index(group.gpu_type)
        s += group.count
    return specs


def _demand_classes(
    speed: SpeedParameters, specs: NDArray[np.void], cluster: ClusterConfig
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    index: dict[tuple[int, int], int] = {}
    classes = np.zeros(len(speed.types), st.TYPE_CLASSES_DTYPE)
    for t, job_type in enumerate(speed.types):
        worker = (int(job_type["worker_cpus"]), int(job_type["worker_gpus"]))
        ps = (int(job_type["ps_cpus"]), int(job_type["ps_gpus"]))
        bundle = (worker[0] + ps[0], worker[1] + ps[1])
        for name, demand in (("worker", worker), ("ps", ps), ("bundle", bundle)):
            classes[t][name] = index.setdefault(demand, len(index))
    demands = np.zeros(len(index), st.DEMAND_DTYPE)
    for (cpus, gpus), d in index.items():
        fits = (specs["cpus"] >= cpus) & (specs["gpus"] >= gpus)
        demands[d] = (cpus, gpus, int(fits.sum()))
    for t, job_type in enumerate(speed.types):
        roles = ("worker", "ps") if job_type["max_ps"] > 0 else ("worker",)
        for role in roles:
            cpus, gpus, fit = demands[classes[t][role]]
            if fit == 0:
                largest = max(cluster.servers, key=lambda group: (group.gpus, group.cpus))
                raise PlacementError(
                    f"job type {speed.type_names[t]!r}: a {role} needs {cpus} CPUs and {gpus} GPUs, which no server "
                    f"has (largest: {largest.cpus} CPUs, {largest.gpus} GPUs); use bigger servers or leave the type "
                    f"out with workload.include"
                )
    return classes, demands


def _rules(config: EnvConfig, speed: SpeedParameters, specs: NDArray[np.void]) -> NDArray[np.void]:
    dynamics = config.dynamics
    is_measured = speed.table.size > 0
    single_server = bool(np.isin(speed.types["architecture"], SINGLE_SERVER).any())
    rules = np.zeros(1, st.RULES_DTYPE)
    values = dict(
        interval_s=dynamics.interval_s,
        # Measured speeds already contain whatever the network did while they were taken.
        link_sharing=0.0 if is_measured else config.cluster.link_sharing,
        speed_noise=dynamics.speed_noise,
        total_cpus=specs["cpus"].sum(),
        total_gpus=specs["gpus"].sum(),
        max_workers=config.workload.max_workers,
        max_ps=config.workload.max_ps,
        max_intervals=dynamics.max_intervals,
        window=config.observation.window,
        pcie_group=config.cluster.pcie_group,
        placement=st.PLACEMENTS[dynamics.placement],
        scaling_cost=st.SCALING_COSTS[dynamics.scaling_cost],
        is_measured=is_measured,
        is_ideal_overlap=config.speed.overlap == "ideal",
        initial_bundle=dynamics.initial_bundle,
        mask_resources=dynamics.mask_resources,
        window_skips_capped=dynamics.window_skips_capped,
        auto_advance=dynamics.auto_advance,
        exact_finish=dynamics.exact_finish,
        load_by_sum=dynamics.load_by_sum,
        fit_online=config.estimate.kind == "fitted",
        refresh_whole_mask=dynamics.mask_resources and (single_server or dynamics.placement == "least_loaded_single"),
    )
    for name, value in values.items():
        rules[name] = value
    return rules
