"""Finish-time fairness (rho) of two jobs, by hand."""

from __future__ import annotations

import pytest

from dl2env.config import ClusterConfig, DynamicsConfig, EnvConfig, ObservationConfig, ServerGroup, WorkloadConfig
from dl2env.evaluation.metrics import EpisodeMetrics, IsolatedSpeeds, episode_metrics
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE
from tests.schedulers.worlds import Type, parameters
from tests.theory.worlds import rigid_workload

# One worker trains 1 sample/s, two train 2; nothing is lost in communication.
ELASTIC = Type(caps=(2, 0), compute_s=1.0, architecture=ALL_REDUCE)


def metrics_of(name: str, arrival_s: list[float], samples: list[float], max_intervals: int = 50) -> EpisodeMetrics:
    """Metrics on one server with 4 CPUs and 2 GPUs; intervals of 100 s."""
    config = EnvConfig(
        cluster=ClusterConfig((ServerGroup(1, 4, 2),)),
        workload=WorkloadConfig(num_jobs=len(samples), max_workers=2, max_ps=1),
        dynamics=DynamicsConfig(
            interval_s=100.0, max_intervals=max_intervals, initial_bundle=False, scaling_cost="none"
        ),
        observation=ObservationConfig(window=len(samples), type_encoding="one_hot"),
    )
    scheduler = get_scheduler(name)
    sim = ClusterSimulator(configured(scheduler, config), 1, speed=parameters([ELASTIC]))
    workload = rigid_workload(arrival_s, samples)
    sim.load([0], [workload])
    view = ClusterView(sim)
    while not sim.is_done[0]:
        sim.step(scheduler.act(sim.observation(), sim.action_masks(), view))
    return episode_metrics(sim.records(0), workload, IsolatedSpeeds.of(sim), capacity=(4.0, 2.0), interval_s=100.0)


def test_a_job_alone_has_a_rho_of_one() -> None:
    # 400 samples at 2/s: 200 s, as in its share, the whole cluster.
    metrics = metrics_of("fifo", [0.0], [400.0])
    assert (metrics.mean_jct_s, metrics.mean_rho, metrics.max_rho, metrics.mean_slowdown) == (200.0, 1.0, 1.0, 1.0)


def test_two_jobs_one_after_the_other() -> None:
    # A: 200 samples at 2/s, done at 100 s; two jobs were there; alone in half the cluster (1 GPU) it takes 200 s.
    # B waits 100 s, done at 200 s; 1.5 jobs on average; alone in 1.33 GPUs it gets one worker and takes 200 s.
    metrics = metrics_of("fifo", [0.0, 0.0], [200.0, 200.0])
    assert metrics.mean_jct_s == pytest.approx(150.0)
    assert (metrics.mean_rho, metrics.max_rho) == (pytest.approx((100 / 200 + 200 / 200) / 2), pytest.approx(1.0))


def test_two_jobs_side_by_side() -> None:
    # Each has one worker all the time, exactly its share: 200 s against 200 s.
    metrics = metrics_of("drf", [0.0, 0.0], [200.0, 200.0])
    assert metrics.mean_jct_s == pytest.approx(200.0)
    assert (metrics.mean_rho, metrics.max_rho) == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_short_job_that_waits_for_a_long_one_is_treated_unfairly() -> None:
    # A: 1000 samples, done at 500 s. B: 100 samples, waits 500 s, runs 50 s at 2/s. A had B beside it all its life:
    # n = 2, alone in half 1000 s, rho 0.5. B: (500 * 2 + 50) / 550 jobs, share 2 / 1.909 = 1.05 GPUs, alone 100 s.
    metrics = metrics_of("fifo", [0.0, 0.0], [1000.0, 100.0])
    assert metrics.mean_rho == pytest.approx((0.5 + 5.5) / 2) and metrics.max_rho == pytest.approx(5.5)
    # Fair sharing gives B its share at once: done at 100 s, rho 1; A one worker,
    # then two: 100 + 900 / 2 = 550 s.
    fair = metrics_of("drf", [0.0, 0.0], [1000.0, 100.0])
    share = 2.0 / ((100 * 2 + 450) / 550)  # of A: 1.69 GPUs, one worker
    assert share < 2 and fair.max_rho == pytest.approx(1.0) and fair.mean_rho == pytest.approx((1.0 + 0.55) / 2)


def test_later_arrivals_share_only_the_time_they_are_there() -> None:
    # A runs alone on both GPUs from 0 to 100 s (200 of 300 samples), B (100 samples) comes at 100 s.
    # FIFO: A done at 150 s; n = (100 * 1 + 50 * 2) / 150, 1.5 GPUs, one worker: 300 s, rho 0.5.
    # B waits for the border at 200 s, done at 250 s: JCT 150 s, n = (50 * 2 + 100) / 150, alone 100 s: rho 1.5.
    metrics = metrics_of("fifo", [0.0, 100.0], [300.0, 100.0])
    assert metrics.mean_jct_s == pytest.approx(150.0)
    assert (metrics.mean_rho, metrics.max_rho) == (pytest.approx(1.0), pytest.approx(1.5))
