"""Sphinx extension: the Markdown that docstrings use, as reStructuredText.

Docstrings are read far more often in the source than as HTML, and Gymnasium's convention for them is Markdown. Three
things differ enough to matter: `code` in single backticks, `##` headings and pipe tables.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# A span may run over a line end; a second backtick beside it means that it is reStructuredText already.
_CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?![`_])(\w?)")
_HEADING = re.compile(r"#{2,4} +(.+)")
_TABLE_RULE = re.compile(r"\|( *:?-+:? *\|)+")


def convert(lines: list[str]) -> list[str]:
    """Lines of a docstring with Markdown code, headings and tables rewritten as reStructuredText."""
    text = "\n".join(lines)
    text = _CODE.sub(lambda m: f"``{' '.join(m[1].split())}``" + (f"\\ {m[2]}" if m[2] else ""), text)
    result: list[str] = []
    rows: list[str] = []
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        if stripped.startswith("|") and stripped.endswith("|"):
            rows.append(line)
            continue
        if rows:
            result += _table(rows)
            rows = []
        heading = _HEADING.fullmatch(stripped)
        if heading:
            result += [line[: len(line) - len(line.lstrip())] + f"**{heading[1]}**", ""]
        else:
            result.append(line)
    return result[:-1]


def _table(rows: list[str]) -> list[str]:
    indent = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
    has_header = len(rows) > 1 and bool(_TABLE_RULE.fullmatch(rows[1].strip()))
    result = ["", f"{indent}.. list-table::", f"{indent}   :header-rows: {int(has_header)}", ""]
    for row in rows:
        if _TABLE_RULE.fullmatch(row.strip()):
            continue
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        result += [f"{indent}   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(cells)]
    return [*result, ""]


def _on_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = convert(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the conversion ahead of napoleon, which reads the Google sections."""
    app.connect("autodoc-process-docstring", _on_docstring, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
