"""What a validation says: tables for the terminal and the content of `summary.json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.steps import repeat_error
from dl2env.evaluation.speed_validation.validation import (
    CATALOGUE_FIT,
    FOLDS,
    GROUPS,
    IN_SAMPLE,
    MODEL_LABELS,
    SCHEMES,
    UNFITTED,
    ApplicationResult,
    TableSetResult,
    fitted_constants,
    mean_error,
    worst_groups,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = "dl2env-speed-validation"
SCHEMA_VERSION = 1
SCHEME_LABELS = {
    IN_SAMPLE: "all data",
    FOLDS: "k-fold",
    GROUPS: "group out",
}
_SHORT_LABELS = {
    UNFITTED: "no fit",
    CATALOGUE_FIT: "fit file",
    "optimus": "Optimus",
    "fitted": "fitted",
    "ideal_overlap": "ideal",
    "partial_overlap": "partial*",
    "two_servers": "two*",
}
NOTES = """Mean absolute percentage error of the step time. Parameters are per application.
all data: tested on the data of the fit
k-fold: each configuration predicted from others
group out: each group of placements predicted from the other groups
repeats: spread of repeated measurements, which no model can predict
fit file: the catalogue's rates, on the data they were fitted to
* with terms that the simulator does not have"""
FEW_LABELS = {
    "optimus": "Optimus form",
    "fitted_alone": "analytic",
    "fitted": "analytic, catalogue for what is left open",
}


def percent(share: float) -> str:
    """A share as a cell of a table; a dash where there is none."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def largest_group(application: ApplicationResult) -> tuple[str, np.ndarray]:
    """Label of the group of the largest placements, and which steps are in it."""
    group = application.steps.groups()[-1]
    return group, np.asarray(application.steps.group == group)


def largest_group_error(result: TableSetResult, model: str) -> float:
    """Mean absolute relative error on the largest placements, predicted from all smaller ones."""
    errors = [r.errors(model, GROUPS)[largest_group(r)[1]] for r in result.applications if model in r.models]
    return mean_error(errors)


def print_report(results: Sequence[TableSetResult], console: Console | None = None) -> None:
    """Prints the tables of all results.

    Raises:
        ConfigError: rich is missing.
    """
    try:
        from rich.console import Console
    except ImportError as error:
        raise ConfigError("the report needs rich; install it with: pip install 'dl2env[train]'") from error
    console = console or Console()
    for result in results:
        for table in (_overall(result), _by_application(result), _worst(result), _few(result)):
            if table is not None:
                console.print(table)
    console.print(NOTES)


def _table(title: str, columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 else "right")
    return table


def _overall(result: TableSetResult) -> Table:
    count = sum(r.steps.size for r in result.applications)
    largest = ", ".join(sorted({largest_group(r)[0] for r in result.applications}))
    title = f"{result.label}: {count:,} steps of {len(result.applications)} applications, {result.hardware}"
    columns = ["model", "parameters", *SCHEME_LABELS.values(), f"{largest} out"]
    table = _table(title, columns)
    for model in result.models():
        numbers = sorted({r.models[model].num_parameters for r in result.applications if model in r.models})
        cells = [percent(result.error(model, scheme)) for scheme in SCHEMES]
        cells.append(percent(largest_group_error(result, model)))
        table.add_row(MODEL_LABELS[model], "-".join(map(str, numbers)) if numbers != [0] else "-", *cells)
    return table


def _by_application(result: TableSetResult) -> Table:
    models = result.models()
    table = _table(
        f"{result.label}: per application, k-fold",
        ["application", "steps", *(_SHORT_LABELS[m] for m in models), "repeats"],
    )
    for r in result.applications:
        cells = [percent(mean_error([r.errors(m, _scheme(m))])) if m in r.models else "-" for m in models]
        noise = repeat_error(r.steps)
        table.add_row(r.steps.name, f"{r.steps.size:,}", *cells, "-" if noise is None else percent(noise))
    table.add_row("all", "", *(percent(result.error(m, _scheme(m))) for m in models), "", style="bold")
    return table


def _scheme(model: str) -> str:
    return IN_SAMPLE if model == CATALOGUE_FIT else FOLDS


def _worst(result: TableSetResult) -> Table:
    table = _table(
        f"{result.label}: worst groups of '{MODEL_LABELS['fitted']}', k-fold",
        ["application", "group", "error", "signed", "90th percentile, all"],
    )
    for r in result.applications:
        high = float(np.nanpercentile(np.abs(r.errors("fitted", FOLDS)), 90))
        for group, error, bias in worst_groups(r)[:2]:
            table.add_row(r.steps.name, group, percent(error), f"{100 * bias:+.1f}", percent(high))
    return table


def _few(result: TableSetResult) -> Table | None:
    sizes = sorted(set.intersection(*(set(r.few) for r in result.applications)))
    if not sizes:
        return None
    table = _table(
        f"{result.label}: fitted to a few random measurements per application, error on all others",
        ["model", *(str(size) for size in sizes)],
    )
    for model, label in FEW_LABELS.items():
        table.add_row(label, *(percent(few_error(result, model, size)) for size in sizes))
    return table


def few_error(result: TableSetResult, model: str, size: int) -> float:
    """Mean over the applications of the median error after so many measurements."""
    return float(np.mean([r.few[size][model] for r in result.applications]))


def summary(results: Sequence[TableSetResult]) -> dict[str, Any]:
    """Content of `summary.json`: errors as fractions, constants in seconds per step of the job type's batch size."""
    return {result.name: _set_summary(result) for result in results}


def _set_summary(result: TableSetResult) -> dict[str, Any]:
    sizes = sorted(set.intersection(*(set(r.few) for r in result.applications)))
    return {
        "label": result.label,
        "hardware": result.hardware,
        "num_steps": sum(r.steps.size for r in result.applications),
        "mape": {
            model: {
                **{scheme: _number(result.error(model, scheme)) for scheme in SCHEMES},
                "largest_group": _number(largest_group_error(result, model)),
            }
            for model in result.models()
        },
        "few_measurements": {str(n): {m: _number(few_error(result, m, n)) for m in FEW_LABELS} for n in sizes},
        "applications": {r.steps.name: _application_summary(r) for r in result.applications},
    }


def _application_summary(result: ApplicationResult) -> dict[str, Any]:
    models = {}
    for name, model in result.models.items():
        entry: dict[str, Any] = {"num_parameters": model.num_parameters}
        for scheme in SCHEMES:
            errors = np.abs(result.errors(name, scheme))
            tested = errors[~np.isnan(errors)]
            entry[scheme] = _number(float(tested.mean())) if len(tested) else None
        if model.fit is not None:
            entry["constants"] = fitted_constants(result, name)
            entry["exponent"] = model.fit.exponent if math.isfinite(model.fit.exponent) else "infinite"
        models[name] = entry
    return {
        "num_steps": result.steps.size,
        "num_configurations": len(np.unique(result.steps.configuration)),
        "num_failed_runs_left_out": result.steps.num_failed,
        "repeat_error": repeat_error(result.steps),
        "models": models,
        "groups": [
            {"group": group, "mape": error, "mean_signed_error": bias} for group, error, bias in worst_groups(result)
        ],
        "few_measurements": {str(size): dict(errors) for size, errors in result.few.items()},
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
