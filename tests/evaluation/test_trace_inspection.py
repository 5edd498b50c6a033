"""Inspection of recorded workloads: findings on damaged files, load by hand and as the simulator has it, settings."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, Dl2EnvError, TraceError
from dl2env.evaluation.trace_inspection.findings import arrivals_by_hour, check_of, inspect, jobs_by_gpus, quantiles
from dl2env.evaluation.trace_inspection.fit import cluster_findings
from dl2env.evaluation.trace_inspection.load import load_series, peak
from dl2env.evaluation.trace_inspection.report import html, summary, verdict, write_report
from dl2env.evaluation.trace_inspection.settings import InspectionSettings
from dl2env.evaluation.trace_inspection.tables import all_tables
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload import build_workload_source
from dl2env.workload.jobs import Workload
from dl2env.workload.traces import JobTable, read_trace

pytest.importorskip("polars")
HEADER = "arrival_s,duration_s,num_gpus,job_id,status,user"
ROWS = [
    "0,7000,3,a,completed,u",
    "1000,100,8,b,failed,v",
    "400,12345,1,c,running,u",
    "5000,50000,2,d,killed,w",
]
NODES = "machineId,number of GPUs\nm0,2\nm1,2\nm2,4\n"


def write(folder: Path, *rows: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text("\n".join([HEADER, *(rows or ROWS)]) + "\n")
    return path


def chosen(path: Path, **values: Any) -> InspectionSettings:
    made: InspectionSettings = config_from_dict(InspectionSettings, {"path": str(path), **values}, "inspect_trace")
    return made


def counts(found: Any) -> dict[str, int]:
    totals: dict[str, int] = {}
    for finding in found.findings:
        totals[finding.check] = totals.get(finding.check, 0) + finding.rows.count
    return totals


def test_a_sound_file(tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path)))
    assert found.warnings == () and found.world is None and found.load is None
    assert counts(found) == {"order": 1, "other": 3}  # three last longer than all arrivals take
    assert [table.table_id for table in all_tables(found)][:3] == ["rows", "checks", "findings"]
    found.check_strict()


@pytest.mark.parametrize(
    ("row", "check", "reason"),
    [
        ("2000,-5,1,x,completed,u", "impossible", "duration_s"),
        ("2000,inf,1,x,completed,u", "impossible", "not finite"),
        ("2000,5,-1,x,completed,u", "impossible", "num_gpus"),
        ("2000,1e300,1,x,completed,u", "impossible", "duration"),
        (",5,1,x,completed,u", "missing", "arrival_s is missing"),
        ("noon,5,1,x,completed,u", "missing", "arrival_s is not a number"),
        ("6000,500,1,a,completed,u", "duplicates", "has the job id of another row"),
        (ROWS[0], "duplicates", "repeats another row exactly"),
        ("2000,5,1,x,done,u", "impossible", "status is none of"),
    ],
)
def test_what_is_wrong_is_found(row: str, check: str, reason: str, tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path, *ROWS, row)))
    (warning,) = found.warnings
    assert warning.check == check and reason in warning.reason
    assert (warning.rows.count, warning.rows.first_rows) == (1, (6,))
    report = found.report
    assert report.rows_read == 5 == report.rows_kept + report.rows_dropped
    with pytest.raises(TraceError, match=r"jobs.csv, line 6: .*, 1 such rows; mend the file"):
        found.check_strict()


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        ("censored: the recording stopped before the job did", "censored"),
        ("runs for less than 60 s", "short"),
        ("timestamp is missing", "missing"),
        ("submit_time is not a time like 2017-10-09 07:01:55", "missing"),
        ("arrival time is impossible", "impossible"),
        ("ends before or when it starts", "impossible"),
        ("gpu_time is not duration x num_gpus and is not used", "contradicting"),
        ("never scheduled (Pending)", "never_ran"),
        ("blank line", "encoding"),
        ("has several attempts", "other"),
    ],
)
def test_reasons_answer_questions(reason: str, check: str) -> None:
    assert check_of(reason) == check


def test_jobs_that_no_server_holds() -> None:
    nan = float("nan")
    table = JobTable.of(
        np.arange(7.0),
        np.full(7, 100.0),
        [2, 4, 9, 8, 1, 6, 1],
        num_cpus=np.array([nan, nan, nan, nan, 33.0, nan, 200.0]),
        num_workers=np.array([0, 0, 0, 2, 1, 1, 0]),
        texts={"gpu_kind": ["V100", "G2", None, None, "T4", None, None]},
    )
    cluster = ClusterConfig(servers=(ServerGroup(2, cpus=32, gpus=2, gpu_type="v100"), ServerGroup(1, 16, 4, "v100")))
    found = cluster_findings(table, cluster)
    rows = {reason: (count.first_rows, count.is_warning) for reason, count in found.items()}
    # Job 4 has two workers of 4 GPUs, job 1 one task of unknown roles: both fit the large server.
    assert rows == {
        "needs more GPUs than the whole cluster has (8)": ((3,), True),
        "needs more CPU cores than the whole cluster has (80)": ((7,), True),
        "fits no server: a task needs more GPUs than any has": ((6,), True),
        "fits no server: GPUs and CPU cores of a task": ((5,), True),
        "asks for a GPU kind that the cluster lacks": ((2, 5), False),
    }
    assert found["needs more GPUs than the whole cluster has (8)"].example == "num_gpus=9"
    spread = cluster_findings(table.take([1]), ClusterConfig(servers=(ServerGroup(4, gpus=2, gpu_type="v100"),)))
    assert "fits no single server, must be spread" in spread


def test_load_over_time_by_hand() -> None:
    # 2 GPUs from 0 to 90 s, 1 from 30 to 40 s, 4 from 120 to 200 s; two bins of one minute.
    arrival, duration, gpus = np.array([0.0, 30, 120]), np.array([90.0, 10, 80]), np.array([2.0, 1, 4])
    series = load_series(arrival + 7, duration, gpus, 10)
    assert series is not None
    assert series.edges_s.tolist() == [0, 60, 120] and series.jobs.tolist() == [2, 1]
    assert series.arrived_gpu_s.tolist() == [190, 320] and series.peak_gpus == 4
    np.testing.assert_allclose(series.busy_gpus, [130 / 60, 60 / 60])
    assert series.mean_gpus == pytest.approx(510 / 120)
    assert load_series(np.zeros(3), duration, gpus, 10) is None
    assert peak(np.array([0.0, 5.0]), np.array([5.0, 6.0]), np.array([2.0, 3.0])) == 3


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 5000), st.integers(0, 8)), min_size=2, max_size=30),
    st.integers(1, 50),
)
def test_bins_add_up(jobs: list[tuple[int, int, int]], most_bins: int) -> None:
    arrival, duration, gpus = np.array(sorted(jobs), dtype=np.float64).T
    series = load_series(arrival, duration, gpus, most_bins)
    if series is None:
        assert arrival[0] == arrival[-1]
        return
    assert series.jobs.size <= most_bins + 1 and series.jobs.sum() == len(jobs)
    span = arrival[-1] - arrival[0]
    assert (series.offered_gpus * series.length_s).sum() == pytest.approx((gpus * duration).sum())
    held = np.minimum(arrival + duration, arrival[-1]) - arrival
    assert (series.busy_gpus * series.length_s).sum() == pytest.approx((gpus * held).sum(), abs=1e-6)
    assert series.peak_gpus >= series.busy_gpus.max() - 1e-6 and series.edges_s[-1] == span


@pytest.mark.parametrize("shaping", [{}, {"target_load": 0.6}, {"target_load": 0.6, "load_by": "sizes"}])
def test_the_load_is_that_of_the_simulator(shaping: dict[str, Any], tmp_path: Path) -> None:
    """Each job is run alone with the GPUs of its record: GPUs x time in the simulator make up the printed load."""
    found = inspect(chosen(write(tmp_path), cluster="dl2-small-v1", shaping=shaping))
    assert found.world is not None and found.load is not None and found.capacity_gpus == 96
    dynamics = dataclasses.replace(
        found.world.dynamics, initial_bundle=False, scaling_cost="none", speed_noise=0.0, epoch_error=0.0
    )
    world = dataclasses.replace(found.world, dynamics=dynamics, speed=dataclasses.replace(found.world.speed))
    world = dataclasses.replace(world, workload=dataclasses.replace(world.workload, num_jobs=4))
    workload = build_workload_source(world)(0, 0, 0)
    alone = dataclasses.replace(world, cluster=dataclasses.replace(world.cluster, servers=(ServerGroup(64, 8, 2),)))
    from dl2env.workload.generator import training_speeds

    job_types, own_speed, _, _ = training_speeds(world)
    _, roomy_speed, _, _ = training_speeds(alone)  # other GPUs: scale by the speed there
    gpu_s = 0.0
    for job, workers in enumerate((3, 1, 8, 2)):
        t = int(workload.type_idx[job])
        ps = workers if job_types[t].uses_ps else 0
        one = Workload(
            **{
                name: getattr(workload, name)[job : job + 1]
                for name in ("type_idx", "epochs", "true_epochs", "samples_per_epoch")
            },
            arrival_s=np.zeros(1),
            type_names=workload.type_names,
        )
        sim = ClusterSimulator(alone, 1, max_jobs=1)
        sim.load(np.array([0]), [one])
        while True:
            for action in [0] * workers + [1] * ps:
                assert not sim.step(np.array([action])).is_illegal[0]
            if sim.step(np.array([3 * sim.window])).terminated[0]:
                break
        jct = float(sim.records(0).finish_s[0]) * roomy_speed[t, workers, ps] / own_speed[t, workers, ps]
        gpu_s += jct * workers * job_types[t].worker_gpus
    assert gpu_s / 96 / workload.arrival_s[-1] == pytest.approx(found.load, rel=1e-9)
    assert not shaping or found.load == pytest.approx(0.6, rel=1e-9)
    assert f"{100 * found.load:.2f} %" in verdict(found)
    assert found.series is not None and found.series.mean_gpus == pytest.approx(96 * found.load)
    values = summary(found)
    assert values["load"]["offered"] == found.load
    assert sum(values["load"]["arrived_gpu_s"]) == pytest.approx(gpu_s)


def test_distributions(tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path)))
    assert quantiles(found)["duration (s)"][[0, -1]].tolist() == [100, 50_000]
    assert jobs_by_gpus(found.table) == [
        ("1", 1, 12_345.0),
        ("2", 1, 100_000.0),
        ("3 to 4", 1, 21_000.0),
        ("5 to 8", 1, 800.0),
    ]
    assert arrivals_by_hour(found.table).tolist() == [3, 1, *[0] * 22]
    night = dataclasses.replace(found.table, origin_s=-3600.0)
    assert arrivals_by_hour(night)[[23, 0]].tolist() == [3, 1]
    shares = JobTable.of([0, 1, 2], [10, 10, 10], [0, 0.5, 1])
    assert [row[:2] for row in jobs_by_gpus(shares)] == [("none", 1), ("a share", 1), ("1", 1)]


def test_parts(tmp_path: Path) -> None:
    by_time, by_jobs = (inspect(chosen(write(tmp_path), parts_by=by)).parts for by in ("time", "jobs"))
    assert [(part.name, part.jobs) for part in by_time] == [("train", 3), ("validation", 0), ("test", 1)]
    assert [(part.from_s, part.until_s) for part in by_time] == [(0, 3000), (3000, 4000), (4000, 5000)]
    assert [part.jobs for part in by_jobs] == [3, 1, 0]


def test_lists_of_servers_are_clusters(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(NODES)
    found = inspect(chosen(write(tmp_path), cluster=str(nodes)))
    assert found.capacity_gpus == 8
    assert found.recorded_load == pytest.approx((21_000 + 800 + 12_345 + 100_000) / 8 / 5000)
    (finding,) = [finding for finding in found.findings if finding.check == "cluster"]
    assert finding.reason == "fits no single server, must be spread" and finding.rows.first_rows == (3,)


def test_files_and_determinism(tmp_path: Path) -> None:
    settings = chosen(write(tmp_path), cluster="dl2-small-v1", write=str(tmp_path / "out.csv"), shaping={"max_gpus": 4})
    found = inspect(settings)
    paths = write_report(found, tmp_path / "a", ["inspect"])
    assert list(paths) == ["load", "arrivals", "distributions", "report", "jobs", "summary"]
    values = json.loads(paths["summary"].read_text())
    assert values["reading"]["rows_read"] == values["num_jobs"] == 4
    assert values["steps"][-1]["step"] == "map_gpus" and values["digest"] == found.digest
    page = paths["report"].read_text()
    assert page == html(found, paths, ["inspect"]) and "http" not in page.replace("http://www.w3.org", "")
    written, _ = read_trace(tmp_path / "out.csv")
    np.testing.assert_array_equal(written.num_gpus, [3, 1, 4, 2])
    again = inspect(settings)
    assert again.digest == found.digest and summary(again) == summary(found)
    assert (tmp_path / "a" / "load.png").read_bytes() == write_report(again, tmp_path / "b")["load"].read_bytes()


def test_a_page_holds_hostile_text(tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path, *ROWS, "9000,5,1,<script>alert(1)</script>,completed,<b>x</b>")))
    page = html(found, {})
    assert "<script>alert(1)" not in page and "<b>x</b>" not in page and "&lt;b&gt;x" in page


def test_all_jobs_at_once(tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path, "5,10,1,a,completed,u", "5,10,2,b,completed,u"), cluster="dl2-small-v1"))
    assert found.series is None and found.load is None and found.recorded_load is None
    assert list(write_report(found, tmp_path / "out")) == ["arrivals", "distributions", "report", "summary"]
    single = inspect(chosen(write(tmp_path, "5,10,1,a,completed,u")))
    write_report(single, tmp_path / "single")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"path": ""}, "path: no trace; give one"),
        ({"path": "none.csv"}, "no such file"),
        ({"format": "csv"}, "format='csv' is unknown; choose one of: auto, philly"),
        ({"format": "swf"}, "jobs.csv"),
        ({"cluster": "nowhere"}, "cluster=nowhere: no such file, and no such scenario; scenarios: .*dl2-small-v1"),
        ({"cluster": "jobs.csv"}, "no known list of servers"),
        ({"shaping": {"target_load": 0.5}}, "a load is a share of a cluster; give cluster="),
        ({"shaping": {"from_s": 1e9}}, "no job arrives from"),
        ({"write": "out.xlsx"}, "choose one of these endings"),
        ({"max_workers": 0}, "max_workers=0 must lie in 1 to 64"),
        ({"seed": -1}, "seed=-1 must not be negative"),
        ({"parts_by": "days"}, "parts_by='days' is unknown"),
    ],
)
def test_wrong_settings(values: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    with pytest.raises(Dl2EnvError, match=message) as caught:
        inspect(config_from_dict(InspectionSettings, {"path": "jobs.csv", **values}))
    assert "\n" not in str(caught.value)


def test_damaged_lists_of_servers(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(NODES + "m3,-2\n")
    with pytest.raises(ConfigError, match=r"nodes.csv: dropped: .*line 5.*; mend the list of servers"):
        inspect(chosen(write(tmp_path), cluster=str(nodes)))


def test_hours_are_those_of_the_recording(tmp_path: Path) -> None:
    """A load that is set by arrivals stretches time; the hours of arrival stay."""
    rows = [f"{hour * 3600 + minute},600,1,{hour}-{minute},completed,u" for hour in (1, 5, 9) for minute in (0, 1800)]
    plain = inspect(chosen(write(tmp_path, *rows)))
    shaped = inspect(chosen(write(tmp_path, *rows), cluster="dl2-small-v1", shaping={"target_load": 0.37}))
    hours = arrivals_by_hour(shaped.table)
    assert hours.tolist() == arrivals_by_hour(plain.table).tolist()
    assert np.flatnonzero(hours).tolist() == [1, 5, 9]


def test_gpus_that_the_catalogue_lacks_are_told(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,94000,393216,8,G2\n")
    found = inspect(chosen(write(tmp_path), cluster=str(nodes)))
    assert found.unknown_gpus == {"G2": 8}
    facts = next(table for table in all_tables(found) if table.table_id == "facts")
    texts = {str(row.cells[0]): str(row.cells[1]) for row in facts.rows}
    assert any("hardware catalogue lacks" in name and "8 G2" in text for name, text in texts.items())
    assert inspect(chosen(write(tmp_path), cluster="dl2-small-v1")).unknown_gpus == {}


@pytest.mark.parametrize(
    ("values", "warnings"),
    [({}, 0), ({"format": "dl2env"}, 0), ({"strict": True}, 0), ({"cluster": "dl2-small-v1", "strict": True}, 0)],
)
def test_good_settings_of_a_sound_file(values: dict[str, Any], warnings: int, tmp_path: Path) -> None:
    found = inspect(chosen(write(tmp_path), **values))
    assert len(found.warnings) == warnings and found.report.format == "dl2env"
    found.check_strict()


def test_a_scenario_file_is_a_cluster(tmp_path: Path) -> None:
    scenario = tmp_path / "mine-v1.toml"
    scenario.write_text(
        'name = "mine-v1"\nversion = 1\ndescription = "Small."\nextends = "dl2-small-v1"\n[config]\n'
        'cluster.servers = [{ count = 2, gpus = 4 }]\n[sources]\n"cluster.servers" = "made up"\n'
    )
    assert inspect(chosen(write(tmp_path), cluster=str(scenario))).capacity_gpus == 8
    scenario.write_text("not toml")
    with pytest.raises(Dl2EnvError, match="mine-v1.toml"):
        inspect(chosen(write(tmp_path), cluster=str(scenario)))
