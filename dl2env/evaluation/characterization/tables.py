"""Findings as tables, for the terminal and for the HTML page alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dl2env.evaluation.characterization.findings import LABELS, Characterization, FigureResult
from dl2env.evaluation.html_page import Cell, Column, Row, Table, number_cell
from dl2env.speed.characterization import PARTS
from dl2env.speed.what_if import QUANTITIES, most_sensitive
from dl2env.workload.population_figures import PublishedFigure

RATIOS = frozenset({"memory_over_compute_bound_least"})
"""Figures that are ratios although no speedup; all others are shares."""

PART_LABELS: Mapping[str, str] = {
    "input": "input (PCIe)",
    "compute_bound": "compute-bound (FLOP/s)",
    "memory_bound": "memory-bound (GPU memory)",
    "ethernet": "weights (Ethernet)",
    "pcie": "weights (PCIe)",
    "nvlink": "weights (NVLink)",
}
WEIGHTINGS: Mapping[str, str] = {"job": "each job once", "cnode": "weighted by cNodes"}
_SIGNS = {"equal": "", "above": "> ", "below": "≤ "}


def is_ratio(figure: PublishedFigure) -> bool:
    """Whether a figure is a ratio such as a speedup; else it is a share."""
    return figure.key.endswith("speedup") or figure.key in RATIOS


def show(value: float | None, ratio: bool, *, signed: bool = False) -> str:
    """A figure as text: a ratio as 1.70x, a share as 62.0 %, a dash for none; signed: a difference of two."""
    if value is None or math.isnan(value):
        return "–"
    if signed:
        return f"{value:+.2f}" if ratio else f"{100 * value:+.1f} points"
    return f"{value:.2f}x" if ratio else f"{100 * value:.1f} %"


def source(figure: PublishedFigure) -> str:
    """Where a published value comes from, with what its mark demands to be said."""
    if figure.mark == "recalled C":
        return "assumed (recalled C)"
    if figure.mark == "abstract":
        return "abstract"
    return f"{figure.wording} ({figure.mark})" if figure.mark.startswith("recalled") else figure.mark


def verdict(result: FigureResult, kind: str = "synthetic") -> Cell:
    """Whether a figure is met, with our range as a tooltip; for jobs of the user's (`file`), whether they are alike."""
    if result.is_met is None:
        return Cell("not in this population", css="muted")
    figure = result.figure
    width = "any" if math.isinf(figure.tolerance) else show(figure.tolerance, is_ratio(figure))
    title = f"our tolerance: {width} {'around' if figure.relation == 'equal' else figure.relation} the value"
    if kind == "file":  # nobody's jobs have to be those of another cluster: no colours
        return Cell("alike" if result.is_met else "different", title=title)
    return Cell("met", title=title, css="good") if result.is_met else Cell("not met", title=title, css="bad")


def figures_table(found: Characterization) -> Table:
    """Every published figure beside ours."""
    rows = []
    kind = found.population.provenance.kind
    for result in found.figures.values():
        figure = result.figure
        ratio = is_ratio(figure)
        title = ". ".join(text for text in (figure.note, figure.reason) if text)
        rows.append(
            Row(
                (
                    Cell(figure.text, title=title),
                    Cell(show(result.ours, ratio), _sortable(result.ours)),
                    Cell(f"{_SIGNS[figure.relation]}{show(figure.value, ratio)}", figure.value),
                    Cell(show(result.difference, ratio, signed=True), _sortable(result.difference)),
                    verdict(result, kind),
                    Cell(source(figure)),
                ),
                {"part": figure.part, "verdict": verdict(result, kind).text},
            )
        )
    columns = (
        Column("figure"),
        Column("ours", is_numeric=True),
        Column("published", "or what stands for it: see the source", is_numeric=True),
        Column("difference", is_numeric=True),
        Column("verdict", "within our tolerance?"),
        Column("source of the published value"),
    )
    parts = list(dict.fromkeys(result.figure.part for result in found.figures.values()))
    verdicts = list(dict.fromkeys(row.filters["verdict"] for row in rows))
    return Table(
        "figures",
        "Published figures and this population",
        columns,
        rows,
        is_searchable=True,
        filters={"part": parts, "verdict": verdicts},
    )


