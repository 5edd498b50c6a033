"""Gavel: time fractions against a linear program, rounds against the fractions, and clusters of two GPU kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    ObservationConfig,
    ServerGroup,
    WorkloadConfig,
)
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE, SpeedParameters
from tests.schedulers.rules_shares import Pool, best_level
from tests.schedulers.test_engine import assert_both_ways_agree
from tests.schedulers.worlds import INTERVAL_S, Job, Type, answers, name_of, parameters, random_world, workload

POLICIES = ("gavel-maxmin", "gavel-makespan")
KINDS = ("v100", "p100", "k80")


def kinds_world(
    compute_s: list[list[float]], jobs: list[Job], gpus: list[int], caps: tuple[int, ...] = (), **dynamics: Any
) -> ClusterSimulator:
    """Types without PSs, one server per GPU kind.

    Args:
        compute_s: Seconds per sample of one worker, by type and kind; shared out among workers.
        jobs: Jobs in arrival order.
        gpus: GPUs of each kind.
        caps: Most workers of each type, 1 by default.
        **dynamics: Rules; by default no initial bundle.
    """
    kinds = KINDS[: len(gpus)]
    caps = caps or (1,) * len(compute_s)
    types = [
        Type(compute_s=row[0], caps=(cap, 1), architecture=ALL_REDUCE) for row, cap in zip(compute_s, caps, strict=True)
    ]
    speeds = parameters(types)
    names = speeds.type_names
    speeds = SpeedParameters(speeds.types, np.array(compute_s, float), speeds.table, kinds, names)
    rules = dict(interval_s=INTERVAL_S, initial_bundle=False, scaling_cost="none") | dynamics
    groups = tuple(ServerGroup(1, 1000, n, kind) for n, kind in zip(gpus, kinds, strict=True))
    config = EnvConfig(
        cluster=ClusterConfig(groups, link_sharing=0.0),
        workload=WorkloadConfig(num_jobs=len(jobs), max_workers=max(caps), max_ps=1),
        dynamics=DynamicsConfig(**rules),  # type: ignore[arg-type]
        observation=ObservationConfig(window=len(jobs), type_encoding="one_hot"),
    )
    sim = ClusterSimulator(config, 1, speed=speeds)
    sim.load([0], [workload(sim, jobs)])
    return sim


def placed(name: str, sim: ClusterSimulator, **options: Any) -> dict[int, list[int]]:
    """Workers of each job by GPU kind, in the present interval."""
    scheduler = get_scheduler(name, **options)
    view = ClusterView(sim)
    while True:
        action = scheduler.act(sim.observation(), sim.action_masks(), view)
        state = sim.state
        found = {}
        is_last = name_of(sim, int(action[0])) == "void" or state.env["num_legal"][0] == 0
        if is_last:
            for i in state.active[0, : int(state.env["num_active"][0])].tolist():
                row = [0] * len(sim.speed.gpu_kinds)
                for entry in state.entries[0, i, : int(state.jobs[0, i]["num_entries"])]:
                    row[int(state.specs[entry["server"]]["gpu_kind"])] += int(entry["workers"])
                found[i] = row
            return found
        sim.step(action)


def fractions(name: str, sim: ClusterSimulator, b: int = 0) -> NDArray[np.float64]:
    """Planned shares of time of the active jobs, (n, G)."""
    from dl2env.schedulers.gavel import plan_gavel

    scheduler: Any = get_scheduler(name)
    scratch = scheduler._room(sim)
    plan_gavel(sim.state, b, scheduler.code, scheduler.params, scratch)
    active = sim.state.active[b, : int(sim.state.env["num_active"][b])]
    return np.array(scratch.fractions[0, active, : sim.state.compute_s.shape[1]])


def test_each_job_goes_where_it_has_the_edge() -> None:
    for first, second in ((0, 1), (1, 0)):
        sim = kinds_world([[1.0, 4.0], [4.0, 1.0]], [Job(first), Job(second)], [1, 1])
        assert placed("gavel-maxmin", sim) == {first: [1, 0], second: [0, 1]}


def test_a_job_that_does_not_care_leaves_the_fast_kind_to_the_one_that_does() -> None:
    # Job 0 arrived first, but is as fast on kind 1. Equal shares would give speeds of 1 and 0.625.
    sim = kinds_world([[1.0, 1.0], [1.0, 4.0]], [Job(0, 1e6), Job(1, 1e6)], [1, 1])
    assert fractions("gavel-maxmin", sim) == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]), abs=0.002)
    get_scheduler("gavel-maxmin").run_intervals(sim, 50)  # type: ignore[attr-defined]
    assert sim.state.jobs[0]["epochs_done"] == pytest.approx([50 * INTERVAL_S] * 2)


def test_a_job_alone_runs_on_its_fastest_kind_all_the_time() -> None:
    sim = kinds_world([[3.0, 2.0, 1.0]], [Job(0)], [4, 4, 4], caps=(4,))
    assert fractions("gavel-maxmin", sim) == pytest.approx(np.array([[0.0, 0.0, 1.0]]))
    assert placed("gavel-maxmin", sim, speed_share=1.0) == {0: [0, 0, 4]}


def test_equal_jobs_take_turns_on_unequal_kinds() -> None:
    # Speeds 1 and 1/2: each job is half of the time on each kind, and gets on at 3/4.
    sim = kinds_world([[1.0, 2.0]], [Job(0, 1e4), Job(0, 1e4)], [1, 1])
    assert fractions("gavel-maxmin", sim).sum(axis=0) == pytest.approx([1.0, 1.0], abs=0.002)
    get_scheduler("gavel-maxmin").run_intervals(sim, 100)  # type: ignore[attr-defined]
    done = sim.state.jobs[0]["epochs_done"]
    assert done.min() > 0.65 * 100 * INTERVAL_S and done.max() < 0.85 * 100 * INTERVAL_S


def test_on_one_kind_gangs_get_equal_amounts_of_time() -> None:
    # Gangs of 4, 4 and 1 on 5 GPUs: X * size is at most 1 for job 2, so the others share 4: X = 1/2.
    jobs = [Job(0, 1e6), Job(0, 1e6), Job(1, 1e6)]
    sim = kinds_world([[4.0], [1.0]], jobs, [5], caps=(4, 1))
    scheduler = get_scheduler("gavel-maxmin", speed_share=1.0)
    scheduler.run_intervals(sim, 40)  # type: ignore[attr-defined]
    rounds = sim.state.jobs[0]["gpu_s"] / INTERVAL_S / [4, 4, 1]
    assert rounds == pytest.approx([20, 20, 40], abs=1.0)


def test_makespan_lets_jobs_end_together() -> None:
    # Work 300 and 100 on one GPU: three quarters of the time for the longer job.
    sim = kinds_world([[1.0]], [Job(0, 300 * 40.0), Job(0, 100 * 40.0)], [1])
    assert fractions("gavel-makespan", sim)[:, 0] == pytest.approx([0.75, 0.25], abs=0.01)
    assert fractions("gavel-maxmin", sim)[:, 0] == pytest.approx([0.5, 0.5], abs=0.01)
    get_scheduler("gavel-makespan").run_intervals(sim, 1000)  # type: ignore[attr-defined]
    finish = sim.records(0).finish_s
    assert finish.max() == 400 * 40.0 and finish.min() > 0.95 * finish.max()


def linear_program(sim: ClusterSimulator, b: int, name: str) -> tuple[NDArray[np.float64], ...]:
    """(given, gains, costs) of Gavel's programs in a world without initial bundles, from their definition."""
    pool = Pool(sim, b)
    state = sim.state
    num_kinds = state.compute_s.shape[1]
    specs = state.specs
    rows = []
    for gang in pool.active:
        t = int(gang.job["type"])
        workers, ps = gang.request
        estimate = state.estimate[b if len(state.estimate) > 1 else 0, t, workers, ps, 0]
        fraction = 1.0 / workers if gang.type["is_synchronous"] else 1.0
        speeds, costs, parts = np.zeros(num_kinds), np.zeros(num_kinds), np.zeros(num_kinds)
        for kind in range(num_kinds):
            own = specs[specs["gpu_kind"] == kind]
            if len(own) == 0:
                continue
            step_s = estimate
            if not state.rules[0]["is_measured"]:
                here = state.compute_s[t, kind] * fraction
                if state.rules[0]["is_ideal_overlap"]:
                    step_s = max(estimate, here)
                else:
                    step_s = max(estimate + here - state.compute_s[t, 0] * fraction, here)
                step_s = max(step_s, 1e-3 * estimate)
            speeds[kind] = gang.speeds[workers, ps] * estimate / step_s
            parts[kind] = own["gpus"].sum() / pool.totals[1]
            need, room = gang.units(gang.request), np.array([own["cpus"].sum(), own["gpus"].sum()])
            costs[kind] = (need / room).max()
        alone = {(1, 0): gang.units((1, 0)), (0, 1): gang.units((0, 1))}
        usable = np.zeros(num_kinds, bool)
        pair = gang.units((1, 1)) if gang.type["max_ps"] > 0 else gang.units((1, 0))
        all_servers = np.array([specs["cpus"], specs["gpus"]]).T
        for kind in range(num_kinds):
            own = all_servers[specs["gpu_kind"] == kind]
            if (all_servers >= pair).all(axis=1).any():
                usable[kind] = bool((own >= pair).all(axis=1).any())
            else:
                usable[kind] = all(bool((own >= need).all(axis=1).any()) for need in alone.values())
        weight = 1.0 / max(pool.left(gang), gang.best_speed)
        if name == "gavel-maxmin":
            weight = pool.share(gang, gang.request) / float(parts @ speeds)
        rows.append((np.where(usable, weight * speeds, 0.0), np.where(usable, costs, 0.0)))
    gains, costs = (np.array([row[x] for row in rows]) for x in range(2))
    return np.zeros(len(rows)), gains, costs


