"""Fits the analytic step-time model of a parameter-server job type to measured speeds.

With one task per server and no contention, a step of a synchronous job takes

    T(w, p) = T_known(w, p) + a / w + x + r w / p + c_w w + c_p p

with `a` computation, `x` a worker's own exchange of weights, `r` parameter-server (PS) service and `c_w`, `c_p`
coordination. T_known is not fitted: the time on PCIe, and on Ethernet at the rate of the network card. An asynchronous
job has `a` instead of `a / w`. The fit minimises the relative error of T by non-negative least squares; computation
cannot be faster than the processor's peak. A constant cost that is no communication cannot be told from the exchange:
all of it counts as exchange (an assumption).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.errors import Dl2EnvError
from dl2env.speed.analytic import analytic_parameters, compute_seconds, isolated_step_time
from dl2env.speed.hardware import Hardware
from dl2env.speed.measured import FAILED_BELOW, MEASURED, TypeTable

if TYPE_CHECKING:
    from dl2env.workload.job_types import JobType

_UNFITTED: Mapping[str, Any] = {
    "compute_efficiency": None,
    "memory_efficiency": None,
    "ethernet_bytes_per_s": None,
    "worker_bytes_per_s": None,
    "ps_bytes_per_s": None,
    "worker_cost_s": 0.0,
    "ps_cost_s": 0.0,
    "fixed_s": 0.0,
}


@dataclass(frozen=True)
class JobTypeFit:
    """A job type fitted to measurements.

    Attributes:
        job_type: The type with the fitted values.
        values: The fitted values alone, rounded to four digits. A rate that is left out is unlimited.
        num_cells: Measured (worker, PS) cells that the fit used.
        num_failed: Failed runs that were left out.
        mean_error: Mean absolute relative error of the step time over the cells.
        max_error: The largest.
    """

    job_type: JobType
    values: dict[str, float]
    num_cells: int
    num_failed: int
    mean_error: float
    max_error: float


def fit_job_type(job_type: JobType, table: TypeTable, hardware: Hardware, gpu: str) -> JobTypeFit:
    """Fits efficiency, worker and PS rates, and costs of a type; values it had before are forgotten.

    Args:
        job_type: What a step needs. Its PCIe rate is kept.
        table: Measured speeds; only cells marked MEASURED count.
        hardware: Where the speeds were measured.
        gpu: GPU kind there.

    Raises:
        Dl2EnvError: The type has no PSs, or too few cells were measured.
    """
    from dl2env.speed.nnls import nnls_gram  # numba

    job_type = dataclasses.replace(job_type, **_UNFITTED)
    if not job_type.uses_ps:
        raise Dl2EnvError(f"job type {job_type.name!r}: only types with parameter servers can be fitted to a table")
    given = (table.origin == MEASURED) & np.isfinite(table.samples_per_s)
    usable = given & (table.samples_per_s >= FAILED_BELOW)
    if usable.sum() < 6:
        raise Dl2EnvError(f"job type {job_type.name!r}: {usable.sum()} measured cells; the fit needs at least 6")
    workers, ps = (np.asarray(axis + 1, dtype=np.float64) for axis in np.nonzero(usable))
    batches = 1.0 if job_type.synchronous else workers
    step_s = batches * job_type.batch_size / table.samples_per_s[usable]

    fraction: NDArray[np.float64] = workers ** (-1.0 if job_type.synchronous else 0.0)
    ratio = workers / ps
    terms = np.stack([fraction, np.ones_like(ratio), ratio, workers, ps], axis=1)
    peak = dataclasses.replace(job_type, compute_efficiency=1.0, memory_efficiency=1.0)
    peak_s = compute_seconds(peak, hardware.gpu(gpu), hardware)
    card_s = job_type.weight_traffic_bytes / hardware.effective_ethernet * np.maximum(1.0, ratio)
    least = np.array([peak_s, 0.0, 0.0, 0.0, 0.0])
    columns = terms / step_s[:, None]
    rest = 1.0 - (terms @ least + card_s + _pcie_seconds(job_type, hardware, fraction)) / step_s
    solution = nnls_gram(np.ascontiguousarray(columns.T @ columns), columns.T @ rest) + least

    values = _as_values(job_type, solution, peak_s)
    fitted = dataclasses.replace(job_type, **values)
    error = np.abs(_model_seconds(fitted, hardware, gpu, usable.shape)[usable] / step_s - 1.0)
    return JobTypeFit(
        fitted, values, len(step_s), int(given.sum() - usable.sum()), float(error.mean()), float(error.max())
    )


def _pcie_seconds(job_type: JobType, hardware: Hardware, fraction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Input and weights over PCIe, which are not fitted; nothing for workers without a GPU."""
    if job_type.worker_gpus == 0:
        return np.zeros_like(fraction)
    rate = job_type.pcie_bytes_per_s or hardware.effective_pcie
    return (job_type.input_bytes * fraction + job_type.weight_traffic_bytes) / rate


def _as_values(job_type: JobType, solution: NDArray[np.float64], peak_s: float) -> dict[str, Any]:
    compute_s, exchange_s, service_s, worker_cost_s, ps_cost_s = (float(value) for value in solution)
    traffic = job_type.weight_traffic_bytes
    efficiency = min(_round(peak_s / compute_s), 1.0)
    values: dict[str, float] = {"compute_efficiency": efficiency, "memory_efficiency": efficiency}
    if exchange_s > 1e-6:
        values["worker_bytes_per_s"] = _round(traffic / exchange_s)
    if service_s > 1e-6:
        values["ps_bytes_per_s"] = _round(traffic / service_s)
    costs = {"worker_cost_s": worker_cost_s, "ps_cost_s": ps_cost_s}
    return {**values, **{name: _round(value) for name, value in costs.items() if value > 1e-6}}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _model_seconds(job_type: JobType, hardware: Hardware, gpu: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """(W, P) step seconds as the analytic model has them."""
    server = ServerGroup(
        1, max(job_type.worker_cpus, job_type.ps_cpus), max(job_type.worker_gpus, job_type.ps_gpus), gpu
    )
    parameters = analytic_parameters([job_type], ClusterConfig(servers=(server,)), hardware, shape[0], shape[1])
    return isolated_step_time(parameters, shape[0], shape[1])[0, 1 : shape[0] + 1, 1 : shape[1] + 1, 0]
