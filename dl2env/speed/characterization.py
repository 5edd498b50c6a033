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
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.contention import pcie_sharers
from dl2env.speed.hardware import Hardware

FloatArray = NDArray[np.float64]
Overlap = Literal["none", "ideal"]

ARCHITECTURES = ("1w1g", "1wng", "ps_worker", "allreduce_local", "allreduce_cluster", "pearl")
"""Names; workloads hold indices into this tuple."""

SERVER_GROUP, ROOT_GROUP, NO_SHARING = 8, 4, 0
"""Values of `pcie_group`: all GPUs of a server share PCIe (as recalled), the GPUs of one of its two roots, none."""

GPUS_PER_SERVER = 8
"""GPUs of a server, so the most cNodes of architectures that live on one."""

LOCAL = ("1w1g", "1wng", "allreduce_local", "pearl")
"""Architectures whose cNodes are all on one server; 1w1g has one of them."""

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
    return np.array([name in names for name in ARCHITECTURES])[architecture]


def _unknown() -> FloatArray:
    return np.full(1, np.nan)


@dataclass(frozen=True)
class PaiWorkloads:
    """Features of N training jobs, one array entry each; per cNode and step. Single numbers hold for all jobs.

    Attributes:
        architecture: (N,) indices into `ARCHITECTURES`; names are accepted and converted.
        num_cnodes: (N,) GPU replicas, whole numbers.
        batch_size: (N,) samples per replica.
        flops: (N,) operations of compute-bound kernels.
        memory_bytes: (N,) bytes moved by memory-bound kernels (S_mem).
        input_bytes: (N,) input data copied to the GPU (S_d).
        weight_traffic_bytes: (N,) weight and gradient traffic (S_w), sent and received.
        dense_weight_bytes: (N,) dense weights, NaN if unknown. S_w decides a step's time, not they; `port` uses them.
        embedding_weight_bytes: (N,) embedding weights, likewise.

    Raises:
        ConfigError: A value is not finite, too small or not whole, or a job has more local cNodes than a server GPUs.
        UnknownNameError: There is no architecture of that name.
    """

    architecture: NDArray[np.int8]
    num_cnodes: FloatArray
    batch_size: FloatArray
    flops: FloatArray
    memory_bytes: FloatArray
    input_bytes: FloatArray
    weight_traffic_bytes: FloatArray
    dense_weight_bytes: FloatArray = field(default_factory=_unknown)
    embedding_weight_bytes: FloatArray = field(default_factory=_unknown)

    def __post_init__(self) -> None:
        values = {name: np.atleast_1d(getattr(self, name)) for name in FEATURES}
        values["architecture"] = _as_indices(values["architecture"])
        try:
            arrays = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values.values()))
        except ValueError as error:
            lengths = ", ".join(f"{name} {len(value)}" for name, value in values.items() if len(value) > 1)
            raise ConfigError(
                f"PAI workloads: features of different lengths ({lengths}); give one entry per job"
            ) from error
        for name, array in zip(FEATURES, arrays, strict=True):
            _check_feature(name, array)
            converted: NDArray[Any] = np.array(array, dtype=np.int8 if name == "architecture" else np.float64)
            object.__setattr__(self, name, converted)
        self._check_replicas()

    def _check_replicas(self) -> None:
        single = self.is_on("1w1g") & (self.num_cnodes != 1)
        local = self.is_on(*LOCAL) & (self.num_cnodes > GPUS_PER_SERVER)
        if (single | local).any():
            row = int(np.argmax(single | local))
            limit = "1w1g has one" if single[row] else f"a server has {GPUS_PER_SERVER} GPUs"
            raise ConfigError(
                f"PAI workload {row}: num_cnodes={self.num_cnodes[row]:g} on "
                f"{ARCHITECTURES[self.architecture[row]]}, but {limit}; reduce num_cnodes or change the architecture"
            )

    @property
    def size(self) -> int:
        """Number of workloads."""
        return int(self.architecture.shape[0])

    @property
    def weight_bytes(self) -> FloatArray:
        """(N,) dense and embedding weights together; NaN if either is unknown."""
        return self.dense_weight_bytes + self.embedding_weight_bytes

    def is_on(self, *architectures: str) -> NDArray[np.bool_]:
        """(N,) whether each job runs on one of these architectures.

        Raises:
            UnknownNameError: There is no architecture of that name.
        """
        for name in architectures:
            architecture_index(name)
        return _member_mask(self.architecture, architectures)

    def select(self, rows: NDArray[Any]) -> PaiWorkloads:
        """Some of the jobs, by boolean mask or by indices."""
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in FEATURES})


FEATURES = tuple(entry.name for entry in dataclasses.fields(PaiWorkloads))
"""Names of the fields of `PaiWorkloads`, one array each."""


def _as_indices(architecture: NDArray[Any]) -> NDArray[Any]:
    if architecture.dtype.kind not in "UO":
        return architecture
    names, positions = np.unique(architecture.astype(str), return_inverse=True)
    for name in names:
        if name not in ARCHITECTURES:
            row = int(np.argmax(architecture.astype(str) == name))
            raise UnknownNameError(f"architecture of PAI workload {row}:", str(name), ARCHITECTURES)
    return np.array([architecture_index(str(name)) for name in names], dtype=np.int64)[positions]


