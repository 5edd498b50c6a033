"""Configurations: what is accepted, what is refused and how, and the way to plain values and back."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    EstimateConfig,
    ObservationConfig,
    Placement,
    RewardConfig,
    ScalingCost,
    ServerGroup,
    TraceConfig,
    WorkloadConfig,
)
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError

ANY = [0.0, -3, 1.5, 1e-9]
SWITCH = [True, False]

# Acceptable values of every key, limits included.
VALID: dict[str, list[Any]] = {
    "cluster.servers": [
        [{"count": 1}],
        [{"count": 48, "cpus": 0, "gpus": 0, "gpu_type": "v100"}, {"count": 2}],
    ],
    "cluster.hardware": ["pai-base", "dl2-testbed"],
    "cluster.link_sharing": [0, 0.0, 2.5, 100.0],
    "cluster.pcie_group": [0, 8],
    "workload.job_types": ["dl2", "a/file.toml"],
    "workload.include": [[], ["resnet-50", "vgg-16"]],
    "workload.active_types": [[], ["resnet-50"]],
    "workload.num_jobs": [1, 60],
    "workload.max_workers": [1, 64],
    "workload.max_ps": [1, 64],
    "workload.arrivals.kind": ["poisson", "uniform", "diurnal", "bursty", "batch"],
    "workload.arrivals.rate_per_interval": [0.01, 3],
    "workload.arrivals.diurnal_swing": [0.0, 0.99],
    "workload.arrivals.diurnal_sd": [0.0, 2],
    "workload.arrivals.burst_factor": [1, 22.0],
    "workload.arrivals.burst_share": [0.01, 0.99],
    "workload.arrivals.burst_s": [1, 7200.0],
    "workload.sizes.kind": ["published_bins", "lognormal", "fixed"],
    "workload.sizes.mean_s": [1, 8820.0],
    "workload.sizes.sigma": [0.1, 2],
    "workload.sizes.reference_workers": [1, 4],
    "workload.sizes.reference_ps": [0, 4],
    "workload.trace": [
        None,
        {"path": "trace.csv"},
        {"path": "t", "format": "philly", "start_fraction": 0.25, "stop_fraction": 0.5, "seed": 7, "load_scale": 2},
    ],
    "workload.calibrated": [None],  # excludes a trace; tests/workload/calibrated has its values
    "speed.model": ["analytic"],
    "speed.table": [None, "table.json"],
    "speed.clean_table": SWITCH,
    "speed.overlap": ["none", "ideal"],
    "estimate.kind": ["exact", "fitted", "noisy"],
    "estimate.noise": [0, 0.99],
    "estimate.num_probes": [5, 1000],
    "dynamics.interval_s": [1e-3, 1200],
    "dynamics.max_intervals": [1, 10**6],
    "dynamics.placement": list(typing.get_args(Placement)),
    "dynamics.scaling_cost": list(typing.get_args(ScalingCost)),
    "dynamics.initial_bundle": SWITCH,
    "dynamics.mask_resources": SWITCH,
    "dynamics.window_skips_capped": SWITCH,
    "dynamics.auto_advance": SWITCH,
    "dynamics.exact_finish": SWITCH,
    "dynamics.load_by_sum": SWITCH,
    "dynamics.speed_noise": [0.0, 0.999],
    "dynamics.epoch_error": [0.0, 0.999],
    "reward.progress": ANY,
    "reward.jct": ANY,
    "reward.ideal_progress": ANY,
    "reward.speed_gain": ANY,
    "observation.window": [1, 200],
    "observation.type_encoding": ["one_hot", "features", "both"],
}

# Values that are out of range or unknown, and what the message says to do about it.
INVALID: list[tuple[str, Any, str]] = [
    ("cluster.servers", [], "name at least one server group"),
    ("cluster.servers", [{"count": 0}], "count=0 .* must be at least 1"),
    ("cluster.servers", [{"count": 1, "cpus": -1}], "cpus=-1 .* must not be negative"),
    ("cluster.servers", [{"count": 1, "gpus": -2}], "gpus=-2 .* must not be negative"),
    ("cluster.link_sharing", -0.1, r"must lie in \[0, 100\]"),
    ("cluster.link_sharing", 100.5, r"must lie in \[0, 100\]"),
    ("cluster.pcie_group", -1, r"must be 0 \(off\) or positive"),
    ("workload.num_jobs", 0, "must be at least 1"),
    ("workload.max_workers", 0, r"must lie in 1\.\.64"),
    ("workload.max_workers", 65, r"must lie in 1\.\.64"),
    ("workload.max_ps", 0, r"must lie in 1\.\.64"),
    ("workload.max_ps", 65, r"must lie in 1\.\.64"),
    ("workload.arrivals.kind", "trickle", "choose one of: poisson, uniform, diurnal, bursty, batch"),
    ("workload.arrivals.rate_per_interval", 0.0, "must be positive"),
    ("workload.arrivals.diurnal_swing", 1.0, r"must lie in \[0, 1\)"),
    ("workload.arrivals.diurnal_swing", -0.1, r"must lie in \[0, 1\)"),
    ("workload.arrivals.diurnal_sd", -1.0, "not negative"),
    ("workload.arrivals.burst_factor", 0.5, "at least 1"),
    ("workload.arrivals.burst_share", 0.0, "must lie between 0 and 1"),
    ("workload.arrivals.burst_share", 1.0, "must lie between 0 and 1"),
    ("workload.arrivals.burst_s", 0.0, "must be positive"),
    ("workload.sizes.kind", "huge", "choose one of: published_bins, lognormal, fixed"),
    ("workload.sizes.mean_s", 0.0, "must be positive"),
    ("workload.sizes.sigma", -1.0, "must be positive"),
    ("workload.sizes.reference_workers", 0, "must be at least 1"),
    ("workload.sizes.reference_ps", -1, "must not be negative"),
    ("workload.trace", {"path": "t", "format": "xml"}, "format='xml' is unknown; choose one of: auto, philly, "),
    ("workload.trace", {"path": "t", "start_fraction": 0.5, "stop_fraction": 0.5}, "start_fraction < stop_fraction"),
    ("workload.trace", {"path": "t", "start_fraction": -0.5}, "start_fraction=-0.5.* must hold"),
    ("workload.trace", {"path": "t", "stop_fraction": 1.5}, "stop_fraction=1.5.* must hold"),
    ("workload.trace", {"path": "t", "load_scale": 0.0}, "load_scale=0.0 must be positive"),
    ("workload.trace", {}, "missing 1 required positional argument: 'path'"),
    ("workload.calibrated", {}, "workload.calibrated.file: not set"),
    ("workload.calibrated", {"file": "philly", "load_scale": 0.0}, "load_scale=0.0 must be positive"),
    ("workload.calibrated", {"file": "philly", "target_load": -1.0}, "target_load=-1.0 must be positive"),
    ("speed.model", "guess", "choose one of: analytic, measured"),
    ("speed.overlap", "some", "choose one of: none, ideal"),
    ("estimate.kind", "guess", "choose one of: exact, fitted, noisy"),
    ("estimate.noise", 1.0, r"must lie in \[0, 1\)"),
    ("estimate.num_probes", 4, "must be at least 5"),
    ("dynamics.interval_s", 0.0, "must be positive"),
    ("dynamics.max_intervals", 0, "must be at least 1"),
    ("dynamics.placement", "anywhere", "choose one of: least_loaded, pack, spread, least_loaded_single"),
    ("dynamics.scaling_cost", "cold", "choose one of: none, hot, checkpoint"),
    ("dynamics.speed_noise", 1.0, r"must lie in \[0, 1\)"),
    ("dynamics.speed_noise", -0.1, r"must lie in \[0, 1\)"),
    ("dynamics.epoch_error", 1.0, r"must lie in \[0, 1\)"),
    ("observation.window", 0, "must be at least 1"),
    ("observation.type_encoding", "text", "choose one of: one_hot, features, both"),
]


def nested(key: str, value: Any) -> dict[str, Any]:
    """Nested dictionaries with one value."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def with_value(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested dictionaries with one value changed."""
    changed = copy.deepcopy(values)
    *groups, last = key.split(".")
    node = changed
    for group in groups:
        node = node.setdefault(group, {})
    node[last] = value
    return changed


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


