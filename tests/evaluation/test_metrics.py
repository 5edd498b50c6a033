"""Metrics against values worked out by hand."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.errors import ConfigError
from dl2env.evaluation.metrics import (
    EpisodeMetrics,
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


def episode(
    records: JobRecords, workload: Workload | None = None, trim: tuple[float, float] = (0.0, 0.0)
) -> EpisodeMetrics:
    workload = workload or make_workload()
    return episode_metrics(records, workload, SPEEDS, capacity=CAPACITY, interval_s=INTERVAL_S, trim=trim)


def test_metrics_by_hand() -> None:
    metrics = episode(make_records())
    assert metrics.num_jobs == 3
    assert metrics.num_unfinished == 1
    # The last one was cut at 400 s with 125 of its 150 samples left, 62.5 s at its best: a lower bound.
    jct = np.array([80.0, 250.0, 312.5])
    assert metrics.mean_jct_s == pytest.approx(jct.mean())
    assert metrics.mean_jct_intervals == pytest.approx(jct.mean() / 100)
    assert metrics.p50_jct_s == 250
    assert metrics.p90_jct_s == pytest.approx(250 + 0.8 * 62.5)
    assert metrics.p95_jct_s == pytest.approx(250 + 0.9 * 62.5)
    assert metrics.p99_jct_s == pytest.approx(250 + 0.98 * 62.5)
    assert metrics.makespan_s == 462.5
    assert metrics.mean_queueing_s == pytest.approx((0 + 50 + 50) / 3)
    # Alone: 200 / 5 = 40 s, 500 / 5 = 100 s, 150 / 2 = 75 s.
    assert metrics.mean_slowdown == pytest.approx((80 / 40 + 250 / 100 + 312.5 / 75) / 3)
    assert metrics.mean_bounded_slowdown == metrics.mean_slowdown
    assert metrics.gpu_utilisation == pytest.approx(1200 / (4 * 400))
    assert metrics.cpu_utilisation == pytest.approx(800 / (8 * 400))
    assert metrics.gpu_hours == pytest.approx(1200 / 3600)
    # Work done: 200, 500 and 25 samples; alone 40 + 100 + 12.5 s.
    assert metrics.goodput == pytest.approx(152.5 / 462.5)
    # Most samples per GPU second: 3 with one worker and two PSs, 1 for the other type.
    assert metrics.gpu_efficiency == pytest.approx((200 / 3 + 500 / 3 + 25) / 1200)
    assert metrics.mean_resizes == pytest.approx(4 / 3)
    assert (metrics.num_decisions, metrics.num_intervals, metrics.share_full) == (17, 4, 0.25)


def test_pauses_by_hand() -> None:
    """Job 0 ends in its first interval, job 1 with its third, job 2 is cut; and one trained once in five."""
    assert episode(make_records()).mean_paused_intervals == 0
    records = make_records(intervals_run=np.array([1, 1, 2], dtype=np.int32))
    assert episode(records).mean_paused_intervals == pytest.approx(1 / 3)
    never = make_records(start_s=np.array([0.0, 100.0, np.nan]), intervals_run=np.array([1, 2, 0], dtype=np.int32))
    assert episode(never).mean_paused_intervals == 0


def test_bounded_slowdown_by_hand() -> None:
    """Alone 2 s and 100 s: the first counts as 10 s, and no ratio below 1 counts as better than 1."""
    workload = replace(make_workload(), true_epochs=np.array([0.1, 5.0, 3.0]))
    metrics = episode(make_records(), workload)
    assert metrics.mean_bounded_slowdown == pytest.approx((80 / 10 + 250 / 100 + 312.5 / 75) / 3)
    short = make_records(finish_s=np.array([1.0, 51.0, 151.0]), start_s=np.array([0.0, 50.0, 150.0]))
    assert episode(short).mean_bounded_slowdown == 1.0


def test_trimming_by_hand() -> None:
    """Averages without the first and the last of the three jobs; counts, resources and shares stay whole."""
    whole, middle = episode(make_records()), episode(make_records(), trim=(0.34, 0.34))
    assert (middle.mean_jct_s, middle.p99_jct_s, middle.mean_queueing_s) == (250.0, 250.0, 50.0)
    assert (middle.mean_slowdown, middle.mean_resizes) == (2.5, 1.0)
    assert middle.max_rho == pytest.approx(250 / (500 / 3))
    assert middle.unfair_share == 1.0
    for name in ("num_jobs", "num_unfinished", "makespan_s", "gpu_hours", "goodput", "gpu_efficiency"):
        assert getattr(middle, name) == getattr(whole, name)
    assert episode(make_records(), trim=(0.33, 0.33)) == whole  # a third of three jobs is not reached
    assert episode(make_records(), trim=(0.0, 0.9)).mean_jct_s == 80.0
    for trim in ((0.5, 0.5), (1.0, 0.0), (-0.1, 0.0), (float("nan"), 0.0)):
        with pytest.raises(ConfigError, match="trim"):
            episode(make_records(), trim=trim)


def test_finish_time_fairness_by_hand() -> None:
    # Jobs in the system: job 0 sees itself for 80 s and job 1 for 30 s, and so on.
    shares = mean_jobs_in_system(np.array([0.0, 50.0, 150.0]), np.array([80.0, 300.0, 400.0]))
    assert shares == pytest.approx([110 / 80, 430 / 250, 400 / 250])
    # Shares of 8 CPUs and 4 GPUs: job 0 (5.8, 2.9): 2 workers + 1 PS = 5 CPUs give 2.5, 1 worker + 2 PSs give 3, both
    # at 2 need 6. Job 1 (4.7, 2.3): 1 worker + 2 PSs = 4 CPUs give 3. Job 2 (5, 2.5): 2 workers give 2.
    metrics = episode(make_records())
    rho = np.array([80 / (200 / 3), 250 / (500 / 3), 312.5 / (150 / 2)])
    assert metrics.mean_rho == pytest.approx(rho.mean())
    assert metrics.max_rho == pytest.approx(rho.max())
    assert metrics.unfair_share == 1.0
    early = make_records(finish_s=np.array([40.0, 300.0, 390.0]))
    assert episode(early).unfair_share == pytest.approx(2 / 3)  # job 0 alone throughout: rho = 1


def test_the_smallest_allocation_is_always_within_the_share() -> None:
    speed = SPEEDS.best_within([0, 1], np.array([[0.1, 0.1], [0.1, 0.1]]))
    assert speed == pytest.approx([2.0, 1.0])
    assert SPEEDS.best_within([0, 1], np.array([[6.0, 2.0], [9.0, 9.0]])) == pytest.approx(SPEEDS.best([0, 1]))


def test_percentiles_interpolate() -> None:
    n = 101
    records = make_records(
        intervals_run=np.ones(n, dtype=np.int32),
        epochs_done=np.ones(n),
        arrival_s=np.zeros(n),
        start_s=np.zeros(n),
        finish_s=np.arange(n, dtype=np.float64),
        num_resizes=np.zeros(n, dtype=np.int32),
    )
    workload = Workload(np.zeros(n), np.zeros(n), np.ones(n), np.ones(n), np.ones(n), ("a", "b"))
    metrics = episode(records, workload)
    assert (metrics.p50_jct_s, metrics.p90_jct_s, metrics.p99_jct_s) == pytest.approx((50.0, 90.0, 99.0))


def test_starving_a_job_never_improves_the_mean() -> None:
    """A job that never ran, and one that had not even arrived, stay in the mean."""
    records = make_records(
        start_s=np.array([0.0, np.nan, np.nan]), finish_s=np.array([80.0, np.nan, np.nan]), end_s=100.0
    )
    assert completion_times(records) == pytest.approx([80.0, 50.0, 0.0])
    records = replace(records, epochs_done=np.array([2.0, 0.0, 0.0]))
    metrics = episode(records)
    assert metrics.num_unfinished == 2
    assert metrics.mean_jct_s == pytest.approx((80 + (50 + 100) + (0 + 75)) / 3)  # what is left takes 100 s and 75 s
    assert metrics.mean_queueing_s == pytest.approx(50 / 3)
    assert metrics.makespan_s == pytest.approx(225.0)
    assert metrics.mean_slowdown >= 1.0


def overlaps(arrival_s: np.ndarray, left_s: np.ndarray) -> np.ndarray:
    """Mean number of jobs in the system by adding up overlaps of all pairs: simple, O(N^2)."""
    overlap = np.minimum(left_s[:, None], left_s) - np.maximum(arrival_s[:, None], arrival_s)
    stay = left_s - arrival_s
    return np.divide(np.maximum(overlap, 0.0).sum(axis=1), stay, out=np.ones_like(stay), where=stay > 0)


def best_of_all(speeds: IsolatedSpeeds, type_idx: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Best speed within a share by trying all allocations of all jobs."""
    best = np.zeros(len(type_idx))
    for n, (kind, limits) in enumerate(zip(type_idx, capacity, strict=True)):
        speed = speeds.samples_per_s[kind]
        best[n] = speed[1, 0] if speed[1, 0] > 0 else speed[1, 1]
        for w, p in np.ndindex(speed.shape):
            demand = w * speeds.worker_demand[kind] + p * speeds.ps_demand[kind]
            if (demand <= limits).all():
                best[n] = max(best[n], speed[w, p])
    return best


