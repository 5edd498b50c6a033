"""Exceptions raised for input a user can correct."""


class Dl2EnvError(ValueError):
    """Base class of every error caused by user input.

    The message is one line that names the file, row, column or key at fault and says how to cure it. Scripts print
    it without a traceback and exit with status 2.
    """


class ConfigError(Dl2EnvError):
    """A configuration value is unknown, missing or out of range."""


class TraceError(Dl2EnvError):
    """A workload trace cannot be read; the message names the file and, where there is one, the row."""


class UnknownNameError(Dl2EnvError):
    """A registry (schedulers, scenarios, job types, ...) has no entry of that name."""

    def __init__(self, kind: str, name: str, known: "list[str] | tuple[str, ...]") -> None:
        super().__init__(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(known))}")
        self.kind = kind
        self.name = name


class PlacementError(Dl2EnvError):
    """A job asks for a task that no server of the cluster can hold."""
