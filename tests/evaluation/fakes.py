"""Small schedulers and a small world for the evaluation tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.scenarios import Scenario, get_scenario


class FirstLegal:
    """Takes the lowest legal action: as many workers as fit for the oldest job, and so on."""

    name = "first-legal"

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        return action_mask.argmax(axis=1)


class AlwaysVoid:
    """Leaves every job at its initial bundle."""

    name = "void"

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        return np.full(len(action_mask), action_mask.shape[1] - 1)


class Answers:
    """Returns whatever a function makes of the mask."""

    def __init__(self, answer: Callable[[NDArray[np.bool_]], Any], name: str = "odd") -> None:
        self.name = name
        self._answer = answer

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> Any:
        return self._answer(action_mask)


def small_scenario(**overrides: Any) -> Scenario:
    """A generated world of 4 servers and 5 jobs; episodes of about ten intervals."""
    changes: dict[str, Any] = {
        "cluster.servers.0.count": 4,
        "workload.num_jobs": 5,
        "workload.max_workers": 4,
        "workload.max_ps": 4,
        "workload.sizes.kind": "lognormal",
        "workload.sizes.mean_s": 2400.0,
        "workload.sizes.sigma": 0.5,
        "observation.window": 3,
        **overrides,
    }
    return get_scenario("dl2-small-v1").derive(changes, name="small-v1")
