"""Job logs of the Helios clusters Earth, Saturn, Uranus and Venus (S-Lab, SC'21): `cluster_log.csv` of HeliosData.

Columns: `job_id`, `user`, `vc` (virtual cluster), `gpu_num`, `cpu_num`, `node_num`, `state`, `submit_time`,
`start_time`, `end_time` (local, without a zone), `duration`, `queue` (s). Jobs with gpu_num 0 used CPUs only. Rules and
states: `cluster_log`. Known defects: durations and waits that are missing, intervals that are not positive.
"""

from __future__ import annotations

from dl2env.workload.traces import cluster_log
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = (*cluster_log.COLUMNS, "vc")


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS, cluster_log.OPTIONAL)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Helios log."""
    file = source.only()
    builder = TableBuilder("helios", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "helios", cluster_log.OPTIONAL)):
        cluster_log.add_jobs(builder, rows, group=rows.text("vc"))
    return builder.finish()


FORMAT = TraceFormat(
    name="helios",
    title="job logs of the Helios clusters (HeliosData)",
    columns=f"header with {', '.join((*COLUMNS, *cluster_log.OPTIONAL))}",
    sniff=sniff,
    read=read,
)
