"""Processes: results, failures, deaths, and an end at any moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.pool import Event, run_in_processes


def job(task: int | str, progress: Callable[[int], None]) -> int:
    """In a process: doubles a number, or fails in the way that a text names."""
    if task == "raise":
        raise ValueError("two\nlines")
    if task == "refuse":
        raise ConfigError("x=1 must be 2")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "exit":
        os._exit(3)
    if task == "sleep":
        progress(1)
        time.sleep(60)
    progress(1)
    return 2 * int(task)


def test_everything_is_reported_once_and_failures_stop_nothing() -> None:
    tasks = [1, "raise", "die", 2, "refuse", "exit", 3]
    with closing(run_in_processes(job, tasks, 2)) as events:
        seen = list(events)
    ends = {event.index: event for event in seen if event.kind in ("done", "failed")}
    assert sorted(ends) == list(range(7)) and len(seen) == 7 + 7 + 3
    assert {i: e.value for i, e in ends.items() if e.kind == "done"} == {0: 2, 3: 4, 6: 6}
    assert ends[1].value == "ValueError: two lines" and "Traceback" in ends[1].details
    assert ends[2].value.startswith("its process was killed") and "memory" in ends[2].value
    assert ends[4].value == "x=1 must be 2"
    assert ends[5].value == "its process ended with status 3"
    assert [event.index for event in seen if event.kind == "started"] == list(range(7))


def test_closing_ends_running_processes() -> None:
    events = run_in_processes(job, ["sleep", "sleep"], 2)
    while next(events).kind != "progress":
        pass
    started = time.monotonic()
    events.close()
    assert time.monotonic() - started < 10
    assert multiprocessing.active_children() == []


def test_there_must_be_a_process_and_may_be_no_task() -> None:
    assert list(run_in_processes(job, [], 3)) == []
    with pytest.raises(ConfigError, match="processes=0"):
        next(run_in_processes(job, [1], 0))


def test_interrupts_reach_the_first_process_only() -> None:
    events = run_in_processes(job, ["sleep"], 1)
    while next(events).kind != "progress":
        pass
    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGINT)
    time.sleep(0.3)
    assert child.is_alive()
    events.close()
    assert not child.is_alive()


def test_events_are_plain() -> None:
    assert Event(1, "done", 2) == Event(1, "done", 2, "")
