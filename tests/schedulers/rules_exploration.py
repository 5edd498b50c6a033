"""DL2's exploration rules over random actions, as plain as can be, for one environment at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.sim.simulator import ClusterSimulator

WORKER, PS, BUNDLE = range(3)
MASK = (1 << 64) - 1


def uniform(key: int, first: int, second: int) -> float:
    """Number in [0, 1) of a key and two counters: splitmix64's finaliser, twice."""
    x = (key + first * 0x9E3779B97F4A7C15 + second * 0xBF58476D1CE4E5B9) & MASK
    for _ in range(2):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        x ^= x >> 31
    return (x >> 11) * 2.0**-53


class Draws:
    """The numbers that the decision of an environment draws."""

    def __init__(self, sim: ClusterSimulator, b: int, seed: int) -> None:
        env = sim.state.env[b]
        self._key = int(env["noise_key"]) + seed
        self._decision = int(env["num_decisions"])
        self._interval = int(env["interval"])

    def action(self, i: int, kind: int) -> float:
        return uniform(self._key, 3 * i + kind, self._decision)

    @property
    def void(self) -> float:
        return uniform(self._key, -1, self._decision)

    def of(self, purpose: int, i: int = 0) -> float:
        return uniform(self._key, purpose * 2**40 + i, self._decision)

    def of_interval(self, purpose: int) -> float:
        return uniform(self._key, purpose * 2**40, self._interval)


class Jobs:
    """Active jobs of an environment in arrival order, and what is legal for them."""

    def __init__(self, sim: ClusterSimulator, b: int, mask: NDArray[np.bool_]) -> None:
        env = sim.state.env[b]
        self.all = sim.state.active[b, : int(env["num_active"])].tolist()
        self.record = {i: sim.state.jobs[b, i] for i in self.all}
        self.type = {i: sim.state.types[int(self.record[i]["type"])] for i in self.all}
        self._mask = mask[b]

    def counts(self, i: int) -> tuple[int, int]:
        return int(self.record[i]["workers"]), int(self.record[i]["ps"])

    def is_legal(self, i: int, kind: int) -> bool:
        slot = int(self.record[i]["slot"])
        return slot >= 0 and bool(self._mask[3 * slot + kind])

    def action(self, i: int, kind: int) -> int:
        return 3 * int(self.record[i]["slot"]) + kind


def random_action(sim: ClusterSimulator, jobs: Jobs, draws: Draws) -> int:
    best, chosen = draws.void, sim.num_actions - 1
    for i in jobs.all:
        for kind in (WORKER, PS, BUNDLE):
            if jobs.is_legal(i, kind) and draws.action(i, kind) > best:
                best, chosen = draws.action(i, kind), jobs.action(i, kind)
    return chosen


def paper(sim: ClusterSimulator, b: int, mask: NDArray[np.bool_], seed: int, probability: float, ratio: float) -> int:
    jobs, draws = Jobs(sim, b, mask), Draws(sim, b, seed)
    for i in jobs.all if draws.of(1) < probability else []:
        workers, ps = jobs.counts(i)
        kinds = []
        if jobs.type[i]["max_ps"] > 0 and workers + ps > 0:
            kinds += [PS] if ps == 0 or (workers / ps > ratio) else []
            kinds += [WORKER] if workers == 0 or (ps / workers > ratio) else []
        for kind in kinds:
            if jobs.is_legal(i, kind):
                return jobs.action(i, kind)
    return random_action(sim, jobs, draws)


def released(sim: ClusterSimulator, b: int, mask: NDArray[np.bool_], seed: int, fired: Any = None) -> int:
    jobs, draws = Jobs(sim, b, mask), Draws(sim, b, seed)
    fired = {} if fired is None else fired
    ratio = (3, 4, 5, 6, 7)[int(5 * draws.of_interval(4))]
    for i in jobs.all:
        workers, ps = jobs.counts(i)
        uses_ps = jobs.type[i]["max_ps"] > 0
        kind, rule = None, ""
        if uses_ps and ps == 0:
            kind, rule = PS, "no ps"
        elif workers == 0:
            kind, rule = WORKER, "no worker"
        elif uses_ps and ps > workers * ratio:
            if draws.of(5, i) < 0.5:
                kind, rule = (BUNDLE if draws.of(6, i) < 0.5 else WORKER), "many ps"
        elif uses_ps and workers >= 0.5 * ps and draws.of(7, i) < 0.5:
            kind, rule = (PS if draws.of(8, i) < 0.99 else BUNDLE), "few ps"
        if kind is not None and jobs.is_legal(i, kind):
            fired[rule] = fired.get(rule, 0) + 1
            return jobs.action(i, kind)
    counted = [i for i in jobs.all if not is_at_caps(jobs, i)]
    tasks = {i: sum(jobs.counts(i)) for i in counted}
    if tasks and min(tasks.values()) > 0:
        least = min(counted, key=lambda i: tasks[i])
        if max(tasks.values()) // tasks[least] > (3, 4, 5)[int(3 * draws.of(2))]:
            kind = BUNDLE if draws.of(3) < 0.5 else WORKER
            if jobs.is_legal(least, kind):
                fired["balance"] = fired.get("balance", 0) + 1
                return jobs.action(least, kind)
    fired["random"] = fired.get("random", 0) + 1
    return random_action(sim, jobs, draws)


def is_at_caps(jobs: Jobs, i: int) -> bool:
    workers, ps = jobs.counts(i)
    return bool(workers >= jobs.type[i]["max_workers"] and ps >= jobs.type[i]["max_ps"])
