"""The main job end to end on a small world: what it leaves, that it repeats, that it goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import agents.pipeline
import agents.run_evaluation
from agents.pipeline import find_scheduler, run_pipeline, stream_seed
from agents.run_folder import EVALUATION, FINE_TUNING, WARMUP, RunFolder
from agents.scheduler import CheckpointScheduler
from agents.validation import Validator
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios import get_scenario

SETTINGS: dict[str, Any] = {
    "seed": 3,
    "workload": {"num_jobs": 4, "max_workers": 3, "max_ps": 3, "sizes": {"mean_s": 3000.0}},
    "env": {"cluster": {"servers": [{"count": 3, "gpu_type": "gtx-1080ti"}]}, "observation": {"window": 4}},
    "agent": {"slot_width": 8, "context_width": 8},
    "warmup": {"num_envs": 4, "num_decisions": 512, "epochs": 2, "minibatch_size": 128},
    "ppo": {
        "num_envs": 4,
        "steps_per_update": 32,
        "minibatch_size": 64,
        "epochs": 1,
        "num_decisions": 1024,  # 8 updates
        "validate_every": 3,
        "checkpoint_every": 2,
    },
    "evaluation": {"baselines": ["drf", "random"], "num_workloads": 3, "num_validation_workloads": 2},
}


def changed(**groups: dict[str, Any]) -> dict[str, Any]:
    return {**SETTINGS, **{group: {**SETTINGS[group], **values} for group, values in groups.items()}}


def run(path: Path, settings: dict[str, Any] | None = None) -> list[str]:
    """Starts a run, or resumes the one in the folder; returns what it said."""
    said: list[str] = []
    folder = RunFolder.open(path) if (path / "run.json").exists() else RunFolder.create(path, settings or SETTINGS)
    summary = run_pipeline(folder, show_bars=False, say=said.append, command=["test"])
    assert summary == path / "summary.json"
    return said


def result(path: Path) -> dict[str, Any]:
    """`summary.json` without wall-clock times."""
    content: dict[str, Any] = json.loads((path / "summary.json").read_text())
    del content["timing"], content["extra"]["wall_s"]
    return content


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(path / "policy.pt", weights_only=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run that was not stopped, and what it said."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return path, run(path)


def test_result_is_complete(whole: tuple[Path, list[str]]) -> None:
    path, said = whole
    content = result(path)
    assert list(content["schedulers"]) == ["drf", "random", "warm-up", "fine-tuned"]
    assert content["split"] == "test"
    assert set(content["schedulers"]["fine-tuned"]["reduction_vs"]) == {"drf", "warm-up"}
    assert content["extra"]["seed"] == 3
    assert content["extra"]["settings"]["ppo"]["num_decisions"] == 1024
    assert content["extra"]["num_decisions"] == {"recorded": 512, "fine_tuning": 1024}
    assert content["versions"]["torch"] == torch.__version__
    assert content["command"] == ["test"]
    assert content["schedulers"]["warm-up"]["num_illegal"] == [0, 0, 0]
    table = (path / "table.txt").read_text().rstrip("\n")
    assert table in said
    assert [line.split()[0] for line in table.splitlines()[2:]] == list(content["schedulers"])
    assert (path / "jobs.csv").read_text().count("\n") == 1 + 4 * 3 * 4
    for name in ("jct_cdf.png", "reductions.png", "learning_curve.png"):
        assert (path / name).read_bytes().startswith(b"\x89PNG"), name


def test_workloads_are_of_the_right_splits(whole: tuple[Path, list[str]]) -> None:
    path, _ = whole
    world = agents.pipeline.build_world(RunFolder.open(path))
    content = result(path)
    test = [workload.digest() for workload in world.scenario.workloads("test", 3)]
    validation = [workload.digest() for workload in world.scenario.workloads("validation", 2)]
    assert content["workload_digests"] == test
    assert content["extra"]["validation_digests"] == validation
    env = agents.pipeline.make_env(world, 2)
    env.reset(seed=0)
    train = world.scenario.workload_source("train")
    arrivals = np.stack([train(0, b, 0).arrival_s for b in range(2)])
    np.testing.assert_array_equal(env.simulator.state.jobs["arrival_s"], arrivals)


def test_curves_are_there(whole: tuple[Path, list[str]]) -> None:
    path, _ = whole
    events = EventAccumulator(str(path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {
        "warmup/loss",
        "warmup/accuracy",
        "warmup/value_loss",
        "train/policy_gradient_loss",
        "train/value_loss",
        "train/entropy_loss",
        "rollout/ep_rew_mean",
        "eval/avg_jct",
        "eval/gpu_utilisation",
    }
    assert wanted - tags == set()
    validations = json.loads((path / "validation.json").read_text())
    assert [figures["num_decisions"] for figures in validations] == [0, 384, 768, 1024]
    curve = [event.value for event in events.Scalars("eval/avg_jct")]
    np.testing.assert_allclose(curve, [figures["avg_jct"] for figures in validations], 1e-6)


def test_best_checkpoint_is_the_best_validation(whole: tuple[Path, list[str]]) -> None:
    path, _ = whole
    validations = json.loads((path / "validation.json").read_text())
    metrics = CheckpointScheduler(path / "best").info.metrics
    assert metrics["avg_jct"] == min(figures["avg_jct"] for figures in validations)


def test_the_better_way_to_decide_is_taken(whole: tuple[Path, list[str]]) -> None:
    path, said = whole
    for name, agent in result(path)["extra"]["agents"].items():
        jct = agent["validation_jct"]
        assert agent["way"] == ("deterministic" if jct["deterministic"] < jct["sampled"] else "sampled")
        assert f"{name}: {agent['way']} decisions, chosen on 2 validation workloads" in said


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are a third of the time of these runs."""
    for name in ("plot_jct_cdf", "plot_reductions", "plot_learning_curve"):
        monkeypatch.setattr(agents.run_evaluation, name, lambda *arguments: None)


