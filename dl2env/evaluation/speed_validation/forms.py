"""The compared speed models as columns and constants.

The analytic form is the simulator's own formula: the column of a constant is what `dl2env.speed.analytic.step_time`
returns when this constant is 1 s and all others are 0. Computation and input grow with the batch of a worker.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.fitting import Combination
from dl2env.evaluation.speed_validation.steps import FloatArray, MeasuredSteps
from dl2env.speed.analytic import analytic_parameters, step_time
from dl2env.speed.characterization import SERVER_GROUP
from dl2env.speed.fitted import term_matrix
from dl2env.speed.hardware import Hardware
from dl2env.speed.parameters import ARCHITECTURES, TYPE_DTYPE, SpeedParameters
from dl2env.workload.job_types import FIT_FIELDS, JobType

CONSTANTS = (
    "compute_s",
    "input_s",
    "ethernet_s",
    "weight_pcie_s",
    "nvlink_s",
    "exchange_s",
    "ps_service_s",
    "fixed_s",
    "worker_cost_s",
    "ps_cost_s",
)
"""Constants of the simulator's step time, see `dl2env.speed.parameters`."""

FITTED = {
    "all_reduce": ("compute_s", "input_s", "ethernet_s", "nvlink_s", "fixed_s", "worker_cost_s"),
    "ps_worker": ("compute_s", "exchange_s", "ps_service_s", "worker_cost_s", "ps_cost_s"),
}
"""What is fitted. With one task of a parameter-server job per server, input cannot be told from computation, nor
weights over PCIe and fixed cost from the workers' exchange. The network card's max(1, w / p) lies between exchange and
service; fitted beside them it got nothing in seven of eight measured tables. Each counts as what it resembles."""

_OVERLAP = {  # exchange between machines against work on them
    "all_reduce": (("compute_s", "input_s", "fixed_s"), ("ethernet_s", "nvlink_s", "worker_cost_s")),
    "ps_worker": (("compute_s",), ("exchange_s", "ps_service_s", "worker_cost_s", "ps_cost_s")),
}
_IDEAL = {  # as the simulator's ideal overlap has it; coordination and fixed cost are added
    "all_reduce": (("input_s",), ("compute_s",), ("ethernet_s", "nvlink_s")),
    "ps_worker": (("compute_s",), ("exchange_s", "ps_service_s")),
}
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 5.0, 9.0)
"""Degrees of overlap that are tried: 1 is the sum, 9 nearly the maximum."""


@dataclass(frozen=True)
class Form:
    """A model of one application's step times, ready to be fitted.

    Attributes:
        name: Key of the model.
        columns: (n, K) what each constant is multiplied by.
        terms: (K,) names of the constants.
        combination: How the columns combine.
        prior: (K,) catalogue's constants, which decide what the data leave open; None without such knowledge.
    """

    name: str
    columns: FloatArray
    terms: tuple[str, ...]
    combination: Combination = dataclasses.field(default_factory=Combination)
    prior: FloatArray | None = None

    @property
    def num_parameters(self) -> int:
        """Fitted numbers: constants, and the degree of overlap where it is chosen."""
        return len(self.terms) + self.combination.chooses_exponent


def unfitted(job_type: JobType) -> JobType:
    """The job type without values fitted to measurements."""
    defaults = {f.name: f.default for f in dataclasses.fields(JobType) if f.name in FIT_FIELDS}
    return dataclasses.replace(job_type, **defaults)  # type: ignore[arg-type]


def analytic_columns(job_type: JobType, steps: MeasuredSteps, pcie_group: int = SERVER_GROUP) -> FloatArray:
    """(n, len(CONSTANTS)) columns of the simulator's step time on the measured placements.

    Args:
        job_type: Architecture, kind of training and reference batch size.
        steps: Placements and batch sizes.
        pcie_group: Most replicas that share a server's PCIe for input, see `step_time`.
    """
    count = len(CONSTANTS)
    types = np.zeros(count, dtype=TYPE_DTYPE)
    types["architecture"] = ARCHITECTURES[job_type.architecture]
    types["is_synchronous"] = job_type.synchronous
    types["batch_size"] = job_type.batch_size
    compute_s = np.zeros((count, 1))
    for k, name in enumerate(CONSTANTS):
        if name == "compute_s":
            compute_s[k] = 1.0
        else:
            types[name][k] = 1.0
    parameters = SpeedParameters(types, compute_s, np.zeros((count, 0, 0)), ("any",), CONSTANTS)
    workers, ps = (np.broadcast_to(tasks, (count, *tasks.shape)) for tasks in (steps.workers, steps.ps))
    columns = step_time(parameters, np.arange(count)[:, None], workers, ps, pcie_group=pcie_group).total_s.T.copy()
    for name in ("compute_s", "input_s"):
        columns[:, CONSTANTS.index(name)] *= steps.batch / job_type.batch_size
    return np.asarray(columns)


