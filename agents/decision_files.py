"""Files of recorded decisions: NumPy archives that anyone can write; docs/decision_files.md describes the format.

A recording is one `.npz` file, or a folder of parts `decisions-000000.npz`, `decisions-000001.npz`, ... one after the
other in time. In files the environment comes before the time: neighbouring decisions of one environment look alike, and
next to each other they take a quarter of the space. In memory (`Demonstrations`) it is the other way round.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.decision_checks import OUTCOME, REQUIRED, check_arrays, check_size
from agents.decision_layout import ObservationLayout
from agents.demonstrations import Demonstrations
from agents.recording import LEARNED, Arrays, demonstrations_of
from dl2env.errors import ConfigError, TraceError

SCHEMA = "dl2env-decisions"
SCHEMA_VERSION = 1

PART = re.compile(r"decisions-(\d{6})\.npz")

_TIMED = (*REQUIRED, *OUTCOME, "taken", "pinned", "teacher", "behaviour")
"""Arrays that have a time axis, which is the second one in files."""

_STORED = {"actions": np.int32, "taken": np.int32}
"""Types that are smaller in files than in memory."""


@dataclass(frozen=True)
class Header:
    """What a file says about itself.

    Attributes:
        layout: Meaning of the observations.
        provenance: How the decisions were made; free-form, docs/decision_files.md lists what `make_traces.py` writes.
    """

    layout: ObservationLayout
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text in a file."""
        content = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "layout": self.layout.to_dict(),
            "provenance": self.provenance,
        }
        return json.dumps(content, sort_keys=True)

    @property
    def identity(self) -> dict[str, Any]:
        """All of it that must be equal in the parts of one recording: everything but the versions of packages."""
        provenance = {key: value for key, value in self.provenance.items() if key != "versions"}
        return {"layout": self.layout.to_dict(), "provenance": json.loads(json.dumps(provenance))}


def part_path(folder: Path, index: int) -> Path:
    """Path of a part of a recording."""
    return folder / f"decisions-{index:06d}.npz"


