"""EASY backfilling on clusters small enough to plan on paper; `test_gangs` has its rule in random worlds."""

from __future__ import annotations

import numpy as np
import pytest

from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers.worlds import INTERVAL_S, Job, Type, plan, world

# Types 0 to 7 ask for a gang of 1 to 8 workers and one PS; any gang trains one sample per second.
TYPES = [Type(compute_s=float(w), caps=(w, 1), ps=(0, 0)) for w in range(1, 9)]


def job(workers: int, intervals: float, arrival: float = 0.0) -> Job:
    return Job(workers - 1, samples=intervals * INTERVAL_S, arrival_s=arrival * INTERVAL_S)


def cluster(*jobs: Job, gpus: int = 8, **dynamics: bool) -> ClusterSimulator:
    return world(TYPES, jobs, [(1000, gpus)], **dynamics)


def workers(sim: ClusterSimulator) -> list[int]:
    """Workers of each job in the next interval."""
    scheduler = get_scheduler("easy", speed_share=1.0)
    before = sim.state.jobs["gpu_s"][0].copy()
    scheduler.run_intervals(sim, 1)  # type: ignore[attr-defined]
    return np.rint((sim.state.jobs["gpu_s"][0] - before) / INTERVAL_S).astype(int).tolist()


def test_jobs_start_in_order_of_arrival_while_they_fit() -> None:
    assert workers(cluster(job(4, 2), job(3, 2), job(1, 2))) == [4, 3, 1]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (job(4, 3), 4),  # through when the head starts, after 3 intervals
        (job(4, 3.01), 0),  # would hold the head up: 8 - 4 + 4 < 6
        (job(2, 50), 2),  # beside the head: 6 + 2 = 8
        (job(3, 50), 0),
        (job(5, 1), 0),  # does not fit now
    ],
)
def test_a_later_job_starts_if_it_does_not_hold_up_the_head(later: Job, expected: int) -> None:
    assert workers(cluster(job(4, 3), job(6, 9), later)) == [4, 0, expected]


def test_backfilled_jobs_share_what_is_left_beside_the_head() -> None:
    # Beside the head 2 of 8 GPUs are left: the first long job takes both, the second waits, a short one may go.
    assert workers(cluster(job(4, 3), job(6, 9), job(2, 50), job(1, 50), job(2, 3))) == [4, 0, 2, 0, 2]


def test_the_head_is_the_first_that_does_not_fit_and_only_it_has_a_reservation() -> None:
    # Job 2 (5 workers) is held up by job 3, job 1 (6 workers) is not.
    assert workers(cluster(job(4, 3), job(6, 2), job(5, 2), job(2, 50))) == [4, 0, 0, 2]


def test_the_reservation_is_the_earliest_time_at_which_the_head_fits() -> None:
    # 3 + 3 + 2 GPUs run for 1, 4 and 9 intervals; 5 are free after 4. A job of one interval fits no more now.
    sim = cluster(job(3, 1), job(3, 4), job(2, 9), job(5, 2), job(3, 3), job(3, 4))
    assert workers(sim) == [3, 3, 2, 0, 0, 0]
    # Job 0 is through: job 4 ends with job 1 and starts, job 5 would need one interval more.
    assert workers(sim) == [0, 3, 2, 0, 3, 0]


def test_ends_count_in_whole_intervals() -> None:
    # Job 0 gives its GPUs back after 3 intervals, though it is through after 2.1; so job 2 does no harm.
    assert workers(cluster(job(4, 2.1), job(6, 9), job(4, 2.9))) == [4, 0, 4]


def test_a_job_that_outruns_its_estimate_is_expected_to_end_with_the_interval() -> None:
    sim = cluster(job(4, 9), job(6, 9), job(4, 1), job(4, 2))
    sim.state.jobs["last_workers"][0, 0] = 4
    sim.state.jobs["epochs"][0, 0] = sim.state.jobs["epochs_done"][0, 0] = 300.0
    assert workers(sim) == [4, 0, 4, 0]


