"""A cell of the leaderboard: one scheduler on one scenario, how it is run, and when its entry needs no new run."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dl2env
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.code_digest import code_digest
from dl2env.evaluation.leaderboard.entry import (
    ENTRY_METRICS,
    QUANTILE_LEVELS,
    Entry,
    EntryError,
    aggregate,
    compact,
    entry_path,
    read_entry,
    write_entry,
)
from dl2env.evaluation.leaderboard.json_file import rounded
from dl2env.evaluation.leaderboard.selection import ScenarioChoice, SchedulerChoice
from dl2env.evaluation.metrics import NO_TRIM, IsolatedSpeeds, episode_metrics, penalised_completion_times
from dl2env.scenarios import Scenario, Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dl2env.evaluation.runner import SchedulerResult
    from dl2env.workload.jobs import Workload

DEFAULT_BATCH = 64

MAX_JOBS_AT_ONCE = 200_000
"""Jobs of all environments of a batch together, which bounds the memory of a cell."""

_RUNNER = "dl2env.evaluation.runner"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@")

Progress = Callable[[float], None]
"""Called with the finished share of the work."""


@dataclass(frozen=True)
class Cell:
    """What makes one entry. All plain values, so that it can be sent to another process.

    Attributes:
        scheduler, scenario: The two.
        split: Which workloads.
        num_workloads: How many; what the scenario has, if that is less.
        batch: Environments at once, at most. Changes time, not results of deterministic schedulers.
        trim: See `metrics.episode_metrics`.
        scenario_name, scenario_hash, scenario_seed: Those of the scenario.
        num_jobs, num_servers: Sizes of an episode, to guess how long it takes.
        code: Digest of the code behind the result.
    """

    scheduler: SchedulerChoice
    scenario: ScenarioChoice
    split: Split
    num_workloads: int
    batch: int
    trim: tuple[float, float]
    scenario_name: str
    scenario_hash: str
    scenario_seed: int
    num_jobs: int
    num_servers: int
    code: str

    @property
    def label(self) -> str:
        """Scheduler and scenario, for messages."""
        return f"{self.scheduler.label} on {self.scenario_name}"

    @property
    def cost(self) -> float:
        """Guess of its seconds, from runs on one machine: only ratios of it count."""
        per_decision = 40.0 if ":" in self.scheduler.name else 1.0  # a call from Python for each, no kernel
        work = self.num_workloads * self.num_jobs * float(np.sqrt(self.num_servers))
        return 0.4 + 1.2e-5 * per_decision * work

    def path(self, folder: Path) -> Path:
        """Where its entry lies."""
        return entry_path(folder, self.scenario_name, self.scheduler.label, self.split)

    def is_done_in(self, folder: Path) -> bool:
        """Whether a folder has its entry, up to date and undamaged.

        Raises:
            ConfigError: The file is the entry of another scheduler.
        """
        path = self.path(folder)
        try:
            entry = read_entry(path) if path.exists() else None
        except EntryError:  # a damaged one is made again
            return False
        if entry is None:
            return False
        if entry.scheduler != self.scheduler.label:  # two labels may make one file name
            raise ConfigError(
                f"{path} is the entry of {entry.scheduler!r}; give {self.scheduler.label!r} another label: "
                "{name: ..., label: ...}"
            )
        return self.is_finished_by(entry)

    def run_into(self, folder: Path, progress: Progress) -> Path:
        """Runs it, writes its entry and returns the path."""
        return write_entry(self.path(folder), run_cell(self, progress))

    def is_finished_by(self, entry: Entry) -> bool:
        """Whether an entry is this cell's result: same world, scheduler and code, and at least as many workloads."""
        mine = (self.scenario_hash, self.scheduler.label, self.scheduler.name, self.scheduler.options_digest, self.code)
        theirs = (entry.scenario_hash, entry.scheduler, entry.scheduler_name, entry.options_digest, entry.code_digest)
        return (
            mine == theirs
            and (self.split, self.trim, dl2env.__version__) == (entry.split, entry.trim, entry.version)
            and json.dumps(self.scheduler.options, sort_keys=True) == json.dumps(entry.options, sort_keys=True)
            and entry.num_workloads >= self.num_workloads
        )

    def command(self) -> str:
        """The command that makes its entry; a user's file is left as FILE."""
        scheduler: Any = self.scheduler.name
        if self.scheduler.options or ":" in self.scheduler.name:
            scheduler = {
                "name": self.scheduler.name,
                **({"options": dict(self.scheduler.options)} if self.scheduler.options else {}),
                "label": self.scheduler.label,
            }
        arguments = [
            f"schedulers=[{hydra_value(scheduler)}]",
            *world_arguments(self.scenario, self.scenario_name, self.split, self.num_workloads),
        ]
        if not self.scheduler.is_deterministic and self.batch != DEFAULT_BATCH:
            arguments.append(f"batch={self.batch}")
        arguments += [f"trim=[{self.trim[0]:g},{self.trim[1]:g}]"] if self.trim != NO_TRIM else []
        return command_text([*arguments, "limits=false"])


