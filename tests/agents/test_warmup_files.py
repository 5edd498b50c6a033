"""Warm-up from recordings on disk."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.decision_files import Header, save_decisions, write_part
from agents.decision_layout import ObservationLayout, layout_of
from agents.demonstrations import DecisionMix, Demonstrations
from agents.networks import NetworkConfig, ObservationShape, build_network
from agents.players import Player
from agents.recording import Recorder, demonstrations_of, record_demonstrations
from agents.returns import Discounting
from agents.run_folder import WARMUP, RunFolder
from agents.settings import build_scenario, read_settings
from agents.warmup import WarmupConfig, warm_up
from agents.warmup_data import Samples, split_rows
from agents.warmup_files import check_files, read_files
from dl2env.config import EnvConfig
from dl2env.config_dict import config_to_dict
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.schedulers import get_scheduler
from tests.agents.test_pipeline import SETTINGS, changed, run, weights
from tests.agents.worlds import small_config

CONFIG = WarmupConfig(epochs=2, minibatch_size=64)


def recorded(teacher: str = "drf", num_decisions: int = 400, seed: int = 2) -> Demonstrations:
    return record_demonstrations(
        SchedulingVectorEnv(4, small_config()), get_scheduler(teacher), num_decisions, seed=seed
    )


def trained(demos: Demonstrations | DecisionMix) -> dict[str, torch.Tensor]:
    first = demos.recordings[0] if isinstance(demos, DecisionMix) else demos
    torch.manual_seed(0)
    shape = ObservationShape(first.jobs.shape[2], first.jobs.shape[3], first.cluster.shape[2])
    network = build_network(NetworkConfig(slot_width=8, context_width=8), shape)
    warm_up(network, demos, CONFIG, seed=1)
    return network.state_dict()


def same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def layout() -> ObservationLayout:
    return layout_of(small_config())


def test_from_a_file_as_from_memory(tmp_path: Path, layout: ObservationLayout) -> None:
    demos = recorded()
    save_decisions(tmp_path / "a.npz", demos, layout)
    read = read_files([str(tmp_path / "a.npz")], [], layout, small_config())
    assert same_weights(trained(demos), trained(read))
    assert not same_weights(trained(demos), trained(recorded(seed=3)))


def test_a_run_from_files_as_from_a_teacher(tmp_path: Path) -> None:
    """The whole pipeline: the recording that a run makes in memory, as a file, gives the same network."""
    from agents.pipeline import build_world, record_teacher

    settings = changed(ppo={"enabled": False})
    run(tmp_path / "memory", settings)
    folder = RunFolder.open(tmp_path / "memory")
    world = build_world(folder)
    layout = layout_of(world.config)
    save_decisions(tmp_path / "teacher.npz", record_teacher(folder, world, False), layout)
    files = changed(ppo={"enabled": False}, warmup={"files": [str(tmp_path / "teacher.npz")], "teacher": "nobody"})
    said = run(tmp_path / "files", files)
    assert same_weights(weights(tmp_path / "memory" / "warmup"), weights(tmp_path / "files" / "warmup"))
    assert any(f"512 decisions of {tmp_path / 'teacher.npz'}" in line for line in said)
    assert not any(line.startswith("note:") for line in said)
    provenance = RunFolder.open(tmp_path / "files").result(WARMUP)["recordings"]
    assert [recording["teacher"] for recording in provenance] == ["drf"]


def test_a_wrong_file_ends_the_run_before_anything_is_done(tmp_path: Path) -> None:
    settings = changed(warmup={"files": [str(tmp_path / "none.npz")]})
    with pytest.raises(TraceError, match=r"none\.npz: no such file"):
        run(tmp_path / "run", settings)
    scenario = build_scenario(read_settings(SETTINGS))
    wider = dataclasses.replace(layout_of(scenario.config), window=5)
    part = {
        "jobs": np.zeros((3, 1, *wider.jobs_shape), np.float32),
        "cluster": np.zeros((3, 1, len(wider.cluster_columns)), np.float32),
        "masks": np.ones((3, 1, wider.num_actions), np.bool_),
        "actions": np.zeros((3, 1), np.int64),
    }
    write_part(tmp_path / "wider.npz", Header(wider), part)
    with pytest.raises(TraceError, match=r"wider\.npz: recorded with window 5, this run has 4"):
        run(tmp_path / "run", changed(warmup={"files": [str(tmp_path / "wider.npz")]}))
    assert not (tmp_path / "run" / "warmup").exists()


def test_file_names_hold_wherever_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = changed(warmup={"files": ["a.npz", "minari:dl2env/drf-v0"]})
    folder = RunFolder.create(tmp_path / "run", settings)
    folder.store()
    assert RunFolder.open(tmp_path / "run").settings.warmup.files == (str(tmp_path / "a.npz"), "minari:dl2env/drf-v0")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"file_weights": [1.0]}, r"warmup\.file_weights: there are no warmup\.files"),
        ({"files": "a.npz"}, r"warmup\.files: expected a list"),
        ({"files": [3]}, r"warmup\.files\[0\]: expected str"),
    ],
)
def test_wrong_settings(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_settings({"warmup": values})


def test_several_files_are_mixed_as_told(tmp_path: Path, layout: ObservationLayout) -> None:
    names = []
    for name, size in (("drf", 400), ("srtf", 100)):
        save_decisions(tmp_path / f"{name}.npz", recorded(name, size), layout)
        names.append(str(tmp_path / f"{name}.npz"))
    plain = read_files(names, [], layout, small_config())
    assert plain.num_decisions == 500 and plain.shares == (0.8, 0.2)
    even = read_files(names, [1.0, 1.0], layout, small_config())
    assert even.shares == (0.5, 0.5)
    assert not same_weights(trained(plain), trained(even))
    assert same_weights(trained(even), trained(even))
    with pytest.raises(ConfigError, match=r"warmup\.file_weights: 1 weights"):
        check_files(names, [1.0], layout, small_config())
    with pytest.raises(ConfigError, match="names a recording twice"):
        check_files([names[0], names[0]], [], layout, small_config())


def test_rows_of_an_epoch() -> None:
    """400 and 100 decisions in 4 environments, one of which is held out: 300 and 75 to learn from."""
    mix = DecisionMix((recorded("drf", 400), recorded("srtf", 100)), (1.0, 3.0))
    samples = Samples.of(mix, Discounting())
    split = split_rows(mix, samples, 0.25, torch.Generator().manual_seed(0))
    assert [len(rows) for rows in split.train] == [300, 75] and [len(rows) for rows in split.held] == [100, 25]
    assert not set(split.train[1].tolist()) & set(split.held[1].tolist())
    epoch = split.epoch(torch.Generator().manual_seed(1))
    assert len(epoch) == split.epoch_size == 375
    counts = torch.bincount(epoch, minlength=500)
    assert counts[:400].sum() == 94 and counts[:400].max() == 1  # a quarter of 375
    # Three quarters from 75 rows: each three or four times, none of those held out.
    assert counts[split.train[1]].sum() == 281 and set(counts[split.train[1]].tolist()) == {3, 4}
    assert counts[split.held[0]].sum() == counts[split.held[1]].sum() == 0
    assert [weight for weight, _ in split.held_groups()] == [0.25, 0.75]
    plain = split_rows(DecisionMix(mix.recordings), samples, 0.25, torch.Generator().manual_seed(0))
    assert sorted(plain.epoch(torch.Generator().manual_seed(1)).tolist()) == sorted(torch.cat(plain.train).tolist())


def test_labels_for_visited_states_are_learned_and_their_returns_are_not() -> None:
    env = SchedulingVectorEnv(4, small_config())
    part = Recorder(env, [Player(get_scheduler("drf"))], [Player(get_scheduler("random"))], seed=1).record(100)
    samples = Samples.of(DecisionMix((demonstrations_of(part, {}),)), Discounting(interval_gamma=0.0))
    np.testing.assert_array_equal(samples.actions.view(100, 4), part["actions"])
    strays = torch.from_numpy(part["actions"] != part["taken"]).flatten()
    assert strays.float().mean() > 0.3
    assert not samples.has_return[strays].any()
    assert samples.has_return[~strays].any()


def other_world() -> EnvConfig:
    config = small_config()
    cluster = dataclasses.replace(config.cluster, link_sharing=0.9)
    return dataclasses.replace(config, cluster=cluster)


def test_what_the_user_should_know(tmp_path: Path, layout: ObservationLayout) -> None:
    save_decisions(tmp_path / "a.npz", recorded(), layout)
    names = [str(tmp_path / "a.npz")]
    assert check_files(names, [], layout, small_config()) == []
    (note,) = check_files(names, [], layout, other_world())
    assert "a.npz: recorded in another world (cluster.link_sharing)" in note
    reward = dataclasses.replace(small_config().reward, progress=0.25)
    rewarded = dataclasses.replace(small_config(), reward=reward)
    (note,) = check_files(names, [], layout, rewarded)
    assert "another reward" in note
    assert read_files(names, [], layout, small_config()).recordings[0].has_rewards
    assert not read_files(names, [], layout, rewarded).recordings[0].has_rewards


def test_a_foreign_file_without_rewards_can_be_learned(tmp_path: Path, layout: ObservationLayout) -> None:
    demos = recorded()
    header = {"schema": "dl2env-decisions", "schema_version": 1, "layout": layout.to_dict()}
    arrays = {name: getattr(demos, name).swapaxes(0, 1) for name in ("jobs", "cluster", "masks", "actions")}
    np.savez(tmp_path / "mine.npz", header=np.array(json.dumps(header)), **arrays)
    mix = read_files([str(tmp_path / "mine.npz")], [], layout, small_config())
    learned = trained(mix)
    assert all(torch.isfinite(values).all() for values in learned.values())
    assert learned["value_head.std"] == 1.0  # no return to scale by


def test_provenance_is_that_of_the_recording(tmp_path: Path, layout: ObservationLayout) -> None:
    save_decisions(tmp_path / "a.npz", recorded(), layout)
    (demos,) = read_files([str(tmp_path / "a.npz")], [], layout, small_config()).recordings
    assert demos.provenance["env"] == json.loads(json.dumps(config_to_dict(small_config())))
