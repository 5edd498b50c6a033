"""Dotted keys of nested values, as scenario files and overrides use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dl2env.errors import ConfigError


def covers(key: str, leaf: str) -> bool:
    """Whether a key names a value or a group that it lies in."""
    return leaf == key or leaf.startswith(f"{key}.")


def overlaps(key: str, others: Iterable[str]) -> bool:
    """Whether a key covers one of the others or is covered by it."""
    return any(covers(key, other) or covers(other, key) for other in others)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested dictionaries by dotted key; lists count as values."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update(flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def value_at(values: Any, key: str) -> Any:
    """The value of nested dictionaries and lists at a key; None where a group on the way is absent."""
    for part in key.split("."):
        if values is None:
            return None
        values = values[int(part)] if isinstance(values, list) else values.get(part)
    return values


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value in nested dictionaries and lists. Absent groups are created; their reader finds unknown keys.

    Raises:
        ConfigError: The key leads through a value, or past the end of a list.
    """
    parts = key.split(".")
    node: Any = values
    for i, part in enumerate(parts):
        is_last = i == len(parts) - 1
        index: Any = part
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                raise ConfigError(f"{key}: {'.'.join(parts[:i])} has {len(node)} entries; {part!r} is none of them")
            index = int(part)
        elif not isinstance(node, dict):
            raise ConfigError(f"{key}: {'.'.join(parts[:i])} is a value, not a group of keys")
        if is_last:
            node[index] = value
        elif isinstance(node, dict) and node.get(index) is None:
            node[index] = {}
        node = node[index]
