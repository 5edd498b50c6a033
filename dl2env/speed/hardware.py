"""Processors and links: capacities, and the share of each that training reaches."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dl2env.errors import ConfigError, UnknownNameError


def _check_positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ConfigError(f"{type(owner).__name__}.{name}={value!r} must be a positive number")


@dataclass(frozen=True)
class Processor:
    """A GPU, or one CPU core.

    Attributes:
        name: Key in the catalogue.
        peak_flops: Peak single-precision FLOP/s.
        memory_bytes_per_s: Peak memory bandwidth.
    """

    name: str
    peak_flops: float
    memory_bytes_per_s: float

    def __post_init__(self) -> None:
        _check_positive(self, "peak_flops", "memory_bytes_per_s")


@dataclass(frozen=True)
class Efficiency:
    """Share of each capacity that training reaches, 0 (excluded) to 1; 0.7 as we understand the PAI model."""

    compute: float = 0.7
    memory: float = 0.7
    pcie: float = 0.7
    ethernet: float = 0.7
    nvlink: float = 0.7

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            _check_positive(self, entry.name)
            if getattr(self, entry.name) > 1:
                raise ConfigError(f"Efficiency.{entry.name}={getattr(self, entry.name)} must not exceed 1")


@dataclass(frozen=True)
class Hardware:
    """A kind of server and its network.

    Attributes:
        name: Key in the catalogue.
        ethernet_bytes_per_s: Nominal rate of a server's Ethernet port, each way.
        pcie_bytes_per_s: Nominal rate between host and one GPU.
        nvlink_bytes_per_s: Nominal rate between GPUs of a server.
        cpu: One CPU core, on which workers without a GPU compute.
        gpus: GPU kinds that servers may have.
        efficiency: Share of each nominal rate that training reaches.
    """

    name: str
    ethernet_bytes_per_s: float
    pcie_bytes_per_s: float
    nvlink_bytes_per_s: float
    cpu: Processor
    gpus: tuple[Processor, ...]
    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        _check_positive(self, "ethernet_bytes_per_s", "pcie_bytes_per_s", "nvlink_bytes_per_s")

    def gpu(self, name: str) -> Processor:
        """The GPU kind of that name.

        Raises:
            UnknownNameError: The catalogue has no such GPU.
        """
        for gpu in self.gpus:
            if gpu.name == name:
                return gpu
        raise UnknownNameError("GPU type", name, [gpu.name for gpu in self.gpus])

    @property
    def effective_ethernet(self) -> float:
        """Ethernet bytes/s that training reaches."""
        return self.ethernet_bytes_per_s * self.efficiency.ethernet

    @property
    def effective_pcie(self) -> float:
        """PCIe bytes/s that training reaches."""
        return self.pcie_bytes_per_s * self.efficiency.pcie

    @property
    def effective_nvlink(self) -> float:
        """NVLink bytes/s that training reaches."""
        return self.nvlink_bytes_per_s * self.efficiency.nvlink


_GPU_KEYS = ("peak_flops", "memory_bytes_per_s")
_HARDWARE_KEYS = (
    "ethernet_bytes_per_s",
    "pcie_bytes_per_s",
    "nvlink_bytes_per_s",
    "cpu_flops",
    "cpu_memory_bytes_per_s",
)
_VARIED = ("peak_flops", "memory_bytes_per_s", "ethernet_bytes_per_s", "pcie_bytes_per_s")


def _default_path() -> Path:
    from dl2env.resources import data_path

    return Path(data_path("hardware.toml"))


@cache
def _read_catalogue(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            catalogue = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give an existing hardware file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for section, keys in (("gpu", _GPU_KEYS), ("hardware", _HARDWARE_KEYS)):
        if not catalogue.get(section):
            raise ConfigError(f"{path}: has no [{section}.NAME] table; add at least one")
        for name, record in catalogue[section].items():
            _check_keys(path, f"{section}.{name}", record, keys)
    return catalogue


def _check_keys(path: Path, where: str, record: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(record, dict):
        raise ConfigError(f"{path}: {where} must be a table")
    allowed = (*keys, "source", "efficiency")
    for key in record:
        if key not in allowed:
            raise ConfigError(f"{path}: {where}.{key}: unknown key; choose one of: {', '.join(allowed)}")
    for key in keys:
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ConfigError(f"{path}: {where}.{key}={value!r} must be a positive number")


def load_hardware(name: str, path: Path | None = None) -> Hardware:
    """Reads a hardware record and all GPU kinds.

    Args:
        name: Key below `[hardware]`.
        path: TOML file; the package's `data/hardware.toml` by default.

    Raises:
        ConfigError: The file is missing or malformed.
        UnknownNameError: The file has no hardware of that name.
    """
    catalogue = _read_catalogue(path or _default_path())
    if name not in catalogue["hardware"]:
        raise UnknownNameError("hardware", name, list(catalogue["hardware"]))
    record = catalogue["hardware"][name]
    try:
        efficiency = Efficiency(**record.get("efficiency", {}))
    except TypeError as error:
        raise ConfigError(f"{path or 'data/hardware.toml'}: hardware.{name}.efficiency: {error}") from error
    return Hardware(
        name=name,
        ethernet_bytes_per_s=float(record["ethernet_bytes_per_s"]),
        pcie_bytes_per_s=float(record["pcie_bytes_per_s"]),
        nvlink_bytes_per_s=float(record["nvlink_bytes_per_s"]),
        cpu=Processor("cpu", float(record["cpu_flops"]), float(record["cpu_memory_bytes_per_s"])),
        gpus=tuple(
            Processor(key, float(gpu["peak_flops"]), float(gpu["memory_bytes_per_s"]))
            for key, gpu in catalogue["gpu"].items()
        ),
        efficiency=efficiency,
    )


def load_variation(path: Path | None = None) -> dict[str, tuple[float, ...]]:
    """What-if values per quantity, to be tried one at a time (PAI grid, recalled)."""
    variation = _read_catalogue(path or _default_path()).get("variation", {})
    return {key: tuple(float(value) for value in variation[key]) for key in _VARIED if key in variation}