def analytic_constants(job_type: JobType, hardware: Hardware, gpu: str) -> FloatArray:
    """(len(CONSTANTS),) constants of a job type as the simulator derives them from features and hardware."""
    server = ServerGroup(
        1, max(job_type.worker_cpus, job_type.ps_cpus), max(job_type.worker_gpus, job_type.ps_gpus), gpu
    )
    parameters = analytic_parameters([job_type], ClusterConfig(servers=(server,)), hardware, 1, 1)
    record = parameters.types[0]
    return np.array([parameters.compute_s[0, 0] if name == "compute_s" else float(record[name]) for name in CONSTANTS])


def optimus_columns(job_type: JobType, steps: MeasuredSteps) -> tuple[FloatArray, tuple[str, ...]]:
    """Columns of Optimus' resource-speed function (`dl2env.speed.fitted`), terms that never occur left out.

    It knows the numbers of workers and PSs, not where they are. With M the global batch, w the workers and p the PSs:
    M / w, 1, w / p, w, p.
    """
    workers, ps = steps.workers.sum(axis=1), steps.ps.sum(axis=1)
    columns = term_matrix(True, 1.0, workers, ps)
    columns[:, 0] *= steps.batch * (1.0 if job_type.synchronous else workers)
    used = columns.any(axis=0)
    names = np.array(["M/w", "1", "w/p", "w", "p"])[used]
    return columns[:, used], tuple(str(name) for name in names)


def forms_of(job_type: JobType, steps: MeasuredSteps, constants: FloatArray) -> list[Form]:
    """The fitted models of an application.

    `optimus`: the resource-speed function. `fitted`: the simulator's formula. `ideal_overlap`: the same with the
    simulator's ideal overlap. `partial_overlap`: a q-norm of work and exchange instead, which the simulator does not
    have. `two_servers` (all-reduce only): besides, two costs of jobs on exactly two servers, one of them growing with
    the GPUs per server, which the simulator does not have either.

    Args:
        job_type: The application.
        steps: Its measurements.
        constants: (len(CONSTANTS),) constants of the unfitted catalogue.

    Raises:
        ConfigError: Only all-reduce and parameter-server types can be fitted.
    """
    if job_type.architecture not in FITTED:
        raise ConfigError(
            f"job type {job_type.name!r}: {job_type.architecture} cannot be fitted; choose one of: {', '.join(FITTED)}"
        )
    terms = FITTED[job_type.architecture]
    index = [CONSTANTS.index(name) for name in terms]
    columns, prior = analytic_columns(job_type, steps)[:, index], constants[index]

    def combination(parts: tuple[tuple[str, ...], ...], exponents: tuple[float, ...]) -> Combination:
        return Combination(tuple(tuple(terms.index(name) for name in part) for part in parts), exponents)

    partial = combination(_OVERLAP[job_type.architecture], EXPONENTS)
    ideal = combination(_IDEAL[job_type.architecture], (math.inf,))
    optimus, optimus_terms = optimus_columns(job_type, steps)
    forms = [
        Form("optimus", optimus, optimus_terms),
        Form("fitted", columns, terms, prior=prior),
        Form("ideal_overlap", columns, terms, ideal, prior),
        Form("partial_overlap", columns, terms, partial, prior),
    ]
    if job_type.architecture == "all_reduce":
        two = ((steps.workers > 0).sum(axis=1) == 2).astype(np.float64)
        most = steps.workers.max(axis=1)
        extra = np.stack([two, two * (most - 1.0) / most], axis=1)
        wider = Combination((partial.parts[0], (*partial.parts[1], len(terms), len(terms) + 1)), EXPONENTS)
        forms.append(
            Form(
                "two_servers",
                np.concatenate([columns, extra], axis=1),
                (*terms, "two_servers_s", "two_servers_packed_s"),
                wider,
                np.concatenate([prior, [0.0, 0.0]]),
            )
        )
    return forms
