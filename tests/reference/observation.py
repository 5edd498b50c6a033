"""Observation of the reference simulator, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tests.reference.cluster import Job
from tests.reference.speed import Links

if TYPE_CHECKING:
    from tests.reference.simulator import ReferenceSimulator

NUM_JOB_COLUMNS = 23
NUM_CLUSTER_COLUMNS = 8


def observe(sim: ReferenceSimulator) -> dict[str, NDArray[np.float64]]:
    """`jobs` (J, K + 23), zeros in empty slots, and `cluster` (8,)."""
    links = sim.links()
    jobs = np.zeros((sim.config.observation.window, sim.type_features.shape[1] + NUM_JOB_COLUMNS))
    for slot, job in enumerate(sim.window):
        jobs[slot] = [*sim.type_features[job.type.index], *_job_columns(sim, job, links)]
    return {"jobs": jobs, "cluster": np.array(_cluster_columns(sim, links))}


def _job_columns(sim: ReferenceSimulator, job: Job, links: Links) -> list[float]:
    kind, workers, ps = job.type, job.workers, job.ps
    estimate = sim.estimated_speed
    stretch = links.job_stretch(job)
    relative = estimate.relative(kind, workers, ps, stretch)

    def gain(more_workers: int, more_ps: int) -> float:
        if workers + more_workers > kind.max_workers or ps + more_ps > kind.max_ps:
            return 0.0
        return _clip(estimate.relative(kind, workers + more_workers, ps + more_ps, stretch) - relative, -1.0, 1.0)

    age = (sim.now_s - job.arrival_s) / sim.rules.interval_s
    best = estimate.best[kind.index]
    ideal_s = (job.epochs - job.epochs_done) * job.samples_per_epoch / best if best > 0.0 else 0.0
    ideal_intervals = max(0.0, ideal_s / sim.rules.interval_s)
    return [
        1.0,
        age / (age + 10.0),
        job.intervals_run / (job.intervals_run + 10.0),
        min(_demand(sim, job, 1, 0), 1.0),
        min(_demand(sim, job, 0, 1), 1.0),
        _clip(job.remaining_fraction, 0.0, 1.0),
        ideal_intervals / (ideal_intervals + 5.0),
        sim.cluster.dominant_share(job),
        workers / sim.config.workload.max_workers,
        ps / sim.config.workload.max_ps if sim.config.workload.max_ps > 0 else 0.0,
        _clip(relative, 0.0, 1.0),
        gain(1, 0),
        gain(0, 1),
        gain(1, 1),
        estimate.communication_share(kind, workers, ps, stretch),
        1.0 - 1.0 / stretch,
        float(job.is_on_network),
        *(_per_share(sim, job, tasks, sim.net_gain(job, *tasks)) for tasks in ((1, 0), (0, 1), (1, 1))),
        *(_per_share(sim, job, tasks, sim.gain_ahead(job, *tasks)) for tasks in ((1, 0), (0, 1), (1, 1))),
    ]


def _demand(sim: ReferenceSimulator, job: Job, workers: int, ps: int) -> float:
    """Share of an average server."""
    demand, cluster = job.type.demand(workers, ps), sim.cluster
    num_servers = len(cluster.servers)
    by_cpu = demand.cpus / (cluster.total_cpus / num_servers) if cluster.total_cpus else 0.0
    by_gpu = demand.gpus / (cluster.total_gpus / num_servers) if cluster.total_gpus else 0.0
    return max(by_cpu, by_gpu)


def _per_share(sim: ReferenceSimulator, job: Job, tasks: tuple[int, int], gain: float) -> float:
    """A gain of all jobs' speeds, squashed in units of what the tasks take."""
    return gain / (abs(gain) + 0.1 * _demand(sim, job, *tasks) + 1e-6)


def _cluster_columns(sim: ReferenceSimulator, links: Links) -> list[float]:
    num_slots = sim.config.observation.window
    num_outside = len(sim.active) - len(sim.window)
    relative = sim.relative_speeds()
    used_cpus, used_gpus = sim.cluster.utilisation()
    busy = {server_id for job in sim.jobs for server_id in job.tasks}
    return [
        1.0 - used_cpus,
        1.0 - used_gpus,
        len(sim.window) / num_slots,
        num_outside / (num_slots + num_outside),
        sim.interval / (sim.interval + 100.0),
        _mean([relative[job.index] for job in sim.active]),
        _mean([1.0 - 1.0 / links.job_stretch(job) for job in sim.active]),
        len(busy) / len(sim.cluster.servers),
    ]


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