def _check_feature(name: str, values: FloatArray) -> None:
    least = 1 if name in ("num_cnodes", "batch_size") else 0
    bad = np.isinf(values) | (values < least)
    if not name.endswith("_weight_bytes"):
        bad |= np.isnan(values)
    wanted = f"finite and at least {least}"
    if name == "architecture":
        bad |= (values >= len(ARCHITECTURES)) | (values != np.floor(values))
        wanted = f"an index into {', '.join(ARCHITECTURES)}"
    elif name == "num_cnodes":
        bad |= values != np.floor(values)
        wanted = "a whole number of at least 1"
    if bad.any():
        row = int(np.argmax(bad))
        raise ConfigError(f"PAI workload {row}: {name}={values[row]} must be {wanted}")


class Part(NamedTuple):
    """One of the parts that a step's time is divided into.

    Attributes:
        component: T_d, T_c or T_w.
        medium: What the part waits for.
    """

    component: str
    medium: str


PARTS = {
    "input": Part("T_d", "PCIe"),
    "compute_bound": Part("T_c", "GPU compute"),
    "memory_bound": Part("T_c", "GPU memory"),
    "ethernet": Part("T_w", "Ethernet"),
    "pcie": Part("T_w", "PCIe"),
    "nvlink": Part("T_w", "NVLink"),
}
"""Parts of a step by name: fields `<name>_s` of `Breakdown`."""


@dataclass(frozen=True)
class Breakdown:
    """Where the time of one step goes, in seconds; every array has shape (N,). `PARTS` names component and medium.

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
    overlap: Overlap = "none"

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

    def parts(self) -> dict[str, FloatArray]:
        """Seconds of each of `PARTS`."""
        return {name: getattr(self, f"{name}_s") for name in PARTS}

    def by_medium(self) -> dict[str, FloatArray]:
        """Seconds on each medium; input data and weights share PCIe."""
        media: dict[str, FloatArray] = {}
        for name, seconds in self.parts().items():
            medium = PARTS[name].medium
            media[medium] = media[medium] + seconds if medium in media else seconds
        return media

    def shares(self) -> dict[str, FloatArray]:
        """Each part over the sum of all, whatever the overlap; they add up to 1 (to 0 for a step without work)."""
        total = self.input_s + self.compute_s + self.weight_s
        return {name: _share(part, total) for name, part in self.parts().items()}

    def weight_share(self) -> FloatArray:
        """T_w over the sum of all parts: the communication share."""
        return _share(self.weight_s, self.input_s + self.compute_s + self.weight_s)


def _share(part: FloatArray, total: FloatArray) -> FloatArray:
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


def step_breakdown(
    workloads: PaiWorkloads,
    hardware: Hardware,
    *,
    gpu: str = "pai-base",
    overlap: Overlap = "none",
    pcie_group: int = SERVER_GROUP,
    cluster_shares_pcie: bool = True,
) -> Breakdown:
    """Time of one step of every workload, by component and medium.

    Args:
        workloads: What a step needs.
        hardware: Capacities and the efficiency of each.
        gpu: GPU kind in the hardware's catalogue.
        overlap: How the components combine.
        pcie_group: Most replicas that share a server's PCIe for input: `SERVER_GROUP`, `ROOT_GROUP` or `NO_SHARING`.
        cluster_shares_pcie: Whether that holds for AllReduce-Cluster too, which the recollection leaves open.

    Raises:
        UnknownNameError: The hardware has no GPU of that name, or there is no such kind of overlap.
        ConfigError: `pcie_group` is negative.
    """
    if overlap not in ("none", "ideal"):
        raise UnknownNameError("overlap", overlap, ("none", "ideal"))
    if pcie_group < 0:
        raise ConfigError(f"pcie_group={pcie_group} must be 0 (no sharing) or positive")
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


@dataclass(frozen=True)
class StepModel:
    """Hardware and assumptions of `step_breakdown` in one record, whose fields are the arguments of that function."""

    hardware: Hardware
    gpu: str = "pai-base"
    overlap: Overlap = "none"
    pcie_group: int = SERVER_GROUP
    cluster_shares_pcie: bool = True

    def breakdown(self, workloads: PaiWorkloads) -> Breakdown:
        """`step_breakdown` with this record's arguments."""
        options = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return step_breakdown(workloads, **options)


def samples_per_s(workloads: PaiWorkloads, breakdown: Breakdown) -> FloatArray:
    """Throughput: cNodes x batch size / step time; infinite for steps without work."""
    with np.errstate(divide="ignore"):
        return workloads.num_cnodes * workloads.batch_size / breakdown.total_s


def ring_traffic_bytes(trainable_bytes: ArrayLike, num_cnodes: ArrayLike) -> FloatArray:
    """Traffic of ring all-reduce per replica, sent and received: S_w = 4 (n - 1) / n x trainable bytes.

    At n = 8 this is 3.5, which the recalled traffic of three of the paper's models meets.
    """
    n = np.asarray(num_cnodes, dtype=np.float64)
    return np.asarray(4.0 * (n - 1.0) / n * np.asarray(trainable_bytes, dtype=np.float64))
