"""Replaying recorded jobs: exact times, work that lasts as long as recorded, and what became of wrong rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.config import TRACE_FORMATS, ClusterConfig, DynamicsConfig, EnvConfig, ServerGroup, TraceConfig
from dl2env.config import WorkloadConfig as Workloads
from dl2env.errors import TraceError
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload import build_workload_source
from dl2env.workload.traces import TraceWarning, format_names, read_trace, trace_format
from dl2env.workload.traces.source import content_digest
from tests.workload.traces.samples import SAMPLES

NAMES = sorted(SAMPLES)


def config(path: Path, num_jobs: int, companion: Path | None = None, **trace: Any) -> EnvConfig:
    recorded = TraceConfig(str(path), companion=None if companion is None else str(companion), **trace)
    dynamics = DynamicsConfig(initial_bundle=False, scaling_cost="none", interval_s=1000.0)
    cluster = ClusterConfig(servers=(ServerGroup(64),))
    return EnvConfig(cluster=cluster, workload=Workloads(num_jobs=num_jobs, trace=recorded), dynamics=dynamics)


def philly(folder: Path, shift_s: int = 0) -> Path:
    rows = []
    for second, duration, gpus in ((0, 7000, 3), (400, 12_345, 1), (1000, 100, 8), (5000, 50_000, 2)):
        stamp = np.datetime64("2017-10-09T00:00:00") + np.timedelta64(second + shift_s, "s")
        rows.append(f"{stamp},{duration},{gpus},vc")
    path = folder / f"jobs{shift_s}.csv"
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *rows]) + "\n")
    return path


def test_registry_matches_the_configuration() -> None:
    assert ("auto", *format_names()) == TRACE_FORMATS
    for name in format_names():
        one = trace_format(name)
        assert one.name == name and one.title and one.columns


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_replayed_by_configuration(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path, companion = sample.write(tmp_path), sample.companion_path(tmp_path)
    table, _ = read_trace(path, companion=companion)
    workload = build_workload_source(config(path, table.num_jobs, companion))(0, 0, 0)  # some types have no GPUs
    np.testing.assert_array_equal(workload.arrival_s, table.arrival_s)
    provenance = workload.provenance["trace"]
    assert provenance["format"] == name and provenance["reading"]["rows_kept"] == table.num_jobs
    assert provenance["steps"][0]["step"] == "read" and provenance["assignment"]["recorded_gpu_s"] > 0


def test_a_job_alone_lasts_as_recorded(tmp_path: Path) -> None:
    """With its workers and parameter servers from its arrival on, on servers of their own."""
    settings = config(philly(tmp_path), 1)
    source = build_workload_source(settings)
    durations = {3: 7000.0, 1: 12_345.0, 8: 100.0, 2: 50_000.0}
    seen = set()
    for episode in range(40):
        workload = source(0, 0, episode)
        sim = ClusterSimulator(settings, 1, max_jobs=1)
        sim.load(np.array([0]), [workload])
        first_job = int(workload.provenance["first_job"])
        workers = list(durations)[first_job]
        while True:
            for action in [0] * workers + [1] * workers:
                report = sim.step(np.array([action]))
                assert not report.is_illegal[0]
            if sim.step(np.array([3 * sim.window])).terminated[0]:
                break
        record = sim.records(0)
        assert record.finish_s[0] - record.arrival_s[0] == pytest.approx(durations[workers], rel=1e-9)
        seen.add(first_job)
    assert seen == {0, 1, 2, 3}


def test_shifting_all_arrivals_changes_nothing(tmp_path: Path) -> None:
    workloads = [build_workload_source(config(philly(tmp_path, s), 4))(0, 0, 0) for s in (0, 1, 86_400, 12_345_678)]
    assert len({workload.digest() for workload in workloads}) == 1


@pytest.mark.parametrize("interval_s", [1.0, 300.0, 1e5])
def test_the_interval_changes_no_recorded_arrival(interval_s: float, tmp_path: Path) -> None:
    import dataclasses

    settings = config(philly(tmp_path), 4)
    settings = dataclasses.replace(settings, dynamics=dataclasses.replace(settings.dynamics, interval_s=interval_s))
    workload = build_workload_source(settings)(0, 0, 0)
    np.testing.assert_array_equal(workload.arrival_s, [0, 400, 1000, 5000])


def test_wrong_rows_are_told_when_replayed(tmp_path: Path) -> None:
    path = philly(tmp_path)
    path.write_text(path.read_text() + "2017-10-09 03:00:00,nan,1,vc\n")
    with pytest.warns(TraceWarning, match=r"4 of 5 rows are jobs; dropped: duration is missing: 1 \(line 6\)"):
        workload = build_workload_source(config(path, 4))(0, 0, 0)
    assert workload.provenance["trace"]["reading"]["dropped"] == {"duration is missing": 1}
    with pytest.raises(TraceError, match="line 6"):
        build_workload_source(config(path, 4, strict=True))


def test_digests_of_files_and_folders(tmp_path: Path) -> None:
    import hashlib

    path = philly(tmp_path)
    assert content_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    folders = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "jobs.csv").write_bytes(path.read_bytes())
        folders.append(content_digest(tmp_path / name))
    assert folders[0] == folders[1] != content_digest(path)
    (tmp_path / "b" / "more.csv").write_text("x")
    assert content_digest(tmp_path / "b") != folders[0]
    with pytest.raises(TraceError, match="no such file"):
        content_digest(tmp_path / "none")
