"""Job lists of the ElasticFlow simulator (ASPLOS'23); their columns vary from file to file.

Columns: `job_id`, `submit_time` (s), `model_name`, `num_gpu`, `duration` (s on these GPUs), and any of `iteration`,
`batch_size` (global), `ddl` (deadline, s on the clock of submit_time), `best_effort` (0 or 1), `real_iteration`,
`real_duration`. The lists are not always sorted. Deadlines are kept as seconds after the job's own arrival in the extra
column `deadline_s`, NaN where a job has none or is marked best effort; iterations, batch size and the mark are extra
columns too. `real_*` columns are not used.
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

COLUMNS = ("job_id", "submit_time", "model_name", "num_gpu", "duration")
_OWN = ("iteration", "ddl", "batch_size", "best_effort", "real_iteration", "real_duration")
"""One of these tells the lists from those of Tiresias."""

SIMILAR_TYPES: dict[str, tuple[str, ...]] = {
    "resnet50_cifar10": ("resnext-110",),  # residual network on CIFAR-10
    "cifar10": ("resnext-110",),
    "imagenet": ("resnet-50", "resnet50"),
    "ncf": ("multi-interests", "dssm"),  # recommenders made of embeddings
    "resnet50": ("resnet-50", "resnet50"),
    "vgg16": ("vgg-16",),
    "inception3": ("inception-bn",),
    "bert": ("bert", "bert-base"),
    "gpt2": ("gpt2-small", "bert"),
    "deepspeech2": ("deep-speech", "speech", "deepspeech2"),
}
"""A name that is not here gets a type by the general rule."""


def sniff(head: Head) -> Match:
    """Recognises the header."""
    match = head.match_header(COLUMNS, _OWN)
    if match.score >= 1 and match.score < 1 + 0.01 * (len(COLUMNS) + 1) - 1e-9:
        return Match(0.8, f"none of the columns {', '.join(_OWN)}")
    return match


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of an ElasticFlow job list."""
    file = source.only()
    builder = TableBuilder("elasticflow", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "elasticflow", _OWN)):
        submit = rows.number("submit_time", at_least=0, at_most=LARGEST_TIME_S)
        deadline = rows.extra("ddl", at_most=LARGEST_TIME_S) - submit
        best_effort = rows.extra("best_effort", at_least=0, at_most=1)
        has_deadline = np.isfinite(deadline) & (best_effort != 1)
        rows.remark("warned", has_deadline & (deadline <= 0), "its deadline is before its arrival", "ddl")
        builder.add(
            rows,
            submit,
            rows.duration("duration"),
            rows.count("num_gpu", at_least=1, is_whole=True),
            time_column="submit_time",
            job_id=rows.text("job_id", is_required=True),
            label=rows.text("model_name"),
            extra={
                "deadline_s": np.where(has_deadline, deadline, np.nan),
                "is_best_effort": best_effort,
                "iterations": rows.extra("iteration", above=0),
                "batch_size": rows.extra("batch_size", above=0),
            },
        )
    return builder.finish()


FORMAT = TraceFormat(
    name="elasticflow",
    title="job lists of the ElasticFlow simulator",
    columns=f"header with {', '.join(COLUMNS)} and some of {', '.join(_OWN)}",
    sniff=sniff,
    read=read,
    similar_types=SIMILAR_TYPES,
)
