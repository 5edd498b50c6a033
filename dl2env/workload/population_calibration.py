"""Fits the free parameters of a synthetic population to published collective figures.

The objective is the sum of squared errors of the figures, in units of their tolerances and weighted by the marks of
confidence (`dl2env.workload.population_figures.figure_residuals`), plus a small penalty that keeps parameters that the
figures say little about near where they start. All candidates are evaluated on the same random numbers, so the
objective changes by the parameters only. A population that meets the figures is circular as evidence for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.speed.hardware import load_hardware
from dl2env.workload.population import draw_variates, generate_population, shape_population
from dl2env.workload.population_config import PopulationConfig
from dl2env.workload.population_figures import (
    FigureComparison,
    PublishedFigure,
    compare_figures,
    figure_residuals,
    load_published_figures,
)

FloatArray = NDArray[np.float64]

SIGNIFICANT_DIGITS = 4
_STEP = 0.1  # widths


@dataclass(frozen=True)
class FreeParameter:
    """A parameter that the calibration moves.

    Attributes:
        key: Dotted key of `PopulationConfig`.
        scale: Where it is moved: `log` (positive values), `logit` (shares) or `linear`.
        width: Typical change on that scale, the unit of the penalty and of the search.
        figures: The figures that it answers to, for the record of sources.
        low, high: Bounds of the value.
    """

    key: str
    scale: Literal["log", "logit", "linear"]
    width: float
    figures: str
    low: float
    high: float

    def to_scale(self, value: float) -> float:
        """The value on the scale."""
        if self.scale == "linear":
            return value
        return float(np.log(value) if self.scale == "log" else np.log(value / (1 - value)))

    def from_scale(self, x: float) -> float:
        """The inverse of `to_scale`."""
        if self.scale == "linear":
            return x
        return float(np.exp(x) if self.scale == "log" else 1 / (1 + np.exp(-x)))


def _shares(kind: str, what: str, figures: str) -> tuple[FreeParameter, FreeParameter]:
    where = f"time_shares.{kind}.{what}"
    return (
        FreeParameter(f"{where}_median", "logit", 0.5, figures, 0.002, 0.998),
        FreeParameter(f"{where}_sigma", "log", 0.3, figures, 0.2, 3.0),
    )


FREE_PARAMETERS: tuple[FreeParameter, ...] = (
    FreeParameter("composition.ps_size_median", "log", 0.1, "share of PS/Worker jobs above 8 cNodes", 4.0, 20.0),
    FreeParameter("composition.ps_size_shape", "log", 0.1, "shares of jobs and cNodes above 128 cNodes", 0.6, 3.0),
    FreeParameter("composition.ps_size_largest", "log", 0.3, "cNodes in PS/Worker jobs and above 128", 150.0, 2000.0),
    FreeParameter("composition.heavy_share", "logit", 0.5, "gains on AllReduce-Local, 100 Gb/s speedup", 0.3, 0.97),
    FreeParameter(
        "composition.heavy_size_slope", "linear", 0.3, "communication share by cNodes and by jobs", -1.0, 3.0
    ),
    *_shares("one_cnode", "input", "input shares of 1w1g jobs"),
    FreeParameter("time_shares.one_cnode.memory_median", "logit", 0.3, "computation by kind of kernel", 0.05, 0.95),
    FreeParameter("time_shares.local.communication_median", "logit", 0.5, "communication share by cNodes", 0.05, 0.95),
    FreeParameter("time_shares.local.input_median", "logit", 0.5, "input share of distributed jobs", 0.002, 0.9),
    FreeParameter("time_shares.local.memory_median", "logit", 0.3, "computation by kind of kernel", 0.05, 0.95),
    *_shares("ps_light", "communication", "gains on AllReduce-Local, 100 Gb/s speedup"),
    *_shares("ps_light", "input", "gains on AllReduce-Local, input share of distributed jobs"),
    FreeParameter("time_shares.ps_light.memory_median", "logit", 0.3, "computation by kind of kernel", 0.05, 0.95),
    *_shares("ps_heavy", "communication", "PS/Worker jobs above 80 % communication, 100 Gb/s speedup"),
    *_shares("ps_heavy", "input", "gains on AllReduce-Local, input share of distributed jobs"),
    FreeParameter("time_shares.ps_heavy.memory_median", "logit", 0.3, "computation by kind of kernel", 0.05, 0.95),
    FreeParameter("features.embedding_median_bytes", "log", 0.5, "share of jobs with weights below 10 GB", 1e8, 9e10),
)
"""What is fitted; all else is assumed or published, see the sources in the start file."""


@dataclass(frozen=True)
class Calibration:
    """Outcome of a calibration.

    Attributes:
        config: The fitted configuration, values rounded to four digits.
        objective_before, objective_after: Objective at the start and at `config`, on the jobs of the fit.
        num_evaluations: Populations evaluated.
        measured: Figures of `config` on fresh jobs, by key.
        num_check_jobs: How many those are.
    """

    config: PopulationConfig
    objective_before: float
    objective_after: float
    num_evaluations: int
    measured: Mapping[str, float]
    num_check_jobs: int

    def comparisons(self, figures: Mapping[str, PublishedFigure] | None = None) -> list[FigureComparison]:
        """Every published figure beside the population's."""
        return compare_figures(self.measured, figures)


