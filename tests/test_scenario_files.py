"""Scenario files: extension, values per split, required paths, and every error in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.scenarios import SPLITS, Scenario, get_scenario, load_scenario
from dl2env.scenarios.dotted import flatten, overlaps, set_value, value_at
from dl2env.scenarios.fingerprint import _FIRST_KEYS, world_values

GOOD = """
name = "mine-v1"
version = 1
extends = "dl2-small-v1"
description = "d"
[config.workload]
num_jobs = 80
[config.workload.arrivals]
rate_per_interval = 6.0
[split.train]
"workload.num_jobs" = 20
workload.active_types = ["vgg-16"]
[split.validation]
workload.arrivals.kind = "uniform"
[sources]
"workload.num_jobs" = "n"
"workload.arrivals.rate_per_interval" = "r"
"split" = "s"
"""


def write(folder: Path, text: str, name: str = "mine-v1") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


# Extension.


def test_an_extension_says_only_what_differs(tmp_path: Path) -> None:
    base, mine = get_scenario("dl2-small-v1"), load_scenario(write(tmp_path, GOOD))
    arrivals = dataclasses.replace(base.config.workload.arrivals, rate_per_interval=6.0)
    expected = dataclasses.replace(base.config.workload, num_jobs=80, arrivals=arrivals)
    assert mine.config == dataclasses.replace(base.config, workload=expected)
    assert (mine.seed, mine.name, mine.description) == (base.seed, "mine-v1", "d")
    assert mine.sources["cluster.servers"] == base.sources["cluster.servers"]
    assert (mine.sources["workload.num_jobs"], mine.sources["split"]) == ("n", "s")
    # The base's text for the whole group still covers the kind of arrivals, the own text is nearer for the rate.
    assert mine.sources["workload.arrivals"] == base.sources["workload.arrivals"]


def test_a_source_goes_with_its_last_inherited_value(tmp_path: Path) -> None:
    text = GOOD.replace("rate_per_interval = 6.0", 'rate_per_interval = 6.0\nkind = "uniform"')
    text = text.replace('"workload.arrivals.rate_per_interval"', '"workload.arrivals"')
    assert load_scenario(write(tmp_path, text)).sources["workload.arrivals"] == "r"


def test_a_file_extends_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    text = """
name = "next-v3"
version = 3
extends = "mine-v1.toml"
description = "e"
seed = 9
[config.cluster]
link_sharing = 0.5
[split.train]
"workload.num_jobs" = 30
[sources]
"cluster.link_sharing" = "l"
"split.train" = "t"
"""
    scenario = get_scenario(write(tmp_path, text, "next-v3"))
    assert (scenario.seed, scenario.config.workload.num_jobs, scenario.config.cluster.link_sharing) == (9, 80, 0.5)
    assert scenario.splits["train"] == {"workload.num_jobs": 30, "workload.active_types": ["vgg-16"]}
    assert scenario.splits["validation"] == {"workload.arrivals.kind": "uniform"}
    assert (scenario.sources["split.train"], scenario.sources["split"]) == ("t", "s")


def test_a_requirement_is_inherited_until_it_is_met(tmp_path: Path) -> None:
    head = 'version = 1\nextends = "measured-tables-v1"\ndescription = "d"\n'
    open_text = f'name = "open-v1"\n{head}[config.workload]\nnum_jobs = 9\n[sources]\nworkload = "w"\n'
    met_text = f'name = "met-v1"\n{head}[config.speed]\ntable = "t.json"\n[sources]\nspeed = "w"\n'
    assert load_scenario(write(tmp_path, open_text, "open-v1")).missing == ("speed.table",)
    met = load_scenario(write(tmp_path, met_text, "met-v1"))
    assert met.requires == {} and met.config.speed.table == "t.json"


# Splits.


def test_splits_have_their_own_values(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    workloads = {split: scenario.split_config(split).workload for split in SPLITS}
    assert [workloads[split].num_jobs for split in SPLITS] == [20, 80, 80]
    assert [workloads[split].active_types for split in SPLITS] == [("vgg-16",), (), ()]
    assert [workloads[split].arrivals.kind for split in SPLITS] == ["poisson", "uniform", "poisson"]
    assert {workloads[split].arrivals.rate_per_interval for split in SPLITS} == {6.0}
    train, validation, test = (scenario.workloads(split, 1)[0] for split in SPLITS)
    assert (train.num_jobs, test.num_jobs) == (20, 80)
    assert set(train.type_idx.tolist()) == {1} and len(set(test.type_idx.tolist())) > 4
    assert validation.arrival_s[:3].tolist() == [0.0, 200.0, 400.0]
    assert train.type_names == test.type_names


def test_what_is_derived_holds_in_all_splits(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    derived = scenario.derive({"workload.num_jobs": 10})
    assert [derived.split_config(split).workload.num_jobs for split in SPLITS] == [10, 10, 10]
    assert derived.splits["train"] == {"workload.active_types": ["vgg-16"]}
    group = scenario.derive({"workload.arrivals": {"kind": "batch"}})
    assert "validation" not in group.splits and "train" in group.splits
    assert group.split_config("validation").workload.arrivals.kind == "batch"
    assert scenario.derive({}) == scenario


def test_sources_of_splits_go_with_them(tmp_path: Path) -> None:
    scenario = load_scenario(
        write(tmp_path, GOOD.replace('"split" = "s"', '"split.train" = "t"\n"split.validation" = "v"'))
    )
    derived = scenario.derive({"workload.arrivals.kind": "batch"})
    assert "split.validation" not in derived.sources and derived.sources["split.train"] == "t"


def test_the_hash_covers_splits(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    other = load_scenario(write(tmp_path, GOOD.replace("= 20", "= 21")))
    none = dataclasses.replace(scenario, splits={})
    assert len({scenario.hash(), other.hash(), none.hash()}) == 3
    assert load_scenario(write(tmp_path, GOOD.replace('"s"', '"another source"'))).hash() == scenario.hash()


def test_a_split_cannot_change_the_world() -> None:
    small = get_scenario("dl2-small-v1")
    with pytest.raises(ConfigError, match=r"split\.test\.cluster\.link_sharing: the same in all splits; may differ: "):
        dataclasses.replace(small, splits={"test": {"cluster.link_sharing": 0.5}})


# Hash.


def test_the_first_keys_are_those_of_the_configuration() -> None:
    """A misspelt key in the list would count only where it is set."""
    from dl2env.config import EnvConfig, ServerGroup, TraceConfig
    from dl2env.config_dict import config_to_dict

    values = config_to_dict(EnvConfig())
    values["cluster"]["servers"] = config_to_dict(ServerGroup(1))
    values["workload"]["trace"] = config_to_dict(TraceConfig("t"))
    del values["reward"], values["observation"]
    leaves = set(flatten(values))
    groups = {leaf.rsplit(".", i)[0] for leaf in leaves for i in range(1, leaf.count(".") + 1)}
    assert leaves | groups >= _FIRST_KEYS


def test_later_keys_count_where_they_are_set() -> None:
    small = get_scenario("dl2-small-v1")
    later = [{"workload.active_types": ["vgg-16"]}, {"workload.arrivals.burst_s": 60.0}]
    assert len({small.hash(), *(small.derive(change).hash() for change in later)}) == 3
    assert small.derive({"workload.arrivals.burst_s": 7200.0, "workload.active_types": []}).hash() == small.hash()
    world = world_values(small.config, small.job_types())["world"]
    assert "burst_s" not in world["workload"]["arrivals"] and "diurnal_sd" in world["workload"]["arrivals"]


# Errors.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"dl2-small-v1"',
            '"dl2-tiny-v1"',
            "unknown scenario that .* extends 'dl2-tiny-v1'; choose one of: .*dl2-small-v1",
        ),
        ('"dl2-small-v1"', '"other-v1.toml"', "other-v1.toml: no such file"),
        ('"dl2-small-v1"', '"mine-v1.toml"', "extends: the files extend each other in a circle"),
        ('"dl2-small-v1"', "3", "extends=3: give the name of a scenario"),
        ("num_jobs = 80", "num_jbs = 80", "config.workload.num_jbs: unknown key"),
        (
            "[config.workload]\n",
            "[config]\ncluster = 3\n[config.workload]\n",
            "config.cluster: expected a group of keys",
        ),
        (
            "num_jobs = 80",
            "num_jobs = 80\n[config.cluster.servers]\ncount = 3",
            "config.cluster.servers.*: expected a group of keys",
        ),
        ("[split.train]", "[split.training]", "unknown split of .* 'training'; choose one of: test, train, validation"),
        ("[split.train]", "[split]\ntest = 3\n[split.train]", "split: expected tables split.train, split.validation"),
        ('"workload.num_jobs" = 20', '"workload.num_jobs" = 81', r"split\.train\.workload\.num_jobs=81 exceeds .*=80"),
        ('"workload.num_jobs" = 20', '"workload.num_jobs" = 0', r"num_jobs=0 must be at least 1"),
        ('"workload.num_jobs" = 20', '"workload.num_jbs" = 20', r"split\.train\.workload\.num_jbs: the same in all"),
        (
            '"workload.num_jobs" = 20',
            '"workload.include" = ["wlm"]',
            r"split\.train\.workload\.include: the same in all",
        ),
        ('["vgg-16"]', '["vgg"]', "unknown job type of workload.active_types 'vgg'; choose one of: cnn-text"),
        ('kind = "uniform"', 'kind = "even"', r"workload\.arrivals\.kind='even' is unknown"),
        ('"split" = "s"', '"split.train" = "s"', r"no source for split\.validation\.workload\.arrivals\.kind; add"),
        ('"split" = "s"', '"split" = "s"\n"split.test" = "t"', r"sources: split\.test: config sets no such value"),
        ('"split" = "s"', '"split" = "s"\n"cluster" = "t"', "sources: cluster: config sets no such value"),
        ("[sources]", '[requires]\n"cluster.hardware" = "h"\n[sources]', "requires: cluster.hardware: not a path"),
        ("[sources]", '[requires]\n"speed.table" = ""\n[sources]', "requires: speed.table: not a text; say what"),
        ("[config.workload]", 'requires = ["speed.table"]\n[config.workload]', "requires: expected a table of texts"),
        (
            "[config.workload]",
            '[requires]\n"speed.table" = "t"\n[config.speed]\ntable = "x"\n[config.workload]',
            "requires: speed.table: config sets it; remove one",
        ),
        (
            "[sources]",
            '[[fixed_workload]]\njobs = [{ type = "wlm", arrival_s = 0, epochs = 1 }]\n[sources]',
            "split: fixed workloads are shared by all splits",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(Dl2EnvError, match=message) as caught:
        load_scenario(path)
    assert ".toml" in str(caught.value) and "\n" not in str(caught.value)


# Dotted keys.


@pytest.mark.parametrize(
    ("key", "others", "expected"),
    [
        ("a.b", ["a"], True),
        ("a", ["a.b.c"], True),
        ("a.b", ["a.b"], True),
        ("a.b", ["a.bc", "b", "a.c"], False),
        ("a.b", [], False),
    ],
)
def test_overlaps(key: str, others: list[str], expected: bool) -> None:
    assert overlaps(key, others) == expected


def test_values_by_dotted_key() -> None:
    values: dict[str, Any] = {"a": {"b": 1, "c": None}, "d": [{"e": 2}]}
    assert [value_at(values, key) for key in ("a.b", "d.0.e", "a.c.x", "x")] == [1, 2, None, None]
    assert flatten(values) == {"a.b": 1, "a.c": None, "d": [{"e": 2}]}
    set_value(values, "a.c.x", 5)
    set_value(values, "d.0.e", 6)
    assert values == {"a": {"b": 1, "c": {"x": 5}}, "d": [{"e": 6}]}


def test_scenarios_compare_by_value(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert load_scenario(path) == load_scenario(path)
    assert isinstance(load_scenario(path), Scenario)
