"""Measures load and contention of scenarios and writes them into `data/scenarios/measured.json` and docs/scenarios.md.

- `python scripts/describe_scenarios.py`: all scenarios of the suite that need no path, about two minutes
- `python scripts/describe_scenarios.py bursty-v1`: only this one; the figures of the others are kept
- `python scripts/describe_scenarios.py measured-tables-v1 --path measured-tables-v1:speed.table=<json>`
- `python scripts/describe_scenarios.py --no-measure`: only builds the table again

Training workloads are played under DRF, Optimus with true isolated speeds and the contention-aware rule `marginal`.
Scenarios whose splits differ have a row for the test split as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.evaluation.scenario_figures import (
    format_figures,
    measure_scenario,
    merge_figures,
    read_figures,
    replace_figures,
    write_figures,
)
from dl2env.resources import data_path
from dl2env.scenarios import Split, get_scenario, suite_names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scenarios.md"


def parse_paths(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Paths by scenario and key from texts `scenario:key=file`.

    Raises:
        ConfigError: A text has another form.
    """
    paths: dict[str, dict[str, str]] = {}
    for text in texts:
        where, equals, file = text.partition("=")
        scenario, colon, key = where.partition(":")
        if not (equals and colon and scenario and key and file):
            raise ConfigError(
                f"--path {text}: write scenario:key=file, as in measured-tables-v1:speed.table=table.json"
            )
        paths.setdefault(scenario, {})[key] = file
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="names of the suite; default: all that need no path")
    parser.add_argument("--path", action="append", default=[], metavar="SCENARIO:KEY=FILE")
    parser.add_argument("--workloads", type=int, default=32, help="workloads per scenario and scheduler")
    parser.add_argument("--no-measure", action="store_true", help="only build the page's table from the figures")
    parser.add_argument("--figures", type=Path, default=data_path("scenarios", "measured.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    order = suite_names(templates=True)
    try:
        paths = parse_paths(options.path)
        for name in (*options.scenarios, *paths):
            if name not in order:
                raise UnknownNameError("scenario of the suite", name, order)
        rows = read_figures(options.figures)
        names = [] if options.no_measure else options.scenarios or suite_names() + list(paths)
        for name in names:
            scenario = get_scenario(name, paths.get(name))
            splits: list[Split] = ["train", "test"] if scenario.splits else ["train"]
            new = [measure_scenario(scenario, options.workloads, split) for split in splits]
            print("\n".join(format_figures(new).splitlines()[2:]), flush=True)
            rows = merge_figures(rows, new, order)
            write_figures(options.figures, rows)
        page = replace_figures(options.page.read_text(encoding="utf-8"), format_figures(rows))
        options.page.write_text(page, encoding="utf-8")
    except (Dl2EnvError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
