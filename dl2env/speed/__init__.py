"""How fast a job trains: PAI step-time model, measured tables, fitted forms and what schedulers know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dl2env.config import EnvConfig
    from dl2env.speed.parameters import SpeedParameters
    from dl2env.workload.job_types import JobType


def build_speed(job_types: Sequence[JobType], config: EnvConfig) -> SpeedParameters:
    """Constants of the speed model that `config.speed` names.

    Args:
        job_types: Catalogue; its order gives the type indices.
        config: Environment: cluster and hardware, caps, speed model.

    Raises:
        UnknownNameError: The hardware or a GPU type is unknown.
        PlacementError: A task of a type fits on no server.
        ConfigError: The measured table is missing, malformed, or lacks a type.
    """
    from dl2env.speed.analytic import analytic_parameters
    from dl2env.speed.hardware import load_hardware

    hardware = load_hardware(config.cluster.hardware)
    caps = (config.workload.max_workers, config.workload.max_ps)
    parameters = analytic_parameters(job_types, config.cluster, hardware, *caps)
    if config.speed.model == "analytic":
        return parameters
    from dl2env.speed.measured import measured_parameters, read_speed_table

    tables = read_speed_table(str(config.speed.table))
    return measured_parameters(parameters, tables, *caps, raw=not config.speed.clean_table)
