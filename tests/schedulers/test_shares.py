"""Max-min, Themis, Pollux, ElasticFlow and AFS: each decision in random worlds, and worlds solved on paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE
from tests.schedulers import rules_shares
from tests.schedulers.planned_checks import check_decisions, check_whole_episodes
from tests.schedulers.rules_gangs import Wanted
from tests.schedulers.rules_shares import Pool
from tests.schedulers.worlds import INTERVAL_S, Job, Type, plan, random_states, random_world, world

NAMES = ("maxmin", "themis", "gavel-maxmin", "gavel-makespan", "pollux", "elasticflow", "afs")

RULES: dict[str, tuple[str, dict[str, Any], Callable[[Pool], Wanted]]] = {
    **{name: (name, {}, getattr(rules_shares, name)) for name in ("maxmin", "themis", "pollux", "elasticflow", "afs")},
    "maxmin-1": ("maxmin", {"speed_share": 1.0}, rules_shares.maxmin),
    "maxmin-gpus": ("maxmin", {"resource": "gpus"}, partial(rules_shares.maxmin, resource="gpus")),
    "elasticflow-8": ("elasticflow", {"factor": 8.0}, partial(rules_shares.elasticflow, factor=8.0)),
}


@pytest.mark.parametrize("case", RULES)
def test_every_decision_follows_the_rule(case: str) -> None:
    name, options, rule = RULES[case]
    check_decisions(name, options, rule, Pool)


@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_are_legal_and_all_jobs_finish(name: str) -> None:
    check_whole_episodes(name)


@pytest.mark.parametrize("name", NAMES)
def test_any_mask_is_respected(name: str) -> None:
    rng = np.random.default_rng(5)
    for sim, view, mask in random_states(3, num_steps=30):
        narrow = mask & (rng.random(mask.shape) < 0.3)
        narrow[:, -1] = True
        actions = get_scheduler(name).act(sim.observation(), narrow, view)
        assert narrow[np.arange(len(narrow)), actions].all()


def reducer(compute_s: float = 10.0, fixed_s: float = 0.0, caps: int = 8) -> Type:
    """A type without PSs: a step takes `compute_s / workers + fixed_s`."""
    return Type(compute_s=compute_s, fixed_s=fixed_s, caps=(caps, 1), architecture=ALL_REDUCE)


def shares(name: str, sim: ClusterSimulator, **options: Any) -> list[int]:
    """Workers that each job gets in the present interval."""
    before = sim.state.jobs["gpu_s"][0].copy()
    get_scheduler(name, **options).run_intervals(sim, 1)  # type: ignore[attr-defined]
    return np.rint((sim.state.jobs["gpu_s"][0] - before) / INTERVAL_S).astype(int).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_of_a_decision_does_not_depend_on_what_was_placed(name: str) -> None:
    for seed in range(6):
        _, sim = random_world(seed, is_wide=True, num_envs=1, mask_resources=True, max_intervals=50)
        scheduler = get_scheduler(name)
        view = ClusterView(sim)
        wanted = None
        for _ in range(60):
            if sim.is_done[0]:
                break
            action = scheduler.act(sim.observation(), sim.action_masks(), view)
            active = sim.state.active[0, : int(sim.state.env["num_active"][0])]
            now = scheduler._scratch.candidates[["order", "workers", "ps", "gpu_kind"]][active]  # type: ignore[attr-defined]
            # With no legal action there is no plan.
            if wanted is not None and sim.state.env["num_legal"][0] > 0:
                assert (now == wanted).all()
            wanted = now.copy()
            if sim.step(action).interval_ended[0]:
                wanted = None


# --- max-min ---------------------------------------------------------------------------------------------------------


def test_maxmin_fills_small_demands_and_shares_the_rest_equally() -> None:
    types = [reducer(caps=1), reducer(caps=2), reducer(caps=8)]
    jobs = [Job(2), Job(0), Job(2), Job(1)]
    assert shares("maxmin", world(types, jobs, [(99, 11)]), speed_share=1.0) == [4, 1, 4, 2]
    assert shares("maxmin", world(types, jobs, [(99, 10)]), speed_share=1.0) == [
        4,
        1,
        3,
        2,
    ]  # the earlier gets the odd one
    assert shares("maxmin", world(types, jobs, [(99, 30)]), speed_share=1.0) == [8, 1, 8, 2]  # demands are met


def test_maxmin_stops_at_demands_where_drf_goes_on() -> None:
    # 8 / w + 2 s: one worker 1/10, two 1/6, four 1/4, eight 1/3; 70 % of the best take four.
    sim = world([reducer(8.0, 2.0)], [Job()], [(99, 20)])
    assert shares("maxmin", sim, speed_share=0.7) == [4]
    assert shares("drf", world([reducer(8.0, 2.0)], [Job()], [(99, 20)])) == [8]


def test_maxmin_keeps_the_proportions_of_a_request() -> None:
    # 40 / w + 2 w / p is least at (2, 4), so that each worker comes with two PSs.
    kind = Type(compute_s=40.0, service_s=2.0, caps=(2, 4))
    assert plan(get_scheduler("maxmin", speed_share=1.0), world([kind], [Job()], [(20, 9)])) == "b0 b0 p0 p0"
    # Of 5 CPUs the second worker and its PSs would need 3, and 2 are left.
    assert plan(get_scheduler("maxmin", speed_share=1.0), world([kind], [Job()], [(5, 9)])) == "b0 p0 void"


def test_maxmin_of_dominant_shares_or_of_gpus() -> None:
    # Workers of job 0 take 8 of 40 CPUs, of job 1 one; both one of 8 GPUs.
    types = [Type(worker=(8, 1), compute_s=1.0, caps=(4, 1), architecture=ALL_REDUCE), reducer(caps=8)]
    jobs = [Job(0), Job(1)]
    assert shares("maxmin", world(types, jobs, [(40, 8)]), speed_share=1.0) == [3, 5]
    assert shares("maxmin", world(types, jobs, [(40, 8)]), speed_share=1.0, resource="gpus") == [4, 4]


# --- Themis ----------------------------------------------------------------------------------------------------------


def test_themis_gives_to_the_worst_ratio() -> None:
    # Alone on 3 of 6 GPUs both would take 333 s. Job 1 has half of its work behind it. Ratios with w workers: 3 / w and
    # 1.5 / w. Job 0 goes to 2 (3 against 1.5), to 3 (a tie), job 1 to 2 (1 against 1.5), job 0 to 4 (1 against 0.75).
    jobs = [Job(samples=100.0), Job(samples=100.0, done=50.0)]
    assert shares("themis", world([reducer()], jobs, [(99, 6)])) == [4, 2]


def test_themis_counts_the_time_already_spent() -> None:
    # The same work, alone 333 s; job 0 has waited for 1000 s: (1000 + 1000 / w) / 333 is always above (1000 / w) / 333.
    sim = world([reducer()], [Job(samples=100.0), Job(samples=100.0, arrival_s=1000.0)], [(99, 6)], auto_advance=False)
    get_scheduler("void").run_intervals(sim, 10)  # type: ignore[attr-defined]
    assert shares("themis", sim) == [5, 1]


def test_themis_starts_the_worst_ratio_where_not_all_can_start() -> None:
    # One GPU; a long job with almost nothing left has a small ratio.
    jobs = [Job(samples=100.0, done=99.0), Job(samples=100.0), Job(samples=100.0, done=50.0)]
    assert shares("themis", world([reducer()], jobs, [(99, 1)])) == [0, 1, 0]


# --- Pollux ----------------------------------------------------------------------------------------------------------


def test_pollux_raises_the_harmonic_mean_of_speedups() -> None:
    # Fair shares are 2 of 4 GPUs. Seconds per sample 10, 5, 3.3, 2.5 and 10, 6, 4.7, 4: fair over speed
    # 2, 1, 0.67, 0.5 and 1.67, 1, 0.78, 0.67. Job 0 gains 1 by its second worker, job 1 0.67, job 0 0.33 by its third.
    jobs = [Job(0), Job(1)]
    assert shares("pollux", world([reducer(), reducer(8.0, 2.0)], jobs, [(99, 3)])) == [2, 1]
    assert shares("pollux", world([reducer(), reducer(8.0, 2.0)], jobs, [(99, 4)])) == [2, 2]


@pytest.mark.parametrize("seed", range(8))
def test_pollux_finds_the_best_harmonic_mean_of_concave_speeds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = [reducer(float(rng.uniform(2, 20)), float(rng.uniform(0, 3)), caps=5) for _ in range(3)]
    gpus = int(rng.integers(4, 12))

    def speed(t: Type, workers: float) -> float:
        low, high = int(workers), int(np.ceil(workers))
        speeds = [0.0 if w == 0 else 1.0 / (t.compute_s / w + t.fixed_s) for w in (low, high)]
        return float(np.interp(workers, [low, high] if high > low else [low, low + 1], speeds))

    fair = [speed(t, min(gpus / 3, 5)) for t in types]
    options = [ws for ws in itertools.product(range(1, 6), repeat=3) if sum(ws) <= gpus]
    mean = {ws: 3 / sum(f / speed(t, w) for f, t, w in zip(fair, types, ws, strict=True)) for ws in options}
    found = tuple(shares("pollux", world(types, [Job(t) for t in range(3)], [(99, gpus)])))
    assert mean[found] == pytest.approx(max(mean.values()))


# --- ElasticFlow -----------------------------------------------------------------------------------------------------


def test_elasticflow_gives_the_least_that_meets_each_deadline() -> None:
    # Speeds w / 10, best 0.8. Deadlines with a factor of 2: 250 s (100 samples) and 500 s (200 samples): four workers
    # each. One GPU more goes to the longer job, to which it saves more.
    jobs = [Job(samples=200.0), Job(samples=100.0)]
    assert shares("elasticflow", world([reducer()], jobs, [(99, 8)]), factor=2.0) == [4, 4]
    assert shares("elasticflow", world([reducer()], jobs, [(99, 9)]), factor=2.0) == [5, 4]
    # With 7 the earlier deadline is met; what is left is no use for the later one, and is shared out by return:
    # 2000 / w of job 0 saves 2000 by its first worker, 1000 by the second; job 1 starts from four.
    assert shares("elasticflow", world([reducer()], jobs, [(99, 7)]), factor=2.0) == [3, 4]


def test_elasticflow_serves_jobs_that_cannot_make_it_with_what_is_left() -> None:
    # At 200 s job 0, of which nothing is done, would need 100 samples in 50 s.
    jobs = [Job(samples=100.0), Job(samples=100.0, arrival_s=200.0)]
    sim = world([reducer()], jobs, [(99, 5)], auto_advance=False)
    get_scheduler("void").run_intervals(sim, 2)  # type: ignore[attr-defined]
    assert shares("elasticflow", sim, factor=2.0) == [1, 4]


# --- AFS -------------------------------------------------------------------------------------------------------------


def test_afs_gives_to_the_shorter_job_if_both_use_it_as_well() -> None:
    # Linear speeds, one worker each: (p' - p) / p is 1 for the shorter job, (p' - p) / p' is 1/2 for the longer one.
    assert shares("afs", world([reducer()], [Job(samples=200.0), Job(samples=100.0)], [(99, 3)])) == [1, 2]


def test_afs_gives_to_the_longer_job_if_it_uses_it_much_better() -> None:
    # The shorter job: 1 / 9.1 with one worker, 1 / 9.05 with two: 0.6 % more. The longer one gains half of p', then a
    # third. With three workers (667 s against 910) it is the shorter one, and gains a third of p.
    types = [reducer(), reducer(0.1, 9.0)]
    assert shares("afs", world(types, [Job(0, 200.0), Job(1, 100.0)], [(99, 6)])) == [5, 1]


def test_afs_starts_the_shortest_where_not_all_can_start() -> None:
    jobs = [Job(samples=300.0), Job(samples=100.0), Job(samples=200.0)]
    assert shares("afs", world([reducer()], jobs, [(99, 2)])) == [0, 1, 1]


# --- growth ----------------------------------------------------------------------------------------------------------

RIDGE = Type(compute_s=8.0, ethernet_s=5.0, caps=(8, 1), architecture=ALL_REDUCE)
"""Seconds: 8, then 8 / w + 5: 9, 7.7, 7, 6.6, 6.3, 6.1, 6. Two workers are slower than one."""


@pytest.mark.parametrize("name", ["themis", "pollux", "elasticflow", "afs"])
def test_jobs_grow_over_places_where_one_more_task_does_not_pay(name: str) -> None:
    # From one worker the speed per worker rises most with eight: (1/6 - 1/8) / 7, against (1/7 - 1/8) / 3 for four.
    assert shares(name, world([RIDGE], [Job()], [(99, 8)] * 2)) == [8]
    assert shares("optimus", world([RIDGE], [Job()], [(99, 8)] * 2)) == [1]
    # Two of them: no room for a step that pays.
    assert shares(name, world([RIDGE], [Job(), Job()], [(99, 2)] * 2)) == [1, 1]


@pytest.mark.parametrize("name", ["themis", "pollux", "elasticflow", "afs"])
def test_what_initial_bundles_give_is_where_jobs_start(name: str) -> None:
    # Four jobs on four GPUs: nothing is left to plan.
    sim = world([reducer()], [Job(samples=100.0 * (k + 1)) for k in range(4)], [(99, 4)], initial_bundle=True)
    assert shares(name, sim) == [1, 1, 1, 1]
    sim = world([reducer()], [Job(samples=100.0 * (k + 1)) for k in range(6)], [(99, 4)], initial_bundle=True)
    assert shares(name, sim) == [1, 1, 1, 1, 0, 0]  # more jobs than room: bundles go by arrival


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("maxmin", {"speed_share": 0.0}, r"maxmin: speed_share=0.0 must be a number in \(0, 1\]"),
        ("maxmin", {"resource": "cpus"}, "maxmin: resource='cpus' must be one of: dominant, gpus"),
        ("elasticflow", {"factor": 0.5}, r"elasticflow: factor=0.5 must be a number in \[1, inf\)"),
        ("gavel-maxmin", {"speed_share": 2}, r"gavel-maxmin: speed_share=2 must be a number in \(0, 1\]"),
        ("gavel-makespan", {"speed_share": float("nan")}, "gavel-makespan: speed_share=nan must be a number"),
    ],
)
def test_wrong_options_are_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        get_scheduler(name, **options)


def test_names_tell_options_apart() -> None:
    assert get_scheduler("maxmin", speed_share=1.0, resource="gpus").name == "maxmin-gpus-1"
    assert get_scheduler("elasticflow", factor=4).name == "elasticflow-4"
    assert get_scheduler("gavel-makespan", speed_share=0.5).name == "gavel-makespan-0.5"
