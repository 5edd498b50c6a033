"""Where a population of training jobs spends its time, what another architecture or better hardware would buy.

- `python scripts/characterize.py`: the synthetic population beside the published Alibaba-PAI figures, half a minute
- `python scripts/characterize.py population=jobs.csv`: one's own jobs
- `python scripts/characterize.py overlap=ideal pcie_group=root efficiency.ethernet=0.5`: other assumptions

Writes tables to the terminal, and plots, `report.html` and `summary.json` into the run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_from_dict
from dl2env.evaluation.characterization.settings import CharacterizationSettings
from scripts import command_line


def read_settings(values: Mapping[str, Any]) -> CharacterizationSettings:
    """Settings from what `conf/characterize.yaml` composes to.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    settings: CharacterizationSettings = config_from_dict(CharacterizationSettings, dict(values), "characterize")
    return settings


def characterize(values: dict[str, Any], path: Path) -> None:
    """Prints the findings and writes the report."""
    settings = read_settings(values)
    from dl2env.evaluation.characterization import findings, report
    from dl2env.evaluation.characterization.tables import all_tables
    from scripts.rich_tables import print_table, wide_console

    found = findings.characterize(settings)
    console = wide_console()
    for line in report.assumptions(found):
        console.print(f"- {line}", highlight=False, markup=False)
    for table in all_tables(found):
        print_table(console, table)
    lines = (
        report.WORDING_NOTE,
        f"Breakdown of {found.population.size:,} jobs in {1e3 * found.breakdown_s:.1f} ms.",
        report.verdict(found),
        *report.headlines(found),
    )
    for line in lines:
        console.print(line, highlight=False, markup=False)
    for written in report.write_report(found, path, sys.argv).values():
        print(written)


if __name__ == "__main__":
    command_line.run(characterize, "characterize")
