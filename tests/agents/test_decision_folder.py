"""Recordings that grow part by part: stopped, killed and continued ones end with the same bytes as others."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.decision_files import Header, part_path, read_decisions
from agents.decision_folder import FLUSH_S, FolderResult, record_to_folder
from agents.decision_layout import layout_of
from agents.players import Memory, Player
from agents.recording import Recorder, WorkloadLog
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.schedulers import get_scheduler
from dl2env.workload.generator import build_workload_source
from tests.agents.worlds import small_config

HEADER = Header(layout_of(small_config()), {"teachers": [{"name": "drf"}], "seed": 1})


class KilledError(Exception):
    """Stands for a kill: nothing after it is done."""


class Remembering:
    """Random legal actions from a generator of its own, so that what it does depends on what it did."""

    name = "remembering"

    def __init__(self, seed: int = 0, dies_after: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self.calls = 0
        self._dies_after = dies_after

    def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
        if self.calls == self._dies_after:
            raise KilledError
        self.calls += 1
        return np.where(action_mask, self._rng.random(action_mask.shape), -1.0).argmax(axis=1)


def record(
    folder: Path, num_decisions: int = 600, scheduler: Any = None, header: Header = HEADER, **options: Any
) -> FolderResult:
    teacher = scheduler or get_scheduler("drf")

    def make() -> Recorder:
        log = WorkloadLog(build_workload_source(small_config()))
        return Recorder(SchedulingVectorEnv(3, small_config(), workloads=log), [Player(teacher)], seed=1, log=log)

    options = {
        "decisions_per_part": 150,
        "say": lambda text: None,
        "memory": Memory.NONE if scheduler is None else Memory.ALL,
        **options,
    }
    return record_to_folder(folder, make, header, num_decisions, num_envs=3, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "whole"
    result = record(folder)
    assert result == FolderResult(600, 600, True, sum(len(content) for content in contents(folder).values()))
    return folder


def test_parts_and_progress(whole: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    record(tmp_path / "again", progress=lambda done, total: steps.append((done, total)))
    assert contents(tmp_path / "again") == contents(whole)
    assert sorted(contents(whole)) == [f"decisions-00000{k}.npz" for k in range(4)]
    assert steps == [(3 * k, 600) for k in range(1, 201)]
    assert read_decisions(whole)[1].num_decisions == 600


def test_rounding_up(tmp_path: Path) -> None:
    assert record(tmp_path / "a", 100, decisions_per_part=31).num_decisions == 102
    assert [read_decisions(part_path(tmp_path / "a", k))[1].num_decisions for k in range(4)] == [33, 33, 33, 3]


def test_more_decisions_continue_a_recording(whole: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert record(tmp_path / "a", 200).num_decisions == 201  # ends within the second part
    result = record(tmp_path / "a", 600, say=said.append)
    assert (result.num_decisions, result.num_new) == (600, 399)
    assert contents(tmp_path / "a") == contents(whole)
    assert said == [f"{tmp_path / 'a'}: goes on after 201 decisions"]
    again = record(tmp_path / "a", 300)
    assert (again.num_decisions, again.num_new, again.is_complete) == (600, 0, True)


@pytest.mark.parametrize("dies_after", [1, 49, 50, 51, 120])
def test_a_killed_recording_is_whole_and_goes_on(tmp_path: Path, dies_after: int) -> None:
    """The scheduler keeps a history, so it is asked again; the result is that of one that was never killed."""
    record(tmp_path / "whole", scheduler=Remembering())
    with pytest.raises(KilledError):
        record(tmp_path / "killed", scheduler=Remembering(dies_after=dies_after))
    kept = dies_after // 50
    left = contents(tmp_path / "killed") if kept else {}
    assert left == dict(sorted(contents(tmp_path / "whole").items())[:kept])
    result = record(tmp_path / "killed", scheduler=Remembering())
    assert result.num_new == 600 - 150 * kept
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_slow_parts_are_kept_in_between(tmp_path: Path) -> None:
    """Each step takes a tenth of the time between writes, so at most ten steps are lost."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += FLUSH_S / 20  # asked once or twice per step
        return now

    with pytest.raises(KilledError):
        record(tmp_path / "killed", scheduler=Remembering(dies_after=80), clock=clock)
    done = read_decisions(tmp_path / "killed")[1].num_decisions
    assert 3 * 60 <= done <= 3 * 80
    record(tmp_path / "whole", scheduler=Remembering())
    record(tmp_path / "killed", scheduler=Remembering())
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_kill_while_writing_leaves_the_part_before(whole: Path, tmp_path: Path, monkeypatch: Any) -> None:
    replace, calls = os.replace, 0

    def die(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KilledError
        replace(source, target)

    monkeypatch.setattr("agents.decision_files.os.replace", die)
    with pytest.raises(KilledError):
        record(tmp_path / "killed")
    monkeypatch.undo()
    (tmp_path / "killed" / ".decisions-000002.npz.draft").write_bytes(b"half a file")
    assert read_decisions(tmp_path / "killed")[1].num_decisions == 300
    record(tmp_path / "killed")
    assert contents(tmp_path / "killed") == contents(whole)


def test_ctrl_c_keeps_everything(whole: Path, tmp_path: Path) -> None:
    def interrupt_at(step: int) -> Callable[[int, int], None]:
        return lambda done, total: os.kill(os.getpid(), signal.SIGINT) if done == 3 * step else None

    before = signal.getsignal(signal.SIGINT)
    first = record(tmp_path / "a", progress=interrupt_at(70))
    assert (first.num_decisions, first.is_complete) == (210, False)
    assert signal.getsignal(signal.SIGINT) is before
    assert read_decisions(tmp_path / "a")[1].num_decisions == 210
    second = record(tmp_path / "a", progress=interrupt_at(75))
    assert (second.num_decisions, second.num_new, second.is_complete) == (225, 15, False)
    assert record(tmp_path / "a").is_complete
    assert contents(tmp_path / "a") == contents(whole)


def test_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    class Slow(Remembering):
        def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
            if self.calls == 60:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return super().act(observation, action_mask, view)

    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "a", scheduler=Slow())
    assert read_decisions(tmp_path / "a")[1].num_decisions == 150


