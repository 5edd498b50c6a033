"""The analytic speed of elastic jobs: PAI step-time terms, extended to any number and placement of tasks.

The rules are in docs/architecture.md, 'Step time'. `step_time` is the reference for the simulator's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import ClusterConfig
from dl2env.errors import PlacementError
from dl2env.speed.contention import link_share, pcie_sharers
from dl2env.speed.hardware import Hardware, Processor
from dl2env.speed.parameters import (
    ALL_REDUCE,
    ARCHITECTURES,
    LOCAL_PS,
    PEARL,
    PS_WORKER,
    SINGLE,
    SINGLE_SERVER,
    TYPE_DTYPE,
    SpeedParameters,
)

if TYPE_CHECKING:
    from dl2env.workload.job_types import JobType


class StepTime(NamedTuple):
    """Parts of one training step in seconds; all arrays have the shape of the jobs.

    Attributes:
        input_s: T_d, input data over PCIe.
        compute_s: T_c, on the slowest GPU kind used.
        ethernet_s: Part of T_w on the network, stretched by other jobs.
        local_s: Part of T_w on PCIe or NVLink.
        exchange_s: Part of T_w that a worker's own sending and receiving takes, stretched by other jobs.
        service_s: Part of T_w that parameter servers take to receive, apply and send, stretched likewise.
        overhead_s: T_o, coordination.
        total_s: The step; infinite when the job cannot train.
    """

    input_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    ethernet_s: NDArray[np.float64]
    local_s: NDArray[np.float64]
    exchange_s: NDArray[np.float64]
    service_s: NDArray[np.float64]
    overhead_s: NDArray[np.float64]
    total_s: NDArray[np.float64]


def analytic_parameters(
    job_types: Sequence[JobType], cluster: ClusterConfig, hardware: Hardware, max_workers: int, max_ps: int
) -> SpeedParameters:
    """Constants of the step-time model per job type.

    A rate fitted for a type is used as it is; otherwise the hardware's nominal rate times its efficiency holds.

    Args:
        job_types: Catalogue; its order gives the type indices.
        cluster: Servers; their GPU kinds index the second axis of `compute_s`, the kind with most GPUs first.
        hardware: Links and processors.
        max_workers: Configured cap on workers of a job.
        max_ps: Configured cap on parameter servers of a job.

    Raises:
        UnknownNameError: A server group names a GPU the hardware catalogue lacks.
        PlacementError: A task of a type fits on no server.
    """
    kinds = _gpu_kinds(cluster)
    gpus = [hardware.gpu(kind) for kind in kinds]
    types = np.zeros(len(job_types), dtype=TYPE_DTYPE)
    compute_s = np.zeros((len(job_types), len(gpus)))
    for i, job_type in enumerate(job_types):
        _fill_type(types[i], job_type, cluster, hardware, max_workers, max_ps)
        compute_s[i] = [compute_seconds(job_type, gpu, hardware) for gpu in gpus]
    parameters = SpeedParameters(
        types=types,
        compute_s=compute_s,
        table=np.zeros((len(job_types), 0, 0)),
        gpu_kinds=kinds,
        type_names=tuple(job_type.name for job_type in job_types),
    )
    types["link_use"] = link_use(parameters)
    return parameters


def link_use(parameters: SpeedParameters) -> NDArray[np.float64]:
    """(T,) share of a step in which a job communicates, without contention, in the smallest allocation that does.

    That is one worker and one parameter server, or two all-reduce workers, on separate servers; 0 for architectures
    that stay on one server. It stands for how busy one task keeps its server's link.
    """
    step_s, communication_s = np.moveaxis(isolated_step_time(parameters, 2, 1), -1, 0)
    uses_ps = parameters.types["max_ps"] > 0
    rows = np.arange(len(parameters.types))
    cell = (rows, np.where(uses_ps, 1, 2), np.where(uses_ps, 1, 0))
    return np.where(np.isfinite(step_s[cell]), communication_s[cell] / step_s[cell], 0.0)


def _gpu_kinds(cluster: ClusterConfig) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for group in cluster.servers:
        counts[group.gpu_type] = counts.get(group.gpu_type, 0) + group.count * group.gpus
    return tuple(sorted(counts, key=lambda kind: -counts[kind]))  # sorted() keeps the order of equals


def compute_seconds(job_type: JobType, gpu: Processor, hardware: Hardware) -> float:
    """T_c = FLOPs / peak + memory bytes / bandwidth of one step of `batch_size` samples, as we understand PAI.

    Workers without a GPU compute on their CPU cores, whatever GPU the server has.
    """
    scale, processor = 1.0, gpu
    if job_type.worker_gpus == 0:
        scale, processor = float(max(job_type.worker_cpus, 1)), hardware.cpu
    compute = job_type.compute_efficiency or hardware.efficiency.compute
    memory = job_type.memory_efficiency or hardware.efficiency.memory
    return (
        job_type.flops / (scale * processor.peak_flops * compute)
        + job_type.memory_bytes / (scale * processor.memory_bytes_per_s * memory)
    )  # fmt: skip


def _fill_type(
    record: np.void, job_type: JobType, cluster: ClusterConfig, hardware: Hardware, max_workers: int, max_ps: int
) -> None:
    architecture = ARCHITECTURES[job_type.architecture]
    fits = [_tasks_that_fit(group.cpus, group.gpus, job_type) for group in cluster.servers]
    largest = max(workers for workers, _ in fits)
    if largest == 0:
        raise PlacementError(
            f"job type {job_type.name!r}: a worker needs {job_type.worker_cpus} CPUs and {job_type.worker_gpus} GPUs, "
            "more than any server has; enlarge cluster.servers or leave the type out (workload.include)"
        )
    if architecture == PS_WORKER and not any(has_ps for _, has_ps in fits):
        raise PlacementError(
            f"job type {job_type.name!r}: a parameter server needs {job_type.ps_cpus} CPUs and {job_type.ps_gpus} "
            "GPUs, more than any server has; enlarge cluster.servers or leave the type out (workload.include)"
        )
    worker_cap = min(max_workers, job_type.max_workers or max_workers)
    if architecture in SINGLE_SERVER:
        worker_cap = min(worker_cap, largest)
    traffic = job_type.weight_traffic_bytes
    pcie = job_type.pcie_bytes_per_s or hardware.effective_pcie
    ethernet = job_type.ethernet_bytes_per_s or hardware.effective_ethernet
    nvlink = job_type.nvlink_bytes_per_s or hardware.effective_nvlink
    uses_ps = architecture == PS_WORKER
    on_gpu = job_type.worker_gpus > 0  # else nothing crosses PCIe
    values: dict[str, float] = {
        "architecture": architecture,
        "is_synchronous": job_type.synchronous,
        "max_workers": 1 if architecture == SINGLE else worker_cap,
        "max_ps": max_ps if uses_ps else 0,
        "worker_cpus": job_type.worker_cpus,
        "worker_gpus": job_type.worker_gpus,
        "ps_cpus": job_type.ps_cpus if uses_ps else 0,
        "ps_gpus": job_type.ps_gpus if uses_ps else 0,
        "batch_size": job_type.batch_size,
        "input_s": job_type.input_bytes / pcie if on_gpu else 0.0,
        "ethernet_s": traffic / ethernet if architecture in (PS_WORKER, ALL_REDUCE) else 0.0,
        "weight_pcie_s": traffic / pcie if on_gpu and architecture in (PS_WORKER, LOCAL_PS) else 0.0,
        "nvlink_s": traffic / nvlink if architecture in (ALL_REDUCE, PEARL) else 0.0,
        "exchange_s": traffic / job_type.worker_bytes_per_s if uses_ps and job_type.worker_bytes_per_s else 0.0,
        "ps_service_s": traffic / job_type.ps_bytes_per_s if uses_ps and job_type.ps_bytes_per_s else 0.0,
        "worker_cost_s": job_type.worker_cost_s,
        "ps_cost_s": job_type.ps_cost_s,
        "fixed_s": job_type.fixed_s,
        "weight_bytes": job_type.dense_weight_bytes + job_type.embedding_weight_bytes,
    }
    for name, value in values.items():
        record[name] = value


def _tasks_that_fit(cpus: int, gpus: int, job_type: JobType) -> tuple[int, bool]:
    """Workers that an empty server holds, and whether it can hold a parameter server."""
    counts = [
        have // need
        for have, need in ((cpus, job_type.worker_cpus), (gpus, job_type.worker_gpus))
        if need > 0
    ]  # fmt: skip
    return min(counts, default=64), job_type.ps_cpus <= cpus and job_type.ps_gpus <= gpus


def batch_fraction(parameters: SpeedParameters, type_idx: ArrayLike, workers: ArrayLike) -> NDArray[np.float64]:
    """Share of `batch_size` that one worker computes per step: 1/W for synchronous jobs, 1 for asynchronous ones."""
    synchronous = parameters.types["is_synchronous"][np.asarray(type_idx)]
    return np.where(synchronous, 1.0 / np.maximum(np.asarray(workers, dtype=np.float64), 1.0), 1.0)


def samples_per_s(
    parameters: SpeedParameters, type_idx: ArrayLike, workers: ArrayLike, step_s: ArrayLike
) -> NDArray[np.float64]:
    """Speed of jobs whose steps take `step_s` seconds; 0 where the step is infinite."""
    batch = parameters.types["batch_size"][np.asarray(type_idx)]
    count = np.asarray(workers, dtype=np.float64)
    return np.asarray(batch * count * batch_fraction(parameters, type_idx, count) / np.asarray(step_s))


def step_time(
    parameters: SpeedParameters,
    type_idx: ArrayLike,
    workers: ArrayLike,
    ps: ArrayLike,
    *,
    stretch: ArrayLike = 1.0,
    gpu_kind: ArrayLike = 0,
    pcie_group: int = 0,
    ideal_overlap: bool = False,
) -> StepTime:
    """Step time of placed jobs.

    Args:
        parameters: Constants of the types.
        type_idx: (...) type of each job; a plain number for one job.
        workers: (..., S) workers of each job on each server.
        ps: (..., S) parameter servers likewise.
        stretch: Stretch of each server's link (`contention.link_stretch`), broadcast to (..., S).
        gpu_kind: GPU kind of each server, broadcast to (..., S).
        pcie_group: Worker GPUs that share one PCIe root; 0 turns sharing off.
        ideal_overlap: The step is the longest of input, computation and weights instead of their sum.
    """
    n_w, n_p = np.broadcast_arrays(np.asarray(workers, dtype=np.float64), np.asarray(ps, dtype=np.float64))
    idx = np.broadcast_to(np.asarray(type_idx), n_w.shape[:-1])
    types = parameters.types[idx]
    architecture = types["architecture"]
    total_w, total_p = n_w.sum(axis=-1), n_p.sum(axis=-1)
    uses_ps = architecture == PS_WORKER
    can_train = (total_w > 0) & (~uses_ps | (total_p > 0))
    on_network = can_train & (((n_w > 0) | (n_p > 0)).sum(axis=-1) >= 2)
    factor = np.where(on_network[..., None], np.broadcast_to(np.asarray(stretch, dtype=np.float64), n_w.shape), 1.0)
    fraction = batch_fraction(parameters, idx, total_w)

    input_s = types["input_s"] * fraction * pcie_sharers(n_w.max(axis=-1), pcie_group)
    kind = np.broadcast_to(np.asarray(gpu_kind), n_w.shape)
    compute_s = np.where(n_w > 0, parameters.compute_s[idx[..., None], kind], 0.0).max(axis=-1) * fraction

    safe_p = np.maximum(total_p, 1.0)
    share = link_share(n_w, n_p, total_w[..., None], safe_p[..., None])
    job_stretch = np.where((n_w > 0) | (n_p > 0), factor, 1.0).max(axis=-1)
    bytes_factor = np.select(
        [uses_ps, architecture == ALL_REDUCE],
        [np.where(on_network, (factor * share).max(axis=-1), 0.0), np.where(on_network, job_stretch, 0.0)],
        0.0,
    )
    ethernet_s = types["ethernet_s"] * bytes_factor
    uses_nvlink = ((architecture == ALL_REDUCE) & (total_w > 1)) | (architecture == PEARL)
    local_s = types["weight_pcie_s"] + np.where(uses_nvlink, types["nvlink_s"], 0.0)
    exchange_s = types["exchange_s"] * np.where(n_w > 0, factor, 1.0).max(axis=-1)
    ps_stretch = np.where(n_p > 0, factor, 1.0).max(axis=-1)
    service_s = np.where(uses_ps, types["ps_service_s"] * total_w / safe_p * ps_stretch, 0.0)
    overhead_s = types["fixed_s"] + types["worker_cost_s"] * total_w + types["ps_cost_s"] * total_p

    weight_s = ethernet_s + local_s + exchange_s + service_s
    parts = (input_s, compute_s, weight_s)
    busy_s = np.maximum.reduce(parts) if ideal_overlap else input_s + compute_s + weight_s
    total_s = np.where(can_train, busy_s + overhead_s, np.inf)
    return StepTime(input_s, compute_s, ethernet_s, local_s, exchange_s, service_s, overhead_s, total_s)


def isolated_step_time(
    parameters: SpeedParameters,
    max_workers: int,
    max_ps: int,
    *,
    pcie_group: int = 0,
    ideal_overlap: bool = False,
    gpu_kind: int = 0,
) -> NDArray[np.float64]:
    """Step times without contention, of jobs with one task per server (single-server types: all on one server).

    Args:
        parameters: Constants of the types.
        max_workers: W, configured cap on workers; the table goes one beyond.
        max_ps: P, configured cap on parameter servers; the table goes one beyond.
        pcie_group: As for `step_time`.
        ideal_overlap: As for `step_time`. Communication hidden behind computation still counts as communication.
        gpu_kind: GPU kind of all workers; by default the cluster's most common one.

    Returns:
        (T, W + 2, P + 2, 2): step seconds, and of these the communication seconds that link stretch multiplies
        (Ethernet, the workers' exchange, parameter-server service). (inf, 0) where the job cannot train; types without
        parameter servers train at P = 0 only.
    """
    types = parameters.types[:, None, None]
    architecture = types["architecture"]
    w = np.arange(max_workers + 2, dtype=np.float64)[None, :, None]
    p = np.arange(max_ps + 2, dtype=np.float64)[None, None, :]
    safe_w, safe_p = np.maximum(w, 1.0), np.maximum(p, 1.0)
    uses_ps = architecture == PS_WORKER
    fraction = np.where(types["is_synchronous"], 1.0 / safe_w, 1.0)

    local = np.isin(architecture, SINGLE_SERVER)
    input_s = types["input_s"] * fraction * np.where(local, pcie_sharers(w, pcie_group), 1.0)
    compute_s = parameters.compute_s[:, gpu_kind, None, None] * fraction
    several = (architecture == ALL_REDUCE) & (w > 1)
    ethernet_s = types["ethernet_s"] * np.where(uses_ps, np.maximum(1.0, w / safe_p), several)
    local_s = types["weight_pcie_s"] + np.where(several | (architecture == PEARL), types["nvlink_s"], 0.0)
    service_s = np.where(uses_ps, types["ps_service_s"] * w / safe_p, 0.0)
    overhead_s = types["fixed_s"] + types["worker_cost_s"] * w + types["ps_cost_s"] * p

    communication_s = ethernet_s + types["exchange_s"] + service_s
    parts = (input_s, compute_s, communication_s + local_s)
    busy_s = np.maximum.reduce(np.broadcast_arrays(*parts)) if ideal_overlap else parts[0] + parts[1] + parts[2]
    can_train = (w > 0) & np.where(uses_ps, p > 0, p == 0) & ((architecture != SINGLE) | (w == 1))
    step_s = np.where(can_train, busy_s + overhead_s, np.inf)
    return np.stack(np.broadcast_arrays(step_s, np.where(can_train, communication_s, 0.0)), axis=-1)
