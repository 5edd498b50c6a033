"""Job types: what one training step of a model needs, and catalogues of them in TOML files."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.speed.parameters import ARCHITECTURES

FIT_FIELDS = (
    "compute_efficiency",
    "memory_efficiency",
    "ethernet_bytes_per_s",
    "pcie_bytes_per_s",
    "nvlink_bytes_per_s",
    "worker_bytes_per_s",
    "ps_bytes_per_s",
    "worker_cost_s",
    "ps_cost_s",
    "fixed_s",
)
"""Fields that `<catalogue>_fit.toml`, a file of values fitted to measurements, may set."""


@dataclass(frozen=True)
class JobType:
    """One kind of training job: its tasks' demands and the work and traffic of one step.

    The features follow the PAI characterization: all of them are per step of `batch_size` samples on one GPU. A rate or
    efficiency that is None is taken from the hardware record.

    Attributes:
        name: Unique name within a catalogue.
        architecture: Key of `dl2env.speed.parameters.ARCHITECTURES`.
        synchronous: True: `batch_size` is the global batch, split over the workers. False: it is the batch of each
            worker, as in asynchronous training and as PAI counts throughput.
        batch_size: Samples per step (tokens for models that count tokens).
        samples_per_epoch: Samples of one pass over the data set.
        worker_cpus, worker_gpus, ps_cpus, ps_gpus: Server units that one worker and one parameter server (PS) take.
        flops: Operations of compute-bound kernels (2 per multiply-add), forward and backward.
        memory_bytes: Bytes moved by memory-bound kernels, forward and backward.
        input_bytes: Input data copied from host to GPU.
        weight_traffic_bytes: Weight and gradient traffic S_w of one worker.
        dense_weight_bytes: Trainable weights without embeddings and without optimiser state.
        embedding_weight_bytes: Trainable embedding weights, without optimiser state.
        compute_efficiency: Fraction of the GPU's peak FLOPS that is reached.
        memory_efficiency: Fraction of the GPU's memory bandwidth that is reached.
        ethernet_bytes_per_s: Effective Ethernet rate of a worker; overrides link bandwidth times efficiency.
        pcie_bytes_per_s: Effective PCIe rate, likewise.
        nvlink_bytes_per_s: Effective NVLink rate, likewise.
        worker_bytes_per_s: Rate at which a worker itself sends and receives weight traffic (serialising, copying, the
            network stack); None: unlimited.
        ps_bytes_per_s: Rate at which one PS serves weight traffic; None: unlimited.
        worker_cost_s: Coordination time of a step per worker.
        ps_cost_s: Coordination time of a step per PS.
        fixed_s: Time of a step that no allocation changes.
        max_workers: Largest sensible number of workers; None: no limit but the configured cap.
        sources: Where each value comes from, by field name.
    """

    name: str
    architecture: str
    synchronous: bool
    batch_size: float
    samples_per_epoch: float
    worker_cpus: int
    worker_gpus: int
    ps_cpus: int
    ps_gpus: int
    flops: float
    memory_bytes: float
    input_bytes: float
    weight_traffic_bytes: float
    dense_weight_bytes: float
    embedding_weight_bytes: float
    compute_efficiency: float | None = None
    memory_efficiency: float | None = None
    ethernet_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    worker_bytes_per_s: float | None = None
    ps_bytes_per_s: float | None = None
    worker_cost_s: float = 0.0
    ps_cost_s: float = 0.0
    fixed_s: float = 0.0
    max_workers: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"job type: name={self.name!r} must be a non-empty string")
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(self.name, f.name, str(f.type), getattr(self, f.name)))
        if self.architecture not in ARCHITECTURES:
            raise ConfigError(
                f"job type {self.name!r}: architecture={self.architecture!r} is unknown; "
                f"choose one of: {', '.join(ARCHITECTURES)}"
            )
        if self.worker_cpus + self.worker_gpus == 0:
            raise ConfigError(
                f"job type {self.name!r}: a worker asks for nothing; set worker_cpus or worker_gpus to at least 1"
            )
        if self.flops + self.memory_bytes + self.fixed_s == 0:
            raise ConfigError(f"job type {self.name!r}: a step takes no time; set flops, memory_bytes or fixed_s")

    @property
    def weight_bytes(self) -> float:
        """All trainable weights in bytes."""
        return self.dense_weight_bytes + self.embedding_weight_bytes

    @property
    def uses_ps(self) -> bool:
        """Whether jobs of this type have parameter servers as tasks of their own."""
        return self.architecture == "ps_worker"


_POSITIVE = (
    "batch_size",
    "samples_per_epoch",
    "compute_efficiency",
    "memory_efficiency",
    "ethernet_bytes_per_s",
    "pcie_bytes_per_s",
    "nvlink_bytes_per_s",
    "worker_bytes_per_s",
    "ps_bytes_per_s",
    "max_workers",
)


def _checked(name: str, key: str, hint: str, value: Any) -> Any:
    """Value of a field in its declared type.

    Raises:
        ConfigError: The type is wrong, or a number is not finite, negative, or zero where it must be positive.
    """
    where = f"job type {name!r}: {key}={value!r}"
    if hint.startswith("Mapping"):
        if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
            raise ConfigError(f"job type {name!r}: sources must map field names to text")
        known = {f.name for f in fields(JobType)}
        for source in value:
            if source not in known:
                raise ConfigError(f"job type {name!r}: sources.{source}: no such field; remove it or mend its name")
        return MappingProxyType(dict(value))
    if hint in ("str", "bool"):
        wanted = {"str": (str, "text"), "bool": (bool, "true or false")}[hint]
        if not isinstance(value, wanted[0]):
            raise ConfigError(f"{where} must be {wanted[1]}")
        return value
    if value is None and "None" in hint:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(f"{where} must be a number")
    if not math.isfinite(value):
        raise ConfigError(f"{where} must be finite")
    if value < 0 or (value == 0 and key in _POSITIVE):
        raise ConfigError(f"{where} must {'be positive' if key in _POSITIVE else 'not be negative'}")
    if hint.startswith("int"):
        if value != int(value):
            raise ConfigError(f"{where} must be a whole number")
        return int(value)
    return float(value)


def load_job_types(name_or_path: str | Path, include: Iterable[str] = ()) -> tuple[JobType, ...]:
    """Reads a catalogue of job types.

    A catalogue is a TOML file of `[[job_type]]` tables with the fields of `JobType` as keys. A file `<stem>_fit.toml`
    beside it, if there is one, holds one table per type name with values fitted to measurements (`FIT_FIELDS`); they
    replace those of the catalogue. A top-level text `source` in it becomes the source of each fitted value.

    Args:
        name_or_path: Name of a catalogue in `data/job_types`, or path of a TOML file (it ends in `.toml`).
        include: Names of the types wanted; empty means all.

    Returns:
        The types in the catalogue's order.

    Raises:
        UnknownNameError: No catalogue, or no type of it, has that name.
        ConfigError: A file cannot be read, or a key or value in it is wrong.
    """
    path = _catalogue_path(name_or_path)
    tables = _read_toml(path).get("job_type")
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"{path}: no [[job_type]] table; a catalogue needs at least one")
    fits = _read_fits(path)
    types: dict[str, JobType] = {}
    for i, table in enumerate(tables):
        job_type = _build(path, i, table, fits.pop(str(table.get("name")), {}))
        if job_type.name in types:
            raise ConfigError(f"{path}: job_type {job_type.name!r} appears twice; rename or remove one")
        types[job_type.name] = job_type
    if fits:
        raise ConfigError(f"{_fit_path(path)}: [{next(iter(fits))}] names no type; {path.name} has: {', '.join(types)}")
    wanted = set(include)
    for name in sorted(wanted - types.keys()):
        raise UnknownNameError(f"job type of {path.name}", name, list(types))
    return tuple(job_type for name, job_type in types.items() if not wanted or name in wanted)


def _catalogue_path(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, Path) or str(name_or_path).endswith(".toml"):
        return Path(name_or_path)
    path = data_path("job_types", f"{name_or_path}.toml")
    if not path.is_file() or path.stem.endswith("_fit"):
        known = [file.stem for file in data_path("job_types").glob("*.toml") if not file.stem.endswith("_fit")]
        raise UnknownNameError("job-type catalogue", str(name_or_path), known)
    return path


def _fit_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}_fit.toml")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; give the path of a job-type catalogue (TOML)") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend the file") from error


def _read_fits(path: Path) -> dict[str, dict[str, Any]]:
    """Fitted values per type name from the file beside a catalogue; empty when there is none."""
    fit_path = _fit_path(path)
    if not fit_path.is_file():
        return {}
    content = _read_toml(fit_path)
    source = content.pop("source", None)
    for name, table in content.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{fit_path}: {name}: expected one table per job type")
        table.setdefault("sources", {})
        for key in table:
            if key not in (*FIT_FIELDS, "sources"):
                raise ConfigError(f"{fit_path}: [{name}] {key}: not a fitted field; use: {', '.join(FIT_FIELDS)}")
        if source is not None:
            table["sources"] = {**{key: source for key in table if key != "sources"}, **table["sources"]}
    return content


def _build(path: Path, index: int, table: dict[str, Any], fit: dict[str, Any]) -> JobType:
    where = f"{path}: job_type {table.get('name', f'number {index + 1}')!r}"
    known = {f.name: f for f in fields(JobType)}
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: {key}: unknown key; a job type has: {', '.join(known)}")
    for key, f in known.items():
        if key not in table and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{where}: {key}: missing; add it to the table")
    sources = table.get("sources", {})
    if not isinstance(sources, dict):
        raise ConfigError(f"{where}: sources must be a table of texts")
    try:
        return JobType(**{**table, **fit, "sources": {**sources, **fit.get("sources", {})}})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


# Feature name -> (attribute, smallest, largest value of the logarithmic scale).
_LOG_SCALES: dict[str, tuple[str, float, float]] = {
    "flops": ("flops", 1e8, 1e14),
    "memory": ("memory_bytes", 1e6, 1e12),
    "input": ("input_bytes", 1e3, 1e10),
    "traffic": ("weight_traffic_bytes", 1e5, 1e11),
    "weights": ("weight_bytes", 1e5, 1e12),
    "batch": ("batch_size", 1.0, 1e5),
    "compute_efficiency": ("compute_efficiency", 1e-4, 1.0),
    "ethernet_rate": ("ethernet_bytes_per_s", 1e6, 1e11),
    "worker_rate": ("worker_bytes_per_s", 1e6, 1e11),
    "ps_rate": ("ps_bytes_per_s", 1e6, 1e11),
    "worker_cost": ("worker_cost_s", 1e-5, 10.0),
    "ps_cost": ("ps_cost_s", 1e-5, 10.0),
    "fixed": ("fixed_s", 1e-4, 10.0),
}


def type_feature_names() -> tuple[str, ...]:
    """Names of the K columns of `type_features`."""
    return (*_LOG_SCALES, "synchronous", *(f"is_{architecture}" for architecture in ARCHITECTURES))


def type_features(job_types: Sequence[JobType]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Workload features of job types, comparable across catalogues.

    Magnitudes are mapped to [0, 1] by their logarithm on fixed scales (values beyond a scale's ends are clipped), so
    that a policy can be applied to types it has not seen. A rate or efficiency that the type leaves to the hardware
    counts as 1, the upper end. Flags are 0 or 1.

    Returns:
        (T, K) float32 features, and the K column names.
    """
    features = np.zeros((len(job_types), len(type_feature_names())), dtype=np.float32)  # (T, K)
    for i, job_type in enumerate(job_types):
        for k, (attribute, low, high) in enumerate(_LOG_SCALES.values()):
            value = getattr(job_type, attribute)
            value = high if value is None else min(max(value, low), high)
            features[i, k] = math.log(value / low) / math.log(high / low)
        features[i, len(_LOG_SCALES)] = job_type.synchronous
        features[i, len(_LOG_SCALES) + 1 + ARCHITECTURES[job_type.architecture]] = 1.0
    return features, type_feature_names()
