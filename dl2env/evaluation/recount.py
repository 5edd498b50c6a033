"""One cluster recounted from where its tasks are: slow, in plain numpy, without the simulator's kernels.

The simulator keeps dozens of counters up to date decision by decision. Here each is computed afresh from the jobs'
lists of tasks and the configuration, by the rules of docs/architecture.md. It is what `evaluation.invariants` compares
the simulator with; `evaluation.replay` adds time.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.analytic import samples_per_s, step_time
from dl2env.speed.contention import link_stretch
from dl2env.speed.parameters import ALL_REDUCE, ARCHITECTURES, PS_WORKER, SINGLE_SERVER

Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

KINDS = np.array([(1, 0), (0, 1), (1, 1)])
"""(workers, parameter servers) that the three actions of a job slot add."""

IS_SINGLE = np.isin(np.arange(len(ARCHITECTURES)), SINGLE_SERVER)


class Recount:
    """Copy of one environment that can be asked for any counter.

    A is the number of active jobs, S that of servers; rows are the active jobs in arrival order.

    Args:
        sim: The simulator; only its lists and the jobs' own fields are read, none of its sums.
        b: Environment.

    Attributes:
        active: (A) indices of the active jobs.
        tasks: (A, S, 2) workers and parameter servers of each active job on each server.
        jobs: (N,) JOB_DTYPE of all jobs of the episode.
        interval: Index of the present interval.
        pinned: Server that takes the next tasks, -1 where the placement strategy decides.
    """

    def __init__(self, sim: ClusterSimulator, b: int) -> None:
        state = sim.state
        env = state.env[b]
        self._parameters = sim.speed
        self._config = sim.config
        self._rules = sim.config.dynamics
        self._types = sim.speed.types
        groups = sim.config.cluster.servers
        self._gpu_kind = np.array([sim.speed.gpu_kinds.index(g.gpu_type) for g in groups for _ in range(g.count)])
        self._capacity = np.array([(g.cpus, g.gpus) for g in groups for _ in range(g.count)], np.int64)
        self._demands = np.stack([state.demands["cpus"], state.demands["gpus"]], axis=1).astype(np.int64)
        e = b % len(state.estimate)
        self._estimate = state.estimate[e].copy()
        self._best_speed = state.best_speed[e].copy()
        self._is_measured = sim.speed.table.size > 0
        self.pinned = int(env["pinned_server"])
        self.jobs = state.jobs[b, : int(env["num_jobs"])].copy()
        self.active: list[int] = state.active[b, : int(env["num_active"])].tolist()
        self.tasks = np.zeros((len(self.active), len(self._capacity), 2), np.int64)
        for k, i in enumerate(self.active):
            for entry in state.entries[b, i, : int(self.jobs["num_entries"][i])]:
                self.tasks[k, entry["server"]] += (entry["workers"], entry["ps"])
        self.interval = int(env["interval"])

    # ------------------------------------------------------------------------------------------------- placements

    @cached_property
    def type_idx(self) -> NDArray[np.int64]:
        """(A,) job types."""
        return self.jobs["type"][self.active].astype(np.int64)

    def forget(self) -> None:
        """Drops what was computed from the tasks, which have changed."""
        for name in [name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)]:
            delattr(self, name)

    def _of_type(self, field: str) -> NDArray[Any]:
        values: NDArray[Any] = self._types[field][self.type_idx]
        return values

    @cached_property
    def counts(self) -> Counts:
        """(A, 2) workers and parameter servers of each job."""
        return np.asarray(self.tasks.sum(axis=1))

    @cached_property
    def caps(self) -> Counts:
        """(A, 2) most workers and parameter servers of each job's type."""
        return np.stack([self._of_type("max_workers"), self._of_type("max_ps")], axis=1).astype(np.int64)

    @cached_property
    def task_demand(self) -> Counts:
        """(A, 2, 2) CPU and GPU units of a worker and of a parameter server of each job."""
        fields = ("worker_cpus", "worker_gpus", "ps_cpus", "ps_gpus")
        return np.stack([self._of_type(f) for f in fields], axis=1).astype(np.int64).reshape(-1, 2, 2)

    @cached_property
    def capacity(self) -> Counts:
        """(S, 2) CPU and GPU units of each server."""
        return self._capacity

    @cached_property
    def used(self) -> Counts:
        """(S, 2) units that the tasks on each server take."""
        return np.asarray(np.einsum("asr,aru->su", self.tasks, self.task_demand))

    @cached_property
    def free(self) -> Counts:
        """(S, 2) free units of each server."""
        return self._capacity - self.used

    @cached_property
    def load(self) -> Matrix:
        """(S,) load as the placement strategies rank it."""
        used = self.used
        if self._rules.load_by_sum:
            return np.asarray(used.sum(axis=1), np.float64)
        shares = np.divide(used, self._capacity, out=np.zeros(used.shape), where=used > 0)
        return np.asarray(shares[:, 0] + shares[:, 1])

    @cached_property
    def num_fit(self) -> Counts:
        """(D,) servers that can hold each demand."""
        return np.asarray((self.free[:, None] >= self._demands).all(axis=2).sum(axis=0))

    @cached_property
    def rank(self) -> Matrix:
        """(S,) load; infinite on a server with tasks that can hold no demand (not with `least_loaded_single`)."""
        if self._rules.placement == "least_loaded_single":
            return self.load
        fits_any = np.asarray((self.free[:, None] >= self._demands).all(axis=2)).any(axis=1)
        is_used = self.tasks.sum(axis=(0, 2)) > 0
        return np.where(is_used & ~fits_any, np.inf, self.load)

    @cached_property
    def dominant_share(self) -> Matrix:
        """(A,) largest share of a resource of the cluster that each job holds."""
        held = np.einsum("ar,aru->au", self.counts, self.task_demand)
        total = self._capacity.sum(axis=0)
        return np.asarray(np.divide(held, total, out=np.zeros(held.shape), where=total > 0).max(axis=1, initial=0.0))

    @cached_property
    def server_share(self) -> Matrix:
        """(A, 3) dominant share of an average server that each action of each job takes."""
        demand = np.einsum("kr,aru->aku", KINDS, self.task_demand)
        average = self._capacity.mean(axis=0)
        return np.asarray(np.divide(demand, average, out=np.zeros(demand.shape), where=average > 0).max(axis=2))

    @cached_property
    def is_single(self) -> NDArray[np.bool_]:
        """(A,) jobs whose tasks must share a server."""
        return np.asarray(IS_SINGLE[self._of_type("architecture")])

    @cached_property
    def is_legal(self) -> NDArray[np.bool_]:
        """(A, 3) legality of one worker, one parameter server and one of each for every job."""
        below_cap = ((self.counts[:, None] + KINDS <= self.caps[:, None]) | (KINDS == 0)).all(axis=2)
        if not self._rules.mask_resources:
            return np.asarray(below_cap)
        demand = np.einsum("kr,aru->aku", KINDS, self.task_demand)
        fits = (self.free >= demand[:, :, None]).all(axis=3)  # (A, 3, S)
        allowed = np.ones((len(self.active), len(self._capacity)), np.bool_)
        if self._rules.placement == "least_loaded_single":
            allowed[:] = np.arange(len(self._capacity)) == np.argmin(self.load)
        stays = self.is_single & (self.counts.sum(axis=1) > 0)
        allowed[stays] = self.tasks[stays].sum(axis=2) > 0
        return np.asarray(below_cap & (fits & allowed[:, None]).any(axis=2))

    @cached_property
    def slots(self) -> list[int]:
        """Rows of the jobs in the window, in the order of the slots."""
        is_in = np.ones(len(self.active), np.bool_)
        if self._rules.window_skips_capped:
            is_in[(self.counts >= self.caps).all(axis=1)] = False
        rows: list[int] = np.flatnonzero(is_in)[: self._config.observation.window].tolist()
        return rows

    def place(self, k: int, kind: int) -> bool:
        """Puts the tasks of an action of the job in row k where the placement rule says; False when nowhere."""
        demand = KINDS[kind] @ self.task_demand[k]
        fits = np.flatnonzero((self.free >= demand).all(axis=1))
        own = self.tasks[k].sum(axis=1)
        if self.is_single[k] and own.any():
            fits = fits[fits == np.argmax(own > 0)]
        elif self.pinned >= 0:
            fits = fits[fits == self.pinned]
        elif self._rules.placement == "least_loaded_single":
            fits = fits[fits == np.argmin(self.load)]
        if len(fits) == 0:
            return False
        load = self.load
        order = {"pack": lambda s: (-load[s], s), "spread": lambda s: (own[s], load[s], s)}
        server = min(fits.tolist(), key=order.get(self._rules.placement, lambda s: (load[s], s)))
        self.tasks[k, server] += KINDS[kind]
        self.forget()
        return True

    # ------------------------------------------------------------------------------------------------------ speeds

    @cached_property
    def can_train(self) -> NDArray[np.bool_]:
        """(A,) jobs that hold all roles a training step needs."""
        needs_ps = self._of_type("architecture") == PS_WORKER
        return np.asarray((self.counts[:, 0] > 0) & ((self.counts[:, 1] > 0) | ~needs_ps))

    @cached_property
    def is_on_network(self) -> NDArray[np.bool_]:
        """(A,) jobs that exchange weights across servers."""
        architecture = self._of_type("architecture")
        crosses = (architecture == PS_WORKER) | (architecture == ALL_REDUCE)
        return np.asarray(crosses & self.can_train & ((self.tasks.sum(axis=2) > 0).sum(axis=1) > 1))

    @cached_property
    def _link_use_of_jobs(self) -> Matrix:
        use = np.where(self.is_on_network, self._of_type("link_use"), 0.0)
        return np.asarray(use[:, None] * self.tasks.sum(axis=2))

    @cached_property
    def link_use(self) -> Matrix:
        """(S,) link use of the tasks whose jobs are on the network."""
        return np.asarray(self._link_use_of_jobs.sum(axis=0))

    @cached_property
    def server_stretch(self) -> Matrix:
        """(A, S) stretch of a job's communication over each server."""
        sharing = 0.0 if self._is_measured else self._config.cluster.link_sharing
        others = self._link_use_of_jobs.sum(axis=0) - self._link_use_of_jobs
        return link_stretch(np.maximum(others, 0.0), sharing)

    @cached_property
    def stretch(self) -> Matrix:
        """(A,) largest stretch over the servers of each job; 1 off the network."""
        here = (self.tasks.sum(axis=2) > 0) & self.is_on_network[:, None]
        return np.asarray(np.where(here, self.server_stretch, 1.0).max(axis=1, initial=1.0))

    def estimated(self, counts: Counts) -> Matrix:
        """(A,) samples/s that schedulers expect of other counts under the present stretch."""
        workers, ps = counts.T
        step_s, communication_s = np.moveaxis(self._estimate[self.type_idx, workers, ps], -1, 0)
        valid = np.isfinite(step_s) & (step_s > 0)
        stretched = np.where(valid, step_s, 1.0) + (self.stretch - 1.0) * communication_s
        batches = np.where(self._of_type("is_synchronous"), 1.0, workers)
        return np.where(valid, batches * self._of_type("batch_size") / stretched, 0.0)

    def relative(self, counts: Counts) -> Matrix:
        """(A,) the same in units of each type's best isolated speed."""
        best = self._best_speed[self.type_idx]
        return np.asarray(np.divide(self.estimated(counts), best, out=np.zeros(len(best)), where=best > 0))

    @cached_property
    def true_speed(self) -> Matrix:
        """(A,) samples/s that each job trains at, without noise; 0 where it cannot."""
        workers, ps = self.counts.T
        if self._is_measured:
            return np.where(self.can_train, self._parameters.table[self.type_idx, workers, ps], 0.0)
        times = step_time(
            self._parameters,
            self.type_idx,
            self.tasks[:, :, 0],
            self.tasks[:, :, 1],
            stretch=self.server_stretch,
            gpu_kind=self._gpu_kind,
            pcie_group=self._config.cluster.pcie_group,
            ideal_overlap=self._config.speed.overlap == "ideal",
        )
        return samples_per_s(self._parameters, self.type_idx, workers, times.total_s)

    # ------------------------------------------------------------------------------------------------- observation

    def observation(self, type_features: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
        """Rows of the job slots, but for the net gains, and (C,) row of the cluster, in float64; see `sim.features`.

        Args:
            type_features: (T, K) columns that describe the types.
        """
        return self._job_rows(type_features), self._cluster_row()

    def _job_rows(self, type_features: NDArray[np.float32]) -> Matrix:
        jobs, counts, workload = self.jobs[self.active], self.counts, self._config.workload
        interval_s = self._rules.interval_s
        relative, stretch = self.relative(counts), self.stretch
        age = self.interval - jobs["arrival_s"] / interval_s
        left = np.maximum(jobs["epochs"] - jobs["epochs_done"], 0.0)
        best = self._best_speed[self.type_idx]
        ideal = np.divide(left * jobs["samples_per_epoch"], best * interval_s, out=np.zeros(len(best)), where=best > 0)
        gains = []
        for more in KINDS:
            within = (counts + more <= self.caps).all(axis=1) & (best > 0)
            gains.append(np.where(within, np.clip(self.relative(counts + more) - relative, -1.0, 1.0), 0.0))
        step_s, communication_s = np.moveaxis(self._estimate[self.type_idx, counts[:, 0], counts[:, 1]], -1, 0)
        trains = self.estimated(counts) > 0
        stretched = np.where(trains, step_s, 1.0) + (stretch - 1.0) * communication_s
        columns = [
            np.ones(len(jobs)),
            age / (age + 10.0),
            jobs["intervals_run"] / (jobs["intervals_run"] + 10.0),
            *np.minimum(self.server_share[:, :2], 1.0).T,
            np.clip(left / jobs["epochs"], 0.0, 1.0),
            ideal / (ideal + 5.0),
            self.dominant_share,
            counts[:, 0] / workload.max_workers,
            counts[:, 1] / workload.max_ps,
            np.clip(relative, 0.0, 1.0),
            *gains,
            np.where(trains, communication_s * stretch / stretched, 0.0),
            1.0 - 1.0 / stretch,
            self.is_on_network,
        ]
        rows = np.zeros((self._config.observation.window, type_features.shape[1] + len(columns)))
        every = np.concatenate([type_features[self.type_idx], np.stack(columns, axis=1)], axis=1)
        rows[: len(self.slots)] = every[self.slots]
        return rows

    def net_gain(self, k: int, kind: int) -> float:
        """The observation's column about an action of the job in row k; 0 where it is illegal."""
        before, tasks, share = self.relative(self.counts).sum(), self.tasks, self.server_share[k, kind]
        self.tasks = tasks.copy()
        gain = 0.0
        if self.is_legal[k, kind] and self.place(k, kind):
            gain = float(self.relative(self.counts).sum() - before)
        self.tasks = tasks
        self.forget()
        return float(gain / (abs(gain) + 0.1 * share + 1e-6))

    def _cluster_row(self) -> Matrix:
        total, free = self._capacity.sum(axis=0), self.free.sum(axis=0)
        window, num_active = self._config.observation.window, len(self.active)
        outside = num_active - len(self.slots)
        return np.array(
            [
                *np.divide(free, total, out=np.zeros(2), where=total > 0),
                len(self.slots) / window,
                outside / (outside + window),
                self.interval / (self.interval + 100.0),
                np.clip(self.relative(self.counts).sum() / max(num_active, 1), 0.0, 1.0),
                np.clip((1.0 - 1.0 / self.stretch).sum() / max(num_active, 1), 0.0, 1.0),
                (self.tasks.sum(axis=(0, 2)) > 0).mean(),
            ]
        )
