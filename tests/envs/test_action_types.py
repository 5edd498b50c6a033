from __future__ import annotations

import numpy as np
import pytest

from dl2env.envs import SchedulingEnv, SchedulingVectorEnv
from dl2env.errors import ConfigError


@pytest.mark.parametrize("action", [2.7, np.float32(1.0), "0", None])
def test_single_environment_takes_integers_only(action: object) -> None:
    env = SchedulingEnv(scenario="toy-v1")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="must be an integer"):
        env.step(action)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [np.int8(0), np.uint64(0), np.array(0), 0])
def test_any_integer_type_will_do(action: int) -> None:
    env = SchedulingEnv(scenario="toy-v1")
    env.reset(seed=0)
    assert isinstance(env.step(action)[1], float)


def test_huge_integers_are_illegal_actions() -> None:
    for action in (10**30, -(10**30)):
        env = SchedulingEnv(scenario="toy-v1")
        env.reset(seed=0)
        assert env.step(action)[4]["illegal_action"]


def test_vector_environment_takes_integers_only() -> None:
    env = SchedulingVectorEnv(2, scenario="toy-v1")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="actions must be integers, got float64"):
        env.step(np.array([0.0, np.nan]))  # type: ignore[arg-type]
    env.step(np.array([0, 0], dtype=np.int32))  # type: ignore[arg-type]
