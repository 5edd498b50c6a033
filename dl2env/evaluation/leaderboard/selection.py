"""Which schedulers and scenarios a command means: names, patterns, groups, import paths, options, files."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.leaderboard.entry import file_name
from dl2env.scenarios import Scenario, get_scenario, suite_names
from dl2env.schedulers.base import Scheduler
from dl2env.schedulers.registry import get_scheduler, scheduler_names

_PATTERN = frozenset("*?[")

MAX_LABEL = 200
"""Characters of a label at most: it is part of a file's name."""

Groups = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class SchedulerChoice:
    """A scheduler to run.

    Attributes:
        name: What `get_scheduler` takes.
        options: Arguments of its constructor, plain values.
        label: What tables and files call it.
        options_digest: Digest of its plain attributes, and of the files and folders that options name.
        module: Module that defines its class.
        seed: Seed of a scheduler that draws; None for others.
        is_oracle: Its class, or it, declares `is_oracle = True`: it knows the future, or sizes that no scheduler is
            told. Shown on boards, but not ranked.
    """

    name: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    options_digest: str = ""
    module: str = "dl2env.schedulers.registry"
    seed: int | None = None
    is_oracle: bool = False

    @property
    def is_deterministic(self) -> bool:
        """Whether its result on a workload depends on the workload alone."""
        return self.seed is None

    def build(self) -> Scheduler:
        """A new scheduler object."""
        return get_scheduler(self.name, **self.options)


@dataclass(frozen=True)
class ScenarioChoice:
    """A scenario to run.

    Attributes:
        source: Name, or path of a TOML file.
        paths: The user's files that it needs, by dotted key.
    """

    source: str
    paths: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> Scenario:
        """The scenario, complete.

        Raises:
            ConfigError: It lacks a path.
        """
        if not self.paths:
            scenario = get_scenario(self.source)
            for key in scenario.missing:
                raise ConfigError(
                    f"scenario {scenario.name} needs {key}, {scenario.requires[key]}; "
                    f"give its path: scenario_paths.{scenario.name}=<file>"
                )
            return scenario
        return get_scenario(self.source, paths=dict(self.paths))


def choose_schedulers(
    given: Any,
    groups: Groups,
    exclude: Sequence[str] = (),
    translate: Callable[[str, dict[str, Any]], tuple[str, dict[str, Any]]] | None = None,
) -> list[SchedulerChoice]:
    """Schedulers from what a user wrote; each is built once, so that wrong options are found at once.

    Args:
        given: A group's name, a scheduler, or a list of schedulers. A scheduler is a name, a pattern of names
            (`optimus*`), an import path (`package.module:Class`), or a mapping with `name`, and optionally `options`
            and `label`.
        groups: Lists of schedulers by name of the group.
        exclude: Patterns of registered names that patterns do not stand for.
        translate: Makes another name and options of a name and options, for names that are neither registered nor
            import paths (folders of checkpoints).

    Raises:
        UnknownNameError: A name or pattern fits nothing.
        ConfigError: An item or option is wrong, or two labels are the same.
    """
    is_list = isinstance(exclude, Sequence) and not isinstance(exclude, str)
    if not (is_list and all(isinstance(pattern, str) for pattern in exclude)):
        raise ConfigError(f"exclude={exclude!r}: give a list of names and patterns")
    chosen: list[SchedulerChoice] = []
    for item in _expanded(given, groups, "schedulers"):
        if isinstance(item, str) and _PATTERN & set(item) and ":" not in item:
            names = [n for n in _matching(item, scheduler_names(), "scheduler") if not _fits_any(n, exclude)]
            chosen += [_scheduler(name, {}, None, translate) for name in names]
        else:
            name, options, label = _parts(item)
            chosen.append(_scheduler(name, options, label, translate))
    cure = "give one of them another label: {name: ..., label: ...}"
    _check_distinct([choice.label for choice in chosen], "schedulers", cure)
    return chosen


