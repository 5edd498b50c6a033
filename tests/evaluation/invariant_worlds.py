"""A small world in which everything happens that the invariants are about."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from dl2env.config import EstimateConfig
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.parameters import ALL_REDUCE, LOCAL_PS, PEARL, PS_WORKER, SpeedParameters
from tests.schedulers.worlds import Job, Type, workload, world
from tests.sim.random_cases import random_action

JOBS = [
    Job(0, samples=40.0),
    Job(1, samples=300.0),
    Job(0, samples=400.0),
    Job(2, samples=250.0),
    Job(3, samples=250.0, arrival_s=30.0),
    Job(0, samples=200.0, arrival_s=610.0),
]
SERVERS = [(6, 4), (5, 3), (8, 4)]


def rich_world(kind: str = "analytic", **dynamics: Any) -> ClusterSimulator:
    """Jobs of all architectures that compete for links and servers; every constant of the speed model matters.

    Args:
        kind: `analytic`, `measured`, or an estimate: `fitted`, `noisy`.
        **dynamics: Rules.
    """
    types = [
        Type(caps=(3, 3), compute_s=1.0, fixed_s=0.1, ethernet_s=0.5, link_use=0.4),
        Type(caps=(4, 0), compute_s=2.0, fixed_s=0.1, ethernet_s=0.3, link_use=0.3, architecture=ALL_REDUCE),
        Type(caps=(3, 0), compute_s=1.5, fixed_s=0.2, architecture=LOCAL_PS),
        Type(caps=(2, 0), worker=(2, 1), compute_s=1.5, fixed_s=0.2, architecture=PEARL),
    ]
    estimate = EstimateConfig(kind=kind, noise=0.1) if kind in ("fitted", "noisy") else None  # type: ignore[arg-type]
    rules = dict(placement="spread", initial_bundle=True, scaling_cost="hot", max_intervals=40) | dynamics
    sim = world(types, JOBS, SERVERS, link_sharing=0.5, estimate=estimate, **rules)
    speed = with_all_costs(sim.speed, kind)
    cluster = dataclasses.replace(sim.config.cluster, pcie_group=4)
    sim = ClusterSimulator(dataclasses.replace(sim.config, cluster=cluster), 1, speed=speed)
    sim.load([0], [workload(sim, JOBS, noise_key=3)])
    return sim


def with_all_costs(speed: SpeedParameters, kind: str) -> SpeedParameters:
    """The same types with every term of the step time, or a measured table."""
    types = speed.types.copy()
    uses_ps = types["architecture"] == PS_WORKER
    types["weight_bytes"] = 2e8
    types["input_s"] = 0.05
    types["weight_pcie_s"] = [0.06, 0.0, 0.07, 0.0]  # architectures use one or the other
    types["nvlink_s"] = [0.0, 0.08, 0.0, 0.09]
    types["worker_cost_s"], types["ps_cost_s"] = 0.01, 0.02 * uses_ps
    types["exchange_s"], types["ps_service_s"] = 0.05 * uses_ps, 0.04 * uses_ps
    types["is_synchronous"] = [True, True, False, True]
    types["batch_size"] = [1.0, 1.2, 0.8, 1.0]
    table = speed.table
    if kind == "measured":
        table = np.fromfunction(lambda t, w, p: (w > 0) * (w + 0.3 * p) / (2 + t), (len(types), 6, 5))
    return speed._replace(types=types, table=table)


def play(sim: ClusterSimulator, seed: int = 0, limit: int = 150, void_share: float = 0.15) -> None:
    """Random, mostly legal decisions until all episodes have ended."""
    rng = np.random.default_rng(seed)
    for _ in range(limit):
        if sim.is_done.all():
            return
        sim.step([random_action(rng, row, void_share, 0.02) for row in sim.action_masks().tolist()])


def corrupt(array: Any, at: tuple[int, ...], field: str | None) -> None:
    """Changes one number: flips a flag, adds one, or is off by some per cent."""
    values = array if field is None else array[field]
    old = values[at]
    if values.dtype.kind == "b":
        values[at] = not old
    elif values.dtype.kind in "iu":
        values[at] = old + values.dtype.type(1)
    else:
        values[at] = 0.25 if math.isnan(old) or math.isinf(old) else 1.03 * old + 0.01
