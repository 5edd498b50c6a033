"""The registry of trace formats, one module each, and how a file's format is found."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dl2env.config import TRACE_FORMATS
from dl2env.errors import ConfigError, TraceError, UnknownNameError
from dl2env.workload.traces.head import NO_MATCH, Head, Match
from dl2env.workload.traces.report import ReadReport
from dl2env.workload.traces.source import TraceFile, TraceSource, printable
from dl2env.workload.traces.table import JobTable

_SURE = 1.0
_LIKELY = 0.5


@dataclass(frozen=True)
class ReadOptions:
    """How a trace is read.

    Attributes:
        strict: Warnings (dropped, clamped and suspicious rows) are errors.
        companion: Path of a second file that some formats need, such as Gavel's table of throughputs.
    """

    strict: bool = False
    companion: str | None = None


@dataclass(frozen=True)
class TraceFormat:
    """One public format.

    Attributes:
        name: Its name in configurations.
        title: What it is, in one line.
        columns: What a file of it looks like, for messages and documentation.
        sniff: Says how well the beginning of a file fits.
        read: Reads jobs; the source has several files only if `takes_several`.
        takes_several: The format is made of several tables, given as a folder or archive.
        companion: What `ReadOptions.companion` is for this format; empty if it has none.
        find_companion: Finds that file where the user does not name it; None if it has to be named.
        similar_types: Label of a job -> names of catalogue types that resemble it, best first; the first one in the
            catalogue becomes the job's training type.
    """

    name: str
    title: str
    columns: str
    sniff: Callable[[Head], Match]
    read: Callable[[TraceSource, ReadOptions], tuple[JobTable, ReadReport]]
    takes_several: bool = False
    companion: str = ""
    find_companion: Callable[[TraceFile], Path | None] | None = None
    similar_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def format_names() -> tuple[str, ...]:
    """Names of all formats."""
    return tuple(name for name in TRACE_FORMATS if name != "auto")


def _module(name: str) -> str:
    return f"dl2env.workload.traces.{'own' if name == 'dl2env' else name}"


@functools.cache
def trace_format(name: str) -> TraceFormat:
    """A format by name.

    Raises:
        UnknownNameError: There is none of that name.
        ConfigError: polars is not installed.
    """
    if name not in format_names():
        raise UnknownNameError("trace format", name, ["auto", *format_names()])
    try:
        module = importlib.import_module(_module(name))
    except ModuleNotFoundError as error:
        if error.name != "polars":
            raise
        raise ConfigError("reading traces needs polars: install dl2env with its extra `traces`") from error
    found: TraceFormat = module.FORMAT
    return found


def detect(source: TraceSource) -> tuple[TraceFormat, TraceSource]:
    """The format of the files that a path leads to, by their content, and the files that are of it.

    Raises:
        TraceError: No format or more than one fits; the message says what was seen.
    """
    formats = [trace_format(name) for name in format_names()]
    found: dict[str, list[TraceFile]] = {}
    for file in source.files:
        head = Head(file)
        matches = {f.name: f.sniff(head) for f in formats}
        sure = {name: match for name, match in matches.items() if match.score >= _SURE}
        if not sure:
            if len(source.files) > 1:
                continue  # a folder may hold other files too
            _fail_unknown(head, matches, formats)
        best = max(match.score for match in sure.values())
        names = [name for name, match in sure.items() if match.score == best]
        if len(names) > 1:
            raise TraceError(
                f"{file.name}, line 1: fits the formats {' and '.join(names)} equally ({head.describe()}); say "
                f"which: format={names[0]}"
            )
        found.setdefault(names[0], []).append(file)
    if len(found) == 1:
        name, files = next(iter(found.items()))
        unused = tuple(file.short_name for file in source.files if file not in files)
        return trace_format(name), TraceSource(source.path, tuple(files), unused)
    if not found:
        seen = ", ".join(printable(file.member or file.path.name) for file in source.files[:8])
        raise TraceError(f"{source.path}: none of its files ({seen}) is of a known format: {', '.join(format_names())}")
    seen = "; ".join(f"{name}: {', '.join(file.short_name for file in files[:3])}" for name, files in found.items())
    raise TraceError(f"{source.path}: holds files of several formats ({seen}); name one file")


def _fail_unknown(head: Head, matches: Mapping[str, Match], formats: list[TraceFormat]) -> None:
    best = max(matches, key=lambda name: matches[name].score)
    from dl2env.workload.cluster_files import node_format_of

    nodes = node_format_of(head)
    if nodes is not None:
        raise TraceError(f"{head.file.name}, line 1: a list of servers ({nodes}), not of jobs; give it as a cluster")
    if matches[best].score >= _LIKELY:
        raise TraceError(
            f"{head.file.name}, line 1: looks like the {best} format ({trace_format(best).columns}), but "
            f"{matches[best].reason}; {head.describe()}; mend the header or name another format"
        )
    known = "; ".join(f"{f.name}: {f.columns}" for f in formats)
    raise TraceError(f"{head.file.name}, line 1: of no known format; {head.describe()}. Known formats: {known}")


__all__ = [
    "NO_MATCH",
    "Head",
    "Match",
    "ReadOptions",
    "TraceFormat",
    "detect",
    "format_names",
    "trace_format",
]
