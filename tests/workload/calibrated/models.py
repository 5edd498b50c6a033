"""A calibration that tests share, and a table of jobs drawn from it."""

from __future__ import annotations

import numpy as np

from dl2env.workload.calibrated.draw import DAY_S, draw_jobs
from dl2env.workload.calibrated.model import ArrivalModel, Calibration, DurationModel, GpuClass, Level, Repeats
from dl2env.workload.traces.table import JobTable

CYCLE = tuple(float(x) for x in 1.0 + 0.6 * np.sin(2 * np.pi * (np.arange(24) + 0.5) / 24))

MONDAY_S = 1_504_483_200.0  # 2017-09-04 00:00

SMALL = Calibration(
    name="small",
    arrivals=ArrivalModel(
        2000.0, CYCLE, (1.2, 1.2, 1.2, 1.2, 1.2, 0.5, 0.5), levels=(Level(2.0, 300.0), Level(0.5, 20_000.0))
    ),
    gpus=(GpuClass(1.0, 0.7, "one"), GpuClass(4.0, 0.2, "more"), GpuClass(8.0, 0.1, "more")),
    durations=(
        DurationModel("one", "lognormals", 1.0, 1e6, shares=(0.5, 0.5), medians_s=(60.0, 6000.0), sigmas=(0.4, 0.8)),
        DurationModel("more", "quantiles", 1.0, 1e6, probabilities=(0.1, 0.5, 0.9), seconds=(100.0, 1000.0, 40_000.0)),
    ),
    repeats=Repeats(30.0, 0.6, 0.8),
)


def drawn_table(calibration: Calibration, num_jobs: int, seed: int = 0) -> JobTable:
    """Jobs as a reader would return them, in whole seconds."""
    generators = [np.random.default_rng([seed, k]) for k in range(3)]
    jobs = draw_jobs(calibration, num_jobs, calibration.arrivals.jobs_per_day / DAY_S, *generators)
    return JobTable.of(
        np.floor(jobs.arrival_s), jobs.duration_s, calibration.num_gpus[jobs.gpu_class], origin_s=MONDAY_S
    )