def make_cells(
    schedulers: Sequence[SchedulerChoice],
    scenarios: Sequence[ScenarioChoice],
    *,
    split: Split = "test",
    num_workloads: int = 100,
    batch: int = DEFAULT_BATCH,
    trim: tuple[float, float] = NO_TRIM,
) -> list[Cell]:
    """All pairs, scenario by scenario.

    Raises:
        Dl2EnvError: A scenario is wrong or lacks a file, or a number is out of range.
    """
    if num_workloads < 1 or batch < 1:
        raise ConfigError(f"num_workloads={num_workloads}, batch={batch}: both must be at least 1")
    codes = {s.module: scheduler_code(s.module) for s in schedulers}
    cells = []
    for choice in scenarios:
        scenario = choice.build()
        config = scenario.split_config(split)
        fixed = scenario.fixed_workloads
        count = min(num_workloads, len(fixed)) if fixed else num_workloads
        num_jobs = max(w.num_jobs for w in fixed) if fixed else config.workload.num_jobs
        world = (scenario.name, scenario.hash(), scenario.seed, num_jobs, sum(g.count for g in config.cluster.servers))
        cells += [Cell(s, choice, split, count, batch, trim, *world, codes[s.module]) for s in schedulers]
    return cells


@cache
def scheduler_code(module: str) -> str:
    """Digest of the code behind the results of a scheduler whose class is in that module."""
    return code_digest([_RUNNER, module])


def run_cell(cell: Cell, progress: Progress | None = None) -> Entry:
    """Runs a cell and returns its entry.

    Raises:
        Dl2EnvError: Scheduler or scenario refuse.
    """
    started = time.perf_counter()
    scenario = cell.scenario.build()
    workloads = scenario.workloads(cell.split, cell.num_workloads)
    told = (lambda done: progress(done / len(workloads))) if progress is not None else None
    result = run_workloads(cell, scenario, workloads, told)
    return _entry(cell, scenario, workloads, result, time.perf_counter() - started)


