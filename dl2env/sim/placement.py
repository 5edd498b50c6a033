"""Kernels that put tasks on servers and keep the counters that depend on it."""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.sim.state import LEAST_LOADED, LEAST_LOADED_SINGLE, PACK, SPREAD
from dl2env.speed.parameters import ALL_REDUCE, LOCAL_PS, PEARL, PS_WORKER, SINGLE

WORKER, PS, BUNDLE = range(3)
"""Kinds of a job action: one worker, one parameter server, one of each on one server."""


@inline_kernel
def action_demand(job_type, kind):
    """CPU and GPU units that an action of this kind takes."""
    cpus = 0
    gpus = 0
    if kind != PS:
        cpus += job_type.worker_cpus
        gpus += job_type.worker_gpus
    if kind != WORKER:
        cpus += job_type.ps_cpus
        gpus += job_type.ps_gpus
    return cpus, gpus


@inline_kernel
def is_single_server(architecture):
    """Whether all workers of the architecture must share a server."""
    return architecture == LOCAL_PS or architecture == PEARL or architecture == SINGLE


@inline_kernel
def find_server(servers, least_loaded, entries, num_entries, cpus, gpus, placement):
    """Server the strategy chooses for a task, -1 when it finds none; ties go to the lowest id.

    Args:
        servers: (S,) SERVER_DTYPE of one environment.
        least_loaded: (2 R,) tournament tree of the servers' ranks.
        entries: (E,) ENTRY_DTYPE of the job (used by `spread`).
        num_entries: How many of them are filled.
        cpus: CPU units the task needs.
        gpus: GPU units the task needs.
        placement: Code of the strategy.
    """
    if placement == LEAST_LOADED or placement == LEAST_LOADED_SINGLE:
        root = servers[least_loaded[1]]
        if root.free_cpus >= cpus and root.free_gpus >= gpus:
            return int(least_loaded[1])
        if placement == LEAST_LOADED_SINGLE:
            return -1
    best = -1
    best_load = 0.0
    best_tasks = 0
    for s in range(servers.shape[0]):
        server = servers[s]
        if server.free_cpus < cpus or server.free_gpus < gpus:
            continue
        load = -server.load if placement == PACK else server.load
        tasks = 0
        if placement == SPREAD:
            for e in range(num_entries):
                if entries[e].server == s:
                    tasks = entries[e].workers + entries[e].ps
        if best < 0 or tasks < best_tasks or (tasks == best_tasks and load < best_load):
            best = s
            best_load = load
            best_tasks = tasks
    return best


@inline_kernel
def find_server_for_action(servers, least_loaded, job, job_type, entries, kind, placement, pinned_server):
    """Server for an action of a job, -1 when it cannot be placed; single-server types stay where they are."""
    cpus, gpus = action_demand(job_type, kind)
    only = pinned_server
    if is_single_server(job_type.architecture) and job.num_entries > 0:
        only = entries[0].server
    if only >= 0:
        return only if servers[only].free_cpus >= cpus and servers[only].free_gpus >= gpus else -1
    return find_server(servers, least_loaded, entries, job.num_entries, cpus, gpus, placement)


@inline_kernel
def _winner(servers, left, right):
    """The server with the lower rank, ties to the left; -1 stands for no server."""
    if right < 0 or servers[left].rank <= servers[right].rank:
        return left
    return right


