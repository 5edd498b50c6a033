"""JSON files of the leaderboard: one object, written whole or not at all, read with checks that name the field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.whole_file import write_whole

T = TypeVar("T")

DIGITS = 6
"""Significant digits of the numbers in a file."""


class FieldError(ValueError):
    """Says which field is wrong and how."""


class FileKind:
    """One kind of file.

    Args:
        schema: Name of the schema, the value of the key `schema`.
        version: Version of it that this code reads and writes.
        what: What the file is, for messages.
        error: Class of its errors.
        cure: What to do about a wrong file.
    """

    def __init__(self, schema: str, version: int, what: str, error: type[Dl2EnvError], cure: str) -> None:
        self.schema = schema
        self.version = version
        self._what = what
        self._error = error
        self._cure = cure

    def write(self, path: Path, content: Any) -> Path:
        """Writes the fields of a dataclass, one a line, and returns the path.

        Raises:
            Dl2EnvError: Of the kind's class: the file cannot be written, or a value is not plain and finite.
        """
        values = {f.name: getattr(content, f.name) for f in fields(content)}
        values = {"schema": self.schema, "schema_version": self.version, **values}
        try:
            lines = [f"{json.dumps(key)}: {_json(value)}" for key, value in values.items()]
        except (TypeError, ValueError) as error:
            raise self._error(f"{path}: it would hold a value that JSON cannot ({error}); use plain options") from error
        try:
            return write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")
        except OSError as error:
            raise self._error(f"{path}: cannot be written ({error.strerror}); choose another folder") from error

    def read(self, path: Path, check: Callable[[dict[str, Any]], T]) -> T:
        """Reads a file and hands its object to a function that checks it, whose `FieldError`s name the file.

        Raises:
            Dl2EnvError: Of the kind's class: the file cannot be read, is of another kind, or its content is wrong.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
        except OSError as error:
            raise self._error(f"{path}: cannot be read ({error.strerror}); give the path of a {self._what}") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"{path}: not a JSON file ({error}); {self._cure}") from error
        if not isinstance(content, dict) or content.get("schema") != self.schema:
            raise self._error(f"{path}: not a {self._what} (no schema {self.schema}); remove the file or {self._cure}")
        version = content.get("schema_version")
        if version != self.version:
            raise self._error(f"{path}: schema version {version!r}, this code reads {self.version}; {self._cure}")
        try:
            return check(content)
        except FieldError as error:
            raise self._error(f"{path}: {error}; {self._cure}") from error


def require(condition: object, name: str, wanted: str) -> None:
    """Raises a `FieldError` unless the condition holds."""
    if not condition:
        raise FieldError(f"{name} must be {wanted}")


def require_fields(content: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raises a `FieldError` for the first of these keys that is missing."""
    for name in names:
        if name not in content:
            raise FieldError(f"{name} is missing")


def require_digests(content: Mapping[str, Any]) -> None:
    """Raises a `FieldError` unless `workload_digests` are different texts."""
    digests = content["workload_digests"]
    is_list = isinstance(digests, list) and digests and all(isinstance(d, str) for d in digests)
    require(is_list, "workload_digests", "a list of texts")
    require(len(set(digests)) == len(digests), "workload_digests", "all different")


def is_number(value: Any) -> bool:
    """Whether a value read from JSON is a finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float holds
        return False


def rounded(value: float) -> float:
    """The value with `DIGITS` significant digits, whole numbers exactly."""
    if math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def rounded_all(values: NDArray[np.float64]) -> list[float]:
    """Rounded values."""
    return [rounded(float(value)) for value in values]


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False, sort_keys=False)
