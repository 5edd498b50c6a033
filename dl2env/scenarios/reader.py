"""Scenarios from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.scenarios.content import read_content
from dl2env.scenarios.dotted import set_value
from dl2env.scenarios.scenario import Scenario, Split, placeholder
from dl2env.workload.job_types import JobType, load_job_types
from dl2env.workload.jobs import Workload

_JOB_KEYS = ("type", "arrival_s", "epochs", "true_epochs", "samples_per_epoch")


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario file.

    Keys: `name` (the file's stem), `version`, `description`, `seed`; `[config]` as `EnvConfig`; `[sources]`, a text for
    every value set in `[config]` and `[split]` (a group may share one). Optionally:

    - `extends`: name of a scenario of the project, or path of a file (relative to this one), whose values hold where
      this file sets no others;
    - `[split.train]`, `[split.validation]`, `[split.test]`: values that differ in that split, by dotted key of the
      configuration (`scenario.SPLIT_KEYS`);
    - `[requires]`: paths that the user has to give, `speed.table` or `workload.trace.path`, each with a text that says
      what the file is. `[config]` leaves them out;
    - `[[fixed_workload]]` with `jobs`, a list of tables with `type`, `arrival_s`, `epochs` and, if they differ from the
      estimate and the catalogue, `true_epochs` and `samples_per_epoch`.

    Raises:
        ConfigError: The file cannot be read, or a key or value in it is wrong; the message says which.
    """
    content = read_content(path)
    requires: dict[str, str] = content["requires"]
    for key in requires:
        set_value(content["config"], key, placeholder(key))
    try:
        config: EnvConfig = config_from_dict(EnvConfig, content["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
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
            seed=content["seed"],
            fixed_workloads=workloads,
            splits=content["split"],
            requires=requires,
        )
        for split in scenario.splits:
            _check_active_types(scenario, split)
    except Dl2EnvError as error:
        raise ConfigError(f"{path}: {error}") from error
    return scenario


def _check_active_types(scenario: Scenario, split: Split) -> None:
    from dl2env.workload.generator import active_type_indices

    active_type_indices(scenario.split_config(split).workload, scenario.job_types())


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
