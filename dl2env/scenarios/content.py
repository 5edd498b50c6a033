"""The plain content of a scenario file, what it extends included."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dl2env.config import CalibratedConfig, EnvConfig, TraceConfig, WorkloadConfig
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.scenarios.dotted import covers, flatten, set_value
from dl2env.scenarios.scenario import SPLITS

_KEYS = (
    "name",
    "version",
    "extends",
    "description",
    "seed",
    "config",
    "split",
    "requires",
    "sources",
    "fixed_workload",
)
_REQUIRABLE = ("speed.table", "workload.trace.path")


def read_content(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Reads a file and merges it over the one that it extends.

    Args:
        path: The file.
        extended_by: Files that led here.

    Returns:
        All keys but `extends`. `seed` is always there, `split` maps splits to values by dotted key, `requires` dotted
        keys to texts; `config` is nested, as in the file, without what is required.

    Raises:
        ConfigError: The file cannot be read, or a key in it is wrong or lacks its source.
    """
    own = _read(path)
    _check_keys(path, own["config"])
    if path.resolve() in extended_by:
        raise ConfigError(f"{path}: extends: the files extend each other in a circle; remove one `extends`")
    own["requires"] = _requires(path, own.get("requires", {}), own["config"])
    own["split"] = _splits(path, own.get("split", {}))
    _check_sources(path, own)
    parent = own.pop("extends", None)
    if parent is None:
        return {"seed": 0, **own}
    base = read_content(_path_of(path, parent), (*extended_by, path.resolve()))
    return _merged(base, own)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; give a scenario's name or the path of its TOML file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend the file") from error
    for key in content:
        if key not in _KEYS:
            raise ConfigError(f"{path}: {key}: unknown key; a scenario has: {', '.join(_KEYS)}")
    for key, kind in (("name", str), ("version", int), ("description", str), ("config", dict), ("sources", dict)):
        if not isinstance(content.get(key), kind):
            raise ConfigError(f"{path}: {key}: missing or not a {kind.__name__}; add it")
    if content["name"] != path.stem or not re.search(rf"-v{content['version']}$", content["name"]):
        raise ConfigError(
            f"{path}: name={content['name']!r} must be the file's name without .toml and end in -v{content['version']}"
        )
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"{path}: seed={seed!r} must be a whole number, not negative")
    return content


def _check_keys(path: Path, config: Mapping[str, Any]) -> None:
    """Finds misspelt keys before they are asked for their sources."""
    replayed = EnvConfig(workload=WorkloadConfig(trace=TraceConfig("")))
    drawn = EnvConfig(workload=WorkloadConfig(calibrated=CalibratedConfig("*")))
    known = {**flatten(config_to_dict(replayed)), **flatten(config_to_dict(drawn))}
    for key, value in flatten(config).items():
        if key not in known:
            alone: dict[str, Any] = {}
            set_value(alone, key, value)
            try:
                config_from_dict(EnvConfig, alone)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from error


def _requires(path: Path, given: Any, config: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: requires: expected a table of texts by dotted key")
    requires = flatten(given)
    for key, text in requires.items():
        if key not in _REQUIRABLE:
            raise ConfigError(f"{path}: requires: {key}: not a path of a user's file; use {' or '.join(_REQUIRABLE)}")
        if not isinstance(text, str) or not text:
            raise ConfigError(f'{path}: requires: {key}: not a text; say what the file is, as in "{key}" = "a ..."')
        if key in flatten(config):
            raise ConfigError(f"{path}: requires: {key}: config sets it; remove one of the two")
    return requires


def _splits(path: Path, given: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(given, dict) or not all(isinstance(own, dict) for own in given.values()):
        raise ConfigError(f"{path}: split: expected tables split.{', split.'.join(SPLITS)}")
    for name in given:
        if name not in SPLITS:
            raise UnknownNameError(f"split of {path}", name, SPLITS)
    return {split: flatten(given[split]) for split in SPLITS if given.get(split)}


def _leaves(content: Mapping[str, Any]) -> list[str]:
    """Dotted keys of all values that need a source."""
    of_splits = (f"split.{split}.{key}" for split, own in content["split"].items() for key in own)
    return [*flatten(content["config"]), *of_splits]


def _check_sources(path: Path, content: Mapping[str, Any]) -> None:
    leaves, sources = _leaves(content), content["sources"]
    for key, text in sources.items():
        if not isinstance(text, str) or not text:
            raise ConfigError(
                f'{path}: sources: {key}: not a text; quote the dotted key, as in "cluster.servers" = "..."'
            )
        if not _covers_any(key, leaves):
            raise ConfigError(f"{path}: sources: {key}: config sets no such value; remove it or mend its name")
    for leaf in leaves:
        if not any(covers(key, leaf) for key in sources):
            raise ConfigError(f'{path}: sources: no source for {leaf}; add "{leaf}" = "where the value comes from"')


def _covers_any(key: str, leaves: Iterable[str]) -> bool:
    return any(covers(key, leaf) for leaf in leaves)


def _path_of(path: Path, parent: Any) -> Path:
    """The file that `extends` names."""
    if not isinstance(parent, str) or not parent:
        raise ConfigError(f"{path}: extends={parent!r}: give the name of a scenario or the path of its file")
    if parent.endswith(".toml"):
        return path.parent / parent
    known = sorted(file.stem for file in data_path("scenarios").glob("*.toml"))
    if parent not in known:
        raise UnknownNameError(f"scenario that {path} extends", parent, known)
    return data_path("scenarios", f"{parent}.toml")


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(base["config"])
    changed = flatten(own["config"])
    for key, value in changed.items():
        set_value(config, key, value)
    splits = {split: {**base["split"].get(split, {}), **own["split"].get(split, {})} for split in SPLITS}
    inherited = [leaf for leaf in _leaves(base) if leaf not in _leaves(own)]
    sources = {key: text for key, text in base["sources"].items() if _covers_any(key, inherited)}
    return {
        **base,
        **own,
        "config": config,
        "split": {split: values for split, values in splits.items() if values},
        "requires": {k: text for k, text in base["requires"].items() if k not in changed} | own["requires"],
        "sources": sources | own["sources"],
    }
