"""What other hardware would buy: speedups over a grid of capacities, and the resource that matters most.

After the Alibaba-PAI characterization (Wang et al., IISWC 2019), as we understand the paper: one capacity is varied at
a time, and a curve shows the mean speedup of a class of jobs over the capacity in units of its base. The grid is in
`data/hardware.toml`; any other, and the full product of one, work the same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.characterization import ARCHITECTURES, FloatArray, PaiWorkloads, StepModel
from dl2env.speed.port import speedup


class Quantity(NamedTuple):
    """A capacity that can be varied.

    Attributes:
        label: Name of the resource.
        scale: Units per shown unit.
        unit: The unit shown.
    """

    label: str
    scale: float
    unit: str

    def show(self, value: float) -> str:
        """The value with its unit."""
        return f"{value / self.scale:g} {self.unit}"


QUANTITIES: Mapping[str, Quantity] = {
    "peak_flops": Quantity("GPU compute", 1e12, "TFLOPS"),
    "memory_bytes_per_s": Quantity("GPU memory", 1e12, "TB/s"),
    "pcie_bytes_per_s": Quantity("PCIe", 1e9, "GB/s"),
    "ethernet_bytes_per_s": Quantity("Ethernet", 1e9 / 8, "Gb/s"),
    "nvlink_bytes_per_s": Quantity("NVLink", 1e9, "GB/s"),
}
"""What can be varied; the labels are those of the media in `characterization.PARTS`."""

_OF_GPU = ("peak_flops", "memory_bytes_per_s")


def base_values(model: StepModel) -> dict[str, float]:
    """Capacity of each of `QUANTITIES`, nominal, in FLOP/s or bytes/s.

    Raises:
        UnknownNameError: The hardware lacks the model's GPU.
    """
    gpu = model.hardware.gpu(model.gpu)
    return {name: getattr(gpu if name in _OF_GPU else model.hardware, name) for name in QUANTITIES}


def with_capacities(model: StepModel, values: Mapping[str, float]) -> StepModel:
    """The model with other capacities; efficiencies and assumptions stay.

    Args:
        model: Base.
        values: Nominal capacity by quantity, in FLOP/s or bytes/s.

    Raises:
        UnknownNameError: There is no such quantity.
        ConfigError: A capacity is not a positive number.
    """
    for name in values:
        if name not in QUANTITIES:
            raise UnknownNameError("hardware quantity", name, list(QUANTITIES))
    of_gpu: dict[str, Any] = {name: value for name, value in values.items() if name in _OF_GPU}
    links: dict[str, Any] = {name: value for name, value in values.items() if name not in _OF_GPU}
    base = model.hardware.gpu(model.gpu)
    gpus = tuple(dataclasses.replace(gpu, **of_gpu) if gpu is base else gpu for gpu in model.hardware.gpus)
    return dataclasses.replace(model, hardware=dataclasses.replace(model.hardware, gpus=gpus, **links))


@dataclass(frozen=True)
class Variation:
    """Other hardware.

    Attributes:
        values: The capacities that differ from the base, by quantity.
        model: The step model with them.
    """

    values: Mapping[str, float]
    model: StepModel

    @property
    def label(self) -> str:
        """What differs, for people."""
        return ", ".join(
            f"{QUANTITIES[name].label} {QUANTITIES[name].show(value)}" for name, value in self.values.items()
        )


def one_at_a_time(model: StepModel, grid: Mapping[str, Sequence[float]]) -> list[Variation]:
    """One variation per value of the grid, with all other capacities at their base.

    Raises:
        UnknownNameError: There is no such quantity.
        ConfigError: The grid is empty, or a capacity is not a positive number.
    """
    _check_grid(grid)
    return [
        Variation({name: value}, with_capacities(model, {name: value}))
        for name, values in grid.items()
        for value in values
    ]


def full_product(model: StepModel, grid: Mapping[str, Sequence[float]]) -> list[Variation]:
    """One variation per combination of the grid's values.

    Raises:
        UnknownNameError: There is no such quantity.
        ConfigError: The grid is empty, or a capacity is not a positive number.
    """
    _check_grid(grid)
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [Variation(values, with_capacities(model, values)) for values in combinations]


def _check_grid(grid: Mapping[str, Sequence[float]]) -> None:
    if not grid:
        raise ConfigError("the hardware grid is empty; give at least one quantity with its values")
    for name, values in grid.items():
        if len(values) == 0:
            raise ConfigError(f"hardware grid: {name} has no values; give at least one or leave it out")


def class_means(workloads: PaiWorkloads, values: FloatArray, weights: FloatArray | None = None) -> dict[str, float]:
    """Mean of a per-job value for each architecture that the jobs have, in the order of `ARCHITECTURES`.

    Args:
        workloads: N jobs.
        values: (N,) values.
        weights: (N,) weights of the jobs, such as their cNodes; None: every job counts once.
    """
    count = len(ARCHITECTURES)
    weight = np.ones(workloads.size) if weights is None else weights
    sums = np.bincount(workloads.architecture, weights=values * weight, minlength=count)
    totals = np.bincount(workloads.architecture, weights=weight, minlength=count)
    return {name: float(sums[i] / totals[i]) for i, name in enumerate(ARCHITECTURES) if totals[i] > 0}


def mean_speedups(
    workloads: PaiWorkloads, model: StepModel, variations: Sequence[Variation], weights: FloatArray | None = None
) -> list[dict[str, float]]:
    """Mean speedup of the jobs of each architecture under every variation.

    Args:
        workloads: N jobs.
        model: Base that speedups refer to.
        variations: Other hardware.
        weights: (N,) weights of the jobs; None: every job counts once.

    Returns:
        Per variation, means by architecture (those that the jobs have).
    """
    base = model.breakdown(workloads)
    return [
        class_means(
            workloads, speedup(workloads, base, workloads, variation.model.breakdown(workloads)).single_cnode, weights
        )
        for variation in variations
    ]


@dataclass(frozen=True)
class Curve:
    """How the jobs of an architecture speed up with one resource.

    Attributes:
        architecture: Class of the jobs.
        quantity: What is varied, key of `QUANTITIES`.
        capacity_ratios: (V,) capacities over the base, ascending.
        speedups: (V,) mean speedup over the base.
    """

    architecture: str
    quantity: str
    capacity_ratios: FloatArray
    speedups: FloatArray


def speedup_curves(
    workloads: PaiWorkloads,
    model: StepModel,
    grid: Mapping[str, Sequence[float]],
    weights: FloatArray | None = None,
) -> list[Curve]:
    """Normalised speedup curves: one per architecture and quantity of the grid, through (1, 1).

    Raises:
        UnknownNameError: There is no such quantity.
        ConfigError: The grid is empty, or a capacity is not a positive number.
    """
    _check_grid(grid)
    base = base_values(model)
    curves = []
    for name, values in grid.items():
        if name not in base:
            raise UnknownNameError("hardware quantity", name, list(QUANTITIES))
        ordered = sorted({*map(float, values), base[name]})
        means = mean_speedups(workloads, model, one_at_a_time(model, {name: ordered}), weights)
        ratios = np.array(ordered) / base[name]
        curves += [
            Curve(architecture, name, ratios, np.array([point[architecture] for point in means]))
            for architecture in means[0]
        ]
    return sorted(curves, key=lambda curve: ARCHITECTURES.index(curve.architecture))


def sensitivity(
    workloads: PaiWorkloads, model: StepModel, factor: float = 2.0, weights: FloatArray | None = None
) -> dict[str, dict[str, float]]:
    """Mean speedup of each architecture's jobs if one resource is `factor` times as fast, all else equal.

    Returns:
        By architecture, speedups by quantity. The largest names the resource that the class is most sensitive to
        (`most_sensitive`); unlike the ends of a grid, all resources grow alike.

    Raises:
        ConfigError: The factor is not above 1.
    """
    if not 1 < factor < np.inf:
        raise ConfigError(f"factor={factor} must be a number above 1")
    variations = [
        Variation({name: factor * value}, with_capacities(model, {name: factor * value}))
        for name, value in base_values(model).items()
    ]
    means = mean_speedups(workloads, model, variations, weights)
    return {
        architecture: {name: point[architecture] for name, point in zip(QUANTITIES, means, strict=True)}
        for architecture in means[0]
    }


def most_sensitive(speedups: Mapping[str, float]) -> str | None:
    """The quantity with the largest speedup, None if none speeds anything up."""
    best = max(speedups, key=lambda name: speedups[name])
    return best if speedups[best] > 1 else None
