"""Entry files: what is written is read, and whatever is wrong with a file is one clear error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.evaluation.leaderboard.entry import (
    EntryError,
    aggregate,
    compact,
    entry_path,
    file_name,
    read_entry,
    write_entry,
)
from dl2env.evaluation.leaderboard.json_file import rounded
from tests.evaluation.leaderboard.made_up import entry


def test_an_entry_survives_its_file(tmp_path: Path) -> None:
    made = entry(options={"noise": 0.2, "on": True, "path": None}, trim=(0.1, 0.0))
    path = write_entry(tmp_path / "a" / "b.json", made)
    assert read_entry(path) == made
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    content = json.loads(path.read_text())
    for key in ("schema_version", "scheduler", "scenario", "scenario_hash", "seeds", "metrics", "version", "command"):
        assert key in content
    before = path.read_bytes()
    assert write_entry(path, read_entry(path)).read_bytes() == before


def test_equal_values_are_stored_once() -> None:
    made = entry(num_workloads=3)
    assert made.per_workload["num_jobs"] == 60
    assert made.values("num_jobs").tolist() == [60.0, 60.0, 60.0]
    assert len(made.per_workload["mean_jct_s"]) == 3  # type: ignore[arg-type]
    assert made.metrics["num_jobs"] == 180 and made.metrics["max_rho"] == made.values("max_rho").max()


def test_numbers_have_six_digits_and_counts_all() -> None:
    assert [rounded(x) for x in (1234567.8, 0.000123456789, 12345678.0, -2.0)] == [1234570, 0.000123457, 12345678, -2]
    assert compact(np.array([1.00000001, 1.0])) == 1
    assert aggregate("mean_jct_s", np.array([1.0, 2.0])) == 1.5
    assert aggregate("num_illegal", np.array([1.0, 2.0])) == 3


def test_names_become_file_names() -> None:
    assert file_name("optimus(noise=0.2)") == "optimus_noise=0.2"
    assert file_name("../../etc/x y:z") == "etc_x_y_z"
    assert file_name("…") == "_"
    assert entry_path(Path("f"), "w-v1", "drf").as_posix() == "f/w-v1/drf.json"
    assert entry_path(Path("f"), "w-v1", "drf", "validation").as_posix() == "f/w-v1/drf.validation.json"


def test_what_a_scheduler_knows() -> None:
    assert entry().knows == "exact"
    assert entry(estimate={"kind": "fitted", "noise": 0.05, "num_probes": 10}).knows == "fitted ±5 %"
    assert entry(estimate={"kind": "noisy", "noise": 0.125, "num_probes": 10}).knows == "noisy ±12.5 %"
    assert entry(is_oracle=True).knows == "oracle"


def damaged(**changes: Any) -> str:
    content = {"schema": "dl2env-leaderboard-entry", "schema_version": 1, **entry().__dict__, **changes}
    return json.dumps({key: value for key, value in content.items() if value != "REMOVE"}, default=list)


def with_metric(group: str, metric: str, value: Any) -> dict[str, Any]:
    return {group: {**getattr(entry(), group), metric: value}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a JSON file"),
        ('{"schema": ', "not a JSON file"),
        ("[1]", "not a leaderboard entry"),
        ('{"a": 1}', "not a leaderboard entry"),
        ("[" * 100_000, "not a JSON file"),
        (damaged(schema="other"), "not a leaderboard entry"),
        (damaged(schema_version=2), "schema version 2, this code reads 1"),
        (damaged(scheduler="REMOVE"), "scheduler is missing"),
        (damaged(scheduler=""), "scheduler must be a text"),
        (damaged(metrics=[1]), "metrics must be a group"),
        (damaged(interval_s=0), "interval_s must be a positive number"),
        (damaged(trim=[0]), "trim must be two numbers"),
        (damaged(workload_digests=[]), "workload_digests must be a list"),
        (damaged(workload_digests=["a", "a"]), "workload_digests must be all different"),
        (damaged(jct_quantiles_s=[1, 2]), "jct_quantiles_s must be 103 numbers"),
        (damaged(jct_quantiles_s=list(range(103, 0, -1))), "rising numbers"),
        (damaged(timing={**entry().timing, "wall_s": "x"}), "timing must be numbers"),
        (damaged(timing={"wall_s": 1}), "cpu_ms_per_episode among them"),
        (damaged(is_oracle=0), "is_oracle must be true or false"),
        (damaged(estimate={"kind": "exact"}), "estimate must be a group of kind, noise, num_probes"),
        (damaged(is_deterministic=1), "is_deterministic must be true or false"),
        (damaged(**with_metric("metrics", "mean_jct_s", 1.0)), "what the values per workload give"),
        (damaged(**with_metric("metrics", "mean_jct_s", float("nan"))), "NaN is no JSON number"),
        (damaged(**with_metric("metrics", "mean_jct_s", True)), "metrics.mean_jct_s must be a number"),
        (damaged(**with_metric("per_workload", "mean_jct_s", [1.0])), "what the values per workload give"),
        (damaged(**with_metric("per_workload", "mean_jct_s", [1.0, 2.0])), "a number or 20 numbers"),
        (damaged(**with_metric("per_workload", "mean_jct_s", -1.0)), "per_workload.mean_jct_s must be positive"),
        (damaged(per_workload={}), "per_workload.num_jobs must be there"),
    ],
)
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "entry.json"
    path.write_text(text)
    with pytest.raises(EntryError) as caught:
        read_entry(path)
    message = str(caught.value)
    assert str(path) in message and words in message and "\n" not in message


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(EntryError, match="cannot be read"):
        read_entry(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(EntryError, match="cannot be written"):
        write_entry(tmp_path / "file" / "entry.json", entry())
    with pytest.raises(EntryError, match="JSON cannot"):
        write_entry(tmp_path / "entry.json", replace(entry(), options={"x": object()}))
