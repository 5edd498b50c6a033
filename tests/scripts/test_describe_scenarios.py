"""`scripts/describe_scenarios.py`, on few workloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dl2env.evaluation.scenario_figures import BEGIN, END, format_figures
from dl2env.resources import data_path
from scripts import describe_scenarios


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    """Options that keep the results in a folder of their own."""
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{BEGIN}\n{END}\nrest\n")
    return ["--figures", str(tmp_path / "measured.json"), "--page", str(page)]


def test_rows_are_measured_and_kept(places: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert describe_scenarios.main(["saturated-12-v1", "--workloads", "1", *places]) == 0
    assert describe_scenarios.main(["unseen-types-v1", "--workloads", "1", *places]) == 0
    rows = json.loads((tmp_path / "measured.json").read_text())["rows"]
    assert [(row["scenario"], row["split"]) for row in rows] == [
        ("saturated-12-v1", "train"),
        ("unseen-types-v1", "train"),
        ("unseen-types-v1", "test"),
    ]
    page = (tmp_path / "page.md").read_text()
    assert page == f"# Page\n{BEGIN}\n{format_figures(rows)}\n{END}\nrest\n"
    printed = capsys.readouterr().out.splitlines()
    assert [line[:18] for line in printed[2:4]] == ["| unseen-types-v1 |", "| unseen-types-v1,"] or len(printed) == 5
    (tmp_path / "page.md").write_text(f"{BEGIN}{END}")
    assert describe_scenarios.main(["--no-measure", *places]) == 0
    assert format_figures(rows) in (tmp_path / "page.md").read_text()


def test_the_committed_page_holds_the_committed_figures(places: list[str], tmp_path: Path) -> None:
    figures = data_path("scenarios", "measured.json")
    committed = describe_scenarios.PAGE.read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(committed, encoding="utf-8")
    assert describe_scenarios.main(["--no-measure", *places[2:], "--figures", str(figures)]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == committed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none-v1"], "unknown scenario of the suite 'none-v1'; choose one of: bursty-v1"),
        (["toy-v1"], "unknown scenario of the suite 'toy-v1'"),
        (["measured-tables-v1"], "scenario measured-tables-v1 needs speed.table"),
        (["--path", "measured-tables-v1=table.json"], "write scenario:key=file"),
        (["--path", "measured-tables-v1:speed.table="], "write scenario:key=file"),
        (["--path", "tables-v1:speed.table=t.json"], "unknown scenario of the suite 'tables-v1'"),
        (["measured-tables-v1", "--path", "measured-tables-v1:speed.table=no.json"], "no.json: cannot be read"),
        (["bursty-v1", "--workloads", "0"], "0 workloads asked for; give at least 1"),
        (["--no-measure", "--page", "no/page.md"], "no/page.md"),
    ],
)
def test_wrong_input_is_one_line(
    capsys: pytest.CaptureFixture[str], places: list[str], arguments: list[str], message: str
) -> None:
    assert describe_scenarios.main([*places, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
