"""Kernels of time: an interval begins, decisions are made, jobs train, the next interval begins."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.sim.decisions import decide, fill_window, is_below_cap, place
from dl2env.sim.features import write_cluster
from dl2env.sim.fitting import observe_speed
from dl2env.sim.noise import interval_noise
from dl2env.sim.placement import BUNDLE, WORKER, can_train, clear_allocations
from dl2env.sim.speeds import true_speed
from dl2env.sim.state import CHECKPOINT, HOT

PROGRESS, JCT, IDEAL_PROGRESS, SPEED_GAIN = range(4)
"""Columns of the reward terms, in the order of `state.REWARD_TERMS`."""

# Hot scaling: 62 to 625 ms for 1 to 6 parameter servers added to ResNet-50 (102.2 MB); checkpoint restart: 11.45 to
# 16.05 s for the same. Plotted values of the DL2 authors' 2018 scripts; the model being ResNet-50 is recalled.
HOT_S_PER_TASK = 0.1
HOT_REFERENCE_BYTES = 102.2e6
CHECKPOINT_S = 11.0
CHECKPOINT_S_PER_TASK = 0.9


@inline_kernel
def scaling_seconds(job, weight_bytes, scaling_cost):
    """Training time lost to a changed allocation; 0 for a job that did not train in the previous interval."""
    changed = abs(job.workers - job.last_workers) + abs(job.ps - job.last_ps)
    if job.last_workers == 0 or changed == 0:
        return 0.0
    if scaling_cost == HOT:
        return HOT_S_PER_TASK * changed * weight_bytes / HOT_REFERENCE_BYTES
    if scaling_cost == CHECKPOINT:
        return CHECKPOINT_S + CHECKPOINT_S_PER_TASK * changed
    return 0.0


@inline_kernel
def admit(state, b):
    """Admits the jobs that have arrived by the start of the current interval."""
    env = state.env[b]
    interval_s = state.rules[0].interval_s
    now_s = env.interval * interval_s
    while env.next_job < env.num_jobs and state.jobs[b, env.next_job].arrival_s <= now_s:
        state.active[b, env.num_active] = env.next_job
        env.pending_wait += (now_s - state.jobs[b, env.next_job].arrival_s) / interval_s
        env.num_active += 1
        env.next_job += 1


@kernel
def begin_interval(state, b):
    """Admits arrivals, clears allocations, gives initial bundles and opens the decision phase."""
    env = state.env[b]
    rules = state.rules[0]
    jobs = state.jobs[b]
    active = state.active[b]
    admit(state, b)
    for k in range(env.num_active):
        job = jobs[active[k]]
        trained = can_train(job, state.types[job.type].architecture)
        job.last_workers = job.workers if trained else 0
        job.last_ps = job.ps if trained else 0
    clear_allocations(
        env, jobs, active, state.servers[b], state.least_loaded[b], state.specs, state.demands, state.num_fit[b]
    )
    if rules.initial_bundle:
        for k in range(env.num_active):
            job_type = state.types[jobs[active[k]].type]
            kind = BUNDLE if job_type.max_ps > 0 else WORKER
            if is_below_cap(jobs[active[k]], job_type, kind):
                place(state, b, active[k], kind)
    fill_window(state, b)


@inline_kernel
def train(state, b, terms):
    """Lets every active job train for the rest of the interval and removes those that finish.

    Args:
        state: The batch.
        b: Environment.
        terms: (4,) reward terms, added to.
    """
    env = state.env[b]
    rules = state.rules[0]
    jobs = state.jobs[b]
    active = state.active[b]
    interval_s = rules.interval_s
    start_s = env.interval * interval_s
    e = b % state.best_speed.shape[0]
    kept = 0
    for k in range(env.num_active):
        i = active[k]
        job = jobs[i]
        job_type = state.types[job.type]
        spent = 1.0  # share of the interval the job stays in the system
        finished = False
        if can_train(job, job_type.architecture):
            speed = true_speed(
                job,
                job_type,
                state.compute_s[job.type],
                state.table[job.type],
                state.entries[b, i],
                state.servers[b],
                state.specs,
                rules,
            )
            if rules.speed_noise > 0.0:
                speed *= interval_noise(env.noise_key, i, env.interval, rules.speed_noise)
            cost_s = min(scaling_seconds(job, job_type.weight_bytes, rules.scaling_cost), interval_s)
            gain = speed * (interval_s - cost_s) / job.samples_per_epoch
            left = job.true_epochs - job.epochs_done
            if gain >= left:
                finished = True
                end_s = cost_s + left / gain * (interval_s - cost_s) if rules.exact_finish else interval_s
                job.finish_s = start_s + end_s
                spent = end_s / interval_s
                gain = left
                job.epochs_done = job.true_epochs
            else:
                job.epochs_done += gain
            terms[PROGRESS] += gain / job.epochs
            if state.best_speed[e, job.type] > 0.0:
                terms[IDEAL_PROGRESS] += gain * job.samples_per_epoch / state.best_speed[e, job.type] / interval_s
            if math.isnan(job.start_s):
                job.start_s = start_s
            if job.last_workers > 0 and (job.workers != job.last_workers or job.ps != job.last_ps):
                job.num_resizes += 1
            job.intervals_run += 1
            if rules.fit_online:
                observe_speed(state.fit[b, job.type], job_type, job.workers, job.ps, speed)
        terms[JCT] -= spent
        job.gpu_s += (job.workers * job_type.worker_gpus + job.ps * job_type.ps_gpus) * interval_s
        if finished:
            job.slot = -1
            env.num_finished += 1
        else:
            active[kept] = i
            kept += 1
    env.num_active = kept
    env.used_cpu_s += (rules.total_cpus - env.free_cpus) * interval_s
    env.used_gpu_s += (rules.total_gpus - env.free_gpus) * interval_s
    for d in range(state.demands.shape[0]):
        if state.num_fit[b, d] == 0:
            env.num_intervals_full += 1
            break


@inline_kernel
def skip_idle(state, b):
    """Moves an empty cluster to the interval at whose start the next job is admitted."""
    env = state.env[b]
    rules = state.rules[0]
    if env.num_active > 0 or env.next_job >= env.num_jobs:
        return
    arrival_s = state.jobs[b, env.next_job].arrival_s
    if arrival_s > (rules.max_intervals - 1) * rules.interval_s:
        env.interval = rules.max_intervals  # beyond the episode
        return
    due = math.ceil(arrival_s / rules.interval_s)
    # The division may round either way; `admit` compares the product.
    if due * rules.interval_s < arrival_s:
        due += 1
    elif (due - 1) * rules.interval_s >= arrival_s:
        due -= 1
    env.interval = max(env.interval, due)


@kernel
def advance(state, b, terms):
    """Trains for the current interval and opens the next decision phase. Returns (terminated, truncated)."""
    env = state.env[b]
    rules = state.rules[0]
    train(state, b, terms)
    env.interval += 1
    if env.num_finished == env.num_jobs:
        fill_window(state, b)
        return True, False
    if rules.auto_advance:
        skip_idle(state, b)
    if env.interval >= rules.max_intervals:
        fill_window(state, b)
        return False, True
    begin_interval(state, b)
    return False, False


@kernel
def end_interval(state, b, terms):
    """Advances to the next interval that offers a choice. Returns (terminated, truncated)."""
    while True:
        terminated, truncated = advance(state, b, terms)
        if terminated or truncated or state.env[b].num_legal > 0 or not state.rules[0].auto_advance:
            return terminated, truncated


@kernel
def reset_envs(state, env_idx):
    """Starts the given environments, whose jobs have been written, at their first decision."""
    for n in range(env_idx.shape[0]):
        b = env_idx[n]
        env = state.env[b]
        env.speed_sum = 0.0
        env.slowdown_sum = 0.0
        env.pending_wait = 0.0
        env.interval = 0
        env.next_job = 0
        env.num_active = 0
        env.num_finished = 0
        env.num_decisions = 0
        env.num_intervals_full = 0
        env.used_cpu_s = 0.0
        env.used_gpu_s = 0.0
        if state.rules[0].auto_advance:
            skip_idle(state, b)
        begin_interval(state, b)
        write_cluster(state.obs_cluster[b], env, state.rules[0], state.servers.shape[1])


@kernel
def refill_windows(state, env_idx):
    """Writes window, mask and observation anew."""
    for n in range(env_idx.shape[0]):
        b = env_idx[n]
        fill_window(state, b)
        write_cluster(state.obs_cluster[b], state.env[b], state.rules[0], state.servers.shape[1])


@kernel
def step_envs(state, actions, is_done, report):
    """One decision of each environment that is not done.

    Args:
        state: The batch.
        actions: (B,) actions.
        is_done: (B,) environments to leave alone; updated.
        report: Report, filled.
    """
    rules = state.rules[0]
    void = state.mask.shape[1] - 1
    for b in range(actions.shape[0]):
        terms = report.reward_terms[b]
        terms[:] = 0.0
        ended = False
        illegal = False
        terminated = False
        truncated = False
        if not is_done[b]:
            env = state.env[b]
            env.num_decisions += 1
            action = actions[b]
            ended = action == void
            if not ended:
                illegal = action < 0 or action > void or not state.mask[b, action]
                if not illegal:
                    before = env.speed_sum
                    illegal = not decide(state, b, state.window[b, action // 3], action % 3)
                    terms[SPEED_GAIN] += env.speed_sum - before
                ended = illegal or (rules.auto_advance and env.num_legal == 0)
            if ended:
                terminated, truncated = end_interval(state, b, terms)
            terms[JCT] -= env.pending_wait
            env.pending_wait = 0.0
            write_cluster(state.obs_cluster[b], env, rules, state.servers.shape[1])
            is_done[b] = terminated or truncated
        report.interval_ended[b] = ended
        report.is_illegal[b] = illegal
        report.terminated[b] = terminated
        report.truncated[b] = truncated
