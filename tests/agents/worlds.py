"""A small world whose episodes end after some tens of decisions."""

from __future__ import annotations

from dl2env.config import (
    ArrivalConfig,
    ClusterConfig,
    EnvConfig,
    JobSizeConfig,
    ObservationConfig,
    ServerGroup,
    WorkloadConfig,
)


def small_config(window: int = 4) -> EnvConfig:
    return EnvConfig(
        cluster=ClusterConfig(servers=(ServerGroup(4),)),
        workload=WorkloadConfig(
            num_jobs=4,
            max_workers=4,
            max_ps=4,
            arrivals=ArrivalConfig(rate_per_interval=2.0),
            sizes=JobSizeConfig(kind="lognormal", mean_s=2000.0),
        ),
        observation=ObservationConfig(window=window),
    )
