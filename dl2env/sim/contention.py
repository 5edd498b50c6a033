"""Kernels that predict, before a task is placed, how it would stretch the communication of its job and its neighbours.

They know what schedulers know: placements, link use and estimated speeds. Within a decision phase tasks are only added,
so a stretch can only grow.
"""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand, find_server_for_action, is_single_server
from dl2env.sim.speeds import estimated_speed, link_stretch
from dl2env.speed.parameters import ALL_REDUCE, PS_WORKER


@inline_kernel
def _tasks_on(job, entries, s):
    """Tasks of a job on server s."""
    for e in range(job.num_entries):
        if entries[e].server == s:
            return entries[e].workers + entries[e].ps
    return 0


@inline_kernel
def _added_use(job, job_type, entries, s, chosen, num_tasks):
    """Link use that a job on the network adds to server s by putting `num_tasks` tasks on server `chosen`."""
    tasks = num_tasks if s == chosen else 0
    if not job.is_on_network:  # tasks placed before count from now on
        tasks += _tasks_on(job, entries, s)
    return job_type.link_use * tasks


@inline_kernel
def _stretch_after(state, b, j, i, chosen, num_tasks):
    """Stretch of job j after `num_tasks` tasks of job i, which is or comes on the network, on server `chosen`."""
    other = state.jobs[b, j]
    own_use = state.types[other.type].link_use
    sharing = state.rules[0].link_sharing
    job = state.jobs[b, i]
    stretch = other.stretch
    for e in range(other.num_entries):
        entry = state.entries[b, j, e]
        added = _added_use(job, state.types[job.type], state.entries[b, i], entry.server, chosen, num_tasks)
        if added > 0.0:
            here = link_stretch(state.servers[b, entry.server], entry, own_use, sharing) + sharing * added
            stretch = max(stretch, here)
    return stretch


@inline_kernel
def loss_of_others(state, b, i, chosen, num_tasks):
    """Sum of the relative speeds that other jobs lose; arguments as for `_stretch_after`."""
    job = state.jobs[b, i]
    entries = state.entries[b, i]
    e = b % state.best_speed.shape[0]
    loss = 0.0
    for x in range(job.num_entries + 1):
        s = chosen
        if x < job.num_entries:
            s = entries[x].server
            if job.is_on_network or s == chosen:
                continue  # nothing changes there, or comes last
        for m in range(state.servers[b, s].num_jobs):
            j = state.server_jobs[b, s, m]
            other = state.jobs[b, j]
            is_counted = j != i and other.is_on_network and state.best_speed[e, other.type] > 0.0
            for y in range(0 if job.is_on_network else x):
                earlier = entries[y].server
                if earlier != chosen and _tasks_on(other, state.entries[b, j], earlier) > 0:
                    is_counted = False  # counted there
            if is_counted:
                stretch = _stretch_after(state, b, j, i, chosen, num_tasks)
                speed = estimated_speed(
                    state.estimate[e, other.type], state.types[other.type], other.workers, other.ps, stretch
                )
                loss += other.relative_speed - speed / state.best_speed[e, other.type]
    return loss


@inline_kernel
def own_stretch_after(state, b, i, chosen):
    """Stretch of job i when a task of it on server `chosen` keeps or puts it on the network."""
    job = state.jobs[b, i]
    entries = state.entries[b, i]
    sharing = state.rules[0].link_sharing
    own_use = state.types[job.type].link_use if job.is_on_network else 0.0  # what servers have booked
    server = state.servers[b, chosen]
    own = own_use * _tasks_on(job, entries, chosen)
    stretch = max(job.stretch, 1.0 + sharing * max(server.link_use - own, 0.0))
    if not job.is_on_network:
        for e in range(job.num_entries):
            stretch = max(stretch, link_stretch(state.servers[b, entries[e].server], entries[e], own_use, sharing))
    return stretch


@inline_kernel
def is_on_network_after(job, job_type, entries, s, kind):
    """Whether an action on server s leaves the job with tasks that exchange weights across servers."""
    if job.num_entries == 0 or (job.num_entries == 1 and entries[0].server == s):
        return False
    if job_type.architecture == ALL_REDUCE:
        return True
    has_both = (kind != PS or job.workers > 0) and (kind != WORKER or job.ps > 0)
    return job_type.architecture == PS_WORKER and has_both


