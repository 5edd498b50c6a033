"""Reads a folder of entries and limits; what is damaged is named, and stops nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dl2env.evaluation.leaderboard.entry import Entry, EntryError, read_entry
from dl2env.evaluation.leaderboard.limits import Limits, LimitsError, is_limits_path, read_limits


@dataclass(frozen=True)
class SetAside:
    """An entry or file that is not compared.

    Attributes:
        name: Scheduler and scenario, or the file.
        reason: Why, and what cures it.
        is_stale: It was a result once: of another world, version or set of workloads.
    """

    name: str
    reason: str
    is_stale: bool = True


def read_folder(folder: Path) -> tuple[dict[Path, Entry], list[SetAside]]:
    """All entries below a folder by path, in order, and the files that are neither entries nor limits.

    Of two entries of one scheduler, scenario and split the first stays; the other is among the files set aside.
    """
    entries: dict[Path, Entry] = {}
    seen: dict[tuple[str, str, str], Path] = {}
    damaged = []
    for path in sorted(folder.rglob("*.json")):
        if path.name.startswith(".") or is_limits_path(path):
            continue
        try:
            entry = read_entry(path)
        except EntryError as error:
            reason = str(error).removeprefix(f"{path}: ")
            damaged.append(SetAside(path.relative_to(folder).as_posix(), reason, is_stale=False))
            continue
        first = seen.setdefault((entry.scheduler, entry.scenario, entry.split), path)
        if first is path:
            entries[path] = entry
        else:
            what = f"{entry.scheduler} on {entry.scenario}"
            reason = f"{what} is in {first.relative_to(folder).as_posix()} already; remove one of the files"
            damaged.append(SetAside(path.relative_to(folder).as_posix(), reason, is_stale=False))
    return entries, damaged


def read_limits_folder(folder: Path) -> tuple[list[Limits], list[SetAside]]:
    """All limits below a folder, in the order of their paths, and the files that should hold some and do not."""
    found = []
    damaged = []
    for path in sorted(path for path in folder.rglob("*.json") if is_limits_path(path)):
        try:
            found.append(read_limits(path))
        except LimitsError as error:
            reason = str(error).removeprefix(f"{path}: ")
            damaged.append(SetAside(path.relative_to(folder).as_posix(), reason, is_stale=False))
    return found, damaged
