"""What must hold in every state of a simulator; see `evaluation.invariants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.evaluation.recount import Recount
from dl2env.evaluation.violations import Claims
from dl2env.sim.features import NUM_GAINS, NUM_KINDS
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.estimate import estimated_speed, exact_estimate
from dl2env.speed.fitted import solve_fit, term_matrix
from dl2env.speed.parameters import SINGLE_SERVER

FIXED = ("specs", "types", "classes", "demands", "compute_s", "table", "type_features", "rules")
"""Fields of the state that never change."""


def check_state(sim: ClusterSimulator, envs: Sequence[int] | None = None) -> None:
    """Checks every counter, list, sum, mask and observation of environments against a recount.

    Of environments whose episode has ended only the jobs' fields are checked: servers and window are left as they were.

    Args:
        sim: The simulator.
        envs: Environments; default all that have been loaded.

    Raises:
        InvariantError: An invariant is violated.
    """
    _check_demands(sim)
    for b in range(sim.num_envs) if envs is None else envs:
        if sim.state.env["num_jobs"][b] == 0:
            continue  # never loaded
        held = check_lists(sim, b)
        if sim.is_done[b]:
            continue
        claims = Claims(b, int(sim.state.env["interval"][b]))
        recount = Recount(sim, b)
        _check_resources(sim, b, claims, recount)
        _check_server_lists(sim, b, claims, held)
        _check_estimate(sim, b, claims)
        _check_speeds(sim, b, claims, recount)
        _check_window(sim, b, claims, recount)
        _check_mask(sim, b, claims, recount)
        _check_observation(sim, b, claims, recount)


def check_lists(sim: ClusterSimulator, b: int) -> list[dict[int, int]]:
    """Checks what a recount starts from: the jobs' own fields and, unless the episode has ended, their lists of tasks.

    Returns:
        For each server, job -> which of the job's entries it is.
    """
    claims = Claims(b, int(sim.state.env["interval"][b]))
    claims.that(bool(sim.state.mask[b, -1]), "mask", "void is not legal")
    _check_job_fields(sim, b, claims)
    return [] if sim.is_done[b] else _check_entries(sim, b, claims)


def _check_demands(sim: ClusterSimulator) -> None:
    """The demand classes of the types are what their tasks need, and count the servers that can hold them empty."""
    state, claims = sim.state, Claims(None, None)
    groups = sim.config.cluster.servers
    for t, kind in enumerate(sim.speed.types):
        worker = np.array([kind["worker_cpus"], kind["worker_gpus"]])
        ps = np.array([kind["ps_cpus"], kind["ps_gpus"]])
        for name, units in (("worker", worker), ("ps", ps), ("bundle", worker + ps)):
            demand = state.demands[state.classes[t][name]]
            fit = sum(g.count for g in groups if g.cpus >= units[0] and g.gpus >= units[1])
            found, expected = demand.tolist(), (*units.tolist(), fit)
            claims.same("bookkeeping", f"demand class (CPUs, GPUs, servers) of a {name} of type {t}", found, expected)


def _check_job_fields(sim: ClusterSimulator, b: int, claims: Claims) -> None:
    """No job is lost, work is bounded by what there is to do, and times are in order."""
    state, rules = sim.state, sim.config.dynamics
    env, interval_s = state.env[b], rules.interval_s
    n, interval = int(env["num_jobs"]), int(env["interval"])
    jobs, every = state.jobs[b, :n], range(n)
    claims.that(0 <= interval <= rules.max_intervals, "time", f"interval {interval} of {rules.max_intervals}")
    claims.that(0 <= env["num_active"] <= env["next_job"] <= n, "jobs", "0 <= num_active <= next_job <= num_jobs fails")
    active = state.active[b, : int(env["num_active"])].tolist()
    finished = ~np.isnan(jobs["finish_s"])
    claims.same("jobs", "num_finished", int(env["num_finished"]), int(finished.sum()))
    unfinished = [i for i in range(int(env["next_job"])) if not finished[i]]
    claims.same("jobs", "active jobs (admitted, not finished)", active, unfinished)
    claims.all(
        ~finished[int(env["next_job"]) :], "jobs", "a job yet to come has not finished", every[env["next_job"] :]
    )
    total = len(active) + int(finished.sum()) + n - int(env["next_job"])
    claims.same("jobs", "active + finished + yet to come", total, n)

    done, work = jobs["epochs_done"], jobs["true_epochs"]
    claims.all((done >= 0) & (done <= work), "work", "0 <= epochs_done <= true_epochs", every)
    claims.all(finished == (done == work), "work", "a job has finished exactly if its work is done", every)
    started = ~np.isnan(jobs["start_s"])
    claims.all(started == (jobs["intervals_run"] > 0), "times", "start_s is set exactly if a job has trained", every)
    claims.all(started | ~finished, "times", "a finished job has started", every)
    claims.all((jobs["start_s"] >= jobs["arrival_s"])[started], "times", "start >= arrival", np.flatnonzero(started))
    done_jobs = np.flatnonzero(finished)
    ends = jobs[finished]
    claims.all(ends["finish_s"] >= ends["start_s"], "times", "finish >= start", done_jobs)
    claims.all(ends["finish_s"] > ends["arrival_s"], "times", "JCT > 0", done_jobs)
    now_s = interval * interval_s
    claims.all(ends["finish_s"] <= now_s * (1 + 1e-12), "times", f"finish <= now ({now_s:g} s)", done_jobs)
    claims.all((jobs["start_s"] < now_s)[started], "times", f"start < now ({now_s:g} s)", np.flatnonzero(started))
    most = np.maximum(jobs["intervals_run"] - 1, 0)
    claims.all((jobs["num_resizes"] >= 0) & (jobs["num_resizes"] <= most), "work", "0 <= resizes < intervals", every)
    claims.all(
        (jobs["intervals_run"] >= 0) & (jobs["intervals_run"] <= interval), "work", "intervals_run <= now", every
    )
    claims.close("work", "GPU seconds of all jobs", jobs["gpu_s"].sum(), env["used_gpu_s"])
    totals = np.array([state.specs["cpus"].sum(), state.specs["gpus"].sum()], np.float64) * now_s
    for name, most_s in zip(("used_cpu_s", "used_gpu_s"), totals, strict=True):
        claims.that(0 <= env[name] <= most_s * (1 + 1e-9), "capacity", f"{name} is {env[name]}, at most {most_s}")
    claims.that(0 <= env["num_intervals_full"] <= interval, "work", "num_intervals_full exceeds the intervals")
    if sim.is_done[b]:
        return
    came = int((jobs["arrival_s"] <= now_s).sum())
    claims.same("jobs", "next_job (all that have arrived are admitted)", int(env["next_job"]), came)
    # A step charges at once what it admits; after a load or a run of whole intervals the next step will charge it.
    if env["num_decisions"] == 0 or env["pending_wait"] != 0.0:
        is_new = (jobs["arrival_s"] > now_s - interval_s) | (env["num_decisions"] == 0)
        waits = ((now_s - jobs["arrival_s"]) / interval_s)[:came][is_new[:came]]
        claims.close("times", "waiting yet to be charged", env["pending_wait"], waits.sum())
    claims.that(env["pending_wait"] >= 0, "times", f"negative wait {env['pending_wait']}")


def _check_entries(sim: ClusterSimulator, b: int, claims: Claims) -> list[dict[int, int]]:
    """Each job's own list of tasks; returns, per server, job -> entry."""
    state = sim.state
    held: list[dict[int, int]] = [{} for _ in state.specs]
    for i in state.active[b, : int(state.env["num_active"][b])].tolist():
        job = state.jobs[b, i]
        kind = sim.speed.types[job["type"]]
        num_entries = int(job["num_entries"])
        claims.that(0 <= num_entries <= state.entries.shape[2], "entries", f"num_entries is {num_entries}", i)
        entries = state.entries[b, i, :num_entries]
        for e, (s, workers, ps) in enumerate(entries.tolist()):
            claims.that(0 <= s < len(held), "entries", f"a task on server {s} of {len(held)}", i)
            claims.that(i not in held[s], "entries", f"two entries for server {s}", i)
            claims.that(min(workers, ps) >= 0 < workers + ps, "entries", f"{workers} workers, {ps} PSs on {s}", i)
            held[s][i] = e
        for name, field, cap in (("workers", "workers", "max_workers"), ("ps", "ps", "max_ps")):
            count = int(job[name])
            claims.that(count <= kind[cap], "caps", f"{count} {name}, cap {kind[cap]}", i)
            total = int(entries[field].astype(np.int64).sum())
            claims.that(count == total, "entries", f"{name} is {count}, its entries hold {total}", i)
        on_one = kind["architecture"] not in SINGLE_SERVER or num_entries <= 1
        claims.that(on_one, "single-server", f"on {num_entries} servers, its type needs one", i)
    return held