def test_gangs_under_way_go_first_and_are_not_preempted() -> None:
    # Job 2 was backfilled; job 1, the head, arrived earlier but has to wait for both.
    sim = cluster(job(4, 3), job(6, 1), job(4, 3))
    history = [workers(sim) for _ in range(4)]
    assert history == [[4, 0, 4], [4, 0, 4], [4, 0, 4], [0, 6, 0]]
    assert sim.records(0).finish_s.tolist() == [300.0, 400.0, 300.0]


def test_exact_estimates_keep_the_promise_to_the_head() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        jobs = [
            job(int(rng.integers(1, 9)), int(rng.integers(1, 8)), float(a)) for a in np.sort(rng.integers(0, 15, 12))
        ]
        sim = cluster(*jobs)
        first = fcfs_starts(jobs)
        get_scheduler("easy", speed_share=1.0).run_intervals(sim, 1000)  # type: ignore[attr-defined]
        records = sim.records(0)
        length = [j.samples for j in jobs]
        # No gang is resized or interrupted.
        assert records.num_resizes.sum() == 0
        np.testing.assert_allclose(records.finish_s - records.start_s, length)
        # Backfilling may not delay the first job that has to wait.
        head = next((i for i, j in enumerate(jobs) if first[i] > np.ceil(j.arrival_s)), None)
        if head is not None:
            assert records.start_s[head] <= first[head]
        assert records.start_s.sum() <= sum(first)


def fcfs_starts(jobs: list[Job]) -> list[float]:
    """Starts of rigid jobs on 8 GPUs in strict order of arrival."""
    running: list[tuple[float, int]] = []
    starts: list[float] = []
    for j in jobs:
        now = max([j.arrival_s, *starts[-1:]])
        while sum(gpus for end, gpus in running if end > now) + j.type + 1 > 8:
            now += INTERVAL_S
        running.append((now + j.samples, j.type + 1))
        starts.append(now)
    return starts


def test_waiting_jobs_keep_their_initial_bundle() -> None:
    # Job 0 holds 4 of 8 GPUs, job 1 needs 4 beyond its own one and there are 3: it waits, with one worker.
    sim = cluster(job(4, 3), job(5, 9), initial_bundle=True)
    assert workers(sim) == [4, 1]
    # Job 2, with a bundle of its own, needs one GPU more: 4 + 1 + 1 + 1 = 7. It is through before job 0.
    sim = cluster(job(4, 3), job(5, 9), job(2, 2), initial_bundle=True)
    assert workers(sim) == [4, 1, 2]


def test_a_job_that_asks_for_no_more_than_its_bundle_never_waits() -> None:
    sim = cluster(job(7, 9), job(5, 9), job(1, 9), initial_bundle=True)
    assert workers(sim) == [6, 1, 1]  # job 0 starts because no gang is under way, and gets what there is


def test_a_request_above_the_clusters_size_starts_when_no_gang_is_under_way() -> None:
    sim = cluster(job(3, 2), job(8, 2), job(2, 2), job(2, 3), gpus=4)
    assert workers(sim) == [3, 0, 0, 0]
    sim = cluster(job(2, 2), job(8, 2), job(2, 2), job(2, 3), gpus=4)
    assert workers(sim) == [2, 0, 2, 0]  # job 3 would outlast the gang that the head waits for
    assert workers(sim) == [2, 0, 2, 0]
    assert workers(sim) == [0, 4, 0, 0]


def test_cpus_are_scarce_too() -> None:
    # PSs of 3 CPUs: one gang of 2 takes 5 of 8, the second does not fit; a later one without PS-heavy demand does.
    types = [Type(compute_s=2.0, caps=(2, 1), ps=(3, 0)), Type(compute_s=1.0, caps=(1, 1), ps=(1, 0))]
    sim = world(types, [Job(0, samples=300.0), Job(0, samples=100.0), Job(1, samples=300.0)], [(8, 100)])
    assert plan(get_scheduler("easy", speed_share=1.0), sim) == "b0 w0 b2 void"
