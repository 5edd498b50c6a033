"""The step-time model of the Alibaba-PAI characterization, as we understand the paper, for many workloads at once.

Wang et al., "Characterizing Deep Learning Training Workloads on Alibaba-PAI", IISWC 2019 (arXiv 1910.05930). One step
of a computation node (cNode: one GPU replica) takes T = T_d + T_c + T_w: input data over PCIe, computation, weights and
gradients; with ideal overlap the longest of the three. The formulas are recalled, not checked against the paper.

| architecture    | weights travel over | input PCIe              |
|-----------------|---------------------|-------------------------|
| 1w1g            | nothing             | own                     |
| 1wng            | PCIe                | shared within a server  |
| ps_worker       | Ethernet + PCIe     | own                     |
| allreduce_local | NVLink              | shared within a server  |
| allreduce_cluster | Ethernet + NVLink | shared within a server (an assumption) |
| pearl           | NVLink              | shared within a server  |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.contention import pcie_sharers
from dl2env.speed.hardware import Hardware

FloatArray = NDArray[np.float64]

ARCHITECTURES = ("1w1g", "1wng", "ps_worker", "allreduce_local", "allreduce_cluster", "pearl")
"""Names; workloads hold indices into this tuple."""

SERVER_GROUP, ROOT_GROUP, NO_SHARING = 8, 4, 0
"""Values of `pcie_group`: all GPUs of a server share PCIe (as recalled), the GPUs of one of its two roots, none."""

MAX_LOCAL_CNODES = 8
"""GPUs of a server, so the most cNodes of architectures that live on one."""

_LOCAL = ("1wng", "allreduce_local", "pearl")
_USES_ETHERNET = ("ps_worker", "allreduce_cluster")
_USES_PCIE = ("1wng", "ps_worker")
_USES_NVLINK = ("allreduce_local", "allreduce_cluster", "pearl")
_SHARES_PCIE = ("1wng", "allreduce_local", "allreduce_cluster", "pearl")


def architecture_index(name: str) -> int:
    """Index of an architecture in `ARCHITECTURES`.

    Raises:
        UnknownNameError: There is none of that name.
    """
    if name not in ARCHITECTURES:
        raise UnknownNameError("architecture", name, ARCHITECTURES)
    return ARCHITECTURES.index(name)


def _member_mask(architecture: NDArray[np.int8], names: Sequence[str]) -> NDArray[np.bool_]:
    return np.isin(architecture, [ARCHITECTURES.index(name) for name in names])


@dataclass(frozen=True)
class PaiWorkloads:
    """Features of N training jobs, one array entry each; per cNode and step.

    Attributes:
        architecture: (N,) indices into `ARCHITECTURES`.
        num_cnodes: (N,) GPU replicas.
        batch_size: (N,) samples per replica.
        flops: (N,) operations of compute-bound kernels.
        memory_bytes: (N,) bytes moved by memory-bound kernels (S_mem).
        input_bytes: (N,) input data copied to the GPU (S_d).
        weight_traffic_bytes: (N,) weight and gradient traffic (S_w).
    """

    architecture: NDArray[np.int8]
    num_cnodes: FloatArray
    batch_size: FloatArray
    flops: FloatArray
    memory_bytes: FloatArray
    input_bytes: FloatArray
    weight_traffic_bytes: FloatArray

    def __post_init__(self) -> None:
        entries = [field.name for field in dataclasses.fields(self)]
        arrays = np.broadcast_arrays(*(np.atleast_1d(getattr(self, name)) for name in entries))
        for name, values in zip(entries, arrays, strict=True):
            dtype = np.int8 if name == "architecture" else np.float64
            converted: NDArray[Any] = np.ascontiguousarray(values, dtype=dtype)
            least = 1 if name in ("num_cnodes", "batch_size") else 0
            bad = ~np.isfinite(converted) | (converted < least)
            if name == "architecture":
                bad |= converted >= len(ARCHITECTURES)
            if bad.any():
                row = int(np.argmax(bad))
                raise ConfigError(f"PAI workload {row}: {name}={converted[row]} must be finite and at least {least}")
            object.__setattr__(self, name, converted)

    @property
    def size(self) -> int:
        """Number of workloads."""
        return int(self.architecture.shape[0])


@dataclass(frozen=True)
class Breakdown:
    """Where the time of one step goes, in seconds; every array has shape (N,).

    Attributes:
        input_s: T_d.
        compute_bound_s: Part of T_c limited by FLOP/s.
        memory_bound_s: Part of T_c limited by memory bandwidth.
        ethernet_s, pcie_s, nvlink_s: T_w by medium.
        overlap: `none`: the step is the sum; `ideal`: the longest of T_d, T_c, T_w.
    """

    input_s: FloatArray
    compute_bound_s: FloatArray
    memory_bound_s: FloatArray
    ethernet_s: FloatArray
    pcie_s: FloatArray
    nvlink_s: FloatArray
    overlap: Literal["none", "ideal"] = "none"

    @property
    def compute_s(self) -> FloatArray:
        """T_c: compute-bound plus memory-bound time."""
        return self.compute_bound_s + self.memory_bound_s

    @property
    def weight_s(self) -> FloatArray:
        """T_w, over all media."""
        return self.ethernet_s + self.pcie_s + self.nvlink_s

    @property
    def total_s(self) -> FloatArray:
        """Time of a step."""
        if self.overlap == "ideal":
            return np.maximum(np.maximum(self.input_s, self.compute_s), self.weight_s)
        return self.input_s + self.compute_s + self.weight_s

    def shares(self) -> dict[str, FloatArray]:
        """Each component over the sum of all, whatever the overlap; they add up to 1."""
        parts = {
            "input": self.input_s,
            "compute_bound": self.compute_bound_s,
            "memory_bound": self.memory_bound_s,
            "ethernet": self.ethernet_s,
            "pcie": self.pcie_s,
            "nvlink": self.nvlink_s,
        }
        total = self.input_s + self.compute_s + self.weight_s
        return {name: np.divide(part, total, out=np.zeros_like(part), where=total > 0) for name, part in parts.items()}


def step_breakdown(
    workloads: PaiWorkloads,
    hardware: Hardware,
    *,
    gpu: str = "pai-base",
    overlap: Literal["none", "ideal"] = "none",
    pcie_group: int = SERVER_GROUP,
    cluster_shares_pcie: bool = True,
) -> Breakdown:
    """Time of one step of every workload, by component.

    Args:
        workloads: What a step needs.
        hardware: Capacities and the efficiency of each.
        gpu: GPU kind in the hardware's catalogue.
        overlap: How the components combine.
        pcie_group: Most replicas that share a server's PCIe for input: `SERVER_GROUP`, `ROOT_GROUP` or `NO_SHARING`.
        cluster_shares_pcie: Whether that holds for AllReduce-Cluster too, which the recollection leaves open.

    Raises:
        UnknownNameError: The hardware has no GPU of that name.
    """
    processor, efficiency = hardware.gpu(gpu), hardware.efficiency
    architecture = workloads.architecture
    sharing = [name for name in _SHARES_PCIE if cluster_shares_pcie or name != "allreduce_cluster"]
    sharers = np.where(_member_mask(architecture, sharing), pcie_sharers(workloads.num_cnodes, pcie_group), 1.0)
    traffic = workloads.weight_traffic_bytes
    return Breakdown(
        input_s=workloads.input_bytes * sharers / hardware.effective_pcie,
        compute_bound_s=workloads.flops / (processor.peak_flops * efficiency.compute),
        memory_bound_s=workloads.memory_bytes / (processor.memory_bytes_per_s * efficiency.memory),
        ethernet_s=np.where(_member_mask(architecture, _USES_ETHERNET), traffic / hardware.effective_ethernet, 0.0),
        pcie_s=np.where(_member_mask(architecture, _USES_PCIE), traffic / hardware.effective_pcie, 0.0),
        nvlink_s=np.where(_member_mask(architecture, _USES_NVLINK), traffic / hardware.effective_nvlink, 0.0),
        overlap=overlap,
    )


def samples_per_s(workloads: PaiWorkloads, breakdown: Breakdown) -> FloatArray:
    """Throughput: cNodes x batch size / step time."""
    return workloads.num_cnodes * workloads.batch_size / breakdown.total_s


def port(workloads: PaiWorkloads, architecture: str) -> PaiWorkloads:
    """The same jobs on another architecture, with the replicas that it allows: 1 for 1w1g, at most 8 on one server."""
    limit = 1.0 if architecture == "1w1g" else MAX_LOCAL_CNODES if architecture in _LOCAL else np.inf
    return dataclasses.replace(
        workloads,
        architecture=np.full(workloads.size, architecture_index(architecture), dtype=np.int8),
        num_cnodes=np.minimum(workloads.num_cnodes, limit),
    )


@dataclass(frozen=True)
class Speedup:
    """Gain of a change, one array entry per job.

    Attributes:
        single_cnode: T_old / T_new.
        throughput: The same times n_new / n_old: what the job gains, replicas it loses counted.
    """

    single_cnode: FloatArray
    throughput: FloatArray


def speedup(old: PaiWorkloads, old_step: Breakdown, new: PaiWorkloads, new_step: Breakdown) -> Speedup:
    """Gain from one set of jobs and hardware to another."""
    single = old_step.total_s / new_step.total_s
    return Speedup(single, single * new.num_cnodes / old.num_cnodes)


def ring_traffic_bytes(trainable_bytes: ArrayLike, num_cnodes: ArrayLike) -> FloatArray:
    """Traffic of ring all-reduce per replica, sent and received: S_w = 4 (n - 1) / n x trainable bytes.

    At n = 8 this is 3.5, which the recalled traffic of three of the paper's models meets.
    """
    n = np.asarray(num_cnodes, dtype=np.float64)
    return np.asarray(4.0 * (n - 1.0) / n * np.asarray(trainable_bytes, dtype=np.float64))
