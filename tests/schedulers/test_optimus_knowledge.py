"""What knowing speeds is worth to Optimus: the table of docs/schedulers.md, on fewer workloads."""

from __future__ import annotations

import numpy as np
import pytest

from dl2env.evaluation.runner import evaluate
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler

PROBES = (5, 50, 1000)
NOISES = (0.05, 0.2, 0.5)
NUM_WORKLOADS = 16


def ratios(overrides: dict[str, float]) -> dict[str, float]:
    """Mean JCT over that with true speeds, by what Optimus knows."""
    known = {
        "exact": get_scheduler("optimus-exact"),
        **{f"fitted {n}": get_scheduler("optimus", estimate="fitted", noise=0.3, num_probes=n) for n in PROBES},
        **{f"noisy {x}": get_scheduler("optimus", estimate="noisy", noise=x) for x in NOISES},
    }
    scenario = get_scenario("dl2-small-v1").derive(overrides)
    evaluation = evaluate(known, scenario, "test", NUM_WORKLOADS)
    mean = {name: float(np.mean(evaluation.scores(name))) for name in known}
    return {name: value / mean["exact"] for name, value in mean.items()}


@pytest.mark.slow
def test_more_probes_come_nearer_and_more_noise_is_worse_without_contention() -> None:
    found = ratios({"cluster.link_sharing": 0.0, "dynamics.speed_noise": 0.0})
    fitted = [found[f"fitted {n}"] for n in PROBES]
    noisy = [found[f"noisy {x}"] for x in NOISES]
    assert 1.03 > fitted[0] > fitted[1] > fitted[2] > 0.999 and fitted[2] < 1.006, found
    assert 1.05 < noisy[0] < noisy[1] < noisy[2] < 1.3 and noisy[0] > fitted[0], found


@pytest.mark.slow
def test_under_contention_ignorance_helps_by_holding_back() -> None:
    found = ratios({})
    assert all(found[f"noisy {x}"] < 0.8 for x in NOISES), found
    assert all(found[f"fitted {n}"] < 1.0 for n in PROBES), found
