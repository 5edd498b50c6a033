"""How fast a placed job trains, and how fast schedulers believe it trains."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, SpeedConfig
from dl2env.speed.parameters import ALL_REDUCE, LOCAL_PS, PEARL, PS_WORKER, SINGLE, SpeedParameters
from tests.reference.cluster import Cluster, Job, JobType


class Links:
    """Whose tasks keep which server's link busy at one moment.

    Args:
        jobs: Every job that holds tasks.
        num_servers: Number of servers.
        link_sharing: Strength with which other jobs' link use stretches communication.
        on_network: A job that counts as being on the network, whatever its tasks.
    """

    def __init__(self, jobs: list[Job], num_servers: int, link_sharing: float, on_network: Job | None = None) -> None:
        self.on_network = on_network
        self.users: list[list[Job]] = [[] for _ in range(num_servers)]
        self.link_sharing = link_sharing
        for job in jobs:
            if self.counts(job):
                for server_id in job.tasks:
                    self.users[server_id].append(job)

    def counts(self, job: Job) -> bool:
        """Whether the job exchanges weights across servers."""
        return job.is_on_network or job is self.on_network

    def stretch(self, server_id: int, job: Job) -> float:
        """Factor by which the job's communication over the server's link takes longer."""
        others = [user for user in self.users[server_id] if user is not job]
        use = sum(user.type.link_use * (user.tasks[server_id].workers + user.tasks[server_id].ps) for user in others)
        return 1.0 + self.link_sharing * use

    def job_stretch(self, job: Job) -> float:
        """The largest stretch over the job's servers, 1 off the network."""
        if not self.counts(job):
            return 1.0
        return max(self.stretch(server_id, job) for server_id in job.tasks)


class TrueSpeed:
    """Samples/s of placed jobs."""

    def __init__(
        self, cluster: Cluster, config: ClusterConfig, speed: SpeedConfig, parameters: SpeedParameters
    ) -> None:
        self.cluster = cluster
        self.pcie_group = config.pcie_group
        self.is_ideal_overlap = speed.overlap == "ideal"
        self.table = parameters.table if speed.model == "measured" else None

    def speed(self, job: Job, links: Links) -> float:
        """Samples/s of the job under its placement, 0 when it cannot train."""
        workers, ps = job.workers, job.ps
        if not job.can_train:
            return 0.0
        if self.table is not None:
            return float(self.table[job.type.index, workers, ps])
        samples = job.type.batch_size if job.type.is_synchronous else workers * job.type.batch_size
        return samples / self.step_s(job, links)

    def step_s(self, job: Job, links: Links) -> float:
        """Seconds of one training step of a job that can train."""
        kind, workers, ps = job.type, job.workers, job.ps
        batch_fraction = 1.0 / workers if kind.is_synchronous else 1.0

        replicas = max(tasks.workers for tasks in job.tasks.values())
        pcie_sharers = min(replicas, self.pcie_group) if self.pcie_group > 0 else 1
        input_s = kind.input_s * batch_fraction * pcie_sharers

        gpu_kinds = {self.cluster.servers[s].gpu_kind for s, tasks in job.tasks.items() if tasks.workers > 0}
        compute_s = max(kind.compute_s[gpu_kind] for gpu_kind in gpu_kinds) * batch_fraction

        weights_s = self.weights_s(job, links)
        coordination_s = kind.fixed_s + kind.worker_cost_s * workers + kind.ps_cost_s * ps
        if self.is_ideal_overlap:
            return max(input_s, compute_s, weights_s) + coordination_s
        return input_s + compute_s + weights_s + coordination_s

    @staticmethod
    def weights_s(job: Job, links: Links) -> float:
        """Seconds per step in which gradients and weights travel."""
        kind, workers, ps = job.type, job.workers, job.ps
        is_spread = len(job.tasks) >= 2
        if kind.architecture == PS_WORKER:
            ethernet_s, exchange_stretch, service_stretch = 0.0, 1.0, 1.0
            if is_spread:
                ethernet_s = kind.ethernet_s * max(
                    links.stretch(s, job) * (t.workers * (ps - t.ps) + t.ps * (workers - t.workers)) / ps
                    for s, t in job.tasks.items()
                )
                exchange_stretch = max(links.stretch(s, job) for s, t in job.tasks.items() if t.workers > 0)
                service_stretch = max(links.stretch(s, job) for s, t in job.tasks.items() if t.ps > 0)
            exchange_s = kind.exchange_s * exchange_stretch
            service_s = kind.ps_service_s * workers / ps * service_stretch
            return ethernet_s + kind.weight_pcie_s + exchange_s + service_s
        if kind.architecture == ALL_REDUCE:
            if workers == 1:
                return 0.0
            if not is_spread:
                return kind.nvlink_s
            return kind.ethernet_s * max(links.stretch(s, job) for s in job.tasks) + kind.nvlink_s
        if kind.architecture == LOCAL_PS:
            return kind.weight_pcie_s
        if kind.architecture == PEARL:
            return kind.nvlink_s
        assert kind.architecture == SINGLE
        return 0.0


class EstimatedSpeed:
    """What schedulers believe.

    Args:
        table: (T, W + 2, P + 2, 2) step seconds and, of these, communication seconds.
        types: Job types.
    """

    def __init__(self, table: NDArray[np.float64], types: list[JobType]) -> None:
        self.table = table
        self.best = [self._best(kind) for kind in types]

    def _best(self, kind: JobType) -> float:
        ps_counts = range(1, kind.max_ps + 1) if kind.needs_ps else (0,)
        return max(self.speed(kind, w, p, 1.0) for w in range(1, kind.max_workers + 1) for p in ps_counts)

    def step_s(self, kind: JobType, workers: int, ps: int, stretch: float) -> float:
        """Estimated seconds per step under a communication stretch."""
        step_s, communication_s = (float(value) for value in self.table[kind.index, workers, ps])
        return step_s + (stretch - 1.0) * communication_s

    def speed(self, kind: JobType, workers: int, ps: int, stretch: float) -> float:
        """Estimated samples/s; 0 when the allocation cannot train or the table says it never ends a step."""
        if not kind.can_train(workers, ps):
            return 0.0
        step_s = self.step_s(kind, workers, ps, stretch)
        if step_s <= 0.0 or not math.isfinite(step_s):
            return 0.0
        return (kind.batch_size if kind.is_synchronous else workers * kind.batch_size) / step_s

    def relative(self, kind: JobType, workers: int, ps: int, stretch: float) -> float:
        """Estimated speed in units of the type's best isolated speed."""
        best = self.best[kind.index]
        return self.speed(kind, workers, ps, stretch) / best if best > 0.0 else 0.0

    def communication_share(self, kind: JobType, workers: int, ps: int, stretch: float) -> float:
        """Share of the estimated step in which the job communicates, 0 without a speed."""
        if self.speed(kind, workers, ps, stretch) == 0.0:
            return 0.0
        return stretch * float(self.table[kind.index, workers, ps, 1]) / self.step_s(kind, workers, ps, stretch)
