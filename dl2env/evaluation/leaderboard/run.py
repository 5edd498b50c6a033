"""Runs the cells that have no file yet, each in a process, and writes their files as they finish."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.pool import run_in_processes
from dl2env.evaluation.leaderboard.selection import SchedulerChoice
from dl2env.evaluation.whole_file import write_whole


class AnyCell(Protocol):
    """What is run in a process: a scheduler on a scenario (`cell.Cell`), or a scenario's limits (`LimitsCell`)."""

    @property
    def label(self) -> str:
        """For messages."""
        ...

    @property
    def scheduler(self) -> SchedulerChoice:
        """What it runs."""
        ...

    @property
    def cost(self) -> float:
        """Guess of its seconds: only ratios count."""
        ...

    def is_done_in(self, folder: Path) -> bool:
        """Whether a folder has its file, up to date and undamaged."""
        ...

    def run_into(self, folder: Path, progress: Callable[[float], None]) -> Path:
        """Runs it, writes its file and returns the path; tells the finished share of the work."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        share: Done share of the guessed work, from 0 to 1.
        num_done, num_cells: Cells that ended, and all that are to run.
        running: Labels of the cells that run now.
    """

    share: float
    num_done: int
    num_cells: int
    running: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """A cell without a file.

    Attributes:
        label: Of the cell.
        error: The error on one line.
        details: Traceback, where there is one.
    """

    label: str
    error: str
    details: str


@dataclass
class RunResult:
    """What a run did.

    Attributes:
        written: Files written.
        kept: Labels of cells that had their file already.
        failures: Cells without a file.
        wall_s: Time it took.
    """

    written: list[Path] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    wall_s: float = 0.0


@dataclass(frozen=True)
class _Task:
    cell: AnyCell
    folder: Path


def pending_cells(cells: Sequence[AnyCell], folder: Path) -> tuple[list[AnyCell], list[AnyCell]]:
    """Cells to run, the heaviest first, and those whose files in the folder are up to date."""
    pending: list[AnyCell] = []
    kept: list[AnyCell] = []
    for cell in cells:
        (kept if cell.is_done_in(folder) else pending).append(cell)
    pending.sort(key=lambda cell: -cell.cost)
    return pending, kept


def check_writable(folder: Path) -> None:
    """Makes the folder of the entries, and finds out that it cannot be written to before anything has run.

    Raises:
        ConfigError: It cannot.
    """
    probe = folder / f".{os.getpid()}.probe"
    try:
        write_whole(probe, "")
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{folder}: no entries can be written there ({error.strerror}); choose another out"
        ) from error


def run_cells(
    cells: Sequence[AnyCell], folder: Path, num_processes: int, report: Callable[[Progress], None] | None = None
) -> RunResult:
    """Runs cells that `folder` has no file of. Stopped at any moment, it loses the cells that were running.

    Args:
        cells: Cells of the board.
        folder: Where the files lie.
        num_processes: How many cells to run at a time.
        report: Called whenever something happened.

    Raises:
        KeyboardInterrupt: The user stopped it; all processes have ended, finished files are on disk.
    """
    started = time.perf_counter()
    pending, kept = pending_cells(cells, folder)
    result = RunResult(kept=[cell.label for cell in kept])
    if not pending:
        return result
    total = sum(cell.cost for cell in pending)
    done = [0.0] * len(pending)
    running: dict[int, str] = {}
    num_done = 0
    tasks = [_Task(cell, folder) for cell in pending]
    with closing(run_in_processes(_run_task, tasks, num_processes)) as events:
        for event in events:
            cell = pending[event.index]
            if event.kind == "started":
                running[event.index] = cell.label
            elif event.kind == "progress":
                done[event.index] = max(done[event.index], cell.cost * min(1.0, event.value))
            else:
                del running[event.index]
                done[event.index] = cell.cost
                num_done += 1
                if event.kind == "done":
                    result.written.append(Path(event.value))
                else:
                    result.failures.append(Failure(cell.label, event.value, event.details))
            if report is not None:
                report(Progress(sum(done) / total, num_done, len(pending), tuple(running.values())))
    result.wall_s = time.perf_counter() - started
    return result


def compile_kernels(cells: Sequence[AnyCell]) -> None:
    """Lets every scheduler of these cells decide once on a tiny world, so that kernels are in the cache on disk.

    Otherwise every process would compile the same ones at the same time. Schedulers of the user's are tried out in
    another process, which they may end or take down.
    """
    own: dict[tuple[str, str], SchedulerChoice] = {}
    for cell in cells:
        choice = cell.scheduler
        if ":" in choice.name:
            own.setdefault((choice.name, json.dumps(choice.options, default=str)), choice)
        else:
            _try_out(choice)
    if own:
        for _ in run_in_processes(_try_out_task, list(own.values()), 1):
            continue


def _try_out_task(choice: SchedulerChoice, progress: Callable[[float], None]) -> None:
    _try_out(choice)


def _try_out(choice: SchedulerChoice) -> None:
    """Lets a scheduler decide on a tiny world, once per process."""
    _try_out_once(choice.name, json.dumps(choice.options, default=str))


@cache
def _try_out_once(name: str, options: str) -> None:
    from dl2env.evaluation.runner import run_scheduler
    from dl2env.scenarios import get_scenario
    from dl2env.schedulers.registry import get_scheduler

    scenario = get_scenario("toy-v1")
    try:
        run_scheduler(get_scheduler(name, **json.loads(options)), scenario.config, scenario.workloads("test", 1))
    except Exception:  # it will raise that again in its cells, where it is reported
        return


def _run_task(task: _Task, progress: Callable[[float], None]) -> str:
    """In a process: runs a cell and writes its file; returns the path."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is loaded; processes share the cores already
    _try_out(task.cell.scheduler)  # kernels are loaded before time is taken
    return str(task.cell.run_into(task.folder, progress))
