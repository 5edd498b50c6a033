"""What a speed model hands to the simulator: constants per job type, in seconds per training step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Architectures as the kernels know them. The order is part of the kernel contract.
PS_WORKER, ALL_REDUCE, LOCAL_PS, PEARL, SINGLE = range(5)
ARCHITECTURES: dict[str, int] = {
    "ps_worker": PS_WORKER,  # parameter servers over Ethernet and PCIe
    "all_reduce": ALL_REDUCE,  # NVLink on one server, Ethernet + NVLink across servers
    "1wng": LOCAL_PS,  # one server, weights through host memory over PCIe
    "pearl": PEARL,  # one NVLink server, partitioned embeddings
    "1w1g": SINGLE,  # one GPU, no weight traffic
}
SINGLE_SERVER = (LOCAL_PS, PEARL, SINGLE)
"""Architectures whose workers must share one server."""

TYPE_DTYPE = np.dtype(
    [
        ("architecture", np.int8),
        ("is_synchronous", np.bool_),
        ("max_workers", np.int16),  # cap within the configured cap (1 for 1w1g)
        ("max_ps", np.int16),  # 0 for architectures without parameter servers
        ("worker_cpus", np.int32),
        ("worker_gpus", np.int32),
        ("ps_cpus", np.int32),
        ("ps_gpus", np.int32),
        ("batch_size", np.float64),  # samples: global batch if synchronous, else per worker
        ("input_s", np.float64),  # S_d / (B_pcie * efficiency) of batch_size samples, one GPU on the root
        ("ethernet_s", np.float64),  # S_w / (B_ethernet * efficiency), link to itself
        ("weight_pcie_s", np.float64),  # S_w / (B_pcie * efficiency); 0 where the architecture does not use it
        ("nvlink_s", np.float64),  # S_w / (B_nvlink * efficiency)
        ("exchange_s", np.float64),  # S_w / R_worker, a worker's own sending and receiving; 0: unlimited
        ("ps_service_s", np.float64),  # S_w / R_ps, one worker served by one PS; 0: unlimited
        ("worker_cost_s", np.float64),  # coordination cost per worker
        ("ps_cost_s", np.float64),  # coordination cost per PS
        ("fixed_s", np.float64),  # per-step overhead that no allocation changes
        ("link_use", np.float64),  # share of time a task keeps its server's link busy, 0..1
        ("weight_bytes", np.float64),  # trainable bytes, for the cost of scaling
    ],
    align=True,
)


class SpeedParameters(NamedTuple):
    """Everything the kernels need to know about training speed. T types, G GPU kinds, W and P the configured caps.

    Attributes:
        types: (T,) records of `TYPE_DTYPE`.
        compute_s: (T, G) FLOPs / peak + memory bytes / bandwidth of `batch_size` samples on one GPU, in seconds.
        table: (T, W + 2, P + 2) measured samples/s by (workers, PSs), one beyond the caps; (T, 0, 0) when analytic.
        gpu_kinds: Names of the GPU kinds, indexing the second axis of `compute_s`.
        type_names: Names of the job types.
    """

    types: NDArray[np.void]
    compute_s: NDArray[np.float64]
    table: NDArray[np.float64]
    gpu_kinds: tuple[str, ...]
    type_names: tuple[str, ...]
