"""Several training runs at a time, each in a process of its own.

What is finished is not run again, and a run that was stopped goes on from its last checkpoint, so a set of runs that is
stopped at any moment, by Ctrl-C or by force, loses what its running members have done since their last checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agents.pipeline import run_pipeline
from agents.run_folder import EVALUATION, WARMUP, RunFolder, plain_settings
from agents.settings import RunSettings, read_settings
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.pool import run_in_processes
from dl2env.evaluation.leaderboard.run import Failure, Progress, RunResult

_PHASE_SHARES = {"record": 0.1, "warm-up": 0.1, "fine-tuning": 0.6, "evaluate": 0.2}
"""Assumed share of a run's time; recordings that are read take the place of the recorded one."""
_DECISIONS_PER_UPDATE = 50  # guess, for the time of runs whose updates are limited
_WARMUP_COST, _FIXED_COST = 0.2, 10_000.0  # in decisions of fine-tuning


@dataclass(frozen=True)
class TrainingRun:
    """One training run of several.

    Attributes:
        label: For messages.
        path: Run folder.
        settings: Plain nested values, see `agents.settings.read_settings`.
        warmup_of: Folder of a finished run whose warm-up is taken instead of making the same one again.
        command: Command line, stored with the result.
    """

    label: str
    path: Path
    settings: Mapping[str, Any]
    warmup_of: Path | None = None
    command: Sequence[str] = ()

    @cached_property
    def checked(self) -> RunSettings:
        """The settings as dataclasses.

        Raises:
            ConfigError: They are wrong.
        """
        return read_settings(self.settings)

    @property
    def cost(self) -> float:
        """Guess of its time; only ratios count."""
        settings, cost = self.checked, _FIXED_COST
        if settings.warmup.enabled and self.warmup_of is None:
            cost += _WARMUP_COST * settings.warmup.num_decisions
        tuning = settings.fine_tuning
        if tuning.enabled:
            most = float("inf") if tuning.num_updates is None else float(_DECISIONS_PER_UPDATE * tuning.num_updates)
            cost += min(tuning.num_decisions, most)
        return cost

    @property
    def is_done(self) -> bool:
        """Whether the run is complete.

        Raises:
            ConfigError: Its folder holds something else, or a run with other settings.
        """
        folder = self._existing()
        return folder is not None and folder.is_complete(EVALUATION) and folder.summary.is_file()

    def _existing(self) -> RunFolder | None:
        if not (self.path / "run.json").exists():
            return None
        try:
            folder = RunFolder.open(self.path)
        except ConfigError as error:
            raise ConfigError(f"{error}: remove the folder {self.path}") from error
        if folder.plain_settings != plain_settings(self.settings):
            raise ConfigError(f"{self.path}: holds a run with other settings; remove the folder or choose another")
        return folder

    def run(self, progress: Callable[[float], None]) -> str:
        """Runs what is not done yet; returns the path of `summary.json`.

        Args:
            progress: Is told the finished share of the run.
        """
        folder = self._existing() or RunFolder.create(self.path, self.settings)
        if self.warmup_of is not None and not folder.is_complete(WARMUP):
            folder.adopt_warmup(RunFolder.open(self.warmup_of))
        log = self.path / "log.txt"

        def say(text: str) -> None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

        share = _shares(folder.settings, self.warmup_of is not None)
        return str(
            run_pipeline(
                folder,
                show_bars=lambda phase, done, total: progress(share(phase, done, total)),
                say=say,
                command=list(self.command),
            )
        )


def _shares(settings: RunSettings, has_warmup: bool) -> Callable[[str, int, int], float]:
    """A function that turns the progress of a phase into that of the run."""
    is_on = {"evaluate": True, "fine-tuning": settings.fine_tuning.enabled}
    is_on["record"] = is_on["warm-up"] = settings.warmup.enabled and not has_warmup
    shares = {phase: share for phase, share in _PHASE_SHARES.items() if is_on[phase]}
    starts = {phase: sum(list(shares.values())[:k]) for k, phase in enumerate(shares)}

    def share(phase: str, done: int, total: int) -> float:
        known = phase if phase in shares else "record"
        if known not in shares:
            return 0.0
        return (starts[known] + shares[known] * min(done / max(total, 1), 1.0)) / sum(shares.values())

    return share


