"""Limits: their file, how they are worked out and resumed, and that a damaged file is one clear error."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.bounds import BoundCalculator
from dl2env.evaluation.leaderboard.folder import read_folder, read_limits_folder
from dl2env.evaluation.leaderboard.limits import (
    LimitsError,
    is_limits_path,
    limits_path,
    read_limits,
    write_limits,
)
from dl2env.evaluation.leaderboard.limits_cell import LimitsCell, LimitsOptions, make_limits_cells, run_limits
from dl2env.evaluation.leaderboard.run import Progress, pending_cells, run_cells
from dl2env.evaluation.leaderboard.selection import choose_scenarios, choose_schedulers
from dl2env.evaluation.leaderboard.verify import verify_limits
from dl2env.evaluation.runner import run_scheduler
from dl2env.scenarios import get_scenario
from tests.evaluation.leaderboard.made_up import entry, limits

SMALL = Path(__file__).with_name("small-v1.toml")


def cell(num_workloads: int = 3, scenario: str = str(SMALL), split: str = "test", **options: Any) -> LimitsCell:
    options = {"search_workloads": 2, "search_horizon": 20, **options}
    chosen = choose_scenarios([scenario], {})
    (made,) = make_limits_cells(
        chosen,
        split=split,  # type: ignore[arg-type]
        num_workloads=num_workloads,
        options=LimitsOptions(**options),
    )
    return made


def test_limits_survive_their_file(tmp_path: Path) -> None:
    made = limits()
    path = write_limits(limits_path(tmp_path, "world-v1"), made)
    assert path == tmp_path / "world-v1" / "_limits.json"
    assert read_limits(path) == made
    assert [p.name for p in path.parent.iterdir()] == ["_limits.json"]
    assert (made.num_workloads, made.num_searched, made.is_cut_short) == (20, 10, False)
    assert limits(num_searched=4).is_cut_short
    assert not limits(num_workloads=4, num_searched=4).is_cut_short  # there are no more
    assert json.loads(path.read_text())["schema"] == "dl2env-leaderboard-limits"


def test_limits_are_no_entries_and_take_no_name_of_one(tmp_path: Path) -> None:
    from dl2env.evaluation.leaderboard.entry import entry_path, write_entry

    write_limits(limits_path(tmp_path, "world-v1"), limits())
    write_limits(limits_path(tmp_path, "world-v1", "validation"), limits(split="validation"))
    own = write_entry(entry_path(tmp_path, "world-v1", "_limits"), entry("_limits", "world-v1"))
    odd = write_entry(entry_path(tmp_path, "world-v1", "…"), entry("…", "world-v1"))
    assert own.name == "limits.json" and odd.name == "_.json" and not is_limits_path(odd)
    entries, damaged = read_folder(tmp_path)
    assert set(entries) == {own, odd} and damaged == []
    found, damaged = read_limits_folder(tmp_path)
    assert sorted(item.split for item in found) == ["test", "validation"] and damaged == []


def damaged(**changes: Any) -> str:
    content = {"schema": "dl2env-leaderboard-limits", "schema_version": 1, **limits().__dict__, **changes}
    return json.dumps({key: value for key, value in content.items() if value != "REMOVE"})


BOUND = list(limits().bound_jct_s)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a JSON file"),
        ('{"schema": "dl2env-leaderboard-limits", ', "not a JSON file"),
        (damaged(schema="dl2env-leaderboard-entry"), "not a file of limits (no schema dl2env-leaderboard-limits)"),
        (damaged(schema_version=2), "schema version 2, this code reads 1"),
        (damaged(bound_jct_s="REMOVE"), "bound_jct_s is missing"),
        (damaged(scenario=""), "scenario must be a text"),
        (damaged(metrics=[]), "metrics must be a group of keys"),
        (damaged(metrics={}), "metrics must be a group of bound_jct_s, search_jct_s"),
        (damaged(metrics={**limits().metrics, "search_jct_s": 1.0}), "metrics.search_jct_s must be"),
        (damaged(workload_digests=[]), "workload_digests must be a list of texts"),
        (damaged(workload_digests=["a"] * 20), "workload_digests must be all different"),
        (damaged(bound_jct_s=BOUND[:-1]), "bound_jct_s must be 20 numbers, one per workload"),
        (damaged(bound_jct_s=[*BOUND[:-1], -1.0]), "bound_jct_s must be a list of positive numbers"),
        (damaged(bound_jct_s=[*BOUND[:-1], True]), "bound_jct_s must be a list of positive numbers"),
        (damaged(search_jct_s=[*BOUND, 1.0]), "search_jct_s must be a list of positive numbers, 20 at most"),
        (damaged(search_jct_s=[0.9 * BOUND[0]]), "search_jct_s[0] must be at least the bound"),
        (damaged(search_num_unfinished=-1), "search_num_unfinished must be a number of jobs"),
        (damaged(options={}), "options must be a group of search_workloads, search_seconds, search_horizon"),
        (damaged(options={**limits().options, "search_horizon": None}), "options.search_horizon must be a number"),
        (damaged(timing={"wall_s": 1.0}), "timing must be numbers by name"),
        (damaged(interval_s=0), "interval_s must be a positive number"),
    ],
)
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "world-v1" / "_limits.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(LimitsError) as caught:
        read_limits(path)
    message = str(caught.value)
    assert str(path) in message and words in message and "run the leaderboard again" in message and "\n" not in message
    found, wrong = read_limits_folder(tmp_path)
    assert found == [] and [item.name for item in wrong] == ["world-v1/_limits.json"]


def test_open_budget_and_no_search_are_fine(tmp_path: Path) -> None:
    made = limits(num_searched=0, options={"search_workloads": 0, "search_seconds": None, "search_horizon": 25})
    assert read_limits(write_limits(tmp_path / "_limits.json", made)) == made and not made.is_cut_short


def test_limits_hold_what_bound_and_search_give() -> None:
    shares: list[float] = []
    made = run_limits(cell(), shares.append)
    scenario = get_scenario(SMALL)
    workloads = scenario.workloads("test", 3)
    calculator = BoundCalculator(scenario.config)
    assert made.bound_jct_s == pytest.approx([calculator.bound(w).mean_jct_s for w in workloads], rel=1e-5)
    assert made.workload_digests == tuple(w.digest()[:16] for w in workloads)
    assert made.scenario_hash == scenario.hash() and made.num_searched == 2 and made.search_num_unfinished == 0
    (search,) = choose_schedulers([{"name": "search", "options": {"horizon": 20}}], {})
    # Played in one batch by the runner, the search comes to the same: it depends on nothing but the workload.
    result = run_scheduler(search.build(), scenario.config, workloads[:2])
    assert made.search_jct_s == pytest.approx(result.values("mean_jct_s"), rel=1e-5)
    assert shares == sorted(shares) and 0 < shares[0] < shares[-1] <= 0.99
    again = run_limits(cell())
    assert replace(again, timing=made.timing) == made


def test_the_budget_ends_the_search_after_a_workload() -> None:
    made = run_limits(cell(num_workloads=4, search_workloads=4, search_seconds=1e-6))
    assert (made.num_workloads, made.num_searched, made.is_cut_short) == (4, 1, True)
    none = run_limits(cell(search_workloads=0))
    assert none.search_jct_s == () and set(none.metrics) == {"bound_jct_s"} and not none.is_cut_short
    (toy,) = make_limits_cells(choose_scenarios(["toy-v1"], {}), options=LimitsOptions(search_horizon=10))
    assert (toy.num_workloads, toy.num_wanted) == (1, 1)


def test_unfinished_jobs_of_the_search_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "cut-v1.toml"
    text = SMALL.read_text().replace('name = "small-v1"', 'name = "cut-v1"')
    path.write_text(
        f"{text}\n[config.dynamics]\nmax_intervals = 2\n".replace("[sources]", '[sources]\n"dynamics" = "x"')
    )
    made = run_limits(cell(scenario=str(path), num_workloads=1))
    assert made.search_num_unfinished > 0
    assert read_limits(write_limits(tmp_path / "_limits.json", made)) == made  # still not below the bound


def test_finished_limits_are_kept_and_others_made_again(tmp_path: Path) -> None:
    first = cell()
    seen: list[Progress] = []
    result = run_cells([first], tmp_path, 1, seen.append)
    assert result.written == [tmp_path / "small-v1" / "_limits.json"] and result.failures == []
    assert seen[0].running == ("limits of small-v1",) and seen[-1].share == 1.0
    assert run_cells([first], tmp_path, 1).kept == ["limits of small-v1"]
    changes = {
        "fewer workloads": (cell(num_workloads=2), 0),
        "fewer searched": (cell(search_workloads=1), 0),
        "a budget that was not needed": (cell(search_seconds=1.0), 0),
        "more workloads": (cell(num_workloads=4), 1),
        "more searched": (cell(search_workloads=3), 1),
        "another horizon": (cell(search_horizon=21), 1),
        "another split": (cell(split="validation"), 1),
        "another world": (replace(first, scenario_hash="b" * 64), 1),
        "other code": (replace(first, code="d" * 16), 1),
    }
    for what, (wanted, count) in changes.items():
        assert len(pending_cells([wanted], tmp_path)[0]) == count, what
    path = first.path(tmp_path)
    path.write_text(path.read_text()[:200])
    assert not first.is_done_in(tmp_path)  # damaged: made again


def test_limits_cut_short_are_kept_until_there_is_more_time(tmp_path: Path) -> None:
    short = cell(search_seconds=10.0, search_workloads=3)
    made = replace(run_limits(cell(search_workloads=1)), options={**limits().options, "search_horizon": 20})
    cut = replace(made, options={"search_workloads": 3, "search_seconds": 10.0, "search_horizon": 20})
    write_limits(short.path(tmp_path), cut)
    assert short.is_done_in(tmp_path)
    assert cell(search_seconds=5.0, search_workloads=3).is_done_in(tmp_path)
    assert not cell(search_seconds=20.0, search_workloads=3).is_done_in(tmp_path)
    assert not cell(search_seconds=None, search_workloads=3).is_done_in(tmp_path)


def test_the_command_makes_the_file_again() -> None:
    words = shlex.split(cell(search_seconds=2.5, split="validation").command())
    assert words == [
        "python", "scripts/leaderboard.py", "schedulers=[drf]", f"scenarios=[{SMALL}]", "num_workloads=3",
        "split=validation", "search_workloads=2", "search_seconds=2.5", "search_horizon=20",
    ]  # fmt: skip
    assert "search_seconds=null" in cell().command()


def test_limits_are_verified(tmp_path: Path) -> None:
    files = {"small-v1": str(SMALL)}
    made = run_limits(cell())
    path = write_limits(tmp_path / "_limits.json", made)
    verdict = verify_limits(path, sample=1, paths=files)
    assert verdict.holds and verdict.lines == (
        "limits of small-v1 holds: 3 bounds and 1 of 2 searches worked out again, all are the same",
    )
    search = (made.search_jct_s[0], 1.01 * made.search_jct_s[1])
    means = {**made.metrics, "search_jct_s": float(np.mean(search))}
    write_limits(path, replace(made, search_jct_s=search, metrics=means, code_digest="x"))
    verdict = verify_limits(path, sample=None, paths=files)
    assert not verdict.holds and "search_jct_s: 1 of 2 workloads differ, such as 1:" in verdict.lines[1]
    assert verdict.lines[-1] == "note: made with other code of the same version"
    lower = tuple(0.9 * value for value in made.bound_jct_s)
    write_limits(path, replace(made, bound_jct_s=lower, metrics={**made.metrics, "bound_jct_s": float(np.mean(lower))}))
    assert "bound_jct_s: 3 of 3 workloads differ" in verify_limits(path, sample=1, paths=files).lines[1]
    write_limits(path, replace(made, scenario_hash="b" * 64))
    assert "its hash differs" in verify_limits(path, paths=files).lines[0]
    with pytest.raises(ConfigError, match="limits of small-v1 cannot be worked out here: unknown scenario"):
        verify_limits(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search_workloads": -1}, "search_workloads=-1"),
        ({"search_seconds": 0.0}, "search_seconds=0.0"),
        ({"search_seconds": float("nan")}, "search_seconds=nan"),
        ({"search_horizon": 0}, "search_horizon=0"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LimitsOptions(**options)


def test_more_to_search_costs_more() -> None:
    costs = [
        cell(search_workloads=0).cost,
        cell(search_workloads=1).cost,
        cell(search_workloads=3).cost,
        cell(search_workloads=3, scenario="dl2-small-v1").cost,
        cell(search_workloads=3, scenario="dl2-large-v1").cost,
    ]
    assert costs == sorted(costs) and np.unique(costs).size == len(costs)
    assert cell(scenario="dl2-large-v1", search_seconds=1.0).cost < cell(scenario="dl2-large-v1").cost
