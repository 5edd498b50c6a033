"""The base of HTML pages: self-contained, escaped, accessible tables."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation import html_page
from dl2env.evaluation.html_page import Cell, Column, Row, Table

PNG = b"\x89PNG\r\n\x1a\n0000"


class Elements(HTMLParser):
    """All elements with their attributes, and a check that they nest."""

    VOID = ("meta", "img", "input", "source", "br", "hr", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def rendered_table(table: Table) -> str:
    template = html_page._environment().from_string(
        '{% extends "base.html" %}{% import "macros.html" as ui %}'
        "{% block main %}{{ ui.data_table(table) }}{% endblock %}"
    )
    return template.render(title="Tables <&>", table=table)


def make_table() -> Table:
    return Table(
        "scores",
        "Scores & more",
        (Column("name"), Column("score", "higher is better", is_numeric=True, is_descending=True)),
        [
            Row((Cell("<script>alert(1)</script>", href="#a"), html_page.number_cell(1234.567, 1)), {"kind": 'a"b'}),
            Row(("plain", html_page.number_cell(float("nan")))),
        ],
        is_searchable=True,
        filters={"kind": ("a", "b")},
    )


def test_a_table_is_escaped_and_has_heads() -> None:
    html = rendered_table(make_table())
    elements = Elements(html)
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html
    assert [head.get("scope") for head in elements.of("th")] == ["col", "col", "row", "row"]
    assert elements.of("th")[1]["data-sort"] == "number" and "data-descending" in elements.of("th")[1]
    assert [cell.get("data-value") for cell in elements.of("td")] == ["1234.567", ""]
    assert "1,234.6" in html and "–" in html
    assert elements.of("tr")[1]["data-filter-kind"] == 'a"b'
    assert elements.of("a")[-1]["href"] == "#a"
    assert elements.of("select")[0]["data-filter"] == "kind" and len(elements.of("option")) == 3
    table = elements.of("table")[0]
    assert [p["id"] for p in elements.of("p") if p.get("class") == "caption"] == [table["aria-labelledby"]]


def test_a_page_needs_nothing_else() -> None:
    html = rendered_table(make_table())
    for attribute in ("src", "href", "srcset", "action"):
        values = [a[attribute] for _, a in Elements(html).found if attribute in a]
        assert [value for value in values if value is None or not value.startswith(("#", "data:"))] == []
    assert re.findall(r"url\(|@import|https?://", html) == []
    assert "prefers-color-scheme: dark" in html and 'name="viewport"' in html


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'t': row 0 has 1 cells for 2 columns"):
        Table("t", "", (Column("a"), Column("b")), [Row(("x",))])
    with pytest.raises(ConfigError, match="an id is a letter"):
        Table("1 t", "", (), [])


def test_pictures_carry_their_data(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (image,) = Elements(str(html_page.inline_image(tmp_path / "a.png", 'a "plot"'))).of("img")
    assert image["alt"] == 'a "plot"' and str(image["src"]).startswith("data:image/png;base64,iVBOR")
    pair = Elements(str(html_page.inline_image(PNG, "plot", dark=PNG)))
    assert [tag for tag, _ in pair.found] == ["picture", "source", "img"]
    with pytest.raises(ConfigError, match="neither PNG"):
        html_page.inline_image(b"text", "")
    with pytest.raises(ConfigError, match=r"none.png: cannot be read"):
        html_page.inline_image(tmp_path / "none.png", "")
    svg = html_page.inline_svg('<?xml version="1.0"?><svg width="1"></svg>', 'x "y"')
    assert Elements(str(svg)).of("svg") == [{"role": "img", "aria-label": 'x "y"', "width": "1"}]
    with pytest.raises(ConfigError, match="no <svg>"):
        html_page.inline_svg("text", "")


def test_data_survives_and_cannot_end_its_element() -> None:
    values = {"a": "</script><!-- & \u2028", "b": [1.5, None]}
    html = str(html_page.embedded_json(values, "data"))
    assert html.count("</script>") == 1 and "<!--" not in html
    assert json.loads(html.partition(">")[2].removesuffix("</script>")) == values
    with pytest.raises(ConfigError, match="page data 'data'"):
        html_page.embedded_json({"a": float("nan")}, "data")


def test_pages_are_written_whole(tmp_path: Path) -> None:
    path = html_page.write_page(tmp_path / "new" / "page.html", "<p>ä</p>\n")
    assert path.read_bytes() == "<p>ä</p>\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(ConfigError, match="cannot be written"):
        html_page.write_page(path / "below" / "page.html", "")
