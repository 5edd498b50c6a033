"""What arrives: job types, arrival processes, job sizes, generated and recorded workloads."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dl2env.workload.generator import (
        FixedWorkloads,
        GeneratedWorkloads,
        ReplayedWorkloads,
        WorkloadSource,
        build_workload_source,
    )
    from dl2env.workload.job_types import JobType, load_job_types, type_features
    from dl2env.workload.jobs import Workload
    from dl2env.workload.traces import assign_work, read_trace

_MODULES = {
    "FixedWorkloads": "generator",
    "GeneratedWorkloads": "generator",
    "JobType": "job_types",
    "ReplayedWorkloads": "generator",
    "Workload": "jobs",
    "WorkloadSource": "generator",
    "assign_work": "traces",
    "build_workload_source": "generator",
    "load_job_types": "job_types",
    "read_trace": "traces",
    "type_features": "job_types",
}

__all__ = [
    "FixedWorkloads",
    "GeneratedWorkloads",
    "JobType",
    "ReplayedWorkloads",
    "Workload",
    "WorkloadSource",
    "assign_work",
    "build_workload_source",
    "load_job_types",
    "read_trace",
    "type_features",
]


def __getattr__(name: str) -> Any:
    """Imports the module of a public name on first use, to keep `import dl2env` quick."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
