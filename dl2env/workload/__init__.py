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
    from dl2env.workload.population import Population, generate_population, read_population, write_population
    from dl2env.workload.population_config import PopulationConfig, load_population_config
    from dl2env.workload.traces import assign_work, read_trace

_MODULES = {
    "FixedWorkloads": "generator",
    "GeneratedWorkloads": "generator",
    "JobType": "job_types",
    "Population": "population",
    "PopulationConfig": "population_config",
    "ReplayedWorkloads": "generator",
    "Workload": "jobs",
    "WorkloadSource": "generator",
    "assign_work": "traces",
    "build_workload_source": "generator",
    "generate_population": "population",
    "load_job_types": "job_types",
    "load_population_config": "population_config",
    "read_population": "population",
    "read_trace": "traces",
    "type_features": "job_types",
    "write_population": "population",
}

__all__ = [
    "FixedWorkloads",
    "GeneratedWorkloads",
    "JobType",
    "Population",
    "PopulationConfig",
    "ReplayedWorkloads",
    "Workload",
    "WorkloadSource",
    "assign_work",
    "build_workload_source",
    "generate_population",
    "load_job_types",
    "load_population_config",
    "read_population",
    "read_trace",
    "type_features",
    "write_population",
]


def __getattr__(name: str) -> Any:
    """Imports the module of a public name on first use, to keep `import dl2env` quick."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
