"""Figures of scenarios: measured, kept, and written into a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.contention import measure_contention, offered_load
from dl2env.evaluation.scenario_figures import (
    BEGIN,
    END,
    format_figures,
    measure_scenario,
    merge_figures,
    read_figures,
    replace_figures,
    write_figures,
)
from dl2env.schedulers import get_scheduler
from tests.evaluation.fakes import small_scenario


def row(scenario: str, split: str = "train", load: float | None = 0.5, **changes: Any) -> dict[str, Any]:
    """A made-up row."""
    found = {
        "share_full": 0.46,
        "tasks_per_nic": 3.26,
        "mean_slowdown": -0.0001,
        "speed_variation": None,
        "mean_jobs": 8.4,
        "peak_jobs": 20.0,
        "mean_jct_intervals": 13.427,
    }
    schedulers = {name: {**found, **changes} for name in ("drf", "optimus-exact", "marginal")}
    return {
        "scenario": scenario,
        "split": split,
        "num_gpus": 96,
        "num_jobs": 60,
        "load": {"cpus": load, "gpus": None},
        "schedulers": schedulers,
    }


def test_a_measured_row_holds_what_was_measured() -> None:
    scenario = small_scenario()
    found = measure_scenario(scenario, 2, "validation")
    workloads = scenario.workloads("validation", 2)
    assert (found["hash"], found["split"], found["num_workloads"]) == (scenario.hash(), "validation", 2)
    assert found["num_servers"] == scenario.config.cluster.num_servers
    assert found["load"]["cpus"] == pytest.approx(offered_load(scenario.config, workloads)["cpus"], rel=1e-3)
    expected = measure_contention(get_scheduler("optimus-exact"), scenario.config, workloads)
    optimus = found["schedulers"]["optimus-exact"]
    assert optimus["mean_jct_intervals"] == pytest.approx(expected.mean_jct_intervals, rel=1e-3)
    assert optimus["num_samples"] == expected.num_samples
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_table_by_hand() -> None:
    header, line, first, second = format_figures([row("a-v1"), row("a-v1", "test", load=None)]).splitlines()
    assert header.count("|") == line.count("|") == first.count("|") == second.count("|")
    assert first == (
        "| a-v1 | 96 | 60 | 0.50 | 46 / 46 | 3.3 / 3.3 | 0 / 0 | - / - | 8 (20) / 8 (20) | 13.43 / 13.43 / 13.43 |"
    )
    assert second.startswith("| a-v1, test split | 96 | 60 | - | 46")


def test_new_rows_take_the_place_of_old_ones() -> None:
    old = [row("a-v1"), row("b-v1"), row("gone-v1")]
    new = [row("c-v1", "test"), row("c-v1"), row("a-v1", num_jobs=7)]
    rows = merge_figures(old, new, ["b-v1", "c-v1", "a-v1"])
    assert [(r["scenario"], r["split"]) for r in rows] == [
        ("b-v1", "train"),
        ("c-v1", "train"),
        ("c-v1", "test"),
        ("a-v1", "train"),
    ]
    assert rows[-1] is new[-1]


def test_files_come_back(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    assert read_figures(path) == []
    write_figures(path, [row("a-v1")])
    assert read_figures(path) == [row("a-v1")]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1", "rows": []}', '{"schema": "x"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "measured.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"measured\.json: .*remove the file"):
        read_figures(path)


def test_the_page_keeps_everything_else() -> None:
    page = f"before\n{BEGIN}\nold\nrows\n{END}\nafter\n"
    assert replace_figures(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert replace_figures(replace_figures(page, "other"), "new") == replace_figures(page, "new")


@pytest.mark.parametrize("page", ["nothing", BEGIN, END, f"{END} {BEGIN}"])
def test_a_page_without_a_place_is_refused(page: str) -> None:
    with pytest.raises(ConfigError, match="no place for the table; add the lines"):
        replace_figures(page, "new")
