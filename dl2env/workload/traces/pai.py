"""Alibaba PAI 2020 (cluster-trace-gpu-v2020, NSDI'22): job, task, instance and group-tag tables.

Give the folder or archive that holds the tables, packed or not, or a single one:

- job and task table: a job is a row of the job table. It arrives at its start_time there, and runs from the earliest
  start of its tasks to its end. Its GPUs are the sum over tasks of plan_gpu / 100 * inst_num.
- task table alone (or a file with a header row that joins tables): a job arrives when its first task starts.
- instance table beside them: jobs run from the earliest start to the latest end of their instances.
- group-tag table beside them: label (`workload`) and group (else the user) of a job.
- job table alone: it has no GPUs; one is assumed for each job, with a warning.
- job list of the release's simulator (`pai_simulator`): one job per row; give it alone.

Tasks named `ps` are parameter servers; tasks named worker or chief and all others with GPUs are workers. Jobs that run
when the recording stops count up to the latest time in the tables and are censored. Sensor and machine tables hold no
jobs. What is known to be odd in the published tables: docs/traces.md.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dl2env.errors import TraceError
from dl2env.workload.traces import pai_simulator, pai_tables
from dl2env.workload.traces.builder import TableBuilder
from dl2env.workload.traces.cells import Rows, encode
from dl2env.workload.traces.formats import NO_MATCH, Head, Match, ReadOptions, TraceFormat
from dl2env.workload.traces.pai_tables import Table
from dl2env.workload.traces.report import Account, ReadReport
from dl2env.workload.traces.source import TraceSource
from dl2env.workload.traces.table import JobTable

_BYTES_PER_GB = 1e9
_IS_OPEN = (pl.col("status") == "running") & ~pl.col("end").is_finite()
"""Still running when the recording stopped."""
_RANKS = {"unknown": 0, "waiting": 1, "completed": 2, "failed": 3, "running": 4}
"""A job has the highest of its tasks' statuses when there is no job table."""
_NO_GPUS = "the job table has no GPUs and the task table is not there: one GPU assumed"


def sniff(head: Head) -> Match:
    """Recognises any of the tables, with or without header."""
    table, almost = pai_tables.recognise(head)
    if table is not None:
        return Match(1.0)
    return Match(0.6, almost) if almost else NO_MATCH


def read(source: TraceSource, options: ReadOptions) -> tuple[JobTable, ReadReport]:
    """Jobs of the tables."""
    builder = TableBuilder("pai", source.path, options)
    tables = _tables(source, builder)
    if "simulator" in tables:
        if len(tables) > 1:
            others = ", ".join(sorted(tables.keys() - {"simulator"}))
            raise TraceError(
                f"{source.path}: the simulator's job list beside the {others} table, which holds the same jobs; name "
                f"one: {tables['simulator'].file.name}"
            )
        for rows in tables["simulator"].rows(builder):
            pai_simulator.add_jobs(builder, rows)
        return builder.finish()
    jobs = tasks = None
    job_account = task_account = None
    if "task" in tables:
        tasks = pai_tables.read_tasks(tables["task"], builder)
        task_account = builder.accounts[-1]
    if "job" in tables:
        jobs = pai_tables.read_jobs(tables["job"], builder)
        job_account = builder.accounts[-1]
    if tasks is None and jobs is None:
        raise TraceError(
            f"{source.path}, line 1: only the {', '.join(tables)} table of PAI 2020; jobs need the task table or the "
            "job table: give a folder that holds them"
        )
    frame, account = _join(jobs, tasks, job_account, task_account)
    rule = "job end (or latest task end) - earliest task start"
    if "instance" in tables:
        instances = pai_tables.read_instances(tables["instance"], builder, frame["job_name"])
        frame = frame.join(instances, on="job_name", how="left", suffix="_instance", maintain_order="left")
        frame = frame.with_columns(
            pl.coalesce("start_instance", "start").alias("start"), pl.coalesce("end_instance", "end").alias("end")
        )
        rule = "latest end - earliest start of the instances, else of the tasks"
    if "group_tag" in tables:
        tags = pai_tables.read_tags(tables["group_tag"], builder, frame["inst_id"])
        frame = frame.drop("group", "workload").join(tags, on="inst_id", how="left", maintain_order="left")
    _add(frame, account, builder, has_tasks=tasks is not None)
    if tasks is None and "instance" not in tables:
        rule = "end_time - start_time of the job table, waiting included"
    return builder.finish(rule)


