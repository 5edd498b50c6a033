"""Deciding whole intervals in one kernel call leads to exactly what deciding one action at a time leads to."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import ClusterView, IntervalScheduler
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from tests.schedulers.worlds import Job, Type, answers, random_world, world

RULES = [name for name in scheduler_names() if isinstance(get_scheduler(name), IntervalScheduler)]
MAX_INTERVALS = 60


def test_all_but_the_released_heuristics_decide_whole_intervals() -> None:
    assert set(scheduler_names()) - set(RULES) == {n for n in scheduler_names() if n.startswith("released-")}


def run_stepwise(scheduler: Any, sim: ClusterSimulator) -> list[int]:
    view = ClusterView(sim)
    num_illegal = np.zeros(sim.num_envs, int)
    while not sim.is_done.all():
        actions = scheduler.act(sim.observation(), sim.action_masks(), view)
        num_illegal += sim.step(actions).is_illegal
    return num_illegal.tolist()


def run_whole(scheduler: Any, sim: ClusterSimulator, num_intervals: int) -> list[int]:
    num_illegal = np.zeros(sim.num_envs, int)
    while not sim.is_done.all():
        num_illegal += scheduler.run_intervals(sim, num_intervals)
    return num_illegal.tolist()


def assert_same(one: JobRecords, other: JobRecords, where: str) -> None:
    for field in dataclasses.fields(one):
        x, y = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(x, y, equal_nan=isinstance(x, np.ndarray) and x.dtype.kind == "f"), (
            f"{where}: {field.name}"
        )


def assert_both_ways_agree(name: str, seed: int, **dynamics: Any) -> tuple[int, int]:
    """Returns numbers of decisions and of illegal actions."""
    rules = dict(max_intervals=MAX_INTERVALS, window_skips_capped=False) | dynamics
    worlds = [random_world(seed, is_wide=True, **rules)[1] for _ in range(2)]
    stepwise = run_stepwise(get_scheduler(name), worlds[0])
    whole = run_whole(get_scheduler(name), worlds[1], num_intervals=1 + seed % 7)
    assert stepwise == whole, f"{name}, seed {seed}"
    for b in range(worlds[0].num_envs):
        assert_same(worlds[0].records(b), worlds[1].records(b), f"{name}, seed {seed}, environment {b}")
    return int(worlds[0].state.env["num_decisions"].sum()), sum(stepwise)


@pytest.mark.parametrize("name", RULES)
def test_random_worlds(name: str) -> None:
    # All architectures, placements, estimates and switches of the dynamics.
    decisions = sum(assert_both_ways_agree(name, seed)[0] for seed in range(25))
    assert decisions > 500


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_many_random_worlds(name: str) -> None:
    for seed in range(100, 400):
        assert_both_ways_agree(name, seed)


@pytest.mark.parametrize("name", ["drf", "optimus", "tetris"])
def test_tasks_that_fail_end_the_interval_and_are_counted(name: str) -> None:
    # Without resources in the mask a rule answers with tasks that no server can hold.
    assert sum(assert_both_ways_agree(name, seed, mask_resources=False)[1] for seed in range(8)) > 0


def test_intervals_and_decisions_can_be_mixed() -> None:
    scheduler = get_scheduler("drf")
    sims = [random_world(11, is_wide=True, window_skips_capped=False, max_intervals=MAX_INTERVALS)[1] for _ in range(2)]
    run_stepwise(scheduler, sims[0])
    view = ClusterView(sims[1])
    while not sims[1].is_done.all():
        scheduler.run_intervals(sims[1], 2)  # type: ignore[attr-defined]
        for _ in range(5):
            sims[1].step(scheduler.act(sims[1].observation(), sims[1].action_masks(), view))
        if not sims[1].is_done.all():
            seen = sims[1].observation()
            assert all(np.isfinite(values).all() for values in seen.values())
    for b in range(sims[0].num_envs):
        one, other = (sim.records(b) for sim in sims)
        assert np.array_equal(one.finish_s, other.finish_s, equal_nan=True)


def test_a_thousand_equal_jobs_are_served_in_order_of_arrival() -> None:
    # Ties everywhere: 1000 jobs, room for 300 pairs.
    sims = [world([Type(fixed_s=1.0, caps=(2, 2))], [Job(samples=150.0)] * 1000, [(30, 15)] * 20) for _ in range(2)]
    run_stepwise(get_scheduler("drf"), sims[0])
    run_whole(get_scheduler("drf"), sims[1], 3)
    assert_same(sims[0].records(0), sims[1].records(0), "drf")
    assert (np.diff(sims[1].records(0).finish_s) >= 0).all()


def test_void_is_counted_where_there_was_a_choice() -> None:
    # Two servers of one GPU: the second interval offers nothing after both workers are placed.
    sim = world([Type(fixed_s=1.0, caps=(1, 1))], [Job(samples=150.0)], [(2, 1)])
    get_scheduler("drf").run_intervals(sim, 100)  # type: ignore[attr-defined]
    assert sim.records(0).num_decisions == 2 and sim.records(0).num_intervals == 2
    sim = world([Type(fixed_s=1.0, caps=(1, 1))], [Job(samples=150.0)], [(2, 1)], max_intervals=5)
    get_scheduler("void").run_intervals(sim, 100)  # type: ignore[attr-defined]
    assert sim.records(0).num_decisions == 5


def test_a_scheduler_serves_simulators_of_any_size() -> None:
    scheduler = get_scheduler("drf")
    for num_jobs in (1, 30, 2):
        sim = world([Type(fixed_s=1.0)], [Job(samples=50.0)] * num_jobs, [(8, 4)])
        answers(scheduler, sim)
        assert run_whole(scheduler, sim, 10) == [0]
        assert np.isfinite(sim.records(0).finish_s).all()
