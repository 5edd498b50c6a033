"""Traps that other public simulators fell into: late completion, idle gaps, impossible jobs, idle or odd policies."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, DynamicsConfig, EnvConfig, Placement, ServerGroup, WorkloadConfig
from dl2env.errors import ConfigError, PlacementError
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.workload.job_types import load_job_types
from dl2env.workload.jobs import Workload
from tests.schedulers.worlds import Job, Type, answers, parameters, random_world, workload, world
from tests.sim.random_cases import random_action
from tests.sim.states import differences

STEADY = Type(fixed_s=1.0, caps=(1, 1))  # one sample/s at one worker and one PS, nothing more
Policy = Callable[[ClusterSimulator], Any]


def void(sim: ClusterSimulator) -> NDArray[np.int64]:
    return np.full(sim.num_envs, sim.num_actions - 1)


def play(sim: ClusterSimulator, policy: Policy = void, limit: int = 20_000) -> NDArray[np.float64]:
    """Runs all episodes to their end; (B, terms) summed rewards."""
    total = np.zeros((sim.num_envs, len(REWARD_TERMS)))
    for _ in range(limit):
        if sim.is_done.all():
            return total
        total += sim.step(policy(sim)).reward_terms
    raise AssertionError(f"{limit} decisions and no end")


# ------------------------------------------------------------------------------------------- time of completion


@pytest.mark.parametrize(("interval_s", "num_intervals"), [(100.0, 2), (50.0, 3), (150.0, 1), (20.0, 8), (7.0, 22)])
def test_completion_inside_an_interval_is_exact(interval_s: float, num_intervals: int) -> None:
    # 150 samples at one per second: 1.5 intervals of 100 s.
    sim = world([STEADY], [Job(samples=150.0)], [(8, 4)], interval_s=interval_s, initial_bundle=True)
    play(sim)
    records = sim.records(0)
    assert records.jct_s == pytest.approx([150.0], rel=1e-13)
    assert records.epochs_done.tolist() == [150.0]
    assert (records.num_intervals, records.intervals_run.tolist()) == (num_intervals, [num_intervals])
    # One worker (1 CPU, 1 GPU) and one PS (1 CPU) are held until the last interval ends.
    held_s = num_intervals * interval_s
    assert records.end_s == pytest.approx(held_s)
    assert records.used_gpu_s == pytest.approx(held_s) and records.gpu_s == pytest.approx([held_s])
    assert records.used_cpu_s == pytest.approx(2 * held_s)


def test_completion_at_the_intervals_end_only_if_asked_for() -> None:
    sim = world([STEADY], [Job(samples=150.0)], [(8, 4)], initial_bundle=True, exact_finish=False)
    play(sim)
    assert sim.records(0).jct_s.tolist() == [200.0]


def test_work_that_ends_with_an_interval_takes_no_further_one() -> None:
    sim = world([STEADY], [Job(samples=200.0)], [(8, 4)], initial_bundle=True)
    play(sim)
    assert sim.records(0).jct_s.tolist() == [200.0] and sim.records(0).num_intervals == 2


def test_waiting_for_the_next_interval_counts() -> None:
    sim = world([STEADY], [Job(), Job(samples=20.0, arrival_s=130.0)], [(8, 4)], initial_bundle=True, max_intervals=5)
    total = play(sim)
    assert sim.records(0).start_s.tolist() == [0.0, 200.0]
    assert sim.records(0).jct_s[1] == 70.0 + 20.0
    # Job 0 stays 5 intervals; job 1 waits for 0.7 and trains for 0.2.
    assert total[0, REWARD_TERMS.index("jct")] == pytest.approx(-(5 + 0.7 + 0.2))


# ----------------------------------------------------------------------------------------------------- arrivals


@pytest.mark.parametrize("auto_advance", [True, False])
def test_a_first_arrival_after_time_zero(auto_advance: bool) -> None:
    sim = world(
        [STEADY], [Job(samples=30.0, arrival_s=250.0)], [(8, 4)], initial_bundle=True, auto_advance=auto_advance
    )
    assert sim.records(0).num_intervals == (3 if auto_advance else 0)
    play(sim)
    assert sim.records(0).jct_s.tolist() == [50.0 + 30.0]


def test_all_jobs_at_time_zero() -> None:
    sim = world([STEADY], [Job(samples=50.0)] * 3, [(8, 4)], initial_bundle=True)
    play(sim)
    assert sim.records(0).jct_s.tolist() == [50.0] * 3


@pytest.mark.parametrize("auto_advance", [True, False])
def test_an_idle_gap_of_a_thousand_intervals(auto_advance: bool) -> None:
    jobs = [Job(samples=50.0), Job(samples=50.0, arrival_s=100_000.0), Job(samples=50.0, arrival_s=100_000.5)]
    sim = world([STEADY], jobs, [(8, 4)], max_intervals=2000, auto_advance=auto_advance)
    total = play(sim, lambda sim: answers(get_scheduler("fifo"), sim))
    records = sim.records(0)
    assert records.jct_s.tolist() == [50.0, 50.0, 149.5]
    assert records.num_intervals == 1002
    assert total[0, REWARD_TERMS.index("jct")] == pytest.approx(-(50.0 + 50.0 + 149.5) / 100.0)
    if auto_advance:
        assert records.num_decisions == 3  # a bundle for each job ends the interval: nothing else is legal
    assert records.used_gpu_s == 300.0


def test_a_gap_longer_than_the_episode_truncates_it() -> None:
    jobs = [Job(samples=50.0), Job(samples=50.0, arrival_s=100_000.0)]
    sim = world([STEADY], jobs, [(8, 4)], max_intervals=500)
    report = sim.step(answers(get_scheduler("fifo"), sim))
    assert report.truncated[0] and not report.terminated[0]
    records = sim.records(0)
    assert records.finish_s[0] == 50.0 and np.isnan(records.finish_s[1]) and records.num_intervals == 500


def test_a_workload_that_starts_after_the_episode_is_refused() -> None:
    sim = world([STEADY], [Job()], [(8, 4)], max_intervals=10)
    late = workload(sim, [Job(arrival_s=901.0)])
    with pytest.raises(ConfigError, match=r"arrives at 901 s.*\(900 s\); raise dynamics.max_intervals"):
        sim.load([0], [late])


def test_a_thousand_identical_jobs_at_once() -> None:
    # 16 GPUs: 16 jobs per interval, first come, first served.
    sim = world([STEADY], [Job(samples=100.0)] * 1000, [(8, 4)] * 4)
    play(sim, lambda sim: answers(get_scheduler("fifo"), sim))
    expected = 100.0 * (1 + np.arange(1000) // 16)
    assert sim.records(0).finish_s.tolist() == expected.tolist()
    sim = world([STEADY], [Job(samples=100.0)] * 1000, [(8, 4)] * 4, initial_bundle=True)
    play(sim)
    assert sim.records(0).finish_s.tolist() == expected.tolist()


# --------------------------------------------------------------------------------------------- impossible tasks


@pytest.mark.parametrize(
    ("job_type", "role", "needs"),
    [
        (Type(worker=(1, 3), fixed_s=1.0), "worker", "1 CPUs and 3 GPUs"),
        (Type(worker=(9, 1), fixed_s=1.0), "worker", "9 CPUs and 1 GPUs"),
        (Type(ps=(17, 0), fixed_s=1.0), "ps", "17 CPUs and 0 GPUs"),
        (Type(worker=(6, 2), fixed_s=1.0), "worker", "6 CPUs and 2 GPUs"),  # each unit somewhere, not on one server
    ],
)
def test_a_type_that_fits_no_server_is_named_at_once(job_type: Type, role: str, needs: str) -> None:
    with pytest.raises(PlacementError, match=f"^job type 'type-1': a {role} needs {needs}, which no server has") as e:
        world([STEADY, job_type], [Job()], [(4, 2), (16, 1)] if role == "ps" else [(4, 2), (8, 1)])
    assert "\n" not in str(e.value) and "workload.include" in str(e.value)


def test_real_catalogues_are_checked_too() -> None:
    with pytest.raises(PlacementError, match="^job type 'resnet-50': a worker needs 2 CPUs and 1 GPUs"):
        ClusterSimulator(EnvConfig(cluster=ClusterConfig((ServerGroup(9, cpus=64, gpus=0),))), 1)


@pytest.mark.parametrize("placement", get_args(Placement))
def test_servers_without_gpus_never_get_gpu_tasks(placement: Placement) -> None:
    rng = np.random.default_rng(1)
    servers = [(64, 0), (6, 3), (64, 0), (6, 3)]
    types = [Type(fixed_s=1.0, caps=(3, 3)), Type(worker=(2, 2), fixed_s=1.0, caps=(3, 3))]
    jobs = [Job(i % 2, samples=120.0 + 30 * i) for i in range(6)]
    sim = world(types, jobs, servers, placement=placement, initial_bundle=True, max_intervals=60)
    tasks_without_gpu = 0
    while not sim.is_done[0]:
        state = sim.state
        assert (state.servers["free_gpus"] >= 0).all() and (state.servers["free_cpus"] >= 0).all()
        for i in state.active[0, : state.env[0]["num_active"]]:
            for entry in state.entries[0, i, : state.jobs[0, i]["num_entries"]]:
                if servers[entry["server"]][1] == 0:
                    assert entry["workers"] == 0
                    tasks_without_gpu += int(entry["ps"])
        sim.step([random_action(rng, sim.action_masks()[0].tolist(), 0.05, 0.0)])
    assert tasks_without_gpu > 0  # parameter servers do go there


# ------------------------------------------------------------------------------------------------- odd policies


def test_always_void_without_initial_bundles_is_truncated_not_endless() -> None:
    sim = world([STEADY], [Job()] * 2, [(8, 4)], max_intervals=30)
    reports = [sim.step(void(sim)) for _ in range(30)]
    assert [bool(report.truncated[0]) for report in reports] == [False] * 29 + [True]
    assert np.isnan(sim.records(0).finish_s).all() and np.isnan(sim.records(0).start_s).all()
    assert sum(report.reward_terms[0, REWARD_TERMS.index("jct")] for report in reports) == -60.0


@pytest.mark.parametrize("answer", [-1, -(10**18), 10**18, "masked", "beyond"])
def test_illegal_answers_do_what_void_does_and_are_flagged(answer: int | str) -> None:
    def illegal(sim: ClusterSimulator) -> NDArray[np.int64]:
        if answer == "masked":  # every environment has a capped or an empty slot
            masks = sim.action_masks()
            assert not masks.all(axis=1).any()
            return np.argmin(masks, axis=1)
        return np.full(sim.num_envs, sim.num_actions if answer == "beyond" else answer)

    jobs = [Job(samples=80.0 * (i + 1), arrival_s=35.0 * i) for i in range(4)]
    finish = []
    for policy in (void, illegal):
        sim = world([STEADY], jobs, [(8, 4)], initial_bundle=True, auto_advance=False)
        while not sim.is_done[0]:
            report = sim.step(policy(sim))
            assert report.interval_ended[0] and report.is_illegal[0] == (policy is illegal)
        finish.append(sim.records(0).finish_s.tolist())
    assert finish[0] == finish[1]


def test_a_finished_environment_ignores_actions_until_it_is_loaded() -> None:
    sim = world([STEADY], [Job(samples=50.0)], [(8, 4)], initial_bundle=True)
    play(sim)
    before = sim.snapshot()
    report = sim.step([0])
    assert not any(field.any() for field in report) and differences(before, sim.snapshot()) == []
    sim.load([0], [workload(sim, [Job(samples=30.0)])])
    play(sim)
    assert sim.records(0).jct_s.tolist() == [30.0]


@pytest.mark.parametrize("shape", [(2,), (1, 1), ()])
def test_actions_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    sim = world([STEADY], [Job()], [(8, 4)])
    with pytest.raises(ConfigError, match=r"actions must have shape \(1,\), got"):
        sim.step(np.zeros(shape, int))


# ------------------------------------------------------------------------------------------------------- chance


def test_no_policy_shifts_anothers_luck() -> None:
    # Speeds depend on nothing but the noise: work done after each interval must not depend on the decisions.
    job_type = Type(fixed_s=1.0, caps=(3, 3))
    jobs = [Job(samples=1e6, arrival_s=90.0 * i) for i in range(4)]
    progress = []
    for scheduler in (get_scheduler("void"), get_scheduler("random", seed=5), get_scheduler("fifo")):
        sim = world([job_type], jobs, [(20, 10)], initial_bundle=True, speed_noise=0.5, max_intervals=12)
        rows: list[list[float]] = []
        while not sim.is_done[0]:
            if sim.step(answers(scheduler, sim)).interval_ended[0]:
                rows.append(sim.records(0).epochs_done.tolist())
        progress.append(rows)
    assert progress[0] == progress[1] == progress[2]
    gains = np.diff(np.array(progress[0]), axis=0)
    assert len(np.unique(gains[gains > 0])) == (gains > 0).sum() > 20  # of each job and interval its own
    assert 50.0 < gains[gains > 0].min() < 70.0 and 130.0 < gains.max() < 150.0


def test_noise_follows_from_the_workloads_key() -> None:
    def speeds(key: int) -> list[float]:
        sim = world([STEADY], [Job(samples=1e6)], [(8, 4)], initial_bundle=True, speed_noise=0.3, max_intervals=4)
        sim.load([0], [workload(sim, [Job(samples=1e6)], noise_key=key)])
        play(sim)
        return sim.records(0).epochs_done.tolist()

    assert speeds(1) == speeds(1) != speeds(2)


def test_global_random_numbers_are_neither_used_nor_changed() -> None:
    def episode() -> list[float]:
        rng, sim = random_world(8)
        random_scheduler = get_scheduler("random", seed=2)
        for _ in range(200):
            sim.step(answers(random_scheduler, sim))
        return [value for b in range(sim.num_envs) for value in sim.records(b).epochs_done.tolist()]

    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    before = (np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
    first = episode()
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    random.seed(2)
    assert episode() == first


# --------------------------------------------------------------------------------------------- snapshots, batch


def replay(sim: ClusterSimulator, actions: list[list[int]]) -> list[Any]:
    """Reports, observations and masks of given actions."""
    seen: list[Any] = []
    for chosen in actions:
        report = sim.step(chosen)
        seen.append([*report, *sim.observation().values(), sim.action_masks()])
    return seen


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_holds_everything(seed: int) -> None:
    rng, sim = random_world(200 + seed)
    _, twin = random_world(200 + seed)
    for _ in range(15):
        sim.step([random_action(rng, row, 0.1, 0.05) for row in sim.action_masks().tolist()])
    before = sim.snapshot()
    actions = [[int(rng.integers(-1, sim.num_actions + 1)) for _ in range(sim.num_envs)] for _ in range(40)]
    first = replay(sim, actions)
    after = sim.snapshot()
    assert differences(before, after) != []
    sim.restore(before)
    assert differences(before, sim.snapshot()) == []
    twin.restore(before)
    for again in (replay(sim, actions), replay(twin, actions)):
        for one, other in zip(itertools.chain(*first), itertools.chain(*again), strict=True):
            np.testing.assert_array_equal(one, other)
    assert differences(after, sim.snapshot()) == differences(after, twin.snapshot()) == []


def test_a_snapshot_does_not_follow_the_simulator() -> None:
    sim = world([STEADY], [Job()], [(8, 4)])
    before = sim.snapshot()
    copies = {name: values.copy() for name, values in before.arrays.items()}
    sim.step([2])
    assert differences(before, before._replace(arrays=copies)) == []


@pytest.mark.parametrize("seed", range(6))
def test_nothing_of_an_episode_is_left_in_the_next(seed: int) -> None:
    rng, used = random_world(300 + seed)
    _, fresh = random_world(300 + seed)
    begun = [[*used.observation().values()], used.action_masks()]
    for _ in range(60):
        used.step([random_action(rng, row, 0.1, 0.05) for row in used.action_masks().tolist()])
    _, source = random_world(300 + seed)
    loads = [reload_of(source, b) for b in range(source.num_envs)]
    used.load(range(used.num_envs), loads)
    fresh.load(range(fresh.num_envs), loads)
    np.testing.assert_array_equal(begun[1], used.action_masks())
    for one, other in zip(begun[0], used.observation().values(), strict=True):
        np.testing.assert_array_equal(one, other)
    actions = [[int(rng.integers(-1, used.num_actions + 1)) for _ in range(used.num_envs)] for _ in range(60)]
    for one, other in zip(
        itertools.chain(*replay(used, actions)), itertools.chain(*replay(fresh, actions)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def reload_of(sim: ClusterSimulator, b: int) -> Any:
    """The workload that environment b was loaded with, from its untouched records."""
    from dl2env.workload.jobs import Workload

    env = sim.state.env[b]
    jobs = sim.state.jobs[b, : env["num_jobs"]]
    return Workload(
        jobs["arrival_s"],
        jobs["type"].astype(np.int32),
        jobs["epochs"],
        jobs["true_epochs"],
        jobs["samples_per_epoch"],
        sim.speed.type_names,
        int(env["noise_key"]),
    )


@pytest.mark.parametrize("seed", range(4))
def test_environments_of_a_batch_do_not_touch_each_other(seed: int) -> None:
    rng, batch = random_world(400 + seed)
    actions = [[int(rng.integers(-1, batch.num_actions + 1)) for _ in range(3)] for _ in range(50)]
    seen = replay(batch, actions)
    for b in range(3):
        _, whole = random_world(400 + seed)
        alone = ClusterSimulator(whole.config, 1, speed=whole.speed)
        alone.load([0], [reload_of(whole, b)])
        single = replay(alone, [[chosen[b]] for chosen in actions])
        for together, one in zip(itertools.chain(*seen), itertools.chain(*single), strict=True):
            np.testing.assert_array_equal(together[b], one[0])


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([Job()] * 3, "the workload has 3 jobs, the simulator was built for max_jobs=2"),
        ([Job()], "the workload uses the job types other; the simulator was built for type-0"),
    ],
)
def test_a_workload_of_another_world_is_refused(jobs: list[Job], message: str) -> None:
    sim = world([STEADY], [Job()] * 2, [(8, 4)])
    given = workload(sim, jobs)
    if len(jobs) == 1:
        object.__setattr__(given, "type_names", ("other",))
    with pytest.raises(ConfigError, match=message):
        sim.load([0], [given])


def test_nonsense_sizes_are_refused() -> None:
    sim = world([STEADY], [Job()], [(8, 4)])
    with pytest.raises(ConfigError, match="num_envs=0 must be at least 1"):
        ClusterSimulator(sim.config, 0, speed=parameters([STEADY]))
    with pytest.raises(ConfigError, match="load: 2 environments but 1 workloads"):
        sim.load([0, 0], [workload(sim, [Job()])])


def test_any_number_of_tasks_that_ask_for_nothing_fit_one_server() -> None:
    types = tuple(dataclasses.replace(t, ps_cpus=0, ps_gpus=0) for t in load_job_types("dl2", ["wlm"]))
    config = EnvConfig(
        cluster=ClusterConfig(servers=(ServerGroup(1, cpus=2, gpus=1),)),
        workload=WorkloadConfig(num_jobs=20),
        dynamics=DynamicsConfig(initial_bundle=False),
    )
    sim = ClusterSimulator(config, 1, job_types=types)
    one = np.ones(20)
    sim.load([0], [Workload(0 * one, np.zeros(20, np.int32), one, one, one, sim.speed.type_names)])
    for slot in range(20):
        assert not sim.step([3 * slot + 1]).is_illegal[0]
    assert sim.state.servers[0, 0]["num_jobs"] == 20
    assert sorted(sim.state.server_jobs[0, 0, :20].tolist()) == list(range(20))
