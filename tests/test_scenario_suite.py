"""The benchmark suite: every scenario loads, is frozen, is played, and states its sources."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.config import EnvConfig, TraceConfig, WorkloadConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError
from dl2env.evaluation.contention import offered_load
from dl2env.evaluation.runner import run_scheduler
from dl2env.resources import data_path
from dl2env.scenarios import SPLITS, Scenario, get_scenario, list_scenarios, suite_names
from dl2env.scenarios.dotted import covers, flatten
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator

TEMPLATES = suite_names(templates=True)[len(suite_names()) :]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Made-up files for the scenarios that need some: a table, and traces of 1200 and 160 jobs."""
    folder = tmp_path_factory.mktemp("files")
    names = [job_type.name for job_type in get_scenario("dl2-small-v1").job_types()]
    speed = [[60.0 * w / (1 + 0.1 * w + 0.5 * w / p) for w in range(1, 18)] for p in range(1, 18)]
    content = {"schema": "dl2env-speed-table/1", "types": {name: {"speed": speed} for name in names}}
    (folder / "table.json").write_text(json.dumps(content))
    rows = []
    for i in range(1200):
        seconds, gpus = 600 + 60 * (i % 97), 1 + i % 4
        rows.append(
            f"2017-10-{1 + i // 48:02d} {i // 2 % 24:02d}:{i % 2 * 30:02d}:00,{seconds},{gpus},{seconds * gpus},vc"
        )
    (folder / "philly.csv").write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows]) + "\n")
    applications = ("cifar10", "ncf", "bert", "deepspeech2", "yolov3")
    lists = [f"job-{i},{180 * i},{applications[i % 5]},{1 + i % 4},128" for i in range(160)]
    (folder / "pollux.csv").write_text("\n".join(["name,time,application,num_replicas,batch_size", *lists]) + "\n")
    return {
        "measured-tables-v1": {"speed.table": str(folder / "table.json")},
        "philly-replay-v1": {"workload.trace.path": str(folder / "philly.csv")},
        "pollux-replay-v1": {"workload.trace.path": str(folder / "pollux.csv")},
    }


def complete(name: str, files: dict[str, dict[str, str]]) -> Scenario:
    return get_scenario(name, files.get(name))


def test_the_suite_is_complete_and_in_order() -> None:
    names = suite_names(templates=True)
    assert names[0] == "dl2-small-v1"
    assert sorted([*names, "toy-v1"]) == list_scenarios()
    assert len(suite_names()) >= 13
    assert [name for name in names if get_scenario(name).requires] == TEMPLATES
    assert len(set(names)) == len(names)


# SHA-256 of world and workloads. A change here is a change of results: it needs a new version of the scenario.
PINNED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "data" / "scenario_digests.json").read_text(encoding="utf-8")
)


def digests(scenario: Scenario) -> dict[str, str]:
    """What `PINNED` holds of a scenario."""
    return {"hash": scenario.hash(), **{split: scenario.workloads(split, 1)[0].digest() for split in SPLITS}}


def test_the_first_scenarios_are_as_published() -> None:
    """These two have results under their hashes; the file of digests could be written anew, this cannot."""
    small, toy = get_scenario("dl2-small-v1"), get_scenario("toy-v1")
    assert small.hash() == "25a4324fedf72364d7694d09218927813872e18486b20430b8345912ad78421d"
    assert small.workloads("test", 1)[0].digest() == "a4cb1d6befd547ec7297be54fb3d116b3046cd6461ee2c545190802ec317d0dd"
    assert toy.hash() == "6b6e5b613dc258e3ea7de2781f6c14be50385dbd346ca58f25844042e2ab1f39"
    assert toy.workloads("test", 1)[0].digest() == "4882e3b7a33f4fed12b2ce284dae05a673464b8a2d355c6efea0e34a7cdf92ec"


@pytest.mark.parametrize("name", ["toy-v1", *suite_names(templates=True)])
def test_worlds_and_workloads_have_not_changed(name: str, files: dict[str, dict[str, str]]) -> None:
    """Those of templates with the files made up here."""
    assert digests(complete(name, files)) == PINNED[name]


