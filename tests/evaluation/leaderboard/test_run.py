"""Cells: what is run, what is kept, what is in an entry, and that an entry can be verified."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl2env
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.cell import Cell, hydra_value, make_cells, run_cell
from dl2env.evaluation.leaderboard.entry import QUANTILE_LEVELS, Entry, EntryError, read_entry, write_entry
from dl2env.evaluation.leaderboard.run import Progress, check_writable, compile_kernels, pending_cells, run_cells
from dl2env.evaluation.leaderboard.selection import choose_scenarios, choose_schedulers
from dl2env.evaluation.leaderboard.verify import _sample, verify_entry
from dl2env.evaluation.runner import run_scheduler
from dl2env.scenarios import get_scenario

SMALL = Path(__file__).with_name("small-v1.toml")


def cells(*schedulers: Any, scenario: str = str(SMALL), **kwargs: Any) -> list[Cell]:
    options = {"num_workloads": 4, **kwargs}
    return make_cells(choose_schedulers(list(schedulers), {}), choose_scenarios([scenario], {}), **options)


def test_an_entry_holds_what_the_runner_measured() -> None:
    (cell,) = cells("drf")
    entry = run_cell(cell)
    scenario = get_scenario(SMALL)
    workloads = scenario.workloads("test", 4)
    result = run_scheduler(cell.scheduler.build(), scenario.config, workloads)
    for metric in ("mean_jct_s", "p99_jct_s", "max_rho", "gpu_hours", "num_decisions"):
        assert entry.values(metric) == pytest.approx(result.values(metric), rel=1e-5)
    assert entry.metrics["mean_jct_s"] == pytest.approx(result.values("mean_jct_s").mean(), rel=1e-5)
    assert entry.workload_digests == tuple(w.digest()[:16] for w in workloads)
    jct_s = np.concatenate([r.jct_s for r in result.records])
    assert entry.jct_quantiles_s == pytest.approx(np.quantile(jct_s, QUANTILE_LEVELS), rel=1e-5)
    assert entry.scenario_hash == scenario.hash() and entry.scenario == "small-v1"
    assert entry.version == dl2env.__version__ and entry.versions["numpy"] == np.__version__
    assert entry.seeds == {"workloads": scenario.seed, "scheduler": None}


def test_an_entry_says_what_the_scheduler_knew_and_took() -> None:
    made = {cell.scheduler.label: run_cell(cell) for cell in cells("drf", "optimus-fitted", "optimus-noisy")}
    assert {name: e.knows for name, e in made.items()} == {
        "drf": "exact",
        "optimus-fitted": "fitted ±5 %",
        "optimus-noisy": "noisy ±10 %",
    }
    assert made["optimus-noisy"].estimate == {"kind": "noisy", "noise": 0.1, "num_probes": 10}
    assert all(0 < e.timing["cpu_ms_per_episode"] <= 1e3 * e.timing["wall_s"] for e in made.values())
    (knowing,) = cells("tests.evaluation.leaderboard.odd_schedulers:Knowing", num_workloads=1)
    assert run_cell(knowing).is_oracle and run_cell(knowing).knows == "oracle"


def test_fixed_workloads_limit_the_number() -> None:
    (cell,) = cells("void", scenario="toy-v1", num_workloads=50)
    assert (cell.num_workloads, cell.num_jobs, cell.num_servers) == (1, 2, 2)
    assert run_cell(cell).num_workloads == 1


def test_trimmed_averages() -> None:
    (whole,), (cut,) = cells("drf"), cells("drf", trim=(0.2, 0.2))
    a, b = run_cell(whole), run_cell(cut)
    assert b.trim == (0.2, 0.2) and a.metrics["mean_jct_s"] != b.metrics["mean_jct_s"]
    assert a.metrics["gpu_hours"] == b.metrics["gpu_hours"]
    scenario = get_scenario(SMALL)
    result = run_scheduler(cut.scheduler.build(), scenario.config, scenario.workloads("test", 4))
    assert b.values("mean_jct_s") == pytest.approx([r.jct_s[1:4].mean() for r in result.records], rel=1e-5)


def test_finished_cells_are_kept_and_others_run(tmp_path: Path) -> None:
    first = cells("drf", "void")
    seen: list[Progress] = []
    result = run_cells(first, tmp_path, 2, seen.append)
    assert {path.stem for path in result.written} == {"drf", "void"} and result.failures == []
    assert seen[-1].share == pytest.approx(1.0) and seen[-1].num_done == seen[-1].num_cells == 2
    assert [p.share for p in seen] == sorted(p.share for p in seen)
    again = run_cells(first, tmp_path, 2)
    assert (again.written, len(again.kept)) == ([], 2)
    changes = {
        "fewer workloads": (cells("drf", "void", num_workloads=2), 0),
        "more workloads": (cells("drf", "void", num_workloads=5), 2),
        "one more scheduler": (cells("drf", "void", "fifo"), 1),
        "other options": (cells({"name": "drf", "options": {"ps_per_worker": 2.0}, "label": "drf"}, "void"), 1),
        "another split": (cells("drf", "void", split="validation"), 2),
        "trimmed": (cells("drf", "void", trim=(0.1, 0.0)), 2),
        "another world": ([replace(cell, scenario_hash="b" * 64) for cell in first], 2),
        "other code": ([replace(cell, code="d" * 16) for cell in first], 2),
    }
    for what, (wanted, count) in changes.items():
        assert len(pending_cells(wanted, tmp_path)[0]) == count, what
    first[0].path(tmp_path).write_text('{"schema": ')  # damaged: made again
    assert [cell.label for cell in pending_cells(first, tmp_path)[0]] == ["drf on small-v1"]


def test_the_entry_of_another_scheduler_is_not_overwritten(tmp_path: Path) -> None:
    (first,) = cells({"name": "void", "label": "a/b"})
    write_entry(first.path(tmp_path), run_cell(first))
    with pytest.raises(ConfigError, match=r"a_b.json is the entry of 'a/b'; give 'a b' another label"):
        pending_cells(cells({"name": "drf", "label": "a b"}), tmp_path)


def test_heavy_cells_come_first(tmp_path: Path) -> None:
    mixed = [*cells("void", scenario="toy-v1"), *cells("void"), *cells("tests.schedulers.own:LongestQueue")]
    assert [cell.label for cell in pending_cells(mixed, tmp_path)[0]] == [
        "longest-queue on small-v1",
        "void on small-v1",
        "void on toy-v1",
    ]


def test_a_failing_cell_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    broken = {"name": "tests.evaluation.leaderboard.odd_schedulers:Broken", "label": "broken"}
    compile_kernels(cells(broken))  # raises nothing
    result = run_cells(cells(broken, "void"), tmp_path, 1)
    assert [path.stem for path in result.written] == ["void"]
    (failure,) = result.failures
    assert failure.label == "broken on small-v1" and failure.error == "RuntimeError: out of order"
    assert "odd_schedulers.py" in failure.details


def test_schedulers_that_end_their_process_end_no_other(tmp_path: Path) -> None:
    folder = "tests.evaluation.leaderboard.odd_schedulers"
    bad = [{"name": f"{folder}:Ending", "options": {"how": how}, "label": how} for how in ("exit", "interrupt", "die")]
    compile_kernels(cells(*bad))
    result = run_cells(cells(*bad, "void"), tmp_path, 1)
    assert [path.stem for path in result.written] == ["void"]
    errors = {failure.label.split()[0]: failure.error for failure in result.failures}
    assert errors == {
        "exit": "SystemExit: 3",
        "interrupt": "KeyboardInterrupt",
        "die": "its process ended with status 4",
    }


def test_a_folder_that_cannot_be_written_to_is_found_before_the_run(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: no entries can be written there"):
        check_writable(tmp_path / "file")


def test_commands_make_the_entry_again() -> None:
    (cell,) = cells({"name": "optimus", "options": {"estimate": "noisy", "noise": 0.2}}, split="validation")
    assert cell.command() == (
        "python scripts/leaderboard.py 'schedulers=[{name: optimus,options: {estimate: noisy,noise: 0.2},"
        f"label: \"optimus(estimate=noisy, noise=0.2)\"}}]' 'scenarios=[{SMALL}]' num_workloads=4 split=validation "
        "limits=false"
    )
    drawing = "tests.evaluation.leaderboard.odd_schedulers:Drawing"
    assert ["batch=16" in c.command() for c in cells(drawing, "drf", batch=16)] == [True, False]
    (plain,) = cells("drf", scenario="toy-v1")
    assert plain.command() == (
        "python scripts/leaderboard.py 'schedulers=[drf]' 'scenarios=[toy-v1]' num_workloads=1 limits=false"
    )


def test_values_as_hydra_reads_them() -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for value in ("a", "1", "1e3", "null", "True", "a b", 'q"u\\o', "m.n:C", "", 1, 2.5, None, True, ["x", {"y": "é"}]):
        assert parser.parse_override(f"key={hydra_value(value)}").value() == value


def test_wrong_numbers() -> None:
    with pytest.raises(ConfigError, match="num_workloads=0"):
        cells("drf", num_workloads=0)


@pytest.fixture(scope="module")
def drf_entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (cell,) = cells("drf", scenario="dl2-small-v1", num_workloads=3)
    return write_entry(tmp_path_factory.mktemp("entries") / "drf.json", run_cell(cell))


def test_a_right_entry_holds(drf_entry: Path) -> None:
    verdict = verify_entry(drf_entry, sample=2)
    assert verdict.holds and "2 of 3 workloads run again, all metrics are the same" in verdict.lines[0]
    assert "3 of 3" in verify_entry(drf_entry, sample=None).lines[0]


def altered(path: Path, folder: Path, **changes: Any) -> Path:
    return write_entry(folder / "altered.json", replace(read_entry(path), **changes))


def scaled(entry: Entry, factor: float) -> dict[str, Any]:
    """What an entry with another mean JCT would hold, with everything that hangs together."""
    names = ("mean_jct_s", "mean_jct_intervals")
    values = {name: [factor * value for value in entry.values(name)] for name in names}
    means = {name: float(np.mean(values[name])) for name in names}
    return {"per_workload": {**entry.per_workload, **values}, "metrics": {**entry.metrics, **means}}


def test_a_wrong_entry_does_not_hold(drf_entry: Path, tmp_path: Path) -> None:
    path = altered(drf_entry, tmp_path, **scaled(read_entry(drf_entry), 0.999))
    verdict = verify_entry(path, sample=2)
    assert not verdict.holds and "does not hold" in verdict.lines[0]
    assert "mean_jct_s: 2 of 2 workloads differ" in verdict.lines[1]
    assert not verify_entry(altered(drf_entry, tmp_path, scenario_hash="b" * 64)).holds
    assert not verify_entry(altered(drf_entry, tmp_path, workload_digests=("a", "b", "c"))).holds


def test_code_and_version_are_noted(drf_entry: Path, tmp_path: Path) -> None:
    assert "made with other code" in verify_entry(altered(drf_entry, tmp_path, code_digest="x"), sample=1).lines[-1]
    assert "made with dl2env 0.0.1" in verify_entry(altered(drf_entry, tmp_path, version="0.0.1"), sample=1).lines[-1]
    with pytest.raises(ConfigError, match="cannot be run here: unknown scheduler 'gone'"):
        verify_entry(altered(drf_entry, tmp_path, scheduler_name="gone"))


def test_a_scheduler_that_draws_holds_within_chance(tmp_path: Path) -> None:
    (cell,) = cells("tests.evaluation.leaderboard.odd_schedulers:Drawing", num_workloads=10)
    entry = run_cell(cell)
    path = write_entry(tmp_path / "drawing.json", entry)
    files = {"small-v1": str(SMALL)}
    whole = verify_entry(path, sample=None, paths=files)
    assert whole.holds and "all metrics are the same" in whole.lines[0]  # same seed, same batch
    some = verify_entry(path, sample=9, paths=files, seed=0)
    assert some.holds and "within chance" in some.lines[0]
    wrong = altered(path, tmp_path, **scaled(entry, 0.5))
    verdict = verify_entry(wrong, sample=9, paths=files)
    assert not verdict.holds and "does not hold: 9 of 10" in verdict.lines[0] and "p = 0.0039" in verdict.lines[0]
    few = verify_entry(path, sample=5, paths=files)
    assert not few.holds and "5 of a scheduler that draws cannot tell chance from error" in few.lines[0]


def test_what_an_entry_says_of_itself_is_checked(drf_entry: Path, tmp_path: Path) -> None:
    for changes, words in (
        ({"is_oracle": True}, "is_oracle: True in the entry, False here"),
        ({"is_deterministic": False}, "is_deterministic: False in the entry, True here"),
        ({"seeds": {"workloads": 9, "scheduler": None}}, "'workloads': 9"),
        ({"estimate": {"kind": "noisy", "noise": 0.1, "num_probes": 10}}, "estimate: {'kind': 'noisy'"),
    ):
        verdict = verify_entry(altered(drf_entry, tmp_path, **changes), sample=1)
        assert not verdict.holds and words in verdict.lines[1], verdict.lines
    with pytest.raises(EntryError, match="mean_jct_intervals must be mean_jct_s in intervals"):
        verify_entry(altered(drf_entry, tmp_path, interval_s=600.0))


def test_quantiles_are_checked_where_all_workloads_are_run(drf_entry: Path, tmp_path: Path) -> None:
    quantiles = tuple(0.9 * q for q in read_entry(drf_entry).jct_quantiles_s)
    path = altered(drf_entry, tmp_path, jct_quantiles_s=quantiles)
    verdict = verify_entry(path, sample=None)
    assert not verdict.holds and "jct_quantiles_s: 103 of 103 differ" in verdict.lines[1]
    assert verify_entry(path, sample=2).holds  # two of three workloads cannot tell


def test_nobody_knows_which_workloads_are_sampled(drf_entry: Path) -> None:
    chosen = {tuple(_sample(100, 10, None)) for _ in range(4)}
    assert len(chosen) == 4 and all(len(set(rows)) == 10 and list(rows) == sorted(rows) for rows in chosen)
    assert tuple(_sample(100, 10, 1)) == tuple(_sample(100, 10, 1))
    assert _sample(3, 10, None).tolist() == _sample(3, None, None).tolist() == [0, 1, 2]


def test_an_entry_makes_nothing_run_but_schedulers(drf_entry: Path, tmp_path: Path) -> None:
    for name in ("os:system", "subprocess:Popen", "os:sep"):
        path = altered(drf_entry, tmp_path, scheduler_name=name, options={"command": "false"})
        with pytest.raises(ConfigError, match="no class with a method `act`"):
            verify_entry(path)


def test_a_scheduler_that_remembers_is_found_out(tmp_path: Path) -> None:
    (cell,) = cells("tests.evaluation.leaderboard.odd_schedulers:Counting", num_workloads=6)
    path = write_entry(tmp_path / "counting.json", run_cell(cell))
    verdict = verify_entry(path, sample=2, paths={"small-v1": str(SMALL)}, batch=1, seed=0)
    assert not verdict.holds and any("a scheduler that draws takes a seed" in line for line in verdict.lines)


def test_a_scenario_of_ones_own_is_verified_by_its_file(tmp_path: Path) -> None:
    (cell,) = cells("void")
    path = write_entry(tmp_path / "void.json", run_cell(cell))
    assert json.loads(path.read_text())["scenario"] == "small-v1"
    assert verify_entry(path, paths={"small-v1": str(SMALL)}).holds
    with pytest.raises(ConfigError, match="unknown scenario 'small-v1'"):
        verify_entry(path)
