"""docs/characterization.md: its example runs, and its figures are those of the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dl2env.evaluation.characterization import tables
from dl2env.evaluation.characterization.findings import Characterization, characterize
from dl2env.evaluation.characterization.settings import CharacterizationSettings
from dl2env.evaluation.html_page import Table

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "characterization.md").read_text(encoding="utf-8")
NOT_SHOWN = {"of PS/Worker"}


def rows_of_page(first_column: str) -> list[list[str]]:
    (found,) = re.findall(rf"^\| {first_column} \|.*\n\|[-:|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


def rows_of_table(table: Table) -> list[list[str]]:
    shown = [i for i, column in enumerate(table.columns) if column.label not in NOT_SHOWN]
    return [[row.whole_cells[i].text for i in shown] for row in table.rows]


@pytest.fixture(scope="module")
def found() -> Characterization:
    return characterize(CharacterizationSettings())


def test_figures_of_the_page_are_those_of_the_command(found):
    assert rows_of_page("figure") == rows_of_table(tables.figures_table(found))
    assert rows_of_page("assumptions") == rows_of_table(tables.cases_table(found))
    met = sum(result.is_met is True for result in found.figures.values())
    assert f"{met} of {len(found.figures)} are met" in PAGE


def test_example_of_the_page_runs(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/characterization.md", "exec"), {})
    output = capsys.readouterr().out
    assert "fastest whose weights fit: ['allreduce_local', 'pearl']" in output
    assert "step in s: [0.468 1.88 ]" in output  # the recalled examples of the identities
