"""Workload lists of the Pollux (OSDI'21) and Sia simulators: `workload-*.csv`.

Columns: `name`, `time` (s from the start), `application`, `num_replicas` (GPUs), `batch_size` (global, kept as an extra
column). The lists hold no run times: in those simulators the work of a job follows from its application. Here a job
runs for its application's GPU time divided by its GPUs.
"""

from __future__ import annotations

import numpy as np

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")

# The artifact sorts jobs by GPU time into classes of up to 1, 1-10, 10-100 and 100-1000 GPU hours and gives each class
# its applications. Bounds and classes are recalled, not checked; each application gets its class's geometric middle
# (0.1-1 for the smallest).
_SMALL, _MEDIUM, _LARGE, _EXTRA_LARGE = (10**exponent for exponent in (-0.5, 0.5, 1.5, 2.5))
GPU_HOURS: dict[str, float] = {
    "cifar10": _SMALL,
    "ncf": _SMALL,
    "bert": _MEDIUM,
    "deepspeech2": _MEDIUM,
    "yolov3": _LARGE,
    "imagenet": _EXTRA_LARGE,
}


def sniff(head: Head) -> Match:
    """Recognises the header."""
    return head.match_header(COLUMNS)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Pollux or Sia workload CSV."""
    file = source.only()
    builder = TableBuilder("pollux", source.path, options)
    for rows in builder.rows(file, header_layout(Head(file), COLUMNS, "pollux")):
        time_s = rows.number("time", at_least=0)
        num_gpus = rows.count("num_replicas", at_least=1, is_whole=True)
        application = rows.text("application", is_required=True)
        hours = np.array([*(GPU_HOURS.get(name, 0.0) for name in application.names), 0.0])[application.codes]
        rows.drop(hours == 0, f"application is none of {', '.join(GPU_HOURS)}", "application")
        builder.add(
            rows,
            time_s,
            hours * 3600.0 / np.maximum(num_gpus, 1),
            num_gpus,
            time_column="time",
            job_id=rows.text("name"),
            label=application,
            extra={"batch_size": rows.extra("batch_size", above=0)},
        )
    return builder.finish("assumed GPU time of the application / num_replicas; the file has none")


FORMAT = TraceFormat(
    name="pollux",
    title="workload lists of Pollux and Sia",
    columns="header with name, time, application, num_replicas, batch_size",
    sniff=sniff,
    read=read,
    similar_types={
        "cifar10": ("resnext-110",),  # residual network on CIFAR-10
        "imagenet": ("resnet-50", "resnet50"),
        "bert": ("bert",),
        "ncf": ("multi-interests", "dssm"),  # recommenders made of embeddings
        # yolov3 and deepspeech2 resemble no type that runs on several GPUs
    },
)
