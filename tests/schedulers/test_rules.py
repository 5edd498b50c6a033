"""Every heuristic follows its rule in random worlds, decision by decision, and never answers what the mask forbids."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView, Scheduler
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers import rules
from tests.schedulers.rules import Candidates, Cluster
from tests.schedulers.worlds import Job, Type, answers, plan, random_states, random_world, world

RULES: dict[str, tuple[Scheduler, Callable[[Cluster], Candidates], dict[str, float]]] = {
    "drf": (get_scheduler("drf"), rules.drf, {}),
    "drf-1:0.5": (get_scheduler("drf", ps_per_worker=0.5), partial(rules.drf, ratio=0.5), {}),
    "drf-1:2": (get_scheduler("drf", ps_per_worker=2), partial(rules.drf, ratio=2.0), {}),
    "fifo": (get_scheduler("fifo"), rules.fifo, {}),
    "srtf": (get_scheduler("srtf"), rules.srtf, {}),
    "tetris": (get_scheduler("tetris"), rules.tetris, {}),
    "optimus": (get_scheduler("optimus"), rules.optimus, {}),
    "optimus-bundle": (get_scheduler("optimus", bundle=True), partial(rules.optimus, bundle=True), {}),
    # Without link sharing nothing can be charged to neighbours, and any server does for an action the mask allows.
    "marginal": (get_scheduler("marginal"), rules.marginal, {"link_sharing": 0.0}),
    "marginal-2": (get_scheduler("marginal", exponent=2.0), partial(rules.marginal, exponent=2.0), {"link_sharing": 0}),
    "marginal-ahead-4": (
        get_scheduler("marginal", look_ahead=4),
        partial(rules.marginal, look_ahead=4),
        {"link_sharing": 0.0},
    ),
    "marginal-total": (
        get_scheduler("marginal", per_share=False),
        partial(rules.marginal, per_share=False),
        {"link_sharing": 0.0},
    ),
}
WORK_CONSERVING = ("drf", "fifo", "srtf", "tetris", "optimus", "marginal", "random")


def first_best(candidates: Candidates, void: int) -> int:
    return max(candidates, key=lambda action: candidates[action]) if candidates else void


@pytest.mark.parametrize("name", RULES)
def test_every_decision_follows_the_rule(name: str) -> None:
    scheduler, rule, changes = RULES[name]
    decisions: Counter[str] = Counter()
    for seed in range(10):
        for sim, view, mask in random_states(seed, mask_resources=True):
            if "link_sharing" in changes:
                sim.state.rules["link_sharing"] = changes["link_sharing"]
            chosen = answers(scheduler, sim)
            for b in np.flatnonzero(~sim.is_done).tolist():
                void = sim.num_actions - 1
                candidates = rule(Cluster(view, b, mask))
                expected = first_best(candidates, void)
                action = int(chosen[b])
                decisions["void" if expected == void else "wpb"[expected % 3]] += 1
                if action != expected:  # allowed only between keys that differ by rounding
                    keys = f"seed {seed}: {action}, rule {expected} of {candidates}"
                    assert action in candidates, keys
                    assert candidates[action] != candidates[expected], f"tie: {keys}"
                    assert math.isclose(candidates[action], candidates[expected], rel_tol=1e-12), keys
    assert decisions["void"] > 20 and decisions["w"] > 20 and decisions["b"] > 20, (
        f"the cases are one-sided: {decisions}"
    )


def without_traps(sim: ClusterSimulator) -> bool:
    """Whether every job of the world can run under rules that always make progress."""
    return sim.config.speed.model == "analytic" and sim.config.dynamics.placement != "least_loaded_single"


@pytest.mark.parametrize("name", [*RULES, "random"])
def test_whole_episodes_are_legal_and_all_jobs_finish(name: str) -> None:
    scheduler = RULES[name][0] if name in RULES else get_scheduler("random")
    finished = 0
    for seed in range(8):
        _, sim = random_world(seed, mask_resources=True, max_intervals=5000)
        view = ClusterView(sim)
        is_sure = without_traps(sim)
        for _ in range(20000 if is_sure else 200):
            if sim.is_done.all():
                break
            mask = sim.action_masks()
            actions = scheduler.act(sim.observation(), mask, view)
            assert actions.dtype.kind == "i" and actions.shape == (sim.num_envs,)
            assert mask[np.arange(len(mask)), actions].all()
            assert not sim.step(actions).is_illegal.any()
        if is_sure:
            for b in range(sim.num_envs):
                assert np.isfinite(sim.records(b).finish_s).all(), f"seed {seed}: a job starves"
            finished += 1
    assert finished >= 3


@pytest.mark.parametrize("name", RULES)
def test_a_task_that_the_mask_forbids_is_never_chosen(name: str) -> None:
    # Any mask at all, not only those of a simulator.
    scheduler = RULES[name][0]
    rng = np.random.default_rng(5)
    for sim, view, mask in random_states(3, num_steps=30):
        narrow = mask & (rng.random(mask.shape) < 0.3)
        narrow[:, -1] = True
        actions = scheduler.act(sim.observation(), narrow, view)
        assert narrow[np.arange(len(narrow)), actions].all()


def test_a_worker_and_ps_that_fit_no_one_server_start_apart() -> None:
    # Each server has one CPU and one GPU; a worker takes both, a PS the CPU.
    for name in WORK_CONSERVING:
        scheduler = get_scheduler(name)
        sim = world([Type(fixed_s=1.0, caps=(2, 2))], [Job(samples=150.0)] * 3, [(1, 1)] * 3)
        for _ in range(1000):
            if sim.is_done[0]:
                break
            sim.step(answers(scheduler, sim))
        assert np.isfinite(sim.records(0).finish_s).all(), name


@pytest.mark.parametrize("name", ["drf", "fifo", "srtf", "tetris"])
def test_pairs_that_fit_apart_only_come_one_after_the_other(name: str) -> None:
    sim = world([Type(fixed_s=1.0, caps=(2, 2))], [Job()], [(1, 1)] * 6)
    assert plan(get_scheduler(name), sim) == "w0 p0 w0 p0"  # the caps are reached
    sim = world([Type(fixed_s=1.0, caps=(2, 2))], [Job()], [(1, 1)] * 3)
    assert plan(get_scheduler(name), sim) == "w0 p0 w0"


def test_optimus_and_marginal_gain_start_a_separated_pair() -> None:
    # 8 / w seconds: workers pay, further PSs do not.
    for name, expected in (("optimus", "p0 w0 w0 w0 void"), ("marginal", "p0 w0 w0 w0 void")):
        sim = world([Type(compute_s=8.0, ps_cost_s=1e-3, caps=(3, 3))], [Job()], [(1, 1)] * 6)
        assert plan(get_scheduler(name), sim) == expected


@pytest.mark.parametrize("name", ["optimus", "marginal"])
def test_a_lone_role_waits_for_the_other(name: str) -> None:
    # One worker holds the only server: no second worker, and no PS, can help.
    sim = world([Type(compute_s=8.0, caps=(3, 3))], [Job()], [(2, 2)])
    sim.step([0])
    assert plan(get_scheduler(name), sim) == "p0"
    sim = world([Type(worker=(1, 0), ps=(3, 0), compute_s=8.0, caps=(3, 3))], [Job()], [(4, 0)])
    sim.step([0])
    sim.step([0])  # two workers, no room for the PS
    assert plan(get_scheduler(name), sim) == "void"


def test_heuristics_see_every_job() -> None:
    _, sim = random_world(0)
    narrow = dataclasses.replace(sim.config, observation=dataclasses.replace(sim.config.observation, window=1))
    for name in WORK_CONSERVING:
        wanted = get_scheduler(name).configure(narrow)  # type: ignore[attr-defined]
        assert wanted.observation.window == max(narrow.workload.num_jobs, 1)
