"""`scripts/inspect_trace.py` as a user calls it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dl2env.config import ShapingConfig
from dl2env.evaluation.trace_inspection.settings import InspectionSettings
from scripts import command_line
from scripts.inspect_trace import inspect_trace, read_settings
from tests.scripts.calls import command, composed

pytest.importorskip("polars")
JOBS = "arrival_s,duration_s,num_gpus\n0,7000,3\n400,12345,1\n1000,100,8\n5000,50000,2\n"


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    with command(monkeypatch, folder, *arguments):
        command_line.run(inspect_trace, "inspect_trace")


def test_configuration_has_all_keys_and_the_defaults() -> None:
    values = composed(config="inspect_trace")
    assert set(values) == {field.name for field in dataclasses.fields(InspectionSettings)}
    assert set(values["shaping"]) == {field.name for field in dataclasses.fields(ShapingConfig)}
    assert read_settings({**values, "path": "t"}) == InspectionSettings(path="t")


def test_shaping_of_a_run_has_the_same_keys() -> None:
    from dl2env.scenarios import get_scenario

    arguments = ("workload.path=t", "workload.trace.shaping.target_load=0.8", "workload.trace.shaping.gpu_map=[3:4]")
    shaping = composed("workload=trace", *arguments)["workload"]["trace"]["shaping"]
    assert set(shaping) == {field.name for field in dataclasses.fields(ShapingConfig)}
    changes = {f"workload.trace.shaping.{key}": value for key, value in shaping.items() if value is not None}
    scenario = get_scenario("dl2-small-v1").derive({"workload.trace.path": "t", **changes})
    trace = scenario.config.workload.trace
    assert trace is not None and trace.shaping == ShapingConfig(target_load=0.8, gpu_map=("3:4",))


def test_tables_and_files(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    call(
        monkeypatch, tmp_path, "path=jobs.csv", "cluster=dl2-small-v1", "shaping.target_load=0.8", "run_dir=new",
        "write=shaped.parquet",
    )  # fmt: skip
    output = capsys.readouterr().out
    lines = output.rstrip().splitlines()
    names = ["load.png", "arrivals.png", "distributions.png", "report.html"]
    assert lines[-6:] == [*(f"new/{name}" for name in names), "shaped.parquet", "new/summary.json"]
    assert all((tmp_path / line).stat().st_size > 500 for line in lines[-6:])
    for text in ("Checks", "Findings", "Offered load over time, of 96 GPUs", "Parts by time", "Quantiles", "80.00 %"):
        assert text in output
    assert json.loads((tmp_path / "new/summary.json").read_text())["load"]["offered"] == pytest.approx(0.8)


def test_strict_writes_the_report_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS + "6000,-1,1\n")
    call(monkeypatch, tmp_path, "path=jobs.csv", "run_dir=lax")
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, tmp_path, "path=jobs.csv", "run_dir=new", "strict=true")
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: jobs.csv, line 6: duration_s") and error.count("\n") == 1
    assert (tmp_path / "new/report.html").is_file() and (tmp_path / "new/summary.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "path: no trace"),
        (("path=none.csv",), "none.csv"),
        (("path=bad.bin",), "bad.bin"),
        (("path=empty.csv",), "empty.csv"),
        (("path=jobs.csv", "format=xml"), "format='xml' is unknown"),
        (("path=jobs.csv", "format=philly"), "jobs.csv, line 1"),
        (("path=jobs.csv", "cluster=nowhere"), "cluster=nowhere: no such file"),
        (("path=jobs.csv", "shaping.sample_share=2"), "shaping.sample_share=2.0 must lie in (0, 1]"),
        (("path=jobs.csv", "shaping.smaple_share=0.5"), "did you mean shaping.sample_share?"),
        (("path=jobs.csv", "shaping.sample_by=users", "shaping.sample_share=0.5"), "choose sample_by=jobs"),
        (("path=jobs.csv", "write=no/such/folder.csv"), "cannot be written"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bad.bin").write_bytes(bytes(range(256)) * 20)
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, tmp_path, *arguments, "run_dir=new")
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1
