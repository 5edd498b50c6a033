"""Works out the limits of a scenario: a cell of the leaderboard like those of schedulers, and as resumable."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dl2env
from dl2env.errors import ConfigError
from dl2env.evaluation.bounds import BoundCalculator
from dl2env.evaluation.leaderboard.cell import Progress, command_text, world_arguments
from dl2env.evaluation.leaderboard.code_digest import code_digest
from dl2env.evaluation.leaderboard.json_file import rounded, rounded_all
from dl2env.evaluation.leaderboard.limits import (
    Limits,
    LimitsError,
    limits_path,
    mean_metrics,
    read_limits,
    write_limits,
)
from dl2env.evaluation.leaderboard.selection import ScenarioChoice, SchedulerChoice, choose_schedulers
from dl2env.evaluation.metrics import IsolatedSpeeds, penalised_completion_times
from dl2env.scenarios import Scenario, Split

if TYPE_CHECKING:
    from dl2env.config import EnvConfig
    from dl2env.workload.jobs import Workload

_CODE = ("dl2env.evaluation.bounds", "dl2env.evaluation.metrics", "dl2env.schedulers.search")
_INTERVALS_PER_CALL = 4  # between two reports of progress


@dataclass(frozen=True)
class LimitsOptions:
    """How much to search.

    Attributes:
        search_workloads: Workloads that the search is run on, the first ones; 0 leaves it out.
        search_seconds: CPU seconds per scenario after which no further workload is begun; None: no limit.
        search_horizon: Intervals that a plan is played for, see `SearchScheduler`.
    """

    search_workloads: int = 10
    search_seconds: float | None = None
    search_horizon: int = 1000

    def __post_init__(self) -> None:
        if self.search_workloads < 0:
            raise ConfigError(f"search_workloads={self.search_workloads} must be at least 0 (no search)")
        if self.search_seconds is not None and not self.search_seconds > 0:
            raise ConfigError(f"search_seconds={self.search_seconds} must be positive, or null for no limit")
        if self.search_horizon < 1:
            raise ConfigError(f"search_horizon={self.search_horizon} must be at least 1")


@dataclass(frozen=True)
class LimitsCell:
    """What makes one file of limits. All plain values, so that it can be sent to another process.

    Attributes:
        scheduler: The search.
        scenario, split, num_workloads, scenario_name, scenario_hash, num_jobs, num_servers, code: As in `Cell`.
        options: How much to search.
        num_intervals: Intervals in which jobs arrive, to guess how long it takes.
    """

    scheduler: SchedulerChoice
    scenario: ScenarioChoice
    split: Split
    num_workloads: int
    options: LimitsOptions
    scenario_name: str
    scenario_hash: str
    num_jobs: int
    num_servers: int
    num_intervals: int
    code: str

    @property
    def label(self) -> str:
        """For messages."""
        return f"limits of {self.scenario_name}"

    @property
    def num_wanted(self) -> int:
        """Workloads to search."""
        return min(self.options.search_workloads, self.num_workloads)

    @property
    def cost(self) -> float:
        """Guess of its seconds, see `Cell.cost`."""
        if self.num_wanted == 0:
            return 0.5
        plan = min(self.options.search_horizon, self.num_intervals)
        each = 3.5e-5 * self.num_intervals * plan * float(np.sqrt(self.num_jobs * self.num_servers))
        budget = self.options.search_seconds
        all_of_them = self.num_wanted * each
        return 0.5 + (all_of_them if budget is None else min(all_of_them, budget + each))

    def path(self, folder: Path) -> Path:
        """Where its file lies."""
        return limits_path(folder, self.scenario_name, self.split)

    def is_done_in(self, folder: Path) -> bool:
        """Whether a folder has its file, up to date and undamaged."""
        path = self.path(folder)
        try:
            return path.exists() and self.is_finished_by(read_limits(path))
        except LimitsError:  # a damaged one is made again
            return False

    def is_finished_by(self, limits: Limits) -> bool:
        """Whether limits are this cell's result: same world, code and horizon, and at least as much of both."""
        mine = (self.scenario_hash, self.split, self.code, dl2env.__version__, self.options.search_horizon)
        theirs = (limits.scenario_hash, limits.split, limits.code_digest, limits.version)
        if mine != (*theirs, limits.options["search_horizon"]) or limits.num_workloads < self.num_workloads:
            return False
        if limits.num_searched >= self.num_wanted:
            return True
        wanted, spent = self.options.search_seconds, limits.options["search_seconds"]
        return limits.is_cut_short and wanted is not None and spent is not None and spent >= wanted

    def run_into(self, folder: Path, progress: Progress) -> Path:
        """Works them out, writes the file and returns its path."""
        return write_limits(self.path(folder), run_limits(self, progress))

    def command(self) -> str:
        """A command that makes the file (and an entry of DRF); a user's file is left as FILE."""
        options = dataclasses.asdict(self.options)
        extra = [f"{name}={'null' if value is None else f'{value:g}'}" for name, value in options.items()]
        world = world_arguments(self.scenario, self.scenario_name, self.split, self.num_workloads)
        return command_text(["schedulers=[drf]", *world, *extra])


