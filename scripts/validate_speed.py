"""Compares the speed models with measured step times and says what each is worth.

- `python scripts/validate_speed.py`: both sets of measurements, where the configuration says they are
- `python scripts/validate_speed.py adaptdl.path=FOLDER speed_tables=null`: one of them, elsewhere
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.fitting import Loss
from scripts import command_line


@dataclass(frozen=True)
class Source:
    """Measurements and what the unfitted model assumes of them.

    Attributes:
        path: Folder or file of the measurements.
        job_types: Catalogue with a type of each application's name.
        hardware: Hardware on which they were measured.
        gpu: GPU kind there.
    """

    path: str
    job_types: str
    hardware: str
    gpu: str


@dataclass(frozen=True)
class ValidationSettings:
    """What is compared, and how.

    Attributes:
        adaptdl: Step times per application and placement (`readers.read_applications`); None leaves them out.
        speed_tables: Speeds by workers and parameter servers (`readers.read_ps_tables`); None leaves them out.
        folds: Folds over the configurations of an application.
        loss: What the fits minimise, see `fitting.fit_steps`.
        few_sizes: Numbers of random measurements to try fits with.
        few_repeats: Draws per number.
        seed: Seed of folds and draws.
    """

    adaptdl: Source | None
    speed_tables: Source | None
    folds: int
    loss: Loss
    few_sizes: tuple[int, ...]
    few_repeats: int
    seed: int

    def __post_init__(self) -> None:
        if self.adaptdl is None and self.speed_tables is None:
            raise ConfigError("adaptdl, speed_tables: both are null; give at least one set of measurements")
        if self.loss not in ("absolute", "squared"):
            raise ConfigError(f"loss={self.loss}: choose absolute or squared")
        if self.folds < 2:
            raise ConfigError(f"folds={self.folds} must be at least 2")
        if any(size < 1 for size in self.few_sizes):
            raise ConfigError(f"few_sizes={list(self.few_sizes)}: every entry must be at least 1")
        if self.few_repeats < 1 or self.seed < 0:
            raise ConfigError("few_repeats must be at least 1 and seed not negative")


def read_settings(values: Mapping[str, Any]) -> ValidationSettings:
    """Settings from what `conf/validate_speed.yaml` composes to.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    settings: ValidationSettings = config_from_dict(ValidationSettings, dict(values), "validate_speed")
    return settings


def validate_speed(values: dict[str, Any], path: Path) -> None:
    """Reads, fits, prints the tables, and writes plots and `summary.json`."""
    settings = read_settings(values)
    from agents.run_folder import write_json
    from dl2env.evaluation.report import package_versions
    from dl2env.evaluation.speed_validation.plots import plot_predictions
    from dl2env.evaluation.speed_validation.readers import read_applications, read_ps_tables
    from dl2env.evaluation.speed_validation.report import SCHEMA, SCHEMA_VERSION, print_report, summary
    from dl2env.evaluation.speed_validation.validation import validate
    from dl2env.speed.hardware import load_hardware
    from dl2env.workload.job_types import load_job_types
    from scripts.rich_tables import wide_console

    read: list[Any] = []  # all of it, before anything is fitted
    for key, source in (("adaptdl", settings.adaptdl), ("speed_tables", settings.speed_tables)):
        if source is None:
            continue
        if not Path(source.path).exists():
            raise ConfigError(
                f"{key}.path={source.path}: no such file or folder; give that of your measurements with "
                f"{key}.path=PATH, or leave them out with {key}=null"
            )
        job_types = load_job_types(source.job_types)
        if key == "adaptdl":
            label, steps = "AdaptDL step times", read_applications(source.path)
        else:
            label, steps = "(worker, PS) speed tables", read_ps_tables(source.path, job_types)
        read.append((key, label, steps, job_types, load_hardware(source.hardware), source.gpu))
    options: dict[str, Any] = {
        "num_folds": settings.folds,
        "loss": settings.loss,
        "few_sizes": settings.few_sizes,
        "few_repeats": settings.few_repeats,
        "seed": settings.seed,
        "progress": lambda name: print(f"fitting {name}", file=sys.stderr, flush=True),
    }
    results = [validate(*what, **options) for what in read]
    print_report(results, wide_console())
    plots = [str(plot_predictions(result, path / f"{result.name}.png")) for result in results]
    write_json(
        path / "summary.json",
        {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "settings": asdict(settings),
            "versions": package_versions(),
            "command": sys.argv,
            "results": summary(results),
        },
    )
    for name in (*plots, path / "summary.json"):
        print(name)


if __name__ == "__main__":
    command_line.run(validate_speed, "validate_speed")