class Objective:
    """Residuals of configurations as a function of the free parameters, on fixed random numbers.

    Args:
        start: Where the parameters start and what the penalty pulls to.
        num_jobs: Jobs per evaluation.
        seed: Of the random numbers.
        parameters: What is free.
        figures: What is aimed at.
        penalty: Weight of a squared move of one width.
    """

    def __init__(
        self,
        start: PopulationConfig,
        num_jobs: int,
        seed: int,
        parameters: Sequence[FreeParameter] = FREE_PARAMETERS,
        figures: Mapping[str, PublishedFigure] | None = None,
        penalty: float = 0.01,
    ) -> None:
        self.start, self.parameters, self.penalty = start, tuple(parameters), penalty
        self.figures = load_published_figures() if figures is None else figures
        self.num_evaluations = 0
        self._variates = draw_variates(num_jobs, np.random.default_rng(seed))
        self._hardware = load_hardware(start.features.hardware)
        for parameter in self.parameters:
            value = start.value(parameter.key)
            if not parameter.low < value < parameter.high:
                raise ConfigError(
                    f"{start.name}: {parameter.key}={value} cannot start a calibration; "
                    f"choose a value between {parameter.low:g} and {parameter.high:g}"
                )
        self._origin = np.array([p.to_scale(start.value(p.key)) for p in self.parameters])
        self._width = np.array([p.width for p in self.parameters])

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the moves, in widths."""
        low, high = (np.array([p.to_scale(getattr(p, side)) for p in self.parameters]) for side in ("low", "high"))
        return (low - self._origin) / self._width, (high - self._origin) / self._width

    def config(self, moves: FloatArray) -> PopulationConfig:
        """The configuration that lies that many widths from the start; moves have shape (parameters,)."""
        places = self._origin + self._width * moves
        values = {p.key: p.from_scale(float(x)) for p, x in zip(self.parameters, places, strict=True)}
        return self.start.with_values(values)

    def moves(self, config: PopulationConfig) -> FloatArray:
        """The inverse of `config`."""
        places = np.array([p.to_scale(config.value(p.key)) for p in self.parameters])
        return np.asarray((places - self._origin) / self._width)

    def residuals(self, moves: FloatArray) -> FloatArray:
        """Errors of the figures, then the penalty of each parameter; the objective is the sum of their squares."""
        self.num_evaluations += 1
        population = shape_population(self.config(moves), self._variates)
        measured = population.figures(self._hardware, gpu=self.start.features.gpu)
        return np.concatenate([figure_residuals(measured, self.figures.values()), np.sqrt(self.penalty) * moves])

    def jacobian(self, moves: FloatArray) -> FloatArray:
        """Derivatives of the residuals by the moves, (residuals, parameters), over a fifth of a width.

        Shares of jobs change by whole jobs, so the step must be large enough to move many of them.
        """
        low, high = self.bounds()
        columns = []
        for k in range(moves.size):
            below, above = moves.copy(), moves.copy()
            below[k], above[k] = max(moves[k] - _STEP, low[k]), min(moves[k] + _STEP, high[k])
            columns.append((self.residuals(above) - self.residuals(below)) / (above[k] - below[k]))
        return np.stack(columns, axis=1)

    def value(self, moves: FloatArray) -> float:
        """The objective."""
        return float(np.sum(self.residuals(moves) ** 2))


def calibrate_population(
    start: PopulationConfig,
    *,
    num_jobs: int = 100_000,
    num_check_jobs: int = 1_000_000,
    seed: int = 0,
    max_iterations: int = 40,
    name: str = "pai_synthetic",
    **options: Any,
) -> Calibration:
    """Fits the free parameters of a configuration to the published figures.

    Nonlinear least squares within bounds. Deterministic: the same arguments give the same configuration.

    Args:
        start: Where to start.
        num_jobs: Jobs per evaluation.
        num_check_jobs: Fresh jobs on which the figures of the result are measured.
        seed: Of all random numbers.
        max_iterations: Iterations at most, each of two evaluations per free parameter and one more.
        name: Name of the result.
        options: Of `Objective`.

    Raises:
        ConfigError: SciPy is missing, or the start lies outside the bounds of a parameter.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise ConfigError("calibration needs scipy; install dl2env with the extra train") from error
    objective = Objective(start, num_jobs, seed, **options)
    before = objective.value(np.zeros(len(objective.parameters)))
    # Derivatives are ours: SciPy's steps are relative to the moves, which start at 0.
    found = least_squares(
        objective.residuals,
        np.zeros(len(objective.parameters)),
        jac=objective.jacobian,
        bounds=objective.bounds(),
        ftol=1e-4,
        xtol=1e-4,
        max_nfev=max_iterations,
    )
    config = _rounded(objective.config(found.x), objective.parameters, name)
    check = generate_population(config, num_check_jobs, np.random.default_rng([seed, 1]))
    measured = check.figures(load_hardware(config.features.hardware), gpu=config.features.gpu)
    return Calibration(
        config=config,
        objective_before=before,
        objective_after=objective.value(objective.moves(config)),
        num_evaluations=objective.num_evaluations,
        measured=measured,
        num_check_jobs=num_check_jobs,
    )


