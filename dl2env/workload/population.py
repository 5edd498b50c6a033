"""Populations of training jobs: generated from parameters, or a user's own.

A generated population is synthetic. Its time shares are drawn from distributions whose parameters were calibrated so
that collective figures published of the Alibaba-PAI workload hold (`dl2env.workload.population_calibration`); no job in
it is a job of PAI, and that the figures hold is by construction, so it is no evidence for them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.speed.characterization import ARCHITECTURES, FEATURES, PaiWorkloads
from dl2env.speed.contention import pcie_sharers
from dl2env.speed.hardware import Hardware, load_hardware
from dl2env.workload.population_config import KINDS, PopulationConfig, TimeShares, load_population_config
from dl2env.workload.population_figures import measure_figures
from dl2env.workload.population_file import PopulationTable, read_population_table, write_population_table

__all__ = [
    "Population",
    "PopulationConfig",
    "Provenance",
    "Variates",
    "draw_variates",
    "generate_population",
    "load_population_config",
    "read_population",
    "shape_population",
    "write_population",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Provenance:
    """Where a population comes from.

    Attributes:
        kind: `synthetic` or `file`.
        source: Name of the configuration, or path of the file.
        text: One line for reports.
        ignored_columns: Columns of a file that nothing reads.
    """

    kind: Literal["synthetic", "file"]
    source: str
    text: str
    ignored_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Population:
    """Training jobs and their features.

    Attributes:
        workloads: Features of N jobs, per cNode and step; weights are trainable ones, without optimiser state, NaN
            where unknown.
        provenance: Where they come from.
        optimizer_slots: (N,) values that the optimiser keeps per weight (0: plain gradient descent, 1: momentum, 2:
            Adam), or None if unknown.
    """

    workloads: PaiWorkloads
    provenance: Provenance
    optimizer_slots: FloatArray | None = None

    def __post_init__(self) -> None:
        slots = self.optimizer_slots
        if slots is not None and not (slots.shape == (self.size,) and np.isfinite(slots).all() and (slots >= 0).all()):
            raise ConfigError(f"Population.optimizer_slots must be {self.size} finite numbers of at least 0")

    @property
    def size(self) -> int:
        """Number of jobs."""
        return self.workloads.size

    @property
    def has_weights(self) -> bool:
        """Whether the weights of any job are known."""
        return not np.isnan(self.workloads.weight_bytes).all()

    @property
    def stored_weight_bytes(self) -> FloatArray | None:
        """(N,) weights and optimiser state in bytes, NaN where unknown; None if no job's are known.

        Without slots given: the weights alone.
        """
        if not self.has_weights:
            return None
        slots = 0.0 if self.optimizer_slots is None else self.optimizer_slots
        return self.workloads.weight_bytes * (1.0 + slots)

    def weights(self, by: Literal["job", "cnode"]) -> FloatArray:
        """(N,) weights for means over the population: every job once, or by its cNodes."""
        if by not in ("job", "cnode"):
            raise ConfigError(f"weighting {by!r} is unknown; choose one of: job, cnode")
        return np.ones(self.size) if by == "job" else self.workloads.num_cnodes.copy()

    def digest(self) -> str:
        """SHA-256 of the features, in hexadecimal: equal populations, however made, have equal digests."""
        found = hashlib.sha256()
        for name, values in _columns(self).items():
            found.update(name.encode())
            found.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        return found.hexdigest()

    def figures(self, hardware: Hardware, **options: Any) -> dict[str, float]:
        """Collective figures, see `dl2env.workload.population_figures.measure_figures`."""
        return measure_figures(self.workloads, hardware, weight_bytes=self.stored_weight_bytes, **options)


@dataclass(frozen=True)
class Variates:
    """Random numbers behind a population: (N,) each.

    Those whose names start with u are uniform in [0, 1), the others standard normal. Two
    configurations given the same variates differ by their parameters only.
    """

    u_class: FloatArray
    u_size: FloatArray
    u_heavy: FloatArray
    u_embedding: FloatArray
    u_slots: FloatArray
    z_communication: FloatArray
    z_input: FloatArray
    z_memory: FloatArray
    z_step: FloatArray
    z_batch: FloatArray
    z_dense: FloatArray
    z_embedding: FloatArray


def draw_variates(num_jobs: int, rng: np.random.Generator) -> Variates:
    """Draws what `shape_population` needs.

    Raises:
        ConfigError: The number of jobs is not positive, or memory does not suffice.
    """
    if isinstance(num_jobs, bool) or not isinstance(num_jobs, (int, np.integer)) or num_jobs < 1:
        raise ConfigError(f"num_jobs={num_jobs!r} must be a whole number of at least 1")
    names = Variates.__dataclass_fields__
    try:
        return Variates(**{n: rng.random(num_jobs) if n[0] == "u" else rng.standard_normal(num_jobs) for n in names})
    except MemoryError as error:
        raise ConfigError(f"num_jobs={num_jobs} needs more memory than there is; take fewer") from error


def generate_population(config: PopulationConfig, num_jobs: int, rng: np.random.Generator) -> Population:
    """A synthetic population; the same generator state gives the same jobs.

    Args:
        config: Its parameters.
        num_jobs: How many jobs.
        rng: Source of randomness.

    Raises:
        ConfigError: The number of jobs is not positive.
        UnknownNameError: The hardware catalogue lacks the configuration's hardware or GPU.
    """
    return shape_population(config, draw_variates(num_jobs, rng))


def shape_population(config: PopulationConfig, variates: Variates) -> Population:
    """The population that a configuration makes of given random numbers.

    Shares of time (see `TimeShares`) times a step time are seconds on the configuration's base hardware; capacities
    make them operations and bytes. So `step_breakdown` on that hardware gives the drawn shares back.
    """
    kind, num_cnodes = _kinds_and_sizes(config, variates)
    has_several = kind > 0
    communication = np.where(has_several, _share(config, kind, "communication", variates.z_communication), 0.0)
    of_rest = _share(config, kind, "input", variates.z_input)
    of_compute = _share(config, kind, "memory", variates.z_memory)
    features = config.features
    step = features.step_median_s * np.exp(features.step_sigma * variates.z_step)
    hardware = load_hardware(features.hardware)
    gpu, efficiency = hardware.gpu(features.gpu), hardware.efficiency
    computing = step * (1 - communication) * (1 - of_rest)
    seconds_per_byte = np.array(
        [0.0, 1 / hardware.effective_pcie, 1 / hardware.effective_ethernet + 1 / hardware.effective_pcie]
    )
    architecture = np.minimum(kind, 2)
    traffic = np.divide(
        step * communication, seconds_per_byte[architecture], out=np.zeros_like(step), where=has_several
    )
    sharers = np.where(kind == 1, pcie_sharers(num_cnodes, 8), 1.0)
    batch = np.exp2(np.round(np.log2(features.batch_median) + features.batch_sigma * variates.z_batch))
    dense, embedding = _weights(config, variates, has_several, traffic)
    slots = np.searchsorted(np.cumsum(features.optimizer_slot_shares[:-1]), variates.u_slots, side="right")
    return Population(
        workloads=PaiWorkloads(
            architecture=_ARCHITECTURE_OF_CLASS[architecture],
            num_cnodes=num_cnodes,
            batch_size=np.clip(batch, 1.0, features.batch_largest),
            flops=computing * (1 - of_compute) * gpu.peak_flops * efficiency.compute,
            memory_bytes=computing * of_compute * gpu.memory_bytes_per_s * efficiency.memory,
            input_bytes=step * (1 - communication) * of_rest * hardware.effective_pcie / sharers,
            weight_traffic_bytes=traffic,
            dense_weight_bytes=dense,
            embedding_weight_bytes=embedding,
        ),
        provenance=Provenance(
            "synthetic", config.name, f"synthetic, not PAI data: {kind.size} jobs drawn from {config.name!r}"
        ),
        optimizer_slots=slots.astype(np.float64),
    )


_ARCHITECTURE_OF_CLASS = np.array([ARCHITECTURES.index(name) for name in ("1w1g", "1wng", "ps_worker")], dtype=np.int8)


def _kinds_and_sizes(config: PopulationConfig, variates: Variates) -> tuple[NDArray[np.int64], FloatArray]:
    """Index into `KINDS` and cNodes of every job, (N,) each."""
    it = config.composition
    kind = np.searchsorted([it.job_share_1w1g, it.job_share_1w1g + it.job_share_1wng], variates.u_class, side="right")
    local = 2.0 + np.searchsorted(np.cumsum(it.local_size_shares[:-1]), variates.u_size, side="right")
    # The quantile function of the log-logistic distribution, cut off where it reaches the largest size.
    u = variates.u_size / (1 + (it.ps_size_largest / it.ps_size_median) ** -it.ps_size_shape)
    cluster = np.maximum(np.round(it.ps_size_median * (u / (1 - u)) ** (1 / it.ps_size_shape)), 2.0)
    num_cnodes = np.choose(kind, [np.ones_like(u), local, cluster])
    log_odds = _logit(it.heavy_share) + it.heavy_size_slope * np.log(num_cnodes / 8)
    is_heavy = (kind == 2) & (variates.u_heavy < _logistic(log_odds))
    return kind + is_heavy, num_cnodes


def _share(config: PopulationConfig, kind: NDArray[np.int64], what: str, z: FloatArray) -> FloatArray:
    """Logit-normal shares of every job, (N,)."""
    of_kind: list[TimeShares] = [config.time_shares[name] for name in KINDS]
    centre = np.array([_logit(getattr(shares, f"{what}_median")) for shares in of_kind])
    sigma = np.array([getattr(shares, f"{what}_sigma") for shares in of_kind])
    return _logistic(centre[kind] + sigma[kind] * z)


def _weights(
    config: PopulationConfig, variates: Variates, has_several: NDArray[np.bool_], traffic: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Dense and embedding weights of every job in bytes, without optimiser state, (N,) each."""
    it = config.features
    trains_embedding = has_several & (variates.u_embedding < it.embedding_job_share)
    dense_traffic = traffic * np.where(trains_embedding, 1 - it.embedding_traffic_share, 1.0)
    dense = np.where(
        has_several,
        dense_traffic / it.traffic_per_trainable_byte,
        it.dense_median_bytes * np.exp(it.dense_sigma * variates.z_dense),
    )
    dense = np.minimum(dense, it.dense_largest_bytes)
    # What the dense weights do not explain are rows of embeddings, fetched and sent back once a step.
    rows = np.maximum(traffic - dense * it.traffic_per_trainable_byte, 0.0) / 2
    has_rows = has_several & (trains_embedding | (rows > 1e-6 * traffic))
    table = it.embedding_median_bytes * np.exp(it.embedding_sigma * variates.z_embedding)
    embedding = np.where(has_rows, np.maximum(np.minimum(table, it.embedding_largest_bytes), rows), 0.0)
    return dense, embedding


