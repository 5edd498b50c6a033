"""Traces of the Gavel simulator (OSDI'20): `*.trace`, cells between tabs, no header, told apart by their number.

- 7 cells: job_type, command, num_steps_arg, needs_data_dir (0 or 1), total_steps, arrival_time (s), scale_factor (GPUs)
- 10 cells: job_type, command, working_directory, num_steps_arg, needs_data_dir, total_steps, scale_factor,
  priority_weight, SLO, arrival_time
- 6 cells, the oldest files: as 7, without needs_data_dir
- 12 cells, files of Shockwave (NSDI'23): as 10, with mode (how the batch size changes) after scale_factor and duration
  (s) before arrival_time; jobs run for that duration, and no table of throughputs is needed

Work is counted in steps. A job runs for total_steps / throughput, where the throughput (steps/s of its job type, alone,
at its scale factor, on V100s) comes from Gavel's table `simulation_throughputs.json`: the companion file, or a file of
that name beside the trace or in one of the folders above it. Scale factors that the table lacks get the throughput per
GPU of the nearest smaller one that it has. `job_type` is split into the label (model) and the extra column
`batch_size`; `slo` and `priority` are extra columns as written, NaN where there is none. Commands are text and are
never run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import TraceError
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import LARGEST_TIME_S, Rows, encode
from dl2env.workload.traces.formats import NO_MATCH, Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.head import DELIMITERS
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.rows import Layout
from dl2env.workload.traces.source import TraceFile, TraceSource, open_source
from dl2env.workload.traces.table import JobTable

COLUMNS = (
    ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"),
    (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "priority_weight", "slo", "arrival_time",
    ),
    ("job_type", "command", "num_steps_arg", "total_steps", "arrival_time", "scale_factor"),
    (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "priority_weight", "slo", "duration", "arrival_time",
    ),
)  # fmt: skip
TABLE_NAME = "simulation_throughputs.json"
REFERENCE_GPU = "v100"
"""Kind of GPU whose throughputs give durations; the first kind of the table if it has no such one."""

_FOLDERS_ABOVE = 5
_BATCH_SIZE = r"\s*\(batch size (\d+)\)\s*$"
_NO_SLO = -1.0


@dataclass(frozen=True)
class Throughputs:
    """Gavel's table for one kind of GPU.

    Attributes:
        name: The file, for messages.
        gpu: The kind.
        steps_per_s: By job type and number of GPUs, of jobs that run alone.
        sha256: Digest of the file.
    """

    name: str
    gpu: str
    steps_per_s: Mapping[str, Mapping[int, float]]
    sha256: str

    def find(self, job_type: str, scale: int) -> tuple[float, int]:
        """(steps/s, GPUs that the table's entry is for); NaN and 0 where the job type is not in the table."""
        by_scale = self.steps_per_s.get(job_type, {})
        known = [gpus for gpus in by_scale if gpus <= scale]
        if not known:
            return math.nan, 0
        return by_scale[max(known)] * scale / max(known), max(known)


def sniff(head: Head) -> Match:
    """Recognises either layout."""
    return NO_MATCH if _layout(head) is None else Match(1.1)


def _layout(head: Head) -> Layout | None:
    for delimiter in sorted(DELIMITERS, key=lambda mark: mark != "\t"):
        quoted = delimiter != "\t"
        rows = head.cells(delimiter, quoted=quoted)[:50]
        for columns in COLUMNS:
            fitting = sum(_fits(dict(zip(columns, row, strict=True))) for row in rows if len(row) == len(columns))
            if rows and fitting > 0.5 * len(rows):
                return Layout(columns, delimiter, header_line=0, quoted=quoted)
    return None


def _fits(cells: Mapping[str, str]) -> bool:
    numbers = ("total_steps", "scale_factor", "arrival_time", "priority_weight", "slo", "duration")
    has_numbers = all(re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", cells[name]) for name in numbers if name in cells)
    has_flag = cells["needs_data_dir"] in ("0", "1") if "needs_data_dir" in cells else cells["num_steps_arg"][:1] == "-"
    return has_numbers and has_flag and not cells["job_type"].replace(".", "").isdigit()


def read_throughputs(path: str | Path) -> Throughputs:
    """Reads Gavel's table of throughputs.

    Raises:
        TraceError: It cannot be read or is no such table.
    """
    file = open_source(path).only()
    content = file.content()
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise TraceError(f"{file.name}, line {line}: not valid JSON ({error}); give Gavel's {TABLE_NAME}") from error
    kinds = [kind for kind, jobs in table.items() if isinstance(jobs, dict)] if isinstance(table, dict) else []
    if not kinds:
        raise TraceError(
            f"{file.name}, line 1: no table of throughputs by kind of GPU and job type; give Gavel's {TABLE_NAME}"
        )
    gpu = REFERENCE_GPU if REFERENCE_GPU in kinds else kinds[0]
    steps_per_s: dict[str, dict[int, float]] = {}
    for key, entry in table[gpu].items():
        match = re.fullmatch(r"\(['\"](.*)['\"],\s*(\d{1,6})\)", key)
        alone = entry.get("null") if isinstance(entry, dict) else None
        steps = float(alone) if isinstance(alone, (int, float)) and not isinstance(alone, bool) else math.nan
        if match is None or not 0 <= steps < math.inf:
            raise TraceError(
                f"{file.name}: entry {key[:80]!r} of {gpu} is not \"('job type', GPUs)\" with a throughput of at least "
                f'0 under "null"; give Gavel\'s {TABLE_NAME}'
            )
        if steps > 0:  # 0: the job type does not fit on this kind of GPU
            steps_per_s.setdefault(match[1], {})[int(match[2])] = steps
    return Throughputs(file.name, gpu, steps_per_s, hashlib.sha256(content).hexdigest())


def find_companion(file: TraceFile) -> Path | None:
    """Gavel's table beside a trace or in one of the folders above it; None if there is none, or none is needed."""
    layout = _layout(Head(file))
    if layout is None or "duration" in layout.columns:
        return None
    folders = file.path.resolve().parents[:_FOLDERS_ABOVE]
    return next((folder / TABLE_NAME for folder in folders if (folder / TABLE_NAME).is_file()), None)


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Gavel trace."""
    file = source.only()
    head = Head(file)
    layout = _layout(head)
    if layout is None:
        cells = " or ".join(str(len(columns)) for columns in COLUMNS)
        raise TraceError(
            f"{file.name}, line 1: none of the layouts of Gavel traces; {head.describe()}; a row has {cells} cells "
            f"between tabs, such as {', '.join(COLUMNS[0])}"
        )
    builder = TableBuilder("gavel", source.path, options)
    if "duration" in layout.columns:
        for rows in builder.rows(file, layout):
            _add(builder, rows, rows.duration("duration"))
        return builder.finish()
    if options.companion is None:
        raise TraceError(
            f"{file.name}, line 1: Gavel traces count work in steps, so durations need Gavel's table of throughputs: "
            f"name it as companion (workload.trace.companion=<{TABLE_NAME}>), or put it beside the trace"
        )
    throughputs = read_throughputs(options.companion)
    for rows in builder.rows(file, layout):
        _add(builder, rows, _durations(rows, throughputs))
    builder.layout["throughputs"] = f"{throughputs.name}, {throughputs.gpu}"
    table, report = builder.finish(f"total_steps / throughput of the job type alone on {throughputs.gpu}")
    step = {"step": "throughputs", "gpu": throughputs.gpu, "sha256": throughputs.sha256}
    return replace(table, steps=(*table.steps, step)), report


def _durations(rows: Rows, throughputs: Throughputs) -> NDArray[np.float64]:
    """(n,) seconds that the steps take alone."""
    job_type = rows.text("job_type", is_required=True)
    steps = rows.number("total_steps", above=0)
    gpus = rows.count("scale_factor", at_least=1, is_whole=True)
    speed, table_gpus = _speeds(job_type.codes, job_type.names, gpus, rows.is_dropped, throughputs)
    rows.drop(np.isnan(speed), f"job type has no throughput on {throughputs.gpu} in {throughputs.name}", "job_type")
    is_other = table_gpus != gpus
    rows.remark("noted", is_other, "throughput per GPU taken from a smaller scale factor of the table", "scale_factor")
    return np.asarray(steps / np.where(rows.is_dropped, 1.0, speed))


def _add(builder: TableBuilder, rows: Rows, duration_s: NDArray[np.float64]) -> None:
    rows.required("job_type")
    steps = rows.number("total_steps", above=0)
    gpus = rows.count("scale_factor", at_least=1, is_whole=True)
    arrival = rows.number("arrival_time", at_least=0, at_most=LARGEST_TIME_S)
    if "needs_data_dir" in rows:
        needs_data_dir = rows.series("needs_data_dir").is_in(["0", "1"]).to_numpy()
        rows.remark("warned", ~needs_data_dir, "needs_data_dir is neither 0 nor 1", "needs_data_dir")
    names = rows.series("job_type")
    batch_size = names.str.extract(_BATCH_SIZE, 1).cast(float, strict=False).fill_null(np.nan).to_numpy()
    extra: dict[str, Any] = {"total_steps": steps, "batch_size": batch_size}
    if "slo" in rows:
        slo = rows.extra("slo", at_most=LARGEST_TIME_S, if_missing=_NO_SLO)
        rows.remark("warned", (slo <= 0) & (slo != _NO_SLO), f"SLO is neither positive nor {_NO_SLO:g}", "slo")
        extra["slo"] = np.where(slo > 0, slo, np.nan)
        extra["priority"] = rows.extra("priority_weight", at_least=0)
    builder.add(
        rows,
        arrival,
        duration_s,
        gpus,
        time_column="arrival_time",
        label=encode(names.str.replace(_BATCH_SIZE, "")),
        extra=extra,
    )


def _speeds(
    codes: NDArray[np.int32],
    names: tuple[str, ...],
    gpus: NDArray[np.float64],
    is_dropped: NDArray[np.bool_],
    throughputs: Throughputs,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """((n,) steps/s, (n,) GPUs of the table's entry); each pair of job type and scale factor is looked up once."""
    speed = np.full(codes.size, np.nan)
    table_gpus = np.zeros(codes.size, dtype=np.int64)
    rows = np.flatnonzero(~is_dropped)
    pairs, which = np.unique(np.stack([codes[rows], gpus[rows]]), axis=1, return_inverse=True)
    found = [throughputs.find(names[int(code)], int(scale)) for code, scale in pairs.T.tolist()]
    if found:
        which = which.ravel()
        speed[rows] = np.array([steps for steps, _ in found])[which]
        table_gpus[rows] = np.array([known for _, known in found])[which]
    return speed, table_gpus


FORMAT = TraceFormat(
    name="gavel",
    title="traces of the Gavel simulator",
    columns="7 or 10 cells between tabs, no header: " + "; ".join(", ".join(columns) for columns in COLUMNS[:2]),
    sniff=sniff,
    read=read,
    find_companion=find_companion,
    companion=f"Gavel's table of throughputs, {TABLE_NAME}",
    similar_types={
        "ResNet-18": ("resnext-110",),  # residual network on CIFAR-10
        "ResNet-50": ("resnet-50", "resnet50"),
        "Transformer": ("transformer-nmt", "nmt", "seq2seq"),
        "LM": ("wlm",),  # word-level LSTM
        "Recommendation": ("multi-interests", "dssm", "dlrm"),
        # A3C and CycleGAN resemble no type
    },
)