def _sortable(value: float | None) -> float:
    return math.nan if value is None else value


def classes_table(found: Characterization) -> Table:
    """Who is there."""
    columns = (
        Column("architecture"),
        Column("jobs", is_numeric=True, is_descending=True),
        Column("share of jobs", is_numeric=True, is_descending=True),
        Column("share of cNodes", is_numeric=True, is_descending=True),
        Column("mean cNodes", is_numeric=True, is_descending=True),
        Column("median cNodes", is_numeric=True, is_descending=True),
    )
    rows = [
        Row(
            (
                LABELS[view.name],
                number_cell(view.num_jobs, 0),
                percent_cell(view.job_share),
                percent_cell(view.cnode_share),
                number_cell(view.mean_cnodes, 1),
                number_cell(view.median_cnodes, 0),
            )
        )
        for view in found.classes
    ]
    return Table("classes", "Jobs by architecture (cNode: one GPU replica)", columns, rows)


def breakdown_table(found: Characterization, weighting: str) -> Table:
    """Mean share of a step by component and medium.

    Args:
        found: Findings.
        weighting: `job` or `cnode`.
    """
    parts = [part for part in PARTS if any(view.shares[weighting][part] > 0 for view in found.classes)]
    columns = (
        Column("architecture"),
        *(Column(PART_LABELS[part], is_numeric=True, is_descending=True) for part in parts),
        Column("all weights", "communication: weights and gradients on all media", is_numeric=True, is_descending=True),
    )
    rows = [
        Row(
            (
                LABELS[view.name],
                *(percent_cell(view.shares[weighting][part]) for part in parts),
                percent_cell(view.communication_share(weighting)),
            )
        )
        for view in found.classes
    ]
    caption = f"Mean share of a step, {WEIGHTINGS[weighting]}"
    return Table(f"breakdown-{weighting}", caption, columns, rows)


def ports_table(found: Characterization) -> Table:
    """What moving to another architecture would buy."""
    columns = (
        Column("from"),
        Column("to"),
        Column("overlap"),
        Column("gain per cNode", "share of jobs", is_numeric=True, is_descending=True),
        Column("gain throughput", "share of jobs", is_numeric=True, is_descending=True),
        *(Column(f"{name} per cNode", is_numeric=True, is_descending=True) for name in ("median", "mean", "largest")),
        *(Column(f"{name} throughput", is_numeric=True, is_descending=True) for name in ("median", "mean")),
    )
    rows = []
    for result in found.ports:
        single, throughput = result.gain.single_cnode, result.gain.throughput
        rows.append(
            Row(
                (
                    LABELS[result.source],
                    LABELS[result.target],
                    result.overlap,
                    percent_cell(result.single_share),
                    percent_cell(result.throughput_share),
                    *(number_cell(float(x), unit="x") for x in (np.median(single), single.mean(), single.max())),
                    *(number_cell(float(x), unit="x") for x in (np.median(throughput), throughput.mean())),
                )
            )
        )
    return Table("ports", "Speedup on another architecture (local ones hold at most 8 cNodes)", columns, rows)


def sensitivity_table(found: Characterization) -> Table:
    """Mean speedup of each class if one resource is faster."""
    columns = (
        Column("class"),
        *(Column(quantity.label, is_numeric=True, is_descending=True) for quantity in QUANTITIES.values()),
        Column("most sensitive to"),
    )
    rows = []
    for name, speedups in found.sensitivities.items():
        best = most_sensitive(speedups)
        rows.append(
            Row(
                (
                    LABELS[name],
                    *(
                        number_cell(value, 3, unit="x", css="good" if q == best else "")
                        for q, value in speedups.items()
                    ),
                    "nothing" if best is None else QUANTITIES[best].label,
                )
            )
        )
    caption = f"Mean speedup if one resource is {found.settings.sensitivity_factor:g} times as fast, each job once"
    return Table("sensitivity", caption, columns, rows)