def test_what_cannot_be_continued(whole: Path, tmp_path: Path) -> None:
    before = contents(whole)
    other = dataclasses.replace(HEADER, provenance={"teachers": [{"name": "drf"}], "seed": 2})
    with pytest.raises(TraceError, match=r"other settings \(provenance\.seed\)"):
        record(whole, 900, header=other)
    with pytest.raises(TraceError, match="decisions_per_part=150"):
        record(whole, 900, decisions_per_part=99)
    with pytest.raises(TraceError, match=r"actions of step .* no longer the same"):
        record(whole, 900, scheduler=get_scheduler("srtf"))
    with pytest.raises(ConfigError, match="num_decisions=0"):
        record(tmp_path / "new", 0)
    with pytest.raises(ConfigError, match="decisions_per_part=0"):
        record(tmp_path / "new", 3, decisions_per_part=0)
    assert contents(whole) == before and not (tmp_path / "new").exists()


def test_a_damaged_part_is_not_continued(tmp_path: Path) -> None:
    record(tmp_path / "a", 300)
    path = part_path(tmp_path / "a", 1)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceError, match=r"decisions-000001\.npz: damaged.*delete it and record again"):
        record(tmp_path / "a", 600)
    path.unlink()
    assert record(tmp_path / "a", 600).num_new == 450


def test_newer_packages_may_go_on(tmp_path: Path) -> None:
    def versioned(number: str) -> Header:
        return dataclasses.replace(HEADER, provenance={**HEADER.provenance, "versions": {"numpy": number}})

    record(tmp_path / "a", 150, header=versioned("2.0"))
    assert record(tmp_path / "a", 300, header=versioned("2.1")).num_decisions == 300


class OfInterval:
    """Draws a number when it first sees an interval, and decides by it until the next one."""

    name = "of-interval"

    def __init__(self) -> None:
        self.calls = 0
        self._known: dict[tuple[int, int, int], int] = {}

    def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
        self.calls += 1
        env = view.simulator.state.env
        actions = np.full(len(action_mask), action_mask.shape[1] - 1)
        for b in range(len(action_mask)):
            key = (b, int(env["noise_key"][b]), int(env["interval"][b]))
            # What it draws depends on the state in which it first sees the interval.
            free = np.flatnonzero(action_mask[b])
            drawn = self._known.setdefault(key, int(free.sum() + 7 * env["num_decisions"][b]))
            actions[b] = free[drawn % len(free)]
        return actions


def test_a_scheduler_that_remembers_the_interval_is_asked_about_it_only(tmp_path: Path) -> None:
    record(tmp_path / "whole", scheduler=OfInterval())
    record(tmp_path / "a", 330, scheduler=OfInterval())
    scheduler = OfInterval()
    record(tmp_path / "a", 600, scheduler=scheduler, memory=Memory.INTERVAL)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")
    assert 90 <= scheduler.calls < 110  # 90 new steps, and those of the running intervals


def test_the_search_goes_on(tmp_path: Path) -> None:
    def search() -> Any:
        return get_scheduler("search", num_variants=1, horizon=5)

    record(tmp_path / "whole", 90, scheduler=search(), decisions_per_part=30)
    record(tmp_path / "a", 48, scheduler=search(), decisions_per_part=30)
    record(tmp_path / "a", 90, scheduler=search(), decisions_per_part=30, memory=Memory.INTERVAL)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")
