"""What a reader of a board has to know, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dl2env.evaluation.leaderboard.board import Board, ScenarioBoard

FEW_WORKLOADS = 20
"""Intervals from fewer are too narrow by more than a little: see `docs/leaderboard_howto.md`."""

MAX_NAMED = 3
"""Names that a notice gives; of more it says how many."""


def board_notices(board: Board, codes: Mapping[str, str]) -> list[str]:
    """What the comparison leaves out, what it mixes, and where it is less certain than it looks.

    Args:
        board: All scenarios.
        codes: Digest of today's code by name of the scheduler.
    """
    notices = []
    outside = [s for s in board.scenarios if s not in board.headline_scenarios]
    for reason, names in (
        (f"no result of {board.reference}", [s.name for s in outside if board.reference not in s.labels]),
        ("a single workload", [s.name for s in outside if board.reference in s.labels]),
    ):
        if names:
            notices.append(f"Not part of the overall ranking ({reason}): {', '.join(names)}.")
    notices += _other_code(board.scenarios, codes)
    few = [s.name for s in board.scenarios if 1 < s.num_workloads < FEW_WORKLOADS]
    if few:
        notices.append(
            f"Fewer than {FEW_WORKLOADS} workloads, so that intervals are too narrow (of 95 % intervals from 3 "
            f"workloads about 78 % hold the truth, from 10 about 90 %) and ranks too sure: {', '.join(few)}."
        )
    return notices


def some_names(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MAX_NAMED])} and {more} more"


def _other_code(scenarios: Sequence[ScenarioBoard], codes: Mapping[str, str]) -> list[str]:
    other = [
        f"{entry.scheduler} on {scenario.name}"
        for scenario in scenarios
        for entry in scenario.entries
        if entry.code_digest != codes.get(entry.scheduler_name, entry.code_digest)
    ]
    if not other:
        return []
    what = "1 entry was" if len(other) == 1 else f"{len(other)} entries were"
    return [f"{what} made with other code of this version, so run them again before comparing: {some_names(other)}."]
