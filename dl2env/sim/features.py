"""Kernels that write the observation: one row per job slot, one row for the cluster."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.sim.speeds import estimated_speed

JOB_FEATURES = (
    "present",
    "age",  # a / (a + 10), a = intervals since arrival
    "intervals_run",  # r / (r + 10)
    "remaining",  # fraction of the estimated epochs
    "remaining_ideal",  # x / (x + 5), x = intervals left at the type's best isolated speed
    "dominant_share",
    "workers",  # over the configured cap
    "ps",  # over the configured cap
    "relative_speed",  # estimated speed / best isolated speed of the type
    "gain_worker",  # change of relative_speed by one more worker, under the present stretch
    "gain_ps",
    "gain_bundle",
    "communication",  # share of the estimated step time
    "slowdown",  # 1 - 1 / stretch
    "on_network",
)
"""Columns of a job's row after the columns that describe its type."""

CLUSTER_FEATURES = (
    "free_cpus",
    "free_gpus",
    "window_fill",  # filled slots / J
    "overflow",  # n / (n + J), n = active jobs outside the window
    "time",  # k / (k + 100), k = interval
    "mean_relative_speed",  # over active jobs
    "mean_slowdown",  # over active jobs, of 1 - 1 / stretch
    "busy_servers",  # share of servers with a task
)


@inline_kernel
def _clip(value, low, high):
    return min(max(value, low), high)


@inline_kernel
def _gain(estimate, job_type, job, best_speed, more_workers, more_ps):
    workers = job.workers + more_workers
    num_ps = job.ps + more_ps
    if workers > job_type.max_workers or num_ps > job_type.max_ps or best_speed <= 0.0:
        return 0.0
    speed = estimated_speed(estimate, job_type, workers, num_ps, job.stretch)
    return _clip(speed / best_speed - job.relative_speed, -1.0, 1.0)


@inline_kernel
def write_job_static(row, job, type_features, interval, interval_s):
    """Writes the columns of a slot's row that do not change while decisions are made."""
    num_type_features = type_features.shape[0]
    for f in range(num_type_features):
        row[f] = type_features[f]
    age = interval - job.arrival_s / interval_s
    row[num_type_features] = 1.0
    row[num_type_features + 1] = age / (age + 10.0)
    row[num_type_features + 2] = job.intervals_run / (job.intervals_run + 10.0)


@inline_kernel
def write_job_progress(row, k, job, best_speed, interval_s):
    """Writes the columns about the remaining work; `k` is the number of type columns."""
    left = max(job.epochs - job.epochs_done, 0.0)
    row[k + 3] = _clip(left / job.epochs, 0.0, 1.0)
    ideal = left * job.samples_per_epoch / best_speed / interval_s if best_speed > 0.0 else 0.0
    row[k + 4] = ideal / (ideal + 5.0)


@inline_kernel
def write_job_allocation(row, k, job, job_type, estimate, best_speed, max_workers, max_ps):
    """Writes the columns that depend on the allocation; `k` is the number of type columns."""
    row[k + 5] = job.dominant_share
    row[k + 6] = job.workers / max_workers
    row[k + 7] = job.ps / max_ps
    row[k + 8] = _clip(job.relative_speed, 0.0, 1.0)
    row[k + 9] = _gain(estimate, job_type, job, best_speed, 1, 0)
    row[k + 10] = _gain(estimate, job_type, job, best_speed, 0, 1)
    row[k + 11] = _gain(estimate, job_type, job, best_speed, 1, 1)
    communication = 0.0
    if job.speed > 0.0:
        step_s = estimate[job.workers, job.ps, 0]
        communication_s = estimate[job.workers, job.ps, 1]
        communication = communication_s * job.stretch / (step_s + (job.stretch - 1.0) * communication_s)
    row[k + 12] = communication
    row[k + 13] = 1.0 - 1.0 / job.stretch
    row[k + 14] = 1.0 if job.is_on_network else 0.0


@inline_kernel
def write_cluster(row, env, rules, num_servers):
    """Writes the cluster's row."""
    window = rules.window
    outside = env.num_active - env.window_size
    row[0] = env.free_cpus / rules.total_cpus if rules.total_cpus > 0 else 0.0
    row[1] = env.free_gpus / rules.total_gpus if rules.total_gpus > 0 else 0.0
    row[2] = env.window_size / window
    row[3] = outside / (outside + window)
    row[4] = env.interval / (env.interval + 100.0)
    row[5] = _clip(env.speed_sum / env.num_active, 0.0, 1.0) if env.num_active > 0 else 0.0
    row[6] = _clip(env.slowdown_sum / env.num_active, 0.0, 1.0) if env.num_active > 0 else 0.0
    row[7] = env.busy_servers / num_servers
