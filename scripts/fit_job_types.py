"""Fits the constants of the DL2 job types to measured (PS, worker) speeds and writes `data/job_types/dl2_fit.toml`.

The measurements are not part of this repository: they are the speed tables inside recorded outcomes of the released DL2
simulator (or any table of the form that `dl2env.speed.measured` describes).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.resources import data_path
from dl2env.speed.calibration import JobTypeFit, fit_job_type
from dl2env.speed.hardware import load_hardware
from dl2env.speed.measured import MEASURED, TypeTable, read_speed_table
from dl2env.workload.job_types import load_job_types

DIR_VARIABLE = "DL2ENV_GOLDEN_DIR"
_DEFAULT_DIR = Path(__file__).resolve().parents[2] / "shared" / "golden"


def read_tables(path: Path) -> dict[str, TypeTable]:
    """The table with most measured cells of a file, or of the JSON files of a folder.

    Raises:
        ConfigError: There is no readable table.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path}: no JSON file in it; give a speed table or name its folder in {DIR_VARIABLE}")
    candidates = [read_speed_table(file) for file in files]
    return max(candidates, key=lambda tables: sum(int((t.origin == MEASURED).sum()) for t in tables.values()))


def format_toml(fits: Sequence[JobTypeFit], hardware: str, gpu: str) -> str:
    """Content of the fit file: a header that says how it was made and how well it fits, one table per type."""
    lines = [
        "# Effective rates and costs of the DL2 job types, fitted to published (PS, worker) speed measurements.",
        f"# Written by: python scripts/fit_job_types.py PATH --hardware {hardware} --gpu {gpu}",
        "# What each value means: dl2env/speed/calibration.py. Do not edit by hand.",
        "#",
        "# Mean and largest absolute relative error of the step time:",
        *(f"#   {_error_line(fit)}" for fit in fits),
        "",
        f'source = "fitted to published speed measurements, on {hardware} with {gpu} (scripts/fit_job_types.py)"',
    ]
    for fit in fits:
        lines += ["", f"[{fit.job_type.name}]", *(f"{name} = {value:.4g}" for name, value in fit.values.items())]
    return "\n".join(lines) + "\n"


def _error_line(fit: JobTypeFit) -> str:
    return (
        f"{fit.job_type.name:13s} {100 * fit.mean_error:5.1f} % {100 * fit.max_error:5.1f} %, "
        f"{fit.num_cells} cells, {fit.num_failed} failed runs left out"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get(DIR_VARIABLE) or _DEFAULT_DIR)
    parser.add_argument(
        "path", nargs="?", type=Path, default=default, help=f"table, or a folder of them (default: ${DIR_VARIABLE})"
    )
    parser.add_argument("--catalogue", default="dl2", help="job types to fit")
    parser.add_argument("--hardware", default="dl2-testbed", help="hardware on which the speeds were measured")
    parser.add_argument("--gpu", default="gtx-1080ti", help="GPU on which they were measured")
    parser.add_argument("--output", type=Path, help="default: data/job_types/CATALOGUE_fit.toml")
    options = parser.parse_args(arguments)
    try:
        tables = read_tables(options.path)
        hardware = load_hardware(options.hardware)
        fits = []
        for job_type in load_job_types(options.catalogue):
            if job_type.name not in tables:
                raise ConfigError(f"{options.path}: no speeds of {job_type.name!r}; it has: {', '.join(tables)}")
            fit = fit_job_type(job_type, tables[job_type.name], hardware, options.gpu)
            print(_error_line(fit))
            fits.append(fit)
        output = options.output or data_path("job_types", f"{options.catalogue}_fit.toml")
        output.write_text(format_toml(fits, options.hardware, options.gpu), encoding="utf-8")
    except OSError as error:
        print(
            f"error: {error.filename}: cannot be written ({error.strerror}); choose another --output", file=sys.stderr
        )
        return 2
    except Dl2EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"mean error {100 * sum(fit.mean_error for fit in fits) / len(fits):.1f} %; wrote {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