@pytest.mark.usefixtures("without_plots")
def test_same_seed_same_result(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    run(tmp_path / "again")
    assert result(tmp_path / "again") == result(whole[0])
    run(tmp_path / "other", {**SETTINGS, "seed": 4})
    assert result(tmp_path / "other")["workload_digests"] == result(whole[0])["workload_digests"]
    for checkpoint in ("warmup", "last"):
        ours, theirs = weights(whole[0] / checkpoint), weights(tmp_path / "other" / checkpoint)
        assert any(not torch.equal(value, theirs[key]) for key, value in ours.items())


def interrupted(function: Callable[..., Any], at_call: int) -> Callable[..., Any]:
    """The function, which the user interrupts in its n-th call."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return wrapped


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    ("owner", "name", "at_call", "done"),
    [
        (agents.pipeline, "record_demonstrations", 1, []),
        (agents.pipeline, "warm_up", 1, []),
        (Validator, "__call__", 1, [WARMUP]),  # before the first checkpoint of the fine-tuning
        (Validator, "__call__", 3, [WARMUP]),  # at update 6, after the checkpoint of update 4
        (agents.run_evaluation, "write_jobs", 1, [WARMUP, FINE_TUNING]),
    ],
)
def test_stopped_run_goes_on(
    whole: tuple[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    at_call: int,
    done: list[str],
) -> None:
    path = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted(getattr(owner, name), at_call))
        with pytest.raises(KeyboardInterrupt):
            run(path)
    assert list(RunFolder.open(path).phases) == done
    assert not (path / "summary.json").exists()
    with monkeypatch.context() as patch:
        if WARMUP in done:
            patch.setattr(agents.pipeline, "record_demonstrations", None)
        if FINE_TUNING in done:
            patch.setattr(agents.pipeline, "fine_tune", None)
        run(path)
    assert result(path) == result(whole[0])
    assert (path / "validation.json").read_text() == (whole[0] / "validation.json").read_text()
    for checkpoint in ("warmup", "best", "last"):
        expected = weights(whole[0] / checkpoint)
        for key, value in weights(path / checkpoint).items():
            assert torch.equal(value, expected[key]), (checkpoint, key)


DL2_RUN = changed(
    agent={"kind": "flat", "hidden_width": 8, "observation": "paper", "observation_scale": "log"},
    warmup={"void_probability": 0.0, "label_smoothing": 0.0, "value_coef": 0.0},
) | {
    "algorithm": "dl2",
    "env": {**SETTINGS["env"], "reward": {"progress": 1.0, "speed_gain": 0.0}},
    "dl2": {
        "num_envs": 2,
        "num_decisions": 600,
        "validate_every": 20,
        "checkpoint_every": 15,
        "batch_size": 32,
        "replay_size": 128,
        "learning_starts": 32,
    },
}


@pytest.mark.usefixtures("without_plots")
def test_dl2_runs_and_goes_on_like_ppo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole, DL2_RUN)
    validations = json.loads((whole / "validation.json").read_text())
    assert len(validations) > 3
    with monkeypatch.context() as patch:
        patch.setattr(Validator, "__call__", interrupted(Validator.__call__, 3))
        with pytest.raises(KeyboardInterrupt):
            run(stopped, DL2_RUN)
    assert list(RunFolder.open(stopped).phases) == [WARMUP]
    run(stopped)
    assert result(stopped) == result(whole)
    assert (stopped / "validation.json").read_text() == (whole / "validation.json").read_text()
    for checkpoint in ("warmup", "best", "last"):
        expected = weights(whole / checkpoint)
        for key, value in weights(stopped / checkpoint).items():
            assert torch.equal(value, expected[key]), (checkpoint, key)
    content = result(whole)
    assert list(content["schedulers"]) == ["drf", "random", "warm-up", "fine-tuned"]
    assert content["schedulers"]["fine-tuned"]["num_illegal"] == [0, 0, 0]
    assert CheckpointScheduler(whole / "best").network.config.observation == "paper"
    info = CheckpointScheduler(whole / "last").info
    assert info.dl2 is not None and info.dl2["replay_size"] == 128 and info.ppo is None
    tags = set(EventAccumulator(str(whole / "tensorboard")).Reload().Tags()["scalars"])
    assert {"train/value_loss", "train/entropy_loss", "rollout/ep_rew_mean", "eval/avg_jct"} <= tags


def test_a_teacher_must_see_what_it_was_trained_on(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    settings = {**DL2_RUN, "warmup": {**DL2_RUN["warmup"], "teacher": str(whole[0] / "best")}}
    with pytest.raises(ConfigError, match=r"reads the environment's own observation, but the learner's is 'paper'"):
        run(tmp_path / "run", settings)


def test_complete_run_is_only_shown_again(whole: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = whole
    for name in ("record_demonstrations", "fine_tune"):
        monkeypatch.setattr(agents.pipeline, name, None)
    monkeypatch.setattr(agents.run_evaluation, "evaluate", None)
    before = (path / "summary.json").read_bytes()
    assert run(path) == [(path / "table.txt").read_text().rstrip("\n")]
    assert (path / "summary.json").read_bytes() == before


@pytest.mark.usefixtures("without_plots")
def test_evaluation_that_is_stopped_shows_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stopped"
    settings = changed(ppo={"enabled": False})
    said: list[str] = []
    with monkeypatch.context() as patch:
        random = find_scheduler("random")
        patch.setattr(type(random), "act", interrupted(type(random).act, 3))
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(RunFolder.create(path, settings), show_bars=False, say=said.append)
    table = next(text for text in said if "test workloads" in text)
    assert "\ndrf " in table and "\nrandom " not in table and "interrupted" in table
    run(path)
    assert list(result(path)["schedulers"]) == ["drf", "random", "warm-up"]


@pytest.mark.usefixtures("without_plots")
def test_without_warmup(tmp_path: Path) -> None:
    run(tmp_path / "run", changed(warmup={"enabled": False}, evaluation={"baselines": ["drf"]}))
    assert list(result(tmp_path / "run")["schedulers"]) == ["drf", "fine-tuned"]
    assert list(RunFolder.open(tmp_path / "run").phases) == [FINE_TUNING, EVALUATION]


@pytest.mark.usefixtures("without_plots")
def test_a_run_can_be_another_runs_teacher_and_baseline(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    best = str(whole[0] / "best")
    settings = changed(warmup={"teacher": best}, ppo={"enabled": False}, evaluation={"baselines": ["drf", best]})
    run(tmp_path / "run", settings)
    assert list(result(tmp_path / "run")["schedulers"]) == ["drf", best, "warm-up"]


def test_another_worlds_checkpoint_is_found_at_once(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    best = str(whole[0] / "best")
    settings = changed(workload={"include": ["vgg-16", "dssm"]}, evaluation={"baselines": [best]})
    with pytest.raises(ConfigError, match=r"evaluation\.baselines: .*best': the network reads"):
        run(tmp_path / "run", settings)
    with pytest.raises(ConfigError, match=r"warmup\.teacher=.*best': the network reads"):
        run(tmp_path / "run", changed(workload={"include": ["vgg-16", "dssm"]}, warmup={"teacher": best}))
    assert not (tmp_path / "run").exists()


def test_wrong_schedulers_are_found_at_once(tmp_path: Path) -> None:
    for settings in (changed(evaluation={"baselines": ["drff"]}), changed(warmup={"teacher": "drff"})):
        with pytest.raises(UnknownNameError, match="unknown scheduler 'drff'; choose one of: .*drf, .*fifo"):
            run(tmp_path / "run", settings)
    with pytest.raises(UnknownNameError, match=r"in evaluation\.compare_with 'drff'; choose one of"):
        run(tmp_path / "run", changed(evaluation={"compare_with": ["drff"]}))
    with pytest.raises(ConfigError, match=r"warmup\.teacher='optimus-fitted' brings its own speed estimate"):
        run(tmp_path / "run", changed(warmup={"teacher": "optimus-fitted"}))
    assert not (tmp_path / "run").exists()


def test_parts_of_a_run_have_seeds_of_their_own() -> None:
    seeds = [stream_seed(seed, stream) for seed in range(20) for stream in ("recording", "network", "sampling")]
    assert len(set(seeds)) == len(seeds)
    assert stream_seed(1, "network") == stream_seed(1, "network")


def test_folder_that_holds_a_run_is_not_overwritten(whole: tuple[Path, list[str]]) -> None:
    with pytest.raises(ConfigError, match="holds a run already; continue it with resume="):
        RunFolder.create(whole[0], SETTINGS)


def run_json(**content: Any) -> str:
    return json.dumps({"schema": "dl2env-run", "schema_version": 1, **content})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no run to resume \(run.json is missing\)"),
        ("{", "cannot be read"),
        ("[]", "not a training run"),
        ('{"schema": "dl2env-run", "schema_version": 99}', "schema version 99, this code reads 1"),
        (run_json(), "settings: missing or not a group of keys"),
        (run_json(settings="x", scenario={}, phases={}), "settings: missing or not a group of keys"),
        (run_json(settings={}, phases={}), "scenario: missing or not a group of keys"),
        (run_json(settings={}, scenario={"name": "x"}, phases={}), "scenario: name or hash is missing"),
        (run_json(settings={}, scenario={}, phases=[]), "phases: missing or not a group of keys"),
        (run_json(settings={"sed": 1}, scenario={}, phases={}), "settings: sed: unknown key"),
    ],
)
def test_folders_that_hold_no_run(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ('{"a": 1}', "not a list of validations")])
def test_damaged_validations(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "validation.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"validation.json: {message}.*; remove it"):
        RunFolder.create(tmp_path, SETTINGS).read_validations()


def test_a_changed_world_is_not_resumed(tmp_path: Path) -> None:
    scenario = get_scenario("dl2-small-v1")
    RunFolder.create(tmp_path, SETTINGS).bind_scenario(scenario.name, scenario.hash())
    RunFolder.open(tmp_path).bind_scenario(scenario.name, scenario.hash())
    with pytest.raises(ConfigError, match="scenario dl2-small-v1 has changed since this run began"):
        RunFolder.open(tmp_path).bind_scenario(scenario.name, "0" * 64)


def test_paths_of_a_stored_run_hold_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(tmp_path / "run", {"workload": {"path": "jobs.csv"}, "speed": {"table": "speeds.json"}})
    assert folder.plain_settings["workload"]["path"] == str(tmp_path / "jobs.csv")
    assert folder.settings.overrides["workload.trace.path"] == str(tmp_path / "jobs.csv")
    assert folder.settings.overrides["speed.table"] == str(tmp_path / "speeds.json")
