"""What a population of training jobs shows: where time goes, what a port or better hardware buys, and how sure that is.

Everything is computed from the population and the formulas of `dl2env.speed.characterization`; nothing is fitted here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2env.evaluation.characterization.settings import CharacterizationSettings
from dl2env.speed.characterization import ARCHITECTURES, PARTS, Breakdown, FloatArray, PaiWorkloads, StepModel
from dl2env.speed.port import Comparison, Speedup, compare_architectures, port, port_speedup
from dl2env.speed.what_if import (
    Curve,
    Variation,
    full_product,
    mean_speedups,
    most_sensitive,
    sensitivity,
    speedup_curves,
)
from dl2env.workload.population import Population
from dl2env.workload.population_figures import PublishedFigure, load_published_figures, measure_figures, weighted_mean

HEADLINES = ("communication_share_cnode", "allreduce_local_gain_share", "ethernet_25_to_100_speedup")
"""Keys of the figures that the published abstract names."""

TARGETS = ("allreduce_local", "allreduce_cluster")
"""Architectures that jobs are ported to."""

ALL = "all"
PORTED = "ps_worker_on_allreduce_local"
LABELS: Mapping[str, str] = {
    "1w1g": "1w1g",
    "1wng": "1wng",
    "ps_worker": "PS/Worker",
    "allreduce_local": "AllReduce-Local",
    "allreduce_cluster": "AllReduce-Cluster",
    "pearl": "PEARL",
    ALL: "all jobs",
    PORTED: "PS/Worker on AllReduce-Local",
}
"""Names of classes of jobs for people."""


@dataclass(frozen=True)
class FigureResult:
    """A published figure and what the population shows.

    Attributes:
        figure: The published one.
        ours: Value in the population; None if it lacks such jobs or features.
    """

    figure: PublishedFigure
    ours: float | None

    @property
    def difference(self) -> float | None:
        """Ours less the published value."""
        return None if self.ours is None else self.ours - self.figure.value

    @property
    def is_met(self) -> bool | None:
        """Whether ours lies in the range around the published value; None if there is nothing to compare."""
        return None if self.ours is None else self.figure.miss(self.ours) == 0.0


@dataclass(frozen=True)
class ClassView:
    """One class of jobs, or all.

    Attributes:
        name: Architecture or `ALL`.
        num_jobs: Jobs in it.
        job_share, cnode_share: Its share of all jobs and cNodes.
        mean_cnodes, median_cnodes: Size of its jobs.
        shares: Mean share of a step by weighting (`job`, `cnode`) and part (keys of `PARTS`).
    """

    name: str
    num_jobs: int
    job_share: float
    cnode_share: float
    mean_cnodes: float
    median_cnodes: float
    shares: Mapping[str, Mapping[str, float]]

    def communication_share(self, weighting: str) -> float:
        """Mean share of weight and gradient traffic over all media."""
        return sum(share for part, share in self.shares[weighting].items() if PARTS[part].component == "T_w")


@dataclass(frozen=True)
class PortResult:
    """Jobs of one class on another architecture.

    Attributes:
        source, target: From and to.
        overlap: How components combine, before and after.
        gain: Speedups of the class's jobs.
    """

    source: str
    target: str
    overlap: str
    gain: Speedup

    @property
    def single_share(self) -> float:
        """Share of jobs that gain per cNode."""
        return weighted_mean(self.gain.single_cnode > 1)

    @property
    def throughput_share(self) -> float:
        """Share of jobs whose throughput gains."""
        return weighted_mean(self.gain.throughput > 1)


@dataclass(frozen=True)
class Case:
    """The conclusions under one set of assumptions.

    Attributes:
        label: What differs from the chosen assumptions.
        figures: Figures by key, see `measure_figures`.
        bound_share: Share of cNodes whose longest component is communication.
        speedups: Of PS/Worker jobs if a resource is faster, by quantity; empty without such jobs.
    """

    label: str
    figures: Mapping[str, float]
    bound_share: float
    speedups: Mapping[str, float]

    @property
    def communication_leads(self) -> bool:
        """Communication takes more time than computation and than input data, weighted by cNodes."""
        share, compute = self.figures["communication_share_cnode"], self.figures["compute_share_cnode"]
        return share > max(compute, 1 - share - compute)

    @property
    def most_gain(self) -> bool | None:
        """More than half of PS/Worker jobs gain throughput on AllReduce-Local."""
        share = self.figures.get("allreduce_local_gain_share")
        return None if share is None else share > 0.5

    @property
    def leading_resource(self) -> str | None:
        """The quantity that PS/Worker jobs are most sensitive to."""
        return most_sensitive(self.speedups) if self.speedups else None


@dataclass(frozen=True)
class Characterization:
    """All findings on a population.

    Attributes:
        settings: What was asked for.
        model: Hardware and assumptions.
        population: The jobs.
        step: Their breakdown, entries as in the population.
        breakdown_s: Seconds that took.
        figures: Published figures and ours, by key.
        classes: Each architecture present, in order, then all jobs.
        ports: By source, target and overlap.
        curves: Speedup curves, job-weighted, by class; PS/Worker jobs also after the port (`PORTED`).
        sensitivities: Mean speedup by class and quantity.
        product: The full grid of hardware and the mean speedup of each class.
        cases: The conclusions under other assumptions, the chosen ones first.
        comparison: Every job on every architecture.
    """

    settings: CharacterizationSettings
    model: StepModel
    population: Population
    step: Breakdown
    breakdown_s: float
    figures: Mapping[str, FigureResult]
    classes: Sequence[ClassView]
    ports: Sequence[PortResult]
    curves: Mapping[str, Sequence[Curve]]
    sensitivities: Mapping[str, Mapping[str, float]]
    product: Sequence[tuple[Variation, Mapping[str, float]]]
    cases: Sequence[Case]
    comparison: Comparison

    @property
    def workloads(self) -> PaiWorkloads:
        """Features of the jobs."""
        return self.population.workloads

    @property
    def missed(self) -> list[FigureResult]:
        """Published figures that the population does not meet."""
        return [result for result in self.figures.values() if result.is_met is False]

    def port_result(self, source: str, target: str, overlap: str) -> PortResult | None:
        """One of `ports`; None if the population lacks the source."""
        for result in self.ports:
            if (result.source, result.target, result.overlap) == (source, target, overlap):
                return result
        return None


def characterize(settings: CharacterizationSettings) -> Characterization:
    """Builds the population and computes all findings.

    Raises:
        ConfigError: A setting or the population's file is wrong.
        UnknownNameError: There is no population, hardware or GPU of that name.
    """
    model, grid = settings.step_model(), settings.hardware_grid()
    population = settings.jobs()
    return characterize_population(population, settings, model, grid)


def characterize_population(
    population: Population,
    settings: CharacterizationSettings,
    model: StepModel,
    grid: Mapping[str, Sequence[float]],
) -> Characterization:
    """All findings on jobs at hand.

    Args:
        population: The jobs.
        settings: As far as not in `model` and `grid`: the factor of the sensitivities and the GPUs' memory.
        model: Hardware and assumptions.
        grid: Other hardware.

    Raises:
        ConfigError: The grid is empty, or GPU memory is limited and weights are unknown.
    """
    workloads = population.workloads
    start_s = time.perf_counter()
    step = model.breakdown(workloads)
    breakdown_s = time.perf_counter() - start_s
    published = load_published_figures()
    measured = _measure(population, model)
    curves, sensitivities = _hardware(workloads, model, grid, settings.sensitivity_factor)
    product = full_product(model, grid)
    return Characterization(
        settings=settings,
        model=model,
        population=population,
        step=step,
        breakdown_s=breakdown_s,
        figures={key: FigureResult(figure, measured.get(key)) for key, figure in published.items()},
        classes=_classes(workloads, step),
        ports=_ports(workloads, model),
        curves=curves,
        sensitivities=sensitivities,
        product=list(zip(product, mean_speedups(workloads, model, product), strict=True)),
        cases=[
            _case(label, population, other, settings.sensitivity_factor) for label, other in variants(model).items()
        ],
        comparison=compare_architectures(
            _with_stored_weights(population), model, gpu_memory_bytes=settings.gpu_memory_bytes
        ),
    )


def variants(model: StepModel) -> dict[str, StepModel]:
    """The chosen assumptions and others that the conclusions should survive, by a label of what differs."""
    efficiency = model.hardware.efficiency

    def reaching(**shares: float) -> StepModel:
        changed = dataclasses.replace(efficiency, **shares)
        return dataclasses.replace(model, hardware=dataclasses.replace(model.hardware, efficiency=changed))

    return {
        "as chosen": model,
        "FLOP/s at 25 %": reaching(compute=0.25),
        "FLOP/s and GPU memory at 25 %": reaching(compute=0.25, memory=0.25),
        "all links at 50 %": reaching(pcie=0.5, ethernet=0.5, nvlink=0.5),
        "computation at 25 %, all links at 50 %": reaching(
            compute=0.25, memory=0.25, pcie=0.5, ethernet=0.5, nvlink=0.5
        ),
        "ideal overlap": dataclasses.replace(model, overlap="ideal"),
        "PCIe shared by 4 GPUs of a root": dataclasses.replace(model, pcie_group=4),
        "PCIe not shared": dataclasses.replace(model, pcie_group=0),
        "PCIe not shared on AllReduce-Cluster": dataclasses.replace(model, cluster_shares_pcie=False),
    }


def _measure(population: Population, model: StepModel) -> dict[str, float]:
    return measure_figures(
        population.workloads,
        model.hardware,
        weight_bytes=population.stored_weight_bytes,
        gpu=model.gpu,
        overlap=model.overlap,
        pcie_group=model.pcie_group,
        cluster_shares_pcie=model.cluster_shares_pcie,
    )


def _present(workloads: PaiWorkloads) -> list[str]:
    return [name for name in ARCHITECTURES if workloads.is_on(name).any()]


def _classes(workloads: PaiWorkloads, step: Breakdown) -> list[ClassView]:
    shares, cnodes = step.shares(), workloads.num_cnodes
    masks = {name: workloads.is_on(name) for name in _present(workloads)}
    masks[ALL] = np.ones(workloads.size, dtype=np.bool_)
    return [
        ClassView(
            name=name,
            num_jobs=int(mask.sum()),
            job_share=float(mask.mean()),
            cnode_share=float(cnodes[mask].sum() / cnodes.sum()),
            mean_cnodes=float(cnodes[mask].mean()),
            median_cnodes=float(np.median(cnodes[mask])),
            shares={
                "job": {part: weighted_mean(share[mask]) for part, share in shares.items()},
                "cnode": {part: weighted_mean(share[mask], cnodes[mask]) for part, share in shares.items()},
            },
        )
        for name, mask in masks.items()
    ]


def _ports(workloads: PaiWorkloads, model: StepModel) -> list[PortResult]:
    results = []
    for source in _present(workloads):
        if source == "1w1g":  # one replica exchanges nothing anywhere
            continue
        jobs = workloads.select(workloads.is_on(source))
        results += [
            PortResult(source, target, overlap, port_speedup(jobs, target, dataclasses.replace(model, overlap=overlap)))
            for target in TARGETS
            if target != source
            for overlap in ("none", "ideal")
        ]
    return results


def _hardware(
    workloads: PaiWorkloads, model: StepModel, grid: Mapping[str, Sequence[float]], factor: float
) -> tuple[dict[str, list[Curve]], dict[str, Mapping[str, float]]]:
    curves: dict[str, list[Curve]] = {}
    for curve in speedup_curves(workloads, model, grid):
        curves.setdefault(curve.architecture, []).append(curve)
    sensitivities: dict[str, Mapping[str, float]] = dict(sensitivity(workloads, model, factor))
    is_ps = workloads.is_on("ps_worker")
    if is_ps.any():
        ported = port(workloads.select(is_ps), "allreduce_local")
        curves[PORTED] = speedup_curves(ported, model, grid)
        sensitivities[PORTED] = sensitivity(ported, model, factor)["allreduce_local"]
    return curves, sensitivities


def _case(label: str, population: Population, model: StepModel, factor: float) -> Case:
    workloads = population.workloads
    step = model.breakdown(workloads)
    is_bound = step.weight_s > np.maximum(step.input_s, step.compute_s)
    is_ps = workloads.is_on("ps_worker")
    return Case(
        label=label,
        figures=_measure(population, model),
        bound_share=weighted_mean(is_bound, workloads.num_cnodes),
        speedups=sensitivity(workloads.select(is_ps), model, factor)["ps_worker"] if is_ps.any() else {},
    )


def _with_stored_weights(population: Population) -> PaiWorkloads:
    """The workloads with optimiser state counted to their weights."""
    workloads = population.workloads
    factor: FloatArray | float = 1.0 if population.optimizer_slots is None else 1.0 + population.optimizer_slots
    return dataclasses.replace(
        workloads,
        dense_weight_bytes=workloads.dense_weight_bytes * factor,
        embedding_weight_bytes=workloads.embedding_weight_bytes * factor,
    )
