"""Schedulers by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.schedulers.base import Scheduler

_BUILTIN: dict[str, tuple[str, dict[str, Any]]] = {
    "drf": ("dl2env.schedulers.drf:DrfScheduler", {}),
    "drf-tuned": ("dl2env.schedulers.drf:TunedDrfScheduler", {}),
    "fifo": ("dl2env.schedulers.fifo:FifoScheduler", {}),
    "srtf": ("dl2env.schedulers.srtf:SrtfScheduler", {}),
    "tetris": ("dl2env.schedulers.tetris:TetrisScheduler", {}),
    "optimus": ("dl2env.schedulers.optimus:OptimusScheduler", {}),
    "optimus-exact": ("dl2env.schedulers.optimus:OptimusScheduler", {"estimate": "exact"}),
    "optimus-fitted": ("dl2env.schedulers.optimus:OptimusScheduler", {"estimate": "fitted", "noise": 0.05}),
    "optimus-noisy": ("dl2env.schedulers.optimus:OptimusScheduler", {"estimate": "noisy", "noise": 0.1}),
    "marginal": ("dl2env.schedulers.marginal:MarginalGainScheduler", {}),
    "marginal-lookahead": ("dl2env.schedulers.marginal:MarginalGainScheduler", {"look_ahead": 4}),
    "marginal-tuned": ("dl2env.schedulers.marginal:TunedMarginalGainScheduler", {}),
    "best-config": ("dl2env.schedulers.best_config:BestConfigScheduler", {}),
    "search": ("dl2env.schedulers.search:SearchScheduler", {}),
    "sjf": ("dl2env.schedulers.sjf:SjfScheduler", {}),
    "srpt": ("dl2env.schedulers.srpt:SrptScheduler", {}),
    "easy": ("dl2env.schedulers.easy:EasyScheduler", {}),
    "las": ("dl2env.schedulers.las:LasScheduler", {}),
    "tiresias-2das": ("dl2env.schedulers.tiresias:Tiresias2dasScheduler", {}),
    "tiresias-gittins": ("dl2env.schedulers.tiresias:TiresiasGittinsScheduler", {}),
    "maxmin": ("dl2env.schedulers.maxmin:MaxMinScheduler", {}),
    "themis": ("dl2env.schedulers.themis:ThemisScheduler", {}),
    "gavel-maxmin": ("dl2env.schedulers.gavel:GavelMaxMinScheduler", {}),
    "gavel-makespan": ("dl2env.schedulers.gavel:GavelMakespanScheduler", {}),
    "pollux": ("dl2env.schedulers.pollux:PolluxScheduler", {}),
    "elasticflow": ("dl2env.schedulers.elasticflow:ElasticFlowScheduler", {}),
    "afs": ("dl2env.schedulers.afs:AfsScheduler", {}),
    "random-rules": ("dl2env.schedulers.random_rules:RandomRulesScheduler", {}),
    "random-released-rules": ("dl2env.schedulers.random_rules:RandomReleasedRulesScheduler", {}),
    "random": ("dl2env.schedulers.random:RandomScheduler", {}),
    "void": ("dl2env.schedulers.void:VoidScheduler", {}),
    "released-drf": ("dl2env.schedulers.released:ReleasedDrf", {}),
    "released-fifo": ("dl2env.schedulers.released:ReleasedFifo", {}),
    "released-srtf": ("dl2env.schedulers.released:ReleasedSrtf", {}),
    "released-tetris": ("dl2env.schedulers.released:ReleasedTetris", {}),
    "released-optimus": ("dl2env.schedulers.released:ReleasedOptimus", {}),
}


def scheduler_names() -> list[str]:
    """Names that `get_scheduler` knows."""
    return sorted(_BUILTIN)


def get_scheduler(name: str, /, **options: Any) -> Scheduler:
    """Builds a scheduler.

    Args:
        name: A registered name, or `package.module:Class` for a scheduler of the user's own.
        **options: Arguments of its constructor.

    Raises:
        UnknownNameError: No such name.
        ConfigError: The import path or an option is wrong, or the user's module or class fails.
    """
    if name in _BUILTIN:
        path, defaults = _BUILTIN[name]
        options = {**defaults, **options}
    elif ":" in name:
        path = name
    else:
        raise UnknownNameError("scheduler", name, [*_BUILTIN, "package.module:Class"])
    try:
        scheduler: Scheduler = _import(path)(**options)
    except Dl2EnvError:
        raise
    except TypeError as error:  # says which option is wrong
        raise ConfigError(f"scheduler {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"scheduler {name!r}: cannot be built ({reason}); mend its module or options") from error
    if not callable(getattr(scheduler, "act", None)) or not isinstance(getattr(scheduler, "name", None), str):
        raise ConfigError(f"scheduler {name!r}: the object needs a string `name` and a method `act`")
    return scheduler


def _import(path: str) -> Callable[..., Any]:
    module_name, _, attribute = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ConfigError(f"scheduler {path!r}: no import path; write package.module:Class")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"scheduler {path!r}: cannot be imported ({error}); write package.module:Class") from error
    return found