def make_limits_cells(
    scenarios: Sequence[ScenarioChoice],
    *,
    split: Split = "test",
    num_workloads: int = 100,
    options: LimitsOptions | None = None,
) -> list[LimitsCell]:
    """One per scenario.

    Raises:
        Dl2EnvError: A scenario is wrong or lacks a file.
    """
    options = LimitsOptions() if options is None else options
    search = {"name": "search", "options": {"horizon": options.search_horizon}}
    (scheduler,) = choose_schedulers([search], {})
    code = code_digest(_CODE)
    cells = []
    for choice in scenarios:
        scenario = choice.build()
        config = scenario.split_config(split)
        fixed = scenario.fixed_workloads
        count = min(num_workloads, len(fixed)) if fixed else num_workloads
        (first,) = scenario.workloads(split, 1)
        num_servers = sum(group.count for group in config.cluster.servers)
        num_intervals = 1 + int(first.arrival_s.max() / config.dynamics.interval_s)
        world = (scenario.name, scenario.hash(), first.num_jobs, num_servers, num_intervals)
        cells.append(LimitsCell(scheduler, choice, split, count, options, *world, code))
    return cells


def run_limits(cell: LimitsCell, progress: Progress | None = None) -> Limits:
    """Works out the limits of a scenario.

    Raises:
        Dl2EnvError: The scenario cannot be simulated.
    """
    from dl2env.evaluation.report import package_versions

    started, cpu_started = time.perf_counter(), time.process_time()
    scenario = cell.scenario.build()
    workloads = scenario.workloads(cell.split, cell.num_workloads)
    calculator = BoundCalculator(scenario.config)
    bound_s = rounded_all(np.array([calculator.bound(workload).mean_jct_s for workload in workloads]))
    bound_cpu_s = time.process_time() - cpu_started
    search_s, num_unfinished = _search(cell, scenario, workloads[: cell.num_wanted], progress)
    return Limits(
        scenario=scenario.name,
        scenario_hash=cell.scenario_hash,
        split=cell.split,
        interval_s=scenario.config.dynamics.interval_s,
        workload_digests=tuple(w.digest()[:16] for w in workloads),
        metrics=mean_metrics(np.array(bound_s), np.array(search_s)),
        bound_jct_s=tuple(bound_s),
        search_jct_s=tuple(search_s),
        search_num_unfinished=num_unfinished,
        options=dataclasses.asdict(cell.options),
        timing={
            "wall_s": rounded(time.perf_counter() - started),
            "bound_cpu_s": rounded(bound_cpu_s),
            "search_cpu_s": rounded(time.process_time() - cpu_started - bound_cpu_s),
        },
        version=dl2env.__version__,
        code_digest=cell.code,
        versions=package_versions(),
        command=cell.command(),
    )


def _search(
    cell: LimitsCell, scenario: Scenario, workloads: Sequence[Workload], progress: Progress | None
) -> tuple[list[float], int]:
    """Mean JCTs of the search in seconds, and unfinished jobs; ends after the workload that exceeds the budget."""
    budget_s = cell.options.search_seconds
    started = time.process_time()
    mean_jct_s: list[float] = []
    num_unfinished = 0

    def report(share: float) -> None:
        """Takes the share of the present workload."""
        if progress is None:
            return
        of_budget = 0.0 if budget_s is None else (time.process_time() - started) / budget_s
        progress(min(0.99, max((len(mean_jct_s) + share) / len(workloads), of_budget)))

    for workload in workloads:
        jct_s, unfinished = search_workload(cell.scheduler, scenario.config, workload, report)
        mean_jct_s.append(rounded(jct_s))
        num_unfinished += unfinished
        if budget_s is not None and time.process_time() - started > budget_s:
            break
    return mean_jct_s, num_unfinished


def search_workload(
    choice: SchedulerChoice, config: EnvConfig, workload: Workload, report: Callable[[float], None] | None = None
) -> tuple[float, int]:
    """Runs the search on one workload.

    Args:
        choice: The search.
        config: The world.
        workload: What to play.
        report: Called with the share of finished jobs.

    Returns:
        Mean JCT in seconds, and the number of unfinished jobs.
    """
    from dl2env.schedulers.base import IntervalScheduler, configured
    from dl2env.sim.simulator import ClusterSimulator

    search = choice.build()
    assert isinstance(search, IntervalScheduler)
    seen = configured(search, config)
    narrow = dataclasses.replace(seen.observation, window=1)  # nothing reads the window here
    sim = ClusterSimulator(dataclasses.replace(seen, observation=narrow), 1, max_jobs=workload.num_jobs)
    sim.load([0], [workload])
    while not sim.is_done[0]:
        search.run_intervals(sim, _INTERVALS_PER_CALL)
        if report is not None:
            report(float(np.isfinite(sim.state.jobs["finish_s"][0, : workload.num_jobs]).mean()))
    records = sim.records(0)
    jct_s = penalised_completion_times(records, workload, IsolatedSpeeds.of(sim))
    return float(jct_s.mean()), int(np.isnan(records.finish_s).sum())
