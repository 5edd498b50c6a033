"""Existing schedulers on the stream: the teacher that regret is counted against, and baselines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from agents.online.stream import Stream
from agents.pipeline import find_scheduler
from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers.base import IntervalScheduler, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator, JobRecords

_INTERVALS_PER_CALL = 64

Progress = Callable[[int, int], None]


def find_teacher(name: str, config: EnvConfig) -> IntervalScheduler:
    """The teacher by registered name or import path.

    Raises:
        Dl2EnvError: There is none, or it cannot stand in for the agent in the midst of a stream.
    """
    teacher = find_scheduler(name)
    if not isinstance(teacher, IntervalScheduler):
        raise ConfigError(
            f"warmup.teacher={name!r} decides step by step; the teacher of an online run must be able to take the "
            "decisions of whole intervals (run_intervals), as the built-in heuristics do"
        )
    if getattr(teacher, "is_oracle", False):
        raise ConfigError(f"warmup.teacher={name!r} knows the future; choose a scheduler that can be run")
    if configured(teacher, config).estimate != config.estimate:
        raise ConfigError(
            f"warmup.teacher={name!r} brings its own speed estimate, but decides with the environment's on the stream; "
            "choose another teacher and set env.estimate"
        )
    return teacher


def play_stream(scheduler: Scheduler, stream: Stream, progress: Progress | None = None) -> JobRecords:
    """What happens to the jobs of a stream under a scheduler that does not learn.

    Args:
        scheduler: The scheduler.
        stream: The stream.
        progress: Called with the present interval and the number of all, where that is known.
    """
    if not isinstance(scheduler, IntervalScheduler):
        return run_scheduler(scheduler, stream.config, [stream.workload], batch=1).records[0]
    config = configured(scheduler, stream.config)
    narrow = dataclasses.replace(config, observation=dataclasses.replace(config.observation, window=1))
    simulator = ClusterSimulator(narrow, 1)
    simulator.load([0], [stream.workload])
    while not simulator.is_done[0]:
        scheduler.run_intervals(simulator, _INTERVALS_PER_CALL)
        if progress is not None:
            progress(min(int(simulator.state.env["interval"][0]), stream.num_intervals), stream.num_intervals)
    return simulator.records(0)
