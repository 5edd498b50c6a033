"""Frozen scenarios: a named world with training, validation and test workloads that never change.

A scenario is a TOML file in `data/scenarios`. Once results on it have been published its world is not edited; a better
one gets the next version. `Scenario.hash` is stored with results and tells whether two of them are comparable.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.workload.job_types import JobType, load_job_types
from dl2env.workload.jobs import Workload

if TYPE_CHECKING:
    from dl2env.workload.generator import WorkloadSource

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

# Replayed traces are cut by arrival order: (from, to) of the configured part of the trace.
TRACE_PARTS: dict[Split, tuple[float, float]] = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}

_KEYS = ("name", "version", "description", "seed", "config", "sources", "fixed_workload")
_JOB_KEYS = ("type", "arrival_s", "epochs", "true_epochs", "samples_per_epoch")


@dataclass(frozen=True)
class Scenario:
    """A world and the workloads that schedulers are compared on.

    Attributes:
        name: Unique name; ends in `-v<version>` for scenarios of the project.
        version: Raised when the world changes.
        description: What it is for.
        config: The world. Its reward, and all of its observation but the window, are suggestions to learners and no
            part of the comparison.
        sources: Where the parameters come from, by dotted key of the configuration.
        seed: Seeds the evaluation workloads.
        fixed_workloads: Workloads given one by one instead of generated; all splits share them.
    """

    name: str
    version: int
    description: str
    config: EnvConfig
    sources: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    fixed_workloads: tuple[Workload, ...] = ()

    def workload_source(self, split: Split) -> WorkloadSource:
        """Workloads of a split, by (seed, environment, episode). No two splits share a stream, whatever the seed."""
        from dl2env.workload.generator import FixedWorkloads, build_workload_source

        _check_split(split)
        if self.fixed_workloads:
            return FixedWorkloads(self.fixed_workloads)
        source = build_workload_source(self.split_config(split))
        return lambda seed, env, episode: source(split_seed(split, seed), env, episode)

    def workloads(self, split: Split, n: int) -> list[Workload]:
        """The first n frozen workloads of a split: the same for ever, and a prefix of those for a larger n.

        Scenarios with fixed workloads have only those, so the list may be shorter than n.
        """
        if n < 1:
            raise ConfigError(f"scenario {self.name}: {n} workloads asked for; give at least 1")
        source = self.workload_source(split)
        count = min(n, len(self.fixed_workloads)) if self.fixed_workloads else n
        return [source(self.seed, 0, i) for i in range(count)]

    def split_config(self, split: Split) -> EnvConfig:
        """The configuration with a replayed trace narrowed to the split's part (otherwise unchanged)."""
        _check_split(split)
        trace = self.config.workload.trace
        if trace is None:
            return self.config
        start, stop = TRACE_PARTS[split]
        span = trace.stop_fraction - trace.start_fraction
        part = dataclasses.replace(
            trace, start_fraction=trace.start_fraction + start * span, stop_fraction=trace.start_fraction + stop * span
        )
        return dataclasses.replace(self.config, workload=dataclasses.replace(self.config.workload, trace=part))

    def derive(self, overrides: Mapping[str, Any], name: str | None = None) -> Scenario:
        """A variant of this world on the same workload seeds, for sweeps.

        Args:
            overrides: Values by dotted key, such as `{"cluster.link_sharing": 0.2, "cluster.servers.0.count": 24}`.
            name: Name of the variant; by default this name and the overrides.

        Raises:
            ConfigError: A key is unknown or a value is wrong.
        """
        values = config_to_dict(self.config)
        for key, value in overrides.items():
            _set_dotted(values, key, value)
        if name is None:
            changes = ",".join(f"{key}={value}" for key, value in overrides.items())
            name = f"{self.name}+{changes}" if changes else self.name
        config: EnvConfig = config_from_dict(EnvConfig, values, where=name)
        kept = {key: text for key, text in self.sources.items() if not any(_covers(k, key) for k in overrides)}
        changed = {key: f"changed from {self.name}" for key in overrides}
        return dataclasses.replace(self, name=name, config=config, sources=kept | changed)

    def hash(self) -> str:
        """SHA-256 of everything that decides results: world, job types, hardware, tables, traces, workloads.

        Contents count, not file names or comments. Names, descriptions, rewards and type encodings do not count.
        """
        world = config_to_dict(self.config)
        del world["reward"]
        world["observation"] = {"window": world["observation"]["window"]}
        content: dict[str, Any] = {
            "seed": self.seed,
            "world": world,
            "job_types": [_job_type_values(job_type) for job_type in self.job_types()],
            "hardware": _hardware_values(self.config),
            "fixed_workloads": [workload.digest() for workload in self.fixed_workloads],
        }
        # A catalogue, table or trace counts by its content, so that a copy elsewhere is the same world.
        del world["cluster"]["hardware"], world["workload"]["job_types"], world["workload"]["include"]
        if self.config.speed.table is not None:
            world["speed"]["table"] = _file_digest(self.config.speed.table, "speed.table")
        if self.config.workload.trace is not None:
            world["workload"]["trace"]["path"] = _file_digest(self.config.workload.trace.path, "workload.trace.path")
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def job_types(self) -> tuple[JobType, ...]:
        """Job types of the world, in the order of the workloads' type indices."""
        return load_job_types(self.config.workload.job_types, self.config.workload.include)