def _tables(source: TraceSource, builder: TableBuilder) -> dict[str, Table]:
    """The tables among the files by kind; others are named in the report."""
    tables: dict[str, Table] = {}
    unused = []
    for file in source.files:
        table, _ = pai_tables.recognise(Head(file))
        if table is None and len(source.files) == 1:
            job, task = (", ".join(pai_tables.COLUMNS[kind]) for kind in ("job", "task"))
            raise TraceError(
                f"{file.name}, line 1: none of the tables of PAI 2020; {Head(file).describe()}; the job table has the "
                f"columns {job}, the task table {task}"
            )
        if table is None or table.kind in ("sensor", "machine_metric"):
            unused.append(file.short_name)
        elif table.kind in tables:
            names = f"{tables[table.kind].file.name} and {file.name}"
            raise TraceError(f"{source.path}: two {table.kind} tables, {names}; leave one in the folder")
        else:
            tables[table.kind] = table
    if unused:
        builder.layout["files without jobs, not read"] = ", ".join(unused)
    if not tables:
        raise TraceError(f"{source.path}, line 1: sensor or machine tables of PAI 2020 only; jobs need the task table")
    return tables


def _join(
    jobs: pl.DataFrame | None,
    tasks: pl.DataFrame | None,
    job_account: Account | None,
    task_account: Account | None,
) -> tuple[pl.DataFrame, Account]:
    """One row per job, and the account that its line numbers belong to."""
    texts = ("inst_id", "user", "group", "workload")
    if tasks is None:
        assert jobs is not None and job_account is not None
        blank = [pl.lit("").alias(name) for name in ("group", "workload", "gpu_type")]
        unknown = [pl.lit(np.nan).alias(name) for name in ("cpus", "memory")]
        zero = [pl.lit(0.0).alias(name) for name in ("workers", "ps")]
        columns = (pl.col("submit").alias("start"), pl.lit(1.0).alias("gpus"), _IS_OPEN.alias("is_open"))
        frame = jobs.with_columns(*columns, *blank, *unknown, *zero)
        return frame, job_account
    assert task_account is not None
    is_known_gpu = (pl.col("gpus") > 0) & (pl.col("gpu_type") != "")
    ranked = tasks.with_columns(
        pl.when(is_known_gpu).then("gpu_type").alias("gpu_type"),
        pl.col("status").replace_strict(_RANKS, return_dtype=pl.Int8).alias("rank"),
    )
    per_job = ranked.group_by("job_name", maintain_order=True).agg(
        pl.col("start").drop_nans().min(),
        pl.col("end").drop_nans().max(),
        pl.col("gpus", "cpus", "memory", "workers", "others", "ps").sum(),
        pl.col("gpu_type").drop_nulls().first(),
        pl.col("rank").max(),
        _IS_OPEN.any().alias("is_open"),
        *(pl.col(name).first() for name in (*texts, "line", "row_hash")),
    )
    # A job without a worker by name or GPU works in its other tasks.
    workers = pl.when(pl.col("workers") > 0).then("workers").otherwise("others").alias("workers")
    words = {rank: status for status, rank in _RANKS.items()}
    status = pl.col("rank").replace_strict(words, return_dtype=pl.String).alias("status")
    per_job = per_job.with_columns(workers, status).drop("rank")
    lines = tasks["line"].to_numpy()
    if jobs is None:
        is_first = tasks.select(pl.col("job_name").is_first_distinct())[:, 0].to_numpy()
        task_account.add("merged", "further task of a job", lines[~is_first])
        return per_job.with_columns(pl.lit(None, dtype=pl.Float64).alias("submit")), task_account
    assert job_account is not None
    is_known = tasks["job_name"].is_in(jobs["job_name"].implode()).to_numpy()
    task_account.add("merged", "task of a job", lines[is_known])
    task_account.add("dropped", "job has no row in the job table", lines[~is_known])
    of_tasks = per_job.rename({"end": "end_task"}).drop("status", "is_open", "line", "row_hash", "inst_id", "user")
    frame = jobs.join(of_tasks, on="job_name", how="left", maintain_order="left")
    end = pl.coalesce(pl.col("end").fill_nan(None), "end_task")
    return frame.with_columns(_IS_OPEN.alias("is_open"), end.alias("end")), job_account