def choose_scenarios(given: Any, groups: Groups, paths: Mapping[str, Any] | None = None) -> list[ScenarioChoice]:
    """Scenarios from what a user wrote.

    Args:
        given: A group's name, a scenario, or a list of scenarios: names, patterns (`*` is the suite, with those of its
            templates that `paths` completes), or paths of TOML files.
        groups: Lists of scenarios by name of the group.
        paths: The user's file for each scenario that needs one, by name; a mapping by dotted key where it needs more.
            None is no file.

    Raises:
        UnknownNameError: A name or pattern fits nothing.
        ConfigError: A path is missing or not needed, or a scenario is named twice.
    """
    if not isinstance(paths, Mapping | None):
        raise ConfigError(f"scenario_paths={paths!r}: give files by scenario: scenario_paths.<scenario>=<file>")
    given_paths = {name: path for name, path in (paths or {}).items() if path is not None}
    used = set()
    chosen = []
    for item in _expanded(given, groups, "scenarios"):
        if not isinstance(item, str):
            raise ConfigError(f"scenarios: {item!r} is no name; give names or paths of TOML files")
        sources = [item]
        if _PATTERN & set(item):
            known = [n for n in suite_names(templates=True) if n in suite_names() or n in given_paths]
            sources = _matching(item, known, "scenario")
        for source in sources:
            key = source if source in given_paths else Path(source).name.removesuffix(".toml")
            used.add(key)
            chosen.append(ScenarioChoice(source, _files(source, given_paths.get(key))))
    for name in given_paths:
        if name not in used:
            raise ConfigError(f"scenario_paths.{name}: that scenario is not chosen; add it to scenarios")
    _check_distinct(
        [Path(choice.source).name.removesuffix(".toml") for choice in chosen], "scenarios", "name each once"
    )
    return chosen


