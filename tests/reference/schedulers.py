"""The heuristics of the released DL2 code, for the reference simulator in faithful mode.

Each gives every active job its tasks of the present interval. They start from empty servers (no initial bundle) and see
all active jobs, not only the window. Ties are broken by job index, which follows (arrival, id).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tests.reference.cluster import Demand, Job
from tests.reference.simulator import ReferenceSimulator

_STARVING = -2147483647.0  # key of a job that lacks a worker or a PS


def drf(sim: ReferenceSimulator) -> None:
    """Bundles to the job with the smallest dominant share; everything stops at the first failure."""
    heap = [(0.0, job.index) for job in sim.active]
    while heap:
        _, index = heapq.heappop(heap)
        job = sim.jobs[index]
        if not sim.allocate(job, 1, 1):
            return
        if _has_room(job):
            heapq.heappush(heap, (sim.cluster.dominant_share(job), index))


def fifo(sim: ReferenceSimulator) -> None:
    """As many bundles as a job may have, in arrival order; everything stops at the first failure."""
    _fill_in_order(sim, sim.active)


def srtf(sim: ReferenceSimulator) -> None:
    """Like `fifo`, but by remaining *fraction* of the estimated epochs (what the released code calls SRTF)."""
    _fill_in_order(sim, sorted(sim.active, key=lambda job: (job.remaining_fraction, job.index)))


def tetris(sim: ReferenceSimulator) -> None:
    """Per server in id order, bundles to the job whose demand fits best, plus a bonus for remaining work."""
    for server in sim.cluster.servers:
        while True:
            free = Demand(server.cpus - server.used_cpus, server.gpus - server.used_gpus)
            alignments, sizes = {}, {}
            for job in sim.active:
                demand = job.type.demand(1, 1)
                alignments[job.index] = free.cpus * demand.cpus + free.gpus * demand.gpus
                sizes[job.index] = (demand.cpus + demand.gpus) * job.remaining_fraction
            candidates = [job for job in sim.active if _has_room(job)]
            mean_size = sum(sizes.values())
            if not candidates or mean_size == 0.0:
                break
            weight = sum(alignments.values()) / mean_size
            if weight == 0.0:
                break
            best = max(candidates, key=lambda job: (alignments[job.index] + weight * sizes[job.index], -job.index))
            if not sim.allocate_on(best, server, 1, 1):
                break


def optimus(sim: ReferenceSimulator) -> None:
    """One task at a time where it saves most remaining intervals under the true (measured) speed."""
    table = sim.true_speed.table
    assert table is not None, "released Optimus reads a measured table"

    def intervals_left(job: Job, workers: int, ps: int) -> float:
        speed = float(table[job.type.index, workers, ps])
        epochs_left = job.epochs - job.epochs_done
        return epochs_left / (speed * sim.rules.interval_s / job.samples_per_epoch)

    def best_role(job: Job) -> tuple[float, tuple[int, int]]:
        """Heap key and the (workers, PSs) to add."""
        if job.workers == 0:
            return _STARVING, (1, 0)
        if job.ps == 0:
            return _STARVING, (0, 1)
        now = intervals_left(job, job.workers, job.ps)
        by_worker = now - intervals_left(job, job.workers + 1, job.ps)
        by_ps = now - intervals_left(job, job.workers, job.ps + 1)
        return (-by_ps, (0, 1)) if by_ps >= by_worker else (-by_worker, (1, 0))

    heap = [(best_role(job)[0], job.index) for job in sim.active]
    heapq.heapify(heap)
    while heap:
        key, index = heapq.heappop(heap)
        job = sim.jobs[index]
        if key >= 0.0:
            return
        workers, ps = best_role(job)[1]
        if job.workers + workers > job.type.max_workers or job.ps + ps > job.type.max_ps:
            continue  # dropped, even if the other role could grow
        if not sim.allocate(job, workers, ps):
            return
        heapq.heappush(heap, (best_role(job)[0], index))


RELEASED: dict[str, Callable[[ReferenceSimulator], None]] = {
    "DRF": drf,
    "SRTF": srtf,
    "FIFO": fifo,
    "Tetris": tetris,
    "Optimus": optimus,
}


def _has_room(job: Job) -> bool:
    return job.workers < job.type.max_workers and job.ps < job.type.max_ps


def _fill_in_order(sim: ReferenceSimulator, jobs: list[Job]) -> None:
    for job in jobs:
        while _has_room(job):
            if not sim.allocate(job, 1, 1):
                return
