"""Observation and action spaces of the scheduling environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from dl2env.sim.simulator import ClusterSimulator


def observation_space(simulator: ClusterSimulator) -> spaces.Space[Any]:
    """Space of one environment's observation: `jobs` (J, F) in [-1, 1] and `cluster` (C,) in [0, 1], float32."""
    jobs, cluster = simulator.state.obs_jobs.shape[1:], simulator.state.obs_cluster.shape[1:]
    return spaces.Dict(
        {
            "cluster": spaces.Box(0.0, 1.0, cluster, np.float32),
            "jobs": spaces.Box(-1.0, 1.0, jobs, np.float32),
        }
    )


def action_space(simulator: ClusterSimulator) -> spaces.Discrete:
    """Space of one environment's action: 3 J + 1 choices, the last one void."""
    return spaces.Discrete(simulator.num_actions)
