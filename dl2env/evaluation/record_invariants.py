"""What must hold in the records of any episode; see `evaluation.invariants`."""

from __future__ import annotations

import numpy as np

from dl2env.config import EnvConfig
from dl2env.evaluation.violations import Claims
from dl2env.sim.simulator import JobRecords
from dl2env.workload.jobs import Workload


def check_records(
    records: JobRecords, workload: Workload, config: EnvConfig | None = None, env: int | None = None
) -> None:
    """Checks what an episode left behind, whether it was played by decisions or by a kernel of its own.

    All jobs are there with the workload's data; work and times are in order; an episode in which all jobs finished ends
    with the interval of the last completion; GPU time of the jobs adds up to that of the cluster.

    Args:
        records: Records at the end of an episode (or during it, if `config` is not given).
        workload: What was simulated.
        config: The world; adds that capacity was never exceeded on average, that scheduling intervals have their length
            and that only a truncated episode leaves jobs unfinished.
        env: Number to name in errors: the environment or the workload's position in a list.

    Raises:
        InvariantError: An invariant is violated.
    """
    claims = Claims(env, None)
    n = workload.num_jobs
    every = range(n)
    for name in ("arrival_s", "type_idx", "epochs", "samples_per_epoch"):
        claims.close("jobs", name, getattr(records, name), getattr(workload, name), jobs=every)
    for name in ("start_s", "finish_s", "epochs_done", "gpu_s", "num_resizes", "intervals_run"):
        claims.same("jobs", f"number of entries of {name}", len(getattr(records, name)), n)
    start_s, finish_s, done = records.start_s, records.finish_s, records.epochs_done
    has_started, has_finished = ~np.isnan(start_s), ~np.isnan(finish_s)
    end_s, num_intervals = records.end_s, records.num_intervals

    claims.all((done >= 0) & (done <= workload.true_epochs), "work", "0 <= epochs_done <= true_epochs", every)
    is_complete = done == workload.true_epochs
    claims.all(has_finished == is_complete, "work", "a job has finished exactly if its work is done", every)
    claims.all(has_started == (records.intervals_run > 0), "times", "start_s is set exactly if a job has run", every)
    claims.all(has_started | (done == 0), "work", "no work is done before the start", every)
    claims.all(has_started | ~has_finished, "times", "a finished job has started", every)
    begun, ended = np.flatnonzero(has_started), np.flatnonzero(has_finished)
    claims.all(start_s[begun] >= records.arrival_s[begun], "times", "start >= arrival", begun)
    claims.all(start_s[begun] < end_s, "times", "start < end of the episode", begun)
    claims.all(finish_s[ended] >= start_s[ended], "times", "finish >= start", ended)
    claims.all(finish_s[ended] > records.arrival_s[ended], "times", "JCT > 0", ended)
    claims.all(finish_s[ended] <= end_s * (1 + 1e-12), "times", "finish <= end of the episode", ended)

    runs, resizes = records.intervals_run, records.num_resizes
    claims.all((runs >= 0) & (runs <= num_intervals), "work", "0 <= intervals_run <= intervals", every)
    claims.all((resizes >= 0) & (resizes <= np.maximum(runs - 1, 0)), "work", "0 <= num_resizes < intervals_run", every)
    interval_s = end_s / max(num_intervals, 1)
    first = start_s[begun] / interval_s
    claims.all(np.abs(first - np.rint(first)) < 1e-6, "times", "a job starts with an interval", begun)
    last_s = np.where(has_finished, finish_s, end_s)[begun]
    stay = np.ceil(last_s / interval_s - 1e-6) - np.rint(first)
    claims.all(runs[begun] <= np.maximum(stay, 1), "work", "intervals_run fit between start and finish", begun)
    claims.all(records.gpu_s >= 0, "work", "gpu_s >= 0", every)
    claims.close("work", "GPU seconds of all jobs", records.gpu_s.sum(), records.used_gpu_s)
    claims.that(0 <= records.share_full <= 1, "work", f"share_full is {records.share_full}")
    claims.that(records.used_cpu_s >= 0 and records.num_decisions >= 0, "work", "a negative total")
    if has_finished.all():
        last = float(finish_s.max())
        in_last = end_s - interval_s * (1 + 1e-6) <= last <= end_s * (1 + 1e-12)
        claims.that(in_last, "time", f"the last job finished at {last:g} s, the episode ended at {end_s:g} s")
    if config is not None:
        _check_world(claims, records, bool(has_finished.all()), config)


def _check_world(claims: Claims, records: JobRecords, is_complete: bool, config: EnvConfig) -> None:
    rules = config.dynamics
    claims.close("time", "end_s", records.end_s, records.num_intervals * rules.interval_s)
    most = rules.max_intervals
    claims.that(records.num_intervals <= most, "time", f"{records.num_intervals} intervals of at most {most}")
    if not is_complete:
        claims.same("jobs", "intervals of an episode with unfinished jobs", records.num_intervals, most)
    for name in ("cpu", "gpu"):
        units = sum(group.count * getattr(group, f"{name}s") for group in config.cluster.servers)
        used_s = getattr(records, f"used_{name}_s")
        claims.that(
            used_s <= units * records.end_s * (1 + 1e-9),
            "capacity",
            f"{used_s:g} {name} seconds allocated, the cluster has {units * records.end_s:g}",
        )
