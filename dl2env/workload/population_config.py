"""Parameters of a synthetic population of training jobs, and their TOML files.

A file in `data/populations` (or a user's own) has the tables `[composition]`, one below `[time_shares]` for each kind
of job, and `[features]`; each may hold a table `sources` that says where its values come from.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path

KINDS = ("one_cnode", "local", "ps_light", "ps_heavy")
"""Kinds of jobs: 1w1g, 1wng, and PS/Worker jobs that communicate little and much."""

NUM_LOCAL_SIZES = 7  # 2 to 8 cNodes


def _fail(owner: object, key: str, what: str) -> NoReturn:
    raise ConfigError(f"{type(owner).__name__}.{key}={getattr(owner, key)!r} must be {what}")


def _check(owner: object, what: str, *keys: str) -> None:
    holds = {
        "positive": lambda value: value > 0,
        "at least 0": lambda value: value >= 0,
        "between 0 and 1": lambda value: 0 < value < 1,
        "in 0 to 1": lambda value: 0 <= value <= 1,
    }[what]
    for key in keys:
        if not (math.isfinite(getattr(owner, key)) and holds(getattr(owner, key))):
            _fail(owner, key, what)


def _check_shares(owner: object, key: str, length: int) -> None:
    shares = getattr(owner, key)
    if len(shares) != length or min(shares) < 0 or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        _fail(owner, key, f"{length} shares of at least 0 that add up to 1")


@dataclass(frozen=True)
class Composition:
    """Which jobs there are, and of how many cNodes (GPU replicas).

    Attributes:
        job_share_1w1g: Share of jobs with one cNode.
        job_share_1wng: Share of jobs with several cNodes on one server; the rest is PS/Worker.
        local_size_shares: Shares of 2, 3, ..., 8 cNodes among 1wng jobs.
        ps_size_median: Sizes of PS/Worker jobs are log-logistic with this median, ...
        ps_size_shape: ... this shape (the larger, the thinner the tail), ...
        ps_size_largest: ... cut off here; rounded, at least 2.
        heavy_share: Probability that a PS/Worker job of 8 cNodes is of the kind that communicates much.
        heavy_size_slope: How the log-odds of that grow with the natural logarithm of the size.
    """

    job_share_1w1g: float
    job_share_1wng: float
    local_size_shares: tuple[float, ...]
    ps_size_median: float
    ps_size_shape: float
    ps_size_largest: float
    heavy_share: float
    heavy_size_slope: float

    def __post_init__(self) -> None:
        _check(self, "in 0 to 1", "job_share_1w1g", "job_share_1wng")
        if self.job_share_1w1g + self.job_share_1wng > 1 + 1e-9:
            _fail(self, "job_share_1wng", "at most 1 together with job_share_1w1g")
        _check_shares(self, "local_size_shares", NUM_LOCAL_SIZES)
        _check(self, "positive", "ps_size_shape")
        _check(self, "between 0 and 1", "heavy_share")
        if not self.ps_size_median >= 2:
            _fail(self, "ps_size_median", "at least 2")
        if not self.ps_size_largest > self.ps_size_median:
            _fail(self, "ps_size_largest", "larger than ps_size_median")


@dataclass(frozen=True)
class TimeShares:
    """How a step's time divides, for one kind of job: each share is logit-normal.

    A share is 1 / (1 + exp(-x)) with x normal of the mean that gives the median, and of standard deviation sigma.

    Attributes:
        communication_median, communication_sigma: Weights and gradients, of the step; unused with one cNode.
        input_median, input_sigma: Input data, of what is left.
        memory_median, memory_sigma: Memory-bound kernels, of the computation, which is the rest.
    """

    input_median: float
    input_sigma: float
    memory_median: float
    memory_sigma: float
    communication_median: float = 0.5
    communication_sigma: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "between 0 and 1", "communication_median", "input_median", "memory_median")
        _check(self, "at least 0", "communication_sigma", "input_sigma", "memory_sigma")


@dataclass(frozen=True)
class Features:
    """What turns shares of time into features of jobs. All sizes in bytes.

    Attributes:
        hardware, gpu: Records of the hardware catalogue to which the time shares refer.
        step_median_s, step_sigma: Step time: log-normal, sigma of the natural logarithm.
        batch_median, batch_sigma, batch_largest: Batch size: a power of two, rounded from a log-normal with sigma of
            the logarithm to base 2, between 1 and the largest.
        traffic_per_trainable_byte: Weight traffic of a step per byte of dense trainable weights.
        dense_median_bytes, dense_sigma: Trainable weights of jobs with one cNode: log-normal. Those of others follow
            from their traffic.
        dense_largest_bytes: Most dense trainable weights: a replica must fit on a GPU. Traffic beyond is embeddings'.
        embedding_job_share: Share of jobs with several cNodes that train embeddings, which lie in host memory.
        embedding_traffic_share: Their share of such a job's traffic.
        embedding_median_bytes, embedding_sigma, embedding_largest_bytes: Trainable embeddings: log-normal, cut off; at
            least what a step touches.
        optimizer_slot_shares: Shares of jobs with 0, 1 and 2 optimiser slots per weight.
    """

    hardware: str
    gpu: str
    step_median_s: float
    step_sigma: float
    batch_median: float
    batch_sigma: float
    batch_largest: float
    traffic_per_trainable_byte: float
    dense_median_bytes: float
    dense_sigma: float
    dense_largest_bytes: float
    embedding_job_share: float
    embedding_traffic_share: float
    embedding_median_bytes: float
    embedding_sigma: float
    embedding_largest_bytes: float
    optimizer_slot_shares: tuple[float, ...]

    def __post_init__(self) -> None:
        positive = (
            "step_median_s",
            "batch_median",
            "traffic_per_trainable_byte",
            "dense_median_bytes",
            "dense_largest_bytes",
            "embedding_median_bytes",
            "embedding_largest_bytes",
        )
        _check(self, "positive", *positive)
        _check(self, "at least 0", "step_sigma", "batch_sigma", "dense_sigma", "embedding_sigma")
        _check(self, "in 0 to 1", "embedding_job_share", "embedding_traffic_share")
        _check_shares(self, "optimizer_slot_shares", 3)
        if not (math.isfinite(self.batch_largest) and self.batch_largest >= 1):
            _fail(self, "batch_largest", "at least 1")


@dataclass(frozen=True)
class PopulationConfig:
    """A synthetic population.

    Attributes:
        name: Its name in reports.
        description: One line on what it is and is not.
        composition: Which jobs there are.
        time_shares: How their steps divide, by kind; all of `KINDS`.
        features: What turns shares into features.
        sources: Where each value comes from, by dotted key.
    """

    name: str
    description: str
    composition: Composition
    time_shares: Mapping[str, TimeShares]
    features: Features
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if tuple(sorted(self.time_shares)) != tuple(sorted(KINDS)):
            raise ConfigError(f"time_shares has {', '.join(self.time_shares)}; it must have {', '.join(KINDS)}")

    def sections(self) -> dict[str, Composition | TimeShares | Features]:
        """The tables of parameters by dotted name."""
        shares = {f"time_shares.{kind}": self.time_shares[kind] for kind in KINDS}
        return {"composition": self.composition, **shares, "features": self.features}

    def value(self, key: str) -> Any:
        """A parameter by its dotted key, such as `composition.ps_size_median`."""
        section, name = key.rsplit(".", 1)
        return getattr(self.sections()[section], name)

    def with_values(self, values: Mapping[str, float]) -> PopulationConfig:
        """A copy with other values of some parameters, by dotted key."""
        changes: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            section, name = key.rsplit(".", 1)
            changes.setdefault(section, {})[name] = value
        return dataclasses.replace(
            self,
            composition=dataclasses.replace(self.composition, **changes.get("composition", {})),
            time_shares={
                kind: dataclasses.replace(shares, **changes.get(f"time_shares.{kind}", {}))
                for kind, shares in self.time_shares.items()
            },
            features=dataclasses.replace(self.features, **changes.get("features", {})),
        )


def load_population_config(name_or_path: str | Path = "pai_synthetic") -> PopulationConfig:
    """Reads the parameters of a population.

    Args:
        name_or_path: Name of a file in `data/populations`, or the path of a TOML file.

    Raises:
        ConfigError: The file is missing or malformed; the message names the key.
        UnknownNameError: There is no population of that name.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml" and path.name == str(name_or_path):
        folder = data_path("populations")
        known = sorted(file.stem for file in folder.glob("*.toml") if file.stem != "published_figures")
        if str(name_or_path) not in known:
            raise UnknownNameError("population", str(name_or_path), known)
        path = folder / f"{name_or_path}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give an existing population file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend the file") from error
    return population_config_from_dict(content, str(path))


