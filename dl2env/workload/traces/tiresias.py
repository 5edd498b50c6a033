"""Job lists of the Tiresias simulator (NSDI'19): `60_job.csv` and its like.

Columns: `job_id`, `num_gpu`, `submit_time` (s; `start_time` in other files of that repository), `model_name`,
`duration` (s on these GPUs), `iterations` (kept as an extra column). `interval` (s to the next job) follows from the
arrivals and is not used. Other files have further columns (model_size, model_scale, aggr_interval), not used either.
"""

from __future__ import annotations

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S
from dl2env.workload.traces.formats import Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import header_layout
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

_COMMON = ("job_id", "num_gpu", "model_name", "duration")
_ARRIVALS = ("submit_time", "start_time")
_OPTIONAL = ("iterations", "interval")

SIMILAR_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("vgg11", "vgg16", "vgg19", "alexnet"), ("vgg-16",)),
    **dict.fromkeys(("resnet50", "resnet101", "resnet152"), ("resnet-50", "resnet50")),
    **dict.fromkeys(("googlenet", "inception3", "inception4"), ("inception-bn",)),
}
"""Image models of the TensorFlow benchmark suite by the nearest type of the catalogues: weights and compute."""


def sniff(head: Head) -> Match:
    """Recognises the header."""
    matches = [head.match_header((*_COMMON, arrival), _OPTIONAL) for arrival in _ARRIVALS]
    return max(matches, key=lambda match: match.score)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Tiresias job list."""
    file = source.only()
    head = Head(file)
    by_name = head.header(head.best_delimiter((*_COMMON, *_ARRIVALS, *_OPTIONAL)))
    arrival = "start_time" if "start_time" in by_name and "submit_time" not in by_name else "submit_time"
    builder = TableBuilder("tiresias", source.path, options)
    for rows in builder.rows(file, header_layout(head, (*_COMMON, arrival), "tiresias", _OPTIONAL)):
        builder.add(
            rows,
            rows.number(arrival, at_least=0, at_most=LARGEST_TIME_S),
            rows.duration("duration"),
            rows.count("num_gpu", at_least=1, is_whole=True),
            time_column=arrival,
            job_id=rows.text("job_id", is_required=True),
            label=rows.text("model_name"),
            extra={"iterations": rows.extra("iterations", above=0)},
        )
    return builder.finish()


FORMAT = TraceFormat(
    name="tiresias",
    title="job lists of the Tiresias simulator",
    columns=f"header with {', '.join((*_COMMON[:2], _ARRIVALS[0], *_COMMON[2:], *_OPTIONAL))}",
    sniff=sniff,
    read=read,
    similar_types=SIMILAR_TYPES,
)
