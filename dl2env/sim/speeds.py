"""Kernels that say how fast a placed job trains: really (step time) and as far as schedulers know (estimate)."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.sim.placement import can_train
from dl2env.speed.parameters import ALL_REDUCE, LOCAL_PS, PEARL, PS_WORKER


@inline_kernel
def link_stretch(server, entry, own_use, link_sharing):
    """How much longer a job's transfers take on a server, by the link use of the other jobs' tasks there.

    Args:
        server: SERVER_DTYPE record.
        entry: ENTRY_DTYPE of the job there.
        own_use: Link use of each of its tasks.
        link_sharing: Strength of the effect.
    """
    return 1.0 + link_sharing * max(server.link_use - own_use * (entry.workers + entry.ps), 0.0)


@inline_kernel
def true_step_time(job, job_type, compute_s, entries, servers, specs, rules):
    """Seconds of one training step under the whole placement, see docs/architecture.md, 'Step time'.

    Args:
        job: JOB_DTYPE record with at least one worker (and one PS where PSs are used).
        job_type: TYPE_DTYPE record of the job's type.
        compute_s: (G,) compute seconds of the type per GPU kind.
        entries: (E,) ENTRY_DTYPE of the job.
        servers: (S,) SERVER_DTYPE.
        specs: (S,) SERVER_SPEC_DTYPE.
        rules: RULES_DTYPE record.
    """
    workers = float(job.workers)
    num_ps = float(job.ps)
    architecture = job_type.architecture
    slowest_s = 0.0
    most_local = 0
    worst_bytes = 0.0  # stretched share of S_w through the busiest link
    worker_stretch = 1.0
    ps_stretch = 1.0
    stretch = 1.0
    for e in range(job.num_entries):
        entry = entries[e]
        here = 1.0
        if job.is_on_network:
            here = link_stretch(servers[entry.server], entry, job_type.link_use, rules.link_sharing)
            stretch = max(stretch, here)
        if entry.workers > 0:
            slowest_s = max(slowest_s, compute_s[specs[entry.server].gpu_kind])
            most_local = max(most_local, entry.workers)
            worker_stretch = max(worker_stretch, here)
        if architecture == PS_WORKER:
            if entry.ps > 0:
                ps_stretch = max(ps_stretch, here)
            share = (entry.workers * (num_ps - entry.ps) + entry.ps * (workers - entry.workers)) / num_ps
            worst_bytes = max(worst_bytes, here * share)
    fraction = 1.0 / workers if job_type.is_synchronous else 1.0
    input_s = job_type.input_s * fraction
    if rules.pcie_group > 0:
        input_s *= min(most_local, rules.pcie_group)
    compute = slowest_s * fraction
    weight_s = 0.0
    if architecture == PS_WORKER:
        weight_s = (
            job_type.ethernet_s * worst_bytes
            + job_type.weight_pcie_s
            + job_type.exchange_s * worker_stretch
            + job_type.ps_service_s * workers / num_ps * ps_stretch
        )
    elif architecture == ALL_REDUCE:
        if workers > 1:
            weight_s = job_type.nvlink_s
        if job.is_on_network:
            weight_s += job_type.ethernet_s * stretch
    elif architecture == LOCAL_PS:
        weight_s = job_type.weight_pcie_s
    elif architecture == PEARL:
        weight_s = job_type.nvlink_s
    coordination_s = job_type.fixed_s + job_type.worker_cost_s * workers + job_type.ps_cost_s * num_ps
    if rules.is_ideal_overlap:
        return max(input_s, compute, weight_s) + coordination_s
    return input_s + compute + weight_s + coordination_s


@inline_kernel
def true_speed(job, job_type, compute_s, table, entries, servers, specs, rules):
    """Samples per second under the whole placement; 0 when the job lacks a task it needs."""
    if not can_train(job, job_type.architecture):
        return 0.0
    if rules.is_measured:
        return table[job.workers, job.ps]
    batches = 1.0 if job_type.is_synchronous else float(job.workers)
    return batches * job_type.batch_size / true_step_time(job, job_type, compute_s, entries, servers, specs, rules)


@inline_kernel
def estimated_speed(estimate, job_type, workers, num_ps, stretch):
    """Estimated samples per second of an allocation whose communication is stretched.

    Args:
        estimate: (W + 2, P + 2, 2) step seconds and communication seconds of the type; infinite where it cannot train.
        job_type: TYPE_DTYPE record.
        workers: Number of workers.
        num_ps: Number of parameter servers.
        stretch: Factor on the communication time, at least 1.
    """
    step_s = estimate[workers, num_ps, 0]
    if not (step_s > 0.0 and step_s < math.inf):
        return 0.0
    batches = 1.0 if job_type.is_synchronous else float(workers)
    return batches * job_type.batch_size / (step_s + (stretch - 1.0) * estimate[workers, num_ps, 1])


@inline_kernel
def refresh_speed(env, job, job_type, estimate, best_speed):
    """Recomputes a job's estimated speed and the environment's sum of relative speeds."""
    speed = estimated_speed(estimate, job_type, job.workers, job.ps, job.stretch)
    relative = speed / best_speed if best_speed > 0.0 else 0.0
    env.speed_sum += relative - job.relative_speed
    job.speed = speed
    job.relative_speed = relative
