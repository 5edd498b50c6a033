"""Random actions with DL2's exploration rules: the rule at every decision, and how often each action is chosen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE
from tests.schedulers.rules_exploration import paper, released
from tests.schedulers.test_rules import without_traps
from tests.schedulers.worlds import Job, Type, act, answers, name_of, plan, random_states, random_world, world
from tests.sim.random_cases import random_action

NAMES = ("random-rules", "random-released-rules")
NUM_ENVS = 7000
WIDE = Type(fixed_s=1.0, caps=(16, 16))


@pytest.mark.parametrize(("probability", "ratio"), [(0.4, 10.0), (0.9, 1.5), (1.0, 1.0)])
def test_every_decision_follows_the_papers_rules(probability: float, ratio: float) -> None:
    scheduler = get_scheduler("random-rules", seed=3, probability=probability, ratio=ratio)
    num_forced = 0
    for seed in range(12):
        for sim, _, mask in random_states(seed, mask_resources=True):
            chosen = answers(scheduler, sim)
            plain = answers(get_scheduler("random", seed=3), sim)
            for b in np.flatnonzero(~sim.is_done).tolist():
                assert chosen[b] == paper(sim, b, mask, 3, probability, ratio)
                num_forced += int(chosen[b] != plain[b])
    assert num_forced > 10


def lopsided_states(seed: int) -> Iterator[tuple[ClusterSimulator, NDArray[np.bool_]]]:
    """States of a roomy world in which one job gets most tasks, many of them PSs."""
    rng = np.random.default_rng(seed)
    types = [WIDE, Type(compute_s=1.0, architecture=ALL_REDUCE, caps=(16, 1))]
    jobs = [Job(int(t)) for t in rng.permutation([0, 0, 0, 1])]
    sim = world(types, jobs, [(150, 50)], num_envs=4, initial_bundle=bool(seed % 3))
    sim.state.env["noise_key"] = rng.integers(0, 2**63, sim.num_envs)
    for _ in range(60):
        mask = sim.action_masks()
        yield sim, mask
        actions = [random_action(rng, row, void_share=0.03, illegal_share=0.0) for row in mask.tolist()]
        favourite = 3 * (seed % 4) + int(rng.choice([0, 1], p=[0.3, 0.7]))
        sim.step(
            [favourite if row[favourite] and rng.random() < 0.7 else a for a, row in zip(actions, mask, strict=True)]
        )


def test_every_decision_follows_the_released_rules() -> None:
    scheduler = get_scheduler("random-released-rules", seed=5)
    fired: dict[str, int] = {}
    for seed in range(10):
        random_worlds = ((sim, mask) for sim, _, mask in random_states(seed, mask_resources=True))
        for sim, mask in itertools.chain(random_worlds, lopsided_states(seed)):
            chosen = answers(scheduler, sim)
            for b in np.flatnonzero(~sim.is_done).tolist():
                assert chosen[b] == released(sim, b, mask, 5, fired)
    assert set(fired) == {"no ps", "no worker", "many ps", "few ps", "balance", "random"}, fired
    assert min(fired.values()) > 10, fired


@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_are_legal_and_all_jobs_finish(name: str) -> None:
    finished = 0
    for seed in range(8):
        _, sim = random_world(seed, mask_resources=True, max_intervals=20000, is_wide=True)
        if without_traps(sim):
            while not sim.is_done.all():
                assert get_scheduler(name).run_intervals(sim, 100).sum() == 0  # type: ignore[attr-defined]
            assert all(np.isfinite(sim.records(b).finish_s).all() for b in range(sim.num_envs))
            finished += 1
    assert finished >= 3


def shares(name: str, *done: str, jobs: int = 1, types: Any = (WIDE,), **options: Any) -> dict[str, float]:
    """How often each action is chosen in 7000 workloads that differ in their draws alone."""
    sim = world(types, [Job()] * jobs, [(400, 200)], num_envs=NUM_ENVS)
    act(sim, *done)
    sim.state.env["noise_key"] = np.arange(NUM_ENVS, dtype=np.uint64) * np.uint64(977)
    actions, counts = np.unique(answers(get_scheduler(name, **options), sim), return_counts=True)
    return {name_of(sim, int(a)): c / NUM_ENVS for a, c in zip(actions, counts, strict=True)}


def assert_shares(found: dict[str, float], expected: dict[str, float]) -> None:
    for action in {*found, *expected}:
        p = expected.get(action, 0.0)
        assert abs(found.get(action, 0.0) - p) <= 5 * math.sqrt(p * (1 - p) / NUM_ENVS), (action, found, expected)


QUARTERS = {"w0": 0.25, "p0": 0.25, "b0": 0.25, "void": 0.25}


def with_forced(probability: float, forced: dict[str, float]) -> dict[str, float]:
    """Shares when the forced actions come with a probability, and else any of the four."""
    return {a: probability * forced.get(a, 0.0) + (1 - probability) * p for a, p in QUARTERS.items()}


@pytest.mark.parametrize(
    ("done", "forced"),
    [
        ([], {}),  # neither role: not poor
        (["w0"], {"p0": 0.4}),
        (["p0"], {"w0": 0.4}),
        (["w0", "p0"], {}),
        (["b0"] + ["w0"] * 9, {}),  # ten to one is not above ten
        (["b0"] + ["w0"] * 10, {"p0": 0.4}),
        (["b0"] + ["p0"] * 10, {"w0": 0.4}),
    ],
)
def test_a_poor_state_is_corrected_with_the_papers_probability(done: list[str], forced: dict[str, float]) -> None:
    expected = with_forced(0.4, {a: 1.0 for a in forced}) if forced else QUARTERS
    assert_shares(shares("random-rules", *done), expected)


def test_probability_and_ratio_are_options() -> None:
    assert shares("random-rules", "w0", probability=1.0) == {"p0": 1.0}
    assert_shares(shares("random-rules", "w0", probability=0.0), QUARTERS)
    assert shares("random-rules", "b0", "w0", "w0", probability=1, ratio=2.9) == {"p0": 1.0}
    assert_shares(shares("random-rules", "b0", "w0", "w0", probability=1, ratio=3), QUARTERS)


def test_the_earliest_poor_job_whose_correction_is_legal_comes_first() -> None:
    assert shares("random-rules", "w0", "p1", jobs=2, probability=1) == {"p0": 1.0}
    assert shares("random-rules", "b0", "p1", jobs=2, probability=1) == {"w1": 1.0}
    # A PS of job 0 takes 9 CPUs, and 8 are left.
    sim = world([Type(ps=(9, 0), fixed_s=1.0), WIDE], [Job(0), Job(1)], [(10, 10)])
    act(sim, "w0", "p1")
    assert plan(get_scheduler("random-rules", probability=1), sim).startswith("w1")


def test_the_released_rules_complete_pairs_with_certainty() -> None:
    assert shares("random-released-rules") == {"p0": 1.0}
    assert shares("random-released-rules", "w0") == {"p0": 1.0}
    assert shares("random-released-rules", "p0") == {"w0": 1.0}
    assert shares("random-released-rules", "b0", "p1", jobs=2)["w1"] > 0.3  # unless rule 2 d fires for job 0


def test_the_released_rules_add_pss_up_to_two_per_worker() -> None:
    expected = with_forced(0.5, {"p0": 0.99, "b0": 0.01})
    assert_shares(shares("random-released-rules", "b0"), expected)
    assert_shares(shares("random-released-rules", "b0", "p0"), expected)
    assert_shares(shares("random-released-rules", "b0", "p0", "p0"), QUARTERS)  # 3 PSs, one worker
    assert_shares(shares("random-released-rules", "b0", "w0", "w0", "w0"), expected)


def test_the_released_rules_draw_the_largest_ratio_from_three_to_seven() -> None:
    # With p PSs to a worker, the share of limits 3 to 7 below p, times one half.
    for num_ps, below in ((4, 1 / 5), (6, 3 / 5), (8, 1.0)):
        expected = with_forced(0.5 * below, {"w0": 0.5, "b0": 0.5})
        assert_shares(shares("random-released-rules", "b0", *["p0"] * (num_ps - 1)), expected)


def test_the_released_rules_serve_the_least_served_job() -> None:
    # All-reduce jobs, which take part in the balance rule alone: 5 workers to one, above 3 and 4 of the three limits.
    types = [Type(compute_s=1.0, architecture=ALL_REDUCE, caps=(16, 1))]
    found = shares("random-released-rules", "w0", "w0", "w0", "w0", "w0", "w1", jobs=2, types=types)
    # Half of the forced actions would be pairs, which such jobs do not have. Else one of w0, w1 and void.
    forced = 2 / 3 / 2
    rest = (1 - forced) / 3
    assert_shares(found, {"w0": rest, "w1": forced + rest, "void": rest})


@pytest.mark.parametrize("name", NAMES)
def test_draws_depend_on_the_seed_alone(name: str) -> None:
    _, sim = random_world(4, num_envs=50)
    first, again, other = (answers(get_scheduler(name, seed=seed), sim) for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize(
    ("name", "option", "value", "bounds"),
    [
        *[(name, "seed", value, r"[0, 9.0072e+15]") for name in NAMES for value in (-1, "x")],
        ("random-rules", "probability", 1.5, "[0, 1]"),
        ("random-rules", "probability", -0.1, "[0, 1]"),
        ("random-rules", "ratio", 0.5, "[1, inf)"),
        ("random-rules", "ratio", math.nan, "[1, inf)"),
    ],
)
def test_wrong_options_are_one_line(name: str, option: str, value: Any, bounds: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_scheduler(name, **{option: value})
    assert str(caught.value) == f"{name}: {option}={value!r} must be a number in {bounds}"


def test_names_tell_options_apart() -> None:
    assert get_scheduler("random-rules").name == "random-rules"
    assert get_scheduler("random-rules", probability=0.5, ratio=3).name == "random-rules-0.5-1:3"
    assert get_scheduler("random-released-rules", seed=4).name == "random-released-rules"
