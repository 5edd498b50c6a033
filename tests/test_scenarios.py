"""Scenarios: splits, hash, derived worlds, the reader, and the toy's optimum by exhaustive search.

The scenarios of the suite: test_scenario_suite.py; what scenario files may hold besides: test_scenario_files.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.resources import data_path
from dl2env.scenarios import SPLITS, Scenario, get_scenario, load_scenario, split_seed
from dl2env.sim.simulator import ClusterSimulator

TOY_OPTIMUM_S = 322.0


# The project's scenarios.


def test_the_small_scenario_is_the_published_setting() -> None:
    config = get_scenario("dl2-small-v1").config
    (group,) = config.cluster.servers
    assert (group.count, group.cpus, group.gpus) == (48, 8, 2)
    assert (config.workload.num_jobs, config.observation.window, config.dynamics.interval_s) == (60, 20, 1200.0)
    assert (config.workload.arrivals.kind, config.workload.arrivals.rate_per_interval) == ("poisson", 3.0)
    assert config.workload.sizes.kind == "published_bins"


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown scenario 'toy'; choose one of: .*toy-v1"):
        get_scenario("toy")
    with pytest.raises(UnknownNameError, match="unknown split 'tests'; choose one of: test, train, validation"):
        get_scenario("toy-v1").workloads("tests", 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="0 workloads asked for"):
        get_scenario("toy-v1").workloads("test", 0)


# Splits.


def test_frozen_workloads_repeat_and_extend() -> None:
    scenario = get_scenario("dl2-small-v1")
    three = [workload.digest() for workload in scenario.workloads("test", 3)]
    five = [workload.digest() for workload in get_scenario("dl2-small-v1").workloads("test", 5)]
    assert five[:3] == three
    assert len(set(five)) == 5


def test_splits_share_no_workload_whatever_the_training_seed() -> None:
    scenario = get_scenario("dl2-small-v1")
    held_out = {w.digest() for split in ("validation", "test") for w in scenario.workloads(split, 10)}
    assert len(held_out) == 20
    source = scenario.workload_source("train")
    trained = {
        source(seed, env, episode).digest()
        for seed in (0, scenario.seed, split_seed("test", scenario.seed))
        for env in range(2)
        for episode in range(10)
    }
    assert len(trained) == 60
    assert not held_out & trained


def test_split_seeds_differ() -> None:
    seeds = [split_seed(split, seed) for split in SPLITS for seed in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) > 2**64  # out of the range in which people choose seeds


def test_fixed_workloads_are_the_only_ones() -> None:
    scenario = get_scenario("toy-v1")
    assert len(scenario.workloads("test", 50)) == 1
    assert scenario.workloads("train", 1)[0] is scenario.workload_source("test")(5, 0, 3)


def test_trace_splits_are_disjoint_ranges_in_order() -> None:
    scenario = get_scenario("dl2-small-v1").derive(
        {"workload.trace.path": "jobs.csv", "workload.trace.start_fraction": 0.5}
    )
    parts = []
    for split in SPLITS:
        trace = scenario.split_config(split).workload.trace
        assert trace is not None and trace.path == "jobs.csv"
        parts.append((trace.start_fraction, trace.stop_fraction))
    assert parts == [pytest.approx(p) for p in [(0.5, 0.8), (0.8, 0.9), (0.9, 1.0)]]
    assert parts[0][1] <= parts[1][0] and parts[1][1] <= parts[2][0]


def test_replayed_splits_share_no_job(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    rows = [
        f"2017-10-{1 + i // 48:02d} {i // 2 % 24:02d}:{i % 2 * 30:02d}:00,{600 + i},1,{600 + i},vc" for i in range(100)
    ]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows]) + "\n")
    scenario = get_scenario("dl2-small-v1").derive({"workload.trace.path": str(path), "workload.num_jobs": 5})
    used: dict[str, set[int]] = {}
    for split in SPLITS:
        firsts = [int(w.provenance["first_job"]) for w in scenario.workloads(split, 200)]
        used[split] = {first + i for first in firsts for i in range(5)}
    assert used["train"] == set(range(60))
    assert used["validation"] == set(range(60, 80))
    assert used["test"] == set(range(80, 100))


# Hash and derived worlds.


def test_hash_sees_the_world_and_nothing_else(tmp_path: Path) -> None:
    scenario = get_scenario("dl2-small-v1")
    original = scenario.hash()
    assert original == get_scenario("dl2-small-v1").hash()
    assert re.fullmatch("[0-9a-f]{64}", original)
    same = [{"reward.progress": 3.0}, {"observation.type_encoding": "one_hot"}]
    assert {scenario.derive(change).hash() for change in same} == {original}
    different: list[dict[str, Any]] = [
        {"cluster.link_sharing": 0.25},
        {"cluster.servers.0.count": 24},
        {"cluster.hardware": "pai-base"},
        {"workload.include": ["resnet-50"]},
        {"observation.window": 10},
        {"dynamics.epoch_error": 0.1},
        {"estimate.kind": "fitted"},
    ]
    hashes = {scenario.derive(change).hash() for change in different}
    assert len(hashes) == len(different) and original not in hashes


def test_hash_counts_contents_of_files(tmp_path: Path) -> None:
    toy = get_scenario("toy-v1")
    copy = tmp_path / "renamed.toml"
    text = data_path("job_types", "toy.toml").read_text()
    copy.write_text("# another comment\n" + text)
    assert toy.derive({"workload.job_types": str(copy)}).hash() == toy.hash()
    copy.write_text(text.replace("fixed_s = 1.0", "fixed_s = 2.0"))
    assert toy.derive({"workload.job_types": str(copy)}).hash() != toy.hash()
    with pytest.raises(ConfigError, match="workload.trace.path: .*missing.csv: no such file"):
        toy.derive({"workload.trace.path": str(tmp_path / "missing.csv")}).hash()


def test_derived_worlds_keep_the_workloads() -> None:
    scenario = get_scenario("dl2-small-v1")
    derived = scenario.derive({"cluster.link_sharing": 0.0})
    assert derived.name == "dl2-small-v1+cluster.link_sharing=0.0"
    assert derived.config.cluster.link_sharing == 0.0
    assert derived.config.workload == scenario.config.workload
    assert derived.sources["cluster.link_sharing"] == "changed from dl2-small-v1"
    assert derived.sources["cluster.hardware"] == scenario.sources["cluster.hardware"]
    assert derived.workloads("test", 1)[0].digest() == scenario.workloads("test", 1)[0].digest()
    assert scenario.derive({}) == scenario


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster.links": 1.0}, r"cluster\.links: unknown key"),
        ({"clusters.link_sharing": 1.0}, r"clusters: unknown key"),
        ({"cluster.link_sharing": -0.5}, r"link_sharing=-0\.5 must lie in"),
        ({"cluster.link_sharing": "big"}, r"link_sharing: expected float, got 'big'"),
        ({"cluster.servers.3.count": 1}, r"cluster\.servers has 1 entries; '3' is none of them"),
        ({"cluster.hardware.name": "x"}, r"cluster\.hardware is a value, not a group"),
    ],
)
def test_bad_overrides_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_scenario("dl2-small-v1").derive(change)


# The reader.

GOOD = """
name = "mine-v2"
version = 2
description = "d"
seed = 4
[config.workload]
job_types = "toy"
num_jobs = 1
[config.dynamics]
interval_s = 60
[sources]
workload = "w"
"dynamics.interval_s" = "i"
[[fixed_workload]]
jobs = [{ type = "toy-ps", arrival_s = 1, epochs = 2, true_epochs = 3 }]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine-v2.toml"
    path.write_text(text)
    return path


