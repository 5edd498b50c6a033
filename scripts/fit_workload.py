"""Fits the parameters of generated workloads to a recorded one, and says how good the fit is.

- `python scripts/fit_workload.py path=jobs.csv out=mine.yaml`: format found by content
- `python scripts/fit_workload.py path=jobs.csv shaping.from_s=1814400 held_out=0.3`: without its first three weeks
- then `python scripts/train.py workload=calibrated workload.calibrated.file=mine.yaml`

Writes tables to the terminal and the calibration to `out`; quantile plots, `report.html` and `summary.json` go into the
run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict
from dl2env.evaluation.workload_fit.settings import FitSettings
from scripts import command_line


def read_settings(values: Mapping[str, Any]) -> FitSettings:
    """Settings from what `conf/fit_workload.yaml` composes to.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    settings: FitSettings = config_from_dict(FitSettings, dict(values), "fit_workload")
    return settings


def fit_workload(values: dict[str, Any], path: Path) -> None:
    """Prints the findings and writes calibration and report."""
    settings = read_settings(values)
    from dl2env.evaluation.workload_fit import findings, report
    from dl2env.evaluation.workload_fit.tables import all_tables
    from scripts.rich_tables import print_table, wide_console

    found = findings.fit_workload(settings)
    console = wide_console()
    for table in all_tables(found):
        print_table(console, table)
    console.print(report.verdict(found), highlight=False, markup=False)
    for written in report.write_report(found, path, sys.argv).values():
        print(written)


if __name__ == "__main__":
    command_line.run(fit_workload, "fit_workload")