@pytest.mark.parametrize("name", suite_names(templates=True))
def test_splits_share_no_workload(name: str, files: dict[str, dict[str, str]]) -> None:
    scenario = complete(name, files)
    first = {split: {w.digest() for w in scenario.workloads(split, 4)} for split in SPLITS}
    assert len(set().union(*first.values())) == 12
    if scenario.config.workload.trace is not None:
        num_jobs = scenario.config.workload.num_jobs
        jobs = {
            split: {int(w.provenance["first_job"]) + i for w in scenario.workloads(split, 20) for i in range(num_jobs)}
            for split in SPLITS
        }
        assert max(jobs["train"]) < min(jobs["validation"]) and max(jobs["validation"]) < min(jobs["test"])


@pytest.mark.parametrize("name", suite_names(templates=True))
def test_every_value_has_a_source(name: str) -> None:
    """Also the inherited ones, and every value that differs from the default of the configuration."""
    scenario = get_scenario(name)
    trace = None if scenario.config.workload.trace is None else TraceConfig("")
    default = flatten(config_to_dict(EnvConfig(workload=WorkloadConfig(trace=trace))))
    values = flatten(config_to_dict(scenario.config))
    stated = {key for key, value in values.items() if value != default.get(key) and key not in scenario.requires}
    stated |= {f"split.{split}.{key}" for split, own in scenario.splits.items() for key in own}
    for key in stated - {"workload.trace.start_fraction", "workload.trace.stop_fraction"}:
        assert any(covers(source, key) for source in scenario.sources), key
    assert len(scenario.description) > 100
    assert all(len(text) >= 3 for text in scenario.sources.values())


@pytest.mark.parametrize("scheduler", ["random", "drf"])
@pytest.mark.parametrize("name", suite_names(templates=True))
def test_every_scenario_is_played(name: str, scheduler: str, files: dict[str, dict[str, str]]) -> None:
    """A short episode of each split: no illegal action, all jobs finish, no time runs backwards."""
    scenario = complete(name, files).derive({"workload.num_jobs": 12})
    workloads = [scenario.workloads(split, 1)[0] for split in SPLITS]
    result = run_scheduler(get_scheduler(scheduler), scenario.config, workloads)
    assert result.num_illegal.tolist() == [0, 0, 0]
    for record, workload in zip(result.records, workloads, strict=True):
        assert (record.start_s >= record.arrival_s).all() and (record.finish_s > record.start_s).all()
        np.testing.assert_allclose(record.epochs_done, workload.true_epochs)
        np.testing.assert_array_equal(record.arrival_s, workload.arrival_s)


@pytest.mark.parametrize("name", suite_names(templates=True))
def test_one_simulator_holds_the_workloads_of_all_splits(name: str, files: dict[str, dict[str, str]]) -> None:
    """Same catalogue, same observations, room for the longest: an agent trained on one split plays the others."""
    scenario = complete(name, files)
    sim = ClusterSimulator(scenario.config, len(SPLITS))
    sim.load(range(len(SPLITS)), [scenario.workloads(split, 1)[0] for split in SPLITS])
    assert sim.max_jobs == max(scenario.split_config(split).workload.num_jobs for split in SPLITS)
    assert sim.observation()["jobs"].shape[1] == scenario.config.observation.window


@cache
def small_load() -> float:
    small = get_scenario("dl2-small-v1")
    return offered_load(small.config, small.workloads("train", 32))["cpus"]


@pytest.mark.parametrize(("name", "ratio"), [("saturated-24-v1", 2.0), ("saturated-12-v1", 4.0), ("testbed-v1", 1.0)])
def test_loads_are_those_that_are_stated(name: str, ratio: float) -> None:
    scenario = get_scenario(name)
    load = offered_load(scenario.config, scenario.workloads("train", 64))["cpus"]
    assert load == pytest.approx(ratio * small_load(), rel=0.1)


def test_scenarios_of_one_family_are_paired() -> None:
    """Same number, same jobs: arrivals and types are equal, and so are durations on the scenario's own hardware."""
    reference = get_scenario("dl2-small-v1").workloads("test", 2)[1]
    for name in ("saturated-24-v1", "saturated-12-v1", "heterogeneous-v1", "network-10g-v1", "estimation-error-v1"):
        workload = get_scenario(name).workloads("test", 2)[1]
        np.testing.assert_array_equal(workload.arrival_s, reference.arrival_s)
        np.testing.assert_array_equal(workload.type_idx, reference.type_idx)
        if name.startswith("saturated"):
            assert workload.digest() == reference.digest()


