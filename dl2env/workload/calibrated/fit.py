"""Fits a calibration to recorded jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dl2env.errors import ConfigError
from dl2env.workload.calibrated.fit_arrivals import ArrivalFit, fit_arrivals
from dl2env.workload.calibrated.fit_sizes import SizeFit, fit_repeats, fit_sizes
from dl2env.workload.calibrated.model import Calibration
from dl2env.workload.traces.table import JobTable

FEWEST_JOBS = 200


@dataclass(frozen=True)
class Fit:
    """A calibration and what led to it.

    Attributes:
        calibration: The parameters.
        arrivals: Of the arrival process.
        sizes: Of GPUs and durations.
    """

    calibration: Calibration
    arrivals: ArrivalFit
    sizes: SizeFit


def fit_calibration(
    table: JobTable,
    name: str,
    *,
    description: str = "",
    provenance: Mapping[str, Any] | None = None,
    seed: int = 0,
    fewest_jobs: int = FEWEST_JOBS,
) -> Fit:
    """Fits everything. Durations are taken as recorded, those of censored jobs too, as a replay takes them.

    Args:
        table: Jobs of any format, shaped or not.
        name: Of the calibration.
        description: What it is fitted to.
        provenance: Where the jobs come from, as plain values.
        seed: Of the halves on which kinds of distributions are compared.
        fewest_jobs: Fewer are refused.

    Raises:
        ConfigError: There are too few jobs, all arrive at once, or SciPy is missing.
    """
    if table.num_jobs < fewest_jobs:
        raise ConfigError(
            f"calibration: {table.num_jobs} jobs are too few to fit, at least {fewest_jobs} are needed; take a longer "
            "part of the trace or replay it instead"
        )
    arrivals = fit_arrivals(table.arrival_s - table.arrival_s[0], table.origin_s + float(table.arrival_s[0]), seed)
    sizes = fit_sizes(table.num_gpus, table.duration_s, seed)
    calibration = Calibration(
        name=name,
        description=description,
        arrivals=arrivals.model,
        gpus=sizes.gpus,
        durations=sizes.durations,
        provenance=dict(provenance or {}),
    )
    repeats = fit_repeats(table.arrival_s, sizes.class_of_job, table.duration_s, calibration.shares)
    if repeats is not None:
        calibration = Calibration(**{**calibration.__dict__, "repeats": repeats})
    return Fit(calibration, arrivals, sizes)
