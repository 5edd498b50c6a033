"""Self-contained HTML pages: one file with its style, script, pictures and numbers, readable without a network.

A page is a jinja2 template in `templates/` that extends `base.html`. The base brings the style (light and dark, narrow
screens, print) and tables that sort and filter; without JavaScript every table is still there, in its first order.

    table = Table("speeds", "Speed by job type", (Column("type"), Column("samples/s", is_numeric=True)), rows)
    write_page(path, render_page("report.html", title="Characterization", tables=[table]))

with `report.html`:

    {% extends "base.html" %}
    {% import "macros.html" as ui %}
    {% block main %}{{ ui.data_table(tables[0]) }}{{ ui.figure(inline_image(png, "what it shows"), "caption") }}
    {% endblock %}

Needs jinja2, which the library itself does not depend on.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dl2env.errors import ConfigError
from dl2env.evaluation.whole_file import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_MIME_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True)
class Column:
    """Head of a table's column.

    Attributes:
        label: Short text.
        title: What the column means, shown as a tooltip and read by screen readers.
        is_numeric: Right-aligned, and sorted by the cells' `value`.
        is_descending: A first click on the head puts the largest value first.
        is_sortable: Whether the head offers sorting.
    """

    label: str
    title: str = ""
    is_numeric: bool = False
    is_descending: bool = False
    is_sortable: bool = True


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: What is shown.
        value: What is sorted by; None sorts by the text, NaN comes last.
        title: Tooltip.
        css: Class names, such as `good`, `bad`, `muted` (defined in `base.css`).
        href: Target of a link within the page, such as `#scenario-x`.
    """

    text: str
    value: float | None = None
    title: str = ""
    css: str = ""
    href: str = ""

    @property
    def sort_key(self) -> str:
        """The value as text for the page's script; empty for NaN."""
        if self.value is None:
            return self.text
        return "" if math.isnan(self.value) else f"{self.value:.9g}"


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        cells: One cell or text per column; the first is the row's head.
        filters: Values by filter name, such as `{"scenario": "toy-v1"}`, for the table's `filters`.
    """

    cells: Sequence[Cell | str]
    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole_cells(self) -> tuple[Cell, ...]:
        """The cells, texts made into cells."""
        return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in self.cells)


@dataclass(frozen=True)
class Table:
    """A table that sorts, and filters where asked to.

    Attributes:
        table_id: Its id in the page: letters, digits and hyphens, unique in it.
        caption: What it shows.
        columns: Heads.
        rows: Rows, in the order shown first.
        is_searchable: Offers a text search over all cells.
        filters: Choices by filter name; each becomes a drop-down list that keeps the rows of that choice.
    """

    table_id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    is_searchable: bool = False
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.table_id):
            raise ConfigError(f"table {self.table_id!r}: an id is a letter followed by letters, digits and hyphens")
        for i, row in enumerate(self.rows):
            if len(row.cells) != len(self.columns):
                raise ConfigError(
                    f"table {self.table_id!r}: row {i} has {len(row.cells)} cells for {len(self.columns)} columns"
                )


def number_cell(value: float, digits: int = 2, *, unit: str = "", title: str = "", css: str = "") -> Cell:
    """A cell with a number of fixed decimals; a dash for NaN."""
    text = "–" if math.isnan(value) else f"{value:,.{digits}f}{unit}"
    return Cell(text, float(value), title, css)


def inline_image(image: bytes | Path, alt: str, dark: bytes | Path | None = None) -> Markup:
    """A PNG, JPEG or GIF as an element that carries its data.

    Args:
        image: The picture or its file.
        alt: What it shows, for those who do not see it.
        dark: The same picture for dark pages; by default `image` on a light card.

    Raises:
        ConfigError: It cannot be read or is of another format.
    """
    _require_jinja()
    from markupsafe import Markup

    light = Markup('<img src="{}" alt="{}" loading="lazy">').format(_data_url(image), alt)
    if dark is None:
        return Markup('<span class="picture on-light">{}</span>').format(light)
    return Markup('<picture><source media="(prefers-color-scheme: dark)" srcset="{}">{}</picture>').format(
        _data_url(dark), light
    )


def inline_svg(svg: str, alt: str) -> Markup:
    """An SVG drawing of this program's own (it goes into the page as it is), with a label for screen readers.

    Raises:
        ConfigError: It holds no `svg` element.
    """
    _require_jinja()
    from markupsafe import Markup, escape

    start = svg.find("<svg")
    if start < 0:
        raise ConfigError("inline_svg: no <svg> element; give the text of an SVG file")
    return Markup(svg[start:].replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1))


def embedded_json(values: Any, element_id: str) -> Markup:
    """Plain values as a JSON element for the page's script; no text in them can end the element.

    Raises:
        ConfigError: A value is not plain or not finite.
    """
    _require_jinja()
    from markupsafe import Markup

    try:
        text = json.dumps(values, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"page data {element_id!r}: {error}; convert it to plain finite values") from error
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(element_id, Markup(text))


def render_page(template: str, /, **values: Any) -> str:
    """The HTML text of a template in `templates/`, with `inline_image`, `inline_svg` and `embedded_json` at hand.

    Args:
        template: File name of a template that extends `base.html`.
        **values: What it refers to; `title` is needed, `subtitle` and `footer` are optional.

    Raises:
        ConfigError: jinja2 is missing.
    """
    return _environment().get_template(template).render(**values)


def write_page(path: Path, html: str) -> Path:
    """Writes a page, whole or not at all, and returns its path.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        return write_whole(path, html)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error


@cache
def _environment() -> Environment:
    _require_jinja()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dl2env.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"inline_image": inline_image, "inline_svg": inline_svg, "embedded_json": embedded_json}
    return environment


def _require_jinja() -> None:
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ConfigError("HTML pages need jinja2; install it with: pip install 'dl2env[train]'") from error


def _data_url(image: bytes | Path) -> str:
    if isinstance(image, Path):
        try:
            data = image.read_bytes()
        except OSError as error:
            raise ConfigError(f"{image}: cannot be read ({error.strerror})") from error
    else:
        data = image
    kind = next((mime for magic, mime in _MIME_TYPES.items() if data.startswith(magic)), None)
    if kind is None:
        raise ConfigError("inline_image: neither PNG, JPEG nor GIF; save the picture in one of these formats")
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
