"""The board as a self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dl2env.evaluation.html_page import Cell, Column, Row, Table, number_cell, render_page
from dl2env.evaluation.leaderboard.board import ORACLE_NOTE, Board, ScenarioBoard, interval_text, marked
from dl2env.evaluation.leaderboard.entry import QUANTILE_LEVELS
from dl2env.evaluation.leaderboard.headroom import (
    BEST,
    BOUND,
    REFERENCE,
    SEARCH,
    Headroom,
    all_headroom,
    how_to_read,
    overall_headroom,
    scenario_headroom,
)
from dl2env.evaluation.leaderboard.markdown import HOW_TO_READ
from dl2env.evaluation.ranking import RankRange, Standing
from dl2env.evaluation.statistics import Interval

OVERALL = "all scenarios"


def board_html(board: Board, descriptions: Mapping[str, str] | None = None) -> str:
    """The whole page.

    Args:
        board: What to show.
        descriptions: Text of each scenario, of which the first sentence is shown.

    Raises:
        ConfigError: jinja2 is missing.
    """
    num_entries = sum(len(s.entries) for s in board.scenarios)
    return render_page(
        "leaderboard.html",
        title="dl2env leaderboard",
        subtitle=f"{len(board.labels)} schedulers, {len(board.scenarios)} scenarios, {num_entries} entries, "
        f"{board.split} workloads",
        footer="Made from the entries by scripts/leaderboard.py.",
        board=board,
        how_to_read=HOW_TO_READ.format(reference=board.reference),
        oracle_note=ORACLE_NOTE if board.oracles else "",
        left_to_win=_left_to_win_table(board),
        how_to_read_limits=how_to_read(board),
        headline=_headline(board) if board.overall is not None else None,
        unranked=[(label, board.missing(label)) for label in board.labels if board.missing(label)],
        ratios=_ratio_table(board) if board.with_reference else None,
        cells=_cell_table(board),
        set_aside=_set_aside_table(board) if board.set_aside else None,
        descriptions=[
            (s.name, s.num_workloads, _first_sentence((descriptions or {}).get(s.name, ""))) for s in board.scenarios
        ],
        data=_data(board),
    )


def _headline(board: Board) -> Table:
    overall = board.overall
    assert overall is not None
    columns = (
        Column("scheduler"),
        Column("rank", "Range of ranks that the workloads leave open; 1 is the best", is_numeric=True),
        Column("knows", "What it was told about job speeds in most scenarios, used or not; an oracle knows more"),
        Column("JCT ratio", f"Geometric mean over scenarios, against {board.reference}", is_numeric=True),
        Column("95 % interval", "Paired bootstrap over workloads", is_numeric=True),
        Column("p99 ratio", "The same of the 99th percentile of JCT", is_numeric=True),
        Column("worst rho", "Largest finish-time fairness ratio of any job of any scenario", is_numeric=True),
        Column("unfair jobs", "Share of jobs with rho above 1, mean over scenarios", is_numeric=True),
        Column("goodput ratio", "Geometric mean of useful work per time over that of the reference; above 1 is better",
               is_numeric=True, is_descending=True),
        Column("GPU use", "Allocated share of GPUs, mean over scenarios", is_numeric=True, is_descending=True),
        Column("resizes per job", "Changes of allocation, mean over scenarios", is_numeric=True),
        Column("unfinished", "Jobs not finished at truncation; they count against the scheduler", is_numeric=True),
        Column("illegal", "Illegal actions; each ended an interval", is_numeric=True),
        Column("ms/decision", "Mean over scenarios, in batches, on the machine that ran it", is_numeric=True),
        Column("CPU ms/episode", "Mean over scenarios, simulation included, on the machine that ran it",
               is_numeric=True),
    )  # fmt: skip
    ratios = overall.ratios(board.reference)
    rows = []
    for k in overall.order:
        label = overall.names[k]
        entries = [e for s in board.headline_scenarios if (e := s.entry(label))]
        latency, cpu_ms = (np.mean([e.timing[t] for e in entries]) for t in ("ms_per_decision", "cpu_ms_per_episode"))
        known = Counter(e.knows for e in entries)
        rows.append(
            Row(
                (
                    Cell(marked(label, board.oracles)),
                    _rank(board.overall_ranks[k]),
                    Cell(min(known, key=lambda text: (-known[text], text)), title=_counts(known)),
                    number_cell(ratios[k].estimate, 3, css=_verdict(ratios[k])),
                    _bounds(ratios[k]),
                    number_cell(board.geometric_ratio(label, "p99_jct_s"), 3),
                    number_cell(board.over_scenarios(label, "max_rho", "max"), 1),
                    number_cell(100 * board.over_scenarios(label, "unfair_share"), 1, unit=" %"),
                    number_cell(board.geometric_ratio(label, "goodput"), 3),
                    number_cell(100 * board.over_scenarios(label, "gpu_utilisation"), 1, unit=" %"),
                    number_cell(board.over_scenarios(label, "mean_resizes"), 1),
                    _zero_wanted(board.over_scenarios(label, "num_unfinished", "sum")),
                    _zero_wanted(board.over_scenarios(label, "num_illegal", "sum")),
                    number_cell(float(latency), 4),
                    number_cell(float(cpu_ms), 1),
                )
            )
        )
    return Table("overall", "Overall: click a column's head to sort", columns, rows, is_searchable=True)


def _left_to_win_table(board: Board) -> Table | None:
    found = [*overall_headroom(board), *all_headroom(board)]
    if not found:
        return None
    in_time = "in scheduling intervals"
    columns = (
        Column("scenario"),
        Column("best / search", "Mean JCT of the best scheduler over that of the search", is_numeric=True),
        Column("95 % interval", "Paired bootstrap over workloads", is_numeric=True),
        Column("best / bound", "Mean JCT of the best scheduler over the lower bound", is_numeric=True),
        Column("95 % interval", "Paired bootstrap over workloads", is_numeric=True),
        Column("best", "Smallest mean JCT on all workloads of the scenario; oracles left out"),
        Column("its JCT", f"Mean {in_time}", is_numeric=True),
        Column(board.reference, f"Mean JCT {in_time}", is_numeric=True),
        Column("search", f"Mean JCT {in_time}", is_numeric=True),
        Column("bound", f"Lower bound of the mean JCT {in_time}", is_numeric=True),
        Column("workloads", "Compared: those of the search", is_numeric=True),
        Column("note"),
    )
    rows = [
        Row(
            (
                item.name,
                *_ratio_cells(item.ratio(BEST, SEARCH)),
                *_ratio_cells(item.ratio(BEST, BOUND)),
                item.best,
                *(_mean(item, role) for role in (BEST, REFERENCE, SEARCH, BOUND)),
                number_cell(item.num_workloads, 0),
                Cell(item.note, css="muted"),
            )
        )
        for item in found
    ]
    caption = "The best scheduler beside the limits, on the search's workloads; over scenarios geometric means"
    return Table("left", caption, columns, rows)


def _ratio_cells(ratio: Interval | None) -> tuple[Cell, Cell]:
    if ratio is None:
        return number_cell(float("nan"), title="no result"), number_cell(float("nan"), title="no result")
    return number_cell(ratio.estimate, 3), _bounds(ratio)


def _mean(item: Headroom, role: str) -> Cell:
    value = item.mean_intervals(role)
    return number_cell(float("nan") if value is None else value, title="" if value is not None else "no result")


def _counts(known: Counter[str]) -> str:
    return ", ".join(f"{text} in {known[text]}" for text in sorted(known, key=lambda text: (-known[text], text)))


def _ratio_table(board: Board) -> Table:
    shown = board.with_reference
    ratios = {s.name: dict(zip(s.labels, s.standing().ratios(board.reference), strict=True)) for s in shown}
    ranked = [board.overall.names[k] for k in board.overall.order] if board.overall is not None else []
    rows = []
    for label in [*ranked, *(label for label in board.labels if label not in ranked)]:
        cells = []
        for s in shown:
            if label not in s.labels:
                cells.append(number_cell(float("nan"), title="no result"))
                continue
            ratio = ratios[s.name][label]
            css = {"good": "fill-good", "bad": "fill-bad"}.get(_verdict(ratio), "")
            cells.append(number_cell(ratio.estimate, 3, title=f"{label} on {s.name}: {interval_text(ratio)}", css=css))
        rows.append(Row((Cell(marked(label, board.oracles)), *cells)))
    columns = (Column("scheduler"), *(Column(s.name, is_numeric=True) for s in shown))
    caption = (
        f"Mean JCT over that of {board.reference}; coloured where the 95 % interval excludes 1 (green: better). "
        "A tooltip has the interval."
    )
    return Table("ratios", caption, columns, rows)


def _cell_table(board: Board) -> Table:
    in_time = "in scheduling intervals"
    columns = (
        Column("scheduler"),
        Column("scenario"),
        Column("rank", "Within the scenario", is_numeric=True),
        Column("knows", "What it was told about job speeds, used or not; an oracle knows more"),
        Column("JCT ratio", f"Mean JCT over that of {board.reference}", is_numeric=True),
        Column("95 % interval", "Paired bootstrap over workloads", is_numeric=True),
        Column("mean JCT", f"Job completion time {in_time}", is_numeric=True),
        Column("p50", f"Median JCT {in_time}", is_numeric=True),
        Column("p95", f"95th percentile of JCT {in_time}", is_numeric=True),
        Column("p99", f"99th percentile of JCT {in_time}", is_numeric=True),
        Column("makespan", f"Last completion - first arrival {in_time}", is_numeric=True),
        Column("queueing", f"Wait for the first training {in_time}", is_numeric=True),
        Column("slowdown", "Bounded slowdown, mean", is_numeric=True),
        Column("mean rho", "Finish-time fairness", is_numeric=True),
        Column("worst rho", "Largest finish-time fairness ratio", is_numeric=True),
        Column("unfair", "Share of jobs with rho above 1", is_numeric=True),
        Column("GPU use", "Allocated share of GPUs", is_numeric=True, is_descending=True),
        Column("GPU-hours", "Held, mean over workloads", is_numeric=True),
        Column("GPU efficiency", "GPU time that the work needs at its most economical over GPU time held",
               is_numeric=True, is_descending=True),
        Column("goodput", "Useful work per time: jobs at full speed", is_numeric=True, is_descending=True),
        Column("resizes", "Changes of allocation per job", is_numeric=True),
        Column("pauses", "Intervals per job in which it did not train between start and end", is_numeric=True),
        Column("unfinished", "Jobs not finished at truncation", is_numeric=True),
        Column("illegal", "Illegal actions", is_numeric=True),
        Column("ms/decision", "In batches, on the machine that ran it", is_numeric=True),
        Column("CPU ms/episode", "Simulation included, on the machine that ran it", is_numeric=True),
        Column("workloads", "Compared; all entries of a scenario have these", is_numeric=True),
    )  # fmt: skip
    rows = [row for scenario in board.scenarios for row in _cell_rows(board, scenario)]
    names = [s.name for s in board.scenarios]
    return Table("cells", "All results", columns, rows, is_searchable=True, filters={"scenario": names})


def _cell_rows(board: Board, s: ScenarioBoard) -> list[Row]:
    standing = s.standing()
    nothing = Interval(float("nan"), float("nan"), float("nan"))
    has_reference = board.reference in s.labels
    ratios = standing.ratios(board.reference) if has_reference else (nothing,) * len(s.labels)
    mean = {metric: s.values(metric).mean(axis=1) for metric in s.entries[0].per_workload}
    rows = []
    for k in standing.order:
        entry = s.entries[k]

        def in_intervals(metric: str, k: int = k) -> Cell:
            return number_cell(mean[metric][k] / s.interval_s)

        cells = (
            Cell(marked(entry.scheduler, s.oracles), title=entry.command),
            Cell(s.name),
            _rank(s.ranks[k]),
            Cell(entry.knows, title=", ".join(f"{key} {value}" for key, value in entry.estimate.items())),
            number_cell(ratios[k].estimate, 3, css=_verdict(ratios[k])),
            _bounds(ratios[k]),
            *map(in_intervals, ("mean_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s", "mean_queueing_s")),
            number_cell(mean["mean_bounded_slowdown"][k]),
            number_cell(mean["mean_rho"][k]),
            number_cell(float(s.values("max_rho")[k].max()), 1),
            number_cell(100 * mean["unfair_share"][k], 1, unit=" %"),
            number_cell(100 * mean["gpu_utilisation"][k], 1, unit=" %"),
            number_cell(mean["gpu_hours"][k], 1),
            number_cell(mean["gpu_efficiency"][k], 3),
            number_cell(mean["goodput"][k]),
            number_cell(mean["mean_resizes"][k], 1),
            number_cell(mean["mean_paused_intervals"][k]),
            _zero_wanted(float(s.values("num_unfinished")[k].sum())),
            _zero_wanted(float(s.values("num_illegal")[k].sum())),
            number_cell(entry.timing["ms_per_decision"], 4),
            number_cell(entry.timing["cpu_ms_per_episode"], 1),
            number_cell(s.num_workloads, 0),
        )
        rows.append(Row(cells, {"scenario": s.name}))
    return rows


def _set_aside_table(board: Board) -> Table:
    rows = [Row((item.name, item.reason)) for item in board.set_aside]
    return Table("aside", "Entries and files that are not compared", (Column("entry"), Column("reason")), rows)


def _data(board: Board) -> dict[str, Any]:
    """What the page's script draws: per scenario, and over all, ratios, wins and quantiles of JCT."""
    views = []
    if board.overall is not None:
        views.append(_view(OVERALL, board, board.overall, board.overall_wins, board.overall_ranks, None))
    views += [_view(s.name, board, s.standing(), s.wins, s.ranks, s) for s in board.scenarios]
    return {"reference": board.reference, "levels": list(QUANTILE_LEVELS), "views": views}