def run_all(runs: Sequence[TrainingRun], processes: int, report: Callable[[Progress], None] | None = None) -> RunResult:
    """Runs those that are not done, the longest first.

    Args:
        runs: Runs with folders of their own.
        processes: How many at a time.
        report: Called whenever something happened.

    Raises:
        ConfigError: A folder holds something else than the run that is to go there, or `processes` is not positive.
        KeyboardInterrupt: The user stopped it; all processes have ended, and the same call goes on.
    """
    if processes < 1:
        raise ConfigError(f"processes={processes} must be at least 1")
    started = time.perf_counter()
    result = RunResult(kept=[run.label for run in runs if run.is_done])
    pending = sorted((run for run in runs if run.label not in result.kept), key=lambda run: -run.cost)
    if not pending:
        return result
    if min(processes, len(pending)) > 1:
        _compile_kernels()
    total, done = sum(run.cost for run in pending), [0.0] * len(pending)
    running: dict[int, str] = {}
    num_done = 0
    with closing(run_in_processes(_run, pending, processes)) as events:
        for event in events:
            run = pending[event.index]
            if event.kind == "started":
                running[event.index] = run.label
            elif event.kind == "progress":
                done[event.index] = max(done[event.index], run.cost * event.value)
            else:
                del running[event.index]
                done[event.index] = run.cost
                num_done += 1
                if event.kind == "done":
                    result.written.append(Path(event.value))
                else:
                    result.failures.append(Failure(run.label, event.value, event.details))
            if report is not None:
                report(Progress(sum(done) / total, num_done, len(pending), tuple(running.values())))
    result.wall_s = time.perf_counter() - started
    return result


def _run(run: TrainingRun, progress: Callable[[float], None]) -> str:
    """In a process: does a run."""
    # The bars' own lock is a semaphore of the system, which would be left behind when Ctrl-C ends the processes.
    tqdm.set_lock(threading.RLock())
    sent = [-1.0]

    def thinned(share: float) -> None:
        if share - sent[0] >= 0.005:  # a message for every decision would cost more than the bar is worth
            sent[0] = share
            progress(share)

    return run.run(thinned)


def _compile_kernels() -> None:
    """Uses the simulator once, so that its kernels are in the cache on disk and no two processes compile the same."""
    from dl2env.envs.vector_env import SchedulingVectorEnv
    from dl2env.evaluation.runner import run_scheduler
    from dl2env.scenarios import get_scenario
    from dl2env.schedulers import get_scheduler

    scenario = get_scenario("toy-v1")
    run_scheduler(get_scheduler("drf"), scenario.config, scenario.workloads("test", 1))
    env = SchedulingVectorEnv(1, scenario.config)
    env.reset(seed=0)
    env.step(env.action_masks().argmax(axis=1))


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_seeds(value: Any) -> list[int]:
    """Training seeds from a list of them, or from a number n, which stands for 1 to n.

    Raises:
        ConfigError: There is none, or one is repeated, or one is not a whole number.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = list(range(1, value + 1))
    if not isinstance(value, list | tuple) or not all(isinstance(s, int) and not isinstance(s, bool) for s in value):
        raise ConfigError(f"seeds={value}: give a list of whole numbers, or how many: seeds=[1,2,3] or seeds=3")
    if not value:
        raise ConfigError("seeds: there is none; give a list of whole numbers, or how many: seeds=[1,2,3] or seeds=3")
    if len(set(value)) < len(value):
        raise ConfigError(f"seeds={list(value)}: a seed is repeated; each run needs one of its own")
    for seed in value:
        if not 0 <= seed < 2**32:
            raise ConfigError(f"seeds={list(value)}: {seed} must lie in 0..2**32 - 1")
    return list(value)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """First 10 digits of the SHA-256 of plain settings; values that are null do not count."""
    text = json.dumps(without_null(plain_settings(settings)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def without_null(values: Any) -> Any:
    """Nested values without those that are null and groups that are left empty."""
    if not isinstance(values, Mapping):
        return values
    kept = {key: without_null(value) for key, value in values.items()}
    return {key: value for key, value in kept.items() if value is not None and value != {}}