DEFAULT = config_to_dict(EnvConfig())
FLOATS = [key for key, value in leaves(DEFAULT).items() if isinstance(value, float)]


def test_the_table_names_every_key() -> None:
    assert set(VALID) == set(leaves(DEFAULT))


@settings(max_examples=40)
@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in VALID.items()}))
def test_plain_values_and_back(chosen: dict[str, Any]) -> None:
    values: dict[str, Any] = {}
    for key, value in chosen.items():
        values = with_value(values, key, value)
    config = config_from_dict(EnvConfig, values)
    plain = config_to_dict(config)
    assert config_from_dict(EnvConfig, plain) == config
    assert config_from_dict(EnvConfig, json.loads(json.dumps(plain))) == config
    assert config_to_dict(config_from_dict(EnvConfig, plain)) == plain
    assert hash(config) == hash(config_from_dict(EnvConfig, plain))
    # What was asked for is what is there.
    for key, value in chosen.items():
        node: Any = plain
        for part in key.split("."):
            node = node[part]
        if key not in ("cluster.servers", "workload.trace"):  # these fill in defaults
            assert node == value


def test_defaults_and_subsets() -> None:
    assert config_from_dict(EnvConfig, {}) == EnvConfig()
    assert config_from_dict(EnvConfig, DEFAULT) == EnvConfig()
    partial = config_from_dict(EnvConfig, {"workload": {"num_jobs": 7}})
    assert partial == EnvConfig(workload=WorkloadConfig(num_jobs=7))
    assert config_from_dict(ServerGroup, {"count": 3, "gpus": 4}) == ServerGroup(3, gpus=4)