def test_training_never_shows_the_unseen_types() -> None:
    scenario = get_scenario("unseen-types-v1")
    shown = {
        split: {w.type_names[t] for w in scenario.workloads(split, 20) for t in w.type_idx.tolist()} for split in SPLITS
    }
    assert shown["train"] == shown["validation"] == {"resnet-50", "vgg-16", "resnext-110", "inception-bn"}
    assert len(shown["test"]) == 8
    assert scenario.config.observation.type_encoding == "features"


def test_many_jobs_come_at_test_time_only() -> None:
    scenario = get_scenario("many-jobs-v1")
    assert [scenario.workloads(split, 1)[0].num_jobs for split in SPLITS] == [60, 60, 600]
    small = get_scenario("dl2-small-v1")
    assert scenario.workloads("train", 1)[0].digest() == small.workloads("train", 1)[0].digest()
    np.testing.assert_array_equal(
        scenario.workloads("test", 1)[0].arrival_s[:60], small.workloads("test", 1)[0].arrival_s
    )


def test_heterogeneous_servers_compute_at_three_speeds() -> None:
    from dl2env.speed import build_speed

    scenario = get_scenario("heterogeneous-v1")
    speed = build_speed(scenario.job_types(), scenario.config)
    assert speed.gpu_kinds == ("v100", "p100", "k80")
    on_gpu = speed.types["worker_gpus"] > 0
    assert (np.diff(speed.compute_s[on_gpu], axis=1) > 0).all()
    assert (np.diff(speed.compute_s[~on_gpu], axis=1) == 0).all()


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_say_what_they_need(name: str) -> None:
    scenario = get_scenario(name)
    (key,) = scenario.requires
    assert scenario.missing == (key,)
    attempts: list[Any] = [
        scenario.hash,
        lambda: scenario.workload_source("train"),
        lambda: scenario.workloads("test", 1),
        lambda: get_scenario(name, paths={}),
    ]
    for attempt in attempts:
        with pytest.raises(ConfigError) as caught:
            attempt()
        message = str(caught.value)
        assert message.startswith(f"scenario {name} needs {key}, {scenario.requires[key]}; give its path: ")
        assert "\n" not in message
        assert f'get_scenario("{name}", paths={{"{key}": ...}})' in message and f"{key}=<file>" in message


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_take_their_path_in_both_ways(name: str, files: dict[str, dict[str, str]]) -> None:
    template, ready = get_scenario(name), complete(name, files)
    assert ready.name == name and ready.missing == ()
    assert template.derive(files[name]) == ready
    ((key, path),) = files[name].items()
    assert get_scenario(name, paths={key: Path(path)}) == ready
    assert ready.sources[key] == "given by the user"
    derived = ready.derive({"observation.window": 5})
    assert derived.missing == () and derived.name == f"{name}+observation.window=5"


def test_wrong_paths_are_named() -> None:
    with pytest.raises(ConfigError, match="paths: speed.table: scenario dl2-small-v1 needs no path; use derive"):
        get_scenario("dl2-small-v1", paths={"speed.table": "t.json"})
    with pytest.raises(ConfigError, match="paths: table: scenario measured-tables-v1 needs speed.table"):
        get_scenario("measured-tables-v1", paths={"table": "t.json"})
    with pytest.raises(ConfigError, match="nowhere.json: cannot be read"):
        get_scenario("measured-tables-v1", paths={"speed.table": "nowhere.json"}).workloads("test", 1)


def test_measured_figures_are_of_these_worlds() -> None:
    """Who changes a world or adds one measures it: scripts/describe_scenarios.py."""
    rows = json.loads(data_path("scenarios", "measured.json").read_text(encoding="utf-8"))["rows"]
    hashes = {row["scenario"]: row["hash"] for row in rows}
    for name in suite_names():
        assert hashes.get(name) == get_scenario(name).hash(), f"run: python scripts/describe_scenarios.py {name}"
    assert {row["num_workloads"] for row in rows} == {32}
    page = (Path(__file__).parents[1] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name in suite_names(templates=True):
        assert name in hashes and f"\n## {name}" in page or f" and {name}\n" in page, name
