"""Runs the cells that have no entry yet, each in a process, and writes their entries as they finish."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from dl2env.evaluation.leaderboard.cell import Cell, run_cell
from dl2env.evaluation.leaderboard.entry import EntryError, read_entry, write_entry
from dl2env.evaluation.leaderboard.pool import run_in_processes


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
    """A cell without an entry.

    Attributes:
        label: Scheduler and scenario.
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
        written: Entries written.
        kept: Labels of cells that had their entry already.
        failures: Cells without an entry.
        wall_s: Time it took.
    """

    written: list[Path] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    wall_s: float = 0.0


@dataclass(frozen=True)
class _Task:
    cell: Cell
    folder: Path


def pending_cells(cells: Sequence[Cell], folder: Path) -> tuple[list[Cell], list[Cell]]:
    """Cells to run, the heaviest first, and those whose entries in the folder are up to date."""
    pending: list[tuple[float, Cell]] = []
    kept = []
    for cell in cells:
        path = cell.path(folder)
        try:
            entry = read_entry(path) if path.exists() else None
        except EntryError:  # a damaged one is made again
            entry = None
        if entry is not None and cell.is_finished_by(entry):
            kept.append(cell)
        else:
            pending.append((cell.cost, cell))
    pending.sort(key=lambda pair: -pair[0])
    return [cell for _, cell in pending], kept


def run_cells(
    cells: Sequence[Cell], folder: Path, num_processes: int, report: Callable[[Progress], None] | None = None
) -> RunResult:
    """Runs cells that `folder` has no entry of. Stopped at any moment, it loses the cells that were running.

    Args:
        cells: Cells of the board.
        folder: Where entries lie.
        num_processes: How many cells to run at a time.
        report: Called whenever something happened.

    Raises:
        KeyboardInterrupt: The user stopped it; all processes have ended, finished entries are on disk.
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
                done[event.index] = cell.cost * min(1.0, event.value / cell.num_workloads)
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


def compile_kernels(cells: Sequence[Cell]) -> None:
    """Lets every scheduler of these cells decide once on a tiny world, so that kernels are in the cache on disk.

    Otherwise every process would compile the same ones at the same time. What a scheduler raises here, it will raise
    again in its cells, where it is reported.
    """
    from dl2env.evaluation.runner import run_scheduler
    from dl2env.scenarios import get_scenario

    scenario = get_scenario("toy-v1")
    workloads = scenario.workloads("test", 1)
    seen = set()
    for cell in cells:
        choice = cell.scheduler
        if choice.label in seen:
            continue
        seen.add(choice.label)
        try:
            run_scheduler(choice.build(), scenario.config, workloads, name=choice.label)
        except Exception:
            continue


def _run_task(task: _Task, progress: Callable[[int], None]) -> str:
    """In a process: runs a cell and writes its entry; returns the path."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is loaded; processes share the cores already
    entry = run_cell(task.cell, progress)
    return str(write_entry(task.cell.path(task.folder), entry))