def _check_server_lists(sim: ClusterSimulator, b: int, claims: Claims, held: list[dict[int, int]]) -> None:
    state = sim.state
    for s, jobs in enumerate(held):
        count = int(state.servers["num_jobs"][b, s])
        claims.same("entries", f"num_jobs of server {s}", count, len(jobs))
        listed = state.server_jobs[b, s, :count].tolist()
        claims.same("entries", f"jobs listed by server {s}", sorted(listed), sorted(jobs))
        for i, entry in zip(listed, state.server_entries[b, s, :count].tolist(), strict=True):
            claims.that(entry == jobs[i], "entries", f"server {s} points at entry {entry}, not {jobs[i]}", i)
    busy = sum(bool(jobs) for jobs in held)
    claims.same("bookkeeping", "busy_servers", int(state.env["busy_servers"][b]), busy)


def _check_resources(sim: ClusterSimulator, b: int, claims: Claims, recount: Recount) -> None:
    state = sim.state
    env, servers = state.env[b], state.servers[b]
    for r, name in enumerate(("cpus", "gpus")):
        over = np.flatnonzero(recount.free[:, r] < 0)[:1].tolist()
        for s in over:
            used, capacity = recount.used[s, r], recount.capacity[s, r]
            claims.that(False, "capacity", f"the tasks on server {s} take {used} {name} of {capacity}")
        claims.close("bookkeeping", f"free_{name} of a server", servers[f"free_{name}"], recount.free[:, r])
        claims.same("bookkeeping", f"free_{name}", int(env[f"free_{name}"]), int(recount.free[:, r].sum()))
    claims.close("load", "load of a server", servers["load"], recount.load)
    claims.close("load", "rank of a server", servers["rank"], recount.rank)
    _check_tree(state.least_loaded[b].tolist(), recount.rank, claims)
    claims.close("links", "link_use of a server", servers["link_use"], recount.link_use)
    claims.close("bookkeeping", "num_fit", state.num_fit[b], recount.num_fit)
    pinned = int(env["pinned_server"])
    claims.that(-1 <= pinned < len(servers), "bookkeeping", f"pinned_server is {pinned}")


