"""Boards and pages: what is compared, what is set aside, and that the same entries give the same bytes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.board import build_board
from dl2env.evaluation.leaderboard.entry import Entry, entry_path, write_entry
from dl2env.evaluation.leaderboard.folder import SetAside, read_folder
from dl2env.evaluation.leaderboard.html import board_html
from dl2env.evaluation.leaderboard.markdown import board_markdown
from tests.evaluation.leaderboard.made_up import HASH, entry

FACTORS = {"drf": 1.0, "fast": 0.5, "same": 1.0}


def entries(scenarios: tuple[str, ...] = ("a-v1", "bb-v1")) -> list[Entry]:
    return [entry(name, scenario, factor) for scenario in scenarios for name, factor in FACTORS.items()]


def test_ranks_and_ratios_over_scenarios() -> None:
    board = build_board(entries())
    assert board.overall is not None
    ranks = dict(zip(board.overall.names, map(str, board.overall.ranks), strict=True))
    assert ranks == {"fast": "1", "drf": "2–3", "same": "2–3"}
    ratio = board.overall.ratios("drf")[board.overall.names.index("fast")]
    assert ratio.low < 0.5 < ratio.high and ratio.high < 0.55
    wins = board.overall_wins[board.ranked.index("fast"), board.ranked.index("drf")]
    assert wins == 1.0
    assert [s.name for s in board.scenarios] == ["a-v1", "bb-v1"]
    ordered = build_board(entries(), scenario_order=["bb-v1"])
    assert [s.name for s in ordered.scenarios] == ["bb-v1", "a-v1"]
    assert [s.name for s in build_board(entries(), scenario_order=["bb-v1"], only_listed=True).scenarios] == ["bb-v1"]


def test_one_more_scenario_or_scheduler_changes_no_other_number() -> None:
    few, many = build_board(entries(("a-v1",))), build_board([*entries(), entry("new", "a-v1", 0.7)])
    for name in FACTORS:
        before, after = (
            b.scenarios[0].standing().ratios("drf")[b.scenarios[0].labels.index(name)] for b in (few, many)
        )
        assert before == pytest.approx(after, rel=1e-12)


def test_scenarios_with_one_set_of_workloads_prove_no_more_than_one() -> None:
    """Correlated scenarios do not average out: four copies of one have its interval, not one half as wide."""

    def width(seeds: tuple[int, ...]) -> float:
        made = [entry(name, f"{k}-v1", f, seed=seed) for k, seed in enumerate(seeds) for name, f in FACTORS.items()]
        board = build_board(made)
        assert board.overall is not None
        ratio = board.overall.ratios("drf")[board.overall.names.index("fast")]
        return ratio.high - ratio.low

    assert width((1, 1, 1, 1)) == pytest.approx(width((1,)), rel=1e-9)
    assert width((1, 2, 3, 4)) < 0.7 * np.mean([width((seed,)) for seed in (1, 2, 3, 4)])


def test_entries_of_another_world_or_version_are_set_aside() -> None:
    odd = [
        entry("other-world", "a-v1", 0.1, scenario_hash="b" * 64),
        entry("older", "a-v1", 0.1, version="0.0.1"),
        entry("trimmed", "a-v1", 0.1, trim=(0.1, 0.1)),
        entry("elsewhere", "a-v1", 0.1, workload_digests=tuple(f"x{k}" for k in range(20))),
    ]
    board = build_board([*entries(), *odd])
    reasons = {item.name: item.reason for item in board.set_aside}
    assert list(reasons) == ["older on a-v1", "other-world on a-v1", "trimmed on a-v1", "elsewhere on a-v1"]
    assert "its hash differs" in reasons["other-world on a-v1"]
    assert "made with dl2env 0.0.1" in reasons["older on a-v1"]
    assert "(0.1, 0.1)" in reasons["trimmed on a-v1"]
    assert "shares no workload" in reasons["elsewhere on a-v1"]
    assert board.labels == ("drf", "fast", "same")
    for page in (board_markdown(board), board_html(board)):
        assert "its hash differs" in page


def test_todays_hash_counts_even_against_most_entries() -> None:
    new = entry("new", "a-v1", scenario_hash="b" * 64)
    board = build_board([*entries(), new], hashes={"a-v1": "b" * 64, "bb-v1": HASH})
    assert [s.labels for s in board.scenarios] == [("new",), ("drf", "fast", "same")]
    assert any("no result of drf" in notice and "a-v1" in notice for notice in board.notices)
    assert board.ranked == ("drf", "fast", "same")


def test_entries_are_paired_by_workload() -> None:
    """An entry with fewer workloads, in another order, is compared on those that all have."""
    full = entry("fast", "a-v1", 0.5)
    few = entry("drf", "a-v1", 1.0, num_workloads=5)
    board = build_board([full, few])
    (scenario,) = board.scenarios
    assert scenario.num_workloads == 5
    assert scenario.values("mean_jct_s")[1] == pytest.approx(full.values("mean_jct_s")[:5])
    assert "compared on the 5 of 20 workloads" in board.notices[0] and "drf" in board.notices[0]
    turned = entry("drf", "a-v1", 1.0, workload_digests=tuple(f"{k:016x}" for k in reversed(range(20))))
    pair = build_board([full, turned]).scenarios[0]
    assert pair.values("mean_jct_s")[0, 0] == (turned if pair.labels[0] == "drf" else full).values("mean_jct_s")[-1]


def test_scenarios_of_one_workload_are_shown_but_not_ranked_overall() -> None:
    single = [entry(name, "single-v1", factor, num_workloads=1) for name, factor in FACTORS.items()]
    board = build_board([*entries(("a-v1",)), *single])
    assert [s.name for s in board.headline_scenarios] == ["a-v1"]
    assert [s.name for s in board.with_reference] == ["a-v1", "single-v1"]
    assert any("a single workload" in notice for notice in board.notices)
    alone = build_board(single)
    assert alone.overall is not None and {str(rank) for rank in alone.overall.ranks} == {"1–3"}
    assert "nan" not in board_markdown(alone).lower() and ">nan" not in board_html(alone).lower()


def test_schedulers_without_all_scenarios_are_not_ranked_overall() -> None:
    board = build_board([*entries(), entry("partial", "a-v1", 0.1)])
    assert "partial" not in board.ranked and board.missing("partial") == ("bb-v1",)
    assert "partial (lacks bb-v1)" in board_markdown(board)


def test_the_first_of_two_entries_of_a_cell_counts() -> None:
    mine = entry("drf", "a-v1", 3.0)
    assert build_board([mine, *entries()]).scenarios[0].entry("drf") is mine
    assert build_board([*entries(), mine]).scenarios[0].entry("drf") is not mine


def test_without_a_reference_there_is_a_page_too() -> None:
    board = build_board([entry("a", "w-v1"), entry("b", "w-v1", 0.5)])
    assert board.overall is None and board.ranked == ()
    assert "no overall ranking" in board_markdown(board)
    assert "h-overall" not in board_html(board)


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no entry of split test to show"):
        build_board([entry(split="validation")])
    with pytest.raises(ConfigError, match=r"set aside: x.json: broken"):
        build_board([], set_aside=[SetAside("x.json", "broken", is_stale=False)])


def test_damaged_files_are_named_and_skipped(tmp_path: Path) -> None:
    good = write_entry(entry_path(tmp_path, "a-v1", "drf"), entry("drf", "a-v1"))
    (tmp_path / "a-v1" / "bad.json").write_text("{")
    (tmp_path / "foreign.json").write_text('{"name": "other"}')
    (tmp_path / "a-v1" / ".drf.json.part").write_text("{")
    found, damaged = read_folder(tmp_path)
    assert list(found) == [good]
    assert [item.name for item in damaged] == ["a-v1/bad.json", "foreign.json"]
    assert str(tmp_path) not in damaged[0].reason
    assert read_folder(tmp_path / "none") == ({}, [])


def test_a_second_file_of_one_entry_is_named(tmp_path: Path) -> None:
    first = write_entry(entry_path(tmp_path, "a-v1", "drf"), entry("drf", "a-v1"))
    write_entry(tmp_path / "a-v1" / "zz.json", entry("drf", "a-v1", 0.1))
    write_entry(entry_path(tmp_path, "a-v1", "drf", "validation"), entry("drf", "a-v1", split="validation"))
    found, damaged = read_folder(tmp_path)
    assert first in found and len(found) == 2
    assert [(item.name, item.reason) for item in damaged] == [
        ("a-v1/zz.json", "drf on a-v1 is in a-v1/drf.json already; remove one of the files")
    ]


HOSTILE = "<img src=x onerror=alert(1)>|`*&\"'](x)"


def test_names_are_text_on_the_pages() -> None:
    made = [*entries(), entry(HOSTILE, "a-v1", num_workloads=3), entry(HOSTILE, "<b>-v1")]
    board = build_board(made)
    html, text = board_html(board), board_markdown(board)
    assert "<img" not in html and "<b>-" not in html
    assert "<img" not in text and "<b>-" not in text
    assert "&lt;img src=x onerror=alert(1)>\\|\\`\\*&amp;" in text
    assert [element for element in Elements(html).found if element[0] == "img"] == []


def test_entries_of_other_code_are_named() -> None:
    made = [*entries(("a-v1",)), entry("own", "a-v1")]
    assert made[0].code_digest == made[-1].code_digest
    assert build_board(made, codes={"drf": made[0].code_digest}).notices == ()
    (one,) = build_board(made, codes={made[0].scheduler_name: "other"}).notices
    assert one.startswith("1 entry was made with other code of this version") and "drf on a-v1" in one


def test_few_workloads_are_said_to_be_few() -> None:
    few = build_board([entry("drf", "a-v1", num_workloads=3), entry("x", "a-v1", num_workloads=3)])
    assert any("Fewer than 20 workloads" in notice and notice.endswith(": a-v1.") for notice in few.notices)
    many = build_board([entry("drf", "a-v1", num_workloads=20), entry("x", "a-v1", num_workloads=20)])
    assert many.notices == ()


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_pages_are_the_same_bytes_whatever_the_order_of_entries() -> None:
    made = entries()
    for page in (board_markdown, board_html):
        assert page(build_board(made)) == page(build_board(made[::-1]))


def test_html_is_self_contained_and_holds_all_numbers() -> None:
    board = build_board([*entries(), entry("</script><b>", "a-v1", 0.9)])
    html = board_html(board, {"a-v1": "First sentence, with <tags>. Second."})
    elements = Elements(html)
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements.found:
        for name in ("src", "href", "srcset"):
            assert (attributes.get(name) or "#").startswith("#")
        assert (attributes.get("href") or "#")[1:] in ("", *ids)
    assert set(re.findall(r"https?://[^\"' ]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "</script><b>" not in html and "First sentence, with &lt;tags&gt;." in html and "Second" not in html
    match = re.search(r'<script type="application/json" id="board-data">(.*?)</script>', html, re.DOTALL)
    assert match is not None
    data = json.loads(match[1])
    assert [view["name"] for view in data["views"]] == ["all scenarios", "a-v1", "bb-v1"]
    for view in data["views"]:
        size = len(view["labels"])
        assert len(view["wins"]) == len(view["better"]) == len(view["ratios"]) == size
    assert len(data["views"][1]["quantiles"][0]) == len(data["levels"]) == 103


def test_markdown_tables_are_whole() -> None:
    text = board_markdown(build_board([*entries(), entry("pipe|name", "a-v1")]))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", line.strip()) for line in block.strip().split("\n")]
        assert len({len(row) for row in rows}) == 1 and len(rows) > 2
