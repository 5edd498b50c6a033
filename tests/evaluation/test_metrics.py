"""Metrics against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.evaluation.metrics import (
    IsolatedSpeeds,
    completion_times,
    episode_metrics,
    mean_jobs_in_system,
)
from dl2env.sim.simulator import JobRecords
from dl2env.workload.jobs import Workload

INTERVAL_S = 100.0
CAPACITY = (8.0, 4.0)  # CPUs, GPUs

# One type with parameter servers (2 CPUs + 1 GPU per worker, 1 CPU per PS) and one without (1 CPU + 1 GPU per worker).
SPEEDS = IsolatedSpeeds(
    samples_per_s=np.array(
        [
            [[0.0, 0.0, 0.0], [0.0, 2.0, 3.0], [0.0, 2.5, 5.0]],
            [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]],
        ]
    ),
    worker_demand=np.array([[2.0, 1.0], [1.0, 1.0]]),
    ps_demand=np.array([[1.0, 0.0], [0.0, 0.0]]),
)


def make_workload() -> Workload:
    return Workload(
        arrival_s=np.array([0.0, 50.0, 150.0]),
        type_idx=np.array([0, 0, 1]),
        epochs=np.array([1.0, 99.0, 1.0]),  # schedulers' belief; must not matter
        true_epochs=np.array([2.0, 5.0, 3.0]),
        samples_per_epoch=np.array([100.0, 100.0, 50.0]),
        type_names=("a", "b"),
    )


def make_records(**changes: object) -> JobRecords:
    """Job 0 and 1 finish, job 2 trains from 200 s and is cut at 400 s."""
    records = JobRecords(
        arrival_s=np.array([0.0, 50.0, 150.0]),
        start_s=np.array([0.0, 100.0, 200.0]),
        finish_s=np.array([80.0, 300.0, np.nan]),
        type_idx=np.array([0, 0, 1], dtype=np.int16),
        epochs=np.array([1.0, 99.0, 1.0]),
        epochs_done=np.array([2.0, 5.0, 0.5]),
        samples_per_epoch=np.array([100.0, 100.0, 50.0]),
        gpu_s=np.zeros(3),
        num_resizes=np.array([0, 1, 3], dtype=np.int32),
        intervals_run=np.array([1, 2, 2], dtype=np.int32),
        num_intervals=4,
        end_s=400.0,
        used_cpu_s=800.0,
        used_gpu_s=1200.0,
        num_decisions=17,
        share_full=0.25,
    )
    return replace(records, **changes)  # type: ignore[arg-type]


def test_metrics_by_hand() -> None:
    metrics = episode_metrics(make_records(), make_workload(), SPEEDS, capacity=CAPACITY, interval_s=INTERVAL_S)
    assert metrics.num_jobs == 3
    assert metrics.num_unfinished == 1
    assert metrics.mean_jct_s == pytest.approx((80 + 250 + 250) / 3)  # the last one: 400 - 150, a lower bound
    assert metrics.mean_jct_intervals == pytest.approx((0.8 + 2.5 + 2.5) / 3)
    assert metrics.p50_jct_s == 250
    assert metrics.p90_jct_s == 250
    assert metrics.p99_jct_s == 250
    assert metrics.makespan_s == 400
    assert metrics.mean_queueing_s == pytest.approx((0 + 50 + 50) / 3)
    # Alone: 200 / 5 = 40 s, 500 / 5 = 100 s, 150 / 2 = 75 s.
    assert metrics.mean_slowdown == pytest.approx((80 / 40 + 250 / 100 + 250 / 75) / 3)
    assert metrics.gpu_utilisation == pytest.approx(1200 / (4 * 400))
    assert metrics.cpu_utilisation == pytest.approx(800 / (8 * 400))
    assert metrics.mean_resizes == pytest.approx(4 / 3)
    assert (metrics.num_decisions, metrics.num_intervals, metrics.share_full) == (17, 4, 0.25)


def test_finish_time_fairness_by_hand() -> None:
    # Jobs in the system: job 0 sees itself for 80 s and job 1 for 30 s, and so on.
    shares = mean_jobs_in_system(np.array([0.0, 50.0, 150.0]), np.array([80.0, 300.0, 400.0]))
    assert shares == pytest.approx([110 / 80, 430 / 250, 400 / 250])
    # Shares of 8 CPUs and 4 GPUs: job 0 (5.8, 2.9): 2 workers + 1 PS = 5 CPUs give 2.5, 1 worker + 2 PSs give 3, both
    # at 2 need 6. Job 1 (4.7, 2.3): 1 worker + 2 PSs = 4 CPUs give 3. Job 2 (5, 2.5): 2 workers give 2.
    metrics = episode_metrics(make_records(), make_workload(), SPEEDS, capacity=CAPACITY, interval_s=INTERVAL_S)
    rho = np.array([80 / (200 / 3), 250 / (500 / 3), 250 / (150 / 2)])
    assert metrics.mean_rho == pytest.approx(rho.mean())
    assert metrics.max_rho == pytest.approx(rho.max())


def test_the_smallest_allocation_is_always_within_the_share() -> None:
    speed = SPEEDS.best_within([0, 1], np.array([[0.1, 0.1], [0.1, 0.1]]))
    assert speed == pytest.approx([2.0, 1.0])
    assert SPEEDS.best_within([0, 1], np.array([[6.0, 2.0], [9.0, 9.0]])) == pytest.approx(SPEEDS.best([0, 1]))


def test_percentiles_interpolate() -> None:
    n = 101
    records = make_records(
        arrival_s=np.zeros(n),
        start_s=np.zeros(n),
        finish_s=np.arange(n, dtype=np.float64),
        num_resizes=np.zeros(n, dtype=np.int32),
    )
    workload = Workload(np.zeros(n), np.zeros(n), np.ones(n), np.ones(n), np.ones(n), ("a", "b"))
    metrics = episode_metrics(records, workload, SPEEDS, capacity=CAPACITY, interval_s=INTERVAL_S)
    assert (metrics.p50_jct_s, metrics.p90_jct_s, metrics.p99_jct_s) == pytest.approx((50.0, 90.0, 99.0))


def test_starving_a_job_never_improves_the_mean() -> None:
    """A job that never ran, and one that had not even arrived, stay in the mean."""
    records = make_records(
        start_s=np.array([0.0, np.nan, np.nan]), finish_s=np.array([80.0, np.nan, np.nan]), end_s=100.0
    )
    assert completion_times(records) == pytest.approx([80.0, 50.0, 0.0])
    metrics = episode_metrics(records, make_workload(), SPEEDS, capacity=CAPACITY, interval_s=INTERVAL_S)
    assert metrics.num_unfinished == 2
    assert metrics.mean_jct_s == pytest.approx(130 / 3)
    assert metrics.mean_queueing_s == pytest.approx(50 / 3)
    assert metrics.makespan_s == pytest.approx(150.0)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(1e-3, 1e4)), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_jobs_in_system_lie_between_one_and_all(jobs: list[tuple[float, float]]) -> None:
    arrival_s = np.array([a for a, _ in jobs])
    left_s = arrival_s + np.array([d for _, d in jobs])
    mean = mean_jobs_in_system(arrival_s, left_s)
    assert (mean >= 1 - 1e-6).all()
    assert (mean <= len(jobs) + 1e-6).all()
    # Little's law in the small: summing overlaps is symmetric.
    assert (mean * (left_s - arrival_s)).sum() == pytest.approx(
        sum(max(0.0, min(left_s[i], left_s[j]) - max(arrival_s[i], arrival_s[j]))
            for i in range(len(jobs)) for j in range(len(jobs)))
    )  # fmt: skip