@inline_kernel
def effect_of_task(state, b, i, kind, s, workers, num_ps):
    """What the task(s) of an action on server s would do to the estimated speeds.

    Args:
        state: The batch.
        b: Environment.
        i: Job.
        kind: Kind of the action.
        s: Server of the task(s).
        workers: Workers of the job by which to judge its speed, those of the action included.
        num_ps: Parameter servers likewise.

    Returns:
        (relative speed of the job afterwards, sum of the relative speeds that other jobs lose, whether the job's links
        are shared afterwards, its stretch).
    """
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    stretch = 1.0
    loss = 0.0
    is_shared = state.rules[0].link_sharing > 0.0 and is_on_network_after(job, job_type, state.entries[b, i], s, kind)
    if is_shared:
        stretch = own_stretch_after(state, b, i, s)
        loss = loss_of_others(state, b, i, s, 2 if kind == BUNDLE else 1)
    e = b % state.best_speed.shape[0]
    best_speed = state.best_speed[e, job.type]
    speed = estimated_speed(state.estimate[e, job.type], job_type, workers, num_ps, stretch)
    return speed / best_speed if best_speed > 0.0 else 0.0, loss, is_shared, stretch


@inline_kernel
def _can_take(state, b, i, kind, num_actions):
    """Whether a job's caps and the free units (of its server, where it may use one only) allow several actions."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    if job.workers + (0 if kind == PS else num_actions) > job_type.max_workers:
        return False
    if job.ps + (0 if kind == WORKER else num_actions) > job_type.max_ps:
        return False
    cpus, gpus = action_demand(job_type, kind)
    free_cpus = state.env[b].free_cpus
    free_gpus = state.env[b].free_gpus
    if is_single_server(job_type.architecture):
        if job.num_entries == 0:
            return False  # which server is not known before the first task
        server = state.servers[b, state.entries[b, i, 0].server]
        free_cpus = server.free_cpus
        free_gpus = server.free_gpus
    return free_cpus >= num_actions * cpus and free_gpus >= num_actions * gpus


@inline_kernel
def gain_ahead(state, b, i, kind, weight, look_ahead, is_shared, stretch, loss):
    """The largest net gain per action of 2, 4, ... actions of a kind that are taken together.

    The tasks after the first are taken to meet, and to do to others, what the first one does on its server. Where that
    one does not put the job on the network yet, others do, and it is looked at as if it did.

    Args:
        state: The batch.
        b: Environment.
        i: Job.
        kind: Kind of the actions.
        weight: Weight of the job.
        look_ahead: How many actions at most, a power of 2.
        is_shared: Whether the job's links are shared after the first action.
        stretch: Stretch of the job after it.
        loss: Loss of others by it.
    """
    best = -math.inf
    num_actions = 2
    if look_ahead < 2 or not _can_take(state, b, i, kind, num_actions):
        return best
    rules = state.rules[0]
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    entries = state.entries[b, i]
    if not is_shared and rules.link_sharing > 0.0 and not is_single_server(job_type.architecture):
        s = find_server_for_action(
            state.servers[b],
            state.least_loaded[b],
            job,
            job_type,
            entries,
            kind,
            rules.placement,
            state.env[b].pinned_server,
        )
        stretch = own_stretch_after(state, b, i, s)
        loss = loss_of_others(state, b, i, s, 2 if kind == BUNDLE else 1)
    e = b % state.best_speed.shape[0]
    best_speed = state.best_speed[e, job.type]
    if best_speed <= 0.0:
        return best
    while num_actions <= look_ahead and _can_take(state, b, i, kind, num_actions):
        workers = job.workers + (0 if kind == PS else num_actions)
        num_ps = job.ps + (0 if kind == WORKER else num_actions)
        speed = estimated_speed(state.estimate[e, job.type], job_type, workers, num_ps, stretch)
        gain = weight * (speed / best_speed - job.relative_speed)
        best = max(best, gain / num_actions - loss)
        num_actions *= 2
    return best
