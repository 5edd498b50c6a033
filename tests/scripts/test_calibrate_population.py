"""`scripts/calibrate_population.py`, on few jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dl2env.resources import data_path
from dl2env.workload.population import load_population_config
from scripts import calibrate_population

pytest.importorskip("scipy", reason="calibration uses scipy, an extra of the library")
FAST = ["--jobs", "500", "--check-jobs", "500", "--iterations", "1"]


def test_table_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = data_path("populations", "pai_synthetic.toml").read_bytes()
    output = tmp_path / "mine.toml"
    assert calibrate_population.main([*FAST, "--output", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "synthetic population, 500 fresh jobs; not PAI data"
    assert lines[1].split() == ["figure", "target", "achieved", "difference", "met", "weight", "mark"]
    assert lines[-1] == f"wrote {output}" and lines[-2].startswith("objective ")
    config = load_population_config(output)
    assert config.name == "mine"
    assert "--jobs 500 --check-jobs 500 --iterations 1 --seed 0" in output.read_text()
    assert data_path("populations", "pai_synthetic.toml").read_bytes() == committed


def test_only_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert calibrate_population.main([*FAST, "--output", "-"]) == 0
    assert "wrote" not in capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "none"], "unknown population 'none'; choose one of: pai_assumed, pai_synthetic"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--check-jobs", "-1"], "--check-jobs must be at least 1"),
        (["--iterations", "0"], "--iterations must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--output", "/none/x.toml"], "cannot be written"),
    ],
)
def test_wrong_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_population.main([*FAST, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and message in captured.err and captured.err.count("\n") == 1
