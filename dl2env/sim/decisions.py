"""Kernels of the decision phase: the window, the action mask, and what one decision does."""

from __future__ import annotations

from dl2env.jit import inline_kernel, kernel
from dl2env.sim.features import write_job_allocation, write_job_progress, write_job_static
from dl2env.sim.placement import (
    BUNDLE,
    PS,
    WORKER,
    action_demand,
    add_tasks,
    find_server_for_action,
    is_single_server,
    take,
    uses_network,
)
from dl2env.sim.speeds import link_stretch, refresh_speed
from dl2env.sim.state import LEAST_LOADED_SINGLE

FAILED, PLACED, EXHAUSTED = range(3)
"""Outcomes of `place`."""


@inline_kernel
def is_below_cap(job, job_type, kind):
    """Whether the action keeps the job's counts within its type's caps."""
    if kind != PS and job.workers >= job_type.max_workers:
        return False
    return kind == WORKER or job.ps < job_type.max_ps


@inline_kernel
def is_legal(state, b, i, kind):
    """Whether an action of job i is legal in environment b; the only place that decides it."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    if not is_below_cap(job, job_type, kind):
        return False
    rules = state.rules[0]
    if not rules.mask_resources:
        return True
    if rules.placement == LEAST_LOADED_SINGLE or (is_single_server(job_type.architecture) and job.num_entries > 0):
        return (
            find_server_for_action(
                state.servers[b],
                state.least_loaded[b],
                job,
                job_type,
                state.entries[b, i],
                kind,
                rules.placement,
                -1,
            )
            >= 0
        )
    classes = state.classes[job.type]
    demand_class = classes.worker
    if kind == PS:
        demand_class = classes.ps
    elif kind == BUNDLE:
        demand_class = classes.bundle
    return state.num_fit[b, demand_class] > 0


@inline_kernel
def write_slot_mask(state, b, slot):
    """Writes the mask of one job slot and keeps the count of legal job actions."""
    mask = state.mask[b]
    i = state.window[b, slot]
    change = 0
    for kind in range(3):
        a = 3 * slot + kind
        legal = i >= 0 and is_legal(state, b, i, kind)
        change += int(legal) - int(mask[a])
        mask[a] = legal
    state.env[b].num_legal += change


@inline_kernel
def write_row(state, b, i):
    """Writes the observation row of job i, if it is in the window."""
    job = state.jobs[b, i]
    if job.slot < 0:
        return
    t = job.type
    e = b % state.best_speed.shape[0]
    write_job_allocation(
        state.obs_jobs[b, job.slot],
        state.type_features.shape[1],
        job,
        state.types[t],
        state.estimate[e, t],
        state.best_speed[e, t],
        state.rules[0].max_workers,
        state.rules[0].max_ps,
    )


@kernel
def fill_window(state, b):
    """Chooses the jobs of the window and writes its rows and mask."""
    env = state.env[b]
    rules = state.rules[0]
    jobs = state.jobs[b]
    active = state.active[b]
    window = state.window[b]
    filled = 0
    for k in range(env.num_active):
        i = active[k]
        job = jobs[i]
        job.slot = -1
        job_type = state.types[job.type]
        capped = job.workers >= job_type.max_workers and job.ps >= job_type.max_ps
        if filled < rules.window and not (rules.window_skips_capped and capped):
            window[filled] = i
            job.slot = filled
            filled += 1
    e = b % state.best_speed.shape[0]
    num_type_features = state.type_features.shape[1]
    for slot in range(rules.window):
        if slot < filled:
            job = jobs[window[slot]]
            row = state.obs_jobs[b, slot]
            write_job_static(
                row,
                job,
                state.types[job.type],
                state.type_features[job.type],
                env.interval,
                rules,
                state.specs.shape[0],
            )
            write_job_progress(row, num_type_features, job, state.best_speed[e, job.type], rules.interval_s)
            write_row(state, b, window[slot])
        else:
            window[slot] = -1
            if slot < env.window_size:
                state.obs_jobs[b, slot, :] = 0.0
        write_slot_mask(state, b, slot)
    env.window_size = filled


@inline_kernel
def spread_stretch(state, b, s, source):
    """Brings the stretch of the jobs that communicate over server s's link up to date, except that of job `source`.

    Within an interval tasks are only added, so a job's stretch can only grow.
    """
    env = state.env[b]
    server = state.servers[b, s]
    sharing = state.rules[0].link_sharing
    e = b % state.best_speed.shape[0]
    for m in range(server.num_jobs):
        j = state.server_jobs[b, s, m]
        job = state.jobs[b, j]
        if j == source or not job.is_on_network:
            continue
        job_type = state.types[job.type]
        stretch = link_stretch(server, state.entries[b, j, state.server_entries[b, s, m]], job_type.link_use, sharing)
        if stretch > job.stretch:
            env.slowdown_sum += 1.0 / job.stretch - 1.0 / stretch
            job.stretch = stretch
            refresh_speed(env, job, job_type, state.estimate[e, job.type], state.best_speed[e, job.type])
            write_row(state, b, j)


@inline_kernel
def use_links(state, b, i, entry, num_tasks):
    """Books the link use of job i's newest tasks, and what it does to the stretch of the job and of its neighbours."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    if not uses_network(job, job_type.architecture):
        return
    first = entry
    last = entry
    if not job.is_on_network:  # tasks placed before count from now on
        job.is_on_network = True
        first = 0
        last = job.num_entries - 1
    sharing = state.rules[0].link_sharing
    stretch = job.stretch
    for e in range(first, last + 1):
        own = state.entries[b, i, e]
        server = state.servers[b, own.server]
        added = num_tasks if first == last else own.workers + own.ps
        server.link_use += job_type.link_use * added
        stretch = max(stretch, link_stretch(server, own, job_type.link_use, sharing))
    state.env[b].slowdown_sum += 1.0 / job.stretch - 1.0 / stretch
    job.stretch = stretch
    if sharing > 0.0:
        for e in range(first, last + 1):
            spread_stretch(state, b, state.entries[b, i, e].server, i)


