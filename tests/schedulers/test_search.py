"""The rollout search: never worse than the rules it chooses from, the same every time, by act as by intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.runner import evaluate
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.search import RULES
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers.worlds import random_world


def test_never_worse_than_its_rules() -> None:
    scenario = get_scenario("dl2-small-v1").derive({"workload.num_jobs": 12, "cluster.servers.0.count": 6})
    rules = {f"{name} {options}": get_scheduler(name, **options) for name, options in RULES}
    evaluation = evaluate({**rules, "search": get_scheduler("search", num_variants=4)}, scenario, "validation", 6)
    reached = evaluation.scores("search")
    best = np.min([evaluation.scores(name) for name in rules], axis=0)
    assert (reached <= best * (1 + 1e-9)).all()
    assert (reached < best * 0.999).any()
    again = evaluate([get_scheduler("search", num_variants=4)], scenario, "validation", 6, batch=2)
    assert (again.scores("search") == reached).all()


def test_a_short_horizon_still_finishes() -> None:
    scenario = get_scenario("dl2-small-v1").derive({"workload.num_jobs": 8, "cluster.servers.0.count": 6})
    result = evaluate([get_scheduler("search", num_variants=1, horizon=2)], scenario, "validation", 2)
    assert result.results["search"].values("num_unfinished").sum() == 0


def test_it_knows_true_speeds() -> None:
    config = get_scenario("dl2-small-v1").derive({"estimate.kind": "noisy", "estimate.noise": 0.3}).config
    assert get_scheduler("search").configure(config).estimate.kind == "exact"  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"num_variants": -1}, {"horizon": 0}, {"spread": -1.0}])
def test_wrong_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be a number in"):
        get_scheduler("search", **options)


def test_copies_are_complete() -> None:
    # A copy in a simulator with another window goes on as the original does.
    for seed in range(12):
        _, sim = random_world(seed, is_wide=True, window_skips_capped=False, max_intervals=60)
        narrow = dataclasses.replace(sim.config, observation=dataclasses.replace(sim.config.observation, window=1))
        copies = ClusterSimulator(narrow, 4, max_jobs=sim.max_jobs, speed=sim.speed)
        scheduler = get_scheduler("drf")
        scheduler.run_intervals(sim, 3)  # type: ignore[attr-defined]
        copies.copy_env(sim, 1, np.array([0, 3]))
        with sim.only([1]):
            scheduler.run_intervals(sim, 60)  # type: ignore[attr-defined]
        with copies.only([3]):
            scheduler.run_intervals(copies, 60)  # type: ignore[attr-defined]
        for one, other in zip(sim.records(1).__dict__.values(), copies.records(3).__dict__.values(), strict=True):
            assert np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
