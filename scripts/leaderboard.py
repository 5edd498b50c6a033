"""Runs schedulers on frozen scenarios, keeps an entry per pair, and builds the leaderboard's pages from the entries.

Beside the entries it keeps the limits of each scenario: lower bounds of JCT, and what a search that knows the future
reaches.

- `python scripts/leaderboard.py`: everything that has no file yet; a stopped run goes on with the same command
- `python scripts/leaderboard.py build_only=true`: only the pages
- `python scripts/leaderboard.py 'schedulers=[mypkg.mod:MyScheduler]' scenarios=quick num_workloads=20 out=my_board`
- `python scripts/leaderboard.py verify=data/leaderboard/toy-v1/drf.json`: runs some of an entry again

docs/leaderboard_howto.md says more. Exit status 1: a cell failed, or an entry does not hold.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, UnknownNameError
from scripts import command_line

if TYPE_CHECKING:
    from dl2env.evaluation.leaderboard.run import AnyCell, Progress, RunResult

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "data" / "leaderboard"


@dataclass(frozen=True)
class LeaderboardSettings:
    """What to run, besides the schedulers and scenarios.

    Attributes:
        split: Which workloads: `test` for results, `validation` for choices.
        num_workloads: Workloads per scenario.
        batch: Environments simulated at once in a process, at most.
        trim: Shares of the first and last jobs that averages leave out, for long traces.
        reference: Scheduler that ratios refer to.
        processes: Cells at a time; None: as many as there are cores.
        out: Folder of the entries; None: that of the checkout.
        with_committed: A folder of one's own also shows the checkout's entries on its scenarios.
        limits: Also work out the limits of each scenario.
        search_workloads, search_seconds, search_horizon: How much to search for them, see `LimitsOptions`.
        build_only: Only build the pages.
        verify: An entry, or a file of limits, to check instead.
        sample: How many workloads of it to run again, or `all`.
    """

    split: str
    num_workloads: int
    batch: int
    trim: tuple[float, ...]
    reference: str
    processes: int | None
    out: str | None
    with_committed: bool
    limits: bool
    search_workloads: int
    search_seconds: float | None
    search_horizon: int
    build_only: bool
    verify: str | None
    sample: int | str

    def __post_init__(self) -> None:
        from dl2env.evaluation.leaderboard.limits_cell import LimitsOptions
        from dl2env.evaluation.metrics import measured_jobs
        from dl2env.scenarios import SPLITS

        for name in ("out", "reference", "verify"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name}= is empty; give a value, or leave it out")
        for name in ("num_workloads", "batch", "processes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        if self.split not in SPLITS:
            raise UnknownNameError("split", self.split, SPLITS)
        if len(self.trim) != 2:
            raise ConfigError(f"trim={list(self.trim)}: give two shares, of the first and of the last jobs")
        measured_jobs(100, (self.trim[0], self.trim[1]))
        LimitsOptions(self.search_workloads, self.search_seconds, self.search_horizon)
        is_count = isinstance(self.sample, int) and not isinstance(self.sample, bool) and self.sample >= 1
        if not (self.sample == "all" or is_count):
            raise ConfigError(f"sample={self.sample}: give a number of workloads, or all")

    @property
    def folder(self) -> Path:
        """Folder of the entries."""
        return COMMITTED if self.out is None else Path(self.out)

    @property
    def is_own(self) -> bool:
        """Whether entries and pages go to a folder of the user's."""
        return self.folder.resolve() != COMMITTED

    @property
    def pages(self) -> Path:
        """Folder of the pages."""
        return self.folder if self.is_own else ROOT / "docs"


OTHER_KEYS = ("schedulers", "scenarios", "scenario_paths", "scheduler_groups", "scenario_groups", "exclude")


