"""Kernels of the fitted estimate: speeds observed while jobs run refine it, interval by interval."""

from __future__ import annotations

from dl2env.jit import allocating_kernel, kernel
from dl2env.sim.decisions import write_row
from dl2env.sim.features import write_cluster, write_job_progress
from dl2env.sim.speeds import refresh_speed
from dl2env.speed.fitted import add_sample, fill_estimate, solve_fit


@kernel
def observe_speed(equations, job_type, workers, num_ps, speed):
    """Adds one interval's observed speed of a job, contention and noise included, to its type's (5, 6) equations."""
    if speed <= 0.0:
        return
    batches = 1.0 if job_type.is_synchronous else float(workers)
    step_s = batches * job_type.batch_size / speed
    add_sample(equations, job_type.is_synchronous, job_type.batch_size, workers, num_ps, step_s, 1.0)


@allocating_kernel
def refit_estimates(state, is_due):
    """Refits the resource-speed functions of the environments that are due, and what was derived from them.

    Args:
        state: The batch.
        is_due: (B,) environments in which an interval has ended.
    """
    rules = state.rules[0]
    for b in range(is_due.shape[0]):
        if not is_due[b]:
            continue
        for t in range(state.types.shape[0]):
            theta = solve_fit(state.fit[b, t])
            state.best_speed[b, t] = fill_estimate(theta, state.types[t], not rules.is_measured, state.estimate[b, t])
        env = state.env[b]
        for k in range(env.num_active):
            i = state.active[b, k]
            job = state.jobs[b, i]
            refresh_speed(env, job, state.types[job.type], state.estimate[b, job.type], state.best_speed[b, job.type])
            if job.slot >= 0:
                row = state.obs_jobs[b, job.slot]
                write_job_progress(
                    row, state.type_features.shape[1], job, state.best_speed[b, job.type], rules.interval_s
                )
                write_row(state, b, i)
        write_cluster(state.obs_cluster[b], env, rules, state.servers.shape[1])
