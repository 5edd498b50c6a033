"""Workload lists of the Pollux (OSDI'21) and Sia simulators: `workload-*.csv`.

Columns: `name`, `time` (s from the start), `application`, `num_replicas` (GPUs), `batch_size` (global, not used here).
The lists hold no run times: in those simulators the work of a job follows from its application. Here a job runs for its
application's GPU time divided by its GPUs.
"""

from __future__ import annotations

import numpy as np

from dl2env.workload.traces.csv_file import CsvFile
from dl2env.workload.traces.ordering import arrange
from dl2env.workload.traces.table import TraceReport, TraceTable

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")

# The artifact sorts jobs by GPU time into classes of up to 1, 1-10, 10-100 and 100-1000 GPU hours and gives each class
# its applications. Bounds and classes are recalled, not checked; each application gets its class's geometric middle
# (0.1-1 for the smallest).
_SMALL, _MEDIUM, _LARGE, _EXTRA_LARGE = (10**exponent for exponent in (-0.5, 0.5, 1.5, 2.5))
GPU_HOURS: dict[str, float] = {
    "cifar10": _SMALL,
    "ncf": _SMALL,
    "bert": _MEDIUM,
    "deepspeech2": _MEDIUM,
    "yolov3": _LARGE,
    "imagenet": _EXTRA_LARGE,
}


def read(file: CsvFile) -> tuple[TraceTable, TraceReport]:
    """Jobs of a Pollux or Sia workload CSV.

    Raises:
        TraceError: A column is missing, a cell is wrong, or an application is not known.
    """
    file.require(COLUMNS, "pollux")
    file.text_column("name")
    seconds = file.number_column("time", at_least=0)
    num_gpus = file.number_column("num_replicas", at_least=1, whole=True)
    file.number_column("batch_size")
    applications = file.text_column("application")
    hours = np.array([GPU_HOURS.get(application, 0.0) for application in applications])
    if not hours.all():
        row = int(np.argmin(hours))
        file.fail(row, "application", applications[row], f"is unknown; known ones: {', '.join(GPU_HOURS)}")
    return arrange(
        file,
        "pollux",
        seconds,
        [row[file.header.index("time")] for row in file.rows],
        hours * 3600.0 / num_gpus,
        num_gpus,
        applications,
        "assumed GPU time of the application / num_replicas; the file has none",
    )