def read_settings(values: Mapping[str, Any]) -> LeaderboardSettings:
    """Settings from what `conf/leaderboard.yaml` composes to, schedulers and scenarios left out.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    own = {key: value for key, value in values.items() if key not in OTHER_KEYS}
    sample = own.pop("sample")
    checked: LeaderboardSettings = config_from_dict(LeaderboardSettings, {**own, "sample": 1}, "leaderboard")
    return LeaderboardSettings(**{**checked.__dict__, "sample": sample})


def leaderboard(values: dict[str, Any], path: Path) -> None:
    """Runs, verifies or builds, as the configuration says; `path` takes the tracebacks of failed cells."""
    settings = read_settings(values)
    sys.path.insert(0, str(Path.cwd()))  # schedulers of the user's, by import path
    if settings.verify is not None:
        _verify(settings, values["scenario_paths"])
        return
    result = None
    if settings.build_only:
        _check_reference(settings, set())
    else:
        result = _run(settings, _cells(settings, values))
    try:
        _build(settings, values)
    except ConfigError:
        # Without any entry there are no pages, but why there is none matters more.
        if result is None or not result.failures:
            raise
    if result is not None and result.failures:
        _report_failures(result, path)
        sys.exit(1)


def _cells(settings: LeaderboardSettings, values: Mapping[str, Any]) -> list[AnyCell]:
    from dl2env.evaluation.leaderboard.cell import make_cells
    from dl2env.evaluation.leaderboard.limits_cell import LimitsOptions, make_limits_cells
    from dl2env.evaluation.leaderboard.selection import choose_scenarios, choose_schedulers
    from dl2env.evaluation.metrics import NO_TRIM

    schedulers = choose_schedulers(
        values["schedulers"], values["scheduler_groups"], values["exclude"], translate=_checkpoint
    )
    scenarios = choose_scenarios(values["scenarios"], values["scenario_groups"], values["scenario_paths"])
    split: Any = settings.split
    trim = (settings.trim[0], settings.trim[1])
    _check_reference(settings, {choice.label for choice in schedulers})
    count = settings.num_workloads
    cells: list[AnyCell] = [
        *make_cells(schedulers, scenarios, split=split, num_workloads=count, batch=settings.batch, trim=trim)
    ]
    if settings.limits and trim == NO_TRIM:  # limits are of the mean over all jobs
        options = LimitsOptions(settings.search_workloads, settings.search_seconds, settings.search_horizon)
        limits = make_limits_cells(scenarios, split=split, num_workloads=count, options=options)
        is_shared = settings.is_own and settings.with_committed
        cells += [cell for cell in limits if not (is_shared and cell.is_done_in(COMMITTED))]
    return cells


def _check_reference(settings: LeaderboardSettings, labels: set[str]) -> None:
    """A reference that nobody knows is found before the run and not after it."""
    from dl2env.evaluation.leaderboard.folder import read_folder
    from dl2env.schedulers import scheduler_names

    known = labels | set(scheduler_names())
    if settings.reference not in known:
        folders = [settings.folder, *([COMMITTED] if settings.is_own and settings.with_committed else [])]
        known |= {entry.scheduler for folder in folders for entry in read_folder(folder)[0].values()}
    if settings.reference not in known:
        raise UnknownNameError("reference", settings.reference, sorted(known))


def _checkpoint(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A folder as the scheduler that decides by the checkpoint in it."""
    if not Path(name).is_dir():
        return name, options
    return "agents.scheduler:CheckpointScheduler", {"path": name, **options}


def _run(settings: LeaderboardSettings, cells: list[AnyCell]) -> RunResult:
    from dl2env.evaluation.leaderboard.run import check_writable, compile_kernels, pending_cells, run_cells

    pending, kept = pending_cells(cells, settings.folder)
    kept_text = f", {len(kept)} have their file already" if kept else ""
    print(f"{len(pending)} of {len(cells)} cells to run{kept_text}; folder: {_shown(settings.folder)}", flush=True)
    if not pending:
        return run_cells([], settings.folder, 1)
    check_writable(settings.folder)
    try:
        compile_kernels(pending)
        with _Bar() as bar:
            result = run_cells(pending, settings.folder, settings.processes or _num_cores(), bar.show)
    except KeyboardInterrupt:
        command = shlex.join([Path(sys.executable).name, *sys.argv])
        print(f"stopped; finished cells are kept, go on with the same command: {command}", file=sys.stderr)
        sys.exit(130)
    count = len(result.written)
    print(f"{count} cell{'' if count == 1 else 's'} in {result.wall_s:.0f} s", flush=True)
    return result


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _build(settings: LeaderboardSettings, values: Mapping[str, Any]) -> None:
    from dl2env.evaluation.leaderboard.build import build_pages
    from dl2env.evaluation.leaderboard.selection import choose_scenarios

    folders = [settings.folder]
    if settings.is_own and settings.with_committed:
        folders.append(COMMITTED)
    choices = choose_scenarios(values["scenarios"], values["scenario_groups"], values["scenario_paths"])
    board, pages = build_pages(
        folders,
        settings.pages,
        choices,
        only_chosen=settings.is_own,  # the checkout's folder is always shown whole
        reference=settings.reference,
        split=settings.split,
    )
    for item in board.set_aside:
        print(f"not compared: {item.name}: {item.reason}", file=sys.stderr)
    for notice in board.notices:
        print(f"note: {notice}", file=sys.stderr)
    for page in pages:
        print(_shown(page))


def _verify(settings: LeaderboardSettings, paths: Mapping[str, str]) -> None:
    from dl2env.evaluation.leaderboard.limits import is_limits_path
    from dl2env.evaluation.leaderboard.verify import verify_entry, verify_limits

    assert settings.verify is not None
    file = Path(settings.verify)
    sample = None if settings.sample == "all" else int(settings.sample)
    if is_limits_path(file):
        verdict = verify_limits(file, sample=sample, paths=paths)
    else:
        verdict = verify_entry(file, sample=sample, paths=paths, batch=settings.batch)
    for line in verdict.lines:
        print(line)
    if not verdict.holds:
        sys.exit(1)


def _report_failures(result: RunResult, path: Path) -> None:
    details = path / "failures.txt"
    details.parent.mkdir(parents=True, exist_ok=True)
    details.write_text("\n\n".join(f"{f.label}: {f.error}\n{f.details}" for f in result.failures), encoding="utf-8")
    count = len(result.failures)
    print(f"{count} cell{'s' if count > 1 else ''} failed (tracebacks: {details}):", file=sys.stderr)
    for failure in result.failures:
        print(f"  {failure.label}: {failure.error}", file=sys.stderr)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class _Bar:
    """Share of the work, time gone and left, and what runs now, on stderr."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            total=1.0,
            bar_format="{percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}",
            dynamic_ncols=True,
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
        )

    def show(self, progress: Progress) -> None:
        self._bar.set_postfix_str(
            f"{progress.num_done} of {progress.num_cells} cells; {', '.join(progress.running)}", refresh=False
        )
        self._bar.update(max(progress.share - self._bar.n, 0.0))

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


if __name__ == "__main__":
    command_line.run(leaderboard, "leaderboard")
