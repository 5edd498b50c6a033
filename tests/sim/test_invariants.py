"""What holds at every decision of every world: resources are conserved, counters equal recounts, masks are right."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE, PS_WORKER, SINGLE_SERVER
from tests.schedulers.worlds import random_states

WORKER, PS, BUNDLE = range(3)
Tasks = dict[int, dict[int, tuple[int, int]]]  # job -> server -> (workers, PSs)


def held_tasks(sim: ClusterSimulator, b: int) -> Tasks:
    """Where the tasks of the active jobs are, by the jobs' own records."""
    env, jobs, entries = sim.state.env[b], sim.state.jobs[b], sim.state.entries[b]
    held: Tasks = {}
    for i in sim.state.active[b, : env["num_active"]].tolist():
        placed = [tuple(entry.tolist()) for entry in entries[i, : jobs[i]["num_entries"]]]
        held[i] = {server: (workers, ps) for server, workers, ps in placed}
        assert len(held[i]) == len(placed), "two entries of one server"
        assert all(workers + ps > 0 for workers, ps in held[i].values())
        assert sum(workers for workers, _ in held[i].values()) == jobs[i]["workers"]
        assert sum(ps for _, ps in held[i].values()) == jobs[i]["ps"]
    return held


def check_resources(sim: ClusterSimulator, b: int, held: Tasks) -> None:
    """Free plus held is the capacity of every server and of the cluster; counters of servers equal recounts."""
    state, types = sim.state, sim.state.types
    env, servers, specs = state.env[b], state.servers[b], state.specs
    taken = np.zeros((len(specs), 2), int)
    link_use = np.zeros(len(specs))
    jobs_there: list[set[int]] = [set() for _ in specs]
    for i, places in held.items():
        job_type = types[state.jobs[b, i]["type"]]
        total = [sum(tasks[role] for tasks in places.values()) for role in (0, 1)]
        networked = len(places) > 1 and (
            job_type["architecture"] == ALL_REDUCE or (job_type["architecture"] == PS_WORKER and min(total) > 0)
        )
        assert state.jobs[b, i]["is_on_network"] == networked
        assert len(places) <= 1 or job_type["architecture"] not in SINGLE_SERVER
        for s, (workers, ps) in places.items():
            taken[s, 0] += workers * job_type["worker_cpus"] + ps * job_type["ps_cpus"]
            taken[s, 1] += workers * job_type["worker_gpus"] + ps * job_type["ps_gpus"]
            link_use[s] += networked * job_type["link_use"] * (workers + ps)
            jobs_there[s].add(i)
    free = np.stack([servers["free_cpus"], servers["free_gpus"]], axis=1)
    capacity = np.stack([specs["cpus"], specs["gpus"]], axis=1)
    assert (free >= 0).all()
    np.testing.assert_array_equal(free + taken, capacity)
    assert (env["free_cpus"], env["free_gpus"]) == tuple(free.sum(axis=0))
    np.testing.assert_allclose(servers["link_use"], link_use, atol=1e-9)
    for s, jobs in enumerate(jobs_there):
        listed = state.server_jobs[b, s, : servers[s]["num_jobs"]].tolist()
        assert sorted(listed) == sorted(jobs)
        for i, entry in zip(listed, state.server_entries[b, s], strict=False):
            assert state.entries[b, i, entry]["server"] == s
    assert env["busy_servers"] == sum(map(bool, jobs_there))
    for demand, count in zip(state.demands, state.num_fit[b], strict=True):
        assert count == ((free[:, 0] >= demand["cpus"]) & (free[:, 1] >= demand["gpus"])).sum()


def check_sums(sim: ClusterSimulator, b: int, held: Tasks) -> None:
    """Sums over jobs that are kept up to date step by step."""
    env, jobs = sim.state.env[b], sim.state.jobs[b][list(held)]
    np.testing.assert_allclose(env["speed_sum"], jobs["relative_speed"].sum(), atol=1e-9)
    np.testing.assert_allclose(env["slowdown_sum"], (1.0 - 1.0 / jobs["stretch"]).sum(), atol=1e-9)
    assert (jobs["stretch"] >= 1.0).all()


def check_mask(sim: ClusterSimulator, b: int, held: Tasks) -> None:
    """The mask equals legality by trying every server."""
    mask, window = sim.action_masks()[b], sim.state.window[b]
    expected = [kind_is_legal(sim, b, i, kind, held) for i in window.tolist() for kind in range(3)]
    assert mask.tolist() == [*expected, True]
    assert sim.state.env[b]["num_legal"] == sum(expected)


def kind_is_legal(sim: ClusterSimulator, b: int, i: int, kind: int, held: Tasks) -> bool:
    if i < 0:
        return False
    job = sim.state.jobs[b, i]
    job_type = sim.state.types[job["type"]]
    if kind != PS and job["workers"] >= job_type["max_workers"]:
        return False
    if kind != WORKER and job["ps"] >= job_type["max_ps"]:
        return False
    if not sim.config.dynamics.mask_resources:
        return True
    servers = sim.state.servers[b]
    allowed = list(range(len(servers)))
    if job_type["architecture"] in SINGLE_SERVER and held[i]:
        allowed = list(held[i])
    elif sim.config.dynamics.placement == "least_loaded_single":
        allowed = [int(np.argmin(servers["load"]))]
    cpus = (kind != PS) * job_type["worker_cpus"] + (kind != WORKER) * job_type["ps_cpus"]
    gpus = (kind != PS) * job_type["worker_gpus"] + (kind != WORKER) * job_type["ps_gpus"]
    return any(servers[s]["free_cpus"] >= cpus and servers[s]["free_gpus"] >= gpus for s in allowed)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_resources_are_conserved_and_counters_are_right(seed: int) -> None:
    for sim, _, _ in random_states(seed):
        for b in np.flatnonzero(~sim.is_done).tolist():
            held = held_tasks(sim, b)
            check_resources(sim, b, held)
            check_sums(sim, b, held)
            check_mask(sim, b, held)