def _rounded(config: PopulationConfig, parameters: Sequence[FreeParameter], name: str) -> PopulationConfig:
    values = {p.key: float(f"{config.value(p.key):.{SIGNIFICANT_DIGITS}g}") for p in parameters}
    sources = dict(config.sources) | {p.key: f"calibrated: {p.figures}" for p in parameters}
    description = "Synthetic jobs, calibrated to collective figures of the Alibaba-PAI characterization; not PAI data"
    return dataclasses.replace(config.with_values(values), name=name, description=description, sources=sources)


HEADINGS = ("figure", "target", "achieved", "difference", "met", "weight", "mark")
"""Columns of `table_rows`."""


def table_rows(comparisons: Sequence[FigureComparison]) -> list[tuple[str, ...]]:
    """One row per figure: key, target, achieved, difference, whether it is met, weight in the objective, mark.

    A weight of "-" marks a figure that the calibration does not aim at.
    """
    signs = {"equal": "", "above": "> ", "below": "<= "}
    rows: list[tuple[str, ...]] = []
    for it in comparisons:
        figure = it.figure
        rows.append(
            (
                figure.key,
                f"{signs[figure.relation]}{figure.value:.3f}",
                "-" if it.measured is None else f"{it.measured:.3f}",
                "-" if it.difference is None else f"{it.difference:+.3f}",
                "yes" if it.is_met else "no",
                f"{figure.weight:g}" if figure.weight else "-",
                figure.mark,
            )
        )
    return rows


def format_table(comparisons: Sequence[FigureComparison]) -> str:
    """`table_rows` as text with headings, and what was missed."""
    rows = [HEADINGS, *table_rows(comparisons)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADINGS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([*cells, row[-1]]))
    missed = [it.figure.key for it in comparisons if it.figure.weight and not it.is_met]
    others = [it.figure.key for it in comparisons if not it.figure.weight and not it.is_met]
    lines.append(f"targets missed: {', '.join(missed) or 'none'}")
    lines.append(f"others missed: {', '.join(others) or 'none'}")
    return "\n".join(lines)


def toml_header(result: Calibration, command: str) -> str:
    """What the file of a calibrated configuration says at its top."""
    table = format_table(result.comparisons())
    return (
        "Parameters of a SYNTHETIC population of training jobs: no job of it is PAI data.\n"
        f"Written by: {command}\n"
        "Do not edit by hand. Calibrated so that collective figures of the Alibaba-PAI characterization (Wang et al.,\n"
        "IISWC 2019, arXiv 1910.05930) hold as well as they can together; that they hold is no evidence for them.\n"
        "What each parameter means: dl2env/workload/population_config.py; the figures: published_figures.toml.\n"
        "\n"
        f"Objective {result.objective_before:.3f} before, {result.objective_after:.3f} after; the figures on "
        f"{result.num_check_jobs} fresh jobs:\n\n{table}"
    )
