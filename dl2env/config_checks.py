"""Checks of configured values, with one form of message."""

from __future__ import annotations

import math

from dl2env.errors import ConfigError


def require(condition: bool, message: str) -> None:
    """Raises a `ConfigError` with this message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """A text must be one of several."""
    require(value in choices, f"{key}={value!r} is unknown; choose one of: {', '.join(choices)}")


def require_positive(key: str, value: float) -> None:
    """A number must be above 0 and finite."""
    require(0.0 < value < math.inf, f"{key}={value} must be positive and finite")


def require_fraction(key: str, value: float) -> None:
    """A number must lie in [0, 1)."""
    require(0.0 <= value < 1.0, f"{key}={value} must lie in [0, 1)")