def cases_table(found: Characterization) -> Table:
    """The conclusions under other assumptions."""
    columns = (
        Column("assumptions"),
        Column("communication", "mean share of a step, all jobs, weighted by cNodes", is_numeric=True),
        Column("of PS/Worker", "the same, PS/Worker jobs", is_numeric=True),
        Column("bound by it", "cNodes whose longest component is communication", is_numeric=True),
        Column("gain on local", "PS/Worker jobs that gain throughput on AllReduce-Local", is_numeric=True),
        Column("no gain per cNode", "PS/Worker jobs that gain nothing per cNode on AllReduce-Local", is_numeric=True),
        Column("100 Gb/s", "mean speedup of PS/Worker jobs from 25 to 100 Gb/s", is_numeric=True),
        Column("waits for", "resource that PS/Worker jobs are most sensitive to"),
        Column("it leads", "communication takes more time than computation and than input data, by cNodes"),
        Column("most gain", "more than half of PS/Worker jobs gain on AllReduce-Local"),
    )
    rows = []
    for case in found.cases:
        get = case.figures.get
        lead = case.leading_resource
        rows.append(
            Row(
                (
                    case.label,
                    percent_cell(get("communication_share_cnode")),
                    percent_cell(get("ps_worker_communication_share_cnode")),
                    percent_cell(case.bound_share),
                    percent_cell(get("allreduce_local_gain_share")),
                    percent_cell(get("allreduce_local_not_gaining_cnode_share")),
                    number_cell(get("ethernet_25_to_100_speedup", math.nan), unit="x"),
                    "–" if lead is None else QUANTITIES[lead].label,
                    _yes(case.communication_leads),
                    _yes(case.most_gain),
                )
            )
        )
    caption = (
        "The conclusions under other assumptions: communication share by cNodes, and whether it leads; PS/Worker jobs "
        "that gain throughput on AllReduce-Local, and whether most do; their speedup at 100 Gb/s, what they wait for"
    )
    return Table("cases", caption, columns, rows)


def _yes(holds: bool | None) -> Cell:
    if holds is None:
        return Cell("–", css="muted")
    return Cell("yes", css="good") if holds else Cell("no", css="bad")


def product_table(found: Characterization) -> Table:
    """Every combination of the hardware grid."""
    quantities = list(found.product[0][0].values)
    classes = list(found.product[0][1])
    columns = (
        Column("combination", is_numeric=True),
        *(Column(f"{QUANTITIES[q].label} ({QUANTITIES[q].unit})", is_numeric=True) for q in quantities),
        *(Column(LABELS[name], "mean speedup, each job once", is_numeric=True, is_descending=True) for name in classes),
    )
    rows = [
        Row(
            (
                number_cell(i + 1, 0),
                *(Cell(f"{variation.values[q] / QUANTITIES[q].scale:g}", variation.values[q]) for q in quantities),
                *(number_cell(means[name], unit="x") for name in classes),
            )
        )
        for i, (variation, means) in enumerate(found.product)
    ]
    caption = f"Mean speedup over base hardware for all {len(rows)} combinations of the grid"
    return Table("product", caption, columns, rows)


def choice_table(found: Characterization) -> Table:
    """The fastest architecture of the jobs of each class."""
    comparison = found.comparison
    columns = (
        Column("present architecture"),
        *(Column(LABELS[name], "share of jobs", is_numeric=True) for name in comparison.architectures),
    )
    rows = []
    for view in found.classes[:-1]:
        best = comparison.best[found.workloads.is_on(view.name)]
        counts = np.bincount(best, minlength=len(comparison.architectures))
        rows.append(Row((LABELS[view.name], *(percent_cell(float(count / best.size)) for count in counts))))
    limit = found.settings.gpu_memory_bytes
    what = "GPU memory not limited" if limit is None else f"weights within {limit / 1e9:g} GB of GPU memory"
    return Table("choice", f"Share of jobs by the architecture with the highest throughput, {what}", columns, rows)


def percent_cell(share: float | None) -> Cell:
    """A share as a cell; a dash for none."""
    return number_cell(math.nan if share is None else 100 * share, 1, unit=" %")


def all_tables(found: Characterization) -> Sequence[Table]:
    """Those that a terminal can show."""
    return (
        classes_table(found),
        breakdown_table(found, "job"),
        breakdown_table(found, "cnode"),
        ports_table(found),
        choice_table(found),
        sensitivity_table(found),
        cases_table(found),
        figures_table(found),
    )
