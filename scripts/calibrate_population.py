"""Calibrates the synthetic population of training jobs and writes `data/populations/pai_synthetic.toml`.

Prints each published figure of the Alibaba-PAI characterization beside the population's. Figures without a weight are
shown, not aimed at. A population that cannot meet all of them at once is reported so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.resources import data_path
from dl2env.workload.population_calibration import calibrate_population, format_table, toml_header
from dl2env.workload.population_config import format_population_config, load_population_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="pai_assumed", help="population to start from, a name or a TOML file")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of each population that is tried")
    parser.add_argument("--check-jobs", type=int, default=1_000_000, help="fresh jobs that the table is about")
    parser.add_argument("--iterations", type=int, default=40, help="iterations at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="default: data/populations/pai_synthetic.toml; '-': only print")
    options = parser.parse_args(arguments)
    output = data_path("populations", "pai_synthetic.toml") if options.output is None else options.output
    command = (
        f"python scripts/calibrate_population.py --start {options.start} --jobs {options.jobs} "
        f"--check-jobs {options.check_jobs} --iterations {options.iterations} --seed {options.seed}"
    )
    try:
        for name in ("jobs", "check_jobs", "iterations"):
            if getattr(options, name) < 1:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
        if options.seed < 0:
            raise ConfigError("--seed must be at least 0")
        result = calibrate_population(
            load_population_config(options.start),
            num_jobs=options.jobs,
            num_check_jobs=options.check_jobs,
            seed=options.seed,
            max_iterations=options.iterations,
            name="pai_synthetic" if str(output) == "-" else output.stem,
        )
        print(f"synthetic population, {result.num_check_jobs} fresh jobs; not PAI data")
        print(format_table(result.comparisons()))
        print(
            f"objective {result.objective_before:.3f} before, {result.objective_after:.3f} after "
            f"{result.num_evaluations} populations of {options.jobs} jobs"
        )
        if str(output) != "-":
            try:
                output.write_text(
                    format_population_config(result.config, toml_header(result, command)), encoding="utf-8"
                )
            except OSError as error:
                raise ConfigError(f"{output}: cannot be written ({error.strerror}); choose another place") from error
            print(f"wrote {output}")
    except Dl2EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
