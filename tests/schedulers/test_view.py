"""What a scheduler sees of the clusters, and the one thing it may do to them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dl2env.config import EstimateConfig
from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView
from tests.schedulers.worlds import Job, Type, act, random_states, world
from tests.sim.states import differences

# 8 / w + 2 w / p seconds; best at (4, 4), 4 s.
TYPES = [Type(worker=(2, 1), compute_s=8.0, service_s=2.0), Type(fixed_s=0.5, caps=(1, 1))]


def test_fields_by_hand() -> None:
    jobs = [Job(0, samples=300.0, done=100.0), Job(1, samples=90.0), Job(0, arrival_s=50.0)]
    sim = world(TYPES, jobs, [(16, 4), (8, 4)])
    view = ClusterView(sim)
    act(sim, "b0", "w0", "b1")
    assert view.job_idx.tolist() == [[0, 1, -1]]  # job 2 has not arrived
    assert view.is_present.tolist() == [[True, True, False]]
    assert view.type_idx.tolist() == [[0, 1, 0]]
    assert view.workers.tolist() == [[2, 1, 0]] and view.ps.tolist() == [[1, 1, 0]]
    assert view.arrival_s.tolist() == [[0.0, 0.0, 0.0]]
    # Job 0 holds 2 * 2 + 1 of 24 CPUs and 2 of 8 GPUs; job 1 2 of 24 and 1 of 8.
    assert view.dominant_share.tolist() == [[0.25, 0.125, 0.0]]
    assert view.speed.tolist() == [[1 / 8, 2.0, 0.0]]
    assert view.remaining_samples.tolist() == [[200.0, 90.0, 0.0]]
    assert view.remaining_s.tolist() == [[800.0, 45.0, 0.0]]
    assert view.free_cpus.tolist() == [24 - 5 - 2] and view.free_gpus.tolist() == [8 - 2 - 1]
    assert view.interval.tolist() == [0] and not view.is_done.any()
    assert view.estimate.samples_per_s(0, 2, 1) == pytest.approx(1 / 8)
    assert view.pinned_server.tolist() == [-1]


def test_every_access_reads_the_present_state() -> None:
    sim = world(TYPES, [Job(0), Job(1)], [(16, 4)])
    view = ClusterView(sim)
    before = view.workers
    act(sim, "b0")
    assert before.tolist() == [[0, 0]] and view.workers.tolist() == [[1, 0]]
    sim.step([sim.num_actions - 1])
    assert view.interval.tolist() == [1] and view.workers.tolist() == [[0, 0]]


def test_what_it_gives_out_is_not_the_state() -> None:
    sim = world(TYPES, [Job(0), Job(1)], [(16, 4)])
    view = ClusterView(sim)
    arrays = {
        name: getattr(view, name)
        for name, value in vars(ClusterView).items()
        if isinstance(value, property) and isinstance(getattr(view, name), np.ndarray)
    }
    assert len(arrays) == 15
    before = sim.snapshot()
    for array in arrays.values():
        array[:] = 1
    assert differences(before, sim.snapshot()) == []


def test_environments_do_not_mix() -> None:
    for sim, view, _ in random_states(31, num_steps=30):
        jobs, window = sim.state.jobs, sim.state.window
        for b in range(sim.num_envs):
            for slot in range(sim.window):
                i = window[b, slot]
                assert view.is_present[b, slot] == (i >= 0)
                for name in ("workers", "ps", "arrival_s", "dominant_share", "speed"):
                    assert getattr(view, name)[b, slot] == (jobs[b, i][name] if i >= 0 else 0)


def test_remaining_time_uses_the_environments_own_estimate() -> None:
    sim = world(TYPES, [Job(0, samples=100.0)], [(16, 4)], num_envs=3, estimate=EstimateConfig("noisy", 0.5))
    for b, key in enumerate((1, 2, 3)):
        sim._estimator.write(sim.state, b, key)
    remaining = ClusterView(sim).remaining_s[:, 0]
    np.testing.assert_allclose(remaining, 100.0 / sim.state.best_speed[:, 0])
    assert len(set(remaining.tolist())) == 3


def test_an_overdue_job_has_nothing_left() -> None:
    sim = world(TYPES, [Job(0, samples=100.0)], [(16, 4)])
    sim.state.jobs["epochs_done"] = 130.0
    assert ClusterView(sim).remaining_samples.tolist() == [[0.0]]


def test_pinned_servers_take_the_next_tasks_until_the_interval_ends() -> None:
    sim = world(TYPES, [Job(0), Job(0)], [(16, 4)] * 3, num_envs=2)
    view = ClusterView(sim)
    view.pin_servers(np.array([2, -1]))
    act(sim, "b0", "b0")
    tasks = sim.state.servers["num_jobs"]
    assert tasks.tolist() == [[0, 0, 1], [1, 1, 0]]  # environment 1 takes the least loaded
    sim.step([sim.num_actions - 1] * 2)
    assert view.pinned_server.tolist() == [-1, -1]


def test_a_task_that_does_not_fit_its_pinned_server_fails() -> None:
    sim = world(TYPES, [Job(0)], [(16, 4), (1, 1)])
    ClusterView(sim).pin_servers(np.array([1]))
    assert sim.action_masks()[0, 0]
    report = sim.step([0])
    assert report.is_illegal[0] and report.interval_ended[0]


@pytest.mark.parametrize("servers", [[3], [-2]])
def test_servers_that_are_not_there_cannot_be_pinned(servers: list[int]) -> None:
    sim = world(TYPES, [Job(0)], [(16, 4)] * 3)
    with pytest.raises(ConfigError, match=r"^pin_servers: servers are 0 to 2, or -1$"):
        ClusterView(sim).pin_servers(np.array(servers))


def test_decisions_do_not_depend_on_the_batch() -> None:
    names = ("drf", "fifo", "srtf", "tetris", "optimus", "marginal")
    for sim, _, mask in random_states(12, num_steps=25):
        for b in np.flatnonzero(~sim.is_done).tolist():
            state = sim.state
            alone = type(sim)(dataclasses.replace(sim.config), 1, speed=sim.speed, max_jobs=sim.max_jobs)
            for field in type(state)._fields:
                whole, one = getattr(state, field), getattr(alone.state, field)
                if whole.shape != one.shape:
                    one[...] = whole[b : b + 1]
            for name in names:
                together = get_scheduler(name).act(sim.observation(), mask, ClusterView(sim))[b]
                single = get_scheduler(name).act(alone.observation(), mask[b : b + 1], ClusterView(alone))[0]
                assert single == together, name
