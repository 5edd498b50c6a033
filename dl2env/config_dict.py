"""Configuration dataclasses from plain dictionaries and back, as YAML, TOML and JSON hold them."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any

from dl2env.errors import ConfigError


def config_from_dict(cls: type, values: dict[str, Any], where: str = "config") -> Any:
    """Builds a configuration dataclass, nested ones included, from plain dictionaries.

    Args:
        cls: Dataclass to build.
        values: Field values; nested dataclasses as dictionaries, tuples as lists.
        where: Dotted prefix used in error messages.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type or is out of range.
    """
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{where}.{key}: unknown key; {cls.__name__} has: {', '.join(sorted(known))}")
        built[key] = _convert(hints[key], value, f"{where}.{key}")
    try:
        return cls(**built)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        return _convert(next(a for a in args if a is not type(None)), value, where)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type, hint)):
            return value
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a group of keys, got {value!r}")
        return config_from_dict(typing.cast(type, hint), value, where)
    if origin is tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise ConfigError(f"{where}: expected a list, got {value!r}")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is typing.Literal:
        if not isinstance(value, str):
            raise ConfigError(f"{where}: expected one of {', '.join(map(str, args))}, got {value!r}")
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"{where}: {value} is no value; give a finite number")
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where}: expected {hint.__name__}, got {value!r}")


def config_to_dict(config: Any) -> dict[str, Any]:
    """Plain nested dictionaries of a configuration, the inverse of `config_from_dict`."""
    plain = dataclasses.asdict(config)
    return {key: _plain(value) for key, value in plain.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
