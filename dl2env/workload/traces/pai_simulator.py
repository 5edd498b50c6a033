"""The job list of the simulator in Alibaba's gpu-v2020 release: `pai_job_*_100K.csv`, one job per row, with a header.

Columns: `job_id`, `num_inst`, `submit_time` (s), `num_cpu`, `num_gpu`, `gpu_type` (CPU for jobs without), `duration`
(s), `user`, and in some files `group`, `wait_time` and estimates of durations. That simulator gives a job `num_gpu`
GPUs and `num_cpu` cores in all, whatever its `num_inst`, and so does this reader; `num_inst` is an extra column. The
list has no status. How it was drawn from the tables is not documented (clusterdata #243).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S, Rows, encode

REQUIRED = ("job_id", "num_inst", "submit_time", "num_gpu", "duration")
OPTIONAL = ("num_cpu", "gpu_type", "user", "group", "wait_time")


def add_jobs(builder: TableBuilder, rows: Rows) -> None:
    """Checks the columns of a block and hands it to the builder."""
    group = rows.series("group" if "group" in rows else "user") if "group" in rows or "user" in rows else None
    gpu_type = rows.series("gpu_type") if "gpu_type" in rows else pl.Series([""] * len(rows), dtype=pl.String)
    builder.add(
        rows,
        rows.number("submit_time", at_least=0, at_most=LARGEST_TIME_S),
        rows.duration("duration"),
        rows.count("num_gpu", if_missing=0.0),
        time_column="submit_time",
        job_id=rows.text("job_id", is_required=True),
        user=rows.text("user"),
        group=None if group is None else encode(group),
        gpu_kind=encode(gpu_type.replace("CPU", "")),
        num_cpus=rows.number("num_cpu", at_least=0, at_most=1e6, if_missing=np.nan, is_required=False),
        extra={
            "wait_s": rows.extra("wait_time", at_least=0, at_most=LARGEST_TIME_S),
            "instances": rows.extra("num_inst", at_least=0),
        },
    )
