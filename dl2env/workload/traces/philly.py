"""The Philly-derived job list `philly.csv` of the Pollux artifact (petuum/adaptdl, OSDI'21).

Columns: `timestamp` (submission, local wall time without a zone), `duration` (s), `num_gpus`, `cluster` (virtual
cluster); `gpu_time` = duration * num_gpus is checked when it is there. Known defects of the published file: not sorted,
65 rows that repeat another exactly, one blank last line.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np

from dl2env.workload.traces.csv_file import CsvFile
from dl2env.workload.traces.ordering import arrange
from dl2env.workload.traces.table import TraceReport, TraceTable

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
_EPOCH = datetime(1970, 1, 1)


def read(file: CsvFile) -> tuple[TraceTable, TraceReport]:
    """Jobs of a Philly CSV.

    Raises:
        TraceError: A column is missing or a cell is wrong.
    """
    file.require(COLUMNS, "philly")
    stamps = file.text_column("timestamp")
    seconds = np.empty(len(stamps))
    for row, stamp in enumerate(stamps):
        try:
            seconds[row] = (datetime.fromisoformat(stamp) - _EPOCH).total_seconds()
        except ValueError:
            file.fail(row, "timestamp", stamp, "is not a time like 2017-10-09 07:01:55; mend it or remove the row")
        except TypeError:  # a time with a zone cannot be subtracted from one without
            file.fail(row, "timestamp", stamp, "has a time zone; write local times without one")
    duration_s = file.number_column("duration")
    num_gpus = file.number_column("num_gpus", at_least=1, whole=True)
    if "gpu_time" in file.header:
        gpu_time = file.number_column("gpu_time")
        is_off = ~np.isclose(gpu_time, duration_s * num_gpus, rtol=1e-6)
        if is_off.any():
            row = int(np.argmax(is_off))
            cell = file.text_column("gpu_time")[row]
            file.fail(row, "gpu_time", cell, "is not duration x num_gpus; mend the row or leave the column out")
    return arrange(
        file, "philly", seconds, stamps, duration_s, num_gpus, file.text_column("cluster"), "recorded run times"
    )
