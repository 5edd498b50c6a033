"""Records of an episode: what must hold in them, and that it is noticed when it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dl2env.evaluation.invariants import InvariantError, check_records
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from dl2env.workload.jobs import Workload
from tests.evaluation.invariant_worlds import JOBS, corrupt, rich_world
from tests.schedulers.worlds import answers, workload


def finished_records(max_intervals: int = 40) -> tuple[JobRecords, Workload, ClusterSimulator]:
    sim = rich_world(max_intervals=max_intervals)
    while not sim.is_done[0]:
        sim.step(answers(get_scheduler("drf"), sim))
    return sim.records(0), workload(sim, JOBS, noise_key=3), sim


@pytest.mark.parametrize("max_intervals", [40, 2, 1])
def test_records_of_a_whole_and_a_truncated_episode_pass(max_intervals: int) -> None:
    records, jobs, sim = finished_records(max_intervals)
    assert np.isnan(records.finish_s).any() == (max_intervals < 40)
    check_records(records, jobs)
    check_records(records, jobs, sim.config)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(JobRecords)])
def test_a_wrong_record_is_noticed(field: str) -> None:
    records, jobs, sim = finished_records()
    value = getattr(records, field)
    if isinstance(value, np.ndarray):
        wrong: Any = value.copy()
        corrupt(wrong, (1,), None)
        wrong[1] += wrong.dtype.type(10 if field in ("finish_s", "intervals_run", "num_resizes") else 0) * 100
    else:
        wrong = -1 if field == "num_decisions" else 2.5 * value + 1.5 if field != "num_intervals" else value + 1
    with pytest.raises(InvariantError, match="environment 7"):
        check_records(dataclasses.replace(records, **{field: wrong}), jobs, sim.config, env=7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda r: {"start_s": r.arrival_s - 1.0}, "'times'.*job 0: start >= arrival"),
        (lambda r: {"finish_s": r.arrival_s, "start_s": r.arrival_s}, "'times'.*job 0: JCT > 0"),
        (lambda r: {"finish_s": r.start_s - 1.0}, "'times'.*finish >= start"),
        (lambda r: {"epochs_done": r.epochs_done * 0.5}, "'work'.*job 0: a job has finished exactly if"),
        (lambda r: {"epochs_done": r.epochs_done * 2.0}, "'work'.*0 <= epochs_done <= true_epochs"),
        (lambda r: {"finish_s": r.finish_s[:-1]}, "'jobs'.*entries of finish_s is 5, not 6"),
        (lambda r: {"used_cpu_s": 1e9}, "'capacity'"),
        (lambda r: {"end_s": r.end_s + 100.0, "num_intervals": r.num_intervals + 1}, "'time'.*last job finished"),
    ],
)
def test_what_is_wrong_with_records_is_said(changes: Callable[[JobRecords], dict[str, Any]], message: str) -> None:
    records, jobs, sim = finished_records()
    with pytest.raises(InvariantError, match=message):
        check_records(dataclasses.replace(records, **changes(records)), jobs, sim.config)


def test_records_of_an_episode_that_stopped_early_are_noticed() -> None:
    sim = rich_world()
    sim.step([sim.num_actions - 1])
    jobs = workload(sim, JOBS, noise_key=3)
    check_records(sim.records(0), jobs)
    with pytest.raises(InvariantError, match="'jobs'.*intervals of an episode with unfinished jobs is 1, not 40"):
        check_records(sim.records(0), jobs, sim.config)
