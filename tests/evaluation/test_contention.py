"""How much jobs slow each other down, measured where the answer is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dl2env.config import EnvConfig, EstimateConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.contention import measure_contention
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from dl2env.workload.jobs import Workload
from tests.evaluation.fakes import AlwaysVoid, small_scenario

# Job X of toy-v1 trains one sample/s at one worker and one PS; intervals of 120 s.
TOY = get_scenario("toy-v1")


def toy_jobs(*samples: float) -> Workload:
    """Jobs of type X, all at time 0."""
    names = tuple(job_type.name for job_type in TOY.job_types())
    sizes = np.array(samples)
    return Workload(np.zeros(len(sizes)), np.zeros(len(sizes), np.int32), sizes, sizes, np.ones(len(sizes)), names)


def changed(config: EnvConfig, **dynamics: object) -> EnvConfig:
    return dataclasses.replace(config, dynamics=dataclasses.replace(config.dynamics, **dynamics))


def test_whole_intervals_of_jobs_that_go_on_are_counted() -> None:
    # 3.5 and 2 intervals: three whole ones of the first job; the second finishes in its last one.
    found = measure_contention(AlwaysVoid(), TOY.config, [toy_jobs(420.0, 240.0)], min_group=1)
    assert (found.num_samples, found.num_groups) == (3 + 1, 1)
    assert found.speed_variation == pytest.approx(0.0, abs=1e-9)
    assert found.mean_slowdown == pytest.approx(0.0, abs=1e-9)
    assert found.mean_jct_intervals == pytest.approx((3.5 + 2) / 2)


def test_allocations_are_groups_of_their_own() -> None:
    # Twice the workers, twice the speed: no variation within a group. FIFO gives (2, 2) to the first job.
    found = measure_contention(get_scheduler("fifo"), TOY.config, [toy_jobs(1000.0, 1000.0)], min_group=1)
    assert found.num_groups == 2
    assert found.speed_variation == pytest.approx(0.0, abs=1e-6)


def test_small_groups_are_left_out() -> None:
    workloads = [toy_jobs(420.0), toy_jobs(420.0)]
    assert measure_contention(AlwaysVoid(), TOY.config, workloads, min_group=6).num_samples == 6
    found = measure_contention(AlwaysVoid(), TOY.config, workloads, min_group=7)
    assert (found.num_samples, found.num_groups) == (0, 0) and np.isnan(found.speed_variation)
    assert found.mean_slowdown == pytest.approx(0.0, abs=1e-9)  # over all job intervals


def test_nothing_to_measure_is_no_number() -> None:
    found = measure_contention(AlwaysVoid(), TOY.config, [toy_jobs(60.0)])
    assert np.isnan(found.speed_variation) and np.isnan(found.mean_slowdown) and found.num_samples == 0
    assert found.mean_jct_intervals == pytest.approx(0.5)


def test_unfinished_jobs_count_until_the_end() -> None:
    found = measure_contention(AlwaysVoid(), changed(TOY.config, max_intervals=5), [toy_jobs(60.0, 1e9)])
    assert found.mean_jct_intervals == pytest.approx((0.5 + 5) / 2)


@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_variation_of_pure_noise_is_that_of_the_uniform_distribution(noise: float) -> None:
    config = changed(TOY.config, speed_noise=noise, max_intervals=1000)
    workloads = [dataclasses.replace(toy_jobs(30_000.0), noise_key=key) for key in range(1, 9)]
    found = measure_contention(AlwaysVoid(), config, workloads)
    assert found.num_samples > 1500
    assert found.speed_variation == pytest.approx(noise / np.sqrt(3), rel=0.05)
    assert found.mean_slowdown == pytest.approx(0.0, abs=0.03)


LONG = {"workload.num_jobs": 10, "workload.sizes.mean_s": 12_000.0, "workload.include": ["vgg-16", "seq2seq"]}


def test_sharing_of_links_slows_down_and_varies() -> None:
    drf = get_scheduler("drf")
    found = []
    for sharing in (0.0, 1.0, 3.0):
        world = small_scenario(**LONG, **{"cluster.link_sharing": sharing, "dynamics.speed_noise": 0.0})
        found.append(measure_contention(drf, world.config, world.workloads("train", 8)))
    for name in ("speed_variation", "mean_slowdown", "mean_jct_intervals"):
        values = [getattr(one, name) for one in found]
        assert values[0] < values[1] < values[2], name
    assert 0.0 < found[0].share_full < 1.0


def test_slowdown_does_not_depend_on_what_schedulers_believe() -> None:
    world = small_scenario(**LONG)
    workloads = world.workloads("train", 3)
    exact, noisy, fitted = (
        measure_contention(AlwaysVoid(), dataclasses.replace(world.config, estimate=estimate), workloads)
        for estimate in (EstimateConfig(), EstimateConfig("noisy", 0.9), EstimateConfig("fitted", 0.9))
    )
    assert exact.num_samples > 0 and exact == noisy == fitted


def test_workloads_may_be_longer_than_the_configuration_says() -> None:
    config = dataclasses.replace(TOY.config, workload=dataclasses.replace(TOY.config.workload, num_jobs=1))
    assert measure_contention(AlwaysVoid(), config, [toy_jobs(420.0, 420.0)], min_group=1).num_samples == 6


@pytest.mark.parametrize(("num_workloads", "min_group"), [(0, 10), (1, 0)])
def test_nothing_to_do_is_an_error(num_workloads: int, min_group: int) -> None:
    with pytest.raises(ConfigError, match="both must be at least 1"):
        measure_contention(AlwaysVoid(), TOY.config, [toy_jobs(420.0)] * num_workloads, min_group)
