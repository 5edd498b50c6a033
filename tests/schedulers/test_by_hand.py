"""DRF, FIFO, SRTF, Tetris and random on clusters small enough to decide on paper."""

from __future__ import annotations

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.speed.parameters import ALL_REDUCE
from tests.schedulers.worlds import Job, Type, act, answers, plan, world

PLAIN = Type(fixed_s=1.0)  # one sample/s, whatever it is given


def test_drf_evens_out_dominant_shares() -> None:
    # 16 CPUs and 8 GPUs. A bundle of job 0 takes 2 CPUs and 2 GPUs: a quarter of the GPUs. One of job 1 takes 3 CPUs.
    types = [Type(worker=(1, 2), fixed_s=1.0), Type(worker=(2, 0), fixed_s=1.0)]
    sim = world(types, [Job(0), Job(1)], [(16, 8)])
    # Shares (job 0, job 1) in sixteenths: 0 0, 4 0, 4 3, 4 6, 8 6, 8 9, 12 9; then one CPU is left.
    assert plan(get_scheduler("drf"), sim) == "b0 b1 b1 b0 b1 b0 void"


def test_drf_counts_the_scarcer_resource() -> None:
    # Both jobs take one GPU of 4; job 1 also 3 CPUs of 8, and thus is served less.
    types = [Type(worker=(0, 1), fixed_s=1.0), Type(worker=(2, 1), fixed_s=1.0)]
    sim = world(types, [Job(1), Job(0)], [(8, 4)])
    # 0 0, 3/8 0, 3/8 1/4, 3/8 1/2, 6/8 1/2 -> 0 CPUs left
    assert plan(get_scheduler("drf"), sim) == "b0 b1 b1 b0"


def test_drf_breaks_ties_by_arrival() -> None:
    sim = world([PLAIN], [Job()] * 3, [(8, 4)])
    assert plan(get_scheduler("drf"), sim) == "b0 b1 b2 b0"


def test_drf_passes_over_jobs_that_can_get_nothing() -> None:
    # Job 0 has the smaller share all along, but its second bundle needs 4 GPUs, and 2 are left.
    types = [Type(worker=(0, 4), ps=(0, 0), fixed_s=1.0), Type(worker=(5, 0), ps=(5, 0), fixed_s=1.0, caps=(9, 9))]
    sim = world(types, [Job(0), Job(1)], [(30, 6)])
    assert plan(get_scheduler("drf"), sim) == "b0 b1 b1 b1 void"  # a PS of job 0, which takes nothing, is legal


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1, "b0 b0 b0 b0"),
        (0.5, "b0 w0 b0 w0"),  # (1, 1) (2, 1) (3, 2) (4, 2): the cap on workers
        (2, "b0 p0 b0 p0"),  # (1, 1) (1, 2) (2, 3) (2, 4): the cap on PSs
        (1 / 3, "b0 w0 w0 b0"),
        (100, "b0 p0 p0 p0"),
    ],
)
def test_drf_keeps_the_ratio(ratio: float, expected: str) -> None:
    sim = world([PLAIN], [Job()], [(40, 20)])
    assert plan(get_scheduler("drf", ps_per_worker=ratio), sim).removesuffix(" void") == expected


@pytest.mark.parametrize("name", ["drf", "fifo", "srtf", "tetris"])
def test_equal_numbers_are_restored_first(name: str) -> None:
    sim = world([PLAIN], [Job()], [(40, 20)])
    act(sim, "w0", "w0")
    assert plan(get_scheduler(name), sim) == "p0 p0 b0 b0"
    sim = world([PLAIN], [Job()], [(40, 20)])
    act(sim, "p0")
    assert plan(get_scheduler(name), sim) == "w0 b0 b0 b0"


