"""The rules that serve gangs in an order, as plain as can be: SJF, SRPT, EASY, LAS and Tiresias.

Each gives every active job of one environment a place in the order and the numbers of tasks it wants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.sim.simulator import ClusterSimulator

WORKER, PS, BUNDLE = range(3)


@dataclass(frozen=True)
class Gang:
    """A job, what it asks for, and what it has had."""

    index: int
    job: Any  # JOB_DTYPE record
    type: Any  # TYPE_DTYPE record
    request: tuple[int, int]
    best_speed: float
    speeds: NDArray[np.float64]  # (W + 2, P + 2)

    def seconds(self, epochs: float) -> float:
        """Seconds that epochs take at the best isolated speed."""
        return float(epochs * self.job["samples_per_epoch"] / self.best_speed)

    @property
    def service(self) -> float:
        """GPU-seconds held; worker-seconds of types that use no GPU."""
        if self.type["worker_gpus"] + self.type["ps_gpus"] > 0:
            return float(self.job["gpu_s"])
        return self.seconds(self.job["epochs_done"]) * self.request[0]

    def units(self, tasks: tuple[int, int]) -> NDArray[np.int64]:
        """CPUs and GPUs of some workers and PSs."""
        t = self.type
        return np.array(
            [
                tasks[0] * int(t["worker_cpus"]) + tasks[1] * int(t["ps_cpus"]),
                tasks[0] * int(t["worker_gpus"]) + tasks[1] * int(t["ps_gpus"]),
            ]
        )


Wanted = list[tuple[Gang, tuple[int, int]]]
"""Jobs in the order in which they are served, with the workers and PSs they want."""


class Queue:
    """The jobs of one environment that have been admitted."""

    def __init__(self, sim: ClusterSimulator, b: int, speed_share: float) -> None:
        state = sim.state
        self.env = state.env[b]
        self.rules = state.rules[0]
        groups = sim.config.cluster.servers
        self.totals = np.array([sum(g.count * g.cpus for g in groups), sum(g.count * g.gpus for g in groups)])
        tables = state.estimate[b if len(state.estimate) > 1 else 0, ..., 0]
        speeds = []
        for table, job_type in zip(tables, state.types, strict=True):
            batches = np.ones(len(table)) if job_type["is_synchronous"] else np.arange(len(table))
            speed = batches[:, None] * job_type["batch_size"] / table
            speeds.append(np.where(np.isfinite(table) & (table > 0), speed, 0.0))
        best = state.best_speed[b if len(state.best_speed) > 1 else 0]
        self.admitted = []
        for i in range(int(self.env["next_job"])):
            job = state.jobs[b, i]
            t = int(job["type"])
            request = self._request(state.types[t], speeds[t], speed_share)
            self.admitted.append(Gang(i, job, state.types[t], request, float(best[t]), speeds[t]))
        self.active = [self.admitted[i] for i in state.active[b, : int(self.env["num_active"])].tolist()]

    def _request(self, job_type: Any, speeds: NDArray[np.float64], speed_share: float) -> tuple[int, int]:
        """The smallest dominant share that is fast enough, then the fewest workers, then the fewest PSs."""
        max_workers, max_ps = int(job_type["max_workers"]), int(job_type["max_ps"])
        allowed = speeds[: max_workers + 1, : max_ps + 1]
        found = []
        for w in range(1, max_workers + 1):
            for p in range(min(1, max_ps), max_ps + 1):
                if allowed[w, p] >= speed_share * allowed.max() * (1 - 1e-12):
                    cpus = w * int(job_type["worker_cpus"]) + p * int(job_type["ps_cpus"])
                    gpus = w * int(job_type["worker_gpus"]) + p * int(job_type["ps_gpus"])
                    found.append((max(cpus / max(self.totals[0], 1), gpus / max(self.totals[1], 1)), w, p))
        return min(found)[1:]

    def by(self, key: Any) -> Wanted:
        """Every job wants its request; the smallest key first, then the earliest job."""
        return [(gang, gang.request) for gang in sorted(self.active, key=lambda gang: (key(gang), gang.index))]


def sjf(queue: Queue) -> Wanted:
    return queue.by(lambda gang: gang.seconds(gang.job["epochs"]))


def srpt(queue: Queue) -> Wanted:
    return queue.by(lambda gang: gang.seconds(max(gang.job["true_epochs"] - gang.job["epochs_done"], 0.0)))


def las(queue: Queue) -> Wanted:
    return queue.by(lambda gang: gang.service)


def _queue_number(gang: Gang, threshold_s: float, num_queues: int, ratio: float) -> int:
    return sum(gang.service >= threshold_s * ratio**q for q in range(num_queues - 1))


def _first_start(gang: Gang) -> float:
    return math.inf if math.isnan(gang.job["start_s"]) else float(gang.job["start_s"])


def tiresias_2das(queue: Queue, threshold_s: float, num_queues: int = 2, ratio: float = 4.0) -> Wanted:
    return queue.by(lambda gang: (_queue_number(gang, threshold_s, num_queues, ratio), _first_start(gang)))


LEVELS = 32


def gittins_indices(lifetimes: list[tuple[float, bool]], unit: float) -> list[float]:
    """Gittins index of each level of service, from (service, finished) of jobs."""
    starts = [0.0] + [unit * 2 ** (x / 2) for x in range(LEVELS - 1)]

    def level(service: float) -> int:
        return 0 if service < unit else min(1 + int(2 * math.log2(service / unit)), LEVELS - 1)

    seen = [(level(service), finished) for service, finished in lifetimes]
    chances = []
    for x in range(LEVELS):
        died = sum(at == x and finished for at, finished in seen)
        outlived = sum(at > x for at, _ in seen)
        chances.append(died / (died + outlived) if died else 0.0)
    indices = []
    for x in range(LEVELS):
        best = 0.0
        for limit in range(x + 1, LEVELS):
            mass = []  # of finishing in each level from x on, below the limit
            left = 1.0
            for y in range(x, limit):
                mass.append(left * chances[y])
                left -= mass[-1]
            middles = [(starts[y] + starts[y + 1]) / 2 - starts[x] for y in range(x, limit)]
            spent = sum(m * d for m, d in zip(mass, middles, strict=True)) + left * (starts[limit] - starts[x])
            best = max(best, sum(mass) / spent)
        indices.append(best)
    return indices


def tiresias_gittins(queue: Queue, threshold_s: float, num_queues: int = 2, ratio: float = 4.0) -> Wanted:
    unit = float(queue.rules["interval_s"])
    lifetimes = [(gang.service, not math.isnan(gang.job["finish_s"])) for gang in queue.admitted]
    indices = gittins_indices(lifetimes, unit)
    rank = [sum(other > index * (1 + 1e-9) for other in indices) for index in indices]

    def key(gang: Gang) -> tuple[float, ...]:
        x = 0 if gang.service < unit else min(1 + int(2 * math.log2(gang.service / unit)), LEVELS - 1)
        return _queue_number(gang, threshold_s, num_queues, ratio), rank[x], _first_start(gang)

    return queue.by(key)


def easy(queue: Queue) -> Wanted:
    interval_s = float(queue.rules["interval_s"])
    gives = bool(queue.rules["initial_bundle"])
    free = queue.totals.copy()
    served: dict[str, Wanted] = {"running": [], "started": [], "backfilled": [], "waiting": []}
    given = {g.index: (1, min(1, int(g.type["max_ps"]))) if gives else (0, 0) for g in queue.active}
    wanted = {
        g.index: (max(g.request[0], given[g.index][0]), max(g.request[1], given[g.index][1])) for g in queue.active
    }
    more = {g.index: g.units(wanted[g.index]) - g.units(given[g.index]) for g in queue.active}

    def fits(need: NDArray[np.int64], room: NDArray[np.int64]) -> bool:
        return bool((need <= np.maximum(room, 0)).all())

    def intervals(gang: Gang, tasks: tuple[int, int]) -> float:
        speed = gang.speeds[tasks]
        left = max(gang.job["epochs"] - gang.job["epochs_done"], 0.0) * gang.job["samples_per_epoch"]
        return max(math.ceil(left / (speed * interval_s)), 1) if speed > 0 else math.inf

    waiting = []
    for gang in queue.active:
        has_more = gang.job["last_workers"] > given[gang.index][0] or gang.job["last_ps"] > given[gang.index][1]
        if has_more or wanted[gang.index] == given[gang.index]:
            served["running"].append((gang, wanted[gang.index]))
            free -= gang.units(wanted[gang.index])
        else:
            waiting.append(gang)
            free -= gang.units(given[gang.index])
    is_any_under_way = any(tasks != given[gang.index] for gang, tasks in served["running"])
    while waiting and (fits(more[waiting[0].index], free) or not is_any_under_way):
        gang = waiting.pop(0)
        served["started"].append((gang, wanted[gang.index]))
        free -= more[gang.index]
        is_any_under_way = True
    if waiting:
        head = waiting.pop(0)
        gangs = [(intervals(gang, tasks), gang.units(tasks)) for gang, tasks in served["running"] + served["started"]]
        ends = gangs + [(intervals(gang, given[gang.index]), gang.units(given[gang.index])) for gang in waiting]
        at, room = 0.0, free.copy()
        for end, units in sorted(ends, key=lambda pair: pair[0]):
            if end > at and fits(more[head.index], room):
                break
            if end < math.inf:
                at, room = end, room + units
        spare = room - more[head.index]
        if not fits(more[head.index], room):
            at = max((end for end, _ in gangs if end < math.inf), default=1.0)
            spare = np.zeros(2, np.int64)
        served["waiting"].append((head, given[head.index]))
        for gang in waiting:
            is_through = intervals(gang, wanted[gang.index]) <= at
            if fits(more[gang.index], free) and (is_through or fits(more[gang.index], spare)):
                served["backfilled"].append((gang, wanted[gang.index]))
                free -= more[gang.index]
                if not is_through:
                    spare = spare - more[gang.index]
            else:
                served["waiting"].append((gang, given[gang.index]))
    served["waiting"].sort(key=lambda pair: pair[0].index)
    return [pair for group in served.values() for pair in group]


def next_action(sim: ClusterSimulator, b: int, mask: NDArray[np.bool_], wanted: Wanted) -> int:
    """The first legal task towards what the first job lacks: a pair, then a missing role, then workers, then PSs.

    A role is of no use to a job that cannot get the other one.
    """
    for gang, (workers, ps) in wanted:
        slot = int(gang.job["slot"])
        if slot < 0:
            continue
        has_workers, has_ps = int(gang.job["workers"]), int(gang.job["ps"])
        legal = mask[b, 3 * slot : 3 * slot + 3]
        worker = bool(legal[WORKER]) and has_workers < workers
        one_ps = bool(legal[PS]) and has_ps < ps
        if has_workers < workers and has_ps < ps and legal[BUNDLE]:
            return 3 * slot + BUNDLE
        lacks_role = has_workers == 0 or (has_ps == 0 and ps > 0)
        if not lacks_role and (worker or one_ps):
            return 3 * slot + (WORKER if worker else PS)
        if has_workers > 0 and lacks_role and one_ps:
            return 3 * slot + PS
        if has_workers == 0 and worker and (one_ps or has_ps > 0 or ps == 0):
            return 3 * slot + WORKER
    return sim.num_actions - 1