@inline_kernel
def _replay(servers, least_loaded, s):
    """Plays the matches of server s again, from its leaf up to the root."""
    node = (least_loaded.shape[0] // 2 + s) // 2
    while node > 0:
        least_loaded[node] = _winner(servers, least_loaded[2 * node], least_loaded[2 * node + 1])
        node //= 2


@inline_kernel
def take(env, servers, least_loaded, specs, s, cpus, gpus, rules, demands, num_fit):
    """Takes units of server s and updates its load and the counts of servers that fit; True if one fell to 0."""
    server = servers[s]
    old_cpus = server.free_cpus
    old_gpus = server.free_gpus
    new_cpus = old_cpus - cpus
    new_gpus = old_gpus - gpus
    server.free_cpus = new_cpus
    server.free_gpus = new_gpus
    env.free_cpus -= cpus
    env.free_gpus -= gpus
    used_cpus = specs[s].cpus - new_cpus
    used_gpus = specs[s].gpus - new_gpus
    if rules.load_by_sum:
        server.load = used_cpus + used_gpus
    else:
        load = 0.0
        if used_cpus > 0:
            load += used_cpus / specs[s].cpus
        if used_gpus > 0:
            load += used_gpus / specs[s].gpus
        server.load = load
    exhausted = False
    is_full = rules.placement != LEAST_LOADED_SINGLE
    for d in range(demands.shape[0]):
        need_cpus = demands[d].cpus
        need_gpus = demands[d].gpus
        if new_cpus >= need_cpus and new_gpus >= need_gpus:
            is_full = False
        elif old_cpus >= need_cpus and old_gpus >= need_gpus:
            num_fit[d] -= 1
            if num_fit[d] == 0:
                exhausted = True
    server.rank = math.inf if is_full else server.load
    _replay(servers, least_loaded, s)
    return exhausted


@inline_kernel
def add_tasks(job, i, s, entries, servers, server_jobs, server_entries, num_workers, num_ps):
    """Books tasks of job i on server s and returns the entry that holds them."""
    job.workers += num_workers
    job.ps += num_ps
    for e in range(job.num_entries):
        if entries[e].server == s:
            entries[e].workers += num_workers
            entries[e].ps += num_ps
            return e
    entry = entries[job.num_entries]
    entry.server = s
    entry.workers = num_workers
    entry.ps = num_ps
    server_jobs[s, servers[s].num_jobs] = i
    server_entries[s, servers[s].num_jobs] = job.num_entries
    servers[s].num_jobs += 1
    job.num_entries += 1
    return job.num_entries - 1


@inline_kernel
def can_train(job, architecture):
    """Whether the job has the tasks that a training step needs."""
    return job.workers > 0 and (job.ps > 0 or architecture != PS_WORKER)


@inline_kernel
def uses_network(job, architecture):
    """Whether the job's tasks exchange weights across servers."""
    return (
        job.num_entries > 1
        and (architecture == PS_WORKER or architecture == ALL_REDUCE)
        and can_train(job, architecture)
    )


@inline_kernel
def clear_allocations(env, jobs, active, servers, least_loaded, specs, demands, num_fit):
    """Gives every task back; what each job had stays in `last_workers` and `last_ps`."""
    for k in range(env.num_active):
        job = jobs[active[k]]
        job.workers = 0
        job.ps = 0
        job.num_entries = 0
        job.is_on_network = False
        job.stretch = 1.0
        job.speed = 0.0
        job.relative_speed = 0.0
        job.dominant_share = 0.0
        job.slot = -1
    env.free_cpus = 0
    env.free_gpus = 0
    for s in range(servers.shape[0]):
        server = servers[s]
        server.load = 0.0
        server.rank = 0.0
        server.free_cpus = specs[s].cpus
        server.free_gpus = specs[s].gpus
        server.num_jobs = 0
        server.link_use = 0.0
        env.free_cpus += specs[s].cpus
        env.free_gpus += specs[s].gpus
    # With equal ranks the leftmost leaf below a node wins.
    num_leaves = least_loaded.shape[0] // 2
    for leaf in range(num_leaves):
        least_loaded[num_leaves + leaf] = leaf if leaf < servers.shape[0] else -1
    for node in range(num_leaves - 1, 0, -1):
        least_loaded[node] = least_loaded[2 * node]
    for d in range(demands.shape[0]):
        num_fit[d] = demands[d].initial_fit
    env.speed_sum = 0.0
    env.slowdown_sum = 0.0
    env.busy_servers = 0
    env.pinned_server = -1
