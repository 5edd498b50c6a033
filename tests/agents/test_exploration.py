from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.exploration import Exploration, epsilon

WORKER, PS, BUNDLE, NUM_JOBS = 0, 1, 2, 4
VOID = 3 * NUM_JOBS


@dataclass
class State:
    """Workers and PSs of the jobs of B like clusters; -1 workers: an empty slot."""

    workers: NDArray[np.int64]
    ps: NDArray[np.int64]
    is_present: NDArray[np.bool_]

    @classmethod
    def of(cls, *jobs: tuple[int, int], B: int = 2000) -> State:
        padded = [*jobs, *[(-1, 0)] * (NUM_JOBS - len(jobs))]
        workers, ps = (np.tile([job[k] for job in padded], (B, 1)) for k in range(2))
        return cls(np.maximum(workers, 0), ps, workers >= 0)

    def mask(self, *illegal: int) -> NDArray[np.bool_]:
        mask = np.ones((len(self.workers), VOID + 1), dtype=np.bool_)
        mask[:, :-1] = np.repeat(self.is_present, 3, axis=1)
        mask[:, list(illegal)] = False
        return mask


def explore(exploration: Exploration, state: State, *illegal: int, random_probability: float = 0.0) -> dict[int, float]:
    """Shares of the actions taken where the policy would always choose void."""
    mask = state.mask(*illegal)
    B = len(mask)
    exploration.start_intervals(np.ones(B, dtype=np.bool_))
    uniform = mask / mask.sum(axis=1, keepdims=True)
    actions = exploration.explore(np.full(B, VOID), uniform, mask, state, random_probability)
    assert mask[np.arange(B), actions].all()
    values, counts = np.unique(actions, return_counts=True)
    return dict(zip(values.tolist(), (counts / B).tolist(), strict=True))


@pytest.mark.parametrize(
    ("jobs", "action"),
    [
        ([(2, 0)], PS),  # (i)
        ([(0, 3)], WORKER),  # (ii)
        ([(11, 1)], PS),  # (iii)
        ([(1, 11)], WORKER),
        ([(1, 1), (2, 0), (0, 2)], 3 + PS),  # the first poor job in order of arrival
    ],
)
def test_rules_of_the_paper(jobs: list[tuple[int, int]], action: int) -> None:
    shares = explore(Exploration("paper", 2000, seed=1), State.of(*jobs))
    # Standard deviation of a share: 0.011.
    assert shares == {action: pytest.approx(0.4, abs=0.05), VOID: pytest.approx(0.6, abs=0.05)}


@pytest.mark.parametrize("jobs", [[(1, 1)], [(10, 1)], [(1, 10)], [(0, 0)], []])
def test_states_that_are_not_poor_are_left_alone(jobs: list[tuple[int, int]]) -> None:
    assert explore(Exploration("paper", 2000, probability=1.0), State.of(*jobs)) == {VOID: 1.0}


def test_paper_rules_skip_what_is_illegal() -> None:
    exploration = Exploration("paper", 2000, probability=1.0)
    state = State.of((2, 0), (0, 2))
    assert explore(exploration, state) == {PS: 1.0}
    assert explore(exploration, state, PS) == {3 + WORKER: 1.0}
    assert explore(exploration, state, PS, 3 + WORKER) == {VOID: 1.0}


def test_released_rules_give_what_is_missing_at_once() -> None:
    released = Exploration("released", 2000)
    assert explore(released, State.of((1, 0))) == {PS: 1.0}
    assert explore(Exploration("released", 2000), State.of((0, 0))) == {PS: 1.0}
    assert explore(Exploration("released", 2000), State.of((0, 1))) == {WORKER: 1.0}


