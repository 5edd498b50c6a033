"""The rules that share out a cluster by a plan, as plain as can be: max-min, Themis, Pollux, ElasticFlow and AFS.

Each gives every active job of one environment a place in the order and the numbers of tasks it wants. Gavel's linear
programs are here too, for a solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import SINGLE_SERVER
from tests.schedulers.rules_gangs import Gang, Queue, Wanted

Tasks = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """An allocation on the way of a job."""

    tasks: Tasks
    speed: float
    share: float


class Pool(Queue):
    """The jobs of one environment, and the units that are free once each has what it gets anyway."""

    def __init__(self, sim: ClusterSimulator, b: int, speed_share: float = 0.8) -> None:
        super().__init__(sim, b, speed_share)
        self.sim = sim
        self.b = b
        self.now_s = int(self.env["interval"]) * float(self.rules["interval_s"])
        self.given = {gang.index: self._given(gang) for gang in self.active}
        self.free = self.totals - sum((g.units(self.given[g.index]) for g in self.active), np.zeros(2, np.int64))
        self.steps = {gang.index: self._steps(gang) for gang in self.active}

    def _given(self, gang: Gang) -> Tasks:
        if not self.rules["initial_bundle"]:
            return 0, 0
        if gang.type["max_ps"] == 0:
            return 1, 0
        pair = gang.units((1, 1))
        fits = any(group.cpus >= pair[0] and group.gpus >= pair[1] for group in self.sim.config.cluster.servers)
        return (1, 1) if fits else (0, 0)

    def share(self, gang: Gang, tasks: Tasks) -> float:
        cpus, gpus = gang.units(tasks).tolist()
        return max(cpus / max(self.totals[0], 1), gpus / max(self.totals[1], 1))

    def left(self, gang: Gang) -> float:
        return float(max(gang.job["epochs"] - gang.job["epochs_done"], 0.0) * gang.job["samples_per_epoch"])

    def total(self, gang: Gang) -> float:
        return float(gang.job["epochs"] * gang.job["samples_per_epoch"])

    def _steps(self, gang: Gang) -> list[Step]:
        """What is given, then each time the allocation that gains most speed per share; of equals the smallest."""
        workers = int(gang.type["max_workers"])
        if gang.type["architecture"] in SINGLE_SERVER:
            need = gang.units((1, 0))
            room = [
                min(have // n for have, n in zip((g.cpus, g.gpus), need.tolist(), strict=True) if n)
                for g in self.sim.config.cluster.servers
                if need.any()
            ]
            workers = min([workers, *([max(room)] if room else [])])
        start = self.given[gang.index]
        first = Step(start, float(gang.speeds[start]), self.share(gang, start))
        others = [
            Step((w, p), float(gang.speeds[w, p]), self.share(gang, (w, p)))
            for w in range(max(start[0], 1), workers + 1)
            for p in range(start[1], int(gang.type["max_ps"]) + 1)
        ]
        steps = [first]
        while True:
            here = steps[-1]
            slopes = {
                step: (step.speed - here.speed) / max(step.share - here.share, 1e-12)
                for step in others
                if step.speed > here.speed
            }
            if not slopes:
                return steps
            good = [step for step in slopes if slopes[step] >= max(slopes.values()) * (1 - 1e-9)]
            steps.append(min(good, key=lambda step: (step.share, step.tasks)))

    def fair_speed(self, gang: Gang) -> float:
        """Speed in the n-th part of the cluster; what lies between two steps is reached by turns."""
        steps = self.steps[gang.index]
        part = 1.0 / len(self.active)
        if steps[0].share > 0 and part <= steps[0].share:
            return steps[0].speed * part / steps[0].share
        shares = [step.share for step in steps]
        return float(np.interp(part, shares, [step.speed for step in steps]))

    def fits(self, gang: Gang, now: Tasks, then: Tasks) -> bool:
        need = gang.units(then) - gang.units(now)
        return all(n <= 0 or n <= free for n, free in zip(need, self.free, strict=True))

    def take(self, gang: Gang, now: Tasks, then: Tasks) -> None:
        self.free = self.free - (gang.units(then) - gang.units(now))


class Growth:
    """How far each job of a pool has come."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.at = {gang.index: 0 for gang in pool.active}

    def now(self, gang: Gang) -> Step:
        return self.pool.steps[gang.index][self.at[gang.index]]

    def next(self, gang: Gang) -> Step | None:
        steps = self.pool.steps[gang.index]
        return steps[self.at[gang.index] + 1] if self.at[gang.index] + 1 < len(steps) else None

    def go(self, gang: Gang, step: int) -> bool:
        there = self.pool.steps[gang.index][step]
        if not self.pool.fits(gang, self.now(gang).tasks, there.tasks):
            return False
        self.pool.take(gang, self.now(gang).tasks, there.tasks)
        self.at[gang.index] = step
        return True

    def greedily(self, gangs: list[Gang], key: Any, once: bool = False) -> None:
        """The largest key goes a step, the first of equals; who cannot go, or has gone `once`, is out."""
        rest = [gang for gang in gangs if self.next(gang)]
        while rest:
            keys = [key(gang) for gang in rest]
            gang = rest[keys.index(max(keys))]
            moved = self.go(gang, self.at[gang.index] + 1)
            if once or not moved or not self.next(gang):
                rest.remove(gang)

    def gain(self, gang: Gang) -> float:
        """Seconds per sample saved per share."""
        now, then = self.now(gang), self.next(gang)
        assert then is not None
        if now.speed <= 0:
            return math.inf
        return (1.0 / now.speed - 1.0 / then.speed) / max(then.share - now.share, 1e-12)

    def wanted(self, order: Any) -> Wanted:
        jobs = sorted(self.pool.active, key=lambda gang: (-order(gang), gang.index))
        return [(gang, self.now(gang).tasks) for gang in jobs]


