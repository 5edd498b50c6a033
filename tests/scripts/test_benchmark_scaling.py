"""`scripts/benchmark.py part=scaling`: what a point is, and the command from the outside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scripts import command_line
from scripts.benchmark import benchmark
from scripts.benchmark_scaling import Point, Task, _world, curves, exponent, first_jobs, peak_mb, run_point
from tests.scripts.calls import command
from tests.workload.traces.samples import TRACES_DIR

POINT = Point("synthetic", "drf", 1000, 10, 5, 0, 2.0, 3.0, 2.5, 100.0)


def points(cpu_s: dict[int, float]) -> list[Point]:
    return [replace(POINT, jobs=jobs, cpu_s=seconds) for jobs, seconds in cpu_s.items()]


def test_growth_is_the_slope_of_the_large_points() -> None:
    found = exponent(points({10: 500.0, 2000: 4.0, 4000: 16.0, 8000: 64.0}))
    assert found is not None and found[0] == 2000 and found[1] == pytest.approx(2.0)
    assert exponent(points({100: 1.0, 1000: 10.0})) is None
    assert POINT.us_per_job == 2000.0 and "2,000" not in POINT.line() and "2000.0" in POINT.line()
    assert list(curves([replace(POINT, jobs=5), POINT])[("synthetic", "drf")]) == [replace(POINT, jobs=5), POINT]


def test_first_jobs_are_those_that_arrive_first() -> None:
    _, whole = _world("synthetic", 20, 50, None)
    cut = first_jobs(whole, 20)
    assert cut.num_jobs == 20 and whole.num_jobs == 50
    assert cut.arrival_s.tolist() == whole.arrival_s[:20].tolist() and cut.noise_key == whole.noise_key


def test_a_point_finishes_all_jobs() -> None:
    point = run_point(Task("synthetic", "drf", 40, 20, None), lambda _: None)
    assert (point.jobs, point.num_unfinished) == (40, 0) and point.num_intervals > 10
    assert 0 < point.cpu_s < point.process_cpu_s and point.wall_s > 0


def test_memory_is_what_the_process_held() -> None:
    held = np.ones(40_000_000)  # 320 MB
    assert peak_mb() > held.nbytes / 1e6


@pytest.mark.skipif(not (TRACES_DIR / "adaptdl-osdi21").is_dir(), reason="needs the Philly-derived trace")
def test_load_per_server_does_not_depend_on_their_number() -> None:
    trace = str(TRACES_DIR / "adaptdl-osdi21" / "traces" / "philly.csv")
    (small, few), (large, many) = (_world("philly", servers, 100, trace) for servers in (48, 96))
    assert few.num_jobs == many.num_jobs > 80_000
    assert few.arrival_s == pytest.approx(2 * many.arrival_s)
    assert small.cluster.servers[0].count * 2 == large.cluster.servers[0].count == 96


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    with command(monkeypatch, folder, "part=scaling", "run_dir=new", *arguments):
        command_line.run(benchmark, "benchmark")


def test_the_curve_is_printed_stored_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    call(monkeypatch, tmp_path, "scaling.jobs=[20,30]", "scaling.servers=20", "scaling.schedulers=[drf]")
    captured = capsys.readouterr()
    lines = captured.out.rstrip().splitlines()
    assert lines[0].startswith("20 servers") and lines[-1] == "new/summary.json"
    assert [line.split()[:3] for line in lines[2:4]] == [["synthetic", "drf", "20"], ["synthetic", "drf", "30"]]
    assert "drf on synthetic: CPU time grows as jobs^" in lines[4] and "recorded trace skipped" in captured.err
    assert (tmp_path / "new" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    measured = json.loads((tmp_path / "new" / "summary.json").read_text())["measurements"]
    assert [m["jobs"] for m in measured] == [20, 30] and all(m["us_per_job"] > 0 for m in measured)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("scaling.trace=none.csv", "scaling.trace=none.csv: no such file"),
        ("scaling.jobs=[]", "scaling.jobs=[]"),
        ("scaling.jobs=[0]", "scaling.jobs=[0]"),
        ("scaling.servers=0", "scaling.servers=0"),
        ("scaling.schedulers=[]", "scaling.schedulers is empty"),
        ("scaling.schedulers=[none]", "unknown scheduler 'none'"),
        ("part=all", "unknown part 'all'"),
    ],
)
def test_wrong_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, argument: str, words: str
) -> None:
    small = [] if argument.startswith("scaling.jobs") else ["scaling.jobs=[5]"]
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, tmp_path, *small, argument)
    error = capsys.readouterr().err
    assert end.value.code == 2 and words in error.splitlines()[-1]