def test_released_rules_lean_towards_parameter_servers() -> None:
    # 1 PS is at most 7 and at least 3 times 1 worker in no draw of rho: rule (d) in half of the cases.
    shares = explore(Exploration("released", 8000, seed=2), State.of((1, 1), B=8000))
    assert shares[PS] == pytest.approx(0.495, abs=0.03)
    assert shares[BUNDLE] == pytest.approx(0.005, abs=0.004)
    # 8 PSs exceed 7 workers' worth in all draws: rule (c), and 2 * 1 < 8 rules out (d).
    shares = explore(Exploration("released", 8000, seed=3), State.of((1, 8), B=8000))
    assert shares[WORKER] == pytest.approx(0.25, abs=0.03)
    assert shares[BUNDLE] == pytest.approx(0.25, abs=0.03)
    assert shares[VOID] == pytest.approx(0.5, abs=0.03)
    # 5 PSs exceed rho * 1 for rho in {3, 4} of {3..7}: half of 2/5.
    shares = explore(Exploration("released", 8000, seed=4), State.of((1, 5), B=8000))
    assert shares[VOID] == pytest.approx(0.8, abs=0.03)


def test_released_balance_serves_the_least_served_job() -> None:
    # 24 / 4 = 6 exceeds every draw from {3, 4, 5}; no later rule holds for jobs with 3 PSs per worker, rho at least 3.
    state = State.of((6, 18), (1, 3))
    shares = explore(Exploration("released", 2000, seed=1), state)
    assert set(shares) == {3 + WORKER, 3 + BUNDLE}
    assert shares[3 + WORKER] == pytest.approx(0.5, abs=0.06)
    # 16 / 4 = 4 exceeds 3 only.
    shares = explore(Exploration("released", 2000, seed=1), State.of((4, 12), (1, 3)))
    assert shares[VOID] == pytest.approx(2 / 3, abs=0.06)


def test_released_rules_take_a_kind_that_is_rare() -> None:
    exploration = Exploration("released", 2000, seed=1)
    exploration.restore({**exploration.state(), "num_used": [5000, 5000, 5]})
    assert explore(exploration, State.of((1, 3))) == {BUNDLE: 1.0}
    exploration.restore({**exploration.state(), "num_used": [5000, 5000, 0]})  # not all kinds used yet
    assert explore(exploration, State.of((1, 3))) == {VOID: 1.0}


def test_released_rules_need_some_probability() -> None:
    exploration = Exploration("released", 1)
    state = State.of((1, 0), B=1)
    never = np.zeros((1, VOID + 1))
    assert exploration.explore(np.array([VOID]), never, state.mask(), state).tolist() == [VOID]
    likely = never.copy()
    likely[0, PS] = 1e-19
    assert exploration.explore(np.array([VOID]), likely, state.mask(), state).tolist() == [PS]


def test_rho_changes_with_the_interval_only() -> None:
    exploration = Exploration("released", 50, seed=1)
    exploration.start_intervals(np.ones(50, dtype=np.bool_))
    before = np.array(exploration.state()["rho"])
    assert set(before) == {3, 4, 5, 6, 7}
    starts = np.arange(50) < 25
    exploration.start_intervals(starts)
    after = np.array(exploration.state()["rho"])
    assert (after[~starts] == before[~starts]).all() and (after[starts] != before[starts]).any()


def test_random_actions_are_legal_and_uniform() -> None:
    shares = explore(Exploration("none", 2000, seed=1), State.of((1, 1)), BUNDLE, random_probability=0.6)
    assert shares == {a: pytest.approx(0.2, abs=0.04) for a in (WORKER, PS)} | {VOID: pytest.approx(0.6, abs=0.05)}


def test_epsilon_falls_from_one() -> None:
    assert epsilon(0, 500.0) == 1.0
    assert epsilon(500, 500.0) == pytest.approx(2 / (1 + np.e))
    assert epsilon(10**9, 500.0) < 1e-100


@pytest.mark.parametrize("kind", ["paper", "released"])
def test_exploration_survives_a_restart(kind: Any) -> None:
    ours, theirs = Exploration(kind, 2000, seed=1), Exploration(kind, 2000, seed=2)
    state = State.of((1, 5), (3, 0))
    explore(ours, state)
    theirs.restore(ours.state())
    assert explore(ours, state) == explore(theirs, state)
    assert ours.state() == theirs.state()
