"""What schedulers know about job speeds: a table of step times per type, workers and parameter servers.

Whatever the knowledge is worth (exact, noisy, fitted), it has one form, so that all readers are indifferent to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import EnvConfig
from dl2env.speed.analytic import isolated_step_time
from dl2env.speed.parameters import SpeedParameters


class EstimateTables(NamedTuple):
    """The knowledge of one environment, to be stacked over the environments of a batch.

    Attributes:
        estimate: (T, W + 2, P + 2, 2) step seconds, and of these the communication seconds that link stretch
            multiplies; (inf, 0) where a job cannot train.
        best_speed: (T,) best estimated samples/s within the caps of the type.
        fit: (T, 5, 6) normal equations of the online fit (see `dl2env.speed.fitted`); (0, 5, 6) unless `fitted`.
    """

    estimate: NDArray[np.float64]
    best_speed: NDArray[np.float64]
    fit: NDArray[np.float64]


def exact_estimate(parameters: SpeedParameters, config: EnvConfig) -> NDArray[np.float64]:
    """True isolated step times, (T, W + 2, P + 2, 2): from the measured table if there is one, else from the model."""
    max_workers, max_ps = config.workload.max_workers, config.workload.max_ps
    if parameters.table.shape[1] > 0:
        return table_step_time(parameters, parameters.table[:, : max_workers + 2, : max_ps + 2])
    return isolated_step_time(
        parameters,
        max_workers,
        max_ps,
        pcie_group=config.cluster.pcie_group,
        ideal_overlap=config.speed.overlap == "ideal",
    )


def table_step_time(parameters: SpeedParameters, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step times of a table of speeds; placement does not matter there, so communication is 0.

    Args:
        parameters: Constants of the types.
        table: (T, W', P') samples/s. A speed of zero or less means that the job does not train.
    """
    batch = parameters.types["batch_size"][:, None, None]
    synchronous = parameters.types["is_synchronous"][:, None, None]
    batches = np.where(synchronous, 1.0, np.arange(table.shape[1])[None, :, None])
    step_s = np.full(table.shape, np.inf)
    np.divide(batch * batches, table, out=step_s, where=table > 0)
    return np.stack((step_s, np.zeros_like(step_s)), axis=-1)


def estimated_speed(parameters: SpeedParameters, estimate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Samples/s of every cell of an estimate, (..., T, W + 2, P + 2), without contention."""
    batch = parameters.types["batch_size"][:, None, None]
    synchronous = parameters.types["is_synchronous"][:, None, None]
    batches = np.where(synchronous, 1.0, np.arange(estimate.shape[-3])[:, None])
    return np.asarray(batch * batches / estimate[..., 0])


def best_speed(parameters: SpeedParameters, estimate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Best samples/s of each type within its caps, (..., T)."""
    speed = estimated_speed(parameters, estimate)
    workers = np.arange(speed.shape[-2])[:, None]
    ps = np.arange(speed.shape[-1])
    types = parameters.types[:, None, None]
    within = (workers <= types["max_workers"]) & (ps <= types["max_ps"])
    return np.asarray(np.where(within, speed, 0.0).max(axis=(-2, -1)))


def noisy_estimate(estimate: NDArray[np.float64], noise: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """An estimate whose every speed is off by a factor of 1 + U(-noise, noise)."""
    factor = 1.0 + rng.uniform(-noise, noise, size=estimate.shape[:-1])
    return estimate / factor[..., None]


def estimate_tables(
    parameters: SpeedParameters, config: EnvConfig, rng: np.random.Generator | None = None
) -> EstimateTables:
    """The knowledge of one environment at the start of an episode, as `config.estimate` says.

    Args:
        parameters: Constants of the types.
        config: Environment; its caps give the table's size.
        rng: Source of the errors; without one they are drawn from a fixed seed. Unused by `exact`.
    """
    kind, noise = config.estimate.kind, config.estimate.noise
    estimate, equations = exact_estimate(parameters, config), np.zeros((0, 5, 6))
    rng = rng if rng is not None else np.random.default_rng(0)
    if kind == "noisy":
        estimate = noisy_estimate(estimate, noise, rng)
    elif kind == "fitted":
        from dl2env.speed.fitted import fit_probes  # numba

        estimate, equations = fit_probes(parameters, estimate, config.estimate.num_probes, noise, rng)
    return EstimateTables(estimate, best_speed(parameters, estimate), equations)


@dataclass(frozen=True)
class SpeedEstimate:
    """Estimated speeds for schedulers and people.

    Attributes:
        parameters: Constants of the types.
        table: (T, W + 2, P + 2, 2) step and communication seconds.
    """

    parameters: SpeedParameters
    table: NDArray[np.float64]

    def step_s(
        self, type_idx: ArrayLike, workers: ArrayLike, ps: ArrayLike, stretch: ArrayLike = 1.0
    ) -> NDArray[np.float64]:
        """Seconds of a training step when communication is stretched; infinite where the job cannot train."""
        cell = self.table[np.asarray(type_idx), np.asarray(workers), np.asarray(ps)]
        return np.asarray(cell[..., 0] + (np.asarray(stretch) - 1.0) * cell[..., 1])

    def samples_per_s(
        self, type_idx: ArrayLike, workers: ArrayLike, ps: ArrayLike, stretch: ArrayLike = 1.0
    ) -> NDArray[np.float64]:
        """Speed; the arguments broadcast.

        Args:
            type_idx: Index of the job type.
            workers: Number of workers, at most one above the cap.
            ps: Number of parameter servers, at most one above the cap.
            stretch: Factor on the communication time.
        """
        types = self.parameters.types[np.asarray(type_idx)]
        batches = np.where(types["is_synchronous"], 1.0, np.asarray(workers, dtype=np.float64))
        return np.asarray(types["batch_size"] * batches / self.step_s(type_idx, workers, ps, stretch))
