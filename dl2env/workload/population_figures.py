"""Collective figures of a population of training jobs, and their published values.

The values are those of the Alibaba-PAI characterization (Wang et al., IISWC 2019, arXiv 1910.05930), each with a mark
that says how sure it is; `data/populations/published_figures.toml` holds them. What is only recalled must be printed as
"as we understand the paper" (`PublishedFigure.wording`).
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError
from dl2env.resources import data_path
from dl2env.speed.characterization import SERVER_GROUP, Breakdown, Overlap, PaiWorkloads, StepModel
from dl2env.speed.hardware import Hardware
from dl2env.speed.port import port, speedup

FloatArray = NDArray[np.float64]

MARK_WEIGHTS: Mapping[str, float] = {
    "abstract": 1.0,
    "second-hand": 0.6,
    "second-hand, weak": 0.4,
    "recalled A": 0.4,
    "recalled B+": 0.3,
    "recalled B": 0.2,
    "recalled B-": 0.1,
    "recalled C": 0.0,
    "derived": 0.0,
}
"""Weight of a figure in the calibration by its mark of confidence; ours."""

LARGE_WEIGHTS_BYTES = 10e9
"""Limit of the figure about weight sizes."""

_ETHERNET_25, _ETHERNET_100 = 3.125e9, 12.5e9
_UNBOUNDED_SCALE = 0.02  # margin, and distance that is an error of 1, of figures whose range is unbounded


@dataclass(frozen=True)
class PublishedFigure:
    """One published number about all jobs of the characterization or a class of them.

    Attributes:
        key: Name in the result of `measure_figures`.
        text: What is counted, over which jobs.
        value: Shares as fractions, speedups as ratios.
        relation: `equal`: value +- tolerance; `above` ("more than"): from value to value + tolerance; `below` ("at
            most"): from value - tolerance to value.
        tolerance: Width of that range, positive, possibly infinite; our choice.
        weighting: `job`: every job counts once; `cnode`: by its cNodes; `none`: an extreme, or a share of cNodes.
        mark: Key of `MARK_WEIGHTS`.
        part: Where it belongs: breakdown, composition, port or hardware.
        target: Whether the calibration aims at it, if its mark has a weight.
        reason: Why it does not.
        note: What else a reader should know.
    """

    key: str
    text: str
    value: float
    relation: Literal["equal", "above", "below"]
    tolerance: float
    weighting: Literal["job", "cnode", "none"]
    mark: str
    part: Literal["breakdown", "composition", "port", "hardware"]
    target: bool = True
    reason: str = ""
    note: str = ""

    @property
    def weight(self) -> float:
        """Weight in the calibration, 0 for what is no target."""
        return MARK_WEIGHTS[self.mark] if self.target else 0.0

    @property
    def wording(self) -> str:
        """How a report may introduce the value."""
        if self.mark.startswith("recalled"):
            return "as we understand the paper"
        return {"abstract": "published", "derived": "derived"}.get(self.mark, "reported by others")

    def miss(self, measured: float) -> float:
        """How far a measured value lies outside the range in which the figure counts as met, with sign; 0 inside."""
        low = self.value - (self.tolerance if self.relation != "above" else 0.0)
        high = self.value + (self.tolerance if self.relation != "below" else 0.0)
        return min(measured - low, 0.0) + max(measured - high, 0.0)


def load_published_figures(path: str | Path | None = None) -> dict[str, PublishedFigure]:
    """The published figures by key, in the order of the file.

    Args:
        path: TOML file with `[[figure]]` tables; the package's own by default.

    Raises:
        ConfigError: The file is missing or malformed; the message names the figure and the key.
    """
    path = data_path("populations", "published_figures.toml") if path is None else Path(path)
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give an existing file of figures") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend the file") from error
    records = content.get("figure")
    if not isinstance(records, list) or not records:
        raise ConfigError(f"{path}: no [[figure]] table; add at least one")
    figures: dict[str, PublishedFigure] = {}
    for number, record in enumerate(records, start=1):
        figure = _figure(record, f"{path}: figure {number}")
        if figure.key in figures:
            raise ConfigError(f"{path}: figure {number}: key={figure.key!r} appears twice; remove or rename one")
        figures[figure.key] = figure
    return figures


def _figure(record: Any, where: str) -> PublishedFigure:
    if not isinstance(record, dict):
        raise ConfigError(f"{where}: must be a table")
    # An infinite tolerance is legal, and `config_from_dict` takes finite numbers only.
    is_unbounded = record.get("tolerance") == math.inf
    figure: PublishedFigure = config_from_dict(
        PublishedFigure, record | ({"tolerance": 1.0} if is_unbounded else {}), where
    )
    if not figure.tolerance > 0:
        raise ConfigError(f"{where}: tolerance={figure.tolerance} must be positive")
    for name, known in (
        ("mark", tuple(MARK_WEIGHTS)),
        ("relation", ("equal", "above", "below")),
        ("weighting", ("job", "cnode", "none")),
        ("part", ("breakdown", "composition", "port", "hardware")),
    ):
        if getattr(figure, name) not in known:
            raise ConfigError(f"{where}: {name}={getattr(figure, name)!r}; choose one of: {', '.join(known)}")
    return dataclasses.replace(figure, tolerance=math.inf) if is_unbounded else figure


def weighted_mean(values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean over jobs, weighted if weights (cNodes) are given; NaN over nothing."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return math.nan
    return float(array.mean() if weights is None else np.average(array, weights=np.asarray(weights)))


def measure_figures(
    workloads: PaiWorkloads,
    hardware: Hardware,
    *,
    weight_bytes: ArrayLike | None = None,
    gpu: str = "pai-base",
    overlap: Overlap = "none",
    pcie_group: int = SERVER_GROUP,
    cluster_shares_pcie: bool = True,
) -> dict[str, float]:
    """The figures of `load_published_figures` as a population shows them.

    Args:
        workloads: The jobs.
        hardware: Base hardware.
        weight_bytes: (N,) bytes of weights of each job with optimiser state; None, or NaN for a job: unknown.
        gpu: GPU kind in the hardware's catalogue.
        overlap: How the components of a step combine.
        pcie_group: Most replicas that share a server's PCIe.
        cluster_shares_pcie: Whether AllReduce-Cluster shares PCIe too.

    Returns:
        Values by key. A figure about a class of jobs that the population lacks, or about weights of unknown size, is
        left out.

    Raises:
        UnknownNameError: The hardware has no GPU of that name.
    """
    model = StepModel(hardware, gpu, overlap, pcie_group, cluster_shares_pcie)
    figures = _composition(workloads, weight_bytes) | _shares_of_time(workloads, model.breakdown(workloads))
    is_ps = workloads.is_on("ps_worker")
    if is_ps.any():
        figures |= _port_and_network(workloads.select(is_ps), model)
    return {key: value for key, value in figures.items() if not math.isnan(value)}


def _port_and_network(jobs: PaiWorkloads, model: StepModel) -> dict[str, float]:
    """Figures about PS/Worker jobs on another architecture and on faster Ethernet."""
    hardware = model.hardware
    base, local, cluster = model.breakdown(jobs), port(jobs, "allreduce_local"), port(jobs, "allreduce_cluster")
    local_step = model.breakdown(local)
    to_local = speedup(jobs, base, local, local_step)
    to_cluster = speedup(jobs, base, cluster, model.breakdown(cluster))
    ideal = dataclasses.replace(model, overlap="ideal")
    overlapped = speedup(jobs, ideal.breakdown(jobs), local, ideal.breakdown(local))
    bound = (1 / hardware.effective_ethernet + 1 / hardware.effective_pcie) * hardware.effective_nvlink
    is_helped, is_helped_by_cluster = to_local.throughput > 1, to_cluster.throughput > 1
    slow, fast = (
        dataclasses.replace(model, hardware=dataclasses.replace(hardware, ethernet_bytes_per_s=rate))
        for rate in (_ETHERNET_25, _ETHERNET_100)
    )
    network = speedup(jobs, slow.breakdown(jobs), jobs, fast.breakdown(jobs))
    return {
        "allreduce_local_gain_share": weighted_mean(is_helped),
        "allreduce_local_not_gaining_share": weighted_mean(~is_helped),
        "allreduce_local_not_gaining_cnode_share": weighted_mean(to_local.single_cnode <= 1),
        "allreduce_local_max_speedup": float(to_local.single_cnode.max()),
        "allreduce_local_cap_share_ideal_overlap": weighted_mean(overlapped.single_cnode >= bound * (1 - 1e-9)),
        "allreduce_cluster_max_speedup": float(to_cluster.single_cnode.max()),
        "allreduce_cluster_gain_share": weighted_mean(is_helped_by_cluster),
        "allreduce_cluster_gain_share_of_others": weighted_mean(is_helped_by_cluster[~is_helped]),
        "ethernet_25_to_100_speedup": weighted_mean(network.single_cnode),
        "memory_lead_allreduce_local": _lead(local_step.shares(), "memory"),
    }


def _composition(workloads: PaiWorkloads, weight_bytes: ArrayLike | None) -> dict[str, float]:
    cnodes = workloads.num_cnodes
    of_class = {name: workloads.is_on(name) for name in ("1w1g", "1wng", "ps_worker")}
    is_large = cnodes > 128
    figures = {f"job_share_{name}": weighted_mean(jobs) for name, jobs in of_class.items()}
    figures |= {
        "cnode_share_ps_worker": weighted_mean(of_class["ps_worker"], cnodes),
        "ps_worker_over_8_cnodes_share": weighted_mean(cnodes[of_class["ps_worker"]] > 8),
        "over_128_cnodes_job_share": weighted_mean(is_large),
        "over_128_cnodes_cnode_share": weighted_mean(is_large, cnodes),
    }
    if weight_bytes is not None:
        sizes = np.asarray(weight_bytes, dtype=np.float64)
        figures["weights_below_10gb_share"] = weighted_mean(sizes[~np.isnan(sizes)] < LARGE_WEIGHTS_BYTES)
    return figures


def _shares_of_time(workloads: PaiWorkloads, step: Breakdown) -> dict[str, float]:
    shares, cnodes = step.shares(), workloads.num_cnodes
    communication = step.weight_share()
    single, several, ps = (workloads.is_on(name) for name in ("1w1g", "1wng", "ps_worker"))
    is_distributed = ~single
    ratios = [
        weighted_mean(shares["memory_bound"][jobs]) / weighted_mean(shares["compute_bound"][jobs])
        for jobs in (single, several, ps)
        if jobs.any() and shares["compute_bound"][jobs].any()
    ]
    return {
        "communication_share_cnode": weighted_mean(communication, cnodes),
        "communication_share_job": weighted_mean(communication),
        "ps_worker_communication_share_cnode": weighted_mean(communication[ps], cnodes[ps]),
        "ps_worker_communication_over_80_share": weighted_mean(communication[ps] > 0.8),
        "compute_share_cnode": weighted_mean(shares["compute_bound"] + shares["memory_bound"], cnodes),
        "compute_bound_share_cnode": weighted_mean(shares["compute_bound"], cnodes),
        "memory_bound_share_cnode": weighted_mean(shares["memory_bound"], cnodes),
        "memory_over_compute_bound_least": min(ratios, default=math.nan),
        "input_share_1w1g": weighted_mean(shares["input"][single]),
        "input_over_50_share_1w1g": weighted_mean(shares["input"][single] > 0.5),
        "input_share_distributed_cnode": weighted_mean(shares["input"][is_distributed], cnodes[is_distributed]),
        "input_share_distributed_job": weighted_mean(shares["input"][is_distributed]),
        "memory_lead_1w1g": _lead(_masked(shares, single), "memory"),
        "pcie_lead_1wng": _lead(_masked(shares, several), "pcie"),
        "ethernet_lead_ps_worker": _lead(_masked(shares, ps), "ethernet"),
    }


def _masked(shares: Mapping[str, FloatArray], mask: NDArray[np.bool_]) -> dict[str, FloatArray]:
    return {name: share[mask] for name, share in shares.items()}


def _lead(shares: Mapping[str, FloatArray], resource: str) -> float:
    """Mean share of a resource less the largest of the others.

    The share that a resource takes of a step is minus d log T / d log capacity: how sensitive the step is to it. Input
    data and the PCIe part of weight traffic count together.
    """
    means = {
        "compute": weighted_mean(shares["compute_bound"]),
        "memory": weighted_mean(shares["memory_bound"]),
        "pcie": weighted_mean(shares["input"] + shares["pcie"]),
        "ethernet": weighted_mean(shares["ethernet"]),
        "nvlink": weighted_mean(shares["nvlink"]),
    }
    return means.pop(resource) - max(means.values())


def figure_residuals(measured: Mapping[str, float], figures: Iterable[PublishedFigure]) -> FloatArray:
    """Weighted errors of a population, one entry per figure; their squares add up to the calibration's objective.

    The error of a figure is its distance from the published value in units of the tolerance, times the root of its
    weight. "More than" and "at most" figures aim at the middle of their range; with an unbounded range they are free of
    error a margin inside it. Figures without weight or not measured have no error.
    """
    return np.array([_residual(figure, measured.get(figure.key)) for figure in figures])


def _residual(figure: PublishedFigure, measured: float | None) -> float:
    if measured is None or figure.weight == 0.0:
        return 0.0
    if math.isinf(figure.tolerance):
        margin = _UNBOUNDED_SCALE if figure.relation == "above" else -_UNBOUNDED_SCALE
        error = figure.miss(measured - margin) / _UNBOUNDED_SCALE
    elif figure.relation == "equal":
        error = (measured - figure.value) / figure.tolerance
    else:
        half = figure.tolerance / 2
        error = (measured - figure.value - (half if figure.relation == "above" else -half)) / half
    return math.sqrt(figure.weight) * error


@dataclass(frozen=True)
class FigureComparison:
    """A published figure beside a population's.

    Attributes:
        figure: The published one.
        measured: The population's, or None where it has no such jobs.
    """

    figure: PublishedFigure
    measured: float | None

    @property
    def difference(self) -> float | None:
        """Measured less published."""
        return None if self.measured is None else self.measured - self.figure.value

    @property
    def is_met(self) -> bool:
        """Whether the measured value lies in the range of the figure."""
        return self.measured is not None and self.figure.miss(self.measured) == 0.0


def compare_figures(
    measured: Mapping[str, float], figures: Mapping[str, PublishedFigure] | None = None
) -> list[FigureComparison]:
    """Every published figure beside the measured one, in the order of the file."""
    published = load_published_figures() if figures is None else figures
    return [FigureComparison(figure, measured.get(key)) for key, figure in published.items()]