@inline_kernel
def place(state, b, i, kind):
    """Places the task(s) of an action and updates links, estimated speeds and the rows of all jobs it touches.

    Returns:
        FAILED (no server found, nothing changed), PLACED, or EXHAUSTED (placed, and now no server fits some demand).
    """
    env = state.env[b]
    rules = state.rules[0]
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    servers = state.servers[b]
    least_loaded = state.least_loaded[b]
    entries = state.entries[b, i]
    pinned = env.pinned_server
    s = find_server_for_action(servers, least_loaded, job, job_type, entries, kind, rules.placement, pinned)
    if s < 0:
        return FAILED
    if servers[s].num_jobs == 0:
        env.busy_servers += 1
    cpus, gpus = action_demand(job_type, kind)
    exhausted = take(env, servers, least_loaded, state.specs, s, cpus, gpus, rules, state.demands, state.num_fit[b])
    num_workers = int(kind != PS)
    num_ps = int(kind != WORKER)
    entry = add_tasks(job, i, s, entries, servers, state.server_jobs[b], state.server_entries[b], num_workers, num_ps)
    share = 0.0
    if rules.total_cpus > 0:
        share = (job.workers * job_type.worker_cpus + job.ps * job_type.ps_cpus) / rules.total_cpus
    if rules.total_gpus > 0:
        share = max(share, (job.workers * job_type.worker_gpus + job.ps * job_type.ps_gpus) / rules.total_gpus)
    job.dominant_share = share
    use_links(state, b, i, entry, num_workers + num_ps)
    e = b % state.best_speed.shape[0]
    refresh_speed(env, job, job_type, state.estimate[e, job.type], state.best_speed[e, job.type])
    write_row(state, b, i)
    return EXHAUSTED if exhausted else PLACED


@inline_kernel
def decide(state, b, i, kind):
    """Places an action's task(s) and brings the window and the mask up to date; False when it failed."""
    outcome = place(state, b, i, kind)
    if outcome == FAILED:
        return False
    env = state.env[b]
    rules = state.rules[0]
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    if rules.window_skips_capped and job.workers >= job_type.max_workers and job.ps >= job_type.max_ps:
        fill_window(state, b)
    elif (outcome == EXHAUSTED and rules.mask_resources) or rules.refresh_whole_mask:
        for slot in range(env.window_size):
            write_slot_mask(state, b, slot)
    elif job.slot >= 0:
        write_slot_mask(state, b, job.slot)
    return True