def _files(source: str, value: Any) -> dict[str, str]:
    """The user's files by dotted key."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): str(path) for key, path in value.items()}
    requires = get_scenario(source).requires
    if len(requires) != 1:
        needed = ", ".join(requires) or "no file"
        raise ConfigError(f"scenario_paths.{source}={value}: the scenario needs {needed}; give a mapping of these keys")
    return {key: str(value) for key in requires}


def _expanded(given: Any, groups: Groups, what: str) -> list[Any]:
    _check_groups(groups, what)
    if isinstance(given, str) and given in groups:
        items = list(groups[given])
    elif isinstance(given, (str, Mapping)):
        items = [given]
    elif isinstance(given, Sequence):
        parts = (groups[item] if isinstance(item, str) and item in groups else [item] for item in given)
        items = [item for part in parts for item in part]
    else:
        raise ConfigError(f"{what}={given!r}: give a name, a list of names, or a group: {', '.join(groups)}")
    if not items:
        raise ConfigError(f"{what}: nothing chosen; give a name, a list of names, or a group: {', '.join(groups)}")
    return items


def _check_groups(groups: Any, what: str) -> None:
    key = f"{what.removesuffix('s')}_groups"
    if not isinstance(groups, Mapping):
        raise ConfigError(f"{key}={groups!r}: give lists by name of the group")
    for name, items in groups.items():
        if isinstance(items, str) or not isinstance(items, Sequence):
            raise ConfigError(f"{key}.{name}={items!r}: give a list")


def _matching(pattern: str, known: Sequence[str], kind: str) -> list[str]:
    names = fnmatch.filter(known, pattern)
    if not names:
        raise UnknownNameError(kind, pattern, list(known))
    return names


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _parts(item: Any) -> tuple[str, dict[str, Any], str | None]:
    if isinstance(item, str):
        return item, {}, None
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        raise ConfigError(f"schedulers: {item!r}: give a name, or a mapping with name, and options or label")
    for key in item:
        if key not in ("name", "options", "label"):
            raise ConfigError(f"schedulers: {item['name']}: {key}: unknown key; there are name, options, label")
    options, label = item.get("options") or {}, item.get("label")
    if not isinstance(options, Mapping):
        raise ConfigError(f"schedulers: {item['name']}: options={options!r}: give a mapping")
    if label is not None and not (isinstance(label, str) and label.strip()):
        raise ConfigError(f"schedulers: {item['name']}: label={label!r}: give a text")
    return item["name"], {str(key): value for key, value in options.items()}, label


def _scheduler(
    name: str,
    options: dict[str, Any],
    label: str | None,
    translate: Callable[[str, dict[str, Any]], tuple[str, dict[str, Any]]] | None,
) -> SchedulerChoice:
    is_registered = name in scheduler_names()
    if not is_registered and ":" not in name and translate is not None:
        name, options = translate(name, options)
    _check_plain(name, options)
    scheduler = get_scheduler(name, **options)
    if label is None:
        label = _with_options(name, options) if is_registered else scheduler.name
    if _lacks_seed(scheduler, options):  # a fresh seed each time would give results that nobody can repeat
        options = {**options, "seed": 0}
        scheduler = get_scheduler(name, **options)
    _check_label(name, label)
    return SchedulerChoice(
        name=name,
        label=label,
        options=options,
        options_digest=_state_digest(scheduler, options),
        module=type(scheduler).__module__,
        seed=_seed(scheduler, options),
        is_oracle=getattr(scheduler, "is_oracle", False) is True,
    )


def _check_plain(name: str, options: Mapping[str, Any]) -> None:
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"scheduler {name!r}: options={options}: {error}; give plain, finite values") from error


def _check_label(name: str, label: str) -> None:
    """Labels go into file names and tables, so they are one line of at most `MAX_LABEL` characters."""
    if not (label.strip() and label.isprintable() and len(label) <= MAX_LABEL):
        raise ConfigError(
            f"scheduler {name!r}: {label[:60]!r} is no name for tables and files: give it a label of 1 to {MAX_LABEL} "
            f"printable characters: {{name: {name}, label: ...}}"
        )


def _with_options(name: str, options: Mapping[str, Any]) -> str:
    return name + (f"({', '.join(f'{key}={value}' for key, value in options.items())})" if options else "")


def _lacks_seed(scheduler: Scheduler, options: Mapping[str, Any]) -> bool:
    """Whether the constructor takes a seed that neither the options nor it has a value for."""
    parameter = _seed_parameter(scheduler)
    if parameter is None:
        return False
    return options.get("seed", None if parameter.default is parameter.empty else parameter.default) is None


def _seed(scheduler: Scheduler, options: Mapping[str, Any]) -> int | None:
    """Seed of a scheduler that draws: one whose constructor takes a seed, unless it says that it is deterministic."""
    parameter = _seed_parameter(scheduler)
    if parameter is None:
        return None
    seed = options.get("seed", parameter.default)
    return seed if isinstance(seed, int) else 0


def _seed_parameter(scheduler: Scheduler) -> inspect.Parameter | None:
    if getattr(scheduler, "deterministic", False) is True:
        return None
    return inspect.signature(type(scheduler).__init__).parameters.get("seed")


def _state_digest(scheduler: Scheduler, options: Mapping[str, Any]) -> str:
    """First 16 digits of the SHA-256 over a scheduler's plain attributes, and over files and folders options name.

    Attributes count because a registered name stands for options that may change with the registry.
    """
    sha = hashlib.sha256()
    for key, value in sorted(getattr(scheduler, "__dict__", {}).items()):
        if value is None or isinstance(value, (bool, int, float, str)) or dataclasses.is_dataclass(value):
            sha.update(f"{key}={value!r}\0".encode())
    for key in sorted(options):
        value = options[key]
        path = Path(value) if isinstance(value, str) and value else None
        if path is None or not path.exists():
            continue
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            sha.update(json.dumps([key, file.name]).encode())
            sha.update(file.read_bytes())
    return sha.hexdigest()[:16]


def _check_distinct(names: Sequence[str], what: str, cure: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(file_name(name).lower(), name)
        if names.count(name) > 1 or other != name:
            raise ConfigError(f"{what}: {name!r} comes twice (or as {other!r}, the same file name); {cure}")
