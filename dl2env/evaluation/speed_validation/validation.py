"""Errors of the speed models on measured step times, on the data of the fit and on data left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.fitting import Loss, StepFit, fit_steps
from dl2env.evaluation.speed_validation.folds import Split, configuration_folds, group_folds, held_out
from dl2env.evaluation.speed_validation.forms import (
    Form,
    analytic_columns,
    analytic_constants,
    forms_of,
    unfitted,
)
from dl2env.evaluation.speed_validation.steps import FloatArray, MeasuredSteps
from dl2env.speed.hardware import Hardware
from dl2env.workload.job_types import FIT_FIELDS, JobType

IN_SAMPLE, FOLDS, GROUPS = SCHEMES = ("in_sample", "folds", "groups")
"""Fitted to all steps; k-fold over configurations; each group of configurations left out."""

UNFITTED, CATALOGUE_FIT = "unfitted", "catalogue_fit"
MODEL_LABELS = {
    UNFITTED: "analytic, no fit",
    CATALOGUE_FIT: "analytic, fit file",
    "optimus": "Optimus, fitted",
    "fitted": "analytic, fitted",
    "ideal_overlap": "ideal overlap",
    "partial_overlap": "partial overlap *",
    "two_servers": "and two servers *",
}
"""Names in tables; an asterisk marks terms that the simulator does not have. The fit file is the catalogue's: it counts
as fitted to these data, so it has no cross-validated error."""


@dataclass(frozen=True)
class ModelResult:
    """Predictions of one model for one application.

    Attributes:
        name: Key of `MODEL_LABELS`.
        num_parameters: Fitted numbers; 0 where nothing is fitted here.
        predicted: (n,) step seconds by scheme; NaN where a scheme does not test a step.
        fit: Fit to all steps, or None.
        terms: Names of the fitted constants.
    """

    name: str
    num_parameters: int
    predicted: Mapping[str, FloatArray]
    fit: StepFit | None = None
    terms: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApplicationResult:
    """Measurements of an application and what the models say of them.

    Attributes:
        steps: Measurements.
        models: Results by model.
        few: (size, model) -> median error where only so many measurements were taken, see `few_measurements`.
    """

    steps: MeasuredSteps
    models: Mapping[str, ModelResult]
    few: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def errors(self, model: str, scheme: str) -> FloatArray:
        """(n,) signed relative errors predicted / measured - 1; NaN where the scheme tests nothing."""
        return np.asarray(self.models[model].predicted[scheme] / self.steps.step_s - 1.0)


@dataclass(frozen=True)
class TableSetResult:
    """Results of all applications of one source of measurements.

    Attributes:
        name: Key in the summary and in file names.
        label: Title.
        hardware: Hardware and GPU that the unfitted model takes.
        applications: One entry each.
    """

    name: str
    label: str
    hardware: str
    applications: tuple[ApplicationResult, ...]

    def models(self) -> list[str]:
        """Models in the order of `MODEL_LABELS`."""
        return [name for name in MODEL_LABELS if any(name in result.models for result in self.applications)]

    def error(self, model: str, scheme: str) -> float:
        """Mean absolute relative error over all steps of all applications; NaN where there is none."""
        return mean_error([r.errors(model, scheme) for r in self.applications if model in r.models])


def mean_error(errors: Sequence[FloatArray]) -> float:
    """Mean of the absolute values that are not NaN, over all arrays."""
    values = np.abs(np.concatenate(errors)) if errors else np.zeros(0)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def validate(
    name: str,
    label: str,
    measurements: Sequence[MeasuredSteps],
    job_types: Sequence[JobType],
    hardware: Hardware,
    gpu: str,
    *,
    num_folds: int = 10,
    loss: Loss = "absolute",
    few_sizes: Sequence[int] = (),
    few_repeats: int = 20,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> TableSetResult:
    """Compares all models with the measurements of one source.

    Args:
        name: Key of the result.
        label: Title of the result.
        measurements: One entry per application.
        job_types: Catalogue; a type per application, with its fitted values if it has any.
        hardware: Where the steps were measured.
        gpu: GPU kind there.
        num_folds: Folds over the configurations of an application.
        loss: What the fits minimise.
        few_sizes: Numbers of measurements for `few_measurements`.
        few_repeats: Draws per number.
        seed: Seed of folds and draws.
        progress: Called with the name of each application before it is fitted.

    Raises:
        ConfigError: An application has no job type or too few configurations.
    """
    catalogue = {job_type.name: job_type for job_type in job_types}
    results = []
    for k, steps in enumerate(measurements):
        if steps.name not in catalogue:
            raise ConfigError(
                f"{label}: no job type {steps.name!r} in the catalogue, which has: {', '.join(catalogue)}; add its "
                "features there, or leave its measurements out"
            )
        if progress is not None:
            progress(steps.name)
        rng = np.random.default_rng([seed, k])
        job_type = catalogue[steps.name]
        result = _application(steps, job_type, hardware, gpu, num_folds, loss, rng)
        forms = forms_of(job_type, steps, analytic_constants(unfitted(job_type), hardware, gpu))
        few = few_measurements(forms, steps, few_sizes, few_repeats, loss, rng)
        results.append(dataclasses.replace(result, few=few))
    return TableSetResult(name, label, f"{hardware.name} with {gpu}", tuple(results))


def _application(
    steps: MeasuredSteps,
    job_type: JobType,
    hardware: Hardware,
    gpu: str,
    num_folds: int,
    loss: Loss,
    rng: np.random.Generator,
) -> ApplicationResult:
    columns = analytic_columns(job_type, steps)
    bare = unfitted(job_type)
    constants = analytic_constants(bare, hardware, gpu)
    models = {UNFITTED: _fixed(UNFITTED, columns @ constants)}
    if any(getattr(job_type, key) != getattr(bare, key) for key in FIT_FIELDS):
        predicted = columns @ analytic_constants(job_type, hardware, gpu)
        unknown = np.full(steps.size, np.nan)
        models[CATALOGUE_FIT] = ModelResult(CATALOGUE_FIT, 0, {IN_SAMPLE: predicted, FOLDS: unknown, GROUPS: unknown})
    splits = {FOLDS: configuration_folds(steps, num_folds, rng), GROUPS: group_folds(steps)}
    for form in forms_of(job_type, steps, constants):
        models[form.name] = _cross_validated(form, steps, splits, loss)
    return ApplicationResult(steps, models)


def _fixed(name: str, predicted: FloatArray) -> ModelResult:
    return ModelResult(name, 0, dict.fromkeys(SCHEMES, predicted))


def _cross_validated(form: Form, steps: MeasuredSteps, splits: Mapping[str, list[Split]], loss: Loss) -> ModelResult:
    def fit(index: np.ndarray) -> StepFit:
        return fit_steps(form.columns[index], steps.step_s[index], form.combination, prior=form.prior, loss=loss)

    def predict(split: Split) -> FloatArray:
        return fit(split[0]).predict(form.columns[split[1]])

    whole = fit(np.arange(steps.size))
    predicted = {IN_SAMPLE: whole.predict(form.columns)}
    predicted |= {scheme: held_out(folds, steps.size, predict) for scheme, folds in splits.items()}
    return ModelResult(form.name, form.num_parameters, predicted, whole, form.terms)


def few_measurements(
    forms: Sequence[Form],
    steps: MeasuredSteps,
    sizes: Sequence[int],
    repeats: int,
    loss: Loss,
    rng: np.random.Generator,
) -> dict[int, dict[str, float]]:
    """How well models do that were fitted to a few random measurements, on all others.

    Besides `optimus` and `fitted` it tries `fitted_alone`: the analytic form without the catalogue's constants, which
    otherwise decide what few measurements leave open.

    Returns:
        Median over the draws of the mean absolute relative error, by size and model.
    """
    by_name = {form.name: form for form in forms}
    tried = {
        "optimus": by_name["optimus"],
        "fitted": by_name["fitted"],
        "fitted_alone": dataclasses.replace(by_name["fitted"], prior=None),
    }
    found: dict[int, dict[str, float]] = {}
    for size in (size for size in sizes if size < steps.size):
        errors: dict[str, list[float]] = {name: [] for name in tried}
        for _ in range(repeats):
            order = rng.permutation(steps.size)
            index, rest = order[:size], order[size:]
            for name, form in tried.items():
                fit = fit_steps(form.columns[index], steps.step_s[index], prior=form.prior, loss=loss)
                errors[name].append(mean_error([fit.predict(form.columns[rest]) / steps.step_s[rest] - 1.0]))
        found[size] = {name: float(np.median(values)) for name, values in errors.items()}
    return found


def fitted_constants(result: ApplicationResult, model: str = "fitted") -> dict[str, float]:
    """Constants of a model fitted to all steps, in seconds per step of the job type's batch size."""
    found = result.models[model]
    assert found.fit is not None
    return dict(zip(found.terms, (float(value) for value in found.fit.theta), strict=True))


def worst_groups(
    result: ApplicationResult, model: str = "fitted", scheme: str = FOLDS
) -> list[tuple[str, float, float]]:
    """Groups of placements by mean absolute relative error, worst first, with the mean signed error beside it."""
    errors = result.errors(model, scheme)
    rows = []
    for group in result.steps.groups():
        here = errors[result.steps.group == group]
        rows.append((group, mean_error([here]), float(np.nanmean(here))))
    return sorted(rows, key=lambda row: -row[1])
