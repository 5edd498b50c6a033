"""How much jobs slow each other down, measured where the answer is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dl2env.config import ArrivalConfig, EnvConfig, EstimateConfig, ServerGroup, TraceConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.contention import measure_contention, offered_load
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


def test_tasks_and_jobs_in_the_system_by_hand() -> None:
    # Server 0 (4 CPUs, 3 GPUs) gets the first pair, server 1 (2 CPUs, 1 GPU) the second. The first job goes on for 3.5
    # intervals, the second for 2: two intervals with 4 tasks on 2 servers, two with 2 tasks on 1.
    found = measure_contention(AlwaysVoid(), TOY.config, [toy_jobs(420.0, 240.0)])
    assert found.tasks_per_nic == pytest.approx((4 + 4 + 2 + 2) / (2 + 2 + 1 + 1))
    assert found.mean_jobs == pytest.approx((2 + 2 + 1 + 1) / 4)
    assert (found.peak_jobs, found.num_unfinished) == (2.0, 0)


def test_tasks_placed_in_an_interval_are_counted() -> None:
    # FIFO gives the only job a second pair, which goes to the other, less loaded server: at the end 4 tasks on 2.
    # On a single server all four are on one NIC.
    found = measure_contention(get_scheduler("fifo"), TOY.config, [toy_jobs(1000.0)])
    assert (found.tasks_per_nic, found.mean_jobs) == (2.0, 1.0)
    one_server = dataclasses.replace(TOY.config.cluster, servers=(ServerGroup(1, cpus=4, gpus=3),))
    config = dataclasses.replace(TOY.config, cluster=one_server)
    assert measure_contention(get_scheduler("fifo"), config, [toy_jobs(1000.0)]).tasks_per_nic == 4.0


def test_idle_time_counts_for_the_jobs_in_the_system_only() -> None:
    # One interval of a job, nine idle ones, one interval of the other.
    two = toy_jobs(120.0, 120.0)
    late = dataclasses.replace(two, arrival_s=np.array([0.0, 1200.0]))
    found = measure_contention(AlwaysVoid(), TOY.config, [late, two])
    assert found.mean_jobs == pytest.approx((2 / 11 + 2 / 1) / 2)
    assert found.peak_jobs == pytest.approx((1 + 2) / 2)
    assert found.tasks_per_nic == pytest.approx(2.0)


def test_unfinished_jobs_are_told() -> None:
    found = measure_contention(AlwaysVoid(), changed(TOY.config, max_intervals=5), [toy_jobs(60.0, 1e9)])
    assert found.num_unfinished == 1


@pytest.mark.parametrize("auto_advance", [True, False])
def test_skipping_intervals_changes_no_figure(auto_advance: bool) -> None:
    world = small_scenario(**{"cluster.servers.0.count": 1, "workload.num_jobs": 8})
    config = changed(world.config, auto_advance=auto_advance)
    found = measure_contention(get_scheduler("drf"), config, world.workloads("train", 4), min_group=1)
    assert found.share_full > 0.2
    assert found == measure_contention(get_scheduler("drf"), world.config, world.workloads("train", 4), min_group=1)


# Offered load.


def test_offered_load_by_hand() -> None:
    # 420 s and 240 s of 1 worker and 1 PS, one GPU and two CPUs, in 2 intervals of 120 s, on 4 GPUs and 6 CPUs.
    arrivals = ArrivalConfig(rate_per_interval=1.0)
    config = dataclasses.replace(TOY.config, workload=dataclasses.replace(TOY.config.workload, arrivals=arrivals))
    load = offered_load(config, [toy_jobs(420.0, 240.0)])
    assert load == pytest.approx({"cpus": 2 * 660 / (6 * 240), "gpus": 660 / (4 * 240)})
    twice = offered_load(config, [toy_jobs(420.0, 240.0), toy_jobs(420.0, 240.0)])
    assert twice == pytest.approx(load)
    faster = dataclasses.replace(arrivals, rate_per_interval=2.0)
    config = dataclasses.replace(config, workload=dataclasses.replace(config.workload, arrivals=faster))
    assert offered_load(config, [toy_jobs(420.0, 240.0)]) == pytest.approx({k: 2 * v for k, v in load.items()})


def test_load_of_jobs_at_once_and_of_recorded_ones() -> None:
    def with_workload(**changes: object) -> EnvConfig:
        return dataclasses.replace(TOY.config, workload=dataclasses.replace(TOY.config.workload, **changes))

    two = toy_jobs(420.0, 240.0)
    at_once = offered_load(with_workload(arrivals=ArrivalConfig(kind="batch")), [two])
    assert at_once == {"cpus": np.inf, "gpus": np.inf}
    recorded = with_workload(trace=TraceConfig("t.csv"))
    # 120 s between the two: one arrival per 120 s, so 240 s.
    spaced = dataclasses.replace(two, arrival_s=np.array([50.0, 170.0]))
    assert offered_load(recorded, [spaced])["gpus"] == pytest.approx(660 / (4 * 240))
    with pytest.raises(ConfigError, match="no workloads"):
        offered_load(recorded, [])


def test_load_counts_true_work_on_the_scarcer_resource() -> None:
    world = get_scenario("dl2-small-v1")
    only = {"workload.include": ["cnn-text"], "workload.sizes.kind": "fixed"}
    cpu_world = world.derive(
        {**only, "cluster.servers": [{"count": 1, "cpus": 4, "gpus": 0, "gpu_type": "gtx-1080ti"}]}
    )
    load = offered_load(cpu_world.config, cpu_world.workloads("train", 2))
    # Every job holds 4 CPUs for 8820 s; 3 come per 1200 s.
    assert load["cpus"] == pytest.approx(3 * 8820 / 1200)
    assert np.isnan(load["gpus"])
    late = cpu_world.derive({"dynamics.epoch_error": 0.5})
    workloads = late.workloads("train", 2)
    factor = (
        np.concatenate([w.true_epochs for w in workloads]).sum() / np.concatenate([w.epochs for w in workloads]).sum()
    )
    assert offered_load(late.config, workloads)["cpus"] == pytest.approx(3 * 8820 / 1200 * factor)


@pytest.mark.parametrize(("num_workloads", "min_group"), [(0, 10), (1, 0)])
def test_nothing_to_do_is_an_error(num_workloads: int, min_group: int) -> None:
    with pytest.raises(ConfigError, match="both must be at least 1"):
        measure_contention(AlwaysVoid(), TOY.config, [toy_jobs(420.0)] * num_workloads, min_group)
