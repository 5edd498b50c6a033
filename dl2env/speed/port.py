"""Jobs on another architecture: what they would gain, and which architecture is the fastest for each.

Rules of the Alibaba-PAI characterization (Wang et al., IISWC 2019), as we understand the paper: the features and the
batch of a cNode stay, a server holds at most 8 cNodes, and a job's gain counts the cNodes it loses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.speed.characterization import (
    ARCHITECTURES,
    GPUS_PER_SERVER,
    LOCAL,
    Breakdown,
    FloatArray,
    PaiWorkloads,
    StepModel,
    architecture_index,
    samples_per_s,
)


def port(workloads: PaiWorkloads, architecture: str) -> PaiWorkloads:
    """The same jobs on another architecture, with the replicas it allows: one on 1w1g, one server's on local ones.

    Raises:
        UnknownNameError: There is no architecture of that name.
    """
    limit = 1.0 if architecture == "1w1g" else float(GPUS_PER_SERVER) if architecture in LOCAL else np.inf
    return dataclasses.replace(
        workloads,
        architecture=np.array([architecture_index(architecture)], dtype=np.int8),
        num_cnodes=np.minimum(workloads.num_cnodes, limit),
    )


@dataclass(frozen=True)
class Speedup:
    """Gain of a change, one array entry per job; above 1 is faster.

    Attributes:
        single_cnode: T_old / T_new.
        throughput: The same times n_new / n_old: what the job gains, replicas it loses counted.
    """

    single_cnode: FloatArray
    throughput: FloatArray


def speedup(old: PaiWorkloads, old_step: Breakdown, new: PaiWorkloads, new_step: Breakdown) -> Speedup:
    """Gain from one set of jobs and hardware to another.

    It is 1 where neither step has work, infinite where only the new one has none.
    """
    before, after = old_step.total_s, new_step.total_s
    idle = np.where(before > 0, np.inf, 1.0)
    single = np.divide(before, after, out=idle, where=after > 0)
    return Speedup(single, single * (new.num_cnodes / old.num_cnodes))


def port_speedup(workloads: PaiWorkloads, architecture: str, model: StepModel) -> Speedup:
    """Gain of every job from moving to an architecture.

    Args:
        workloads: Jobs on their present architectures.
        architecture: Where they go.
        model: Hardware and assumptions of both steps.

    Raises:
        UnknownNameError: There is no architecture of that name.
    """
    ported = port(workloads, architecture)
    return speedup(workloads, model.breakdown(workloads), ported, model.breakdown(ported))


def weights_fit(workloads: PaiWorkloads, architecture: str, gpu_memory_bytes: float) -> NDArray[np.bool_]:
    """(N,) whether the weights of jobs ported to an architecture fit into GPU memory: necessary, not sufficient.

    1wng and PS/Worker keep parameters in host memory; all-reduce and 1w1g hold all of them on each GPU; PEARL
    replicates dense weights and partitions embeddings over the job's GPUs. Activations need memory too and are not
    counted.

    Args:
        workloads: Jobs; their weights count as given, optimiser slots included if they are.
        architecture: Where they go.
        gpu_memory_bytes: Memory of one GPU.

    Raises:
        ConfigError: The memory is not positive, or the weights of a job are unknown.
        UnknownNameError: There is no architecture of that name.
    """
    if not 0 < gpu_memory_bytes < np.inf:
        raise ConfigError(f"gpu_memory_bytes={gpu_memory_bytes} must be a positive number")
    if np.isnan(workloads.weight_bytes).any():
        row = int(np.argmax(np.isnan(workloads.weight_bytes)))
        raise ConfigError(f"PAI workload {row}: weights unknown; give dense_weight_bytes and embedding_weight_bytes")
    ported = port(workloads, architecture)
    if architecture in ("1wng", "ps_worker"):
        return np.ones(ported.size, dtype=np.bool_)
    parts = ported.num_cnodes if architecture == "pearl" else 1.0
    needed = ported.dense_weight_bytes + ported.embedding_weight_bytes / parts
    return np.asarray(needed <= gpu_memory_bytes)


@dataclass(frozen=True)
class Comparison:
    """Jobs on several architectures.

    Attributes:
        architectures: A names.
        samples_per_s: (A, N) throughput of each job; 0 where its weights do not fit.
        best: (N,) index of the fastest into `architectures`; the present one wins ties.
    """

    architectures: tuple[str, ...]
    samples_per_s: FloatArray
    best: NDArray[np.int64]


def compare_architectures(
    workloads: PaiWorkloads,
    model: StepModel,
    architectures: Sequence[str] = ARCHITECTURES,
    gpu_memory_bytes: float | None = None,
) -> Comparison:
    """Throughput of every job on every architecture, by the port rules.

    Args:
        workloads: Jobs on their present architectures.
        model: Hardware and assumptions.
        architectures: Candidates.
        gpu_memory_bytes: Memory of one GPU; candidates that `weights_fit` excludes count as 0. None: no limit.

    Raises:
        UnknownNameError: There is no architecture of that name.
    """
    rates = np.empty((len(architectures), workloads.size))
    for i, name in enumerate(architectures):
        ported = port(workloads, name)
        rates[i] = samples_per_s(ported, model.breakdown(ported))
        if gpu_memory_bytes is not None:
            rates[i] = np.where(weights_fit(workloads, name, gpu_memory_bytes), rates[i], 0.0)
    is_present = np.array([architecture_index(name) for name in architectures])[:, None] == workloads.architecture
    is_best = rates >= rates.max(axis=0)
    # Among the fastest, the present architecture first, then the order given.
    best = np.argmax(is_best.astype(np.int64) + (is_best & is_present), axis=0)
    return Comparison(tuple(architectures), rates, best)
