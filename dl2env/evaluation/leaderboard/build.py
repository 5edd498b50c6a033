"""From folders of entries to the pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.html_page import write_page
from dl2env.evaluation.leaderboard.board import Board, build_board
from dl2env.evaluation.leaderboard.cell import scheduler_code
from dl2env.evaluation.leaderboard.entry import Entry
from dl2env.evaluation.leaderboard.folder import read_folder, read_limits_folder
from dl2env.evaluation.leaderboard.html import board_html
from dl2env.evaluation.leaderboard.markdown import board_markdown
from dl2env.evaluation.leaderboard.selection import ScenarioChoice
from dl2env.scenarios import get_scenario, list_scenarios, suite_names
from dl2env.schedulers.registry import get_scheduler, scheduler_names

PAGES = ("leaderboard.md", "leaderboard.html")


def build_pages(
    folders: Sequence[Path],
    pages: Path,
    choices: Sequence[ScenarioChoice],
    *,
    only_chosen: bool,
    reference: str = "drf",
    split: str = "test",
) -> tuple[Board, list[Path]]:
    """Reads entries, builds the board and writes its pages.

    Args:
        folders: Folders of entries and limits; where two have one of the same, that of the first counts.
        pages: Folder of the pages.
        choices: Scenarios that were asked for: their present hashes count.
        only_chosen: Show no others.
        reference: Scheduler that ratios refer to.
        split: Which workloads.

    Returns:
        The board, and the files written.

    Raises:
        ConfigError: There is nothing to show, or a page cannot be written.
    """
    entries, limits, damaged = [], [], []
    for folder in folders:
        found, wrong = read_folder(folder)
        entries += list(found.values())
        found_limits, wrong_limits = read_limits_folder(folder)
        limits += found_limits
        damaged += [*wrong, *wrong_limits]
    hashes = {}
    names = []
    for choice in choices:
        scenario = choice.build()
        names.append(scenario.name)
        hashes[scenario.name] = scenario.hash()
    order = [*names] if only_chosen else [*suite_names(templates=True)]
    for name in sorted({entry.scenario for entry in entries} & set(list_scenarios()) - set(hashes)):
        scenario = get_scenario(name)
        if not scenario.missing:
            hashes[name] = scenario.hash()
    board = build_board(
        entries,
        reference=reference,
        split=split,
        scenario_order=order,
        only_listed=only_chosen,
        hashes=hashes,
        codes=_codes(entries),
        set_aside=damaged,
        limits=limits,
    )
    descriptions = {}
    for shown in board.scenarios:
        try:
            descriptions[shown.name] = get_scenario(shown.name).description
        except Dl2EnvError:  # a scenario of the user's own
            continue
    written = [
        write_page(pages / PAGES[0], board_markdown(board)),
        write_page(pages / PAGES[1], board_html(board, descriptions)),
    ]
    return board, written


def _codes(entries: Sequence[Entry]) -> dict[str, str]:
    """Digest of today's code behind each registered scheduler that has an entry."""
    names = sorted({entry.scheduler_name for entry in entries} & set(scheduler_names()))
    return {name: scheduler_code(type(get_scheduler(name)).__module__) for name in names}
