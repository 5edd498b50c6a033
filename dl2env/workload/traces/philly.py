"""The Philly-derived job list `philly.csv` of the Pollux artifact (petuum/adaptdl, OSDI'21).

Columns: `timestamp` (submission, local wall time without a zone), `duration` (s), `num_gpus`, `cluster` (virtual
cluster); `gpu_time` = duration * num_gpus is compared with the two where it is there. Known defects of the published
file: not sorted, 65 rows that repeat another exactly, one blank last line.
"""

from __future__ import annotations

import numpy as np

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS, ("gpu_time",))


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Philly CSV."""
    file = source.only()
    builder = TableBuilder("philly", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "philly")):
        time_s = builder.stamps(rows, "timestamp")
        duration_s = rows.duration("duration")
        num_gpus = rows.count("num_gpus", at_least=1, is_whole=True)
        if "gpu_time" in rows:
            gpu_time = rows.extra("gpu_time")
            is_off = ~np.isclose(gpu_time, duration_s * num_gpus, rtol=1e-6) & np.isfinite(gpu_time)
            rows.remark("warned", is_off, "gpu_time is not duration x num_gpus and is not used", "gpu_time")
        builder.add(rows, time_s, duration_s, num_gpus, time_column="timestamp", group=rows.text("cluster"))
    return builder.finish()


FORMAT = TraceFormat(
    name="philly",
    title="Philly jobs as CSV, of the Pollux artifact (adaptdl, osdi21-artifact)",
    columns="header with timestamp, duration, num_gpus, cluster",
    sniff=sniff,
    read=read,
)
