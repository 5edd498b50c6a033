"""Reads scenario files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.scenarios.dotted import covers, flatten, set_value
from dl2env.scenarios.scenario import SPLITS, Scenario, Split, placeholder
from dl2env.workload.job_types import JobType, load_job_types
from dl2env.workload.jobs import Workload

_KEYS = ("name", "version", "description", "seed", "config", "split", "requires", "sources", "fixed_workload")
_JOB_KEYS = ("type", "arrival_s", "epochs", "true_epochs", "samples_per_epoch")
_REQUIRABLE = ("speed.table", "workload.trace.path")


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario file.

    Keys: `name` (the file's stem), `version`, `description`, `seed`; `[config]` as `EnvConfig`; `[sources]`, a text for
    every value set in `[config]` and `[split]` (a group may share one). Optionally:

    - `[split.train]`, `[split.validation]`, `[split.test]`: values that differ in that split, by dotted key of the
      configuration (`scenario.SPLIT_KEYS`);
    - `[requires]`: paths that the user has to give, `speed.table` or `workload.trace.path`, each with a text that says
      what the file is. `[config]` leaves them out;
    - `[[fixed_workload]]` with `jobs`, a list of tables with `type`, `arrival_s`, `epochs` and, if they differ from the
      estimate and the catalogue, `true_epochs` and `samples_per_epoch`.

    Raises:
        ConfigError: The file cannot be read, or a key or value in it is wrong; the message says which.
    """
    content = _read(path)
    requires = _requires(path, content)
    splits = _splits(path, content.get("split", {}))
    try:
        config: EnvConfig = config_from_dict(EnvConfig, content["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    leaves = [key for key in flatten(content["config"]) if key not in requires]
    leaves += [f"split.{split}.{key}" for split, own in splits.items() for key in own]
    _check_sources(path, leaves, content["sources"])
    fixed = content.get("fixed_workload", [])
    types = load_job_types(config.workload.job_types, config.workload.include) if fixed else ()
    workloads = tuple(_fixed_workload(path, i, table, types) for i, table in enumerate(fixed))
    try:
        scenario = Scenario(
            name=content["name"],
            version=content["version"],
            description=content["description"].strip(),
            config=config,
            sources=content["sources"],
            seed=content.get("seed", 0),
            fixed_workloads=workloads,
            splits=splits,
            requires=requires,
        )
        for split in splits:
            _check_active_types(scenario, split)
    except Dl2EnvError as error:
        raise ConfigError(f"{path}: {error}") from error
    return scenario


def _read(path: Path) -> dict[str, Any]:
    """The file's content, with the keys that every scenario has."""
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


def _requires(path: Path, content: dict[str, Any]) -> dict[str, str]:
    """Required paths with their texts; puts placeholders where the configuration leaves them out."""
    given = content.get("requires", {})
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: requires: expected a table of texts by dotted key")
    requires = flatten(given)
    present = flatten(content["config"])
    for key, text in requires.items():
        if key not in _REQUIRABLE:
            raise ConfigError(f"{path}: requires: {key}: not a path of a user's file; use {' or '.join(_REQUIRABLE)}")
        if not isinstance(text, str) or not text:
            raise ConfigError(f'{path}: requires: {key}: not a text; say what the file is, as in "{key}" = "a ..."')
        if key in present:
            raise ConfigError(f"{path}: requires: {key}: config sets it; remove one of the two")
        set_value(content["config"], key, placeholder(key))
    return requires


def _splits(path: Path, given: Any) -> dict[Split, dict[str, Any]]:
    if not isinstance(given, dict) or not all(isinstance(own, dict) for own in given.values()):
        raise ConfigError(f"{path}: split: expected tables split.{', split.'.join(SPLITS)}")
    for name in given:
        if name not in SPLITS:
            raise UnknownNameError(f"split of {path}", name, SPLITS)
    return {split: flatten(given[split]) for split in SPLITS if given.get(split)}


def _check_active_types(scenario: Scenario, split: Split) -> None:
    from dl2env.workload.generator import active_type_indices

    active_type_indices(scenario.split_config(split).workload, scenario.job_types())


def _check_sources(path: Path, leaves: Sequence[str], sources: Mapping[str, Any]) -> None:
    for key, text in sources.items():
        if not isinstance(text, str) or not text:
            raise ConfigError(
                f'{path}: sources: {key}: not a text; quote the dotted key, as in "cluster.servers" = "..."'
            )
        if not any(covers(key, leaf) for leaf in leaves):
            raise ConfigError(f"{path}: sources: {key}: config sets no such value; remove it or mend its name")
    for leaf in leaves:
        if not any(covers(key, leaf) for key in sources):
            raise ConfigError(f'{path}: sources: no source for {leaf}; add "{leaf}" = "where the value comes from"')


def _fixed_workload(path: Path, index: int, table: Any, types: Sequence[JobType]) -> Workload:
    where = f"{path}: fixed_workload {index + 1}"
    jobs = table.get("jobs") if isinstance(table, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise ConfigError(f"{where}: jobs: missing; give a list of tables with {', '.join(_JOB_KEYS[:3])}")
    names = tuple(job_type.name for job_type in types)
    columns: dict[str, list[float]] = {key: [] for key in _JOB_KEYS}
    for i, job in enumerate(jobs):
        for key in job:
            if key not in _JOB_KEYS:
                raise ConfigError(f"{where}: job {i + 1}: {key}: unknown key; a job has: {', '.join(_JOB_KEYS)}")
        for key in _JOB_KEYS[:3]:
            if key not in job:
                raise ConfigError(f"{where}: job {i + 1}: {key}: missing; add it")
        if job["type"] not in names:
            raise UnknownNameError(f"job type of {where}", str(job["type"]), names)
        job_type = types[names.index(job["type"])]
        row = {"true_epochs": job["epochs"], "samples_per_epoch": job_type.samples_per_epoch, **job}
        row["type"] = names.index(job["type"])
        for key in _JOB_KEYS:
            if isinstance(row[key], bool) or not isinstance(row[key], (int, float)):
                raise ConfigError(f"{where}: job {i + 1}: {key}={row[key]!r} must be a number")
            columns[key].append(row[key])
    try:
        return Workload(
            arrival_s=np.array(columns["arrival_s"], dtype=np.float64),
            type_idx=np.array(columns["type"], dtype=np.int32),
            epochs=np.array(columns["epochs"], dtype=np.float64),
            true_epochs=np.array(columns["true_epochs"], dtype=np.float64),
            samples_per_epoch=np.array(columns["samples_per_epoch"], dtype=np.float64),
            type_names=names,
            provenance={"scenario": path.stem, "fixed_workload": index},
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
