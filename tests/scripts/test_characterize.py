"""`scripts/characterize.py` as a user calls it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dl2env.evaluation.characterization.settings import (
    CharacterizationSettings,
    EfficiencySettings,
    GridSettings,
)
from scripts import command_line
from scripts.characterize import characterize, read_settings
from tests.scripts.calls import command, composed

HEADER = "architecture,num_cnodes,batch_size,flops,memory_bytes,input_bytes,weight_traffic_bytes\n"
ROWS = ["ps_worker,16,64,1e12,2e10,3e7,4e8", "1w1g,1,32,2e12,1e10,1e6,0", "1wng,4,32,2e12,1e10,1e6,2e8"]


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    with command(monkeypatch, folder, *arguments):
        command_line.run(characterize, "characterize")


def test_configuration_has_all_keys_and_the_defaults() -> None:
    values = composed(config="characterize")
    assert set(values) == {field.name for field in dataclasses.fields(CharacterizationSettings)}
    assert set(values["grid"]) == {field.name for field in dataclasses.fields(GridSettings)}
    assert set(values["efficiency"]) == {field.name for field in dataclasses.fields(EfficiencySettings)}
    assert read_settings(values) == CharacterizationSettings()


def test_overrides_arrive() -> None:
    values = composed(
        "overlap=ideal",
        "pcie_group=none",
        "efficiency.ethernet=0.5",
        "grid.nvlink_bytes_per_s=[1e11]",
        "grid.peak_flops=[]",
        "num_jobs=5",
        "gpu_memory_bytes=16e9",
        config="characterize",
    )
    assert read_settings(values) == CharacterizationSettings(
        num_jobs=5,
        efficiency=EfficiencySettings(ethernet=0.5),
        overlap="ideal",
        pcie_group="none",
        grid=GridSettings(nvlink_bytes_per_s=(1e11,), peak_flops=()),
        gpu_memory_bytes=16e9,
    )


def test_tables_and_files(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call(monkeypatch, tmp_path, "num_jobs=500", "run_dir=new")
    output = capsys.readouterr().out
    lines = output.rstrip().splitlines()
    files = ["breakdown.png", "distributions.png", "speedups.png", "hardware.png", "report.html", "summary.json"]
    assert lines[-len(files) :] == [f"new/{name}" for name in files]
    assert all((tmp_path / "new" / name).stat().st_size > 1000 for name in files)
    for text in (
        "Mean share of a step, each job once",
        "Mean share of a step, weighted by cNodes",
        "Speedup on another architecture",
        "The conclusions under other assumptions",
        "Published figures and this population",
        "as we understand the paper (recalled B)",
        "synthetic, not PAI data",
        "does not meet all at once",
    ):
        assert text in output
    assert max(map(len, lines)) <= 180
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert summary["settings"]["num_jobs"] == 500
    assert {type(summary[key]) for key in ("communication_share_cnode", "ethernet_25_to_100_speedup")} == {float}


def test_ones_own_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(HEADER.replace("\n", ",owner\n") + "".join(f"{row},x\n" for row in ROWS))
    call(monkeypatch, tmp_path, "population=jobs.csv", "run_dir=new", "overlap=ideal")
    output = capsys.readouterr().out
    assert "owner" in output  # a column that nothing reads is named
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert summary["population"]["kind"] == "file" and summary["population"]["num_jobs"] == 3
    assert summary["classes"]["ps_worker"]["cnode_share"] == pytest.approx(16 / 21)
    assert summary["settings"]["overlap"] == "ideal"


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (HEADER.replace("flops,", ""), "ps_worker,16,64,2e10,3e7,4e8", "flops"),
        (HEADER, "ps_worker,16,64,1e12,-2e10,3e7,4e8", "memory_bytes"),
        (HEADER, "ring,16,64,1e12,2e10,3e7,4e8", "ring"),
        (HEADER, "allreduce_local,16,64,1e12,2e10,3e7,4e8", "num_cnodes"),
        (HEADER, "ps_worker,16,64,many,2e10,3e7,4e8", "flops"),
    ],
)
def test_wrong_jobs_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    header: str,
    row: str,
    message: str,
) -> None:
    (tmp_path / "jobs.csv").write_text(f"{header}{row}\n")
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, tmp_path, "population=jobs.csv")
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert "jobs.csv" in error and message in error
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["jobs.csv"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("grid.ethernet_bytes_per_s=[0]", "grid.ethernet_bytes_per_s"),
        ("efficiency.pcie=0", "Efficiency.pcie"),
        ("efficiency.disk=0.5", "efficiency.disk"),
        ("overlap=some", "choose one of: none, ideal"),
        ("pcie_group=8", "pcie_group"),
        ("hardware=pai", "pai-base"),
        ("population=pai", "pai_synthetic"),
        ("population=none.csv", "none.csv"),
        ("num_jobs=0", "num_jobs=0"),
        ("num_job=5", "num_jobs"),
    ],
)
def test_wrong_settings_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, argument: str, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, tmp_path, argument)
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert message in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
