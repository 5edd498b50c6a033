"""Long recordings: a folder that grows part by part, that no kill can damage, and that goes on where it was stopped.

The recording of n decisions has the same bytes whether it was stopped in between or not, and the recording of more
decisions begins with the parts of the shorter one.

How it goes on: the environments take the recorded actions again, which is fast and shows whether the world is still the
same. Schedulers are asked again as far back as they remember (`agents.players.Memory`), and must decide as before.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.decision_files import (
    PART,
    Header,
    check_follows,
    interval_ends,
    num_steps_of,
    part_path,
    part_paths,
    read_header,
    read_part,
    write_part,
)
from agents.players import Memory
from agents.recording import Arrays, Progress, Recorder
from dl2env.errors import ConfigError, TraceError

FLUSH_S = 30.0
"""A part that takes longer than this to record is also written in between, so that no kill costs more."""


@dataclass(frozen=True)
class FolderResult:
    """What a call of `record_to_folder` left.

    Attributes:
        num_decisions: Decisions in the folder.
        num_new: Of these, recorded by this call.
        is_complete: Whether these are all that were asked for; False if the user stopped it.
        num_bytes: Size of the folder's parts.
    """

    num_decisions: int
    num_new: int
    is_complete: bool
    num_bytes: int


def record_to_folder(
    folder: Path,
    make_recorder: Callable[[], Recorder],
    header: Header,
    num_decisions: int,
    *,
    num_envs: int,
    decisions_per_part: int = 16384,
    memory: Memory = Memory.ALL,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> FolderResult:
    """Records until the folder holds that many decisions; a folder with fewer is continued.

    The first Ctrl-C ends the recording after the running step, with everything so far in the folder; the second one
    raises `KeyboardInterrupt`. A kill costs what was recorded since the last write, at most `FLUSH_S` seconds.

    Args:
        folder: Where the parts go.
        make_recorder: Makes a recorder that stands at the start of the recording.
        header: What each part says about itself.
        num_decisions: Decisions in all; rounded up to a multiple of the number of environments.
        num_envs: B, environments of the recorder.
        decisions_per_part: Decisions of a part; rounded likewise.
        memory: What the players remember, see the module's documentation.
        progress: Called with the decisions that are there, and their total.
        say: Receives what the user should read.
        clock: Seconds, for tests.

    Raises:
        ConfigError: Nothing is asked for, a player took an illegal action, or the folder cannot be written.
        TraceError: The folder holds something else, or its recording cannot be continued.
    """
    for name, value in (("num_decisions", num_decisions), ("decisions_per_part", decisions_per_part)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    total = -(-num_decisions // num_envs)
    per_part = -(-decisions_per_part // num_envs)
    present = _present(folder, header, per_part, num_envs)
    steps_before = sum(present)
    if steps_before >= total:
        return _result(folder, steps_before, 0, num_envs, total)
    recorder = make_recorder()
    if present:
        say(f"{folder}: goes on after {steps_before * num_envs} decisions")
    ask_from = _ask_from(folder, len(present), memory, num_envs)
    begun = None
    for index in range(len(present)):
        file = part_path(folder, index)
        begun = _follow(recorder, file, header, begun, ask_from, progress, total, num_envs)
    if present and present[-1] == per_part:
        begun = None
    with _ctrl_c_noted() as is_stopped:
        while recorder.steps_done < total and not is_stopped():
            start = recorder.steps_done // per_part * per_part
            path = part_path(folder, start // per_part)
            part = recorder.record(
                min(per_part, total - start),
                _shifted(progress, start, total, num_envs),
                begun=begun,
                stop=is_stopped,
                keep=_Keeper(path, header, clock),
            )
            begun = None
            if len(part["actions"]):
                write_part(path, header, part)
    return _result(folder, recorder.steps_done, recorder.steps_done - steps_before, num_envs, total)


def _present(folder: Path, header: Header, per_part: int, num_envs: int) -> list[int]:
    """Steps of the parts that are there.

    Raises:
        TraceError: They are of another recording.
    """
    if not folder.is_dir():
        return []
    for draft in folder.glob(".decisions-*.npz.draft"):
        draft.unlink(missing_ok=True)
    if not any(PART.fullmatch(file.name) for file in folder.iterdir()):
        return []
    differences = _differences(read_header(folder).identity, header.identity)
    if differences:
        raise TraceError(
            f"{folder}: holds a recording with other settings ({', '.join(differences)}); give another folder as out, "
            "or the settings of that recording"
        )
    steps = [num_steps_of(file) for file in part_paths(folder)]
    if any(n != per_part for n in steps[:-1]) or steps[-1] > per_part:
        raise TraceError(
            f"{folder}: its parts have {steps[0] * num_envs} decisions, not {per_part * num_envs}; give "
            f"decisions_per_part={steps[0] * num_envs}, or another folder as out"
        )
    return steps


def _differences(has: Any, wants: Any, prefix: str = "") -> list[str]:
    """Dotted keys in which nested values differ."""
    if not (isinstance(has, Mapping) and isinstance(wants, Mapping)):
        return [] if has == wants else [prefix]
    keys = sorted({*has, *wants})
    return [d for key in keys for d in _differences(has.get(key), wants.get(key), f"{prefix}.{key}" if prefix else key)]


def _follow(
    recorder: Recorder,
    file: Path,
    header: Header,
    before: Arrays | None,
    ask_from: NDArray[np.int64] | None,
    progress: Progress | None,
    total: int,
    num_envs: int,
) -> Arrays:
    found, part = read_part(file)
    check_follows(file, header, found, before, part)
    recorder.follow(
        part, str(file), ask_from=ask_from, progress=_shifted(progress, recorder.steps_done, total, num_envs)
    )
    return part


def _ask_from(folder: Path, num_parts: int, memory: Memory, num_envs: int) -> NDArray[np.int64] | None:
    """(B,) steps of the recording from which on the players must see again what happened; None: nothing."""
    if memory == Memory.NONE:
        return None
    start = np.zeros(num_envs, dtype=np.int64)
    if memory == Memory.INTERVAL:
        ends = [interval_ends(part_path(folder, index)) for index in range(num_parts)]
        for t, ended in enumerate(np.concatenate(ends) if ends else ()):
            start[ended] = t + 1
    return start


def _shifted(progress: Progress | None, start: int, total: int, num_envs: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda t: progress((start + t) * num_envs, total * num_envs)


class _Keeper:
    """Writes the part so far whenever the last write is `FLUSH_S` ago."""

    def __init__(self, path: Path, header: Header, clock: Callable[[], float]) -> None:
        self._path = path
        self._header = header
        self._clock = clock
        self._written_s = clock()

    def __call__(self, so_far: Callable[[], Arrays]) -> None:
        if self._clock() - self._written_s >= FLUSH_S:
            write_part(self._path, self._header, so_far())
            self._written_s = self._clock()


def _result(folder: Path, steps: int, new_steps: int, num_envs: int, total: int) -> FolderResult:
    size = sum(file.stat().st_size for file in part_paths(folder)) if steps else 0
    return FolderResult(steps * num_envs, new_steps * num_envs, steps >= total, size)


@contextmanager
def _ctrl_c_noted() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is only noted, the second one raises."""
    noted = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may handle signals
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal noted
        noted = True
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, previous)