def _add(frame: pl.DataFrame, account: Account, builder: TableBuilder, *, has_tasks: bool) -> None:
    """Hands the jobs to the builder."""
    shown = frame.select("job_name", "status", *(pl.col(c).cast(pl.String) for c in ("submit", "start", "end")))
    rows = Rows(shown, frame["line"].to_numpy(), account, frame["row_hash"].to_numpy())
    submit, start, end = (_numbers(frame, name) for name in ("submit", "start", "end"))
    status = frame["status"]
    is_running = frame["is_open"].to_numpy()
    arrival = np.where(np.isfinite(submit), submit, start)
    start = np.where(np.isfinite(start), start, np.nan)
    times = np.concatenate([arrival, start, end])
    horizon = float(np.nanmax(times)) if np.isfinite(times).any() else 0.0
    end = np.where(is_running, horizon, end)
    if has_tasks:
        has_task = frame["gpus"].is_not_null().to_numpy()
        rows.drop(~has_task, "no row in the task table", "job_name")
    is_waiting = (status == "waiting").to_numpy()
    rows.drop(is_waiting, "never started (status Waiting)", "status", is_warning=False)
    rows.drop(~np.isfinite(arrival), "start time is missing", "submit")
    rows.drop(~np.isfinite(start) & ~np.isfinite(end), "never started: no task has a start time", "start")
    rows.drop(~np.isfinite(start), "no task has a start time", "start")
    rows.drop(~np.isfinite(end), "end time is missing", "end")
    with np.errstate(invalid="ignore"):
        rows.drop(is_running & (end <= start), "started when the recording stopped", "start", is_warning=False)
        rows.drop(end <= start, "ends before or when it starts", "end")
        rows.remark("warned", start < arrival, "a task starts before the job is submitted", "start")
    if not has_tasks:
        rows.remark("warned", np.ones(len(rows), dtype=bool), _NO_GPUS)
    group = pl.select(
        pl.when((frame["group"] != "").fill_null(False)).then(frame["group"]).otherwise(frame["user"])
    ).to_series()
    builder.add(
        rows,
        arrival,
        end - start,
        _numbers(frame, "gpus", 0.0),
        time_column="submit" if np.isfinite(submit).any() else "start",
        job_id=encode(frame["job_name"]),
        status=encode(status),
        user=encode(frame["user"]),
        group=encode(group),
        label=encode(frame["workload"]),
        gpu_kind=encode(frame["gpu_type"]),
        num_cpus=_numbers(frame, "cpus"),
        memory_gib=_numbers(frame, "memory") * _BYTES_PER_GB / 2**30,
        num_workers=_numbers(frame, "workers", 0.0),
        num_ps=_numbers(frame, "ps", 0.0),
        is_censored=is_running,
        extra={"wait_s": start - arrival},
    )


def _numbers(frame: pl.DataFrame, column: str, if_null: float = np.nan) -> NDArray[np.float64]:
    return np.asarray(frame[column].cast(pl.Float64).fill_null(if_null).to_numpy(), dtype=np.float64)


FORMAT = TraceFormat(
    name="pai",
    title="Alibaba PAI 2020, cluster-trace-gpu-v2020",
    columns=f"tables without header; job: {', '.join(pai_tables.COLUMNS['job'])}; task: "
    f"{', '.join(pai_tables.COLUMNS['task'])}",
    sniff=sniff,
    read=read,
    takes_several=True,
    similar_types={
        "bert": ("bert",),
        "ctr": ("multi-interests", "dssm"),
        "graphlearn": ("gcn",),
        "nmt": ("transformer", "seq2seq"),
        "resnet50": ("resnet50", "resnet-50"),
        "vgg16": ("vgg-16",),
        "inception": ("inception-bn",),
    },
)