TIMES = st.one_of(st.floats(0, 1e4), st.sampled_from([0.0, 600.0, 1200.0]))


@given(st.lists(st.tuples(TIMES, st.one_of(st.just(0.0), st.floats(1e-3, 1e4))), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_jobs_in_system_lie_between_one_and_all(jobs: list[tuple[float, float]]) -> None:
    arrival_s = np.array([a for a, _ in jobs])
    left_s = arrival_s + np.array([d for _, d in jobs])
    mean = mean_jobs_in_system(arrival_s, left_s)
    assert mean == pytest.approx(overlaps(arrival_s, left_s), rel=1e-6)
    assert (mean >= 1 - 1e-6).all()
    assert (mean <= len(jobs) + 1e-6).all()
    # Little's law in the small: summing overlaps is symmetric.
    assert (mean * (left_s - arrival_s)).sum() == pytest.approx(
        sum(max(0.0, min(left_s[i], left_s[j]) - max(arrival_s[i], arrival_s[j]))
            for i in range(len(jobs)) for j in range(len(jobs)))
    )  # fmt: skip


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_best_within_a_share_is_the_best_of_all_allocations(seed: int) -> None:
    """Random speeds, not monotone, with ties and allocations that cannot train, as measured tables have."""
    rng = np.random.default_rng(seed)
    speed = rng.choice([0.0, 1.0, 2.0, 2.0, *rng.uniform(0.5, 9.0, 4)], size=(3, 5, 4))
    speed[:, 0] = 0.0
    speed[0, :, 1:] = 0.0  # uses no parameter servers
    speeds = IsolatedSpeeds(speed, rng.integers(0, 4, (3, 2)).astype(float), rng.integers(0, 3, (3, 2)).astype(float))
    kinds = rng.integers(0, 3, 12)
    shares = rng.uniform(0, 16, (12, 2)).round()
    assert (speeds.best_within(kinds, shares) == best_of_all(speeds, kinds, shares)).all()


def test_a_long_trace_takes_little_time_and_memory() -> None:
    n = 82_000
    rng = np.random.default_rng(0)
    arrival_s = np.sort(rng.uniform(0, 6e6, n))
    start_s = np.ceil(arrival_s / 600) * 600
    finish_s = start_s + rng.lognormal(8, 1.5, n)
    speeds = IsolatedSpeeds(
        np.pad(rng.uniform(1, 9, (20, 16, 16)), ((0, 0), (1, 0), (1, 0))), np.full((20, 2), 2.0), np.ones((20, 2))
    )
    records = make_records(
        arrival_s=arrival_s,
        start_s=start_s,
        finish_s=finish_s,
        epochs_done=np.ones(n),
        num_resizes=np.zeros(n, dtype=np.int32),
        intervals_run=np.ones(n, dtype=np.int32),
        end_s=7e6,
    )
    workload = Workload(arrival_s, rng.integers(0, 20, n), np.ones(n), np.ones(n), np.ones(n), ("a",) * 20)
    tracemalloc.start()
    started = time.process_time()
    metrics = episode_metrics(records, workload, speeds, capacity=(500.0, 250.0), interval_s=600.0)
    seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 2.0 and peak < 100e6
    some = rng.choice(n, 50, replace=False)
    means = mean_jobs_in_system(arrival_s, finish_s)
    for i in some:
        overlap = np.minimum(finish_s[i], finish_s) - np.maximum(arrival_s[i], arrival_s)
        assert means[i] == pytest.approx(np.maximum(overlap, 0).sum() / (finish_s[i] - arrival_s[i]), rel=1e-9)
    assert np.isfinite(metrics.mean_rho)
