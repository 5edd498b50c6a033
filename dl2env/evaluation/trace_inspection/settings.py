"""What is inspected: a trace, how it is shaped, and the cluster that it is held against."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dl2env.config import EnvConfig, ShapingConfig, TraceConfig
from dl2env.config_checks import require, require_choice
from dl2env.errors import ConfigError
from dl2env.trace_config import TRACE_FORMATS, PartsBy, TraceFormatName

if TYPE_CHECKING:
    from dl2env.workload.cluster_files import NodeTable

_MOST_WORKERS = 64


@dataclass(frozen=True)
class InspectionSettings:
    """Everything that `scripts/inspect_trace.py` lets a user choose.

    Attributes:
        path: Trace file, packed or not, `archive::member`, or a folder of tables.
        format: One of `TRACE_FORMATS`; `auto`: found by content.
        companion: Second file that a format needs: Gavel's table of throughputs.
        cluster: Name of a scenario, path of a scenario's TOML file, or path of a list of servers; None: no cluster.
        strict: Warnings are errors; the report is written all the same.
        seed: Seed of the rule that gives jobs a training type (`TraceConfig.seed`).
        max_workers: Largest number of workers and of parameter servers of a job; None: that of the scenario.
        shaping: Which of the jobs, with how many GPUs and at what load; a target load needs a cluster.
        parts_by: Whether train, validation and test parts are shares of the `jobs` or of the `time`.
        write: File to write the shaped jobs to, .csv or .parquet, in the project's own format; None: not written.
    """

    path: str = ""
    format: TraceFormatName = "auto"
    companion: str | None = None
    cluster: str | None = None
    strict: bool = False
    seed: int = 0
    max_workers: int | None = None
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    parts_by: PartsBy = "time"
    write: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.path), "path: no trace; give one: path=<file or folder>")
        require_choice("format", self.format, TRACE_FORMATS)
        require_choice("parts_by", self.parts_by, ("jobs", "time"))
        require(self.seed >= 0, f"seed={self.seed} must not be negative")
        require(
            self.max_workers is None or 1 <= self.max_workers <= _MOST_WORKERS,
            f"max_workers={self.max_workers} must lie in 1 to {_MOST_WORKERS}",
        )
        require(
            self.shaping.target_load is None or self.cluster is not None,
            f"shaping.target_load={self.shaping.target_load}: a load is a share of a cluster; give "
            "cluster=<scenario or list of servers>",
        )
        require(
            self.write is None or Path(self.write).suffix in (".csv", ".parquet"),
            f"write={self.write}: job tables are written as .csv or .parquet; choose one of these endings",
        )

    def world(self) -> EnvConfig | None:
        """The world that replays the trace on the cluster; None without a cluster.

        Raises:
            Dl2EnvError: There is neither a scenario nor a file of that name, or the file is
                neither a scenario nor a list of servers.
        """
        if self.cluster is None:
            return None
        config = _world_of(self.cluster)
        trace = TraceConfig(
            self.path,
            format=self.format,
            companion=self.companion,
            seed=self.seed,
            shaping=self.shaping,
            parts_by=self.parts_by,
        )
        workload = dataclasses.replace(config.workload, trace=trace)
        if self.max_workers is not None:
            workload = dataclasses.replace(workload, max_workers=self.max_workers, max_ps=self.max_workers)
        return dataclasses.replace(config, workload=workload)

    def gpus_of_unknown_kind(self) -> dict[str, int]:
        """GPUs of a list of servers by those kinds that the hardware catalogue lacks, so that a stand-in is used."""
        from dl2env.scenarios import suite_names

        if self.cluster is None or self.cluster in suite_names() or Path(self.cluster).suffix == ".toml":
            return {}
        nodes = _servers(self.cluster)
        counts = nodes.gpus_by_kind()
        return {kind: counts[kind] for kind in nodes.kinds_without_entry()}


def _world_of(cluster: str) -> EnvConfig:
    from dl2env.scenarios import get_scenario, load_scenario, suite_names

    if cluster in suite_names():
        return get_scenario(cluster).config
    if Path(cluster).suffix == ".toml":
        return load_scenario(Path(cluster)).config
    if not Path(cluster.partition("::")[0]).exists():
        raise ConfigError(
            f"cluster={cluster}: no such file, and no such scenario; scenarios: {', '.join(sorted(suite_names()))}"
        )
    return EnvConfig(cluster=_servers(cluster).cluster_config())


def _servers(path: str) -> NodeTable:
    from dl2env.workload.cluster_files import read_nodes

    nodes, report = read_nodes(path)
    if report.warnings:
        reason, rows = next(iter(report.warnings.items()))
        raise ConfigError(f"{path}: {reason}: {rows}; mend the list of servers")
    return nodes
