"""Which recorded jobs a cluster can hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig
from dl2env.workload.cluster_files import GPU_TYPES
from dl2env.workload.traces.report import RowCount
from dl2env.workload.traces.table import JobTable

_TOLERANCE = 1e-9


def cluster_findings(table: JobTable, cluster: ClusterConfig) -> dict[str, RowCount]:
    """Jobs that a cluster cannot hold as recorded, by reason.

    A job larger than the cluster, or with a task that no server holds, can never run as recorded: a warning. Where a
    trace has no roles, a job counts as one task; one that only fits on several servers together is noted.

    Args:
        table: Jobs.
        cluster: Its servers have GPUs and CPU cores; memory is not simulated.
    """
    tasks = np.maximum(table.num_workers + table.num_ps, 1)
    has_roles = table.num_workers > 0
    gpus = table.num_gpus / np.where(has_roles, np.maximum(table.num_workers, 1), 1)
    cpus = np.nan_to_num(table.num_cpus, nan=0.0) / tasks
    total_gpus = sum(group.count * group.gpus for group in cluster.servers)
    total_cpus = sum(group.count * group.cpus for group in cluster.servers)
    fits_gpus = gpus <= max(group.gpus for group in cluster.servers) + _TOLERANCE
    fits_one = np.zeros(table.num_jobs, dtype=bool)
    for group in cluster.servers:
        fits_one |= (gpus <= group.gpus + _TOLERANCE) & (cpus <= group.cpus + _TOLERANCE)
    exceeds = table.num_gpus > total_gpus + _TOLERANCE
    exceeds_cpus = ~exceeds & (np.nan_to_num(table.num_cpus, nan=0.0) > total_cpus + _TOLERANCE)
    rest = ~exceeds & ~exceeds_cpus
    found = {
        f"needs more GPUs than the whole cluster has ({total_gpus})": (exceeds, "num_gpus", True),
        f"needs more CPU cores than the whole cluster has ({total_cpus})": (exceeds_cpus, "num_cpus", True),
        "fits no server: a task needs more GPUs than any has": (rest & has_roles & ~fits_gpus, "num_gpus", True),
        "fits no server: GPUs and CPU cores of a task": (rest & fits_gpus & ~fits_one, "num_cpus", True),
        "fits no single server, must be spread": (rest & ~has_roles & ~fits_gpus, "num_gpus", False),
        "asks for a GPU kind that the cluster lacks": (_asks_for_another(table, cluster), "gpu_kind", False),
    }
    return {
        reason: count
        for reason, (mask, column, is_warning) in found.items()
        if (count := row_count(table, mask, column, is_warning)).count
    }


def row_count(table: JobTable, mask: NDArray[np.bool_], column: str = "", is_warning: bool = False) -> RowCount:
    """Counts jobs, with the lines of the first ones and the first one's cell as the example."""
    rows = np.flatnonzero(mask)
    if not rows.size:
        return RowCount(0)
    first = rows[np.lexsort((table.source_row[rows], table.source_file[rows]))][:5]
    value = getattr(table, column)[int(first[0])] if column else ""
    text = f"{column}={value:g}" if isinstance(value, float) else f"{column}={value!r}" if column else ""
    file = table.files[int(table.source_file[first[0]])] if len(table.files) > 1 else ""
    return RowCount(int(rows.size), tuple(int(table.source_row[row]) for row in first), text, is_warning, file)


def _asks_for_another(table: JobTable, cluster: ClusterConfig) -> NDArray[np.bool_]:
    present = {group.gpu_type for group in cluster.servers if group.gpus}
    known = {kind.lower(): gpu for kind, gpu in GPU_TYPES.items()}
    lacks = [known.get(kind.lower(), kind.lower()) not in present for kind in table.gpu_kind.names]
    return np.asarray(np.array([*lacks, False])[table.gpu_kind.codes] & (table.num_gpus > 0))