def _view(
    name: str,
    board: Board,
    standing: Standing,
    wins: Any,
    ranks: Sequence[RankRange | None],
    scenario: ScenarioBoard | None,
) -> dict[str, Any]:
    order = list(standing.order)
    has_reference = board.reference in standing.names
    ratios: Sequence[Interval] = standing.ratios(board.reference) if has_reference else ()
    view: dict[str, Any] = {
        "name": name,
        "labels": [standing.names[k] for k in order],
        "shown": [marked(standing.names[k], board.oracles) for k in order],
        "ranks": [None if ranks[k] is None else str(ranks[k]) for k in order],
        "ratios": [[_short(x) for x in ratios[k]] for k in order] if has_reference else [],
        "wins": [[round(100 * float(wins[i, j])) for j in order] for i in order],
        "better": [[int(standing.is_better[i, j]) for j in order] for i in order],
    }
    if scenario is not None:
        left = scenario_headroom(scenario, board.reference)
    else:
        left = next(iter(overall_headroom(board)), None)
    limits = {} if left is None else {role: left.ratio(role, REFERENCE) for role in (BOUND, SEARCH)}
    view["limits"] = {role: _short(ratio.estimate) for role, ratio in limits.items() if ratio is not None}
    if scenario is not None:
        view["quantiles"] = [
            [_short(q / scenario.interval_s) for q in scenario.entries[k].jct_quantiles_s] for k in order
        ]
    return view


def _short(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.4g}")


def _verdict(ratio: Interval) -> str:
    if ratio.high < 1:
        return "good"
    return "bad" if ratio.low > 1 else ""


def _rank(rank: RankRange | None) -> Cell:
    if rank is None:
        return number_cell(float("nan"), title="an oracle has no rank")
    return Cell(str(rank), rank.best + rank.worst / 1000)


def _bounds(ratio: Interval) -> Cell:
    if np.isnan(ratio.low):
        return number_cell(float("nan"), title="too few workloads for an interval")
    return Cell(f"{ratio.low:.3f} to {ratio.high:.3f}", ratio.low)


def _zero_wanted(value: float) -> Cell:
    return number_cell(value, 0, css="bad" if value else "")


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "." if paragraph else ""
