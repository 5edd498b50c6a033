"""Small populations by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl2env.speed.characterization import PaiWorkloads
from dl2env.speed.hardware import load_hardware
from dl2env.workload.population import Population, Provenance

BASE = load_hardware("pai-base")
PROVENANCE = Provenance("file", "jobs.csv", "jobs of jobs.csv")


def one_second_jobs(
    architecture: str, weight: Any, data: Any = 0.0, num_cnodes: Any = 1.0, memory: Any = 0.0
) -> PaiWorkloads:
    """Jobs whose step takes one second on base hardware without sharing, with these shares of it; the rest is FLOPs."""
    weight, data, memory = (np.atleast_1d(np.asarray(value, dtype=float)) for value in (weight, data, memory))
    seconds_per_byte = {"1w1g": np.inf, "1wng": 1 / BASE.effective_pcie}.get(
        architecture, 1 / BASE.effective_ethernet + 1 / BASE.effective_pcie
    )
    return PaiWorkloads(
        architecture=[architecture],
        num_cnodes=num_cnodes,
        batch_size=64.0,
        flops=(1 - weight - data - memory) * 11e12 * 0.7,
        memory_bytes=memory * 1e12 * 0.7,
        input_bytes=data * BASE.effective_pcie,
        weight_traffic_bytes=weight / seconds_per_byte,
    )


def together(*parts: PaiWorkloads) -> PaiWorkloads:
    """All these jobs."""
    return PaiWorkloads(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in PaiWorkloads.__dataclass_fields__}
    )


def population(*parts: PaiWorkloads) -> Population:
    """A population of these jobs whose weights are unknown."""
    return Population(together(*parts), PROVENANCE)


def four_jobs() -> Population:
    """Two PS/Worker jobs (4 and 16 cNodes), a 1wng and a 1w1g job."""
    return population(
        one_second_jobs("ps_worker", [1.0, 0.5], 0.0, [4, 16], [0.0, 0.25]),
        one_second_jobs("1wng", 0.5, 0.0, 2, 0.3),
        one_second_jobs("1w1g", 0.0, 0.2, 1, 0.5),
    )
