"""Every file in conf/ composes, and becomes the dataclasses that document its keys."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from agents.networks import NetworkConfig
from agents.paper.claims import read_claims
from agents.settings import (
    DL2Settings,
    EvaluationSettings,
    FineTuningSettings,
    RunSettings,
    ScenarioSettings,
    WarmupSettings,
    build_scenario,
    read_settings,
)
from agents.world_keys import WORLD_GROUPS
from dl2env.config import DynamicsConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import Dl2EnvError
from dl2env.scenarios import get_scenario, list_scenarios
from dl2env.trace_config import TRACE_FORMATS
from scripts.benchmark import read_settings as read_benchmark_settings
from scripts.command_line import CONF, dotted_keys
from tests.scripts.calls import composed

ONLINE = {"method", "stream"}  # groups of conf/online.yaml alone, see test_online.py
CHOICES = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml") if path.parent.name not in ONLINE)
# What the user has to add to a choice.
NEEDED = {
    **{name: ["workload.path=jobs.csv"] for name in (*TRACE_FORMATS, "trace")},
    "measured": ["speed.table=t.json"],
    "calibrated": ["workload.calibrated.file=mine.yaml"],
}
GROUPS = {
    "agent": NetworkConfig,
    "dl2": DL2Settings,
    "evaluation": EvaluationSettings,
    "ppo": FineTuningSettings,
    "scenario": ScenarioSettings,
    "warmup": WarmupSettings,
}


def read(group: str, name: str) -> dict[str, Any]:
    values = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    values.pop("defaults", None)
    return values


def value_at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values


def test_all_choices_are_found() -> None:
    assert {group for group, _ in CHOICES} == {*GROUPS, "workload", "speed", "env", "algorithm", "experiment"}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_choice_is_built(group: str, name: str) -> None:
    """What a file says is what the run has, in the dataclasses and in the world."""
    settings = read_settings(composed(f"{group}={name}", *NEEDED.get(name, [])))
    said = read(group, name)
    world = config_to_dict(build_scenario(settings).config)
    built = dataclasses.asdict(settings)
    for key in dotted_keys(said):
        if group in ("algorithm", "experiment"):
            group_of_world = key.startswith(("workload.", "env."))
            has = value_at(world if group_of_world else built, key.removeprefix("env."))
        elif group == "env":
            has = value_at(world, key)
        else:
            has = value_at(world if group in ("workload", "speed") else built, f"{group}.{key}")
        assert has == pytest.approx(numbers(value_at(said, key))), key


def numbers(value: Any) -> Any:
    """A YAML value as Hydra reads it: PyYAML takes 2e-3 for a text, lists become tuples."""
    if isinstance(value, list):
        return tuple(value)
    try:
        return value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return value


@pytest.mark.parametrize("group", GROUPS)
def test_all_keys_are_in_the_files(group: str) -> None:
    """Hydra lets a user override only keys that some file has."""
    fields = {field.name for field in dataclasses.fields(GROUPS[group])}
    assert set(composed()[group]) == fields


def test_all_keys_of_the_world_can_be_overridden() -> None:
    values = composed()
    world = {key: values["env"][key] for key in WORLD_GROUPS} | {key: values[key] for key in ("workload", "speed")}
    expected = set(dotted_keys(config_to_dict(get_scenario("dl2-small-v1").config)))
    trace = {
        f"workload.{name}.{key}" for name in ("trace", "calibrated") for key in dotted_keys(world["workload"][name])
    }
    assert set(dotted_keys(world)) == (expected - {"workload.trace", "workload.calibrated"}) | trace | {"workload.path"}
    assert {value for key, value in leaves(world)} == {None}


def leaves(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in leaves(value, f"{prefix}{key}.")]
    return [(prefix, values)]


def test_every_scenario_can_be_chosen() -> None:
    assert {name for group, name in CHOICES if group == "scenario"} == set(list_scenarios())


def test_default_run_is_in_the_frozen_scenario() -> None:
    settings = read_settings(composed())
    assert settings.overrides == {}
    assert build_scenario(settings) == get_scenario("dl2-small-v1")
    assert settings.evaluation.num_workloads >= 50
    assert settings.warmup.teacher == "drf"


def test_benchmark_is_built() -> None:
    settings = read_benchmark_settings(composed(config="benchmark"))
    assert settings.scenario == "dl2-small-v1"
    assert settings.windows == (20, 40)
    assert settings.batches == (1, 64, 1024)


def test_overrides_reach_the_world() -> None:
    settings = read_settings(
        composed("env.dynamics.speed_noise=0.1", "workload.num_jobs=7", "env.cluster.servers=[{count: 3, gpus: 4}]")
    )
    config = build_scenario(settings).config
    assert (config.dynamics.speed_noise, config.workload.num_jobs) == (0.1, 7)
    assert [(group.count, group.gpus, group.cpus) for group in config.cluster.servers] == [(3, 4, 8)]


def test_values_of_an_experiment_give_way_to_the_command_line() -> None:
    settings = read_settings(composed("experiment=smoke", "ppo.num_envs=5", "ppo.minibatch_size=10"))
    assert (settings.name, settings.ppo.num_envs) == ("smoke", 5)


@pytest.mark.parametrize(
    ("algorithm", "learner", "observation", "progress"),
    [
        ("ppo", "ppo", "native", 0.0),
        ("a2c", "ppo", "native", 0.0),
        ("dl2", "dl2", "paper", 1.0),
        ("dl2_released", "dl2", "released", 1.0),
    ],
)
def test_an_algorithm_brings_what_belongs_to_it(
    algorithm: str, learner: str, observation: str, progress: float
) -> None:
    settings = read_settings(composed(f"algorithm={algorithm}"))
    assert (settings.algorithm, settings.agent.observation) == (learner, observation)
    assert settings.fine_tuning is getattr(settings, learner)
    assert build_scenario(settings).config.reward.progress == progress


def test_released_algorithm_has_the_released_rules() -> None:
    settings = read_settings(composed("algorithm=dl2_released"))
    released = DynamicsConfig.faithful(scaling_cost="none")
    dynamics = build_scenario(settings).config.dynamics
    for name in (
        "placement",
        "scaling_cost",
        "initial_bundle",
        "mask_resources",
        "window_skips_capped",
        "auto_advance",
        "load_by_sum",
    ):
        assert getattr(dynamics, name) == getattr(released, name), name
    assert (settings.dl2.interval_gamma, settings.dl2.sampling) == (0.0, "prioritized")
    assert not settings.warmup.teach_void


def test_groups_on_the_command_line_win_over_the_algorithm() -> None:
    settings = read_settings(composed("algorithm=dl2", "env=jct_reward", "agent=equivariant", "warmup.teacher=srtf"))
    assert (settings.algorithm, settings.agent.kind, settings.warmup.teacher) == ("dl2", "equivariant", "srtf")
    assert build_scenario(settings).config.reward.jct == 1.0
    without = read_settings(composed("algorithm=dl2", "experiment=warmup_only"))
    assert not without.fine_tuning.enabled


PAPER = sorted(path.stem for path in (CONF / "experiment" / "paper").glob("*.yaml"))


def test_every_claim_of_the_paper_has_experiments() -> None:
    """And every experiment is for a claim; those without say why."""
    claims = read_claims()
    assert sorted(claims.experiments) == PAPER
    assert sorted(claim.number for claim in claims.claims if claim.number is not None) == list(range(1, 23))
    assert [claim.id for claim in claims.claims if claim.not_covered] == ["scaling-steps"]


@pytest.mark.parametrize("name", PAPER)
def test_experiment_of_the_paper(name: str) -> None:
    """It composes, changes something, and its claims ask for schedulers that it compares."""
    base, changed = (read_settings(composed(f"experiment=paper/{other}")) for other in ("dl2", name))
    assert changed.name == f"paper/{name}" and changed.algorithm == "dl2"
    assert name == "dl2" or dataclasses.replace(changed, name=base.name) != base
    build_scenario(changed)
    compared = {*changed.evaluation.baselines, *(["fine-tuned"] if changed.fine_tuning.enabled else ["warm-up"])}
    for claim in read_claims().claims:
        named = [r for check in claim.checks for r in check.references] + [r for _, r in claim.picture.labelled]
        for experiment, _, scheduler in (reference.partition("/") for reference in named):
            assert experiment != name or not scheduler or scheduler in compared, (claim.id, scheduler)


def test_trace_is_named_after_its_file() -> None:
    settings = read_settings(composed("workload=philly", "workload.path=some/where/jobs.csv"))
    assert settings.overrides["workload.trace.path"] == "some/where/jobs.csv"
    assert build_scenario(settings).name == "dl2-small-v1+jobs.csv"


def test_reward_is_no_part_of_the_worlds_name() -> None:
    settings = read_settings(composed("env=progress_reward"))
    scenario = build_scenario(settings)
    assert scenario.name == "dl2-small-v1"
    assert scenario.hash() == get_scenario("dl2-small-v1").hash()
    assert scenario.config.reward.progress == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"workload": {"trace": {"format": "philly"}}}, r"workload\.path: not set"),
        ({"workload": {"jobs": 3}}, r"workload\.jobs: unknown key"),
        ({"env": {"workload": {}}}, r"env\.workload: unknown key"),
        ({"env": 3}, "env: expected a group"),
        ({"ppo": {"epochs": "many"}}, r"ppo\.epochs: expected int"),
        ({"ppo": {"num_envs": 0}}, r"ppo\.num_envs=0"),
        ({"ppo": {"epochs": 0}}, r"ppo\.epochs=0"),
        ({"warmup": {"num_envs": 0}}, r"warmup\.num_envs=0"),
        ({"warmup": {"enabled": False}, "ppo": {"enabled": False}}, "nothing to train"),
        ({"evaluation": {"baselines": ["drf", "drf"]}}, "names a scheduler twice"),
        ({"evaluation": {"num_workloads": 0}}, r"evaluation\.num_workloads=0"),
        ({"algorithm": "sarsa"}, "algorithm='sarsa' is unknown; choose one of: ppo, dl2"),
        ({"dl2": {"num_envs": 0}}, r"dl2\.num_envs=0 must be at least 1"),
        ({"algorithm": "dl2", "warmup": {"enabled": False}, "dl2": {"enabled": False}}, r"dl2\.enabled are both false"),
        ({"warmup": {"loss": "hinge"}}, r"warmup\.loss='hinge' is unknown"),
        ({"warmup": {"max_steps": 0}}, r"warmup\.max_steps=0 must be at least 1"),
        ({"overrides": {}}, "overrides: unknown key"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": True}, "seed: expected int"),
        ({"threads": 0}, "threads=0"),
        ({"nam": "x"}, "nam: unknown key"),
        ({"scenario": {"name": "toy-v1"}, "workload": {"num_jobs": 2}}, "has fixed workloads"),
        ({"scenario": {"name": "nowhere-v1"}}, "unknown scenario"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(Dl2EnvError, match=message):
        build_scenario(read_settings(values))


def test_settings_without_values_have_the_defaults() -> None:
    assert read_settings({}) == RunSettings()
