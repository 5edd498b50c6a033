"""Job logs of the Acme clusters Seren and Kalos (AcmeTrace, NSDI'24): `trace_seren.csv`, `trace_kalos.csv`.

Columns: `job_id`, `user`, `node_num`, `gpu_num`, `cpu_num`, `type` (of workload, such as Pretrain or Evaluation; the
job's label), `state`, `submit_time`, `start_time`, `end_time` (with a zone: +08:00 in Seren, +00:00 in Kalos),
`duration`, `queue` (s), `gpu_time` = duration * gpu_num. Kalos has `mem_per_pod_GB` too, counted once for each node;
its `shared_mem_per_pod`, `fail_time` and `stop_time` are not used. Rules and states: `cluster_log`. The release's
`cluster_summary.csv` has no jobs.
"""

from __future__ import annotations

import numpy as np

from dl2env.workload.traces import cluster_log
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_COUNT
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = (*cluster_log.COLUMNS, "type")
_OPTIONAL = (*cluster_log.OPTIONAL, "gpu_time", "mem_per_pod_gb")
_GIB_PER_GB = 1e9 / 2**30


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS, _OPTIONAL)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of an Acme log."""
    file = source.only()
    builder = TableBuilder("acme", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "acme", _OPTIONAL)):
        memory = rows.extra("mem_per_pod_gb", at_least=0, at_most=1e9)
        nodes = rows.extra("node_num", at_least=0, at_most=LARGEST_COUNT)
        memory_gib = memory * _GIB_PER_GB * np.maximum(np.nan_to_num(nodes, nan=1.0), 1.0)
        cluster_log.add_jobs(builder, rows, label=rows.text("type"), memory_gib=memory_gib)
    return builder.finish()


FORMAT = TraceFormat(
    name="acme",
    title="job logs of the Acme clusters Seren and Kalos (AcmeTrace)",
    columns=f"header with {', '.join((*COLUMNS, *cluster_log.OPTIONAL, 'gpu_time'))}",
    sniff=sniff,
    read=read,
)