def population_config_from_dict(content: dict[str, Any], where: str = "population") -> PopulationConfig:
    """Builds a configuration from the tables of a file.

    Args:
        content: The tables.
        where: Prefix of error messages.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong type or out of range.
    """
    tables = dict(content)
    texts = {key: tables.pop(key, "") for key in ("name", "description")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text:
            raise ConfigError(f"{where}: {key}={text!r} must be a text; add it")
    sources: dict[str, str] = {}
    composition = _section(Composition, tables, "composition", where, sources)
    features = _section(Features, tables, "features", where, sources)
    kinds = tables.pop("time_shares", None)
    if not isinstance(kinds, dict) or sorted(kinds) != sorted(KINDS):
        found = ", ".join(kinds) if isinstance(kinds, dict) else repr(kinds)
        raise ConfigError(f"{where}: time_shares has {found}; give it the tables {', '.join(KINDS)}")
    remaining = {f"time_shares.{kind}": table for kind, table in kinds.items()}
    shares = {kind: _section(TimeShares, remaining, f"time_shares.{kind}", where, sources) for kind in KINDS}
    if tables:
        raise ConfigError(f"{where}: {sorted(tables)[0]}: unknown key; remove it")
    return PopulationConfig(**texts, composition=composition, time_shares=shares, features=features, sources=sources)


def _section(cls: type, tables: dict[str, Any], name: str, where: str, sources: dict[str, str]) -> Any:
    table = tables.pop(name, None)
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: no table [{name}]; add it")
    values = {key: value for key, value in table.items() if key != "sources"}
    texts = table.get("sources", {})
    if not isinstance(texts, dict):
        raise ConfigError(f"{where}: {name}.sources must be a table of texts")
    for key, text in texts.items():
        if key not in values or not isinstance(text, str):
            raise ConfigError(f"{where}: {name}.sources.{key}: must be a text about a value that the table has")
        sources[f"{name}.{key}"] = text
    missing = [
        entry.name
        for entry in dataclasses.fields(cls)
        if entry.default is dataclasses.MISSING and entry.name not in values
    ]
    if missing:
        raise ConfigError(f"{where}: {name}.{missing[0]} is missing; add it")
    try:
        return config_from_dict(cls, values, f"{where}: {name}")
    except ConfigError as error:
        text = str(error)
        raise error if text.startswith(where) else ConfigError(f"{where}: {name}: {text}") from error


def format_population_config(config: PopulationConfig, header: str) -> str:
    """The TOML text of a configuration, which `load_population_config` reads back.

    Args:
        config: What to write.
        header: Lines for the top, written as comments.
    """
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    lines += ["", f"name = {_toml(config.name)}", f"description = {_toml(config.description)}"]
    for section, record in config.sections().items():
        values = dataclasses.asdict(record)
        if section == "time_shares.one_cnode":
            values = {key: value for key, value in values.items() if not key.startswith("communication")}
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        texts = {key: config.sources[f"{section}.{key}"] for key in values if f"{section}.{key}" in config.sources}
        if texts:
            lines += ["", f"[{section}.sources]", *(f"{key} = {_toml(text)}" for key, text in texts.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, float) and abs(value) >= 1e6:
        mantissa, exponent = f"{value:e}".split("e")
        short = f"{float(mantissa):g}e{int(exponent)}"
        return short if float(short) == value else repr(value)
    return repr(value)
