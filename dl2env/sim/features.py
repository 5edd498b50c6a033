"""Kernels that write the observation: one row per job slot, one row for the cluster."""

from __future__ import annotations

from dl2env.jit import inline_kernel, kernel
from dl2env.sim.contention import effect_of_task, gain_ahead
from dl2env.sim.placement import PS, WORKER, action_demand, find_server_for_action
from dl2env.sim.speeds import estimated_speed

JOB_FEATURES = (
    "present",
    "age",  # a / (a + 10), a = intervals since arrival
    "intervals_run",  # r / (r + 10)
    "demand_worker",  # dominant share of a worker times the number of servers: 1 is all of an average server
    "demand_ps",
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
    # g / (|g| + 0.1 d + 1e-6), g = change of the summed relative speed of all jobs, d = demand of the task(s)
    "net_gain_worker",
    "net_gain_ps",
    "net_gain_bundle",
    # the same of one of 2 or of 4 such tasks taken together, where that is larger
    "gain_ahead_worker",
    "gain_ahead_ps",
    "gain_ahead_bundle",
)
"""Columns of a job's row after the columns that describe its type."""

NUM_KINDS = 3
NUM_GAINS = 2 * NUM_KINDS
"""The last columns. They change for every job with every placement, and are worked out only for those who read them."""

LOOK_AHEAD = 4

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
def _demand(job_type, kind, rules, num_servers):
    """Dominant share of an average server that the task of an action takes; more than 1 if it takes more."""
    cpus, gpus = action_demand(job_type, kind)
    demand = 0.0
    if rules.total_cpus > 0.0:
        demand = cpus * num_servers / rules.total_cpus
    if rules.total_gpus > 0.0:
        demand = max(demand, gpus * num_servers / rules.total_gpus)
    return demand


@inline_kernel
def write_job_static(row, job, job_type, type_features, interval, rules, num_servers):
    """Writes the columns of a slot's row that do not change while decisions are made."""
    k = type_features.shape[0]
    for f in range(k):
        row[f] = type_features[f]
    age = interval - job.arrival_s / rules.interval_s
    row[k] = 1.0
    row[k + 1] = age / (age + 10.0)
    row[k + 2] = job.intervals_run / (job.intervals_run + 10.0)
    row[k + 3] = min(_demand(job_type, WORKER, rules, num_servers), 1.0)
    row[k + 4] = min(_demand(job_type, PS, rules, num_servers), 1.0)


@inline_kernel
def write_job_progress(row, k, job, best_speed, interval_s):
    """Writes the columns about the remaining work; `k` is the number of type columns."""
    left = max(job.epochs - job.epochs_done, 0.0)
    row[k + 5] = _clip(left / job.epochs, 0.0, 1.0)
    ideal = left * job.samples_per_epoch / best_speed / interval_s if best_speed > 0.0 else 0.0
    row[k + 6] = ideal / (ideal + 5.0)


@inline_kernel
def write_job_allocation(row, k, job, job_type, estimate, best_speed, max_workers, max_ps):
    """Writes the columns that depend on the allocation; `k` is the number of type columns."""
    row[k + 7] = job.dominant_share
    row[k + 8] = job.workers / max_workers
    row[k + 9] = job.ps / max_ps
    row[k + 10] = _clip(job.relative_speed, 0.0, 1.0)
    row[k + 11] = _gain(estimate, job_type, job, best_speed, 1, 0)
    row[k + 12] = _gain(estimate, job_type, job, best_speed, 0, 1)
    row[k + 13] = _gain(estimate, job_type, job, best_speed, 1, 1)
    communication = 0.0
    if job.speed > 0.0:
        step_s = estimate[job.workers, job.ps, 0]
        communication_s = estimate[job.workers, job.ps, 1]
        communication = communication_s * job.stretch / (step_s + (job.stretch - 1.0) * communication_s)
    row[k + 14] = communication
    row[k + 15] = 1.0 - 1.0 / job.stretch
    row[k + 16] = 1.0 if job.is_on_network else 0.0


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


@inline_kernel
def _per_share(gain, demand):
    """A gain per demand, brought into -1..1; its order is that of the marginal gains per share of the cluster."""
    return gain / (abs(gain) + 0.1 * demand + 1e-6)


@kernel
def write_gains(state, env_idx, rows):
    """Writes the columns of the gains, 0 where an action is illegal or finds no server.

    The net gain is what the reward term `speed_gain` will pay for the action.

    Args:
        state: The batch.
        env_idx: (n,) environments.
        rows: (n, J, F) observations of their jobs.
    """
    rules = state.rules[0]
    first = rows.shape[2] - NUM_GAINS
    for x in range(env_idx.shape[0]):
        b = env_idx[x]
        for slot in range(state.env[b].window_size):
            i = state.window[b, slot]
            job = state.jobs[b, i]
            job_type = state.types[job.type]
            has_roles = job_type.max_ps == 0 or (job.workers > 0 and job.ps > 0)
            for kind in range(NUM_KINDS):
                if not state.mask[b, NUM_KINDS * slot + kind]:
                    continue
                s = find_server_for_action(
                    state.servers[b],
                    state.least_loaded[b],
                    job,
                    job_type,
                    state.entries[b, i],
                    kind,
                    rules.placement,
                    state.env[b].pinned_server,
                )
                if s >= 0:
                    workers = job.workers + int(kind != PS)
                    num_ps = job.ps + int(kind != WORKER)
                    relative, loss, is_shared, stretch = effect_of_task(state, b, i, kind, s, workers, num_ps)
                    gain = relative - job.relative_speed - loss
                    demand = _demand(job_type, kind, rules, state.specs.shape[0])
                    rows[x, slot, first + kind] = _per_share(gain, demand)
                    if has_roles:
                        ahead = gain_ahead(state, b, i, kind, 1.0, LOOK_AHEAD, is_shared, stretch, loss)
                        gain = max(gain, ahead)
                    rows[x, slot, first + NUM_KINDS + kind] = _per_share(gain, demand)