@pytest.mark.parametrize(("key", "value", "cure"), INVALID)
def test_a_refusal_names_the_key_the_value_and_the_cure(key: str, value: Any, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure) as caught:
        config_from_dict(EnvConfig, nested(key, value))
    message = str(caught.value)
    assert key in message and "\n" not in message
    if isinstance(value, int | float | str):
        assert str(value) in message


def test_every_limited_key_is_tried() -> None:
    without_limits = {"cluster.hardware", "speed.table", *VALID}
    without_limits -= {key for key, _, _ in INVALID}
    assert without_limits == {
        "cluster.hardware",  # known names are the reader's business
        "workload.job_types",
        "workload.include",
        "workload.active_types",
        "speed.table",
        *(key for key, values in VALID.items() if values is SWITCH),
        *(key for key, values in VALID.items() if values is ANY),
    }


def test_a_measured_model_needs_its_table() -> None:
    with pytest.raises(ConfigError, match=r"^speed\.table: name the JSON file"):
        config_from_dict(EnvConfig, {"speed": {"model": "measured"}})
    assert config_from_dict(EnvConfig, {"speed": {"model": "measured", "table": "t.json"}}).speed.table == "t.json"


def wrong_type(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [1, "true", None]
    if isinstance(value, int):
        return [True, 1.5, "1", None]
    if isinstance(value, float):
        return [True, "1", None, [1.0]]
    if isinstance(value, str):
        return [1, None, ["a"]]
    assert isinstance(value, list)
    return ["text", 3, None]


@pytest.mark.parametrize("key", [key for key, value in leaves(DEFAULT).items() if value is not None])
def test_wrong_types_are_refused(key: str) -> None:
    value = leaves(DEFAULT)[key]
    for wrong in wrong_type(value):
        with pytest.raises(ConfigError) as caught:
            config_from_dict(EnvConfig, nested(key, wrong))
        message = str(caught.value)
        assert message.startswith(f"config.{key}: expected ") and message.endswith(f"got {wrong!r}")


@pytest.mark.parametrize("key", ["workload.trace", "speed.table"])
def test_none_is_taken_where_it_means_something(key: str) -> None:
    assert config_from_dict(EnvConfig, nested(key, None)) == EnvConfig()


def test_whole_numbers_are_fractions_too() -> None:
    interval_s = config_from_dict(EnvConfig, {"dynamics": {"interval_s": 60}}).dynamics.interval_s
    assert interval_s == 60.0 and isinstance(interval_s, float)


@pytest.mark.parametrize("key", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^config\.{key}: {value} is no value; give a finite number$"):
        config_from_dict(EnvConfig, nested(key, value))
    group, _, field = key.rpartition(".")
    config: Any = EnvConfig()
    for part in group.split("."):
        config = getattr(config, part)
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(config, **{field: value})


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("clusters", "cluster, dynamics, estimate, observation, reward, speed, workload"),
        ("cluster.server", "hardware, link_sharing, pcie_group, servers"),
        (
            "workload.arrivals.rate",
            "burst_factor, burst_s, burst_share, diurnal_sd, diurnal_swing, kind, rate_per_interval",
        ),
        ("workload.sizes.mean", "kind, mean_s, reference_ps, reference_workers, sigma"),
    ],
)
def test_unknown_keys_name_the_known_ones(key: str, known: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_dict(EnvConfig, nested(key, 1))
    assert str(caught.value).startswith(f"config.{key}: unknown key; ")
    assert str(caught.value).endswith(f"has: {known}")


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"cluster": 3}, "config.cluster: expected a group of keys, got 3"),
        ({"cluster": WorkloadConfig()}, "config.cluster: expected a group of keys, got WorkloadConfig"),
        ({"cluster": {"servers": [3]}}, r"config.cluster.servers\[0\]: expected a group of keys, got 3"),
        ({"cluster": {"servers": [{"count": 1}, {"cpu": 1}]}}, r"config.cluster.servers\[1\].cpu: unknown key"),
        ({"cluster": {"servers": [{"cpus": 1}]}}, r"config.cluster.servers\[0\]: .*missing.*'count'"),
        ({"workload": {"include": ["a", 3]}}, r"config.workload.include\[1\]: expected str, got 3"),
        ({"workload": {"trace": "trace.csv"}}, "config.workload.trace: expected a group of keys, got 'trace.csv'"),
        ({"workload": {"trace": {"pth": "t"}}}, "config.workload.trace.pth: unknown key; TraceConfig has: companion, "),
    ],
)
def test_the_place_of_a_mistake_is_told(values: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where}"):
        config_from_dict(EnvConfig, values)
    with pytest.raises(ConfigError, match=f"^{where.replace('config', 'world.toml', 1)}"):
        config_from_dict(EnvConfig, values, where="world.toml")


