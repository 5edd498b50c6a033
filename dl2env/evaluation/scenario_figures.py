"""Measured figures of scenarios: load and contention, as a JSON file and as a table of the documentation."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2env.errors import ConfigError
from dl2env.evaluation.contention import measure_contention, offered_load
from dl2env.scenarios import Scenario, Split
from dl2env.schedulers import get_scheduler

SCHEMA = "dl2env-scenario-figures/1"
SCHEDULERS = {"drf": "DRF", "optimus-exact": "Optimus", "marginal": "marginal"}
"""Schedulers that scenarios are measured under, with their names in the table: one that ignores speeds, one that knows
true isolated speeds, and the rule that also charges a task for the slowdown of its neighbours."""

BEGIN = "<!-- figures: written by scripts/describe_scenarios.py -->"
END = "<!-- end of figures -->"
_IN_TABLE = ("drf", "optimus-exact")


def measure_scenario(scenario: Scenario, num_workloads: int, split: Split = "train") -> dict[str, Any]:
    """Load and contention of a scenario, as plain values.

    Args:
        scenario: The world, with its paths.
        num_workloads: Workloads to play per scheduler.
        split: Which ones. Training workloads describe a world without a look at its tests.

    Returns:
        `scenario`, `hash`, `split`, `num_workloads`, `num_servers`, `num_gpus`, `num_jobs` per episode, `load` by
        resource (`offered_load`) and `schedulers`: by name, the fields of `Contention`. Numbers have four digits;
        None is not a number.
    """
    config = scenario.split_config(split)
    workloads = scenario.workloads(split, num_workloads)
    found = {name: measure_contention(get_scheduler(name), config, workloads) for name in SCHEDULERS}
    return {
        "scenario": scenario.name,
        "hash": scenario.hash(),
        "split": split,
        "num_workloads": len(workloads),
        "num_servers": config.cluster.num_servers,
        "num_gpus": sum(group.count * group.gpus for group in config.cluster.servers),
        "num_jobs": config.workload.num_jobs,
        "load": {key: _rounded(value) for key, value in offered_load(config, workloads).items()},
        "schedulers": {
            name: {key: _rounded(value) for key, value in dataclasses.asdict(contention).items()}
            for name, contention in found.items()
        },
    }


def _rounded(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def read_figures(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of figures; none if there is no file yet.

    Raises:
        ConfigError: It is not such a file.
    """
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error}); remove the file") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("rows"), list):
        raise ConfigError(f'{path}: no figures of scenarios ("schema": "{SCHEMA}"); remove the file')
    return list(content["rows"])


def write_figures(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows of `measure_scenario`."""
    path.write_text(json.dumps({"schema": SCHEMA, "rows": list(rows)}, indent=1) + "\n", encoding="utf-8")


def merge_figures(
    old: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]], order: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows by scenario and split, new ones instead of old ones, in the order of the names; others are dropped."""
    rows = {(row["scenario"], row["split"]): row for row in (*old, *new)}
    return [row for name in order for (scenario, _), row in sorted(rows.items(), reverse=True) if scenario == name]


def format_figures(rows: Iterable[Mapping[str, Any]]) -> str:
    """The Markdown table of rows; pairs are DRF / Optimus."""
    header = (
        "| scenario | GPUs | jobs | load | full intervals, % | tasks per NIC | slowdown, % | variation, % "
        "| jobs in system (peak) | mean JCT, intervals: DRF / Optimus / marginal |"
    )
    lines = [header, "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        found = row["schedulers"]
        name = row["scenario"] if row["split"] == "train" else f"{row['scenario']}, {row['split']} split"
        load = max((value for value in row["load"].values() if value is not None), default=None)
        cells = (
            name,
            str(row["num_gpus"]),
            str(row["num_jobs"]),
            _cell(load, 2),
            _pair(found, "share_full", 0, 100.0),
            _pair(found, "tasks_per_nic", 1),
            _pair(found, "mean_slowdown", 0, 100.0),
            _pair(found, "speed_variation", 0, 100.0),
            " / ".join(f"{_cell(found[s]['mean_jobs'], 0)} ({_cell(found[s]['peak_jobs'], 0)})" for s in _IN_TABLE),
            " / ".join(_cell(found[s]["mean_jct_intervals"], 2) for s in SCHEDULERS),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _pair(found: Mapping[str, Mapping[str, Any]], key: str, digits: int, scale: float = 1.0) -> str:
    values = [found[name][key] for name in _IN_TABLE]
    return " / ".join(_cell(None if value is None else scale * value, digits) for value in values)


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before a zero


def replace_figures(page: str, table: str) -> str:
    """A page of documentation with the table between its marks.

    Raises:
        ConfigError: The page lacks the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"the page has no place for the table; add the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"
