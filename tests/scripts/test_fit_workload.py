"""`scripts/fit_workload.py` as a user calls it, and its result in a training run and on a leaderboard."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from agents.settings import build_scenario
from agents.settings import read_settings as read_run
from dl2env.config import CalibratedConfig, ShapingConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.workload_fit.comparison import JobSample, compare, compare_plain, distances, figures
from dl2env.evaluation.workload_fit.settings import FitSettings
from dl2env.workload.calibrated import load_calibration
from dl2env.workload.calibrated.model import ArrivalModel, Level
from dl2env.workload.traces.table import JobTable
from scripts import command_line
from scripts.fit_workload import fit_workload, read_settings
from tests.scripts.calls import command, composed
from tests.workload.calibrated.models import SMALL, drawn_table
from tests.workload.traces.samples import real_file

pytest.importorskip("polars")
pytest.importorskip("scipy")


@pytest.fixture()
def jobs(tmp_path: Path) -> Path:
    from dl2env.workload.traces.own import write_table

    path = tmp_path / "jobs.csv"
    write_table(drawn_table(SMALL, 1500), path)
    return path


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    with command(monkeypatch, folder, *arguments):
        command_line.run(fit_workload, "fit_workload")


def test_configuration_has_all_keys_and_the_defaults() -> None:
    values = composed(config="fit_workload")
    assert set(values) == {field.name for field in dataclasses.fields(FitSettings)}
    assert set(values["shaping"]) == {field.name for field in dataclasses.fields(ShapingConfig)}
    assert read_settings({**values, "path": "t"}) == FitSettings(path="t")


def test_files_and_the_same_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, jobs: Path
) -> None:
    call(monkeypatch, tmp_path, "path=jobs.csv", "out=mine.yaml", "draws=2", "run_dir=new", "description=made up")
    output = capsys.readouterr().out
    lines = output.rstrip().splitlines()
    names = [f"new/{name}.png" for name in ("quantiles", "classes", "arrivals", "held_out")]
    assert lines[-7:] == [*names, "new/report.html", "mine.yaml", "new/summary.json"]
    assert all((tmp_path / line).stat().st_size > 500 for line in lines[-7:])
    for text in ("Calibration mine", "Distances of drawn from recorded jobs", "held out", "index of dispersion"):
        assert text in output
    calibration = load_calibration(tmp_path / "mine.yaml")
    provenance = calibration.provenance
    assert (provenance["format"], provenance["file"], provenance["jobs"]) == ("dl2env", "jobs.csv", 1500)
    assert provenance["command"] == "python scripts/fit_workload.py path=jobs.csv out=mine.yaml draws=2"
    assert calibration.description == "made up"
    summary = json.loads((tmp_path / "new/summary.json").read_text())
    assert summary["digest"] == calibration.digest()
    assert 0 < summary["in_sample"]["ks"]["durations"]["mean"] < 0.1
    assert summary["held_out"]["jobs"] < 1500
    call(monkeypatch, tmp_path, "path=jobs.csv", "out=again.yaml", "name=mine", "held_out=0", "draws=1", "run_dir=next")
    assert load_calibration(tmp_path / "again.yaml").digest() == calibration.digest()
    assert not (tmp_path / "next/held_out.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "path: no trace"),
        (["path=absent.csv"], "absent.csv"),
        (["path=jobs.csv", "out=mine.txt"], r"ends in .yaml"),
        (["path=jobs.csv", "name=a/b"], "use letters"),
        (["path=jobs.csv", "held_out=1"], "held_out"),
        (["path=jobs.csv", "draws=0"], "draws"),
        (["path=jobs.csv", "seed=-1"], "seed"),
        (["path=jobs.csv", "fewest_jobs=3"], "fewest_jobs"),
        (["path=jobs.csv", "fewest_jobs=5000"], "1500 jobs are too few"),
        (["path=jobs.csv", "shaping.target_load=0.5"], "a load is set where"),
        (["path=jobs.csv", "shaping.from_s=1e12"], "no job arrives"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    jobs: Path,
    arguments: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, tmp_path, *arguments, "run_dir=new")
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["philly", "openb", "gavel"])
def test_a_training_run_by_configuration_alone(name: str) -> None:
    scenario = build_scenario(read_run(composed(f"workload={name}_like", "workload.num_jobs=20")))
    assert scenario.config.workload.calibrated == CalibratedConfig(name, target_load=0.7)
    assert scenario.workloads("test", 1)[0].num_jobs == 20
    with pytest.raises(ConfigError, match="calibrated.file: not set"):
        build_scenario(read_run(composed("workload=calibrated")))


def sample(arrival_s: object, gpus: object, duration_s: object) -> JobSample:
    return JobSample(*(np.asarray(values, dtype=np.float64) for values in (arrival_s, gpus, duration_s)))


def test_distances_by_hand() -> None:
    first = sample([0, 1, 3], [1, 1, 3], [1.0, np.e, np.e**2])
    found = distances(first, sample([0, 1, 3], [1, 3, 3], [np.e, np.e**2, np.e**3]))
    assert found.ks["durations"] == pytest.approx(1 / 3)
    assert found.wasserstein["durations"] == pytest.approx(1.0)
    assert found.ks["GPUs"] == pytest.approx(1 / 3)
    assert found.wasserstein["GPUs"] == pytest.approx(1 / 3)  # one job of three by a factor of two
    assert found.wasserstein["times between arrivals"] == 0.0


def test_figures_by_hand() -> None:
    # Two jobs in hour 0, none in hour 1, four in hour 2, and one that ends the last hour.
    arrival_s = [0, 10, 7200, 7300, 7400, 7500, 10_800]
    found = figures(sample(arrival_s, [1, 1, 1, 2, 2, 2, 2], [3600.0] * 7))
    counts = np.array([2, 0, 4])
    assert found["hourly index of dispersion"] == pytest.approx(counts.var() / counts.mean())
    assert found["share of hours without arrivals"] == pytest.approx(1 / 3)
    assert found["GPU hours per job"] == pytest.approx(11 / 7)
    assert found["same GPUs as the job before"] == pytest.approx(5 / 6)
    assert found["jobs per day"] == pytest.approx(6 * 8)
    assert np.isnan(found["autocorrelation of hourly counts, 1 h"])


def test_a_calibration_is_nearer_to_its_own_jobs_than_poisson() -> None:
    calibration = dataclasses.replace(SMALL, arrivals=ArrivalModel(2000.0, levels=(Level(3.0, 300.0),)))
    recorded = JobSample.of(drawn_table(calibration, 4000))
    own, plain = compare(recorded, calibration, 3, [1]), compare_plain(recorded, 3, [1])
    for quantity in ("durations", "times between arrivals"):
        assert own.spread("ks", quantity)[0] < 0.6 * plain.spread("ks", quantity)[0]
    low, high = own.spread("ks", "durations")[1:]
    assert low <= own.spread("ks", "durations")[0] <= high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("philly", "adaptdl-osdi21/traces/philly.csv"),
        ("openb", "alibaba-gpu-v2023/openb_pod_list_default.csv"),
        ("gavel", "gavel/traces/msr/seed=0/2869ce.trace"),
    ],
)
def test_shipped_calibrations_are_the_fit_of_their_trace(name: str, file: str) -> None:
    """Near to the trace, and a fresh fit gives the same file."""
    from dl2env.workload.calibrated import fit_calibration
    from dl2env.workload.traces import read_trace
    from dl2env.workload.traces.shaping import digest, time_window
    from dl2env.workload.traces.source import content_digest

    path = real_file(file)
    companion = real_file("gavel/simulation_throughputs.json") if name == "gavel" else None
    calibration = load_calibration(name)
    provenance = calibration.provenance
    assert content_digest(path) == provenance["sha256"]
    table: JobTable
    table, _ = read_trace(path, companion=companion)
    for step in provenance["steps"]:
        if step["step"] == "time_window":
            table = time_window(table, step["from_s"], step["until_s"])
    assert (table.num_jobs, digest(table)) == (provenance["jobs"], provenance["jobs_digest"])
    fewest = min(200, table.num_jobs)
    assert (
        fit_calibration(table, name, seed=provenance["seed"], fewest_jobs=fewest).calibration.digest()
        == calibration.digest()
    )
    found = compare(JobSample.of(table), calibration, 3, [0])
    limits = {"philly": (0.03, 0.16), "openb": (0.03, 0.06), "gavel": (0.09, 0.18)}[name]
    assert found.spread("ks", "durations")[0] < limits[0]
    assert found.spread("ks", "times between arrivals")[0] < limits[1]