def times(weight: float, gain: float) -> float:
    return gain if gain == math.inf else weight * gain


def maxmin(pool: Pool, resource: str = "dominant") -> Wanted:
    def amount(gang: Gang) -> float:
        if resource == "gpus" and gang.type["worker_gpus"] + gang.type["ps_gpus"] > 0:
            return float(gang.units(has[gang.index])[1] / pool.totals[1])
        return pool.share(gang, has[gang.index])

    has = dict(pool.given)
    workers = dict.fromkeys(has, 0)
    rest = list(pool.active)
    while rest:
        gang = min(rest, key=lambda gang: (amount(gang), gang.index))
        want = gang.request
        w = workers[gang.index] + 1
        given = pool.given[gang.index]
        then = max(w, given[0]), max(math.ceil(w * want[1] / want[0]), given[1])
        if w <= want[0] and pool.fits(gang, has[gang.index], then):
            pool.take(gang, has[gang.index], then)
            has[gang.index] = then
            workers[gang.index] = w
        else:
            rest.remove(gang)
    jobs = sorted(pool.active, key=lambda gang: (amount(gang), gang.index))
    return [(gang, has[gang.index]) for gang in jobs]


def themis(pool: Pool) -> Wanted:
    growth = Growth(pool)
    alone = {gang.index: pool.total(gang) / pool.fair_speed(gang) for gang in pool.active}

    def rho(gang: Gang, step: Step) -> float:
        left_s = pool.left(gang) / step.speed if step.speed > 0 else 0.0
        return float((pool.now_s - gang.job["arrival_s"] + left_s) / alone[gang.index])

    stopped = [gang for gang in pool.active if growth.now(gang).speed <= 0 and growth.next(gang)]
    first = {g.index: rho(g, pool.steps[g.index][1] if g in stopped else growth.now(g)) for g in pool.active}
    growth.greedily(stopped, lambda gang: first[gang.index], once=True)
    running = [gang for gang in pool.active if growth.now(gang).speed > 0]
    growth.greedily(running, lambda gang: rho(gang, growth.now(gang)))
    return growth.wanted(lambda gang: first[gang.index])


def pollux(pool: Pool) -> Wanted:
    growth = Growth(pool)
    fair = {gang.index: pool.fair_speed(gang) for gang in pool.active}
    growth.greedily(pool.active, lambda gang: times(fair[gang.index], growth.gain(gang)))
    return growth.wanted(lambda gang: -growth.now(gang).share)


