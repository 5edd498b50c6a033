"""Jobs of Alibaba's v2026-spot-gpu release (ASPLOS'26): `job_info_df.csv`.

Columns: `job_name`, `organization`, `gpu_model`, `cpu_request` (vCPU), `gpu_request`, `worker_num`, `submit_time`
(seconds from the first job), `duration` (s), `job_type` (HP or Spot). The release does not spell out whether requests
are per worker; they are read so: GPUs = gpu_request * worker_num. It has no status; long jobs may have been cut by the
end of the recording, which the file does not tell.
"""

from __future__ import annotations

import numpy as np

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = ("job_name", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration")
_OPTIONAL = ("organization", "cpu_request", "job_type")
_KINDS = ("hp", "spot")


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS, _OPTIONAL)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a spot-GPU job list."""
    file = source.only()
    builder = TableBuilder("spot", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "spot", _OPTIONAL)):
        workers = rows.count("worker_num", at_least=1, is_whole=True)
        is_spot = np.full(len(rows), np.nan)
        if "job_type" in rows:
            kind = rows.series("job_type").str.to_lowercase()
            rows.remark("warned", ~kind.is_in(_KINDS).to_numpy(), "job_type is neither HP nor Spot", "job_type")
            is_spot = (kind == "spot").to_numpy().astype(np.float64)
        cpus = rows.number("cpu_request", at_least=0, at_most=1e6, if_missing=np.nan, is_required=False)
        builder.add(
            rows,
            rows.number("submit_time", at_least=0, at_most=LARGEST_TIME_S),
            rows.duration("duration"),
            rows.count("gpu_request") * workers,
            time_column="submit_time",
            job_id=rows.text("job_name", is_required=True),
            group=rows.text("organization"),
            gpu_kind=rows.text("gpu_model"),
            num_cpus=cpus * workers,
            num_workers=workers,
            extra={"is_spot": is_spot},
        )
    return builder.finish()


FORMAT = TraceFormat(
    name="spot",
    title="Alibaba v2026-spot-gpu jobs",
    columns=f"header with {', '.join((*COLUMNS, *_OPTIONAL))}",
    sniff=sniff,
    read=read,
)
