from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.seeds import per_seed_lines, read_summaries, scores, seeds_table
from scripts import aggregate_seeds


def write(folder: Path, seed: int, tuned: list[float], digests: tuple[str, ...] = ("a", "b", "c")) -> Path:
    schedulers = {"drf": [1200.0, 2400.0, 3600.0], "fine-tuned": tuned}
    summary: dict[str, Any] = {
        "scenario": {"name": "world", "hash": "h"},
        "split": "test",
        "workload_digests": list(digests),
        "config": {"dynamics": {"interval_s": 1200.0}},
        "schedulers": {name: {"per_workload": {"mean_jct_s": jct}} for name, jct in schedulers.items()},
        "extra": {"seed": seed},
    }
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_means_over_seeds_and_workloads(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "two", 2, [600.0, 1200.0, 1800.0]),
        write(tmp_path / "one", 1, [1200.0, 1200.0, 1200.0]),
    ]
    summaries = read_summaries(folders)
    assert [summary["extra"]["seed"] for summary in summaries] == [1, 2]
    np.testing.assert_allclose(scores(summaries, "fine-tuned"), [[1.0, 1.0, 1.0], [0.5, 1.0, 1.5]])
    lines = seeds_table(summaries, ["drf", "absent"]).splitlines()
    assert lines[0] == "| scheduler | mean JCT (intervals) | less than drf |"
    assert lines[2].startswith("| drf | 2.00 [") and lines[2].endswith("|  |")
    assert lines[3].startswith("| fine-tuned | 1.00 [") and "50.0 % [" in lines[3]
    assert per_seed_lines(summaries, "fine-tuned", ["drf"]) == [
        "seed 1: fine-tuned 1.00, 50.0 % less than drf",
        "seed 2: fine-tuned 1.00, 50.0 % less than drf",
    ]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(write(tmp_path / str(seed), seed, [1200.0, 1200.0, 1200.0])) for seed in (1, 2)]
    assert aggregate_seeds.main(folders) == 0
    out = capsys.readouterr().out
    assert out.startswith("world, 3 test workloads, 2 training seeds\n| scheduler")
    assert aggregate_seeds.main([*folders, "--scheduler", "nobody"]) == 2
    assert capsys.readouterr().err == "error: no results of 'nobody'; the runs have: drf, fine-tuned\n"


def test_runs_that_do_not_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one", 1, [1.0, 1.0, 1.0])
    with pytest.raises(ConfigError, match=r"training seeds \[1, 1\]: each run needs a seed of its own"):
        read_summaries([one, write(tmp_path / "again", 1, [1.0, 1.0, 1.0])])
    with pytest.raises(ConfigError, match="different workloads"):
        read_summaries([one, write(tmp_path / "other", 2, [1.0, 1.0, 1.0], ("x", "y", "z"))])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match="not a JSON file"):
        read_summaries([tmp_path / "damaged"])
    (tmp_path / "damaged" / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match="a summary lacks 'extra'"):
        read_summaries([tmp_path / "damaged"])
    assert aggregate_seeds.main([str(tmp_path / "nowhere")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "cannot be read" in error and error.count("\n") == 1
