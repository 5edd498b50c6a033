"""A fit as tables, for the terminal and for the HTML page alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl2env.evaluation.html_page import Cell, Column, Row, Table, number_cell
from dl2env.evaluation.workload_fit.comparison import QUANTITIES, Comparison
from dl2env.evaluation.workload_fit.findings import WorkloadFit

_KINDS = {"ks": "KS", "wasserstein": "W"}


def distances_table(found: WorkloadFit) -> Table:
    """Distances of drawn from recorded jobs."""
    columns = [
        Column("distance"),
        Column("in sample", "all jobs, drawn from a fit of all", is_numeric=True),
        Column("least to largest", "of the draws"),
        Column(
            "Poisson, log-normal", "what one gets without a calibration: same rate, mean and spread", is_numeric=True
        ),
    ]
    held_out = found.held_out
    if held_out is not None:
        columns += [
            Column("held out", "the last part, drawn from a fit of the first", is_numeric=True),
            Column("least to largest ", "of the draws"),
            Column("last part from first", "of the trace itself, without a model", is_numeric=True),
        ]
    rows = []
    for quantity in QUANTITIES:
        for kind, word in _KINDS.items():
            cells: list[Cell | str] = [f"{quantity}: {word}", *_spread_cells(found.in_sample, kind, quantity)]
            cells.append(number_cell(found.plain.spread(kind, quantity)[0], 3))
            if held_out is not None:
                cells += _spread_cells(held_out.comparison, kind, quantity)
                cells.append(number_cell(getattr(held_out.drift, kind)[quantity], 3))
            rows.append(Row(cells))
    return Table("distances", "Distances of drawn from recorded jobs, mean of the draws", columns, rows)


def _spread_cells(comparison: Comparison, kind: str, quantity: str) -> list[Cell | str]:
    mean, low, high = comparison.spread(kind, quantity)
    return [number_cell(mean, 3), f"{low:.3f} to {high:.3f}"]


def figures_table(found: WorkloadFit) -> Table:
    """Figures of recorded and drawn jobs."""
    columns = [
        Column("figure"),
        Column("recorded", is_numeric=True),
        Column("drawn", "mean of the draws", is_numeric=True),
        Column("least to largest", "of the draws"),
        Column("Poisson, log-normal", is_numeric=True),
    ]
    held_out = found.held_out
    if held_out is not None:
        columns += [
            Column("recorded, last part", is_numeric=True),
            Column("drawn, held out", is_numeric=True),
            Column("least to largest ", "of the draws"),
        ]
    rows = []
    for name, value in found.in_sample.figures.items():
        cells: list[Cell | str] = [name, _figure(value), *_figure_cells(found.in_sample, name)]
        cells.append(_figure(found.plain.figure_spread(name)[0]))
        if held_out is not None:
            cells += [_figure(held_out.comparison.figures[name]), *_figure_cells(held_out.comparison, name)]
        rows.append(Row(cells))
    return Table("figures", "What no single distribution shows", columns, rows)


def _figure_cells(comparison: Comparison, name: str) -> list[Cell | str]:
    mean, low, high = comparison.figure_spread(name)
    return [_figure(mean), "–" if math.isnan(low) else f"{low:,.4g} to {high:,.4g}"]


def _figure(value: float) -> Cell:
    return Cell("–" if math.isnan(value) else f"{value:,.4g}", value)


def levels_table(found: WorkloadFit) -> Table:
    """Numbers of levels that were tried."""
    chosen = len(found.fit.calibration.arrivals.levels)
    rows = [
        Row((f"{count}{' (taken)' if count == chosen else ''}", *(number_cell(x, 3) for x in values)))
        for count, values in found.fit.arrivals.candidates.items()
    ]
    columns = (
        Column("levels"),
        Column("error of log g", "root mean square, in units of its error", is_numeric=True),
        Column("KS of times between arrivals", is_numeric=True),
        Column("score", "the lowest is taken", is_numeric=True),
    )
    return Table("levels", "Time scales of busy and calm", columns, rows)


def parameters_table(found: WorkloadFit) -> Table:
    """The calibration in words."""
    calibration, arrivals = found.fit.calibration, found.fit.arrivals
    model, repeats = calibration.arrivals, calibration.repeats
    rows = [
        Row(("jobs per day", f"{model.jobs_per_day:,.4g}")),
        Row(("daily cycle", f"{arrivals.harmonics} harmonics, {_range(model.hour_of_day)}")),
        Row(("weekly cycle", f"{arrivals.days}, {_range(model.day_of_week)}")),
        *(
            Row((f"level {k + 1}", f"variance {level.variance:g}, drawn anew after {_time(level.time_s)}"))
            for k, level in enumerate(model.levels)
        ),
        Row(
            (
                "repeats",
                "none"
                if repeats is None
                else f"within {repeats.within_s:g} s, share {repeats.share:g}, correlation {repeats.correlation:g}",
            )
        ),
        Row(("classes of GPUs", str(len(calibration.gpus)))),
        *(
            Row((f"durations, {model.name.replace('_', ' ')}", _kind(found, model.name)))
            for model in calibration.durations
        ),
    ]
    return Table("parameters", f"Calibration {calibration.name}", (Column("part"), Column("fitted")), rows)


def _kind(found: WorkloadFit, name: str) -> str:
    model = next(m for m in found.fit.calibration.durations if m.name == name)
    size = len(model.probabilities) or len(model.shares)
    tried = ", ".join(f"{kind} {error:g}" for kind, error in found.fit.sizes.errors[name].items())
    return f"{size} {'points' if model.kind == 'quantiles' else 'log-normals'}; cross-validated W: {tried}"


def _range(values: Sequence[float]) -> str:
    return f"relative rates {min(values):.2f} to {max(values):.2f}"


def _time(seconds: float) -> str:
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def all_tables(found: WorkloadFit) -> list[Table]:
    """All of them, in the order of the report."""
    return [parameters_table(found), levels_table(found), distances_table(found), figures_table(found)]
