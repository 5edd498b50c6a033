"""The kernels agree with the plain-Python reference simulator on random clusters, jobs, rules and actions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    ObservationConfig,
    ServerGroup,
    TypeEncoding,
    WorkloadConfig,
)
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload.jobs import Workload
from tests.reference import ReferenceSimulator
from tests.reference.estimate import exact_estimate
from tests.sim.random_cases import random_action, random_config, random_parameters, random_workload

NUM_ENVS = 3
MAX_STEPS = 250
EXACT = 1e-9
FLOAT32 = 1e-5
REWARD_TERMS = ("progress", "jct", "ideal_progress", "speed_gain")


class Comparison:
    """Compares named values and says where they differ."""

    def __init__(self, where: str) -> None:
        self.where = where

    def same(self, name: str, actual: Any, expected: Any) -> None:
        assert actual == expected, f"{name}: {actual}, reference {expected}; {self.where}"

    def close(self, name: str, actual: Any, expected: Any, tolerance: float = EXACT) -> None:
        np.testing.assert_allclose(
            actual, expected, rtol=tolerance, atol=tolerance, err_msg=f"{name}; {self.where}", equal_nan=True
        )


def compare_states(sim: ClusterSimulator, b: int, reference: ReferenceSimulator, compare: Comparison) -> None:
    """Everything a decision can depend on; of a finished episode, only what became of its jobs."""
    jobs = sim.state.jobs[b, : len(reference.jobs)]
    records = sim.records(b)
    compare.same("interval", records.num_intervals, reference.interval)
    compare.close("finish_s", records.finish_s, reference.finish_times())
    compare.close("start_s", records.start_s, [job.start_s for job in reference.jobs])
    compare.close("epochs_done", records.epochs_done, [job.epochs_done for job in reference.jobs])
    compare.same("intervals_run", records.intervals_run.tolist(), [job.intervals_run for job in reference.jobs])
    if reference.is_over:
        return

    window = sim.state.window[b, : int(sim.state.env[b]["window_size"])]
    compare.same("window", window.tolist(), [job.index for job in reference.window])
    active = [job.index for job in reference.active]
    allocations = [(int(job["workers"]), int(job["ps"])) for job in jobs[active]]
    compare.same("allocations", allocations, [reference.allocations()[i] for i in active])
    placements = [
        {int(e["server"]): (int(e["workers"]), int(e["ps"])) for e in sim.state.entries[b, i, : jobs[i]["num_entries"]]}
        for i in active
    ]
    compare.same("placements", placements, [reference.placements()[i] for i in active])
    compare.same("mask", sim.action_masks()[b].tolist(), reference.mask())

    servers = reference.cluster.servers
    free = sim.state.servers[b]
    compare.same("free CPUs", free["free_cpus"].tolist(), [server.cpus - server.used_cpus for server in servers])
    compare.same("free GPUs", free["free_gpus"].tolist(), [server.gpus - server.used_gpus for server in servers])

    links = reference.links()
    best_speed = sim.state.best_speed[b if len(sim.state.best_speed) > 1 else 0]
    compare.close("best speed", best_speed, reference.estimated_speed.best)
    compare.close("stretch", jobs["stretch"][active], [links.job_stretch(job) for job in reference.active])
    compare.close("speed", jobs["speed"][active], np.array(reference.estimated_speeds())[active])
    compare.close("relative speed", jobs["relative_speed"][active], np.array(reference.relative_speeds())[active])
    compare.same("on network", jobs["is_on_network"][active].tolist(), [job.is_on_network for job in reference.active])
    expected = reference.observation()
    actual = sim.observation()
    compare.close("observation of jobs", actual["jobs"][b], expected["jobs"], FLOAT32)
    compare.close("observation of the cluster", actual["cluster"][b], expected["cluster"], FLOAT32)


def compare_random_rules(seed: int, faithful: bool) -> None:
    """Random rules, servers and job types."""
    rng = np.random.default_rng(seed)
    config = random_config(rng, faithful)
    parameters = random_parameters(rng, config)
    compare_episodes(rng, ClusterSimulator(config, NUM_ENVS, speed=parameters))


def compare_episodes(rng: np.random.Generator, sim: ClusterSimulator) -> None:
    """Runs random workloads beside their references, with random legal and illegal actions."""
    config, parameters = sim.config, sim.speed
    estimate = exact_estimate(config, parameters)
    best_speed = sim.state.best_speed[0] if config.estimate.kind == "exact" else np.full(len(parameters.types), 20.0)
    workloads = [random_workload(rng, config, parameters, best_speed) for _ in range(NUM_ENVS)]
    sim.load(range(NUM_ENVS), workloads)
    references = []
    for b, workload in enumerate(workloads):
        known = sim.state.estimate[b if len(sim.state.estimate) > 1 else 0]
        if config.estimate.kind == "exact":
            Comparison(f"{config}").close("estimate", known, estimate)
        references.append(ReferenceSimulator(config, parameters, known, workload, sim.state.type_features))
        compare_states(sim, b, references[b], Comparison(f"environment {b} after load, {config}"))

    void_share, illegal_share = rng.choice([0.0, 0.01, 0.1]), rng.choice([0.0, 0.01, 0.1])
    for number in range(MAX_STEPS):
        actions = [random_action(rng, reference.mask(), void_share, illegal_share) for reference in references]
        was_over = [reference.is_over for reference in references]
        report = sim.step(actions)
        for b, reference in enumerate(references):
            compare = Comparison(f"environment {b}, step {number}, action {actions[b]}, {config}")
            terms = report.reward_terms[b].tolist()
            flags = [bool(field[b]) for field in report[1:]]
            if was_over[b]:
                compare.same("report of a finished environment", (any(terms), any(flags)), (False, False))
                continue
            interval = reference.interval
            expected = reference.step(actions[b])
            compare.same("flags", flags, [getattr(expected, name) for name in report._fields[1:]])
            if config.estimate.kind == "fitted":
                # The reference does not fit; it takes over what the simulator has learnt after each step. Progress in
                # units of the best speed is thus known only when the step ended one interval at most.
                if reference.interval > interval + 1:
                    expected.reward_terms["ideal_progress"] = terms[REWARD_TERMS.index("ideal_progress")]
                reference.learn(sim.state.estimate[b])
            compare.close("reward terms", terms, [expected.reward_terms[name] for name in REWARD_TERMS])
            compare_states(sim, b, reference, compare)
        if all(reference.is_over for reference in references):
            break


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_kernels_agree_under_any_rules(seed: int) -> None:
    compare_random_rules(seed, faithful=False)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_kernels_agree_under_released_rules(seed: int) -> None:
    compare_random_rules(seed, faithful=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_kernels_agree_at_length(seed: int) -> None:
    compare_random_rules(seed, faithful=seed % 4 == 0)


def test_random_cases_reach_what_they_are_meant_to_check() -> None:
    seen: Counter[str] = Counter()
    for seed in range(24):
        rng = np.random.default_rng(seed)
        config = random_config(rng, faithful=False)
        parameters = random_parameters(rng, config)
        estimate = exact_estimate(config, parameters)
        workload = random_workload(rng, config, parameters, np.full(len(parameters.types), 20.0))
        sim = ReferenceSimulator(config, parameters, estimate, workload)
        for _ in range(100):
            if sim.is_over:
                break
            mask = sim.mask()
            action = random_action(rng, mask, 0.02, 0.02)
            result = sim.step(action)
            stretches = [sim.links().job_stretch(job) for job in sim.active]
            seen["contention"] += any(stretch > 1.0 for stretch in stretches)
            seen["no contention"] += any(job.is_on_network for job in sim.active) and max(stretches) == 1.0
            seen["masked action"] += not mask[action]
            seen["failed placement"] += mask[action] and result.is_illegal
            seen["job outside the window"] += len(sim.active) > len(sim.window)
            seen["capped job"] += any(job.is_capped for job in sim.active)
            seen["terminated"] += result.terminated
            seen["truncated"] += result.truncated
            seen["mixed GPUs"] += any(
                len({sim.cluster.servers[server].gpu_kind for server in job.tasks}) > 1 for job in sim.active
            )
    rare = {name: count for name, count in seen.items() if count < 3}
    assert not rare, f"{dict(seen)}"


@pytest.mark.parametrize("encoding", ["one_hot", "features", "both"])
@pytest.mark.parametrize("job_types", ["dl2", "pai"])
def test_kernels_agree_on_shipped_job_types(job_types: str, encoding: TypeEncoding) -> None:
    config = EnvConfig(
        cluster=ClusterConfig(servers=(ServerGroup(6, cpus=32, gpus=8),), link_sharing=0.5, pcie_group=4),
        workload=WorkloadConfig(job_types=job_types, num_jobs=12, max_workers=5, max_ps=4),
        observation=ObservationConfig(window=5, type_encoding=encoding),
    )
    compare_episodes(np.random.default_rng(len(encoding)), ClusterSimulator(config, NUM_ENVS))


def test_idle_gap_ends_at_the_admitting_interval() -> None:
    interval_s = 86.4  # 3 * 86.4 / 86.4 > 3 in floating point
    sim = ClusterSimulator(EnvConfig(dynamics=DynamicsConfig(interval_s=interval_s)), 1)
    one = np.ones(1)
    sim.load([0], [Workload(3 * interval_s * one, np.zeros(1, np.int32), one, one, one, sim.speed.type_names)])
    assert sim.records(0).num_intervals == 3
