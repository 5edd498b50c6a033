"""What is left to win: the best scheduler and the reference beside search and lower bound, on the same workloads.

The best scheduler of a scenario is the one with the smallest mean JCT on all its workloads, so it is not chosen on the
few that the search was run on. Ratios have paired intervals over the compared workloads, as everywhere on the board.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2env.evaluation.leaderboard.board import SCORE, Board, ScenarioBoard
from dl2env.evaluation.leaderboard.limits import BOUND_IS, SEARCH_IS
from dl2env.evaluation.ranking import Standing, compare_on_scenario, compare_over_scenarios
from dl2env.evaluation.statistics import Interval

BOUND, SEARCH, BEST, REFERENCE = "bound", "search", "best", "reference"
ROLES = (BOUND, SEARCH, BEST, REFERENCE)

MIN_WORKLOADS = 4
"""A scenario with fewer searched workloads shows ratios without intervals: a bootstrap of so few pretends certainty."""


@dataclass(frozen=True)
class Headroom:
    """The four on one scenario, or over scenarios.

    Attributes:
        name: Of the scenario, or what is averaged.
        best: Label of the scheduler in the role `best`, or what stands for it.
        num_workloads: Workloads compared; over scenarios their sum.
        standing: Comparison of those roles of `ROLES` that there are, by mean JCT.
        interval_s: Scheduling interval in seconds; None over scenarios, where only ratios make sense.
        note: What a reader has to know, or nothing.
    """

    name: str
    best: str
    num_workloads: int
    standing: Standing
    interval_s: float | None = None
    note: str = ""

    def mean_intervals(self, role: str) -> float | None:
        """Mean JCT in scheduling intervals of a role, if it is there."""
        if self.interval_s is None or role not in self.standing.names:
            return None
        return float(np.exp(self.standing.log_mean[self.standing.names.index(role)])) / self.interval_s

    def ratio(self, role: str, other: str) -> Interval | None:
        """Mean JCT of a role over that of another, if both are there; see `MIN_WORKLOADS`."""
        if not {role, other} <= set(self.standing.names):
            return None
        ratio = self.standing.ratios(other)[self.standing.names.index(role)]
        if self.interval_s is not None and self.num_workloads < MIN_WORKLOADS:
            return Interval(ratio.estimate, float("nan"), float("nan"))
        return ratio


def scenario_headroom(scenario: ScenarioBoard, reference: str, best: str | None = None) -> Headroom | None:
    """What is left to win on a scenario; None without limits or with oracles only.

    Args:
        scenario: Entries and limits.
        reference: Scheduler in the role `reference`, left out if it has no entry.
        best: Scheduler in the role `best`; None: the best one of the scenario that is no oracle.
    """
    limits, best = scenario.limits, scenario.best if best is None else best
    if limits is None or best not in scenario.labels:
        return None
    searched = limits.workload_digests[: limits.num_searched]
    shared = [k for k, digest in enumerate(scenario.digests) if digest in searched]
    has_search = bool(shared)
    if not has_search:
        shared = [k for k, digest in enumerate(scenario.digests) if digest in limits.workload_digests]
    places = [limits.workload_digests.index(scenario.digests[k]) for k in shared]
    rows = {BOUND: np.array(limits.bound_jct_s)[places]}
    if has_search:
        rows[SEARCH] = np.array(limits.search_jct_s)[places]
    scores = scenario.values(SCORE)[:, shared]
    rows[BEST] = scores[scenario.labels.index(best)]
    if reference in scenario.labels:
        rows[REFERENCE] = scores[scenario.labels.index(reference)]
    standing = compare_on_scenario(tuple(rows), np.stack(list(rows.values())), scenario.generator(" limits"))
    return Headroom(scenario.name, best, len(shared), standing, scenario.interval_s, _note(scenario))


def all_headroom(board: Board) -> list[Headroom]:
    """What is left to win on every scenario with limits, in the board's order."""
    return [found for s in board.scenarios if (found := scenario_headroom(s, board.reference)) is not None]


def overall_headroom(board: Board) -> list[Headroom]:
    """Geometric means over the headline scenarios with several searched workloads: their best ones, and one scheduler.

    Empty if there is none.
    """
    scenarios = [s for s in board.headline_scenarios if s.limits is not None and s.limits.num_searched > 1]
    chosen = [scenario_headroom(s, board.reference) for s in scenarios]
    found = [_overall("", "the best of each", chosen)]
    if board.best is not None:
        single = [scenario_headroom(s, board.reference, board.best) for s in scenarios]
        found.append(_overall(", one scheduler", board.best, single))
    return [item for item in found if item is not None]


def how_to_read(board: Board) -> str:
    """What bound and search are, a sentence each, and for how long plans were played."""
    limits = [s.limits for s in board.scenarios if s.limits is not None and s.limits.num_searched]
    horizons = sorted({int(item.options["search_horizon"]) for item in limits})
    played = f"Plans are played for {' or '.join(map(str, horizons))} intervals." if horizons else ""
    return " ".join(filter(None, (SEARCH_IS, played, BOUND_IS)))


def _overall(suffix: str, best: str, parts: Sequence[Headroom | None]) -> Headroom | None:
    whole = [part for part in parts if part is not None and part.standing.names == ROLES]
    if not whole:
        return None
    standing = compare_over_scenarios([part.standing for part in whole])
    name = f"all {len(whole)} scenarios" if len(whole) > 1 else "1 scenario"
    return Headroom(name + suffix, best, sum(part.num_workloads for part in whole), standing)


def _note(scenario: ScenarioBoard) -> str:
    limits = scenario.limits
    assert limits is not None
    parts = []
    if limits.is_cut_short:
        wanted, budget = limits.options["search_workloads"], limits.options["search_seconds"]
        parts.append(f"search on {limits.num_searched} of {wanted} workloads, then its {budget:g} CPU seconds ended")
    if limits.search_num_unfinished:
        parts.append(f"the search left {limits.search_num_unfinished} jobs unfinished")
    if not limits.num_searched:
        parts.append("no search was run")
    return "; ".join(parts)
