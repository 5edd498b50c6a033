"""Alibaba PAI 2020: tables alone and joined, roles, censoring, and what is odd in them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import RowCount, read_trace
from dl2env.workload.traces.pai_tables import COLUMNS
from tests.workload.traces.samples import real_file

JOB = """j1,i1,u1,Terminated,1000.0,5000.0
j2,i2,u2,Failed,1100.0,1300.0
j3,i3,u1,Running,1200.0,
j4,i4,u3,Waiting,1300.0,
j5,i5,u3,Terminated,1400.0,1500.0
j6,i6,u3,Terminated,0,1500.0
j7,i7,u3,Terminated,1600.0,1550.0
"""
TASK = """j1,worker,4.0,Terminated,1050.0,5000.0,600.0,29.3,50.0,V100
j1,ps,2.0,Terminated,1040.0,5000.0,400.0,10.0,,
j1,evaluator,1.0,Terminated,1050.0,4000.0,200.0,5.0,25.0,T4
j2,tensorflow,2.0,Failed,1100.0,1300.0,800.0,20.0,100.0,P100
j3,worker,1.0,Running,1250.0,,600.0,29.3,800.0,V100M32
j4,worker,1.0,Waiting,,,600.0,29.3,100.0,MISC
j6,worker,1.0,Terminated,1450.0,1500.0,600.0,29.3,100.0,MISC
j7,worker,1.0,Terminated,1600.0,1550.0,600.0,29.3,100.0,MISC
j9,worker,1.0,Terminated,1600.0,1700.0,600.0,29.3,100.0,MISC
"""
INSTANCE = """j1,worker,x1,w1,i1,Terminated,1060.0,4900.0,m1
j1,worker,x2,w2,i1,Terminated,1070.0,5010.0,m2
j2,tensorflow,x3,w3,i2,Failed,0,1300.0,m2
j9,worker,x4,w4,i9,Failed,1100.0,1300.0,m2
"""
TAG = """i1aaaaaaaaaaaaaaaa,u1,V100,g1,bert
"""


def folder(path: Path, **tables: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in tables.items():
        (path / f"pai_{name}_table.csv").write_text(text)
    return path


def test_job_and_task_table(tmp_path: Path) -> None:
    table, report = read_trace(folder(tmp_path / "pai", job=JOB, task=TASK))
    assert table.format == "pai" and table.job_id.tolist() == ["j1", "j2", "j3", "j6"]
    np.testing.assert_array_equal(table.arrival_s, [0, 100, 200, 450])  # of the submission; j6 has none: its task's
    # j1 from its parameter servers' start, j3 until the latest time of all
    np.testing.assert_array_equal(table.duration_s, [5000 - 1040, 200, 5000 - 1250, 50])
    np.testing.assert_allclose(table.num_gpus, [4 * 0.5 + 0.25, 2, 8, 1])
    np.testing.assert_allclose(table.num_cpus, [4 * 6 + 2 * 4 + 2, 16, 6, 6])
    np.testing.assert_allclose(table.memory_gib, np.array([4 * 29.3 + 20 + 5, 40, 29.3, 29.3]) * 1e9 / 2**30)
    assert table.num_workers.tolist() == [5, 2, 1, 1] and table.num_ps.tolist() == [2, 0, 0, 0]
    assert table.is_censored.tolist() == [False, False, True, False]
    assert table.status.tolist() == ["completed", "failed", "running", "completed"]
    assert table.gpu_kind.tolist() == ["V100", "P100", "V100M32", "MISC"]
    assert table.user.tolist() == table.group.tolist() == ["u1", "u2", "u1", "u3"]
    np.testing.assert_array_equal(table.extra["wait_s"], [40, 0, 50, 0])
    assert table.source_row.tolist() == [1, 2, 3, 6]
    assert [table.files[file].rsplit("/", 1)[1] for file in table.source_file] == ["pai_job_table.csv"] * 4
    assert (report.rows_read, report.rows_kept, report.rows_dropped, report.rows_merged) == (16, 4, 4, 8)
    assert report.dropped == {
        "task table: job has no row in the job table": RowCount(1, (9,)),
        "job table: no row in the task table": RowCount(1, (5,)),
        "job table: never started (status Waiting)": RowCount(1, (4,)),
        "job table: ends before or when it starts": RowCount(1, (7,)),
    }
    assert report.merged == {"task table: task of a job": RowCount(8, (1, 2, 3, 4, 5))}


def test_task_table_alone(tmp_path: Path) -> None:
    path = folder(tmp_path / "pai", task=TASK) / "pai_task_table.csv"
    table, report = read_trace(path)
    assert table.job_id.tolist() == ["j1", "j2", "j3", "j6", "j9"]
    np.testing.assert_array_equal(table.arrival_s, [0, 60, 210, 410, 560])
    assert (report.rows_read, report.rows_kept, report.rows_merged) == (9, 5, 2)
    assert report.merged["task table: further task of a job"].first_rows == (2, 3)


def test_a_header_row_is_taken_in_any_order(tmp_path: Path) -> None:
    plain, _ = read_trace(folder(tmp_path / "pai", task=TASK) / "pai_task_table.csv")
    rows = [[*COLUMNS["task"], "user"], *([*line.split(","), "u7"] for line in TASK.splitlines())]
    path = tmp_path / "joined.csv"
    path.write_text("".join(",".join(row[::-1]) + "\n" for row in rows))
    table, report = read_trace(path)
    np.testing.assert_array_equal(table.num_gpus, plain.num_gpus)
    assert set(table.user.tolist()) == {"u7"} and "header in line 1" in report.layout["task table: text"]


def test_job_table_alone_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path / "pai", job=JOB) / "pai_job_table.csv"
    table, report = read_trace(path)
    assert table.job_id.tolist() == ["j1", "j2", "j3", "j5"]
    np.testing.assert_array_equal(table.num_gpus, 1.0)
    ((reason, rows),) = report.warned.items()
    assert "one GPU assumed" in reason and rows.count == 4
    with pytest.raises(TraceError, match="line"):
        read_trace(path, strict=True)


def test_instances_and_tags(tmp_path: Path) -> None:
    job = JOB.replace("i1,", "i1aaaaaaaaaaaaaaaa,")
    path = folder(tmp_path / "pai", job=job, task=TASK, instance=INSTANCE, group_tag=TAG + TAG.replace("i1", "i8"))
    (path / "pai_sensor_table.csv").write_text("j1,worker,w1,i1,m1,/dev/nvidia0,100.0,50.0,1,2,1,2,0,0,0,0\n")
    table, report = read_trace(path)
    np.testing.assert_array_equal(table.duration_s[:2], [5010 - 1060, 1300 - 1100])  # a start of 0 is missing
    assert table.label.tolist() == ["bert", "", "", ""] and table.group.tolist() == ["g1", "u2", "u1", "u3"]
    assert report.merged["instance table: instance of a job"].count == 3
    assert report.dropped["instance table: job has no row in the job or task table"].first_rows == (4,)
    assert report.merged["group_tag table: tag of a job"].count == 1
    assert report.dropped["group_tag table: tag of no job of these tables"].count == 1
    assert report.layout["files without jobs, not read"] == "pai_sensor_table.csv"
    assert "instances" in report.duration_rule


def test_tables_packed_one_by_one_as_published(tmp_path: Path) -> None:
    expected, _ = read_trace(folder(tmp_path / "plain", job=JOB, task=TASK))
    path = tmp_path / "packed"
    path.mkdir()
    for name, text in (("job", JOB), ("task", TASK)):
        with tarfile.open(path / f"pai_{name}_table.tar.gz", "w:gz") as tar:
            member = tarfile.TarInfo(f"pai_{name}_table.csv")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    (path / "pai_job_table.header").write_text(",".join(COLUMNS["job"]))
    table, _ = read_trace(path)
    np.testing.assert_array_equal(table.num_gpus, expected.num_gpus)
    np.testing.assert_array_equal(table.arrival_s, expected.arrival_s)


def test_other_tables_alone_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "pai", instance=INSTANCE)
    with pytest.raises(TraceError, match="only the instance table of PAI 2020; jobs need the task table"):
        read_trace(path)
    folder(path, job=JOB)
    (path / "again.csv").write_text(JOB)
    with pytest.raises(TraceError, match="two job tables"):
        read_trace(path)
    (tmp_path / "sensor.csv").write_text("j1,worker,w1,i1,m1,/dev/nvidia0,100.0,50.0,1,2,1,2,0,0,0,0\n")
    with pytest.raises(TraceError, match="sensor or machine tables"):
        read_trace(tmp_path / "sensor.csv")
    (tmp_path / "nodes.csv").write_text("m1,T4,96,512,2\nm2,CPU,96,512,0\n")
    with pytest.raises(TraceError, match="a list of servers .pai_nodes., not of jobs"):
        read_trace(tmp_path / "nodes.csv")


def test_odd_cells(tmp_path: Path) -> None:
    text = (
        "j1,worker,,Terminated,1000.0,2000.0,600.0,29.3,100.0,T4\n"
        "j2,worker,1.0,Lost,1000.0,2000.0,600.0,29.3,100.0,T4\n"
        "j3,worker,1.0,Failed,-5,2000.0,600.0,29.3,100.0,T4\n"
        "j4,worker,1.0,Failed,1000.0,2000.0,600.0,29.3,1e30,T4\n"
        ",worker,1.0,Failed,1000.0,2000.0,600.0,29.3,100,T4\n"
    )
    path = tmp_path / "task.csv"
    path.write_text(text)
    table, report = read_trace(path, "pai")
    assert table.job_id.tolist() == ["j1", "j2"] and table.status.tolist() == ["completed", "unknown"]
    assert report.clamped["task table: inst_num is 0 or missing, counted as 1"] == RowCount(1, (1,))
    assert {rows.first_rows for rows in report.dropped.values()} == {(3,), (4,), (5,)}
    assert (
        report.warned["task table: status is none of Terminated, Failed, Running, Waiting"].example == "status='Lost'"
    )


@pytest.mark.parametrize("name", ["job", "task", "instance", "group_tag", "sensor"])
def test_columns_are_those_of_the_published_headers(name: str) -> None:
    text = real_file(f"alibaba-gpu-v2020/pai_{name}_table.header").read_text()
    assert tuple(text.strip().split(",")) == COLUMNS[name]


@pytest.mark.slow
def test_a_million_jobs(tmp_path: Path) -> None:
    """At most 20 s of processor time and 2 GB of memory."""
    import subprocess
    import sys

    rng = np.random.default_rng(0)
    start = np.sort(rng.uniform(494_319, 5e6, 1_000_000))
    path = tmp_path / "pai_job_table.csv"
    with path.open("w") as file:
        for i, (at, span) in enumerate(zip(start.tolist(), rng.lognormal(6, 2, start.size).tolist(), strict=True)):
            file.write(f"{i:024x},{i:048x},{i % 1300:012x},Terminated,{at:.1f},{at + span + 1:.1f}\n")
    code = (
        "import resource, sys, time; from dl2env.workload.traces import read_trace; t = time.process_time()\n"
        f"table, report = read_trace({str(path)!r})\n"
        "print(table.num_jobs, time.process_time() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    jobs, seconds, gigabytes = map(float, output.split())
    assert jobs == 1_000_000 and seconds < 20 and gigabytes < 2
