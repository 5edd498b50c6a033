"""Philly's job log (ATC'19, msr-fiddle/philly-traces): `cluster_job_log`, a JSON list of jobs.

A job has `jobid`, `vc`, `user`, `status` (Pass, Killed, Failed), `submitted_time`, and `attempts`, each with
`start_time`, `end_time` and `detail`: a list of servers, `{"ip": ..., "gpus": [...]}`. Times are local, without a zone;
the log spans the end of daylight saving time on 2017-11-05, so an attempt across that night is an hour off.

- A job runs for the sum of its attempts' run times, on the GPUs of its last attempt that names any; jobs whose attempts
  differ in GPUs are counted. Extra columns: `attempts`, `last_attempt_s`, `servers` (of that attempt), `wait_s`.
- A last attempt without end still ran when the log was taken: it counts up to the log's latest time, and the job is
  censored. Other attempts without a start or end (errors of the logging) are left out, with a warning.
- Jobs without attempts never ran.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import Rows
from dl2env.workload.traces.formats import NO_MATCH, Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.json_records import read_records
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable, TextColumn

KEYS = ("jobid", "attempts", "submitted_time", "status")
_OPTIONAL = ("vc", "user")
_STATUSES = {"pass": "completed", "killed": "killed", "failed": "failed"}
_EPOCH = datetime(1970, 1, 1)

_NOT_A_JOB = f"not a record with {', '.join(KEYS[:3])}"
_BAD_ATTEMPTS = "attempts is not a list of records with start_time, end_time and detail"
_BAD_TIME = "the time of an attempt is not like 2017-10-09 07:01:55"
_ZONES = "the time of an attempt has a zone and submitted_time has none, or the reverse"


def sniff(head: Head) -> Match:
    """Recognises a list of records with attempts."""
    if head.start not in ("[", "{"):
        return NO_MATCH
    missing = [key for key in KEYS if f'"{key}"' not in head.text]
    if not missing:
        return Match(1.2)
    return Match(0.9 * (1 - len(missing) / len(KEYS)), f"its records have no {', '.join(missing)}")


@dataclass
class _Job:
    """A record with its attempts added up; `problem` says why it is no job."""

    line: int
    jobid: str = ""
    vc: str = ""
    user: str = ""
    status: str = ""
    submitted_time: str = ""
    problem: str = ""
    is_wrong: bool = True
    first_start: float = np.nan
    run_s: float = 0.0
    last_s: float = np.nan
    open_start: float = np.nan  # of a last attempt that has no end
    latest: float = -np.inf
    gpus: int = 0
    servers: int = 0
    num_attempts: int = 0
    gpu_counts: set[int] = field(default_factory=set)
    left_out: int = 0
    backward: int = 0

    def drop(self, problem: str, *, is_wrong: bool = True) -> _Job:
        self.problem, self.is_wrong = problem, is_wrong
        return self


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _seconds(value: Any) -> tuple[float, bool]:
    """Seconds since 1970, and whether the time has a zone; NaN for None and for the text "None".

    Raises:
        ValueError: It is no time.
    """
    if value is None or _text(value).strip().lower() in ("", "none", "null", "na"):
        return np.nan, False
    if not isinstance(value, str):
        raise ValueError
    time = datetime.fromisoformat(value.strip())
    if time.tzinfo is not None:
        return time.timestamp(), True
    return (time - _EPOCH).total_seconds(), False


def _parse(line: int, record: Any) -> _Job:
    job = _Job(line)
    if not isinstance(record, dict):
        return job.drop(_NOT_A_JOB)
    job.jobid, job.submitted_time = _text(record.get("jobid")), _text(record.get("submitted_time"))
    job.vc, job.user, job.status = (_text(record.get(key)) for key in ("vc", "user", "status"))
    if not all(key in record for key in KEYS[:3]):
        return job.drop(_NOT_A_JOB)
    attempts = record["attempts"] or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        return job.drop(_BAD_ATTEMPTS)
    job.num_attempts = len(attempts)
    try:
        _, has_zone = _seconds(record["submitted_time"])
    except ValueError:
        has_zone = False  # the column's own check drops it
    for i, attempt in enumerate(attempts):
        detail = attempt.get("detail") or []
        if not isinstance(detail, list) or not all(
            isinstance(server, dict) and isinstance(server.get("gpus") or [], list) for server in detail
        ):
            return job.drop(_BAD_ATTEMPTS)
        try:
            times = [_seconds(attempt.get(key)) for key in ("start_time", "end_time")]
        except (ValueError, OverflowError):
            return job.drop(_BAD_TIME)
        if any(zone != has_zone for time, zone in times if math.isfinite(time)):
            return job.drop(_ZONES)
        gpus = sum(len(server.get("gpus") or []) for server in detail)
        if gpus:
            job.gpus, job.servers = gpus, sum(bool(server.get("gpus")) for server in detail)
            job.gpu_counts.add(gpus)
        _add_attempt(job, times[0][0], times[1][0], is_last=i == len(attempts) - 1)
    return job


def _add_attempt(job: _Job, start: float, end: float, *, is_last: bool) -> None:
    job.latest = max([job.latest, *(time for time in (start, end) if math.isfinite(time))])
    if not math.isfinite(start) or (not math.isfinite(end) and not is_last):
        job.left_out += 1
        return
    if math.isfinite(end) and end < start:
        job.backward += 1
        return
    job.first_start = start if math.isnan(job.first_start) else min(job.first_start, start)
    if math.isfinite(end):
        job.run_s += end - start
        job.last_s = end - start
    else:
        job.open_start = start


def _close(job: _Job, horizon: float) -> None:
    """Adds the attempt that still ran, and says why a job without run time is none."""
    if job.problem:
        return
    if not job.num_attempts:
        job.drop("never ran: no attempts", is_wrong=False)
    elif math.isnan(job.first_start):
        problem = "ends before it starts" if job.backward else "no attempt has a start time and an end time"
        job.drop(problem)
    else:
        if math.isfinite(job.open_start):
            job.last_s = horizon - job.open_start
            job.run_s += job.last_s
        if not job.run_s > 0:
            is_open = math.isfinite(job.open_start)
            job.drop("started when the log was taken" if is_open else "ran for 0 s", is_wrong=not is_open)
        elif not job.gpus:
            job.drop("no attempt names its GPUs")


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of a Philly job log."""
    file = source.only()
    builder = TableBuilder("philly_json", source.path, options)
    account = builder.account(file)
    builder.layout["text"] = "JSON records; lines are those that a record begins in"
    jobs = [_parse(line, record) for line, record in read_records(file, account)]
    horizon = max((job.latest for job in jobs if not job.problem), default=-np.inf)
    for job in jobs:
        _close(job, horizon)
    texts = {name: [getattr(job, name) for job in jobs] for name in ("jobid", "vc", "user", "status", "submitted_time")}
    numbers = {name: np.array([getattr(job, name) for job in jobs], dtype=np.float64) for name in _NUMBERS}
    # Run times and GPUs are part of the text of a row, so that only records that are equal count as repeated.
    cells: dict[str, Sequence[Any]] = {**texts, **{name: values.tolist() for name, values in numbers.items()}}
    rows = Rows.of_columns(cells, [job.line for job in jobs], account)
    if jobs:
        _add(builder, rows, jobs, numbers)
    return builder.finish("sum of the run times of all attempts")


