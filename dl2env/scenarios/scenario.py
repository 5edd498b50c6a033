"""A world and the workloads that schedulers are compared on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios.dotted import covers, overlaps, set_value, value_at
from dl2env.scenarios.fingerprint import world_values
from dl2env.workload.job_types import JobType, load_job_types
from dl2env.workload.jobs import Workload

if TYPE_CHECKING:
    from dl2env.workload.generator import WorkloadSource

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

# Replayed traces are cut by arrival order: (from, to) of the configured part of the trace.
TRACE_PARTS: dict[Split, tuple[float, float]] = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}

SPLIT_KEYS = ("workload.active_types", "workload.num_jobs", "workload.arrivals", "workload.sizes")
"""What may differ between splits: which jobs come. Everything else is the world, and that is one."""


def placeholder(key: str) -> str:
    """What a configuration holds where the user has to give a path."""
    return f"<{key}>"


@dataclass(frozen=True)
class Scenario:
    """A world and the workloads that schedulers are compared on.

    Attributes:
        name: Unique name; ends in `-v<version>` for scenarios of the project.
        version: Raised when the world changes.
        description: What it is for.
        config: The world. Its reward, and all of its observation but the window, are suggestions to learners and no
            part of the comparison. Holds the workloads of every split: none has more jobs than `workload.num_jobs`.
        sources: Where the parameters come from, by dotted key of the configuration; `split.test.<key>` for a split's.
        seed: Seeds the evaluation workloads.
        fixed_workloads: Workloads given one by one instead of generated; all splits share them.
        splits: Values that differ in a split, by split and dotted key (see `SPLIT_KEYS`).
        requires: Paths that the user has to give, by dotted key, with a text that says what they are of.

    Raises:
        ConfigError: A split changes something that is not its own, or has more jobs than the world.
    """

    name: str
    version: int
    description: str
    config: EnvConfig
    sources: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    fixed_workloads: tuple[Workload, ...] = ()
    splits: Mapping[Split, Mapping[str, Any]] = field(default_factory=dict)
    requires: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.splits and self.fixed_workloads:
            raise ConfigError("split: fixed workloads are shared by all splits; remove one of the two")
        num_jobs = self.config.workload.num_jobs
        for split in self.splits:
            for key in self.splits[split]:
                if not any(covers(own, key) for own in SPLIT_KEYS):
                    raise ConfigError(
                        f"split.{split}.{key}: the same in all splits; may differ: {', '.join(SPLIT_KEYS)}"
                    )
            of_split = self.split_config(split).workload.num_jobs
            if of_split > num_jobs:
                raise ConfigError(
                    f"split.{split}.workload.num_jobs={of_split} exceeds workload.num_jobs={num_jobs}, the largest of "
                    "all splits; raise that"
                )

    @property
    def missing(self) -> tuple[str, ...]:
        """Dotted keys of the paths that the user has to give and has not given yet."""
        values = config_to_dict(self.config)
        return tuple(key for key in self.requires if value_at(values, key) == placeholder(key))

    def check_complete(self) -> None:
        """Raises a `ConfigError` that says how to give a path, if one is missing."""
        for key in self.missing:
            raise ConfigError(
                f"scenario {self.name} needs {key}, {self.requires[key]}; give its path: "
                f'get_scenario("{self.name}", paths={{"{key}": ...}}), or {key}=<file> on a command line'
            )

    def workload_source(self, split: Split) -> WorkloadSource:
        """Workloads of a split, by (seed, environment, episode). No two splits share a stream, whatever the seed.

        Raises:
            Dl2EnvError: A path is missing (`requires`), or a file that the scenario reads is wrong.
        """
        from dl2env.workload.generator import FixedWorkloads, build_workload_source

        _check_split(split)
        self.check_complete()
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
        """The configuration with what is the split's own, and a replayed trace narrowed to the split's part."""
        _check_split(split)
        config = self.config
        own = self.splits.get(split)
        if own:
            values = config_to_dict(config)
            for key, value in own.items():
                set_value(values, key, value)
            config = config_from_dict(EnvConfig, values, where=f"split.{split}")
        trace = config.workload.trace
        if trace is None:
            return config
        start, stop = TRACE_PARTS[split]
        span = trace.stop_fraction - trace.start_fraction
        part = dataclasses.replace(
            trace, start_fraction=trace.start_fraction + start * span, stop_fraction=trace.start_fraction + stop * span
        )
        return dataclasses.replace(config, workload=dataclasses.replace(config.workload, trace=part))

    def derive(self, overrides: Mapping[str, Any], name: str | None = None) -> Scenario:
        """A variant of this world on the same workload seeds, for sweeps.

        An override holds in all splits, also where a split had a value of its own.

        Args:
            overrides: Values by dotted key, such as `{"cluster.link_sharing": 0.2, "cluster.servers.0.count": 24}`.
            name: Name of the variant; by default this name and the overrides, required paths left out.

        Raises:
            ConfigError: A key is unknown or a value is wrong.
        """
        values = config_to_dict(self.config)
        for key, value in overrides.items():
            set_value(values, key, value)
        if name is None:
            changes = ",".join(f"{key}={value}" for key, value in overrides.items() if key not in self.requires)
            name = f"{self.name}+{changes}" if changes else self.name
        config: EnvConfig = config_from_dict(EnvConfig, values, where=name)
        splits = {
            split: kept
            for split, own in self.splits.items()
            if (kept := {key: value for key, value in own.items() if not overlaps(key, overrides)})
        }
        sources = {key: text for key, text in self.sources.items() if not any(covers(k, key) for k in overrides)}
        gone = [f"split.{s}.{key}" for s, own in self.splits.items() for key in own if key not in splits.get(s, {})]
        sources = {key: text for key, text in sources.items() if not any(covers(key, leaf) for leaf in gone)}
        for key in overrides:
            sources[key] = "given by the user" if key in self.requires else f"changed from {self.name}"
        return dataclasses.replace(self, name=name, config=config, sources=sources, splits=splits)

    def hash(self) -> str:
        """SHA-256 of everything that decides results: world, job types, hardware, tables, traces, workloads.

        Contents count, not file names or comments. Names, descriptions, rewards and type encodings do not count.

        Raises:
            ConfigError: A path is missing (`requires`), or a file cannot be read.
        """
        self.check_complete()
        content: dict[str, Any] = {
            "seed": self.seed,
            **world_values(self.config, self.job_types()),
            "fixed_workloads": [workload.digest() for workload in self.fixed_workloads],
        }
        if self.splits:
            content["splits"] = {split: dict(own) for split, own in self.splits.items()}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def job_types(self) -> tuple[JobType, ...]:
        """Job types of the world, in the order of the workloads' type indices."""
        return load_job_types(self.config.workload.job_types, self.config.workload.include)


def split_seed(split: Split, seed: int) -> int:
    """128-bit seed of a split's stream; different for every (split, seed), and out of the range people choose from."""
    return int.from_bytes(hashlib.sha256(f"dl2env/{split}/{int(seed)}".encode()).digest()[:16], "big")


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
