"""Servers, jobs and where a new task goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from dl2env.config import ClusterConfig, Placement
from dl2env.speed.parameters import PS_WORKER, SINGLE_SERVER, SpeedParameters


@dataclass(frozen=True)
class Demand:
    """Units of one server that a task or a bundle of tasks occupies."""

    cpus: int
    gpus: int

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.cpus + other.cpus, self.gpus + other.gpus)


@dataclass(frozen=True)
class JobType:
    """One record of `TYPE_DTYPE` with readable attributes; times in seconds per training step."""

    index: int
    architecture: int
    is_synchronous: bool
    max_workers: int
    max_ps: int
    worker: Demand
    ps: Demand
    batch_size: float
    input_s: float
    compute_s: tuple[float, ...]  # one entry per GPU kind
    ethernet_s: float
    weight_pcie_s: float
    nvlink_s: float
    exchange_s: float
    ps_service_s: float
    link_use: float
    worker_cost_s: float
    ps_cost_s: float
    fixed_s: float
    weight_bytes: float

    @property
    def needs_ps(self) -> bool:
        """Whether jobs of this type train only with a parameter server."""
        return self.architecture == PS_WORKER

    @property
    def needs_one_server(self) -> bool:
        """Whether all workers of a job must share a server."""
        return self.architecture in SINGLE_SERVER

    @property
    def first_bundle(self) -> tuple[int, int]:
        """Workers and PSs that an initial bundle gives."""
        return (1, 1) if self.needs_ps else (1, 0)

    def demand(self, workers: int, ps: int) -> Demand:
        """Units that so many tasks occupy together."""
        return Demand(
            workers * self.worker.cpus + ps * self.ps.cpus,
            workers * self.worker.gpus + ps * self.ps.gpus,
        )

    def can_train(self, workers: int, ps: int) -> bool:
        """Whether an allocation holds every kind of task that training needs."""
        return workers > 0 and (ps > 0 or not self.needs_ps)


def read_types(parameters: SpeedParameters) -> list[JobType]:
    """Job types of a parameter set, in catalogue order."""
    types = []
    for index, record in enumerate(parameters.types):
        values: dict[str, Any] = {name: record[name].item() for name in parameters.types.dtype.names or ()}
        for task in ("worker", "ps"):
            values[task] = Demand(values.pop(f"{task}_cpus"), values.pop(f"{task}_gpus"))
        compute_s = tuple(float(value) for value in parameters.compute_s[index])
        types.append(JobType(index=index, compute_s=compute_s, **values))
    return types


@dataclass
class Tasks:
    """Tasks of one job on one server."""

    workers: int = 0
    ps: int = 0

    @property
    def total(self) -> int:
        """Number of tasks."""
        return self.workers + self.ps


@dataclass
class Job:
    """A job and its history. Times in seconds since the episode's start."""

    index: int
    type: JobType
    arrival_s: float
    epochs: float
    true_epochs: float
    samples_per_epoch: float
    epochs_done: float = 0.0
    start_s: float = math.nan
    finish_s: float = math.nan
    intervals_run: int = 0
    last_allocation: tuple[int, int] = (0, 0)  # of the previous interval
    tasks: dict[int, Tasks] = field(default_factory=dict)  # by server id

    @property
    def workers(self) -> int:
        """Workers in the present interval."""
        return sum(tasks.workers for tasks in self.tasks.values())

    @property
    def ps(self) -> int:
        """Parameter servers in the present interval."""
        return sum(tasks.ps for tasks in self.tasks.values())

    @property
    def is_finished(self) -> bool:
        """Whether the job has completed."""
        return not math.isnan(self.finish_s)

    @property
    def is_capped(self) -> bool:
        """Whether both counts are at the type's caps."""
        return self.workers >= self.type.max_workers and self.ps >= self.type.max_ps

    @property
    def can_train(self) -> bool:
        """Whether the present allocation trains."""
        return self.type.can_train(self.workers, self.ps)

    @property
    def is_on_network(self) -> bool:
        """Whether the job communicates across servers."""
        return len(self.tasks) >= 2 and self.can_train

    @property
    def remaining_fraction(self) -> float:
        """Remaining share of the estimated epochs; negative when the estimate was too low."""
        return 1.0 - self.epochs_done / self.epochs


