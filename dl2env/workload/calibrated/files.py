"""Calibrations as YAML files: `data/calibrations/<name>.yaml`, or a file of the user's."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.workload.calibrated.model import Calibration

_LARGEST_BYTES = 1_000_000  # a calibration has a few kilobytes
_COMMENTS = {
    "schema": "Form of this file: docs/calibrated_workloads.md",
    "provenance": "Where the numbers come from. Decides nothing.",
    "arrivals": (
        "Jobs arrive at jobs_per_day times the rate of the hour and the day (Monday first), times each level: a Gamma\n"
        "factor of mean 1 and this variance, drawn anew after time_s on average."
    ),
    "repeats": (
        "A job that arrives at most within_s after another repeats its number of GPUs with this probability; the\n"
        "normal scores of their durations then correlate."
    ),
    "gpus": "Shares of jobs by number of GPUs (0.5 is half a GPU), and the distribution of their durations.",
    "durations": (
        "quantiles: durations at these probabilities, log-linear in the normal score between them and beyond.\n"
        "lognormals: a mixture by shares, medians and standard deviations of the logarithm.\n"
        "Cut at shortest_s and longest_s."
    ),
}


def calibration_names() -> list[str]:
    """Names of the project's calibrations, sorted."""
    return sorted(path.stem for path in data_path("calibrations").glob("*.yaml"))


def calibration_path(name_or_path: str | Path) -> Path:
    """Where a calibration lies.

    Args:
        name_or_path: Name of one in `data/calibrations`, or the path of a YAML file (with its ending).

    Raises:
        UnknownNameError: There is no calibration of that name.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.name != str(name_or_path):
        return path
    if str(name_or_path) not in calibration_names():
        raise UnknownNameError("calibration", str(name_or_path), calibration_names())
    return data_path("calibrations", f"{name_or_path}.yaml")


def load_calibration(name_or_path: str | Path) -> Calibration:
    """Reads a calibration.

    Args:
        name_or_path: As `calibration_path`.

    Raises:
        ConfigError: The file is missing or malformed; the message names file and key.
        UnknownNameError: There is no calibration of that name.
    """
    path = calibration_path(name_or_path)
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path}: larger than {_LARGEST_BYTES:,} bytes, no calibration; give its path")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a calibration") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason}); give the path of a calibration") from error
    return parse_calibration(text, str(path))


def parse_calibration(text: str, where: str = "calibration") -> Calibration:
    """A calibration from the text of its file.

    Args:
        text: YAML.
        where: Name of the file, for messages.

    Raises:
        ConfigError: It is malformed; the message names `where` and the key.
    """
    values = _parsed(text, where)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{where}: no mapping of keys to values; give a calibration (scripts/fit_workload.py)")
    values = dict(values)
    provenance = values.pop("provenance", {})
    if not isinstance(provenance, dict):
        raise ConfigError(f"{where}: provenance: expected a group of keys, got {provenance!r}")
    for key in ("schema", "version"):
        if key not in values:
            raise ConfigError(f"{where}: {key}: missing; add it")
    for entry in values.get("durations") or () if isinstance(values.get("durations"), list) else ():
        if isinstance(entry, dict) and "name" in entry:
            entry["name"] = str(entry["name"])
    for entry in values.get("gpus") or () if isinstance(values.get("gpus"), list) else ():
        if isinstance(entry, dict) and "durations" in entry:
            entry["durations"] = str(entry["durations"])
    missing = _missing(Calibration, values, "")
    if missing:
        raise ConfigError(f"{where}: {missing}: missing; add it")
    try:
        calibration: Calibration = config_from_dict(Calibration, values, "")
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix('.')}") from error
    return dataclasses.replace(calibration, provenance=provenance)


def _missing(cls: type, values: Any, where: str) -> str:
    """Dotted name of the first key that a dataclass needs and that is not there; empty if all are."""
    if not isinstance(values, Mapping):
        return ""  # the conversion says what is wrong
    hints = typing.get_type_hints(cls)
    for entry in dataclasses.fields(cls):
        name = f"{where}{entry.name}"
        if entry.name not in values:
            if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
                return name
            continue
        value = values[entry.name]
        inner = [
            hint for hint in (hints[entry.name], *typing.get_args(hints[entry.name])) if dataclasses.is_dataclass(hint)
        ]
        if not inner:
            continue
        items = value if isinstance(value, list) else [value]
        for i, item in enumerate(items):
            found = _missing(
                typing.cast(type, inner[0]), item, f"{name}[{i}]." if isinstance(value, list) else f"{name}."
            )
            if found:
                return found
    return ""


def _parsed(text: str, where: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError("calibrated workloads need PyYAML; install it with: pip install pyyaml") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Takes 1e-3 for a number, as YAML 1.2 does, and no key twice."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float)):
                raise ConfigError(f"{where}, line {key_node.start_mark.line + 1}: {key!r} is no key; mend it")
            if key in found:
                raise ConfigError(f"{where}, line {key_node.start_mark.line + 1}: {key}: comes twice; remove one")
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    number = re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"{where}{line}: not valid YAML ({problem}); mend the file") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: not valid YAML (nested too deeply); mend the file") from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where}: not valid YAML ({error}); mend the file") from error


def format_calibration(calibration: Calibration, header: str = "") -> str:
    """The text of a calibration's file, which `parse_calibration` reads back.

    Args:
        calibration: What to write.
        header: Lines for the top, written as comments.
    """
    import yaml

    values = config_to_dict(calibration)
    order = ("schema", "version", "name", "description", "provenance", "arrivals", "repeats", "gpus", "durations")
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    for key in order:
        value = values[key]
        if key == "durations":
            value = [{k: v for k, v in entry.items() if v != []} for entry in value]
        if key in _COMMENTS:
            lines += ["", *(f"# {line}" for line in _COMMENTS[key].splitlines())]
        style = None if isinstance(value, (dict, list)) else False  # flow style within groups only
        dumped = yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=style, width=118, allow_unicode=True)
        lines += dumped.rstrip("\n").splitlines()
    return "\n".join(lines).lstrip("\n") + "\n"


def write_calibration(calibration: Calibration, path: str | Path, header: str = "") -> Path:
    """Writes a calibration and returns its path.

    Raises:
        ConfigError: The path does not end in .yaml, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{path}: calibrations are YAML files; choose a name that ends in .yaml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(format_calibration(calibration, header), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
    return path
