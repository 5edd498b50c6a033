"""Tables of the HTML pages in the terminal."""

from __future__ import annotations

import rich.table
from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from dl2env.evaluation.html_page import Table

PIPE_WIDTH = 180
LONGEST_LINE = 40  # of texts, beyond which they are wrapped
_STYLES = {"good": "green", "bad": "red", "muted": "dim"}


def wide_console() -> Console:
    """A console on standard output; wide enough for the tables where that is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def print_table(console: Console, table: Table) -> None:
    """Prints a table with its caption as the title; where there is room, heads are wrapped rather than cells."""
    shown = _rich_table(table, LONGEST_LINE)
    if Measurement.get(console, console.options.update(max_width=10_000), shown).minimum > console.width:
        shown = _rich_table(table, 0)
    console.print(shown)


def _rich_table(table: Table, longest_line: int) -> rich.table.Table:
    shown = rich.table.Table(title=table.caption, title_justify="left", header_style="bold")
    for i, column in enumerate(table.columns):
        longest = max((len(row.whole_cells[i].text) for row in table.rows), default=0)
        shown.add_column(
            Text(column.label),
            justify="right" if column.is_numeric else "left",
            style="bold" if i == 0 else "",
            min_width=min(longest, longest_line),
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style=_STYLES.get(cell.css, "")) for cell in row.whole_cells))
    return shown
