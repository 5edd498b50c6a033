"""Result files: what is written is read, what is damaged is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.paper.record import (
    MAX_CURVE,
    RecordError,
    build_schedulers,
    read_record,
    read_records,
    record_path,
    thinned,
    workloads_digest,
    write_record,
)
from tests.agents.paper.records import record


def test_round_trip(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(decision_ms=1.5))
    assert path == tmp_path / "dl2" / "seed-1.json"
    assert read_record(path) == record(decision_ms=1.5)
    write_record(tmp_path, record(seed=10))
    write_record(tmp_path, record(seed=2))
    write_record(tmp_path, record("other"))
    found = read_records(tmp_path)
    assert {name: [r.seed for r in records] for name, records in found.items()} == {"dl2": [1, 2, 10], "other": [1]}
    assert read_records(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "x"}, "not a result of a paper experiment"),
        ({"schema_version": 9}, "schema version 9, this code reads 1"),
        ({"seed": None}, "seed must be a number"),
        ({"curve": None}, "curve must be a list"),
        ({"curve": [[0, 0, 1.0]] * 51}, "curve must be a list of at most 50"),
        ({"curve": [[0, 0, "x"]]}, "curve must be numbers"),
        ({"levels": {"drf": "x"}}, r"levels\.drf must be a number"),
        ({"decision_ms": "x"}, "decision_ms must be a number or null"),
        ({"schedulers": {"drf": {}}}, r"schedulers\.drf must be a group of keys with mean_jct_intervals"),
        ({"schedulers": {"drf": {"mean_jct_intervals": [1.0]}}}, "must be a list of 3 numbers"),
        ({"schedulers": {"drf": {"mean_jct_intervals": [1.0, 2.0, -1.0]}}}, "none negative"),
        ({"workloads": ""}, "workloads must be a text"),
        ({"experiment": "other"}, "holds seed 1 of other; give the file that place and name"),
    ],
)
def test_damage_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write_record(tmp_path, record())
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(RecordError, match=message) as caught:
        read_records(tmp_path)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_no_results(tmp_path: Path) -> None:
    path = write_record(tmp_path, record())
    content = json.loads(path.read_text())
    del content["timing"]
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match="timing is missing; remove it and run that again"):
        read_record(path)
    for text in ("{ half", "[]", '{"curve": NaN}'):
        path.write_text(text)
        with pytest.raises(RecordError, match=str(path)):
            read_record(path)
    with pytest.raises(RecordError, match="cannot be read"):
        read_record(record_path(tmp_path, "none", 1))


def test_curves_are_thinned() -> None:
    long = [(10 * k, k, 1.0 / 3.0 + k) for k in range(1000)]
    short = thinned(long)
    assert len(short) == MAX_CURVE and short[0] == [0, 0, 0.333333] and short[-1][:2] == [9990, 999]
    steps = {b[1] - a[1] for a, b in zip(short, short[1:], strict=False)}
    assert max(steps) - min(steps) <= 1
    assert thinned(long[:7]) == [[10 * k, k, float(f"{1 / 3 + k:.6g}")] for k in range(7)]
    assert thinned([]) == []


def test_scores_from_a_summary() -> None:
    values = {"mean_jct_s": [1200.0, 1800.0], "gpu_utilisation": [0.123456, 0.5], "cpu_utilisation": [0.1, 0.2]}
    summary = {
        "config": {"dynamics": {"interval_s": 1200.0}},
        "schedulers": {name: {"per_workload": values} for name in ("drf", "fifo")},
    }
    found = build_schedulers(summary, ("drf",))
    assert found["fifo"] == {"mean_jct_intervals": [1, 1.5]}
    assert found["drf"]["gpu_utilisation"] == [0.1235, 0.5]
    assert workloads_digest(["a", "b"]) != workloads_digest(["b", "a"])