def write_part(path: Path, header: Header, part: Arrays) -> None:
    """Writes a file, whole or not at all, also if the process is killed meanwhile. Same arrays, same bytes.

    Args:
        path: The file; replaced if it exists.
        header: What it says about itself.
        part: Arrays as `Recorder.record` returns them.

    Raises:
        ConfigError: It cannot be written.
    """
    arrays = {name: _to_file(name, values) for name, values in part.items()}
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.savez_compressed(file, header=np.array(header.to_json()), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _to_file(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if name not in _TIMED:
        return values
    return np.ascontiguousarray(values.swapaxes(0, 1), dtype=_STORED.get(name, values.dtype))


def save_decisions(path: Path, demos: Demonstrations, layout: ObservationLayout) -> None:
    """Writes decisions that are in memory into one file.

    Args:
        path: The `.npz` file.
        demos: The decisions.
        layout: Meaning of their observations.

    Raises:
        ConfigError: The file cannot be written.
    """
    part = {name: getattr(demos, name) for name in LEARNED if demos.has_rewards or name not in OUTCOME}
    if demos.taken is not None:
        part["taken"] = demos.taken
    write_part(path, Header(layout, demos.provenance), part)


def part_paths(path: Path) -> list[Path]:
    """The files of a recording in order.

    Raises:
        TraceError: There is none, or one is missing in between.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TraceError(f"{path}: no such file or folder; record decisions with scripts/make_traces.py first")
    found = sorted(file for file in path.iterdir() if PART.fullmatch(file.name))
    if not found:
        raise TraceError(f"{path}: holds no recording (decisions-000000.npz is missing); give the folder of one")
    for index, file in enumerate(found):
        if file != part_path(path, index):
            raise TraceError(
                f"{part_path(path, index)}: this part of the recording is missing; run scripts/make_traces.py again "
                f"with out={path}, or number the parts without gaps"
            )
    return found


def read_header(path: Path) -> Header:
    """Reads what a recording says about itself.

    Raises:
        TraceError: It is missing, damaged or of another kind or version.
    """
    return _header(part_paths(path)[0])


def _header(file: Path) -> Header:
    return parse_header(file, _read_arrays(file, ("header",)).get("header"))


def parse_header(file: Path | str, stored: NDArray[Any] | None) -> Header:
    """What a stored header says.

    Args:
        file: Name in error messages.
        stored: The array `header` of a file, a text; None if there is none.

    Raises:
        TraceError: It is missing, or of another kind or version.
    """
    if stored is None:
        raise TraceError(f"{file}: not a file of recorded decisions (no array header); see docs/decision_files.md")
    try:
        content = json.loads(str(stored))
        schema, version = content["schema"], content["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{file}: header: no JSON object with schema and schema_version; write one") from error
    if schema != SCHEMA:
        raise TraceError(f"{file}: header: schema is {schema!r}, not {SCHEMA!r}; see docs/decision_files.md")
    if version != SCHEMA_VERSION:
        raise TraceError(
            f"{file}: header: schema_version is {version}, this code reads {SCHEMA_VERSION}; record it again"
        )
    layout, provenance = content.get("layout"), content.get("provenance", {})
    if not isinstance(layout, dict) or not isinstance(provenance, dict):
        raise TraceError(f"{file}: header: layout and provenance must be JSON objects; see docs/decision_files.md")
    try:
        return Header(ObservationLayout.from_dict(layout), provenance)
    except ConfigError as error:
        raise TraceError(f"{file}: header: {error}; see docs/decision_files.md") from error


def _read_arrays(file: Path, names: tuple[str, ...] | None = None) -> Arrays:
    """Arrays of a file by name; those that it lacks are left out."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise TraceError(f"{file}: a single array; write an archive, see docs/decision_files.md")
            return {name: archive[name] for name in archive.files if names is None or name in names}
    except TraceError:
        raise
    except FileNotFoundError as error:
        raise TraceError(f"{file}: no such file; record decisions with scripts/make_traces.py first") from error
    except Exception as error:  # NumPy and zipfile raise many kinds for damaged files
        raise TraceError(
            f"{file}: damaged, or not a NumPy archive without pickled objects ({type(error).__name__}); restore it, or "
            "delete it and record again"
        ) from error


def read_part(file: Path) -> tuple[Header, Arrays]:
    """Reads and checks one file.

    Returns:
        What it says about itself, and its arrays as `Recorder.record` returned them; a foreign file may lack some.

    Raises:
        TraceError: It is damaged, or its content cannot be learned from; the message names array and decision.
    """
    arrays = _read_arrays(file)
    header = parse_header(file, arrays.pop("header", None))
    check_arrays(str(file), arrays, header.layout)
    # Copies, so that the axes lie in memory as they are named.
    part = {
        name: np.ascontiguousarray(values.swapaxes(0, 1)) if name in _TIMED else values
        for name, values in arrays.items()
    }
    for name in ("actions", "taken"):
        if name in part:
            part[name] = part[name].astype(np.int64)
    for name in ("jobs", "cluster", "rewards"):
        if name in part:
            part[name] = part[name].astype(np.float32, copy=False)
    return header, part


def read_decisions(path: Path) -> tuple[Header, Demonstrations]:
    """Reads a whole recording into memory.

    Args:
        path: A file, or the folder of its parts.

    Returns:
        What its first part says about itself, and the decisions.

    Raises:
        TraceError: A part is missing, damaged or wrong, or parts do not belong together.
    """
    files = part_paths(path)
    steps = [num_steps_of(file) for file in files]
    first: Header | None = None
    joined: Arrays = {}
    before: Arrays | None = None
    start = 0
    for file, num_steps in zip(files, steps, strict=True):
        header, part = read_part(file)
        first = first or header
        check_follows(file, first, header, before, part)
        before = part
        for name in (*LEARNED, "taken"):
            if name in part and name not in joined:  # room for all parts, so that nothing is in memory twice
                joined[name] = np.empty((sum(steps), *part[name].shape[1:]), dtype=part[name].dtype)
            if name in part:
                joined[name][start : start + num_steps] = part[name]
        start += num_steps
    assert first is not None
    return first, demonstrations_of(joined, first.provenance)


def num_steps_of(file: Path) -> int:
    """T of one file, without reading more than that takes.

    Raises:
        TraceError: The file is damaged, or not one of decisions.
    """
    arrays = _read_arrays(file, ("header", "actions"))
    parse_header(file, arrays.get("header"))
    if "actions" not in arrays:
        raise TraceError(f"{file}: array actions is missing; see docs/decision_files.md")
    check_size(str(file), arrays["actions"])
    return int(arrays["actions"].shape[1])


def interval_ends(file: Path) -> NDArray[np.bool_]:
    """(T, B) decisions of a file that ended an interval."""
    return np.asarray(_read_arrays(file, ("interval_ended",))["interval_ended"].T)


def check_follows(file: Path, first: Header, header: Header, before: Arrays | None, part: Arrays) -> None:
    """Makes sure that a part continues the one before it.

    Raises:
        TraceError: It was recorded otherwise, or something between them is missing.
    """
    if header.identity != first.identity:
        raise TraceError(f"{file}: recorded with other settings than the first part of its folder; keep them apart")
    if before is None:
        return
    if set(before) != set(part):
        odd = ", ".join(sorted(set(before) ^ set(part)))
        raise TraceError(f"{file}: has not the arrays of the part before it ({odd}); keep them apart")
    if before["actions"].shape[1] != part["actions"].shape[1]:
        raise TraceError(
            f"{file}: {part['actions'].shape[1]} environments, the part before has {before['actions'].shape[1]}; "
            "keep them apart"
        )
    for name in ("jobs", "cluster"):
        if f"next_{name}" in before and not np.array_equal(before[f"next_{name}"], part[name][0]):
            raise TraceError(f"{file}: does not go on where the part before it ends; record it again")
