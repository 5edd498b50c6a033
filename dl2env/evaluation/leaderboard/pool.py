"""Tasks in processes of their own: one that dies or is killed fails its task and no other.

The processes are spawned, not forked, so that they start alike on every system. They ignore Ctrl-C, which the terminal
sends to all: the first process decides, and ends them. If the first process dies, so do the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from dl2env.errors import ConfigError, Dl2EnvError

Task = TypeVar("Task")

Job = Callable[[Any, Callable[[Any], None]], Any]
"""A module's function that takes a task and a function to report progress with, and returns something picklable."""


@dataclass(frozen=True)
class Event:
    """What happened to a task.

    Attributes:
        index: Of the task.
        kind: `started`, `progress`, `done` or `failed`; the last two come once per task.
        value: Progress or result; of a failure the error on one line.
        details: Traceback of a failure.
    """

    index: int
    kind: str
    value: Any = None
    details: str = ""


def run_in_processes(job: Job, tasks: Sequence[Task], num_processes: int) -> Generator[Event, None, None]:
    """Runs tasks in their order, as many at a time as there are processes, and yields what happens.

    Closing the iterator, or an exception in its user's loop (Ctrl-C), ends all processes at once.

    Args:
        job: Function at the top of a module.
        tasks: Picklable tasks.
        num_processes: Processes, at most one per task.

    Raises:
        ConfigError: `num_processes` is not positive.
    """
    if num_processes < 1:
        raise ConfigError(f"processes={num_processes} must be at least 1")
    waiting = list(enumerate(tasks))[::-1]
    workers = [_Worker(job) for _ in range(min(num_processes, len(tasks)))]
    try:
        for worker in workers:
            yield worker.give(*waiting.pop())
        while any(worker.index is not None for worker in workers):
            busy = {w.connection: w for w in workers if w.index is not None}
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                event = worker.receive()
                yield event
                if event.kind in ("done", "failed"):
                    if not worker.process.is_alive():
                        workers[workers.index(worker)] = worker = _Worker(job)
                    if waiting:
                        yield worker.give(*waiting.pop())
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process and the connection to it."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(other, job), daemon=True)
        with _without_interrupts():
            self.process.start()
        other.close()
        self.index: int | None = None

    def give(self, index: int, task: Any) -> Event:
        self.index = index
        with suppress(BrokenPipeError):  # it died; `receive` will say so
            self.connection.send((index, task))
        return Event(index, "started")

    def receive(self) -> Event:
        index = self.index
        assert index is not None
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            event = Event(index, "failed", _death(self.process.exitcode))
        if event.kind in ("done", "failed"):
            self.index = None
        return event

    def end(self) -> None:
        self.connection.close()
        if self.process.is_alive():
            if self.index is None:  # an idle one ends by itself, and without being cut short
                self.process.join(1.0)
            self.process.terminate()
            self.process.join(5.0)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Lets a process that is started here ignore Ctrl-C from its first moment, as it inherits that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed; there may have been too little memory: fewer processes or a smaller batch help"
    return f"its process ended with status {code}"


def _work(connection: Connection, job: Job) -> None:
    """What a process does: takes tasks and answers, until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            index, task = connection.recv()
            connection.send(_answer(connection, job, index, task))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # whatever runs; entries are written whole or not at all


def _answer(connection: Connection, job: Job, index: int, task: Any) -> Event:
    try:
        return Event(index, "done", job(task, lambda value: connection.send(Event(index, "progress", value))))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except BaseException as error:  # a job that wants to exit, or calls itself interrupted, has failed like others
        text = " ".join(str(error).split())
        line = text if isinstance(error, Dl2EnvError) else f"{type(error).__name__}: {text}".removesuffix(": ")
        return Event(index, "failed", line, traceback.format_exc())
