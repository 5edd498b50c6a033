"""Recordings as Minari datasets, checked through Minari's own interface, and back."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from agents.decision_files import Header, part_path, read_decisions, write_part
from agents.decision_layout import layout_of
from agents.minari_data import check_dataset_id, export_minari, minari_header, read_minari
from agents.players import Player
from agents.recording import Recorder
from agents.warmup_files import check_files, read_files
from dl2env.config import EnvConfig
from dl2env.config_dict import config_to_dict
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from tests.agents.worlds import small_config

minari = pytest.importorskip("minari", reason="needs minari, an optional dependency")
pytest.importorskip("h5py", reason="needs h5py, an optional dependency")

ID = "dl2env/test-v0"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def header(config: EnvConfig, name: str = "small") -> Header:
    scenario = {"name": name, "hash": "0", "split": "train"}
    provenance = {"teachers": [{"name": "optimus"}], "scenario": scenario, "env": config_to_dict(config)}
    return Header(layout_of(config), provenance)


def recording(folder: Path, behaviours: tuple[str, ...] = ("drf",), sizes: tuple[int, ...] = (70, 70, 60)) -> Path:
    acting = [Player(get_scheduler(name)) for name in behaviours]
    recorder = Recorder(SchedulingVectorEnv(3, small_config()), [Player(get_scheduler("optimus"))], acting, seed=1)
    for index, steps in enumerate(sizes):
        write_part(part_path(folder, index), header(small_config()), recorder.record(steps))
    return folder


def test_minari_reads_what_was_recorded(tmp_path: Path) -> None:
    demos = read_decisions(recording(tmp_path / "a"))[1]
    done = demos.terminated | demos.truncated
    steps: list[int] = []
    count = export_minari(tmp_path / "a", ID, author="someone", progress=steps.append)
    assert count == done.sum() + (~done[-1]).sum() and steps == [210, 420, 600]
    dataset = minari.load_dataset(ID)
    assert dataset.total_steps == 600 and dataset.total_episodes == count
    assert dataset.storage.metadata["author"] == {"someone"}
    assert dataset.storage.metadata["algorithm_name"] == "optimus"
    layout = layout_of(small_config())
    assert dataset.action_space == gymnasium.spaces.Discrete(layout.num_actions)
    ends = [(t, b) for t, b in np.argwhere(done).tolist()] + [(199, b) for b in range(3) if not done[-1, b]]
    begins = [0, 0, 0]
    for (t, b), episode in zip(ends, dataset.iterate_episodes(), strict=True):
        rows = slice(begins[b], t + 1)
        begins[b] = t + 1
        assert len(episode) == len(episode.observations["jobs"]) - 1
        assert dataset.observation_space.contains({k: v[0] for k, v in episode.observations.items()})
        np.testing.assert_array_equal(episode.observations["jobs"][:-1], demos.jobs[rows, b])
        np.testing.assert_array_equal(episode.observations["cluster"][:-1], demos.cluster[rows, b])
        assert demos.taken is not None
        np.testing.assert_array_equal(episode.actions, demos.taken[rows, b])
        np.testing.assert_array_equal(episode.infos["label"], [*demos.actions[rows, b], -1])
        np.testing.assert_array_equal(episode.infos["action_mask"][:-1], demos.masks[rows, b])
        np.testing.assert_array_equal(episode.infos["interval_ended"], [False, *demos.interval_ended[rows, b]])
        np.testing.assert_array_equal(episode.rewards, demos.rewards[rows, b])
        np.testing.assert_array_equal(episode.terminations, demos.terminated[rows, b])
        assert bool(episode.truncations[-1]) != bool(episode.terminations[-1])
        assert not episode.truncations[:-1].any()


def test_last_observations_are_those_of_the_environment(tmp_path: Path) -> None:
    """Played again, the environment gives every observation of the dataset, the last one of an episode included."""
    recording(tmp_path / "a")
    export_minari(tmp_path / "a", ID)
    env = SchedulingVectorEnv(3, small_config())
    obs, _ = env.reset(seed=1)
    demos = read_decisions(tmp_path / "a")[1]
    finals = []
    for taken in demos.taken if demos.taken is not None else ():
        obs, _, _, _, infos = env.step(taken)
        if "final_obs" in infos:
            finals += [final["jobs"] for final in infos["final_obs"] if final is not None]
    done = demos.terminated[-1] | demos.truncated[-1]
    finals += [obs["jobs"][b] for b in range(3) if not done[b]]
    for final, episode in zip(finals, minari.load_dataset(ID).iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.observations["jobs"][-1], final)


def test_round_trip(tmp_path: Path) -> None:
    """All decisions come back, by episode instead of by environment."""
    demos = read_decisions(recording(tmp_path / "a"))[1]
    export_minari(tmp_path / "a", ID)
    found, again = read_minari(f"minari:{ID}")
    assert found.layout == layout_of(small_config())
    assert json.loads(found.to_json()) == json.loads(header(small_config()).to_json())
    assert again.actions.shape == (600, 1) and again.taken is not None and demos.taken is not None

    def rows(jobs: Any, actions: Any, taken: Any, rewards: Any) -> list[bytes]:
        flat = [values.reshape(600, -1).astype(np.float32) for values in (jobs, actions, taken, rewards)]
        return sorted(row.tobytes() for row in np.concatenate(flat, axis=1))

    assert rows(demos.jobs, demos.actions, demos.taken, demos.rewards) == rows(
        again.jobs, again.actions, again.taken, again.rewards
    )


def test_warm_up_reads_it(tmp_path: Path) -> None:
    export_minari(recording(tmp_path / "a", behaviours=()), ID)
    names = [f"minari:{ID}", str(tmp_path / "a")]
    layout = layout_of(small_config())
    mix = read_files(names, [1.0, 1.0], layout, small_config())
    assert mix.num_decisions == 1200 and mix.recordings[0].taken is None and mix.recordings[0].has_rewards
    wider = layout_of(get_scenario("dl2-small-v1").config)
    with pytest.raises(TraceError, match=rf"minari:{ID}: recorded with window 4"):
        check_files(names, [], wider, small_config())


def test_environment_of_a_scenario_is_made_again(tmp_path: Path) -> None:
    config = get_scenario("toy-v1").config
    recorder = Recorder(SchedulingVectorEnv(1, scenario="toy-v1"), [Player(get_scheduler("drf"))], seed=0)
    write_part(tmp_path / "a.npz", header(config, "toy-v1"), recorder.record(50))
    export_minari(tmp_path / "a.npz", ID)
    env = minari.load_dataset(ID).recover_environment()
    assert env.unwrapped.config == config
    first = minari.load_dataset(ID)[0]
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(int(first.actions[0]))[0]["jobs"], first.observations["jobs"][1])


def collected(infos: bool) -> None:
    """What Minari's own collector writes, but without jax, which it needs."""
    from minari.data_collector import EpisodeBuffer

    env = gymnasium.make("dl2env/Scheduling-v0", scenario="toy-v1")
    scheduler = get_scheduler("drf")
    obs, info = env.reset(seed=0)
    seen, masks, ended, actions, rewards, dones = [obs], [info["action_mask"]], [False], [], [], []
    while not (dones and dones[-1]):
        batch = {name: values[None] for name, values in obs.items()}
        action = int(scheduler.act(batch, info["action_mask"][None], env.unwrapped.view())[0])  # type: ignore[attr-defined]
        obs, reward, terminated, truncated, info = env.step(action)
        seen.append(obs)
        masks.append(info["action_mask"])
        ended.append(info["interval_ended"])
        actions.append(action)
        rewards.append(reward)
        dones.append(terminated or truncated)
    buffer = EpisodeBuffer(
        observations={name: np.stack([o[name] for o in seen]) for name in seen[0]},
        actions=np.array(actions),
        rewards=rewards,
        terminations=dones,
        truncations=[False] * len(dones),
        infos={"action_mask": np.stack(masks), "interval_ended": np.array(ended)} if infos else None,
    )
    minari.create_dataset_from_buffers(
        ID, [buffer], env=env, author="x", author_email="x", code_permalink="x", algorithm_name="x", description="x",
        eval_env=env,
    )  # fmt: skip