@pytest.mark.parametrize("name", POLICIES)
def test_fractions_are_those_of_the_linear_program(name: str) -> None:
    bounded = 0
    several = 0
    for seed in range(40):
        _, sim = random_world(seed, is_wide=True, initial_bundle=False, max_intervals=30, mask_resources=True)
        for interval in range(4):
            for b in np.flatnonzero(~sim.is_done).tolist():
                if sim.state.env["num_active"][b] == 0:
                    continue
                given, gains, costs = linear_program(sim, b, name)
                found = fractions(name, sim, b)
                level, _ = best_level(given, gains, costs)
                assert (found >= 0).all() and (found[gains == 0] == 0).all()
                assert (found.sum(axis=1) <= 1 + 1e-9).all()
                assert ((found * costs).sum(axis=0) <= 1.001 + 1e-9).all()
                most = gains.max(axis=1)
                reached = np.minimum((found * gains).sum(axis=1), most)
                can = most > 0
                short = reached[can] / np.minimum(level, most)[can]
                assert short.min(initial=1.0) > 0.997, f"seed {seed}, interval {interval}: {short}, {found}"
                bounded += bool((most > level * 1.01).any())
                several += bool((found > 0.01).any(axis=0).sum() > 1)
            get_scheduler("drf").run_intervals(sim, 1)  # type: ignore[attr-defined]
    assert bounded > 30 and several > 30, f"the cases are one-sided: {bounded} {several}"


