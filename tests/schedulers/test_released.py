"""The released heuristics, against the reference simulator's own, in random faithful worlds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dl2env.config import EstimateConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView, configured
from dl2env.schedulers.released import released_config
from dl2env.sim.simulator import ClusterSimulator
from tests.evaluation.fakes import small_scenario
from tests.reference import ReferenceSimulator
from tests.reference.estimate import exact_estimate
from tests.reference.schedulers import RELEASED
from tests.sim.random_cases import random_config, random_parameters, random_workload

NAMES = {f"released-{name.lower()}": name for name in RELEASED}
ENOUGH = 3000  # decisions


@pytest.mark.parametrize("name", NAMES)
def test_same_allocations_and_finish_times_as_the_reference(name: str) -> None:
    finished = 0
    for seed in range(6):
        rng = np.random.default_rng([seed, 5])
        config = released_config(random_config(rng, faithful=True))
        config = dataclasses.replace(
            config,
            estimate=EstimateConfig(),
            dynamics=dataclasses.replace(config.dynamics, max_intervals=100),
        )
        speeds = random_parameters(rng, config)
        trained = speeds.table[:, 1:, 1:]
        trained[trained == 0.0] = 1e-3  # the released code divides by the speed
        scheduler = get_scheduler(name)
        sim = ClusterSimulator(configured(scheduler, config), 2, speed=speeds)
        workloads = [random_workload(rng, config, speeds, sim.state.best_speed[0]) for _ in range(2)]
        sim.load(range(2), workloads)
        estimate = exact_estimate(config, speeds)
        references = [ReferenceSimulator(config, speeds, estimate, workload) for workload in workloads]
        view = ClusterView(sim)
        for _ in range(ENOUGH):
            if sim.is_done.all():
                break
            allocations = [list(zip(jobs["workers"], jobs["ps"], strict=True)) for jobs in sim.state.jobs]
            ended = sim.step(scheduler.act(sim.observation(), sim.action_masks(), view)).interval_ended
            for b in np.flatnonzero(ended).tolist():
                RELEASED[NAMES[name]](references[b])
                given = [allocations[b][job.index] for job in references[b].active]
                assert given == [(job.workers, job.ps) for job in references[b].active], f"seed {seed}"
                references[b].end_interval()
        for b, reference in enumerate(references):
            np.testing.assert_allclose(sim.records(b).finish_s, reference.finish_times(), rtol=1e-9)
            finished += int(reference.is_terminated)
    assert finished > 5


@pytest.mark.parametrize("name", NAMES)
def test_they_insist_on_the_faithful_mode(name: str) -> None:
    config = small_scenario().config
    with pytest.raises(ConfigError, match="released-|speed.model=measured") as caught:
        run_scheduler(get_scheduler(name), config, small_scenario().workloads("test", 1))
    assert name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("switch", ["initial_bundle", "window_skips_capped"])
def test_what_is_in_the_way_is_named(switch: str) -> None:
    config = released_config(small_scenario().config)
    config = dataclasses.replace(config, dynamics=dataclasses.replace(config.dynamics, **{switch: True}))
    with pytest.raises(ConfigError, match=f"dynamics.{switch}=false"):
        configured(get_scheduler("released-drf"), config)


def test_released_srtf_goes_by_fraction_where_srtf_goes_by_time() -> None:
    # See the class: a long job that is nearly done comes before a short new one, whatever time they need.
    from tests.schedulers.test_by_hand import PLAIN
    from tests.schedulers.worlds import Job, plan, world

    jobs = [Job(samples=10.0), Job(samples=1000.0, done=900.0)]
    one_fits = [(2, 1)]
    assert plan(get_scheduler("srtf"), world([PLAIN], jobs, one_fits)).startswith("b0")
    assert plan(get_scheduler("released-srtf"), world([PLAIN], jobs, one_fits)).startswith("b1")