def test_dataset_of_another_program_on_our_environment() -> None:
    collected(infos=True)
    config = get_scenario("toy-v1").config
    assert check_files([f"minari:{ID}"], [], layout_of(config), config) == []
    (demos,) = read_files([f"minari:{ID}"], [], layout_of(config), config).recordings
    assert demos.has_rewards and demos.terminated[-1, 0] and demos.terminated.sum() == 1
    recorder = Recorder(SchedulingVectorEnv(1, scenario="toy-v1"), [Player(get_scheduler("drf"))], seed=0)
    part = recorder.record(len(demos.actions))
    np.testing.assert_array_equal(part["actions"], demos.actions)
    np.testing.assert_array_equal(part["interval_ended"], demos.interval_ended)


def test_datasets_that_cannot_be_learned(place: Path) -> None:
    with pytest.raises(TraceError, match=rf"minari:{ID}: .*not found"):
        minari_header(f"minari:{ID}")
    collected(infos=False)
    with pytest.raises(TraceError, match="episode 0: has no infos/action_mask"):
        read_minari(f"minari:{ID}")
    storage = minari.load_dataset(ID).storage
    storage.update_metadata({"dl2env": "{}"})
    with pytest.raises(TraceError, match="no JSON object with schema"):
        minari_header(f"minari:{ID}")
    data = next(place.rglob("main_data.hdf5"))
    data.write_bytes(data.read_bytes()[:2000])
    storage.update_metadata({"dl2env": header(get_scenario("toy-v1").config).to_json()})
    with pytest.raises(TraceError, match=rf"minari:{ID}"):
        read_minari(f"minari:{ID}")