def test_ready_made_parts_are_taken_as_they_are() -> None:
    cluster = ClusterConfig((ServerGroup(2),))
    trace = TraceConfig("t")
    config = config_from_dict(EnvConfig, {"cluster": cluster, "workload": {"trace": trace}})
    assert config.cluster is cluster and config.workload.trace is trace


def test_configurations_are_values() -> None:
    assert EnvConfig() == EnvConfig() and hash(EnvConfig()) == hash(EnvConfig())
    with pytest.raises(dataclasses.FrozenInstanceError):
        EnvConfig().cluster.link_sharing = 1.0  # type: ignore[misc]
    # Lists are stored as tuples, so that configurations stay hashable and nobody holds their inside.
    groups = [ServerGroup(1)]
    cluster = ClusterConfig(servers=groups)  # type: ignore[arg-type]
    groups.append(ServerGroup(2))
    assert cluster.servers == (ServerGroup(1),) and cluster.num_servers == 1
    assert WorkloadConfig(include=["a"]).include == ("a",)  # type: ignore[arg-type]
    assert ClusterConfig((ServerGroup(3), ServerGroup(4))).num_servers == 7


def test_plain_values_are_copies() -> None:
    config = EnvConfig()
    plain = config_to_dict(config)
    plain["cluster"]["servers"][0]["count"] = 99
    assert config == EnvConfig()


def test_faithful_rules_may_be_changed_one_by_one() -> None:
    assert DynamicsConfig.faithful() == DynamicsConfig(
        placement="least_loaded_single",
        scaling_cost="none",
        mask_resources=False,
        window_skips_capped=True,
        auto_advance=False,
        load_by_sum=True,
    )
    changed = DynamicsConfig.faithful(interval_s=60.0, auto_advance=True)
    assert changed == dataclasses.replace(DynamicsConfig.faithful(), interval_s=60.0, auto_advance=True)


def test_derived_configurations_are_checked() -> None:
    for config, change in (
        (EstimateConfig(), {"kind": "guess"}),
        (ObservationConfig(), {"window": 0}),
        (RewardConfig(), {"jct": math.nan}),
    ):
        with pytest.raises(ConfigError):
            dataclasses.replace(config, **change)
