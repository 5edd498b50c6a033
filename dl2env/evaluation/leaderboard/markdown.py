"""The board as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dl2env.evaluation.leaderboard.board import Board, ScenarioBoard, interval_text

HOW_TO_READ = (
    "Ratios are of mean job completion time (JCT) to that of {reference} on the same workloads, below 1 is better; "
    "over scenarios their geometric mean, in brackets 95 % intervals (paired bootstrap over workloads). Two schedulers "
    "tie when the interval of their paired difference includes none, so a rank is a range. p99 ratio and worst rho "
    "(JCT over the time the job would take alone in its fair share of the cluster) tell whether a mean was won at the "
    "expense of some jobs. Unfinished jobs count with the time until truncation and what their remaining work takes at "
    "best; illegal actions should be 0. Intervals cover the choice of workloads, not the training of learned "
    "schedulers, and are not corrected for the number of comparisons."
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
        parts.append("\n".join(f"- {notice}" for notice in board.notices))
    parts += _headline(board)
    if board.with_reference:
        parts += ["## JCT ratio by scenario", _ratios(board)]
    for scenario in board.scenarios:
        parts += [f"### {scenario.name}", _caption(scenario), _details(board, scenario)]
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
                str(overall.ranks[k]),
                label,
                interval_text(ratios[k]),
                f"{board.geometric_ratio(label, 'p99_jct_s'):.3f}",
                f"{board.over_scenarios(label, 'max_rho', 'max'):.1f}",
                f"{100 * board.over_scenarios(label, 'unfair_share'):.1f} %",
                f"{board.over_scenarios(label, 'num_unfinished', 'sum'):.0f}",
                f"{board.over_scenarios(label, 'num_illegal', 'sum'):.0f}",
            ]
        )
    head = ["rank", "scheduler", "JCT ratio", "p99 ratio", "worst rho", "unfair", "unfinished", "illegal"]
    text = [f"## Overall, {len(board.headline_scenarios)} scenarios", _table(head, rows, numeric=range(2, 8))]
    partial = [f"{label} (lacks {', '.join(board.missing(label))})" for label in board.labels if board.missing(label)]
    if partial:
        text.append(f"Not ranked overall: {'; '.join(partial)}.")
    return text


def _ratios(board: Board) -> str:
    shown = board.with_reference
    ratios = {s.name: dict(zip(s.labels, s.standing().ratios(board.reference), strict=True)) for s in shown}
    ranked = [board.overall.names[k] for k in board.overall.order] if board.overall is not None else []
    labels = [*ranked, *(label for label in board.labels if label not in ranked)]
    rows = []
    for label in labels:
        cells = [f"{ratios[s.name][label].estimate:.3f}" if label in s.labels else "–" for s in shown]
        rows.append([label, *cells])
    return _table(["scheduler", *(s.name for s in shown)], rows, numeric=range(1, len(shown) + 1))


def _caption(scenario: ScenarioBoard) -> str:
    count = scenario.num_workloads
    return f"{count} workload{'s' if count > 1 else ''}; JCT in intervals of {scenario.interval_s:g} s."


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
                str(standing.ranks[k]),
                standing.names[k],
                *(f"{means[n][k] / scenario.interval_s:.2f}" for n in list(means)[:4]),
                interval_text(ratios[k]) if ratios is not None else "–",
                f"{100 * means['gpu_utilisation'][k]:.1f} %",
                f"{means['mean_resizes'][k]:.1f}",
                f"{np.max(scenario.values('max_rho')[k]):.1f}",
                f"{scenario.values('num_unfinished')[k].sum():.0f}",
            ]
        )
    head = [
        "rank",
        "scheduler",
        "JCT",
        "p95",
        "p99",
        "queueing",
        "ratio",
        "GPU use",
        "resizes",
        "worst rho",
        "unfinished",
    ]
    return _table(head, rows, numeric=range(2, len(head)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    right = set(numeric)
    lines = [head, ["---:" if k in right else "---" for k in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
