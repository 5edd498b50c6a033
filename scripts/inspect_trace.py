"""What a recorded workload holds, what is wrong with it, and the load that it offers to a cluster.

- `python scripts/inspect_trace.py path=jobs.csv`: format found by content
- `python scripts/inspect_trace.py path=jobs.csv cluster=dl2-small-v1 shaping.target_load=0.8`: shaped, on a cluster
- `python scripts/inspect_trace.py path=jobs.csv cluster=nodes.csv strict=true`: exit status 2 if anything looks wrong
- `python scripts/inspect_trace.py path=jobs.csv shaping.until_s=604800 write=week.parquet`: keeps the shaped jobs

Writes tables to the terminal, and plots, `report.html` and `summary.json` into the run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict
from dl2env.evaluation.trace_inspection.settings import InspectionSettings
from scripts import command_line


def read_settings(values: Mapping[str, Any]) -> InspectionSettings:
    """Settings from what `conf/inspect_trace.yaml` composes to.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    settings: InspectionSettings = config_from_dict(InspectionSettings, dict(values), "inspect_trace")
    return settings


def inspect_trace(values: dict[str, Any], path: Path) -> None:
    """Prints the findings and writes the report.

    Raises:
        TraceError: There are warnings and the inspection is strict; the report is written before.
    """
    settings = read_settings(values)
    from dl2env.evaluation.trace_inspection import findings, report
    from dl2env.evaluation.trace_inspection.tables import all_tables
    from scripts.rich_tables import print_table, wide_console

    found = findings.inspect(settings)
    console = wide_console()
    for table in all_tables(found):
        print_table(console, table)
    console.print(report.verdict(found), highlight=False, markup=False)
    for written in report.write_report(found, path, sys.argv).values():
        print(written)
    if settings.strict:
        found.check_strict()


if __name__ == "__main__":
    command_line.run(inspect_trace, "inspect_trace")
