"""What the job logs of S-Lab's clusters (Helios and Acme, both made from Slurm) have in common.

A job arrives at `submit_time`, runs from `start_time` to `end_time`, and `duration` (s) says how long; `queue` (s) is
the wait. Where duration is missing, end_time - start_time is used, with a warning. States count as failed: FAILED,
TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, BOOT_FAIL, DEADLINE; as killed: CANCELLED, PREEMPTED; RUNNING and SUSPENDED jobs are
censored. Jobs that never started are no jobs here, nor are those that ran for no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_COUNT, Rows, encode

COLUMNS = ("job_id", "gpu_num", "state", "submit_time", "start_time", "end_time", "duration")
OPTIONAL = ("user", "cpu_num", "node_num", "queue")
STATES = {
    "COMPLETED": "completed",
    **dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"), "failed"),
    **dict.fromkeys(("CANCELLED", "PREEMPTED"), "killed"),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "COMPLETING"), "running"),
    **dict.fromkeys(("PENDING", "REQUEUED"), "waiting"),
}
"""State in Slurm's words -> status of the table."""

_SLACK_S = 1.5  # stamps are whole seconds


def add_jobs(builder: TableBuilder, rows: Rows, extra: Mapping[str, Any] | None = None, **columns: Any) -> None:
    """Checks the common columns of a block and hands it to the builder, with the format's own `columns` and `extra`."""
    # "CANCELLED by 1001" and "CANCELLED+" are CANCELLED too.
    state = rows.series("state").str.to_uppercase().str.extract(r"^([A-Z_]+)", 1).fill_null("")
    rows.remark("warned", ~state.is_in(list(STATES)).to_numpy(), "state is none of Slurm's", "state")
    status = state.replace_strict(STATES, default="unknown", return_dtype=pl.String)
    submitted = builder.stamps(rows, "submit_time")
    started = builder.stamps(rows, "start_time", if_missing=np.nan)
    ended = builder.stamps(rows, "end_time", if_missing=np.nan)
    recorded = rows.number("duration", if_missing=np.nan)
    wait = rows.extra("queue")

    is_killed = status.is_in(["killed", "waiting"]).to_numpy()
    has_started = np.isfinite(started)
    rows.drop(~has_started & is_killed, "never started", "state", is_warning=False)
    rows.drop(~has_started, "start_time is missing", "start_time")
    rows.drop((status == "waiting").to_numpy(), "never started", "state", is_warning=False)
    lasted = ended - started
    is_inferred = ~np.isfinite(recorded) & np.isfinite(lasted)
    duration = np.where(is_inferred, lasted, recorded)
    rows.drop(np.isnan(duration), "duration and end_time are missing", "duration")
    rows.drop(duration < 0, "duration is negative", "duration")
    rows.drop((duration == 0) & is_killed, "cancelled before it ran", "duration", is_warning=False)
    rows.drop(duration == 0, "ran for 0 s", "duration")
    rows.remark("warned", is_inferred, "duration is missing, end_time - start_time is used", "end_time")
    with np.errstate(invalid="ignore"):
        is_off = np.abs(lasted - duration) > _SLACK_S
        rows.remark("warned", is_off, "duration is not end_time - start_time and is used", "duration")
        is_early = started < submitted
        rows.remark("warned", is_early, "starts before it is submitted", "start_time")
        is_off = (np.abs(started - submitted - wait) > _SLACK_S) & ~is_early
        rows.remark("warned", is_off, "queue is not start_time - submit_time and is not used", "queue")
    gpus = rows.count("gpu_num", is_whole=True)
    if "gpu_time" in rows:
        gpu_time = rows.extra("gpu_time")
        with np.errstate(invalid="ignore"):
            is_off = np.abs(gpu_time - duration * gpus) > _SLACK_S * np.maximum(gpus, 1.0)
        rows.remark("warned", is_off, "gpu_time is not duration x gpu_num and is not used", "gpu_time")
    builder.add(
        rows,
        submitted,
        duration,
        gpus,
        time_column="submit_time",
        job_id=rows.text("job_id", is_required=True),
        status=encode(status),
        user=rows.text("user"),
        num_cpus=rows.count("cpu_num", if_missing=np.nan, is_required=False),
        is_censored=(status == "running").to_numpy(),
        extra={
            "wait_s": started - submitted,
            "nodes": rows.extra("node_num", at_least=0, at_most=LARGEST_COUNT),
            **(extra or {}),
        },
        **columns,
    )