@pytest.mark.parametrize("name", POLICIES)
def test_over_many_rounds_jobs_get_their_fractions(name: str) -> None:
    # Gangs that cannot all run: 3 + 2 + 2 on 4 and 3 GPUs, with different speeds.
    jobs = [Job(0, 1e7), Job(1, 2e7), Job(2, 1e7)]
    sim = kinds_world([[6.0, 9.0], [4.0, 12.0], [4.0, 4.0]], jobs, [2, 3], caps=(3, 2, 2))
    wanted = fractions(name, sim).sum(axis=1)
    get_scheduler(name).run_intervals(sim, 200)  # type: ignore[attr-defined]
    rounds = sim.state.jobs[0]["gpu_s"] / INTERVAL_S / [3, 2, 2]
    assert rounds / 200 == pytest.approx(wanted, abs=0.2)


def test_with_initial_bundles_jobs_stay_on_the_kind_of_theirs() -> None:
    # Both bundles go to the first server; the second kind is faster, but a job computes at the pace of its slowest GPU.
    sim = kinds_world([[4.0, 1.0]], [Job(0), Job(0)], [8, 8], caps=(4,), initial_bundle=True, placement="pack")
    assert placed("gavel-maxmin", sim, speed_share=1.0) == {0: [4, 0], 1: [4, 0]}