def _logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def _logistic(x: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-x)))


def read_population(path: str | Path) -> Population:
    """A population from a CSV file of job features, see `dl2env.workload.population_file` for its columns.

    Raises:
        ConfigError: The file is missing or malformed; the message names row and column.
    """
    table = read_population_table(path)
    columns = dict(table.columns)
    slots = columns.pop("optimizer_slots", None)
    if _WEIGHTS & columns.keys():  # a file with one of the two says that the other kind is not there
        columns = {name: np.zeros(table.architecture.size) for name in _WEIGHTS} | columns
    text = f"{table.architecture.size} jobs of {path}"
    if table.ignored:
        text += f"; columns that nothing reads: {', '.join(table.ignored)}"
    return Population(
        workloads=PaiWorkloads(architecture=table.architecture, **columns),
        provenance=Provenance("file", str(path), text, table.ignored),
        optimizer_slots=slots,
    )


def write_population(path: str | Path, population: Population) -> None:
    """Writes the CSV file that `read_population` reads back, value for value.

    Raises:
        ConfigError: The file cannot be written, or the weights of some jobs only are unknown.
    """
    columns = _columns(population)
    if any(np.isnan(columns[name]).any() for name in _WEIGHTS & columns.keys()):
        row = int(np.argmax(np.isnan(population.workloads.weight_bytes)))
        raise ConfigError(f"{path}: the weights of job {row} are unknown, others are known; leave out all or none")
    write_population_table(path, PopulationTable(columns.pop("architecture"), columns))


_WEIGHTS = frozenset({"dense_weight_bytes", "embedding_weight_bytes"})


def _columns(population: Population) -> dict[str, NDArray[Any]]:
    """What is known of the jobs, by column of a file."""
    names = [name for name in FEATURES if population.has_weights or name not in _WEIGHTS]
    columns = {name: getattr(population.workloads, name) for name in names}
    return columns if population.optimizer_slots is None else columns | {"optimizer_slots": population.optimizer_slots}
