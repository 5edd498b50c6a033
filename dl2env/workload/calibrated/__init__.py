"""Workloads that follow a recorded one: its parameters are fitted once, kept in a small file and drawn from.

- `model.py`: what the parameters are, and why these
- `files.py`: YAML files; those of the project lie in `data/calibrations`
- `draw.py`: jobs from parameters
- `source.py`: workloads of a configuration, `workload.calibrated`
- `fit.py`, `fit_arrivals.py`, `fit_sizes.py`: parameters from a table of jobs (SciPy)
"""

from dl2env.workload.calibrated.files import calibration_names, load_calibration, write_calibration
from dl2env.workload.calibrated.fit import Fit, fit_calibration
from dl2env.workload.calibrated.model import Calibration

__all__ = [
    "Calibration",
    "Fit",
    "calibration_names",
    "fit_calibration",
    "load_calibration",
    "write_calibration",
]