def elasticflow(pool: Pool, factor: float = 1.5) -> Wanted:
    growth = Growth(pool)
    deadline = {
        gang.index: float(gang.job["arrival_s"]) + factor * (pool.total(gang) / gang.best_speed) for gang in pool.active
    }
    met = []
    for gang in sorted(pool.active, key=lambda gang: (deadline[gang.index], gang.index)):
        slack = deadline[gang.index] - pool.now_s
        enough = [k for k, s in enumerate(pool.steps[gang.index]) if s.speed * slack >= pool.left(gang)]
        if slack > 0 and enough and growth.go(gang, enough[0]):
            met.append(gang)
    growth.greedily(pool.active, lambda gang: times(pool.left(gang), growth.gain(gang)))
    return growth.wanted(lambda gang: -deadline[gang.index] - (0 if gang in met else 1e12))


def afs(pool: Pool) -> Wanted:
    growth = Growth(pool)

    def left_s(gang: Gang, step: Step) -> float:
        return pool.left(gang) / step.speed if step.speed > 0 else math.inf

    def compare(one: Gang, other: Gang) -> int:
        """-1 when the first gets the next share."""
        now = [growth.now(one), growth.now(other)]
        then = [growth.next(one), growth.next(other)]
        if now[0].speed <= 0 or now[1].speed <= 0:
            if now[0].speed <= 0 and now[1].speed <= 0:
                return -1 if left_s(one, then[0]) <= left_s(other, then[1]) else 1
            return -1 if now[0].speed <= 0 else 1
        gains = [(t.speed - n.speed) / max(t.share - n.share, 1e-12) for n, t in zip(now, then, strict=True)]
        if left_s(one, now[0]) <= left_s(other, now[1]):
            return 1 if gains[1] / then[1].speed > gains[0] / now[0].speed else -1
        return -1 if gains[0] / then[0].speed > gains[1] / now[1].speed else 1

    rest = [gang for gang in pool.active if growth.next(gang)]
    while rest:
        best = rest[0]
        for rival in rest[1:]:
            best = rival if compare(best, rival) > 0 else best
        if not growth.go(best, growth.at[best.index] + 1) or not growth.next(best):
            rest.remove(best)
    return growth.wanted(lambda gang: -left_s(gang, growth.now(gang)))


def best_level(
    given: NDArray[np.float64], gains: NDArray[np.float64], costs: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Gavel's linear program by a solver: the highest level that every job reaches, or its most.

    Args:
        given: (n,) level of each job without a gang.
        gains: (n, G) what all of its time with its gang on a kind adds to it; 0 where it cannot run.
        costs: (n, G) units that takes, as a part of the kind's.

    Returns:
        The level, found by bisection over "reach the level or your most", and the time fractions.
    """
    most = given + gains.max(axis=1)
    n, g = gains.shape
    usable = gains > 0
    bounds = [(0.0, 1.0 if usable[j, k] else 0.0) for j in range(n) for k in range(g)]
    costs = np.where(usable, costs, 0.0)

    def solve(level: float) -> NDArray[np.float64] | None:
        rows, limits = [], []
        for j in range(n):
            row = np.zeros((n, g))
            row[j] = -gains[j]
            rows.append(row.ravel())
            limits.append(-(min(level, most[j]) - given[j]) + 1e-12)
            row = np.zeros((n, g))
            row[j] = 1.0
            rows.append(row.ravel())
            limits.append(1.0)
        for k in range(g):
            row = np.zeros((n, g))
            row[:, k] = costs[:, k]
            rows.append(row.ravel())
            limits.append(1.0)
        found = linprog(np.zeros(n * g), A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds, method="highs")
        return found.x.reshape(n, g) if found.success else None

    high = float(most.max())
    low = 1e-9 * high
    fractions = solve(high)
    if fractions is not None:
        return high, fractions
    fractions = np.zeros((n, g))
    while high > 1.0001 * low:
        level = math.sqrt(low * high)
        found = solve(level)
        if found is None:
            high = level
        else:
            low, fractions = level, found
    return low, fractions
