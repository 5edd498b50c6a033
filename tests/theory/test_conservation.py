"""Under every registered scheduler: nothing is lost, every invariant holds, and Little's law is an identity."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.invariants import InvariantChecker, check_records, checked
from dl2env.evaluation.metrics import completion_times, mean_jobs_in_system
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import ClusterView, IntervalScheduler, configured
from dl2env.schedulers.released import released_config
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from dl2env.sim.state import REWARD_TERMS
from dl2env.speed.parameters import SpeedParameters
from dl2env.workload.jobs import Workload
from tests.evaluation.fakes import small_scenario
from tests.sim.random_cases import random_config, random_parameters, random_workload
from tests.theory.worlds import accepting

JCT = REWARD_TERMS.index("jct")


def random_case(name: str, seed: int) -> tuple[EnvConfig, SpeedParameters, NDArray[np.float64]]:
    """A random world that the scheduler is meant for: any rules, or the faithful mode for what insists on it."""
    for faithful in (False, True):
        rng = np.random.default_rng([seed, 11])
        config = random_config(rng, faithful)
        if faithful:
            config = released_config(config)
        dynamics = dataclasses.replace(config.dynamics, max_intervals=30)
        config = dataclasses.replace(config, dynamics=dynamics)
        try:
            config = configured(get_scheduler(name), config)
        except ConfigError:
            continue
        speed = random_parameters(rng, config)
        trained = speed.table[:, 1:, 1:]
        trained[trained == 0.0] = 1e-3  # some divide by measured speeds
        return config, speed, ClusterSimulator(config, 1, speed=speed).state.best_speed[0]
    raise AssertionError(f"{name} accepts no world")


@pytest.mark.parametrize("name", scheduler_names())
def test_every_scheduler_keeps_every_invariant(name: str) -> None:
    for seed in range(2):
        config, speed, best_speed = random_case(name, seed)
        rng = np.random.default_rng(seed)
        workloads = [random_workload(rng, config, speed, best_speed) for _ in range(2)]
        sim = ClusterSimulator(config, 2, speed=speed)
        scheduler, view = checked(get_scheduler(name), every=10), ClusterView(sim)
        waited = np.zeros(2)
        with InvariantChecker(sim, every=10):
            sim.load(range(2), workloads)
            for _ in range(5000):
                if sim.is_done.all():
                    break
                actions = scheduler.act(sim.observation(), sim.action_masks(), view)
                waited -= sim.step(actions).reward_terms[:, JCT]
        for b, workload in enumerate(workloads):
            records = sim.records(b)
            check_records(records, workload, config if sim.is_done[b] else None, env=b)
            if sim.is_done[b]:
                check_littles_law(records, float(waited[b]) * config.dynamics.interval_s)
        if isinstance(get_scheduler(name), IntervalScheduler) and name != "search":  # its cost is that of many runs
            check_whole_intervals(name, ClusterSimulator(config, 2, speed=speed), workloads, sim)


def check_whole_intervals(
    name: str, sim: ClusterSimulator, workloads: list[Workload], stepwise: ClusterSimulator
) -> None:
    """Invariants hold when a kernel takes all decisions, and the jobs finish when they did step by step."""
    scheduler = get_scheduler(name)
    assert isinstance(scheduler, IntervalScheduler)
    with InvariantChecker(sim):
        sim.load(range(2), workloads)
        scheduler.run_intervals(sim, 10_000)
    assert sim.is_done.all()
    for b, workload in enumerate(workloads):
        check_records(sim.records(b), workload, sim.config, env=b)
        if stepwise.is_done[b]:
            np.testing.assert_allclose(sim.records(b).finish_s, stepwise.records(b).finish_s, rtol=1e-9)


def check_littles_law(records: JobRecords, waited_s: float) -> None:
    """L = lambda W: the time average of the number of jobs in the system is the arrival rate times the mean JCT.

    L is taken from two places that know nothing of completion times: a sweep over arrivals and departures, and the sum
    of the simulator's `jct` rewards, which count the jobs interval by interval.
    """
    times_s = completion_times(records)
    seen = records.arrival_s < records.end_s
    rate, mean_s = seen.sum() / records.end_s, times_s[seen].mean()
    left_s = np.where(np.isnan(records.finish_s), records.end_s, records.finish_s)[seen]
    moments = np.unique(np.concatenate([records.arrival_s[seen], left_s]))
    middles = (moments[1:] + moments[:-1]) / 2
    present = (records.arrival_s[seen] <= middles[:, None]) & (left_s > middles[:, None])
    in_system = (present.sum(axis=1) * np.diff(moments)).sum() / records.end_s
    assert in_system == pytest.approx(rate * mean_s, rel=1e-9)
    # The reward leaves out jobs that came in the last interval of a truncated episode: they were never admitted.
    admitted = records.arrival_s <= (records.num_intervals - 1) * records.end_s / records.num_intervals
    assert waited_s == pytest.approx(times_s[admitted].sum(), rel=1e-9)


def test_littles_law_of_two_jobs_by_hand() -> None:
    # In the system from 0 to 100 s and from 50 to 250 s, of 300 s: L = 300 / 300, lambda = 2 / 300, W = 150 s.
    zeros = np.zeros(2)
    records = JobRecords(
        arrival_s=np.array([0.0, 50.0]),
        start_s=np.array([0.0, 100.0]),
        finish_s=np.array([100.0, 250.0]),
        type_idx=np.zeros(2, np.int16),
        epochs=zeros,
        epochs_done=zeros,
        samples_per_epoch=zeros,
        gpu_s=zeros,
        num_resizes=np.zeros(2, np.int32),
        intervals_run=np.ones(2, np.int32),
        num_intervals=3,
        end_s=300.0,
        used_cpu_s=0.0,
        used_gpu_s=0.0,
        num_decisions=1,
        share_full=0.0,
    )
    check_littles_law(records, 300.0)
    np.testing.assert_allclose(
        mean_jobs_in_system(records.arrival_s, records.finish_s), [(50 + 100) / 100, (50 * 2 + 150) / 200]
    )
    with pytest.raises(AssertionError):
        check_littles_law(dataclasses.replace(records, finish_s=records.finish_s + 1.0), 300.0)


@pytest.mark.parametrize("name", accepting(scheduler_names(), small_scenario().config))
def test_what_kernels_decide_alone_is_conserved_too(name: str) -> None:
    config, workloads = small_scenario().config, small_scenario().workloads("test", 2)
    result = run_scheduler(checked(get_scheduler(name), by_intervals=True), config, workloads)
    for workload, records, metrics in zip(workloads, result.records, result.metrics, strict=True):
        check_records(records, workload, config)
        done = np.isfinite(records.finish_s)
        assert done.sum() + metrics.num_unfinished == workload.num_jobs
        np.testing.assert_array_equal(records.epochs_done[done], workload.true_epochs[done])
        assert 0.0 < metrics.gpu_utilisation <= 1.0 and 0.0 < metrics.cpu_utilisation <= 1.0
    # The same as when every decision is asked for, and checked.
    if name != "search":  # its cost is that of many runs
        stepwise = run_scheduler(checked(get_scheduler(name), every=20), config, workloads)
        assert stepwise.metrics == result.metrics