def run_workloads(
    cell: Cell, scenario: Scenario, workloads: Sequence[Workload], progress: Callable[[int], None] | None = None
) -> SchedulerResult:
    """Runs a cell's scheduler on workloads of its scenario, in batches that fit into memory, trimmed as it says.

    `progress` is called with the number of finished workloads.
    """
    from dl2env.evaluation.runner import run_scheduler

    batch = max(1, min(cell.batch, MAX_JOBS_AT_ONCE // max(w.num_jobs for w in workloads)))
    told = (lambda _name, done, _total: progress(done)) if progress is not None else None
    result = run_scheduler(
        cell.scheduler.build(), scenario.config, workloads, name=cell.scheduler.label, batch=batch, progress=told
    )
    return result if cell.trim == NO_TRIM else _trimmed(result, workloads, cell.trim)


def _trimmed(result: SchedulerResult, workloads: Sequence[Workload], trim: tuple[float, float]) -> SchedulerResult:
    speeds, capacity = _world(result)
    metrics = tuple(
        episode_metrics(
            records,
            workload,
            speeds,
            capacity=capacity,
            interval_s=result.config.dynamics.interval_s,
            trim=trim,
        )
        for records, workload in zip(result.records, workloads, strict=True)
    )
    return replace(result, metrics=metrics)


def _world(result: SchedulerResult) -> tuple[IsolatedSpeeds, tuple[float, float]]:
    """Isolated speeds, and CPU and GPU units of the cluster."""
    from dl2env.sim.simulator import ClusterSimulator

    sim = ClusterSimulator(result.config, 1, max_jobs=1)
    specs = sim.state.specs
    return IsolatedSpeeds.of(sim), (float(specs["cpus"].sum()), float(specs["gpus"].sum()))


def _entry(
    cell: Cell, scenario: Scenario, workloads: Sequence[Workload], result: SchedulerResult, wall_s: float
) -> Entry:
    from dl2env.evaluation.report import package_versions

    columns = metric_columns(result)
    per_workload = {name: compact(values) for name, values in columns.items()}
    shape = (len(workloads),)
    metrics = {name: aggregate(name, np.broadcast_to(np.asarray(v, float), shape)) for name, v in per_workload.items()}
    choice = cell.scheduler
    return Entry(
        scheduler=choice.label,
        scheduler_name=choice.name,
        options=dict(choice.options),
        options_digest=choice.options_digest,
        scenario=scenario.name,
        scenario_hash=cell.scenario_hash,
        split=cell.split,
        trim=cell.trim,
        interval_s=scenario.config.dynamics.interval_s,
        seeds={"workloads": scenario.seed, "scheduler": choice.seed},
        is_deterministic=choice.is_deterministic,
        is_oracle=choice.is_oracle,
        estimate=config_to_dict(result.config.estimate),
        workload_digests=tuple(w.digest()[:16] for w in workloads),
        metrics=metrics,
        per_workload=per_workload,
        jct_quantiles_s=jct_quantiles(result, workloads),
        timing={
            "wall_s": rounded(wall_s),
            "ms_per_decision": rounded(result.latency.ms_per_decision),
            "p99_call_ms": rounded(1e3 * result.latency.p99_call_s),
            "cpu_ms_per_episode": rounded(1e3 * result.cpu_s / len(workloads)),
        },
        version=dl2env.__version__,
        code_digest=cell.code,
        versions=package_versions(),
        command=cell.command(),
    )


def jct_quantiles(result: SchedulerResult, workloads: Sequence[Workload]) -> tuple[float, ...]:
    """Rounded quantiles of JCT in seconds over the jobs of all workloads, at `QUANTILE_LEVELS`."""
    speeds, _ = _world(result)
    pairs = zip(result.records, workloads, strict=True)
    jct_s = np.concatenate([penalised_completion_times(records, workload, speeds) for records, workload in pairs])
    return tuple(rounded(float(q)) for q in np.quantile(jct_s, QUANTILE_LEVELS))


def metric_columns(result: SchedulerResult) -> dict[str, NDArray[np.float64]]:
    """(N,) values of each of `ENTRY_METRICS`."""
    return {
        name: result.num_illegal.astype(np.float64) if name == "num_illegal" else result.values(name)
        for name in ENTRY_METRICS
    }


def world_arguments(scenario: ScenarioChoice, name: str, split: Split, num_workloads: int) -> list[str]:
    """Arguments of the command that choose a scenario's workloads; a user's file is left as FILE."""
    arguments = [f"scenarios=[{hydra_value(scenario.source)}]"]
    arguments += [f"scenario_paths.{name}=FILE"] if scenario.paths else []
    arguments += [f"num_workloads={num_workloads}"]
    return [*arguments, *([f"split={split}"] if split != "test" else [])]


def command_text(arguments: Sequence[str]) -> str:
    """The leaderboard's command with these arguments, for a shell."""
    return " ".join(["python scripts/leaderboard.py", *map(shlex.quote, arguments)])


def hydra_value(value: Any) -> str:
    """A plain value as Hydra's override grammar reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}: {hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if isinstance(value, str) and not (text and set(text) <= _PLAIN and not _is_literal(text)):
        # Backslashes count only in front of a quotation mark, so only those are doubled.
        return '"' + re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + ('\\"' if m[2] else ""), text) + '"'
    return text


def _is_literal(text: str) -> bool:
    """Whether an unquoted text would be read as something other than a text."""
    if text.lower() in ("null", "true", "false", "nan", "inf", "-inf"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
