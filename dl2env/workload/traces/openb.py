"""Pods of Alibaba's gpu-v2023 release (openb, FGD, ATC'23): `openb_pod_list_*.csv`.

Columns used: `name`, `cpu_milli` (1000 = one vCPU), `memory_mib`, `num_gpu`, `gpu_milli` (per GPU, 1000 = a whole
one), `gpu_spec` (allowed models joined by "|"), `qos`, `pod_phase`, `creation_time`, `deletion_time`,
`scheduled_time` (seconds from the trace's start). A pod runs from scheduled_time to deletion_time. Every pod has a
deletion time, also those that still ran: it counts as an end only for Succeeded and Failed pods, the others are
censored. Pods that were never scheduled (Pending) are no jobs. The release does not say which pods belong together:
each one is a job.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S, encode
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time",
    "scheduled_time",
)  # fmt: skip
_OPTIONAL = ("gpu_spec", "qos")
_PHASES = {"succeeded": "completed", "failed": "failed", "running": "running", "pending": "waiting"}


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS, _OPTIONAL)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a pod list."""
    file = source.only()
    builder = TableBuilder("openb", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "openb", _OPTIONAL)):
        phase = rows.series("pod_phase").str.to_lowercase()
        is_known = phase.is_in(list(_PHASES)).to_numpy()
        rows.remark("warned", ~is_known, "pod_phase is none of Running, Succeeded, Failed, Pending", "pod_phase")
        status = phase.replace_strict(_PHASES, default="unknown", return_dtype=pl.String)
        created = rows.number("creation_time", at_least=0, at_most=LARGEST_TIME_S)
        scheduled = rows.number("scheduled_time", at_least=0, at_most=LARGEST_TIME_S, if_missing=np.nan)
        deleted = rows.number("deletion_time", at_least=0, at_most=LARGEST_TIME_S, if_missing=np.nan)
        is_pending = (status == "waiting").to_numpy()
        has_run = np.isfinite(scheduled)
        rows.drop(~has_run & is_pending, "never scheduled (Pending)", "pod_phase", is_warning=False)
        rows.drop(~has_run, "scheduled_time is missing", "scheduled_time")
        rows.drop(~np.isfinite(deleted), "deletion_time is missing", "deletion_time")
        rows.drop(deleted <= scheduled, "deleted before or when it was scheduled", "deletion_time")
        rows.remark("warned", scheduled < created, "scheduled before it was created", "scheduled_time")
        count = rows.count("num_gpu", is_whole=True)
        milli = rows.number("gpu_milli", at_least=0, at_most=1e6, if_missing=0.0)
        rows.drop((count > 0) & (milli == 0), "gpu_milli is 0 for a pod with GPUs", "gpu_milli")
        rows.remark("warned", milli > 1000, "gpu_milli is above 1000, more than a whole GPU", "gpu_milli")
        rows.remark("warned", (count != 1) & (milli > 0) & (milli < 1000), "a share of several GPUs", "gpu_milli")
        builder.add(
            rows,
            created,
            deleted - scheduled,
            count * milli / 1000.0,
            time_column="creation_time",
            job_id=rows.text("name", is_required=True),
            status=encode(status),
            group=rows.text("qos"),
            gpu_kind=rows.text("gpu_spec"),
            num_cpus=rows.number("cpu_milli", at_least=0, at_most=1e9, if_missing=np.nan) / 1000.0,
            memory_gib=rows.number("memory_mib", at_least=0, at_most=1e12, if_missing=np.nan) / 1024.0,
            is_censored=~status.is_in(["completed", "failed"]).to_numpy(),
            extra={"wait_s": scheduled - created},
        )
    return builder.finish("deletion_time - scheduled_time")


FORMAT = TraceFormat(
    name="openb",
    title="Alibaba gpu-v2023 (openb) pods",
    columns=f"header with {', '.join(COLUMNS)}",
    sniff=sniff,
    read=read,
)
