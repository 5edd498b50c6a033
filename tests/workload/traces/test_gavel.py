"""Gavel traces: both layouts, durations from the table of throughputs, and the real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import read_trace
from dl2env.workload.traces.gavel import read_throughputs
from tests.workload.traces.samples import real_file

TABLE = {
    "k80": {"('LM (batch size 5)', 1)": {"null": 1.0}},
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 10.0, "('A3C', 1)": [4.0, 2.0]},
        "('LM (batch size 5)', 4)": {"null": 20.0},
        "('A3C', 1)": {"null": 5.0},
        "('CycleGAN', 1)": {"null": 0.0},
    },
}
COMMAND = "cd %s && python3 main.py; rm -rf /nowhere\t--steps\t1"


def old_row(job_type: str, steps: str, arrival: str, gpus: str) -> str:
    return f"{job_type}\t{COMMAND}\t{steps}\t{arrival}\t{gpus}\n"


def new_row(job_type: str, steps: str, arrival: str, gpus: str, slo: str = "-1.000000", priority: str = "1") -> str:
    command, argument, data = COMMAND.split("\t")
    return f"{job_type}\t{command}\tfolder\t{argument}\t{data}\t{steps}\t{gpus}\t{priority}\t{slo}\t{arrival}\n"


def write(folder: Path, text: str, table: Any = TABLE) -> Path:
    if table is not None:
        (folder / "simulation_throughputs.json").write_text(json.dumps(table), encoding="utf-8")
    path = folder / "jobs.trace"
    path.write_text(text, encoding="utf-8")
    return path


def test_both_layouts_by_hand(tmp_path: Path) -> None:
    jobs = (
        ("LM (batch size 5)", "100", "5.5", "1"),  # 10 s
        ("LM (batch size 5)", "100", "60", "2"),  # from 1 GPU: 20 steps/s, 5 s
        ("LM (batch size 5)", "100", "61", "8"),  # from 4 GPUs: 40 steps/s, 2.5 s
        ("A3C", "1000", "62", "1"),  # 200 s
    )
    for row in (old_row, new_row):
        table, report = read_trace(write(tmp_path, "".join(row(*one) for one in jobs)))
        assert table.format == "gavel"
        np.testing.assert_allclose(table.duration_s, [10, 5, 2.5, 200])
        np.testing.assert_array_equal(table.arrival_s, [0, 54.5, 55.5, 56.5])
        np.testing.assert_array_equal(table.num_gpus, [1, 2, 8, 1])
        assert table.label.tolist() == ["LM", "LM", "LM", "A3C"]
        np.testing.assert_array_equal(table.extra["batch_size"], [5, 5, 5, np.nan])
        np.testing.assert_array_equal(table.extra["total_steps"], [100, 100, 100, 1000])
        noted = report.noted["throughput per GPU taken from a smaller scale factor of the table"]
        assert noted.first_rows == (2, 3) and not report.warnings
        assert "v100" in report.duration_rule
        assert table.steps[-1]["step"] == "throughputs" and len(table.steps[-1]["sha256"]) == 64


def test_priorities_and_objectives(tmp_path: Path) -> None:
    text = "".join(
        (
            new_row("A3C", "10", "0", "1"),
            new_row("A3C", "10", "1", "1", slo="1.2", priority="5"),
            new_row("A3C", "10", "2", "1", slo="-3"),
        )
    )
    table, report = read_trace(write(tmp_path, text))
    np.testing.assert_array_equal(table.extra["slo"], [np.nan, 1.2, np.nan])
    np.testing.assert_array_equal(table.extra["priority"], [1, 5, 1])
    assert report.warned["SLO is neither positive nor -1"].first_rows == (3,)


def test_rows_that_are_wrong(tmp_path: Path) -> None:
    good = old_row("A3C", "10", "0", "1")
    text = good * 6 + "".join(
        (
            old_row("Unheard Of", "10", "0", "1"),
            old_row("CycleGAN", "10", "0", "1"),
            old_row("A3C", "0", "0", "1"),
            old_row("A3C", "10", "-1", "1"),
            old_row("A3C", "10", "0", "0"),
            old_row("A3C", "10", "0", "1.5"),
            good.replace("\t1\t10", "\t7\t10"),
            new_row("A3C", "10", "0", "1"),
        )
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.num_jobs == 7
    lines = {reason: count.first_rows for reason, count in report.dropped.items()}
    unknown = next(reason for reason in lines if "has no throughput" in reason)
    assert lines.pop(unknown) == (7, 8)
    assert lines == {
        "not 7 cells": (14,),
        "total_steps is not positive": (9,),
        "scale_factor is below 1": (11,),
        "scale_factor is not a whole number": (12,),
        "arrival_time is negative": (10,),
    }
    assert report.warned["needs_data_dir is neither 0 nor 1"].first_rows == (13,)


def test_the_table_is_found_or_named_or_asked_for(tmp_path: Path) -> None:
    deep = tmp_path / "traces" / "msr"
    deep.mkdir(parents=True)
    path = write(deep, old_row("A3C", "10", "0", "1"), None)
    with pytest.raises(TraceError, match=r"jobs.trace, line 1: .*companion"):
        read_trace(path)
    above = tmp_path / "simulation_throughputs.json"
    above.write_text(json.dumps(TABLE), encoding="utf-8")
    assert read_trace(path)[0].duration_s[0] == 2
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"p100": {"('A3C', 1)": {"null": 1.0}}}), encoding="utf-8")
    table, report = read_trace(path, companion=other)
    assert table.duration_s[0] == 10 and "p100" in report.layout["throughputs"]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "{",
        '{"v100": 5}',
        '{"v100": {"A3C": {"null": 1.0}}}',
        '{"v100": {"(\'A3C\', 1)": {"null": "fast"}}}',
        '{"v100": {"(\'A3C\', 1)": {"null": NaN}}}',
        '{"v100": {"(\'A3C\', 1)": {"null": -1}}}',
        '{"v100": {"(\'A3C\', 1)": {}}}',
        '{"v100": {"(\'A3C\', 1)": 4}}',
    ],
)
def test_tables_that_are_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TraceError, match=r"table.json.*simulation_throughputs.json"):
        read_throughputs(path)


@pytest.mark.parametrize(
    ("name", "jobs", "last_s", "gpus"),
    [
        ("msr/seed=0/51b7ef.trace", 18, 3_022_240, {8: 13}),
        ("msr/seed=0/2869ce.trace", 533, 8_141_054, {32: 70}),
        ("physical_cluster/minimize_makespan.trace", 100, 0, {2: 6, 4: 23}),
    ],
)
def test_real_traces(name: str, jobs: int, last_s: float, gpus: dict[int, int]) -> None:
    path = real_file(f"gavel/traces/{name}")
    table, report = read_trace(path)
    assert table.format == "gavel" and table.num_jobs == jobs == report.rows_read
    assert not report.warnings
    assert table.arrival_s[-1] == last_s
    for count, expected in gpus.items():
        assert (table.num_gpus == count).sum() == expected


def test_durations_of_the_trace_for_a_physical_cluster_are_round() -> None:
    """Independent check of units and of the kind of GPU: its steps are made from durations of 400 s times 1, 2, ..."""
    table, _ = read_trace(real_file("gavel/traces/physical_cluster/minimize_makespan.trace"))
    assert table.duration_s[0] == pytest.approx(3600, abs=0.5)
    units = table.duration_s / 400
    assert (np.abs(units - np.round(units)) < 0.01).mean() > 0.9


def test_the_table_that_is_found_counts_in_the_hash(tmp_path: Path) -> None:
    from dl2env.scenarios import get_scenario

    path = write(tmp_path, old_row("A3C", "10", "0", "1") * 2)
    scenario = get_scenario("dl2-small-v1").derive({"workload.trace.path": str(path)})
    found = scenario.hash()
    named = scenario.derive({"workload.trace.companion": str(tmp_path / "simulation_throughputs.json")})
    assert named.hash() == found
    write(tmp_path, path.read_text(), {"v100": {"('A3C', 1)": {"null": 6.0}}})
    assert scenario.hash() != found
    (tmp_path / "simulation_throughputs.json").unlink()
    assert len(scenario.hash()) == 64  # the missing table is told when the trace is read
