"""Shortest remaining time first is optimal on one server that holds one rigid job: no schedule has a lower mean JCT."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.evaluation.invariants import check_records
from dl2env.evaluation.metrics import completion_times
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import ClusterView, configured
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers.worlds import parameters
from tests.theory.worlds import PAIR, RIGID, accepting, rigid_config, rigid_workload, run

INTERVAL_S = 10.0


def total_jct(name: str, arrival_s: NDArray[np.float64], service_s: NDArray[np.float64]) -> float:
    """Sum of job completion times under a scheduler; it must finish all jobs."""
    records = run(
        name, rigid_config(1, len(service_s), INTERVAL_S, max_intervals=500), rigid_workload(arrival_s, service_s)
    )
    assert np.isfinite(records.finish_s).all(), name
    return float(records.jct_s.sum())


def best_order(service_s: NDArray[np.float64]) -> float:
    """Least sum of JCTs over all orders of jobs that are there from the start.

    The server is released at an interval border, so a job's successor waits for its service rounded up.
    """
    held_s = np.ceil(service_s / INTERVAL_S) * INTERVAL_S
    best = np.inf
    for order in itertools.permutations(range(len(service_s))):
        chosen = list(order)
        begins_s = np.concatenate([[0.0], np.cumsum(held_s[chosen])[:-1]])
        best = min(best, float((begins_s + service_s[chosen]).sum()))
    return best


class Exhaustive:
    """The best that any sequence of decisions achieves, by trying all of them on the simulator itself."""

    def __init__(self, arrival_s: NDArray[np.float64], service_s: NDArray[np.float64]) -> None:
        config = rigid_config(1, len(service_s), INTERVAL_S, max_intervals=40)
        self._sim = ClusterSimulator(config, 1, speed=parameters([RIGID]))
        self._sim.load([0], [rigid_workload(arrival_s, service_s)])
        self._known: dict[tuple[int, tuple[float, ...]], float] = {}
        self.num_states = 0

    def least(self) -> float:
        """Least sum of JCTs from here on, in seconds; jobs that never finish count as infinite."""
        sim = self._sim
        if sim.is_done[0]:
            return 0.0 if np.isfinite(sim.records(0).finish_s).all() else np.inf
        key = (int(sim.state.env["interval"][0]), tuple(sim.state.jobs["epochs_done"][0].round(6).tolist()))
        if key in self._known:
            return self._known[key]
        self.num_states += 1
        here = sim.snapshot()
        best = np.inf
        # Every legal job action fills the server and so ends the interval. Leaving it idle for an interval is also
        # tried, but only so often that the search ends.
        for action in np.flatnonzero(sim.action_masks()[0]).tolist():
            if action == sim.num_actions - 1 and key[0] >= 12:
                continue
            paid_s = -float(sim.step([action]).reward_terms[0, 1]) * INTERVAL_S
            best = min(best, paid_s + self.least())
            sim.restore(here)
        self._known[key] = best
        return best


@pytest.mark.parametrize("seed", range(12))
def test_no_order_beats_srtf_when_all_jobs_are_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    service_s = rng.uniform(2.0, 80.0, int(rng.integers(2, 7)))
    if seed % 2:
        service_s = np.ceil(service_s / INTERVAL_S) * INTERVAL_S
    assert total_jct("srtf", np.zeros(len(service_s)), service_s) == pytest.approx(best_order(service_s), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_no_preemptive_schedule_beats_srtf_with_arrivals(seed: int) -> None:
    # Whole intervals, or a job's unused rest of an interval would be a second objective.
    rng = np.random.default_rng([seed, 1])
    num_jobs = int(rng.integers(3, 5))
    arrival_s = np.sort(rng.integers(0, 7, num_jobs)) * INTERVAL_S
    service_s = rng.integers(1, 5, num_jobs) * INTERVAL_S
    search = Exhaustive(arrival_s, service_s)
    least = search.least()
    assert search.num_states > 10 and np.isfinite(least)
    assert total_jct("srtf", arrival_s, service_s) == pytest.approx(least, rel=1e-12)


def test_preemption_is_what_makes_the_difference() -> None:
    # A long job is interrupted by two short ones: 10 + 20 s instead of waiting 80 s for it.
    arrival_s, service_s = np.array([0.0, 20.0, 20.0]), np.array([100.0, 10.0, 10.0])
    assert total_jct("srtf", arrival_s, service_s) == (100.0 + 20.0) + 10.0 + 20.0
    assert total_jct("fifo", arrival_s, service_s) == 100.0 + 90.0 + 100.0
    assert Exhaustive(arrival_s, service_s).least() == 150.0


def test_the_search_sees_that_greed_fails_without_the_rest_of_an_interval() -> None:
    # Services that do not fill intervals: the search may find better than SRTF, never worse.
    rng = np.random.default_rng(3)
    for _ in range(5):
        arrival_s, service_s = np.sort(rng.uniform(0.0, 50.0, 3)), rng.uniform(3.0, 40.0, 3)
        assert Exhaustive(arrival_s, service_s).least() <= total_jct("srtf", arrival_s, service_s) + 1e-9


WORLD = rigid_config(1, 8, INTERVAL_S, max_intervals=60, cpus=2)


def test_most_schedulers_are_meant_for_rigid_jobs() -> None:
    names = accepting(scheduler_names(), WORLD)
    assert {"srtf", "fifo", "drf", "optimus", "random", "tetris", "released-fifo"} <= set(names)
    assert len(names) >= len(scheduler_names()) - 1  # released Optimus reads a measured table


@pytest.mark.parametrize("name", accepting(scheduler_names(), WORLD))
def test_no_scheduler_beats_srtf(name: str) -> None:
    speed = parameters([PAIR])
    for seed in range(4):
        rng = np.random.default_rng([seed, 2])
        service_s = rng.integers(1, 7, 8) * INTERVAL_S
        arrival_s = np.sort(rng.integers(0, 20, 8)) * INTERVAL_S * (seed % 2)
        jobs = rigid_workload(arrival_s, service_s)
        shortest, records = run("srtf", WORLD, jobs, speed), run(name, WORLD, jobs, speed)
        check_records(records, jobs, configured(get_scheduler(name), WORLD))
        assert np.isfinite(shortest.finish_s).all()
        # Jobs that a scheduler leaves unfinished count up to the limit.
        assert completion_times(shortest).sum() <= completion_times(records).sum() * (1 + 1e-12)
        assert name in ("random", "void") or np.isfinite(records.finish_s).all()


def test_the_searched_actions_are_all_there_are() -> None:
    sim = ClusterSimulator(rigid_config(1, 3, INTERVAL_S), 1, speed=parameters([RIGID]))
    sim.load([0], [rigid_workload(np.zeros(3), np.full(3, 20.0))])
    view = ClusterView(sim)
    assert np.flatnonzero(sim.action_masks()[0]).tolist() == [0, 3, 6, 9]  # a worker for one of the jobs, or void
    assert sim.step(get_scheduler("srtf").act(sim.observation(), sim.action_masks(), view)).interval_ended[0]
