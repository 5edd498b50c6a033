"""Job types and clusters shared by the tests of the speed package."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.speed.analytic import analytic_parameters
from dl2env.speed.hardware import Efficiency, Hardware, Processor
from dl2env.speed.parameters import SpeedParameters
from dl2env.workload.job_types import JobType

# Round numbers, so that cases can be computed by hand: with efficiency 0.5, links pass 1, 2 and 10 GB/s.
HARDWARE = Hardware(
    name="test",
    ethernet_bytes_per_s=2e9,
    pcie_bytes_per_s=4e9,
    nvlink_bytes_per_s=20e9,
    cpu=Processor("cpu", 1e11, 1e10),
    gpus=(Processor("slow", 2e12, 2e11), Processor("fast", 8e12, 8e11)),
    efficiency=Efficiency(0.5, 0.5, 0.5, 0.5, 0.5),
)
CLUSTER = ClusterConfig(servers=(ServerGroup(4, cpus=16, gpus=4, gpu_type="slow"),), hardware="test")
MIXED_CLUSTER = ClusterConfig(
    servers=(ServerGroup(1, cpus=16, gpus=4, gpu_type="fast"), ServerGroup(3, cpus=16, gpus=4, gpu_type="slow"))
)


def job_type(name: str = "job", **changes: Any) -> JobType:
    """A type whose parts are, on slow GPUs: compute 1 + 0.5 s, input 0.2 s, weights 0.8 / 0.4 / 0.08 s by medium."""
    base = JobType(
        name=name,
        architecture="ps_worker",
        synchronous=True,
        batch_size=12.0,
        samples_per_epoch=1200.0,
        worker_cpus=2,
        worker_gpus=1,
        ps_cpus=2,
        ps_gpus=0,
        flops=1e12,
        memory_bytes=5e10,
        input_bytes=4e8,
        weight_traffic_bytes=8e8,
        dense_weight_bytes=3e8,
        embedding_weight_bytes=1e8,
    )
    return dataclasses.replace(base, **changes)


ARCHITECTURES = ("ps_worker", "all_reduce", "1wng", "pearl", "1w1g")


def all_types() -> list[JobType]:
    """Ten types: every architecture, synchronous and asynchronous, the PS ones with costs and a service rate."""
    costs = {"ps_bytes_per_s": 4e9, "worker_cost_s": 0.01, "ps_cost_s": 0.003, "fixed_s": 0.05}
    return [
        job_type(f"{name}-{synchronous}", architecture=name, synchronous=synchronous, **costs)
        for name in ARCHITECTURES
        for synchronous in (True, False)
    ]


def parameters(*types: JobType, cluster: ClusterConfig = CLUSTER, caps: tuple[int, int] = (8, 8)) -> SpeedParameters:
    """Constants of the types on the test hardware."""
    return analytic_parameters(types, cluster, HARDWARE, *caps)


def close(actual: Any, expected: Any, tolerance: float = 1e-12) -> bool:
    """Whether all values agree to a relative tolerance; infinities must be equal."""
    return bool(np.allclose(actual, expected, rtol=tolerance, atol=1e-15))
