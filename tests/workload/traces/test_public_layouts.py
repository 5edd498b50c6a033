"""Column layouts that public files of the formats have beside the usual one; all values are made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.cluster_files import read_nodes
from dl2env.workload.traces import JobTable, ReadReport, read_trace


def read(folder: Path, text: str, name: str = "jobs.csv") -> tuple[JobTable, ReadReport]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_trace(path)


def test_oldest_traces_of_gavel(tmp_path: Path) -> None:
    """Six cells: no flag for the data folder."""
    table = {"v100": {"('Otter', 1)": {"null": 2.0}}}
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(table))
    rows = "Otter\tcd %s && python3 otter.py\t--steps\t600\t5\t1\nOtter\tpython3 otter.py\t--steps\t100\t7.5\t2\n"
    jobs, report = read(tmp_path, rows, "jobs.trace")
    assert jobs.format == "gavel" and not report.warnings
    np.testing.assert_array_equal(jobs.duration_s, [300, 25])
    np.testing.assert_array_equal(jobs.num_gpus, [1, 2])
    np.testing.assert_array_equal(jobs.arrival_s, [0, 2.5])


def test_traces_of_shockwave_state_durations(tmp_path: Path) -> None:
    """Twelve cells; no table of throughputs is needed, and none is taken."""
    (tmp_path / "simulation_throughputs.json").write_text("not a table")
    rows = [
        ("Sea Lion (batch size 16)", "run", "folder", "-n", "1", "900", "1", "gns", "1", "-1.000000", "1200", "0"),
        ("Sea Lion (batch size 32)", "run", "folder", "-n", "1", "900", "4", "static", "2", "1.5", "60.5", "33"),
        ("Sea Lion (batch size 32)", "run", "folder", "-n", "1", "900", "4", "static", "2", "1.5", "0", "40"),
    ]
    jobs, report = read(tmp_path, "".join("\t".join(row) + "\n" for row in rows), "jobs.trace")
    assert jobs.format == "gavel" and report.duration_rule == "recorded run times"
    np.testing.assert_array_equal(jobs.duration_s, [1200, 60.5])
    np.testing.assert_array_equal(jobs.num_gpus, [1, 4])
    np.testing.assert_array_equal(jobs.extra["batch_size"], [16, 32])
    np.testing.assert_array_equal(jobs.extra["slo"], [np.nan, 1.5])
    np.testing.assert_array_equal(jobs.extra["priority"], [1, 2])
    assert report.dropped["duration is not positive"].first_rows == (3,)


@pytest.mark.parametrize(
    "header",
    [
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration",
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort",
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration",
    ],
)
def test_columns_of_elasticflow(header: str, tmp_path: Path) -> None:
    values = {
        "job_id": "3f22-a", "submit_time": "370", "real_iteration": "9", "model_name": "resnet50_cifar10",
        "ddl": "5370", "batch_size": "256", "num_gpu": "2", "real_duration": "1", "duration": "3930",
        "iteration": "77", "best_effort": "0",
    }  # fmt: skip
    jobs, report = read(tmp_path, header + "\n" + ",".join(values[name] for name in header.split(",")))
    assert jobs.format == "elasticflow" and not report.warnings
    assert (jobs.duration_s[0], jobs.num_gpus[0], jobs.extra["deadline_s"][0]) == (3930, 2, 5000)
    assert jobs.extra["iterations"][0] == 77


def test_lists_of_tiresias_with_further_columns(tmp_path: Path) -> None:
    """Submitted and started: a job arrives when it is submitted."""
    jobs, report = read(
        tmp_path,
        "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale\n"
        "7,12,11,14,200,400,0,vgg19,1\n8,1,15,15,90,400,0,vgg19,1",
    )
    assert jobs.format == "tiresias" and not report.warnings
    np.testing.assert_array_equal(jobs.arrival_s, [0, 4])


def test_workload_lists_written_by_pandas(tmp_path: Path) -> None:
    """Columns without a name, and times with fractions, as in Sia's lists."""
    jobs, report = read(
        tmp_path,
        ",Unnamed: 0,name,time,application,num_replicas,batch_size\n0,0,ncf-0,13.0,ncf,1,32768\n"
        "1,1,bert-1,24.25,bert,8,384\n2,2,other-2,30,gpt9,8,384\n",
    )
    assert jobs.format == "pollux" and jobs.num_jobs == 2
    np.testing.assert_array_equal(jobs.arrival_s, [0, 11.25])
    ((reason, count),) = report.dropped.items()
    assert reason.startswith("application is none of cifar10") and count.first_rows == (4,)


def test_job_list_of_the_pai_simulator(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path,
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,wait_time,group\n"
        "1,1,10,6,0.25,MISC,60,u1,5,g1\n2,4,15,8,2,V100,600,u2,,g2\n3,1,20,4,0,CPU,70,u1,1,g1\n4,1,9,4,1,T4,0,u3,0,g3\n",
    )
    assert jobs.format == "pai" and report.rows_read == 4
    np.testing.assert_array_equal(jobs.num_gpus, [0.25, 2, 0])  # of the whole job, whatever num_inst
    np.testing.assert_array_equal(jobs.num_cpus, [6, 8, 4])
    np.testing.assert_array_equal(jobs.arrival_s, [0, 5, 10])
    assert jobs.gpu_kind.tolist() == ["MISC", "V100", ""] and jobs.group.tolist() == ["g1", "g2", "g1"]
    np.testing.assert_array_equal(jobs.extra["wait_s"], [5, np.nan, 1])
    assert report.dropped["simulator table: duration is not positive"].first_rows == (5,)
    (tmp_path / "task.csv").write_text("9f3a01,worker,2.0,Terminated,1000.0,1600.0,600.0,29.3,50.0,T4\n")
    with pytest.raises(TraceError, match=r"the simulator's job list beside the task table"):
        read_trace(tmp_path)


def test_kalos_has_more_columns_than_seren(tmp_path: Path) -> None:
    jobs, report = read(
        tmp_path,
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dl1,u1,2,16,240,100.0,50.0,Other,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,"
        "2023-05-17 11:02:10+00:00,2023-05-17 11:02:10+00:00,,120.0,10.0,1920.0\n",
    )
    assert jobs.format == "acme" and not report.warnings
    assert jobs.memory_gib[0] == pytest.approx(2 * 100e9 / 2**30)


def test_shares_above_a_whole_gpu_are_told(tmp_path: Path) -> None:
    _, report = read(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,1000,V100M16|V100M32,LS,Running,0,100,0\np1,12000,16384,1,5000,,LS,Running,0,100,0\n",
    )
    assert report.warned["gpu_milli is above 1000, more than a whole GPU"].first_rows == (3,)


def test_lists_of_servers(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("gpu_model,gpu_capacity_num,cpu_num,node_name\nGPU-series-1,4,192,0\nA800-SXM4-80GB,8,128,1\n")
    nodes, _ = read_nodes(path, strict=True)
    assert nodes.format == "spot_nodes" and nodes.kinds_without_entry() == ("GPU-series-1",)
    path.write_text("machineId, number of GPUs, single GPU mem\nm1, 2, 24GB\nm2, 8, 24GB\n")
    nodes, _ = read_nodes(path, strict=True)
    assert nodes.format == "philly_nodes" and nodes.gpus.tolist() == [2, 8]
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,94000,393216,0,\n")
    nodes, _ = read_nodes(path, strict=True)
    assert nodes.format == "openb_nodes" and nodes.gpus.tolist() == [2, 0]