def _check_tree(tree: list[int], rank: NDArray[np.float64], claims: Claims) -> None:
    """Each node of the tournament names the lowest rank below it, ties to the lowest id."""
    leaves = len(tree) // 2
    expected = [-1] * leaves + [s if s < len(rank) else -1 for s in range(leaves)]
    for node in range(leaves - 1, 0, -1):
        below = [s for s in expected[2 * node : 2 * node + 2] if s >= 0]
        expected[node] = min(below, key=lambda s: (rank[s], s), default=-1)
    claims.same("load", "tournament of the servers' ranks", tree[1:], expected[1:])


def _check_estimate(sim: ClusterSimulator, b: int, claims: Claims) -> None:
    """The table of estimated speeds is what the configuration says, and its best speeds are the best of it."""
    state, parameters, kind = sim.state, sim.speed, sim.config.estimate.kind
    e = b % len(state.estimate)
    table, exact = state.estimate[e], exact_estimate(parameters, sim.config)
    if kind == "exact":
        claims.close("estimate", "estimated times", table, exact)
    elif kind == "noisy":
        noise = sim.config.estimate.noise
        step_s, valid = table[..., 0], np.isfinite(exact[..., 0])
        ratio = np.divide(exact[..., 0], step_s, out=np.ones(step_s.shape), where=valid)
        within = np.abs(ratio - 1.0) <= noise * (1 + 1e-9)
        claims.that(bool((within & (np.isfinite(step_s) == valid)).all()), "estimate", f"off by more than {noise}")
        claims.close("estimate", "communication share", table[..., 1] * ratio, exact[..., 1])
    else:
        _check_fit(sim, b, claims, table, exact)
    speed = estimated_speed(parameters, np.where(table > 0, table, np.inf))
    caps = parameters.types["max_workers"][:, None, None], parameters.types["max_ps"][:, None, None]
    w, p = np.arange(speed.shape[1])[:, None], np.arange(speed.shape[2])
    best = np.where((w <= caps[0]) & (p <= caps[1]), speed, 0.0).max(axis=(1, 2))
    claims.close("estimate", "best_speed", state.best_speed[e], best)


