"""What is left to win: means and ratios on the search's workloads, oracles left out, and how pages say it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dl2env.evaluation.leaderboard.board import Board, build_board
from dl2env.evaluation.leaderboard.entry import Entry
from dl2env.evaluation.leaderboard.headroom import (
    BEST,
    BOUND,
    REFERENCE,
    SEARCH,
    all_headroom,
    how_to_read,
    overall_headroom,
    scenario_headroom,
)
from dl2env.evaluation.leaderboard.html import board_html
from dl2env.evaluation.leaderboard.limits import Limits
from dl2env.evaluation.leaderboard.markdown import board_markdown
from tests.evaluation.leaderboard.made_up import entry, limits

FACTORS = {"drf": 1.0, "fast": 0.5, "same": 1.0}


def entries(scenarios: tuple[str, ...] = ("a-v1", "bb-v1")) -> list[Entry]:
    return [entry(name, scenario, factor) for scenario in scenarios for name, factor in FACTORS.items()]


def board(*found: Limits, extra: tuple[Entry, ...] = ()) -> Board:
    return build_board([*entries(), *extra], limits=found)


def test_means_and_ratios_are_those_of_the_searched_workloads() -> None:
    made = limits("a-v1", num_searched=5, num_workloads=30)
    (found,) = all_headroom(board(made))
    fast, drf = (entry(name, "a-v1", FACTORS[name]).values("mean_jct_s")[:5].mean() for name in ("fast", "drf"))
    search, bound = np.mean(made.search_jct_s), np.mean(made.bound_jct_s[:5])
    assert (found.name, found.best, found.num_workloads) == ("a-v1", "fast", 5)
    for role, mean in ((BEST, fast), (REFERENCE, drf), (SEARCH, search), (BOUND, bound)):
        assert found.mean_intervals(role) == pytest.approx(mean / 1200.0, rel=1e-9), role
    for role, mean in ((SEARCH, search), (BOUND, bound)):
        ratio = found.ratio(BEST, role)
        assert ratio is not None and ratio.estimate == pytest.approx(fast / mean, rel=1e-9)
        assert ratio.low < ratio.estimate < ratio.high
    assert "search on 5 of 10 workloads, then its 60 CPU seconds ended" in found.note


def test_workloads_are_paired_by_digest() -> None:
    """Limits of the same workloads in another order, the search on the last of the entries."""
    made = limits("a-v1")
    turned = limits(
        "a-v1",
        num_searched=0,
        workload_digests=made.workload_digests[::-1],
        bound_jct_s=made.bound_jct_s[::-1],
        search_jct_s=(3.0 * made.bound_jct_s[-1],),
    )
    (found,) = all_headroom(board(turned))
    last = entry("fast", "a-v1", 0.5).values("mean_jct_s")[-1]
    assert found.mean_intervals(BEST) == pytest.approx(last / 1200.0)
    assert found.mean_intervals(BOUND) == pytest.approx(made.bound_jct_s[-1] / 1200.0)
    ratio = found.ratio(SEARCH, BOUND)
    assert ratio is not None and ratio.estimate == pytest.approx(3.0) and np.isnan(ratio.low)


@pytest.mark.parametrize(("num_searched", "has_interval"), [(1, False), (3, False), (4, True)])
def test_few_workloads_pretend_no_certainty(num_searched: int, has_interval: bool) -> None:
    (found,) = all_headroom(board(limits("a-v1", num_searched=num_searched)))
    ratio = found.ratio(BEST, SEARCH)
    assert ratio is not None and np.isfinite(ratio.low) == np.isfinite(ratio.high) == has_interval


def test_over_scenarios_it_is_the_geometric_mean() -> None:
    both = board(limits("a-v1"), limits("bb-v1", bound=0.3, search=0.4))
    parts = all_headroom(both)
    best, single = overall_headroom(both)
    assert (best.name, best.best) == ("all 2 scenarios", "the best of each")
    assert (single.name, single.best) == ("all 2 scenarios, one scheduler", "fast")
    ratios = [part.ratio(BEST, SEARCH) for part in parts]
    expected = np.exp(np.mean([np.log(ratio.estimate) for ratio in ratios if ratio is not None]))
    for item in (best, single):  # fast is the best of both
        ratio = item.ratio(BEST, SEARCH)
        assert ratio is not None and ratio.estimate == pytest.approx(expected) and item.mean_intervals(BEST) is None
    # A single searched workload pretends no certainty.
    assert overall_headroom(board(limits("a-v1", num_searched=1))) == []
    assert overall_headroom(board()) == [] and all_headroom(board()) == []


def test_an_oracle_is_never_the_best_and_has_no_rank() -> None:
    knows = tuple(entry("srpt", scenario, 0.1, is_oracle=True) for scenario in ("a-v1", "bb-v1"))
    made = (limits("a-v1"), limits("bb-v1"))
    with_oracle, without = board(*made, extra=knows), board(*made)
    assert with_oracle.overall is not None and with_oracle.overall.names[with_oracle.overall.order[0]] == "srpt"
    assert with_oracle.best == "fast" and with_oracle.scenarios[0].best == "fast"
    assert [item.best for item in all_headroom(with_oracle)] == ["fast", "fast"]
    for a, b in zip([*overall_headroom(with_oracle)], [*overall_headroom(without)], strict=True):
        assert a.ratio(BEST, SEARCH) == b.ratio(BEST, SEARCH)
    ranks = dict(zip(with_oracle.overall.names, with_oracle.overall_ranks, strict=True))
    assert ranks["srpt"] is None
    assert without.overall is not None
    others = dict(zip(without.overall.names, without.overall_ranks, strict=True))
    assert {name: str(rank) for name, rank in ranks.items() if rank} == {n: str(r) for n, r in others.items()}
    assert with_oracle.scenarios[0].ranks[with_oracle.scenarios[0].labels.index("srpt")] is None
    markdown, html = board_markdown(with_oracle), board_html(with_oracle)
    assert "| – | srpt † |" in markdown and "† An oracle: it knows the future" in markdown
    assert "srpt †" in html and "† An oracle: it knows the future" in html and '"srpt"' in html
    for page in (board_markdown(without), board_html(without)):
        assert "†" not in page


def test_only_oracles_leave_nothing_to_say() -> None:
    alone = build_board([entry("srpt", "a-v1", is_oracle=True)], reference="srpt", limits=[limits("a-v1")])
    assert alone.best is None and all_headroom(alone) == [] and overall_headroom(alone) == []
    assert "What is left" not in board_markdown(alone) and "What is left" not in board_html(alone)


def test_limits_that_do_not_fit_are_set_aside() -> None:
    reasons = {
        "its hash differs": limits("a-v1", scenario_hash="b" * 64),
        "made with dl2env 0.0.1": limits("a-v1", version="0.0.1"),
        "shares no workload": limits("a-v1", workload_digests=tuple(f"x{k}" for k in range(20))),
    }
    for words, stale in reasons.items():
        made = board(stale)
        (item,) = made.set_aside
        assert item.name == "limits of a-v1" and words in item.reason
        assert all_headroom(made) == [] and words in board_markdown(made)
        both = board(stale, limits("a-v1"))  # one that fits is enough
        assert both.set_aside == () and len(all_headroom(both)) == 1
    assert board(limits("a-v1", split="validation"), limits("elsewhere-v1")).set_aside == ()


def test_trimmed_averages_have_no_limits() -> None:
    trimmed = [entry(name, "a-v1", factor, trim=(0.1, 0.1)) for name, factor in FACTORS.items()]
    made = build_board(trimmed, limits=[limits("a-v1")])
    assert made.scenarios[0].limits is None and "trim" in made.set_aside[0].reason


def test_a_bound_alone_and_no_reference() -> None:
    (found,) = all_headroom(board(limits("a-v1", num_searched=0)))
    assert found.standing.names == (BOUND, BEST, REFERENCE) and found.num_workloads == 20
    assert found.ratio(BEST, SEARCH) is None and found.mean_intervals(SEARCH) is None
    assert "no search was run" in found.note
    made = build_board([entry("a", "a-v1")], limits=[limits("a-v1")])
    other = scenario_headroom(made.scenarios[0], made.reference)
    assert other is not None and other.standing.names == (BOUND, SEARCH, BEST)
    for page in (board_markdown(made), board_html(made)):
        assert not re.search(r"(>|\| |:|\[)nan", page)


def test_pages_say_what_search_and_bound_are() -> None:
    made = board(limits("a-v1"), limits("bb-v1", num_searched=4))
    text = board_markdown(made)
    assert "an estimate of what is possible: a better plan may exist" in text
    assert "it may be out of reach" in text and "Plans are played for 25 intervals." in text
    assert "- bb-v1: search on 4 of 10 workloads, then its 60 CPU seconds ended." in text
    assert "On the search's 10 workloads: lower bound " in text and "of the search and" in text
    html = board_html(made)
    assert how_to_read(made) in html.replace("&#39;", "'") and 'id="h-left"' in html
    data = re.search(r'"limits":\{"bound":([\d.]+),"search":([\d.]+)\}', html)
    assert data is not None and 0.39 < float(data[1]) < 0.41 and 0.44 < float(data[2]) < 0.46
    assert "h-left" not in board_html(board())


def test_pages_are_the_same_bytes_whatever_the_order() -> None:
    found = [limits("a-v1"), limits("bb-v1", num_searched=4)]
    for page in (board_markdown, board_html):
        assert page(build_board(entries(), limits=found)) == page(build_board(entries()[::-1], limits=found[::-1]))
        assert page(build_board(entries(), limits=found, seed=1)) != page(build_board(entries(), limits=found))