@dataclass
class Server:
    """A server and what is used of it."""

    id: int
    cpus: int
    gpus: int
    gpu_kind: int
    used_cpus: int = 0
    used_gpus: int = 0
    load: float = 0.0

    def can_hold(self, demand: Demand) -> bool:
        """Whether the demand fits into what is free."""
        return self.used_cpus + demand.cpus <= self.cpus and self.used_gpus + demand.gpus <= self.gpus


class Cluster:
    """All servers, and the rule that picks one for a task.

    Args:
        config: Server groups; ids follow their order.
        gpu_kinds: Names that index the GPU axis of the compute times.
        placement: Server choice.
        load_by_sum: Load is the plain sum of used units instead of the sum of used fractions.
    """

    def __init__(
        self, config: ClusterConfig, gpu_kinds: tuple[str, ...], placement: Placement, load_by_sum: bool
    ) -> None:
        self.placement = placement
        self.load_by_sum = load_by_sum
        self.servers: list[Server] = []
        for group in config.servers:
            kind = gpu_kinds.index(group.gpu_type)
            for _ in range(group.count):
                self.servers.append(Server(len(self.servers), group.cpus, group.gpus, kind))
        self.total_cpus = sum(server.cpus for server in self.servers)
        self.total_gpus = sum(server.gpus for server in self.servers)

    @property
    def used_cpus(self) -> int:
        """CPU units in use."""
        return sum(server.used_cpus for server in self.servers)

    @property
    def used_gpus(self) -> int:
        """GPU units in use."""
        return sum(server.used_gpus for server in self.servers)

    def utilisation(self) -> tuple[float, float]:
        """Used share of all CPU units and of all GPU units, 0 for a resource the cluster lacks."""
        return _share(self.used_cpus, self.total_cpus), _share(self.used_gpus, self.total_gpus)

    def clear(self) -> None:
        """Frees every server."""
        for server in self.servers:
            server.used_cpus = server.used_gpus = 0
            server.load = 0.0

    def candidates(self, job: Job) -> list[Server]:
        """Servers that the job's architecture lets a further task go to."""
        if job.type.needs_one_server and job.tasks:
            return [self.servers[server_id] for server_id in job.tasks]
        return self.servers

    def choose(self, job: Job, demand: Demand) -> Server | None:
        """The server that the placement rule gives, or None when it finds none."""
        candidates = self.candidates(job)
        if self.placement == "least_loaded_single":
            server = min(candidates, key=attrgetter("load"))  # the first of equals is the lowest id
            return server if server.can_hold(demand) else None
        fitting = [server for server in candidates if server.can_hold(demand)]
        if not fitting:
            return None
        if self.placement == "least_loaded":
            return min(fitting, key=lambda server: (server.load, server.id))
        if self.placement == "pack":
            return min(fitting, key=lambda server: (-server.load, server.id))
        assert self.placement == "spread"
        return min(fitting, key=lambda server: (job.tasks.get(server.id, Tasks()).total, server.load, server.id))

    def put(self, job: Job, server: Server, workers: int, ps: int) -> None:
        """Starts tasks of a job on a server that can hold them."""
        demand = job.type.demand(workers, ps)
        assert server.can_hold(demand)
        tasks = job.tasks.setdefault(server.id, Tasks())
        tasks.workers += workers
        tasks.ps += ps
        server.used_cpus += demand.cpus
        server.used_gpus += demand.gpus
        self._weigh(server)

    def take_back(self, job: Job, server: Server, workers: int, ps: int) -> None:
        """Undoes a `put`."""
        tasks = job.tasks[server.id]
        tasks.workers -= workers
        tasks.ps -= ps
        if tasks.total == 0:
            del job.tasks[server.id]
        demand = job.type.demand(workers, ps)
        server.used_cpus -= demand.cpus
        server.used_gpus -= demand.gpus
        self._weigh(server)

    def _weigh(self, server: Server) -> None:
        if self.load_by_sum:
            server.load = float(server.used_cpus + server.used_gpus)
        else:
            server.load = _share(server.used_cpus, server.cpus) + _share(server.used_gpus, server.gpus)

    def dominant_share(self, job: Job) -> float:
        """The job's largest share of a resource of the whole cluster."""
        demand = job.type.demand(job.workers, job.ps)
        return max(_share(demand.cpus, self.total_cpus), _share(demand.gpus, self.total_gpus))


def _share(used: int, total: int) -> float:
    return used / total if total > 0 else 0.0