def test_names_of_datasets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no version"):
        check_dataset_id("dl2env/test")
    with pytest.raises(ConfigError, match="not a name that Minari takes"):
        check_dataset_id("a b/c d-v0")
    recording(tmp_path / "a")
    export_minari(tmp_path / "a", ID)
    with pytest.raises(ConfigError, match="exists already"):
        export_minari(tmp_path / "a", ID)
    assert minari.load_dataset(ID).total_steps == 600


def test_nothing_is_left_of_an_export_that_failed(tmp_path: Path, place: Path) -> None:
    recording(tmp_path / "a")
    last = part_path(tmp_path / "a", 2)
    last.write_bytes(last.read_bytes()[:-200])
    with pytest.raises(TraceError, match=r"decisions-000002\.npz"):
        export_minari(tmp_path / "a", ID)

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_minari(recording(tmp_path / "b"), ID, progress=interrupt)
    assert ID not in minari.list_local_datasets()
    export_minari(tmp_path / "b", ID)


def test_a_foreign_file_lacks_what_a_dataset_needs(tmp_path: Path) -> None:
    part = Recorder(SchedulingVectorEnv(1, small_config()), [Player(get_scheduler("drf"))]).record(5)
    bare = {name: part[name] for name in ("jobs", "cluster", "masks", "actions")}
    write_part(tmp_path / "bare.npz", header(small_config()), bare)
    with pytest.raises(TraceError, match="has no rewards, final_jobs"):
        export_minari(tmp_path / "bare.npz", ID)


def test_without_minari(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "h5py":
            raise ModuleNotFoundError("No module named 'h5py'", name="h5py")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match="h5py, which is not installed; install dl2env with its extra minari"):
        check_dataset_id(ID)