@pytest.mark.parametrize("name", ["drf", "fifo", "srtf", "tetris", "optimus", "marginal"])
def test_jobs_without_parameter_servers_get_workers(name: str) -> None:
    types = [Type(compute_s=8.0, architecture=ALL_REDUCE, caps=(3, 3))]
    assert plan(get_scheduler(name), world(types, [Job()], [(4, 4)])) == "w0 w0 w0"


def test_fifo_fills_the_earliest_job_to_its_caps() -> None:
    sim = world([Type(fixed_s=1.0, caps=(2, 3))], [Job(samples=9e9), Job(samples=1.0)], [(20, 10)])
    # Equal numbers end at the smaller cap; a third PS would be legal.
    assert plan(get_scheduler("fifo"), sim) == "b0 b0 b1 b1 void"


def test_fifo_passes_over_jobs_that_do_not_fit() -> None:
    types = [Type(worker=(1, 3), fixed_s=1.0), Type(worker=(1, 1), fixed_s=1.0)]
    assert plan(get_scheduler("fifo"), world(types, [Job(0), Job(1)], [(20, 5)])) == "b0 b1 b1 void"


def test_srtf_serves_the_shortest_job_first() -> None:
    sim = world([Type(fixed_s=1.0, caps=(2, 2))], [Job(samples=300.0), Job(samples=200.0)], [(20, 10)])
    assert plan(get_scheduler("srtf"), sim) == "b1 b1 b0 b0"


def test_srtf_is_about_time_not_fractions_or_samples() -> None:
    # 900 of 1000 samples are done at 1 sample/s: 100 s left. The new job has 150 samples at 0.5 s each: 75 s.
    types = [Type(fixed_s=1.0, caps=(1, 1)), Type(fixed_s=0.5, caps=(1, 1))]
    sim = world(types, [Job(0, samples=1000.0, done=900.0), Job(1, samples=150.0)], [(20, 10)])
    assert plan(get_scheduler("srtf"), sim) == "b1 b0"


def test_srtf_reckons_with_the_best_speed() -> None:
    # 400 samples at 8 / w seconds: 2 s each at 4 workers, 800 s. 500 samples at 1 s: 500 s. With one worker 3200 s.
    types = [Type(compute_s=8.0, caps=(4, 1)), Type(fixed_s=1.0, caps=(1, 1))]
    sim = world(types, [Job(0, samples=400.0), Job(1, samples=500.0)], [(20, 10)])
    assert plan(get_scheduler("srtf"), sim).startswith("b1 b0")
    sim = world(types, [Job(0, samples=200.0), Job(1, samples=500.0)], [(20, 10)])
    assert plan(get_scheduler("srtf"), sim).startswith("b0 b1")


def test_srtf_breaks_ties_by_arrival() -> None:
    sim = world([Type(fixed_s=1.0, caps=(1, 1))], [Job(samples=5.0)] * 3, [(20, 10)])
    assert plan(get_scheduler("srtf"), sim) == "b0 b1 b2"


def test_tetris_weighs_alignment_and_remaining_work() -> None:
    # Shares of a 10 CPU, 10 GPU cluster: a bundle of job 0 is (0.2, 0.1), of job 1 (0.4, 0.3).
    # Remaining 100 s and 50 s. First decision, all free: alignment 0.3 and 0.7; work 0.3 * 100 = 30 and 0.7 * 50 = 35;
    # weight 1 / 65: scores 0.3 - 30/65 < 0 < 0.7 - 35/65. Second, (0.6, 0.7) free: 0.19 - 0.64 * 30/65 = -0.11 and
    # 0.45 - 0.64 * 35/65 = 0.11. Third, (0.2, 0.4) free: job 1 does not fit.
    types = [Type(worker=(1, 1), fixed_s=1.0), Type(worker=(3, 3), fixed_s=1.0)]
    sim = world(types, [Job(0, samples=100.0), Job(1, samples=50.0)], [(10, 10)])
    assert plan(get_scheduler("tetris"), sim) == "b1 b1 b0"


