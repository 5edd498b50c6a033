"""What planned rules share: wanted numbers of tasks per job, and how they are served in order.

A planned rule gives every active job an order and wanted numbers of workers and parameter servers once per interval.
Jobs are then served in that order, each until it has what is wanted for it or no more fits. A gang that fits only in
part runs with that part: jobs here are elastic.
"""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.schedulers.heuristic import checked_option, has_kind
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand
from dl2env.sim.speeds import estimated_speed

DEFAULT_SPEED_SHARE = 0.8
"""Assumed: users ask for the smallest gang that reaches this share of their type's best isolated speed."""


def checked_share(rule: str, speed_share: float) -> float:
    """The option `speed_share` of a rule, if it is a share above 0.

    Raises:
        ConfigError: It is not.
    """
    return checked_option(rule, "speed_share", speed_share, 0.0, 1.0, above=True)


def name_with_share(rule: str, speed_share: float) -> str:
    """A rule's name, which tells a `speed_share` other than the default."""
    return rule if speed_share == DEFAULT_SPEED_SHARE else f"{rule}-{speed_share:g}"


@inline_kernel
def requested_counts(state, b, t, speed_share):
    """(workers, PSs) that a user of a type would ask for: the cheapest allocation that is nearly as fast as the best.

    Args:
        state: The batch.
        b: Environment.
        t: Job type.
        speed_share: Least acceptable share of the best estimated isolated speed; 1 gives the fastest allocation.

    Returns:
        The counts with the smallest dominant share of the cluster; ties go to fewer workers, then fewer PSs.
    """
    job_type = state.types[t]
    rules = state.rules[0]
    e = b % state.estimate.shape[0]
    least = speed_share * state.best_speed[e, t] * (1.0 - 1e-12)
    total_cpus = max(rules.total_cpus, 1.0)
    total_gpus = max(rules.total_gpus, 1.0)
    smallest = math.inf
    workers = 0
    num_ps = 0
    for w in range(1, job_type.max_workers + 1):
        for p in range(min(1, job_type.max_ps), job_type.max_ps + 1):
            cpus = w * job_type.worker_cpus + p * job_type.ps_cpus
            gpus = w * job_type.worker_gpus + p * job_type.ps_gpus
            share = max(cpus / total_cpus, gpus / total_gpus)
            if share < smallest and estimated_speed(state.estimate[e, t], job_type, w, p, 1.0) >= least:
                smallest = share
                workers = w
                num_ps = p
    return workers, num_ps


@inline_kernel
def write_requests(state, b, speed_share, scratch):
    """Writes `requested_counts` of every type."""
    for t in range(state.types.shape[0]):
        workers, num_ps = requested_counts(state, b, t, speed_share)
        scratch.requests[t, 0] = workers
        scratch.requests[t, 1] = num_ps


@inline_kernel
def want(scratch, i, order, workers, num_ps):
    """Writes a job's place and wanted numbers; a higher order is served first."""
    candidate = scratch.candidates[i]
    candidate.order = order
    candidate.workers = workers
    candidate.ps = num_ps
    candidate.gpu_kind = -1


@inline_kernel
def _server_of_kind(state, b, gpu_kind, cpus, gpus):
    """The least-loaded server of a GPU kind that can hold a task, -1 when there is none."""
    best = -1
    for s in range(state.specs.shape[0]):
        server = state.servers[b, s]
        if state.specs[s].gpu_kind != gpu_kind or server.free_cpus < cpus or server.free_gpus < gpus:
            continue
        if best < 0 or server.load < state.servers[b, best].load:
            best = s
    return best


@inline_kernel
def score_planned(state, b, i, legal, scratch):
    """(key, kind, server) of the next task towards the wanted numbers: both roles, one worker, one PS.

    Where no server can hold both, a job gets one worker and one PS before more workers: without a PS it cannot train.
    A job that cannot start for want of room for one role gets nothing: the other would only take room. A GPU kind
    binds workers; PSs compute nothing.
    """
    job = state.jobs[b, i]
    candidate = scratch.candidates[i]
    lacks_worker = job.workers < candidate.workers
    lacks_ps = job.ps < candidate.ps
    can_add_bundle = lacks_worker and lacks_ps and has_kind(legal, BUNDLE)
    can_add_worker = lacks_worker and has_kind(legal, WORKER)
    can_add_ps = lacks_ps and has_kind(legal, PS)
    bundle_server = -1
    worker_server = -1
    # What does not fit on the GPU kind is not possible, so that, as without one, nothing becomes possible later.
    if can_add_bundle and candidate.gpu_kind >= 0:
        cpus, gpus = action_demand(state.types[job.type], BUNDLE)
        bundle_server = _server_of_kind(state, b, candidate.gpu_kind, cpus, gpus)
        can_add_bundle = bundle_server >= 0
    if can_add_worker and not can_add_bundle and candidate.gpu_kind >= 0:
        cpus, gpus = action_demand(state.types[job.type], WORKER)
        worker_server = _server_of_kind(state, b, candidate.gpu_kind, cpus, gpus)
        can_add_worker = worker_server >= 0
    kind = -1
    server = -1
    if can_add_bundle:
        kind = BUNDLE
        server = bundle_server
    elif job.ps == 0 and candidate.ps > 0:
        if job.workers > 0:
            kind = PS if can_add_ps else -1
        elif can_add_worker and can_add_ps:
            kind = WORKER
    elif can_add_worker:
        kind = WORKER
    elif can_add_ps and job.workers > 0:
        kind = PS
    if kind == WORKER:
        server = worker_server
    return candidate.order, kind, server
