"""Lower bounds of JCT: right on cases worked out by hand, and never above what any scheduler reaches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.evaluation.bounds import BoundCalculator, JctBound, srpt_total_s
from dl2env.evaluation.metrics import completion_times
from dl2env.evaluation.runner import evaluate
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload.jobs import Workload
from tests.schedulers.worlds import Job, Type, random_world, workload, world


def bound_of(sim: ClusterSimulator, jobs: Sequence[Job], noise_key: int = 0) -> JctBound:
    return BoundCalculator(sim.config, sim.speed).bound(workload(sim, jobs, noise_key))


def test_a_job_alone_at_its_best_allocation() -> None:
    # 8 / w + w seconds a step: best at 3 workers, 8 / 3 + 3; 30 steps. It waits 40 s for the second interval.
    jobs = [Job(samples=30.0, arrival_s=60.0)]
    sim = world([Type(compute_s=8.0, worker_cost_s=1.0, caps=(4, 1))], jobs, [(8, 8)])
    assert bound_of(sim, jobs).alone_s == pytest.approx(40.0 + 30.0 * (8.0 / 3.0 + 3.0))


def test_traffic_over_ethernet_does_not_count() -> None:
    jobs = [Job(samples=30.0)]
    sim = world([Type(fixed_s=1.0, ethernet_s=5.0, caps=(1, 1))], jobs, [(8, 8)])
    assert bound_of(sim, jobs).alone_s == pytest.approx(30.0)


def test_noise_counts_as_it_will_be() -> None:
    jobs = [Job(samples=250.0)]
    sim = world([Type(fixed_s=1.0, caps=(1, 1))], jobs, [(8, 8)], speed_noise=0.5)
    for key in range(5):
        sim.load([0], [workload(sim, jobs, key)])
        get_scheduler("fifo").run_intervals(sim, 20)  # type: ignore[attr-defined]
        assert bound_of(sim, jobs, key).alone_s == pytest.approx(sim.records(0).jct_s[0])


def test_jobs_share_the_units_of_the_cluster() -> None:
    # Each job needs 100 GPU seconds (its second worker brings nothing), there is one GPU.
    jobs = [Job(samples=100.0)] * 3
    sim = world([Type(fixed_s=1.0, worker=(0, 1), ps=(0, 0), caps=(1, 1))], jobs, [(1, 1)])
    assert bound_of(sim, jobs).area_s == pytest.approx((100.0 + 200.0 + 300.0) / 3)
    assert bound_of(sim, jobs).mean_jct_s == pytest.approx(200.0)


def test_no_scheduler_beats_it() -> None:
    compared = 0
    for seed in range(30):
        _, sim = random_world(seed, is_wide=True, max_intervals=500)
        calculator = BoundCalculator(sim.config, sim.speed)
        bounds = [calculator.bound(loaded(sim, b)) for b in range(sim.num_envs)]
        for name in ("drf", "optimus", "marginal", "srtf"):
            _, sim = random_world(seed, is_wide=True, max_intervals=500)
            get_scheduler(name).run_intervals(sim, 500)  # type: ignore[attr-defined]
            for b, bound in enumerate(bounds):
                records = sim.records(b)
                if np.isfinite(records.finish_s).all():
                    compared += 1
                    assert completion_times(records).mean() >= bound.mean_jct_s * (1 - 1e-9), (seed, name)
    assert compared > 100


def loaded(sim: ClusterSimulator, b: int) -> Workload:
    """The workload an environment plays."""
    jobs = sim.state.jobs[b, : int(sim.state.env["num_jobs"][b])]
    return Workload(
        arrival_s=jobs["arrival_s"].copy(),
        type_idx=jobs["type"].astype(np.int32),
        epochs=jobs["epochs"].copy(),
        true_epochs=jobs["true_epochs"].copy(),
        samples_per_epoch=jobs["samples_per_epoch"].copy(),
        type_names=sim.speed.type_names,
        noise_key=int(sim.state.env["noise_key"][b]),
    )


def test_the_small_scenario_leaves_little_room() -> None:
    scenario = get_scenario("dl2-small-v1")
    calculator = BoundCalculator(scenario.config)
    bounds = [calculator.bound(w).mean_jct_s for w in scenario.workloads("validation", 4)]
    reached = evaluate([get_scheduler("marginal")], scenario, "validation", 4).results["marginal"].values("mean_jct_s")
    assert (np.array(bounds) < reached).all() and np.mean(bounds) > 0.5 * np.mean(reached)


jobs_to_order = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=5)


@given(jobs_to_order)
def test_shortest_remaining_time_first_is_optimal(jobs: list[tuple[int, int]]) -> None:
    release = np.array([job[0] for job in jobs], dtype=float)
    need = np.array([job[1] for job in jobs], dtype=float)
    # Some optimal preemptive schedule follows a fixed priority order of the jobs, changed only at unit steps.
    best = min(_total_by_priority(jobs, order) for order in itertools.permutations(range(len(jobs))))
    assert srpt_total_s(release, need) <= best + 1e-9


def _total_by_priority(jobs: list[tuple[int, int]], order: tuple[int, ...]) -> float:
    left = [job[1] for job in jobs]
    now, total = 0, 0.0
    while any(left):
        ready = [i for i in order if left[i] and jobs[i][0] <= now]
        now += 1
        if ready:
            left[ready[0]] -= 1
            if not left[ready[0]]:
                total += now - jobs[ready[0]][0]
    return total


def test_shortest_remaining_time_first_by_hand() -> None:
    # Served 0-2, the second 2-3, then the first 3-6 and the third 6-9.
    assert srpt_total_s(np.array([0.0, 2.0, 2.5]), np.array([5.0, 1.0, 3.0])) == pytest.approx(6.0 + 1.0 + 6.5)
    assert srpt_total_s(np.zeros(0), np.zeros(0)) == 0.0