def test_tetris_prefers_short_jobs_of_equal_demand() -> None:
    sim = world([Type(fixed_s=1.0, caps=(2, 2))], [Job(samples=200.0), Job(samples=100.0)], [(20, 10)])
    assert plan(get_scheduler("tetris"), sim) == "b1 b1 b0 b0"


def test_tetris_prefers_large_demands_of_equal_work() -> None:
    # Sizes 0.3 and 0.6, remaining 200 s and 100 s: the same work, twice the alignment.
    types = [Type(worker=(1, 1), fixed_s=1.0), Type(worker=(3, 2), fixed_s=1.0)]
    sim = world(types, [Job(0, samples=200.0), Job(1, samples=100.0)], [(10, 10)])
    assert plan(get_scheduler("tetris"), sim).startswith("b1")


def test_tetris_breaks_ties_by_arrival_and_survives_finished_work() -> None:
    # Jobs whose estimate is used up have no remaining work: only alignment counts.
    sim = world([Type(fixed_s=1.0, caps=(1, 1))], [Job(samples=100.0)] * 3, [(20, 10)])
    sim.state.jobs["epochs"] = 50.0
    sim.state.jobs["epochs_done"] = 60.0
    assert plan(get_scheduler("tetris"), sim) == "b0 b1 b2"


def test_void_leaves_jobs_with_their_initial_bundle() -> None:
    sim = world([PLAIN], [Job(samples=150.0)] * 2, [(8, 4)], initial_bundle=True)
    assert plan(get_scheduler("void"), sim) == plan(get_scheduler("void"), sim) == "void"
    assert sim.records(0).finish_s.tolist() == [150.0, 150.0]


def test_random_is_uniform_over_legal_actions_and_repeats_with_its_seed() -> None:
    # 5 CPUs, 1 GPU: bundle, worker or PS for either job, or void.
    sim = world([PLAIN], [Job()] * 2, [(2, 1)], num_envs=7000)
    sim.state.env["noise_key"] = np.arange(7000)  # 7000 workloads
    actions = answers(get_scheduler("random", seed=3), sim)
    counts = np.bincount(actions, minlength=sim.num_actions)
    assert (abs(counts - 1000) < 150).all()  # five standard deviations
    act(sim, "w0")  # no GPU is left: two PSs or void
    legal = np.flatnonzero(sim.action_masks()[0])
    actions = answers(get_scheduler("random", seed=3), sim)
    assert legal.tolist() == [1, 4, 6] and set(actions.tolist()) == {1, 4, 6}
    assert (actions == answers(get_scheduler("random", seed=3), sim)).all()
    assert (actions != answers(get_scheduler("random", seed=4), sim)).any()


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("drf", "ps_per_worker", 0),
        ("drf", "ps_per_worker", -1),
        ("drf", "ps_per_worker", float("nan")),
        ("marginal", "exponent", -0.5),
        ("marginal", "exponent", float("nan")),
        ("random", "seed", -1),
    ],
)
def test_wrong_options_are_one_line(name: str, option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: {option}={value} must be a number in [(\[]0, .*[)\]]$"):
        get_scheduler(name, **{option: value})


def test_names_tell_options_apart() -> None:
    assert get_scheduler("drf").name == "drf"
    assert get_scheduler("drf", ps_per_worker=0.5).name == "drf-1:0.5"
    assert get_scheduler("marginal").name == "marginal"
    assert get_scheduler("marginal", exponent=1).name == "marginal-1"
    assert get_scheduler("marginal", look_ahead=4).name == "marginal-lookahead-4"
    assert get_scheduler("marginal-lookahead", exponent=0.5, per_share=False).name == "marginal-lookahead-4-0.5-total"
    assert get_scheduler("optimus", bundle=True).name == "optimus-bundle"
    assert get_scheduler("optimus", estimate="noisy", noise=0.1).name == "optimus-noisy-0.1"
