"""`scripts/benchmark.py`, with settings that make it short."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts import command_line
from scripts.benchmark import benchmark
from scripts.benchmark_cases import Case, Rates, _RandomActions
from tests.scripts.calls import command


def test_rates_are_units_per_second() -> None:
    rates = Case("name", "thing", lambda: lambda: (10, 2.0, 4.0)).measure(3)
    assert rates == Rates("name", "thing", (5.0, 5.0, 5.0), (2.5, 2.5, 2.5))
    line = Rates("name", "thing", (1000.0, 4000.0, 2000.0), (1.0, 2.0, 3.0)).line()
    assert "2,000 [1,000, 4,000] thing/CPU-s, 2/s wall" in line
    assert rates.plain()["median_per_cpu_s"] == 5.0


def test_random_actions_are_legal() -> None:
    choose = _RandomActions(50, 10)
    mask = np.random.default_rng(0).random((50, 10)) < 0.2
    mask[:, -1] = True
    for _ in range(20):
        assert mask[np.arange(50), choose(mask)].all()


def test_everything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    short = ["windows=[20]", "batches=[1,2]", "repeats=2", "seconds=0.01", "episodes=1", "num_envs=2", "threads=[1]"]
    short.append("scenario=toy-v1")
    try:
        with command(monkeypatch, tmp_path, *short, "run_dir=new"):
            command_line.run(benchmark, "benchmark")
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert lines[-1] == "new/summary.json"
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    names = [measured["name"] for measured in summary["measurements"]]
    assert names == [
        "calibration: Python loop",
        "calibration: numpy multiply-add",
        "vector env step, J = 20, B = 1",
        "vector env step, J = 20, B = 2",
        "single env step, gymnasium.make",
        "runner, drf",
        "runner, optimus",
        "PPO collection, B = 2, 1 torch thread",
        "PPO update, B = 2, 1 torch thread",
    ]
    assert [line.startswith(name) for line, name in zip(lines[1:-1], names, strict=True)] == [True] * len(names)
    assert all(len(m["per_cpu_s"]) == 2 and min(m["per_cpu_s"]) > 0 for m in summary["measurements"])


@pytest.mark.parametrize("argument", ["repeats=0", "seconds=-1", "windows=[0]", "batches=[two]", "scenario=none-v1"])
def test_wrong_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, argument: str
) -> None:
    with command(monkeypatch, tmp_path, argument), pytest.raises(SystemExit) as end:
        command_line.run(benchmark, "benchmark")
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert argument.split("=")[0] in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
