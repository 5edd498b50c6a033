"""Helios and Acme logs by hand: states, missing times, zones, units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import read_trace
from tests.workload.traces.samples import real_file

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "cluster_log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def helios(name: str, state: str, start: str, end: str, duration: str, queue: str, gpus: str = "8") -> str:
    times = ",".join(f"2020-04-01 {time}" if time else "" for time in ("00:00:00", start, end))
    return f"{name},u,vc1,{gpus},64,1,{state},{times},{duration},{queue}\n"


def test_helios_by_hand(tmp_path: Path) -> None:
    text = HELIOS + "".join(
        (
            helios("done", "COMPLETED", "00:01:00", "01:01:00", "3600", "60"),
            helios("cancelled", "CANCELLED by 1001", "00:00:00", "00:00:30", "30.0", "0", gpus="0"),
            helios("never", "CANCELLED", "", "", "0", ""),
            helios("never either", "CANCELLED", "00:01:00", "00:01:00", "0", "60"),
            helios("instant", "COMPLETED", "00:01:00", "00:01:00", "0", "60"),
            helios("no duration", "NODE_FAIL", "00:01:00", "00:03:00", "NaN", "60"),
            helios("nothing", "COMPLETED", "00:01:00", "", "", "60"),
            helios("negative", "TIMEOUT", "00:03:00", "00:01:00", "-120", "180"),
            helios("no start", "FAILED", "", "00:01:00", "10", "60"),
            helios("suspended", "SUSPENDED", "00:10:00", "02:10:00", "7200", "600"),
            helios("odd", "GONE", "00:00:00", "00:01:00", "90", "5"),
            helios("waits", "PENDING", "", "", "", ""),
        )
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "helios"
    assert table.job_id.tolist() == ["done", "cancelled", "no duration", "suspended", "odd"]
    assert table.status.tolist() == ["completed", "killed", "failed", "running", "unknown"]
    np.testing.assert_array_equal(table.duration_s, [3600, 30, 120, 7200, 90])
    np.testing.assert_array_equal(table.num_gpus, [8, 0, 8, 8, 8])
    np.testing.assert_array_equal(table.num_cpus, [64] * 5)
    np.testing.assert_array_equal(table.extra["wait_s"], [60, 0, 60, 600, 0])
    np.testing.assert_array_equal(table.is_censored, [False, False, False, True, False])
    assert table.group.tolist() == ["vc1"] * 5
    dropped = {reason: (count.first_rows, count.is_warning) for reason, count in report.dropped.items()}
    assert dropped == {
        "never started": ((4, 13), False),
        "start_time is missing": ((10,), True),
        "duration and end_time are missing": ((8,), True),
        "duration is negative": ((9,), True),
        "cancelled before it ran": ((5,), False),
        "ran for 0 s": ((6,), True),
    }
    assert {reason: count.first_rows for reason, count in report.warned.items()} == {
        "state is none of Slurm's": (12,),
        "duration is missing, end_time - start_time is used": (7,),
        "duration is not end_time - start_time and is used": (12,),
        "queue is not start_time - submit_time and is not used": (12,),
    }
    assert report.layout["times"] == "local, without a zone"


def test_acme_by_hand(tmp_path: Path) -> None:
    text = (
        SEREN + "1,u,2,16,240,Pretrain,COMPLETED,2023-03-01 10:00:00+08:00,2023-03-01 10:01:00+08:00,"
        "2023-03-01 11:01:00+08:00,3600,60,57600\n"
        + "2,u,1,8,120,Eval,FAILED,2023-03-01 01:59:00+00:00,2023-03-01 02:00:00+00:00,"
        "2023-03-01 02:00:40+00:00,40,60,999\n"
        + "3,u,1,8,120,Eval,FAILED,2023-03-01 10:00:00,2023-03-01 10:00:00,2023-03-01 10:00:40,40,0,320\n"
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "acme"
    assert table.label.tolist() == ["Eval", "Pretrain"]
    np.testing.assert_array_equal(table.arrival_s, [0, 60])  # 10:00 at +08:00 is 02:00 UTC
    np.testing.assert_array_equal(table.num_gpus, [8, 16])
    assert report.warned["gpu_time is not duration x gpu_num and is not used"].first_rows == (3,)
    assert report.dropped["submit_time lacks a time zone, unlike the rows above"].first_rows == (4,)


def test_memory_of_kalos_is_per_pod_in_gb(tmp_path: Path) -> None:
    text = KALOS + (
        "1,u,2,16,240,1000,64,Pretrain,COMPLETED,2023-05-17 10:00:00+00:00,2023-05-17 10:01:00+00:00,"
        "2023-05-17 11:01:00+00:00,,,3600,60,57600\n"
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "acme" and not report.warnings
    np.testing.assert_allclose(table.memory_gib, [2 * 1000e9 / 2**30])


def test_the_summary_of_acme_is_no_trace() -> None:
    path = real_file("acme/cluster_summary.csv")
    with pytest.raises(TraceError, match=r"cluster_summary.csv, line 1"):
        read_trace(path)
