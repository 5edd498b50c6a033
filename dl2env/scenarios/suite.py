"""The project's scenarios by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.scenarios.reader import load_scenario
from dl2env.scenarios.scenario import Scenario

_SUITE = (
    "dl2-small-v1",
    "dl2-large-v1",
    "testbed-v1",
    "saturated-24-v1",
    "saturated-12-v1",
    "bursty-v1",
    "diurnal-v1",
    "heterogeneous-v1",
    "network-10g-v1",
    "network-100g-v1",
    "estimation-error-v1",
    "unseen-types-v1",
    "many-jobs-v1",
    "pai-models-v1",
)
_TEMPLATES = ("measured-tables-v1", "philly-replay-v1", "pollux-replay-v1")


def suite_names(templates: bool = False) -> list[str]:
    """Names of the benchmark suite in the order in which tables show them; `toy-v1` is no part of it.

    Args:
        templates: Also those that need the path of a file of the user's (`Scenario.requires`), at the end.
    """
    return [*_SUITE, *(_TEMPLATES if templates else ())]


def list_scenarios() -> list[str]:
    """Names of the project's scenarios, sorted."""
    return sorted(path.stem for path in data_path("scenarios").glob("*.toml"))


def get_scenario(name: str | Path, paths: Mapping[str, str | Path] | None = None) -> Scenario:
    """A scenario by name, or by the path of a TOML file of the same form.

    Args:
        name: Name, or path of a TOML file.
        paths: Files of the user's that the scenario needs, by dotted key (`Scenario.requires`), such as
            `{"speed.table": "table.json"}`. Without them such a scenario is a template: it can be derived from, but
            has no workloads and no hash.

    Raises:
        UnknownNameError: There is no scenario of that name.
        ConfigError: The file cannot be read or is wrong, or the paths are not those that the scenario needs.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        scenario = load_scenario(Path(name))
    elif name in list_scenarios():
        scenario = load_scenario(data_path("scenarios", f"{name}.toml"))
    else:
        raise UnknownNameError("scenario", name, list_scenarios())
    if paths is None:
        return scenario
    for key in paths:
        if key not in scenario.requires:
            needed = ", ".join(scenario.requires) or "no path"
            raise ConfigError(f"paths: {key}: scenario {scenario.name} needs {needed}; use derive() for other changes")
    complete = scenario.derive({key: str(path) for key, path in paths.items()})
    complete.check_complete()
    return complete
