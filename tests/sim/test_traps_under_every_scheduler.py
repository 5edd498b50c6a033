"""Worlds that trip schedulers up, played by every registered scheduler while the invariant checker watches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dl2env.evaluation.invariants import InvariantChecker, check_records
from dl2env.evaluation.metrics import EpisodeMetrics, IsolatedSpeeds, episode_metrics
from dl2env.evaluation.runner import evaluate
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import ClusterView, configured
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from tests.evaluation.fakes import small_scenario
from tests.schedulers.worlds import INTERVAL_S, Job, Type, workload, world
from tests.theory.worlds import accepting

STEADY = Type(fixed_s=1.0, caps=(2, 2))  # one sample per second, however many tasks
FASTER = Type(compute_s=1.0, caps=(16, 16))  # w samples per second with w workers


@dataclass(frozen=True)
class Trap:
    """A world; `finishes` says whether a scheduler that does anything at all must finish all jobs."""

    jobs: Sequence[Job]
    servers: Sequence[tuple[int, int]]
    types: Sequence[Type] = (STEADY,)
    max_intervals: int = 30
    finishes: bool = True
    rules: dict[str, Any] = field(default_factory=dict)


TRAPS = {
    "one job": Trap([Job(samples=150.0)], [(8, 4)]),
    "one job that comes late": Trap([Job(samples=150.0, arrival_s=1234.5)], [(8, 4)]),
    "all at time zero": Trap([Job(samples=50.0 * (i + 1)) for i in range(4)], [(4, 2)] * 2),
    "an idle gap": Trap([Job(samples=50.0), Job(samples=50.0, arrival_s=1e4)], [(8, 4)], max_intervals=110),
    "an idle gap without skipping": Trap(
        [Job(samples=50.0), Job(samples=50.0, arrival_s=2e3)],
        [(8, 4)],
        max_intervals=25,
        rules={"auto_advance": False},
    ),
    "servers without GPUs": Trap([Job(samples=80.0)] * 3, [(64, 0), (2, 1), (64, 0), (2, 1)]),
    "no server holds a bundle": Trap([Job(samples=80.0)] * 2, [(4, 0), (1, 1)], [Type(ps=(2, 0), fixed_s=1.0)]),
    "a job that could use more than the cluster": Trap([Job(samples=400.0)], [(4, 2)], [FASTER]),
    "identical jobs at once": Trap([Job(samples=100.0)] * 24, [(4, 2)] * 2),
    "overload": Trap(
        [Job(samples=1000.0, arrival_s=50.0 * i) for i in range(30)], [(2, 1)], max_intervals=20, finishes=False
    ),
    "a job too long for the episode": Trap([Job(samples=1e9), Job(samples=10.0)], [(8, 4)], finishes=False),
    "work that ends with an interval": Trap([Job(samples=INTERVAL_S)] * 2, [(4, 2)]),
}
NAMES = [name for name in accepting(scheduler_names(), world([STEADY], [Job()], [(8, 4)]).config)]
IDLE = ("void", "random")  # do nothing without initial bundles, or not for long


def play(name: str, trap: Trap) -> tuple[JobRecords, EpisodeMetrics]:
    plain = world(trap.types, trap.jobs, trap.servers, max_intervals=trap.max_intervals, **trap.rules)
    scheduler = get_scheduler(name)
    sim = ClusterSimulator(configured(scheduler, plain.config), 1, speed=plain.speed)
    jobs, view = workload(sim, trap.jobs), ClusterView(sim)
    with InvariantChecker(sim, every=25):
        sim.load([0], [jobs])
        for _ in range(5000):
            if sim.is_done[0]:
                break
            sim.step(scheduler.act(sim.observation(), sim.action_masks(), view))
    assert sim.is_done[0], "5000 decisions and no end"
    records = sim.records(0)
    check_records(records, jobs, sim.config)
    capacity = (float(sum(c for c, _ in trap.servers)), float(sum(g for _, g in trap.servers)))
    return records, episode_metrics(
        records, jobs, IsolatedSpeeds.of(sim), capacity=capacity, interval_s=sim.config.dynamics.interval_s
    )


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", NAMES)
def test_traps(name: str, trap: str) -> None:
    records, metrics = play(name, TRAPS[trap])
    finished = np.isfinite(records.finish_s)
    assert metrics.num_jobs == len(TRAPS[trap].jobs)
    assert metrics.num_unfinished == (~finished).sum()
    gives_up = name in IDLE or (name.startswith("released") and trap == "no server holds a bundle")  # all they give
    assert metrics.num_unfinished == 0 or gives_up or not TRAPS[trap].finishes
    if not TRAPS[trap].finishes:  # truncated and counted: the time so far at least, no job left out
        assert records.num_intervals == TRAPS[trap].max_intervals and metrics.num_unfinished > 0
        seen_s = np.where(finished, records.finish_s, records.end_s) - records.arrival_s
        assert metrics.mean_jct_s >= np.maximum(seen_s, 0.0).mean() * (1 - 1e-12)


def test_most_schedulers_are_tried() -> None:
    assert {"drf", "fifo", "srtf", "tetris", "optimus", "random", "void", "marginal"} <= set(NAMES)


def test_a_policy_that_does_less_cannot_look_better_in_overload() -> None:
    trap = TRAPS["overload"]
    idle = play("void", trap)[1]
    for name in ("fifo", "srtf", "drf"):
        busy = play(name, trap)[1]
        assert busy.mean_jct_s < idle.mean_jct_s and busy.num_unfinished < idle.num_unfinished == 30


def test_an_overloaded_episode_is_truncated_and_its_jobs_are_counted() -> None:
    # Ten jobs of 150 s for one server that serves one at a time, each for two intervals of 100 s: after 5 intervals
    # jobs 0 and 1 are done (at 150 and 350 s), job 2 has trained 100 s, seven have never started.
    trap = Trap([Job(samples=150.0)] * 10, [(2, 1)], [Type(fixed_s=1.0, caps=(1, 1))], max_intervals=5)
    records, metrics = play("fifo", trap)
    assert records.finish_s[:2].tolist() == [150.0, 350.0] and np.isnan(records.finish_s[2:]).all()
    assert records.epochs_done.tolist() == [150.0, 150.0, 100.0] + [0.0] * 7
    assert (metrics.num_jobs, metrics.num_unfinished, metrics.num_intervals) == (10, 8, 5)
    assert metrics.mean_jct_s >= (150.0 + 350.0 + 8 * 500.0) / 10  # no less than the time so far
    assert records.used_gpu_s == 5 * 100.0 and metrics.gpu_utilisation == 1.0


def test_halving_the_interval_keeps_the_time_and_frees_the_server_sooner() -> None:
    # One job of 150 s: held for 200 s with intervals of 100 s, for exactly its 150 s with intervals of 50 s.
    for interval_s, held_s in ((100.0, 200.0), (50.0, 150.0), (25.0, 150.0)):
        trap = Trap([Job(samples=150.0)], [(2, 1)], [Type(fixed_s=1.0, caps=(1, 1))], rules={"interval_s": interval_s})
        records, metrics = play("fifo", trap)
        assert records.jct_s.tolist() == [150.0] and metrics.makespan_s == 150.0
        assert records.used_gpu_s == held_s and metrics.gpu_utilisation == 1.0


def test_a_scheduler_that_draws_numbers_leaves_the_workloads_of_the_others_alone() -> None:
    scenario = small_scenario(**{"dynamics.speed_noise": 0.3})
    alone = evaluate([get_scheduler("fifo")], scenario, num_workloads=4)
    after = evaluate([get_scheduler("random", seed=9), get_scheduler("fifo")], scenario, num_workloads=4)
    assert [w.digest() for w in alone.workloads] == [w.digest() for w in after.workloads]
    assert alone.results["fifo"].metrics == after.results["fifo"].metrics
    for random, fifo in zip(after.results["random"].records, after.results["fifo"].records, strict=True):
        for name in ("arrival_s", "type_idx", "epochs", "samples_per_epoch"):
            np.testing.assert_array_equal(getattr(random, name), getattr(fifo, name))
