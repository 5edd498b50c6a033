"""Replays of public traces, where at hand: exact arrivals, no effect of the origin, the load that lint prints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dl2env.config import ClusterConfig, EnvConfig, ServerGroup, TraceConfig
from dl2env.config import WorkloadConfig as Workloads
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers import get_scheduler
from dl2env.workload import build_workload_source
from dl2env.workload.generator import training_speeds
from dl2env.workload.traces import read_trace
from tests.workload.traces.samples import real_file

pytestmark = pytest.mark.filterwarnings("ignore::dl2env.workload.traces.report.TraceWarning")

FILES = {
    "philly": "adaptdl-osdi21/traces/philly.csv",
    "openb": "alibaba-gpu-v2023/openb_pod_list_default.csv",
    "gavel": "gavel/traces/msr/seed=0/2869ce.trace",
    "tiresias": "tiresias/60_job.csv",
    "pollux": "adaptdl-osdi21/workloads/workload-1.csv",
}


def config(path: Path, num_jobs: int, interval_s: float = 600.0) -> EnvConfig:
    base = EnvConfig()
    return dataclasses.replace(
        base,
        cluster=ClusterConfig(servers=(ServerGroup(24, cpus=64, gpus=8),)),
        workload=Workloads(num_jobs=num_jobs, trace=TraceConfig(str(path))),
        dynamics=dataclasses.replace(base.dynamics, interval_s=interval_s),
    )


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("interval_s", [60.0, 600.0, 7200.0])
def test_the_interval_changes_no_recorded_arrival(name: str, interval_s: float) -> None:
    path = real_file(FILES[name])
    table, _ = read_trace(path)
    num_jobs = min(table.num_jobs, 2000) // 2
    workload = build_workload_source(config(path, num_jobs, interval_s))(0, 0, 0)
    first = int(workload.provenance["first_job"])
    # Jobs without GPUs are replayed too where the catalogue has types without; here all types count.
    kept = np.flatnonzero((table.num_gpus > 0) | (workload.provenance["trace"]["assignment"]["left_out"] == 0))
    recorded = table.arrival_s[kept][first : first + num_jobs]
    np.testing.assert_array_equal(workload.arrival_s, recorded - recorded[0])


@pytest.mark.parametrize("shift_s", [1, 86_400, 12_345_678])
def test_shifting_philly_changes_no_job_completion_time(shift_s: int, tmp_path: Path) -> None:
    lines = real_file(FILES["philly"]).read_text().splitlines()
    times = []
    for shift in (0, shift_s):
        rows = [line.split(",") for line in lines[1:3001]]
        stamps = np.array([row[0] for row in rows], dtype="datetime64[s]") + np.timedelta64(shift, "s")
        path = tmp_path / f"shifted-{shift}.csv"
        text = "".join(
            f"{str(stamp).replace('T', ' ')},{','.join(row[1:])}\n" for stamp, row in zip(stamps, rows, strict=True)
        )
        path.write_text(lines[0] + "\n" + text)
        settings = config(path, 40)
        workloads = [build_workload_source(settings)(0, 0, episode) for episode in range(3)]
        result = run_scheduler(get_scheduler("drf"), settings, workloads)
        jct_s = np.concatenate([records.finish_s - records.arrival_s for records in result.records])
        times.append((jct_s, [workload.digest() for workload in workloads]))
    assert np.isfinite(times[0][0]).any()
    np.testing.assert_array_equal(times[0][0], times[1][0])
    assert times[0][1] == times[1][1]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", [None, 0.7])
def test_the_load_that_lint_prints_is_that_of_the_workload(name: str, target: float | None, tmp_path: Path) -> None:
    """GPU time of all jobs from their work and speeds, as the simulator knows them, over the time between arrivals."""
    from dl2env.config import ShapingConfig
    from dl2env.evaluation.trace_inspection.findings import inspect
    from dl2env.evaluation.trace_inspection.settings import InspectionSettings

    found = inspect(
        InspectionSettings(
            str(real_file(FILES[name])), cluster="dl2-small-v1", shaping=ShapingConfig(target_load=target)
        )
    )
    assert found.world is not None and found.shaped is not None and found.load is not None
    world = dataclasses.replace(
        found.world, workload=dataclasses.replace(found.world.workload, num_jobs=found.shaped.jobs.num_jobs)
    )
    workload = build_workload_source(world)(0, 0, 0)
    assert workload.num_jobs == found.shaped.jobs.num_jobs
    job_types, speed, _, _ = training_speeds(world)
    jobs = found.shaped.jobs
    seconds = workload.epochs * workload.samples_per_epoch / speed[workload.type_idx, jobs.workers, jobs.ps]
    gpus = np.array([job_type.worker_gpus for job_type in job_types])[workload.type_idx] * jobs.workers
    capacity = sum(group.count * group.gpus for group in world.cluster.servers)
    load = float((seconds * gpus).sum()) / (capacity * workload.arrival_s[-1])
    assert load == pytest.approx(found.load, rel=1e-9)
    assert target is None or found.load == pytest.approx(target, rel=1e-9)