def split_seed(split: Split, seed: int) -> int:
    """128-bit seed of a split's stream; different for every (split, seed), and out of the range people choose from."""
    return int.from_bytes(hashlib.sha256(f"dl2env/{split}/{int(seed)}".encode()).digest()[:16], "big")


def list_scenarios() -> list[str]:
    """Names of the project's scenarios, sorted."""
    return sorted(path.stem for path in data_path("scenarios").glob("*.toml"))


def get_scenario(name: str | Path) -> Scenario:
    """A scenario by name, or by the path of a TOML file of the same form.

    Raises:
        UnknownNameError: There is no scenario of that name.
        ConfigError: The file cannot be read or is wrong.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        return load_scenario(Path(name))
    if name not in list_scenarios():
        raise UnknownNameError("scenario", name, list_scenarios())
    return load_scenario(data_path("scenarios", f"{name}.toml"))


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario file.

    Keys: `name` (the file's stem), `version`, `description`, `seed`; `[config]` as `EnvConfig`; `[sources]`, a text for
    every value set in `[config]` (a group may share one); optionally `[[fixed_workload]]` with `jobs`, a list of tables
    with `type`, `arrival_s`, `epochs` and, if they differ from the estimate and the catalogue, `true_epochs` and
    `samples_per_epoch`.

    Raises:
        ConfigError: The file cannot be read, or a key or value in it is wrong; the message says which.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; give a scenario's name or the path of its TOML file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend the file") from error
    for key in content:
        if key not in _KEYS:
            raise ConfigError(f"{path}: {key}: unknown key; a scenario has: {', '.join(_KEYS)}")
    for key, kind in (("name", str), ("version", int), ("description", str), ("config", dict), ("sources", dict)):
        if not isinstance(content.get(key), kind):
            raise ConfigError(f"{path}: {key}: missing or not a {kind.__name__}; add it")
    if content["name"] != path.stem or not re.search(rf"-v{content['version']}$", content["name"]):
        raise ConfigError(
            f"{path}: name={content['name']!r} must be the file's name without .toml and end in -v{content['version']}"
        )
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"{path}: seed={seed!r} must be a whole number, not negative")
    try:
        config: EnvConfig = config_from_dict(EnvConfig, content["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    _check_sources(path, content["config"], content["sources"])
    fixed = content.get("fixed_workload", [])
    types = load_job_types(config.workload.job_types, config.workload.include) if fixed else ()
    return Scenario(
        name=content["name"],
        version=content["version"],
        description=content["description"].strip(),
        config=config,
        sources=content["sources"],
        seed=seed,
        fixed_workloads=tuple(_fixed_workload(path, i, table, types) for i, table in enumerate(fixed)),
    )


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)


def _check_sources(path: Path, config: Mapping[str, Any], sources: Mapping[str, Any]) -> None:
    leaves = _dotted_leaves(config)
    for key, text in sources.items():
        if not isinstance(text, str) or not text:
            raise ConfigError(
                f'{path}: sources: {key}: not a text; quote the dotted key, as in "cluster.servers" = "..."'
            )
        if not any(_covers(key, leaf) for leaf in leaves):
            raise ConfigError(f"{path}: sources: {key}: config sets no such value; remove it or mend its name")
    for leaf in leaves:
        if not any(_covers(key, leaf) for key in sources):
            raise ConfigError(f'{path}: sources: no source for {leaf}; add "{leaf}" = "where the value comes from"')


def _covers(key: str, leaf: str) -> bool:
    return leaf == key or leaf.startswith(f"{key}.")


def _dotted_leaves(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    leaves: list[str] = []
    for key, value in values.items():
        leaves += _dotted_leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
    return leaves


def _fixed_workload(path: Path, index: int, table: Any, types: Sequence[JobType]) -> Workload:
    where = f"{path}: fixed_workload {index + 1}"
    jobs = table.get("jobs") if isinstance(table, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise ConfigError(f"{where}: jobs: missing; give a list of tables with {', '.join(_JOB_KEYS[:3])}")
    names = tuple(job_type.name for job_type in types)
    columns: dict[str, list[float]] = {key: [] for key in _JOB_KEYS}
    for i, job in enumerate(jobs):
        for key in job:
            if key not in _JOB_KEYS:
                raise ConfigError(f"{where}: job {i + 1}: {key}: unknown key; a job has: {', '.join(_JOB_KEYS)}")
        for key in _JOB_KEYS[:3]:
            if key not in job:
                raise ConfigError(f"{where}: job {i + 1}: {key}: missing; add it")
        if job["type"] not in names:
            raise UnknownNameError(f"job type of {where}", str(job["type"]), names)
        job_type = types[names.index(job["type"])]
        row = {"true_epochs": job["epochs"], "samples_per_epoch": job_type.samples_per_epoch, **job}
        row["type"] = names.index(job["type"])
        for key in _JOB_KEYS:
            if isinstance(row[key], bool) or not isinstance(row[key], (int, float)):
                raise ConfigError(f"{where}: job {i + 1}: {key}={row[key]!r} must be a number")
            columns[key].append(row[key])
    try:
        return Workload(
            arrival_s=np.array(columns["arrival_s"], dtype=np.float64),
            type_idx=np.array(columns["type"], dtype=np.int32),
            epochs=np.array(columns["epochs"], dtype=np.float64),
            true_epochs=np.array(columns["true_epochs"], dtype=np.float64),
            samples_per_epoch=np.array(columns["samples_per_epoch"], dtype=np.float64),
            type_names=names,
            provenance={"scenario": path.stem, "fixed_workload": index},
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _set_dotted(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value in nested dictionaries and lists. Absent groups are created; their reader finds unknown keys."""
    parts = key.split(".")
    node: Any = values
    for i, part in enumerate(parts):
        is_last = i == len(parts) - 1
        index: Any = part
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                raise ConfigError(f"{key}: {'.'.join(parts[:i])} has {len(node)} entries; {part!r} is none of them")
            index = int(part)
        elif not isinstance(node, dict):
            raise ConfigError(f"{key}: {'.'.join(parts[:i])} is a value, not a group of keys")
        if is_last:
            node[index] = value
        elif isinstance(node, dict) and node.get(index) is None:
            node[index] = {}
        node = node[index]


def _job_type_values(job_type: JobType) -> dict[str, Any]:
    return {f.name: getattr(job_type, f.name) for f in dataclasses.fields(job_type) if f.name != "sources"}


def _hardware_values(config: EnvConfig) -> dict[str, Any]:
    """The links record and the GPUs that the cluster has, as plain values."""
    from dl2env.speed.hardware import load_hardware

    hardware = load_hardware(config.cluster.hardware)
    values = dataclasses.asdict(hardware)
    kinds = sorted({group.gpu_type for group in config.cluster.servers})
    values["gpus"] = {kind: dataclasses.asdict(hardware.gpu(kind)) for kind in kinds}
    plain: dict[str, Any] = _without_prose(values)
    return plain


def _without_prose(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {str(key): _without_prose(value) for key, value in values.items() if key not in ("source", "name")}
    return values


def _file_digest(path: str, key: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{key}: {path}: cannot be read ({error.strerror}); give the path of the file") from error
