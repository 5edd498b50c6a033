"""A made-up small file of every format: name -> sample. The tests of this folder run on all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

TRACES_DIR = Path(os.environ.get("DL2ENV_TRACES_DIR", Path(__file__).resolve().parents[4] / "shared" / "traces"))
"""Public traces for tests of counts, where they are at hand."""


def real_file(name: str) -> Path:
    """A public trace file; the test is skipped where it is absent."""
    path = TRACES_DIR / name
    if not path.exists():
        pytest.skip(f"the public trace {name} is not at hand (DL2ENV_TRACES_DIR)")
    return path


@dataclass(frozen=True)
class Sample:
    """A small file of a format.

    Attributes:
        text: Its content: several rows, all of which become jobs.
        num_jobs: Jobs in it.
        suffix: Of the file's name.
        delimiter: Between cells; empty if the file is no table of cells.
        has_header: Whether the first line names columns that may be in any order.
        duration_column: Cell that holds the duration, from 0; None where there is none.
        companion: Content of the companion file, if the format needs one.
        companion_suffix: Of its name.
    """

    text: str
    num_jobs: int
    suffix: str = ".csv"
    delimiter: str = ","
    has_header: bool = True
    duration_column: int | None = None
    companion: str = ""
    companion_suffix: str = ".json"

    def write(self, folder: Path, content: str | bytes | None = None, name: str = "jobs") -> Path:
        """Writes the sample, or a variant of it, into a folder."""
        path = folder / f"{name}{self.suffix}"
        data = self.text if content is None else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def companion_path(self, folder: Path) -> Path | None:
        """Writes the companion file, if there is one."""
        if not self.companion:
            return None
        outer = Path(str(folder).partition("::")[0])  # of an archive's member: beside the archive
        path = (outer.parent if outer.is_file() else outer) / f"companion{self.companion_suffix}"
        path.write_text(self.companion, encoding="utf-8")
        return path


SAMPLES: dict[str, Sample] = {
    "philly": Sample(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n"
        "2017-10-09 07:05:55,660.0,1,660.0,11cb48\n"
        "2017-10-09 06:13:33,30.0,8,240.0,6c71a0\n",
        num_jobs=4,
        duration_column=1,
    ),
    "pollux": Sample(
        "name,time,application,num_replicas,batch_size\n"
        "cifar10-0,107,cifar10,2,2048\n"
        "imagenet-1,110.5,imagenet,16,3200\n"
        "ncf-2,135,ncf,1,32768\n",
        num_jobs=3,
    ),
    "pai": Sample(
        "9f3a01,worker,2.0,Terminated,1000.0,1600.0,600.0,29.3,50.0,T4\n"
        "9f3a02,tensorflow,1.0,Failed,900.0,1000.0,400.0,10.0,100.0,P100\n"
        "9f3a03,worker,4.0,Terminated,1200.0,4800.0,600.0,29.3,100.0,V100\n"
        "9f3a04,evaluator,1.0,Terminated,1100.0,1150.0,600.0,29.3,,\n",
        num_jobs=4,
        has_header=False,
    ),
    "openb": Sample(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "pod-0,12000,16384,1,1000,,LS,Running,0,12537,0\n"
        "pod-1,6000,12288,1,460,V100M16|V100M32,BE,Succeeded,427,1290,430\n"
        "pod-2,64000,262144,8,1000,,Guaranteed,Failed,300,900,310\n",
        num_jobs=3,
    ),
    "spot": Sample(
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "j-0,org-a,A10,8,1,1,0,3600,HP\n"
        "j-1,org-b,A100-SXM4-80GB,96,8,4,20.5,86400,Spot\n"
        "j-2,org-a,A10,4,0.5,1,10,60,Spot\n",
        num_jobs=3,
        duration_column=7,
    ),
    "dl2env": Sample(
        "arrival_s,duration_s,num_gpus,job_id,status,label,x_deadline_s\n"
        "100,60.5,1,a,completed,bert,400\n"
        "90,600,0.5,b,failed,,\n"
        "300,7200,8,c,running,vgg-16,9000\n",
        num_jobs=3,
        duration_column=1,
    ),
    "philly_json": Sample(
        '[{"status": "Pass", "vc": "ee9e8c", "jobid": "app_1", "user": "u1", "submitted_time": "2017-10-09 07:02:28",\n'
        '  "attempts": [{"start_time": "2017-10-09 07:02:53", "end_time": "2017-10-09 07:12:53",\n'
        '    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu4"]}]}]},\n'
        ' {"status": "Failed", "vc": "ee9e8c", "jobid": "app_2", "user": "", "submitted_time": "2017-10-09 06:00:00",\n'
        '  "attempts": [{"start_time": "2017-10-09 06:00:30", "end_time": "2017-10-09 06:10:30",\n'
        '    "detail": [{"ip": "m1", "gpus": ["gpu2"]}]}]},\n'
        ' {"status": "Killed", "vc": "", "jobid": "app_3", "user": "u1", "submitted_time": "2017-10-09 07:02:28",\n'
        '  "attempts": [{"start_time": "2017-10-09 08:00:00", "end_time": null,\n'
        '    "detail": [{"ip": "m3", "gpus": ["gpu0"]}]}]},\n'
        ' {"status": "Pass", "vc": "2869ce", "jobid": "app_4", "user": "u3", "submitted_time": "2017-10-09 08:30:00",\n'
        '  "attempts": [{"start_time": "2017-10-09 08:40:00", "end_time": "2017-10-09 09:00:00",\n'
        '    "detail": [{"ip": "m3", "gpus": ["gpu1"]}]}]}]\n',
        num_jobs=4,
        suffix=".json",
        delimiter="",
        has_header=False,
    ),
    "helios": Sample(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,vc1,8,64,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:10,2020-04-01 01:00:10,3600,0\n"
        "2,u2,vc1,0,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 00:01:35,90,5\n"
        "3,u1,vc2,16,128,2,TIMEOUT,2020-04-01 02:00:00,2020-04-01 02:10:00,2020-04-02 02:10:00,86400,600\n",
        num_jobs=3,
    ),
    "acme": Sample(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "a1,u1,1,8,120,Pretrain,COMPLETED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:30+08:00,"
        "2023-03-01 11:00:30+08:00,3600,30,28800\n"
        "a2,u2,1,0.0,16,Other,CANCELLED,2023-03-01 09:00:00+08:00,2023-03-01 09:00:01+08:00,"
        "2023-03-01 09:02:01+08:00,120,1,0\n"
        "a3,u1,2,16,240,Eval,FAILED,2023-03-01 10:30:00+08:00,2023-03-01 10:30:00+08:00,"
        "2023-03-01 10:31:30+08:00,90,0,1440\n",
        num_jobs=3,
    ),
    "gavel": Sample(
        "Sea Lion (batch size 16)\tpython3 run.py --batch 16\tsealion\t-n\t1\t3600\t1\t1\t-1.000000\t0\n"
        "Sea Lion (batch size 16)\tpython3 run.py --batch 16\tsealion\t-n\t1\t9000\t4\t1\t-1.000000\t120.5\n"
        "Otter\tpython3 otter.py\totter\t--steps\t0\t500\t1\t2\t1.200000\t60\n",
        num_jobs=3,
        suffix=".trace",
        delimiter="\t",
        has_header=False,
        companion='{"v100": {"(\'Sea Lion (batch size 16)\', 1)": {"null": 10.0},\n'
        ' "(\'Sea Lion (batch size 16)\', 2)": {"null": 15.0, "(\'Otter\', 1)": [1.0, 2.0]},\n'
        ' "(\'Otter\', 1)": {"null": 5.0}}, "k80": {"(\'Otter\', 1)": {"null": 0.0}}}\n',
    ),
    "tiresias": Sample(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "0,1,0,600,vgg19,160,30\n"
        "1,8,30,130,resnet50,145,25\n"
        "2,2,55,700,googlenet,3000,40\n",
        num_jobs=3,
        duration_column=5,
    ),
    "elasticflow": Sample(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "0,100,5000,resnet50,2000,256,4,1500,0\n"
        "1,50,800,bert,4000,64,1,3000,0\n"
        "2,400,900,vgg16,9000,128,8,600.5,1\n",
        num_jobs=3,
        duration_column=7,
    ),
    "swf": Sample(
        "1 0 10 3600 16 -1 -1 16 7200 1048576 1 3 1 7 1 1 -1 -1\n"
        "2 60 -1 90 -1 -1 2048 4 -1 -1 0 4 1 -1 2 -1 -1 -1\n"
        "3 30.5 0 86400 8 80000.5 4096 -1 90000 -1 5 3 1 7 1 1 2 600\n",
        num_jobs=3,
        suffix=".swf",
        delimiter=" ",
        has_header=False,
    ),
}
