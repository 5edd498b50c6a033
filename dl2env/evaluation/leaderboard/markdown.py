"""The board as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from dl2env.evaluation.leaderboard.board import ORACLE_NOTE, Board, ScenarioBoard, interval_text, marked
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
from dl2env.evaluation.ranking import RankRange
from dl2env.evaluation.statistics import Interval

HOW_TO_READ = (
    "Ratios are of mean job completion time (JCT) to that of {reference} on the same workloads, below 1 is better; "
    "over scenarios their geometric mean, in brackets 95 % intervals (paired bootstrap over workloads). Two schedulers "
    "tie when the interval of their paired difference includes none, so a rank is a range. p99 ratio and worst rho "
    "(JCT over the time the job would take alone in its fair share of the cluster) tell whether a mean was won at the "
    "expense of some jobs. Unfinished jobs count with the time until truncation and what their remaining work takes at "
    "best; illegal actions should be 0. Intervals cover the choice of workloads, not the training of learned "
    "schedulers, and are not corrected for the number of comparisons. The column 'knows' has what a scheduler was told "
    "about job speeds (exact, fitted online, or noisy), whether or not its rule uses them; CPU ms is per episode, "
    "simulation included, on the machine that ran it."
)


def board_markdown(board: Board) -> str:
    """The whole page."""
    parts = [
        "# Leaderboard",
        "Made from the entries by `scripts/leaderboard.py`; do not edit. "
        "`leaderboard.html` beside this file sorts, filters and draws; "
        "how to add a scheduler: `docs/leaderboard_howto.md`.",
        HOW_TO_READ.format(reference=board.reference),
    ]
    if board.notices:
        parts.append("\n".join(f"- {_escaped(notice)}" for notice in board.notices))
    if board.oracles:
        parts.append(ORACLE_NOTE)
    parts += _headline(board)
    parts += _left_to_win(board)
    if board.with_reference:
        parts += ["## JCT ratio by scenario", _ratios(board)]
    for scenario in board.scenarios:
        parts += [f"### {_escaped(scenario.name)}", _caption(board, scenario), _details(board, scenario)]
    if board.set_aside:
        rows = [[item.name, item.reason] for item in board.set_aside]
        parts += ["## Not compared", _table(["entry", "reason"], rows)]
    return "\n\n".join(parts) + "\n"


def _headline(board: Board) -> list[str]:
    overall = board.overall
    if overall is None:
        return [f"## Overall\n\nNo scenario has a result of {board.reference}, so there is no overall ranking."]
    rows = []
    ratios = overall.ratios(board.reference)
    for k in overall.order:
        label = overall.names[k]
        rows.append(
            [
                _rank(board.overall_ranks[k]),
                marked(label, board.oracles),
                interval_text(ratios[k]),
                f"{board.geometric_ratio(label, 'p99_jct_s'):.3f}",
                f"{board.over_scenarios(label, 'max_rho', 'max'):.1f}",
                f"{100 * board.over_scenarios(label, 'unfair_share'):.1f} %",
                f"{board.over_scenarios(label, 'num_unfinished', 'sum'):.0f}",
                f"{board.over_scenarios(label, 'num_illegal', 'sum'):.0f}",
            ]
        )
    head = ["rank", "scheduler", "JCT ratio", "p99 ratio", "worst rho", "unfair", "unfinished", "illegal"]
    count = len(board.headline_scenarios)
    text = [f"## Overall, {count} scenario{'s' if count > 1 else ''}", _table(head, rows, numeric=range(2, 8))]
    partial = [f"{label} (lacks {', '.join(board.missing(label))})" for label in board.labels if board.missing(label)]
    if partial:
        text.append(_escaped(f"Not ranked overall: {'; '.join(partial)}."))
    return text


def _left_to_win(board: Board) -> list[str]:
    found = [*overall_headroom(board), *all_headroom(board)]
    if not found:
        return []
    head = [
        "scenario",
        "workloads",
        "bound",
        "search",
        "best",
        "its JCT",
        board.reference,
        "best / search",
        "best / bound",
    ]
    rows = [
        [
            item.name,
            str(item.num_workloads),
            *(_number(item.mean_intervals(role)) for role in (BOUND, SEARCH)),
            item.best,
            *(_number(item.mean_intervals(role)) for role in (BEST, REFERENCE)),
            *(_interval(item.ratio(BEST, role)) for role in (SEARCH, BOUND)),
        ]
        for item in found
    ]
    notes = "\n".join(f"- {_escaped(item.name)}: {item.note}." for item in found if item.note)
    text = [
        "## What is left to win",
        f"{how_to_read(board)} All on the search's workloads, mean JCT in scheduling intervals; best is the scheduler "
        "with the smallest mean JCT on all workloads of the scenario. Rows over all scenarios are geometric means over "
        "those with several searched workloads.",
        _table(head, rows, numeric=(1, 2, 3, 5, 6, 7, 8)),
    ]
    return [*text, notes] if notes else text


def _ratios(board: Board) -> str:
    shown = board.with_reference
    ratios = {s.name: dict(zip(s.labels, s.standing().ratios(board.reference), strict=True)) for s in shown}
    ranked = [board.overall.names[k] for k in board.overall.order] if board.overall is not None else []
    labels = [*ranked, *(label for label in board.labels if label not in ranked)]
    rows = []
    for label in labels:
        cells = [f"{ratios[s.name][label].estimate:.3f}" if label in s.labels else "–" for s in shown]
        rows.append([marked(label, board.oracles), *cells])
    return _table(["scheduler", *(s.name for s in shown)], rows, numeric=range(1, len(shown) + 1))


def _caption(board: Board, scenario: ScenarioBoard) -> str:
    count = scenario.num_workloads
    text = f"{count} workload{'s' if count > 1 else ''}; JCT in intervals of {scenario.interval_s:g} s."
    left = scenario_headroom(scenario, board.reference)
    return text if left is None else f"{text} {_escaped(_sentence(left, board.reference))}"


def _sentence(left: Headroom, reference: str) -> str:
    count = left.num_workloads
    named = ((BOUND, "lower bound"), (SEARCH, "search"), (BEST, left.best), (REFERENCE, reference))
    means = [(name, left.mean_intervals(role)) for role, name in named if (role, name) != (REFERENCE, left.best)]
    parts = [f"{name} {value:.2f}" for name, value in means if value is not None]
    ratios = [(name, left.ratio(BEST, role)) for role, name in ((SEARCH, "search"), (BOUND, "bound"))]
    over = [f"{interval_text(ratio)} of the {name}" for name, ratio in ratios if ratio is not None]
    of_search = "the search's" if SEARCH in left.standing.names else "the bound's"
    which = f"{of_search} {count} workloads" if count > 1 else f"{of_search} workload"
    return f"On {which}: {', '.join(parts)}; {left.best} is at {' and '.join(over)}."


def _details(board: Board, scenario: ScenarioBoard) -> str:
    standing = scenario.standing()
    has_reference = board.reference in scenario.labels
    ratios = standing.ratios(board.reference) if has_reference else None
    means = {
        name: scenario.values(name).mean(axis=1)
        for name in ("mean_jct_s", "p95_jct_s", "p99_jct_s", "mean_queueing_s", "gpu_utilisation", "mean_resizes")
    }
    rows = []
    for k in standing.order:
        rows.append(
            [
                _rank(scenario.ranks[k]),
                marked(standing.names[k], scenario.oracles),
                scenario.entries[k].knows,
                *(f"{means[n][k] / scenario.interval_s:.2f}" for n in list(means)[:4]),
                interval_text(ratios[k]) if ratios is not None else "–",
                f"{100 * means['gpu_utilisation'][k]:.1f} %",
                f"{means['mean_resizes'][k]:.1f}",
                f"{np.max(scenario.values('max_rho')[k]):.1f}",
                f"{scenario.values('num_unfinished')[k].sum():.0f}",
                f"{scenario.entries[k].timing['cpu_ms_per_episode']:.3g}",
            ]
        )
    head = [
        "rank",
        "scheduler",
        "knows",
        "JCT",
        "p95",
        "p99",
        "queueing",
        "ratio",
        "GPU use",
        "resizes",
        "worst rho",
        "unfinished",
        "CPU ms",
    ]
    return _table(head, rows, numeric=range(3, len(head)))


def _rank(rank: RankRange | None) -> str:
    return "–" if rank is None else str(rank)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else interval_text(interval)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    right = set(numeric)
    lines = [head, ["---:" if k in right else "---" for k in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)


def _escaped(text: str) -> str:
    """A text on one line in which no character means anything to Markdown or HTML."""
    text = re.sub(r"([\\`*|]|\](?=\())", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(text.split())
