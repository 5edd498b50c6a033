"""Kernels of the fitted estimate: speeds observed while jobs run refine it, interval by interval."""

from __future__ import annotations

from dl2env.jit import kernel
from dl2env.speed.fitted import add_sample, fill_estimate, solve_fit


@kernel
def observe_speed(state, b, t, workers, num_ps, speed):
    """Adds one interval's observed speed of a job of type t, contention and noise included, to the fit."""
    if speed <= 0.0:
        return
    job_type = state.types[t]
    batches = 1.0 if job_type.is_synchronous else float(workers)
    step_s = batches * job_type.batch_size / speed
    add_sample(state.fit[b, t], job_type.is_synchronous, job_type.batch_size, workers, num_ps, step_s, 1.0)


@kernel
def refit_estimate(state, b):
    """Refits every type's resource-speed function and rewrites the estimate of environment b."""
    rules = state.rules[0]
    for t in range(state.types.shape[0]):
        theta = solve_fit(state.fit[b, t])
        state.best_speed[b, t] = fill_estimate(theta, state.types[t], not rules.is_measured, state.estimate[b, t])