def test_reads_a_users_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    scenario = get_scenario(str(path))
    assert (scenario.name, scenario.version, scenario.seed) == ("mine-v2", 2, 4)
    assert scenario.config.dynamics.interval_s == 60.0
    (workload,) = scenario.workloads("test", 1)
    assert workload.type_names[workload.type_idx[0]] == "toy-ps"
    assert (workload.arrival_s[0], workload.epochs[0], workload.true_epochs[0]) == (1.0, 2.0, 3.0)
    assert workload.samples_per_epoch[0] == 12.0  # the catalogue's


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine-v2"', 'name = "other-v2"', "must be the file's name without .toml and end in -v2"),
        ("version = 2", "version = 3", "end in -v3"),
        ("seed = 4", "seed = -4", "seed=-4 must be a whole number"),
        ("seed = 4", "sed = 4", "sed: unknown key; a scenario has: name"),
        ('description = "d"', "", "description: missing or not a str"),
        ("interval_s = 60", "interval_s = 0", "interval_s=0.0 must be positive"),
        ("interval_s = 60", "intervall_s = 60", "config.dynamics.intervall_s: unknown key"),
        ('"dynamics.interval_s" = "i"', "", "no source for dynamics.interval_s"),
        ('workload = "w"', 'workload = "w"\ncluster = "c"', "sources: cluster: config sets no such value"),
        ('"dynamics.interval_s" = "i"', "dynamics.interval_s = 'i'", "sources: dynamics: not a text; quote"),
        ('"toy-ps"', '"toy"', "unknown job type of .*fixed_workload 1 'toy'; choose one of: toy-compute"),
        ("arrival_s = 1, ", "", "fixed_workload 1: job 1: arrival_s: missing"),
        ("epochs = 2", "epoch = 2", "job 1: epoch: unknown key"),
        ("epochs = 2", "epochs = '2'", "job 1: epochs='2' must be a number"),
        ("epochs = 2", "epochs = nan", "fixed_workload 1: workload: epochs of job 0 is nan"),
        ("jobs = [{", "jbs = [{", "fixed_workload 1: jobs: missing"),
        ("[sources]", "[sources", "not valid TOML"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(Dl2EnvError, match=message) as caught:
        load_scenario(path)
    assert "\n" not in str(caught.value)
    assert "mine-v2.toml" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing.toml: no such file"):
        get_scenario(tmp_path / "nothing.toml")


# The toy.


def toy_simulator(scenario: Scenario) -> ClusterSimulator:
    sim = ClusterSimulator(scenario.config, 1)
    sim.load([0], scenario.workloads("test", 1))
    return sim


def least_total_jct_s(sim: ClusterSimulator) -> tuple[float, int]:
    """Least total JCT over all sequences of legal actions, and the number of decisions looked at.

    The only cut assumes nothing about speeds: a schedule that has already cost as much as a complete one cannot win.
    """
    best, visited = np.inf, 0

    def search() -> None:
        nonlocal best, visited
        records = sim.records(0)
        if np.where(np.isnan(records.finish_s), records.end_s, records.finish_s).sum() >= best:
            return
        before = sim.snapshot()
        for action in np.flatnonzero(sim.action_masks()[0]):
            visited += 1
            sim.restore(before)
            report = sim.step([action])
            if report.terminated[0]:
                best = min(best, sim.records(0).jct_s.sum())
            elif not report.truncated[0]:
                search()
        sim.restore(before)

    search()
    return best, visited


def test_no_schedule_of_the_toy_beats_the_proven_optimum() -> None:
    best, visited = least_total_jct_s(toy_simulator(get_scenario("toy-v1")))
    assert best == pytest.approx(TOY_OPTIMUM_S, abs=1e-4)
    assert visited > 200


def test_the_toys_optimal_schedule_is_the_one_described() -> None:
    scenario = get_scenario("toy-v1")
    sim = toy_simulator(scenario)
    assert sim.action_masks()[0].all()
    for action in (0, 3):  # a worker for X, a worker for Y
        assert not sim.is_done[0]
        sim.step([action])
    assert sim.records(0).num_intervals == 1  # nothing fits any more, the interval has ended by itself
    sim.step([2])  # X is gone and its slot is Y's: worker and PS
    assert sim.is_done[0]
    assert sim.records(0).jct_s == pytest.approx([90.0, 232.0], abs=1e-4)
