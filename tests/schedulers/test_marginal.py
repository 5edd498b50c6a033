"""Marginal gain: what an action is predicted to change is what it changes, other jobs included."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.speed.parameters import ALL_REDUCE, PS_WORKER
from tests.schedulers.worlds import Job, Type, act, answers, plan, random_states, world

SPEED_GAIN = REWARD_TERMS.index("speed_gain")


def realised_gains(sim: ClusterSimulator, b: int) -> dict[int, float]:
    """What each legal action of an environment does to the sum of estimated relative speeds, by trying it."""
    gains = {}
    void = sim.num_actions - 1
    before = sim.snapshot()
    for action in np.flatnonzero(sim.action_masks()[b][:void]).tolist():
        actions = np.full(sim.num_envs, void)
        actions[b] = action
        report = sim.step(actions)
        if not report.is_illegal[b]:
            gains[action] = float(report.reward_terms[b, SPEED_GAIN])
        sim.restore(before)
    return gains


def crowded_states(seed: int) -> Iterator[ClusterSimulator]:
    """Jobs of networked types that share five servers, each way of placement in turn; random decisions."""
    rng = np.random.default_rng(seed)
    types = [
        Type(
            worker=(int(rng.integers(1, 3)), 1),
            caps=(4, 4),
            compute_s=rng.uniform(2.0, 10.0),
            service_s=rng.uniform(0.0, 2.0),
            worker_cost_s=rng.uniform(0.0, 0.3),
            ethernet_s=rng.uniform(0.0, 3.0),
            link_use=rng.uniform(0.1, 1.0),
            architecture=architecture,
        )
        for architecture in (PS_WORKER, ALL_REDUCE, PS_WORKER)
    ]
    jobs = [Job(int(rng.integers(3)), rng.uniform(50.0, 400.0)) for _ in range(6)]
    sim = world(
        types,
        jobs,
        [(8, 4)] * 3 + [(4, 2)] * 2,
        link_sharing=float(rng.choice([0.3, 1.0, 3.0])),
        placement=("least_loaded", "pack", "spread", "least_loaded_single")[seed % 4],
        initial_bundle=bool(seed % 3),
        num_envs=2,
    )
    for _ in range(30):
        yield sim
        mask = sim.action_masks()
        sim.step(
            np.argmax(rng.random(mask.shape) * mask * np.where(np.arange(mask.shape[1]) % 3 == 2, 0.8, 1.0), axis=1)
        )


def test_greedy_in_what_really_changes() -> None:
    scheduler = get_scheduler("marginal", per_share=False)
    seen: Counter[str] = Counter()
    states = itertools.chain(
        *(crowded_states(seed) for seed in range(8)),
        *((sim for sim, _, _ in random_states(seed, num_steps=20)) for seed in range(100, 108)),
    )
    for sim in states:
        chosen = answers(scheduler, sim)
        for b in np.flatnonzero(~sim.is_done).tolist():
            gains = realised_gains(sim, b)
            best = max(gains.values(), default=0.0)
            action = int(chosen[b])
            if action == sim.num_actions - 1:
                assert best <= 1e-12, gains
                seen["void"] += bool(gains)
            elif not starts_apart(sim, b, sim.state.window[b, action // 3]):  # that has its own rule
                assert gains[action] == pytest.approx(best, abs=1e-12), gains
                seen["contention"] += bool((sim.state.jobs[b]["stretch"] > 1.0).any())
                seen["charged"] += any(gain < 0.0 for gain in gains.values())
    assert seen["void"] > 15 and min(seen["contention"], seen["charged"]) > 100, f"the cases are one-sided: {seen}"


def starts_apart(sim: ClusterSimulator, b: int, i: int) -> bool:
    """Whether a job of a type whose pair fits no server still lacks a role."""
    job = sim.state.jobs[b, i]
    pair = sim.state.demands[sim.state.classes[job["type"]]["bundle"]]
    return bool(pair["initial_fit"] == 0 and (job["workers"] == 0 or job["ps"] == 0))


# Two tasks per server. All-reduce: 10 / w seconds of computation, and 1 s of Ethernet as soon as there are two servers.
REDUCER = Type(worker=(1, 1), compute_s=10.0, ethernet_s=1.0, architecture=ALL_REDUCE, caps=(4, 4), link_use=0.5)


def test_the_loss_of_a_neighbour_stops_it() -> None:
    # Job 0 trains on both servers, 5 + 1 s per step, at its best. A second worker would take job 1 from 10 s to 9.5 s,
    # its best: a gain of 1 - 9.5 / 10. But it would put job 1 on the network. The stretch of job 0 becomes
    # 1 + 4 * 0.5 = 3 and its step 5 + 3 s: a loss of 1 - 6 / 8.
    indifferent = dataclasses.replace(REDUCER, compute_s=1.0, fixed_s=9.0, ethernet_s=0.0, caps=(2, 2))
    types = [dataclasses.replace(REDUCER, caps=(2, 2)), indifferent]

    def start(link_sharing: float) -> ClusterSimulator:
        sim = world(types, [Job(0), Job(1)], [(2, 2)] * 2, link_sharing=link_sharing)
        act(sim, "w0", "w0", "w1")
        return sim

    assert realised_gains(start(4.0), 0) == {3: pytest.approx(0.05 - 0.25)}
    assert plan(get_scheduler("optimus"), start(4.0)) == "w1"
    assert plan(get_scheduler("marginal"), start(4.0)) == "void"
    assert plan(get_scheduler("marginal"), start(0.5)) == "w1"  # 1 - 6 / 6.25 = 0.04 is less than 0.05


def test_a_gain_of_its_own_may_outweigh_the_loss() -> None:
    # As above, but job 1 gains a lot: 100 s against 50 + 1 * 3.
    eager = dataclasses.replace(REDUCER, compute_s=100.0, caps=(2, 2))
    sim = world([dataclasses.replace(REDUCER, caps=(2, 2)), eager], [Job(0), Job(1)], [(2, 2)] * 2, link_sharing=4.0)
    act(sim, "w0", "w0", "w1")
    assert realised_gains(sim, 0) == {3: pytest.approx((1 / 53 - 1 / 100) * 51 - 0.25)}
    assert plan(get_scheduler("marginal"), sim) == "w1"


def test_tasks_of_one_server_use_no_link() -> None:
    # The third worker of job 1 goes where its other two are, beside a worker of job 0, which is on the network.
    types = [dataclasses.replace(REDUCER, caps=(2, 2)), dataclasses.replace(REDUCER, ethernet_s=0.0, caps=(3, 3))]
    sim = world(types, [Job(0), Job(1)], [(1, 1), (4, 4)], link_sharing=50.0, placement="pack")
    act(sim, "w0", "w0", "w1", "w1")
    assert realised_gains(sim, 0) == {3: pytest.approx(1.0 - 2 / 3)}
    assert plan(get_scheduler("marginal"), sim) == "w1"


def test_own_tasks_are_no_neighbours() -> None:
    # One job over two servers, link use 1, strong sharing: alone it is never stretched.
    alone = dataclasses.replace(REDUCER, link_use=1.0)
    sim = world([alone], [Job(0)], [(2, 2)] * 2, link_sharing=100.0)
    assert plan(get_scheduler("marginal"), sim) == "w0 w0 w0 w0"


def test_gain_is_per_share_unless_switched_off() -> None:
    # Relative gains: 0.5 for a worker of job 0, which takes 5 GPUs of 11; 0.3 for one of job 1, which takes one.
    types = [
        Type(worker=(0, 5), compute_s=10.0, architecture=ALL_REDUCE, caps=(2, 2)),
        Type(worker=(0, 1), compute_s=6.0, fixed_s=4.0, architecture=ALL_REDUCE, caps=(2, 2)),
    ]
    for per_share, expected in ((True, "w1"), (False, "w0")):
        sim = world(types, [Job(0), Job(1)], [(10, 11)])
        act(sim, "w0", "w1")
        assert plan(get_scheduler("marginal", per_share=per_share), sim).startswith(expected)


def test_short_jobs_count_more_with_an_exponent() -> None:
    # Equal gains: ties go to the earlier job; weighted by 1 / remaining time, to the shorter one.
    jobs = [Job(samples=1000.0), Job(samples=500.0)]
    types = [Type(compute_s=10.0, architecture=ALL_REDUCE, caps=(2, 2))]
    assert plan(get_scheduler("marginal"), world(types, jobs, [(3, 3)])) == "w0 w0 w1"
    assert plan(get_scheduler("marginal", exponent=1.0), world(types, jobs, [(3, 3)])) == "w1 w1 w0"


# Seconds: 8, then 8 / w + 5: 9, 7.7, 7, 6.6, 6.3, 6.1, 6. Two workers are slower than one.
RIDGE = Type(compute_s=8.0, ethernet_s=5.0, caps=(8, 1), architecture=ALL_REDUCE)


def test_looking_ahead_gets_over_a_worker_that_does_not_pay() -> None:
    def planned(look_ahead: int, gpus: int = 8) -> str:
        sim = world([RIDGE], [Job()], [(gpus, gpus)] * 2)
        return plan(get_scheduler("marginal", look_ahead=look_ahead), sim)

    assert planned(1) == "w0 void"
    assert planned(4) == planned(8) == " ".join(["w0"] * 8)
    assert planned(4, gpus=1) == "w0 void"  # room for one more only


def test_looking_ahead_counts_the_loss_of_neighbours_for_each_task() -> None:
    # Job 1 would gain from 5 workers, (8 / 6.6 - 1) / (8 / 6) / 4 = 0.04 for each; job 0 would lose 0.25 by the first.
    types = [dataclasses.replace(REDUCER, caps=(2, 2)), dataclasses.replace(RIDGE, link_use=0.5)]

    def start(link_sharing: float) -> ClusterSimulator:
        sim = world(types, [Job(0), Job(1)], [(8, 8)] * 2, link_sharing=link_sharing)
        act(sim, "w0", "w0", "w1")
        return sim

    assert plan(get_scheduler("marginal", look_ahead=4), start(4.0)) == "void"
    assert plan(get_scheduler("marginal", look_ahead=4), start(0.0)) == " ".join(["w1"] * 7)


def test_looking_ahead_changes_nothing_where_speeds_are_concave() -> None:
    # The first action always gains most: the same decisions.
    concave = Type(compute_s=8.0, fixed_s=1.0, caps=(6, 1), architecture=ALL_REDUCE)
    plans = [
        plan(get_scheduler("marginal", look_ahead=n), world([concave], [Job(), Job(samples=10.0)], [(9, 9)]))
        for n in (1, 4)
    ]
    assert plans[0] == plans[1]


def test_bad_look_ahead_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^marginal: look_ahead=0 must be a number in \[1, 64\]$"):
        get_scheduler("marginal", look_ahead=0)


def test_the_tuned_forms_are_what_they_say() -> None:
    assert (get_scheduler("marginal-tuned").params == get_scheduler("marginal").params).all()  # type: ignore[attr-defined]
    tuned, eight = get_scheduler("drf-tuned"), get_scheduler("drf", ps_per_worker=8)
    assert (tuned.params == eight.params).all()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="drf-tuned.*unexpected keyword argument 'ps_per_worker'"):
        get_scheduler("drf-tuned", ps_per_worker=2)