@pytest.mark.parametrize("name", POLICIES)
def test_whole_intervals_agree_where_a_pair_fits_on_another_kind_only(name: str) -> None:
    # The kind whose turn it is holds a worker and a PS, but not both on one server, while servers of the other kind do:
    # the worker must not wait until those are full.
    assert_both_ways_agree(name, 270)


def test_types_without_gpus_and_parameter_servers_go_anywhere() -> None:
    sim = kinds_world([[1.0, 4.0]], [Job(0)], [1, 1])
    sim.state.types["worker_gpus"] = 0
    scheduler = get_scheduler("gavel-maxmin")
    answers(scheduler, sim)
    assert ClusterView(sim).pinned_server.tolist() == [-1]


@pytest.mark.parametrize("name", POLICIES)
def test_the_highest_priority_is_served_first(name: str) -> None:
    """Priority: planned share of time over the share of rounds received."""
    firsts = 0
    for seed in range(20):
        _, sim = random_world(
            seed, is_wide=True, num_envs=1, initial_bundle=False, max_intervals=30, mask_resources=True
        )
        scheduler: Any = get_scheduler(name)
        while not sim.is_done[0]:
            pool = Pool(sim, 0)
            interval_s = float(pool.rules["interval_s"])
            order = {}
            for gang, part in zip(pool.active, fractions(name, sim).sum(axis=1), strict=True):
                gpus = gang.units(gang.request)[1]
                if gpus > 0:
                    received = gang.job["gpu_s"] / interval_s / gpus
                else:  # by progress
                    samples = gang.job["epochs_done"] * gang.job["samples_per_epoch"]
                    received = samples / (gang.speeds[gang.request] * interval_s)
                age = (pool.now_s - gang.job["arrival_s"]) / interval_s + 1
                order[gang.index] = part * age / max(received, 1e-6)
            action = int(answers(scheduler, sim)[0])  # the first decision of an interval
            if action != sim.num_actions - 1:
                served = int(sim.state.window[0, action // 3])
                passed = {i for i in order if order[i] > order[served] * (1 + 1e-9)}
                assert all(cannot_start(scheduler, sim, i) for i in passed), f"seed {seed}: {served} of {order}"
                firsts += len(order) > 1
            scheduler.run_intervals(sim, 1)
    assert firsts > 40


def cannot_start(scheduler: Any, sim: ClusterSimulator, i: int) -> bool:
    """Whether no server can hold the first tasks of a job, or none of the kind whose turn it is."""
    slot = int(sim.state.jobs[0, i]["slot"])
    t = int(sim.state.jobs[0, i]["type"])
    kind = int(scheduler._scratch.candidates[i]["gpu_kind"])
    job_type = sim.state.types[t]
    if not sim.action_masks()[0, 3 * slot : 3 * slot + 3].any():
        return True
    pair = sim.state.demands[sim.state.classes[t]["bundle" if job_type["max_ps"] > 0 else "worker"]]
    servers = sim.state.servers[0][(sim.state.specs["gpu_kind"] == kind) | (kind < 0)]
    return not ((servers["free_cpus"] >= pair["cpus"]) & (servers["free_gpus"] >= pair["gpus"])).any()