def _check_fit(
    sim: ClusterSimulator, b: int, claims: Claims, table: NDArray[np.float64], exact: NDArray[np.float64]
) -> None:
    """The estimated times follow from the normal equations as they stand."""
    w, p = np.arange(table.shape[1])[1:, None], np.arange(table.shape[2])
    for t, kind in enumerate(sim.speed.types):
        theta = solve_fit(sim.state.fit[b, t])
        step_s = term_matrix(bool(kind["is_synchronous"]), float(kind["batch_size"]), w, p) @ theta
        valid = np.isfinite(exact[t, 1:, :, 0]) & (step_s > 0)
        found = np.where(valid, table[t, 1:, :, 0], 0.0)
        claims.close("estimate", f"fitted times of type {t}", found, np.where(valid, step_s, 0.0))


def _check_speeds(sim: ClusterSimulator, b: int, claims: Claims, recount: Recount) -> None:
    env, active = sim.state.env[b], recount.active
    jobs = recount.jobs[active]
    claims.close("links", "is_on_network", jobs["is_on_network"], recount.is_on_network, jobs=active)
    claims.close("links", "stretch", jobs["stretch"], recount.stretch, jobs=active)
    claims.close("speeds", "dominant_share", jobs["dominant_share"], recount.dominant_share, jobs=active)
    claims.close("speeds", "estimated speed", jobs["speed"], recount.estimated(recount.counts), jobs=active)
    relative = recount.relative(recount.counts)
    claims.close("speeds", "relative_speed", jobs["relative_speed"], relative, jobs=active)
    claims.close("speeds", "sum of relative speeds", env["speed_sum"], relative.sum())
    claims.close("links", "sum of slowdowns", env["slowdown_sum"], (1.0 - 1.0 / recount.stretch).sum())


def _check_window(sim: ClusterSimulator, b: int, claims: Claims, recount: Recount) -> None:
    state = sim.state
    shown: list[int] = [recount.active[k] for k in recount.slots]
    window = state.window[b].tolist()
    claims.same("window", "jobs in the slots", window, shown + [-1] * (len(window) - len(shown)))
    claims.same("window", "window_size", int(state.env["window_size"][b]), len(shown))
    slots = np.full(len(recount.jobs), -1)
    slots[shown] = np.arange(len(shown))
    claims.close("window", "slot", recount.jobs["slot"], slots, jobs=range(len(slots)))


def _check_mask(sim: ClusterSimulator, b: int, claims: Claims, recount: Recount) -> None:
    legal: NDArray[Any] = np.zeros((sim.window, 3), np.bool_)
    legal[: len(recount.slots)] = recount.is_legal[recount.slots]
    mask = sim.state.mask[b]
    for action in np.flatnonzero(mask[:-1] != legal.ravel())[:1].tolist():
        slot, kind = divmod(action, 3)
        job = int(sim.state.window[b, slot])
        what = ("a worker", "a parameter server", "a bundle")[kind]
        told = "legal" if mask[action] else "illegal"
        claims.that(False, "mask", f"action {action} ({what} for slot {slot}) is said to be {told}", job)
    claims.same("mask", "num_legal", int(sim.state.env["num_legal"][b]), int(legal.sum()))


def _check_observation(sim: ClusterSimulator, b: int, claims: Claims, recount: Recount) -> None:
    """The observation; of its net gains, each a recount of its own, one per state, in turn."""
    found = {name: values[0] for name, values in sim.observation([b]).items()}
    rows, cluster = recount.observation(sim.state.type_features)
    claims.close("observation", "obs_jobs", found["jobs"][:, :-NUM_GAINS], rows, tolerance=1e-5)
    claims.close("observation", "obs_cluster", found["cluster"], cluster, tolerance=1e-5)
    net, ahead = np.split(found["jobs"][:, -NUM_GAINS:], 2, axis=1)
    claims.that(bool((ahead >= net).all()), "observation", "a gain ahead is below the net gain")
    num_actions = NUM_KINDS * len(recount.slots)
    if num_actions > 0:
        slot, kind = divmod(int(sim.state.env["num_decisions"][b]) % num_actions, NUM_KINDS)
        expected = recount.net_gain(recount.slots[slot], kind)
        claims.close("observation", "net gain", net[slot, kind], expected, tolerance=1e-5)
