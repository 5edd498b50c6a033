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
        path = folder / f"companion{self.companion_suffix}"
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
}
