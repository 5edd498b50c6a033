"""The invariant checker watches schedulers in the worlds of the scenario suite, with few jobs."""

from __future__ import annotations

import pytest

from dl2env.evaluation.invariants import check_records, checked
from dl2env.evaluation.runner import run_scheduler
from dl2env.scenarios import Scenario, get_scenario
from dl2env.scenarios.suite import suite_names
from dl2env.schedulers import get_scheduler, scheduler_names
from tests.theory.worlds import accepting


def small(name: str, num_jobs: int) -> Scenario:
    """A scenario with few jobs, which arrive as often as in the scenario."""
    return get_scenario(name).derive({"workload.num_jobs": num_jobs}, name=name)


def play_checked(scenario: Scenario, scheduler: str, *, by_intervals: bool) -> None:
    workloads = scenario.workloads("test", 1)
    config = scenario.split_config("test")
    wrapped = checked(get_scheduler(scheduler), every=50, by_intervals=by_intervals)
    result = run_scheduler(wrapped, config, workloads)
    check_records(result.records[0], workloads[0], config)
    assert result.metrics[0].num_unfinished == 0 or scheduler in ("void", "random")


@pytest.mark.parametrize("name", suite_names())
def test_every_scenario(name: str) -> None:
    play_checked(small(name, 3), "optimus", by_intervals=False)
    play_checked(small(name, 3), "drf", by_intervals=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", suite_names())
def test_every_scheduler_in_every_scenario(name: str) -> None:
    scenario = small(name, 12)
    for scheduler in accepting(scheduler_names(), scenario.split_config("test")):
        play_checked(scenario, scheduler, by_intervals=True)
        if scheduler != "search":  # its cost is that of many runs
            play_checked(scenario, scheduler, by_intervals=False)