_NUMBERS = ("first_start", "run_s", "last_s", "gpus", "servers", "num_attempts")


def _add(builder: TableBuilder, rows: Rows, jobs: list[_Job], numbers: dict[str, Any]) -> None:
    for problem in dict.fromkeys(job.problem for job in jobs if job.problem):
        mask = np.array([job.problem == problem for job in jobs])
        is_wrong = next(job.is_wrong for job in jobs if job.problem == problem)
        rows.drop(mask, problem, "jobid", is_warning=is_wrong)
    submitted = builder.stamps(rows, "submitted_time")
    is_open = np.isfinite([job.open_start for job in jobs])
    words = rows.series("status").str.to_lowercase().to_list()
    statuses = [
        "running" if still else _STATUSES.get(word, "unknown") for still, word in zip(is_open, words, strict=True)
    ]
    rows.remark(
        "warned",
        np.array([word not in _STATUSES for word in words]),
        "status is none of Pass, Killed, Failed",
        "status",
    )
    rows.remark(
        "warned",
        np.array([job.left_out > 0 for job in jobs]),
        "an attempt lacks its start or end and is left out",
        "jobid",
    )
    rows.remark(
        "warned",
        np.array([job.backward > 0 for job in jobs]),
        "an attempt ends before it starts and is left out",
        "jobid",
    )
    rows.remark("noted", np.array([len(job.gpu_counts) > 1 for job in jobs]), "its attempts differ in GPUs", "jobid")
    rows.remark("noted", np.array([job.num_attempts > 1 for job in jobs]), "has several attempts", "jobid")
    rows.remark("warned", numbers["first_start"] < submitted, "starts before it is submitted", "submitted_time")
    builder.add(
        rows,
        submitted,
        numbers["run_s"],
        numbers["gpus"],
        time_column="submitted_time",
        job_id=rows.text("jobid", is_required=True),
        status=TextColumn.of(statuses),
        user=rows.text("user"),
        group=rows.text("vc"),
        is_censored=is_open,
        extra={
            "wait_s": numbers["first_start"] - submitted,
            "attempts": numbers["num_attempts"],
            "last_attempt_s": numbers["last_s"],
            "servers": numbers["servers"],
        },
    )


FORMAT = TraceFormat(
    name="philly_json",
    title="Philly job log (cluster_job_log of msr-fiddle/philly-traces)",
    columns=f"JSON list of records with {', '.join((*KEYS, *_OPTIONAL))}",
    sniff=sniff,
    read=read,
)
