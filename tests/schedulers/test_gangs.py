"""SJF, SRPT, LAS and Tiresias: the rule at every decision of random worlds, and worlds solved on paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers import rules_gangs
from tests.schedulers.planned_checks import check_decisions, check_whole_episodes
from tests.schedulers.rules_gangs import Queue, Wanted, gittins_indices
from tests.schedulers.worlds import INTERVAL_S, Job, Type, plan, random_states, random_world, world

NAMES = ("sjf", "srpt", "easy", "las", "tiresias-2das", "tiresias-gittins")
PAIR = Type(fixed_s=1.0, caps=(1, 1))  # asks for one worker and one PS: one sample/s
HOUR = 3600.0

RULES: dict[str, tuple[str, dict[str, Any], Callable[[Queue], Wanted]]] = {
    **{name: (name, {}, getattr(rules_gangs, name)) for name in ("sjf", "srpt", "easy", "las")},
    "sjf-1": ("sjf", {"speed_share": 1.0}, rules_gangs.sjf),
    "easy-0.5": ("easy", {"speed_share": 0.5}, rules_gangs.easy),
    "easy-1": ("easy", {"speed_share": 1.0}, rules_gangs.easy),
}
for form in ("2das", "gittins"):
    rule = getattr(rules_gangs, f"tiresias_{form}")
    name = f"tiresias-{form}"
    RULES[name] = (name, {"threshold_gpu_h": 0.01}, partial(rule, threshold_s=36.0))
    RULES[f"{name}-4q"] = (
        name,
        {"threshold_gpu_h": 0.02, "num_queues": 4, "ratio": 3.0},
        partial(rule, threshold_s=72.0, num_queues=4, ratio=3.0),
    )
    RULES[f"{name}-1q"] = (name, {"num_queues": 1}, partial(rule, threshold_s=1.0, num_queues=1))


@pytest.mark.parametrize("case", RULES)
def test_every_decision_follows_the_rule(case: str) -> None:
    name, options, rule = RULES[case]
    check_decisions(name, options, rule, Queue)


@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_are_legal_and_all_jobs_finish(name: str) -> None:
    check_whole_episodes(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_and_ps_that_fit_no_one_server_start_apart(name: str) -> None:
    # Two servers of one CPU and one GPU; a worker takes both, a PS the CPU. Two workers would leave no room for a PS.
    sim = world([Type(compute_s=1.0, caps=(2, 2))], [Job(samples=150.0)] * 3, [(1, 1)] * 2)
    assert plan(get_scheduler(name), sim) == "w0 p0"
    get_scheduler(name).run_intervals(sim, 1000)  # type: ignore[attr-defined]
    assert np.isfinite(sim.records(0).finish_s).all()


@pytest.mark.parametrize("name", NAMES)
def test_any_mask_is_respected(name: str) -> None:
    rng = np.random.default_rng(5)
    for sim, view, mask in random_states(3, num_steps=30):
        narrow = mask & (rng.random(mask.shape) < 0.3)
        narrow[:, -1] = True
        actions = get_scheduler(name).act(sim.observation(), narrow, view)
        assert narrow[np.arange(len(narrow)), actions].all()


def gangs(*shapes: tuple[int, int]) -> list[Type]:
    """Types whose speed is that of their workers, so that with a share of 1 jobs ask for all workers and one PS."""
    return [Type(compute_s=w, caps=(w, p), worker=(1, 1)) for w, p in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_a_request_is_the_smallest_gang_that_is_fast_enough(name: str) -> None:
    # A step of 8 / w + 1 s: 1/9, 1/5, 1/3.67, 1/3 samples/s; 80 % of the best takes 3 workers, 100 % takes 4.
    kind = [Type(compute_s=8.0, fixed_s=1.0, caps=(4, 4))]
    assert plan(get_scheduler(name), world(kind, [Job()], [(40, 20)])) == "b0 w0 w0 void"
    assert plan(get_scheduler(name, speed_share=1.0), world(kind, [Job()], [(40, 20)])) == "b0 w0 w0 w0 void"
    assert plan(get_scheduler(name, speed_share=0.1), world(kind, [Job()], [(40, 20)])) == "b0 void"


@pytest.mark.parametrize("name", NAMES)
def test_equal_jobs_are_served_by_arrival_to_the_end_of_each_gang(name: str) -> None:
    sim = world(gangs((2, 1)), [Job()] * 3, [(40, 4)])
    # A PS of job 2 is legal, but of no use without a worker.
    assert plan(get_scheduler(name, speed_share=1.0), sim) == "b0 w0 b1 w1 void"


@pytest.mark.parametrize("name", NAMES)
def test_a_gang_that_fits_in_part_runs_with_that_part(name: str) -> None:
    # Three GPUs for two gangs of two. EASY starts no gang that does not fit.
    sim = world(gangs((2, 1)), [Job()] * 2, [(40, 3)])
    assert plan(get_scheduler(name, speed_share=1.0), sim) == ("b0 w0 void" if name == "easy" else "b0 w0 b1")


def test_sjf_is_about_total_work_and_srpt_about_what_is_left() -> None:
    jobs = [Job(samples=1000.0, done=900.0), Job(samples=500.0)]
    assert plan(get_scheduler("sjf"), world([PAIR], jobs, [(2, 1)])) == "b1"
    assert plan(get_scheduler("srpt"), world([PAIR], jobs, [(2, 1)])) == "b0"


def test_sjf_reckons_with_the_best_speed_and_the_users_estimate() -> None:
    # 400 samples at up to 4 per second, 100 s; 200 samples at one per second, 200 s.
    types = [Type(compute_s=1.0, caps=(4, 1)), PAIR]
    sim = world(types, [Job(1, samples=200.0), Job(0, samples=400.0)], [(6, 4)])
    assert plan(get_scheduler("sjf", speed_share=1.0), sim) == "b1 w1 w1 w1 void"
    sim = world(types, [Job(1, samples=200.0), Job(0, samples=400.0)], [(6, 4)])
    sim.state.jobs["epochs"][0] = [200.0, 900.0]  # 225 s
    assert plan(get_scheduler("sjf", speed_share=1.0), sim) == "b0 b1 w1 w1"


def test_srpt_is_an_oracle() -> None:
    # The user says 500 samples, the job needs 50; the other is what it seems.
    for name, expected in (("srpt", "b1"), ("srtf", "b0"), ("sjf", "b0")):
        sim = world([PAIR], [Job(samples=200.0), Job(samples=50.0)], [(2, 1)])
        sim.state.jobs["epochs"][0] = [200.0, 500.0]
        assert plan(get_scheduler(name), sim) == expected


@cache
def least_total(now: int, left: tuple[int, ...], arrivals: tuple[int, ...]) -> int:
    """Least sum of completion times, in intervals, of jobs that one server serves one interval at a time."""
    present = [j for j, work in enumerate(left) if work > 0 and arrivals[j] <= now]
    if not any(left):
        return 0
    if not present:
        return least_total(now + 1, left, arrivals)
    totals = []
    for j in present:
        rest = tuple(work - (k == j) for k, work in enumerate(left))
        totals.append((now + 1 if rest[j] == 0 else 0) + least_total(now + 1, rest, arrivals))
    return min(totals)


@pytest.mark.parametrize("seed", range(10))
def test_srpt_is_optimal_on_one_server_whose_jobs_do_not_speed_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    work = rng.integers(1, 5, 5)
    arrivals = np.sort(rng.integers(0, 7, 5))
    jobs = [
        Job(samples=float(w) * INTERVAL_S, arrival_s=float(a) * INTERVAL_S) for w, a in zip(work, arrivals, strict=True)
    ]
    sim = world([PAIR], jobs, [(2, 1)])
    get_scheduler("srpt").run_intervals(sim, 1000)  # type: ignore[attr-defined]
    least = least_total(0, tuple(work.tolist()), tuple(arrivals.tolist()))
    assert sim.records(0).finish_s.sum() == pytest.approx(least * INTERVAL_S)


def served(name: str, sim: ClusterSimulator, **options: Any) -> list[int]:
    """Jobs in the order in which they get their first task, where all fit."""
    actions = plan(get_scheduler(name, **options), sim).replace("void", "").split()
    return list(dict.fromkeys(int(action[1:]) for action in actions))


def with_service(gpu_h: list[float], starts: list[float] | None = None, finished: int = 0) -> ClusterSimulator:
    """Jobs with that many GPU-hours behind them; the first ones have finished, and the others all fit."""
    sim = world([PAIR], [Job()] * len(gpu_h), [(100, 50)])
    sim.state.env["interval"] = 100
    jobs = sim.state.jobs[0]
    jobs["gpu_s"][: len(gpu_h)] = np.array(gpu_h) * HOUR
    if starts is not None:
        jobs["start_s"][: len(gpu_h)] = starts
    if finished:
        jobs["finish_s"][:finished] = 0.0
        active = np.arange(finished, len(gpu_h))
        sim.state.active[0, : len(active)] = active
        sim.state.env["num_active"] = len(active)
        sim.state.env["num_finished"] = finished
        sim.state.window[0, : len(active)] = active
        sim.state.window[0, len(active) :] = -1
    return sim


def test_las_serves_the_least_gpu_seconds_first() -> None:
    assert served("las", with_service([3.0, 1.0, 2.0, 1.0])) == [1, 3, 2, 0]


def test_las_alternates_between_equal_jobs() -> None:
    # One GPU: each job runs every other interval, and gets 100 s per turn.
    sim = world([PAIR], [Job(samples=250.0)] * 2, [(2, 1)])
    assert [plan(get_scheduler("las"), sim) for _ in range(5)] == ["b0", "b1", "b0", "b1", "b0"]
    assert plan(get_scheduler("las"), sim) == "b1"
    assert sim.records(0).finish_s.tolist() == [450.0, 550.0]


def test_las_charges_jobs_without_gpus_for_the_workers_their_progress_is_worth() -> None:
    # Job 0 asks for 2 workers (4 samples/s at best): 400 samples are 100 s, 200 worker-seconds. Jobs 1 and 2 held GPUs.
    types = [Type(compute_s=0.5, worker=(1, 0), caps=(2, 1)), PAIR]
    for gpu_s, expected in (
        ([0.0, 150.0, 250.0], [1, 0, 2]),
        ([0.0, 199.0, 201.0], [1, 0, 2]),
        ([0, 5e3, 5e3], [0, 1, 2]),
    ):
        sim = world(types, [Job(0, done=400.0), Job(1), Job(1)], [(100, 50)])
        sim.state.jobs["gpu_s"][0] = gpu_s
        assert served("las", sim, speed_share=1.0) == expected


def test_2das_is_first_in_first_out_inside_a_queue() -> None:
    # Threshold 4 GPU-hours: jobs 0 and 3 have left the first queue. Job 2 started before job 1; job 4 never has.
    sim = with_service([4.0, 3.9, 0.1, 9.0, 0.0], starts=[500.0, 200.0, 100.0, 0.0, math.nan])
    assert served("tiresias-2das", sim, threshold_gpu_h=4) == [2, 1, 4, 3, 0]


def test_2das_has_as_many_queues_as_asked_for() -> None:
    # Thresholds 1, 3 and 9 GPU-hours.
    hours = [20.0, 8.0, 9.0, 3.0, 2.0, 1.0, 0.5]
    options = dict(threshold_gpu_h=1, ratio=3)
    assert served("tiresias-2das", with_service(hours), num_queues=4, **options) == [6, 4, 5, 1, 3, 0, 2]
    assert served("tiresias-2das", with_service(hours), num_queues=3, **options) == [6, 4, 5, 0, 1, 2, 3]
    assert served("tiresias-2das", with_service(hours), num_queues=1, **options) == [0, 1, 2, 3, 4, 5, 6]


def test_2das_lets_a_short_job_pass_once_the_long_one_has_had_its_share() -> None:
    # One GPU, threshold 200 GPU-seconds: job 0 runs two intervals, then job 1 (100 s), then job 0 to its end.
    sim = world([PAIR], [Job(samples=400.0), Job(samples=100.0, arrival_s=100.0)], [(2, 1)])
    scheduler = get_scheduler("tiresias-2das", threshold_gpu_h=200 / HOUR)
    assert [plan(scheduler, sim) for _ in range(5)] == ["b0", "b0", "b1", "b0", "b0"]
    assert sim.records(0).finish_s.tolist() == [500.0, 300.0]


def test_gittins_indices_by_hand() -> None:
    # Levels start at 0, 1, 1.41, 2, 2.83, 4 ... Two jobs finished at 1.2, two still run at 4.
    indices = gittins_indices([(1.2, True)] * 2 + [(4.0, False)] * 2, 1.0)
    half = (math.sqrt(2) - 1) / 2  # middle of level 1 from its start
    # From 0: half of the jobs finish, at 1 + half; the others are given up at the end of level 1.
    assert indices[0] == pytest.approx(0.5 / (1 + 0.5 * half + 0.5 * 2 * half))
    assert indices[1] == pytest.approx(0.5 / (0.5 * half + 0.5 * 2 * half))
    assert indices[2:] == [0.0] * 30
    assert gittins_indices([], 1.0) == [0.0] * 32


def test_gittins_serves_those_likely_to_finish_soon_first() -> None:
    # Three jobs finished after one hour. One that has had 0.95 h is about to finish; those beyond never were seen to.
    sim = with_service([1.0, 1.0, 1.0, 5.0, 0.0, 0.95], finished=3)
    assert served("tiresias-gittins", sim, num_queues=1) == [5, 4, 3]
    # LAS would serve them in the order 4, 5, 3; and a threshold below 0.95 h puts job 5 behind job 4.
    sim = with_service([1.0, 1.0, 1.0, 5.0, 0.0, 0.95], finished=3)
    assert served("tiresias-gittins", sim, threshold_gpu_h=0.9) == [4, 5, 3]


def test_gittins_starts_blind_as_first_in_first_out() -> None:
    assert served("tiresias-gittins", with_service([3.0, 1.0, 2.0]), num_queues=1) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "option", "value", "bounds"),
    [
        *[(name, "speed_share", value, "(0, 1]") for name in NAMES for value in (0, 1.1, "x", math.nan)],
        *itertools.product(NAMES[-2:], ["threshold_gpu_h"], [0, -1.0, math.inf, None], ["(0, inf)"]),
        *itertools.product(NAMES[-2:], ["num_queues"], [0, 11], ["[1, 10]"]),
        *itertools.product(NAMES[-2:], ["ratio"], [1, 1001], ["(1, 1000]"]),
    ],
)
def test_wrong_options_are_one_line(name: str, option: str, value: Any, bounds: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_scheduler(name, **{option: value})
    assert str(caught.value) == f"{name}: {option}={value!r} must be a number in {bounds}"


@pytest.mark.parametrize("name", NAMES[-2:])
def test_queues_are_counted_in_whole_numbers(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: num_queues=2.5 must be a whole number"):
        get_scheduler(name, num_queues=2.5)


def test_names_tell_options_apart() -> None:
    assert get_scheduler("sjf").name == "sjf" and get_scheduler("easy", speed_share=0.5).name == "easy-0.5"
    named = get_scheduler("tiresias-2das", threshold_gpu_h=3, num_queues=3, ratio=2, speed_share=1)
    assert named.name == "tiresias-2das-1-3h-3q-x2"
    # Options without effect do not show.
    assert get_scheduler("tiresias-gittins", num_queues=1, threshold_gpu_h=3, ratio=2).name == "tiresias-gittins-1q"


def test_the_view_is_not_changed() -> None:
    _, sim = random_world(2)
    before = sim.snapshot()
    for name in NAMES:
        get_scheduler(name).act(sim.observation(), sim.action_masks(), ClusterView(sim))
    after = sim.snapshot()
    for name, old in before.arrays.items():
        new = after.arrays[name]
        for field in old.dtype.names or ("",):
            x, y = (old[field], new[field]) if field else (old, new)
            np.testing.assert_array_equal(x, y, f"{name} {field}")
