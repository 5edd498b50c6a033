"""What a characterization is made of: population, hardware and assumptions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from dl2env.errors import ConfigError
from dl2env.speed.characterization import NO_SHARING, ROOT_GROUP, SERVER_GROUP, Overlap, StepModel
from dl2env.speed.hardware import load_hardware, load_variation
from dl2env.speed.what_if import QUANTITIES
from dl2env.workload.population import Population, generate_population, load_population_config, read_population

DEFAULT_NUM_JOBS = 100_000
PCIE_GROUPS = {"server": SERVER_GROUP, "root": ROOT_GROUP, "none": NO_SHARING}


@dataclass(frozen=True)
class EfficiencySettings:
    """Share of each capacity that training reaches; None: as the hardware record says."""

    compute: float | None = None
    memory: float | None = None
    pcie: float | None = None
    ethernet: float | None = None
    nvlink: float | None = None


@dataclass(frozen=True)
class GridSettings:
    """Capacities to try, nominal, in FLOP/s or bytes/s; None: the values of `data/hardware.toml`; empty: not varied."""

    peak_flops: tuple[float, ...] | None = None
    memory_bytes_per_s: tuple[float, ...] | None = None
    pcie_bytes_per_s: tuple[float, ...] | None = None
    ethernet_bytes_per_s: tuple[float, ...] | None = None
    nvlink_bytes_per_s: tuple[float, ...] | None = None


@dataclass(frozen=True)
class CharacterizationSettings:
    """Everything that `make characterize` lets a user choose.

    Attributes:
        population: Name of a synthetic population (`data/populations`), path of such a TOML file, or path of a CSV file
            with the features of one's own jobs.
        num_jobs: Jobs to generate, 100,000 by default. A CSV file is used whole.
        seed: Seed of the generated jobs.
        hardware: Base hardware, a record of `data/hardware.toml`.
        gpu: Its GPU.
        efficiency: Shares of the capacities that training reaches.
        overlap: `none`: a step is the sum of its components; `ideal`: the longest of them.
        pcie_group: Which replicas share PCIe for their input: those of a `server`, of one `root` (4 GPUs) or `none`.
        cluster_shares_pcie: Whether that holds for AllReduce-Cluster too.
        grid: Other hardware.
        sensitivity_factor: Each resource is made that many times as fast to see which matters most.
        gpu_memory_bytes: Memory of one GPU: an architecture whose weights exceed it is not recommended. None: no limit.
    """

    population: str = "pai_synthetic"
    num_jobs: int | None = None
    seed: int = 0
    hardware: str = "pai-base"
    gpu: str = "pai-base"
    efficiency: EfficiencySettings = field(default_factory=EfficiencySettings)
    overlap: Overlap = "none"
    pcie_group: Literal["server", "root", "none"] = "server"
    cluster_shares_pcie: bool = True
    grid: GridSettings = field(default_factory=GridSettings)
    sensitivity_factor: float = 2.0
    gpu_memory_bytes: float | None = None

    def __post_init__(self) -> None:
        for name, choices in (("overlap", ("none", "ideal")), ("pcie_group", tuple(PCIE_GROUPS))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r} is unknown; choose one of: {', '.join(choices)}")
        if self.num_jobs is not None and self.num_jobs < 1:
            raise ConfigError(f"num_jobs={self.num_jobs} must be at least 1")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} must not be negative")
        if not self.sensitivity_factor > 1:
            raise ConfigError(f"sensitivity_factor={self.sensitivity_factor} must be above 1")
        if self.gpu_memory_bytes is not None and not self.gpu_memory_bytes > 0:
            raise ConfigError(f"gpu_memory_bytes={self.gpu_memory_bytes} must be positive")

    def step_model(self) -> StepModel:
        """Hardware and assumptions as the framework takes them.

        Raises:
            ConfigError: An efficiency is not a share.
            UnknownNameError: There is no such hardware or GPU.
        """
        hardware = load_hardware(self.hardware)
        hardware.gpu(self.gpu)
        chosen = {name: value for name, value in dataclasses.asdict(self.efficiency).items() if value is not None}
        hardware = dataclasses.replace(hardware, efficiency=dataclasses.replace(hardware.efficiency, **chosen))
        return StepModel(hardware, self.gpu, self.overlap, PCIE_GROUPS[self.pcie_group], self.cluster_shares_pcie)

    def hardware_grid(self) -> dict[str, tuple[float, ...]]:
        """Capacities to try by quantity, those that are not varied left out.

        Raises:
            ConfigError: A capacity is not positive.
        """
        catalogue, grid = load_variation(), {}
        for name in QUANTITIES:
            given = getattr(self.grid, name)
            values = catalogue.get(name, ()) if given is None else given
            for value in values:
                if not value > 0:
                    raise ConfigError(f"grid.{name}: {value} must be positive")
            if values:
                grid[name] = tuple(values)
        return grid

    def jobs(self) -> Population:
        """The population, generated or read.

        Raises:
            ConfigError: The file is malformed, or `num_jobs` is given with a CSV file.
            UnknownNameError: There is no population of that name.
        """
        if Path(self.population).suffix.lower() == ".csv":
            if self.num_jobs is not None:
                raise ConfigError(f"num_jobs={self.num_jobs}: {self.population} is used whole; leave num_jobs out")
            return read_population(self.population)
        config = load_population_config(self.population)
        return generate_population(config, self.num_jobs or DEFAULT_NUM_JOBS, np.random.default_rng(self.seed))
