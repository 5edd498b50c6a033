"""The file format: round trip, files made elsewhere, and everything that can be wrong with one."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.decision_files import Header, part_path, read_decisions, read_header, read_part, save_decisions, write_part
from agents.decision_layout import ObservationLayout, check_layout, layout_of, world_differences
from agents.demonstrations import Demonstrations
from agents.players import Player
from agents.recording import Arrays, Recorder, WorkloadLog, record_demonstrations
from agents.returns import Discounting
from dl2env.config_dict import config_to_dict
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from dl2env.workload.generator import build_workload_source
from tests.agents.worlds import small_config

LEARNED = ("jobs", "cluster", "masks", "actions", "rewards", "interval_ended", "terminated", "truncated")


def recorder(behaviours: tuple[str, ...] = ()) -> Recorder:
    log = WorkloadLog(build_workload_source(small_config()))
    env = SchedulingVectorEnv(3, small_config(), workloads=log)
    acting = [Player(get_scheduler(name)) for name in behaviours]
    return Recorder(env, [Player(get_scheduler("drf"))], acting, seed=1, log=log)


@pytest.fixture(scope="module")
def header() -> Header:
    return Header(layout_of(small_config()), {"seed": 1, "env": config_to_dict(small_config()), "versions": {"a": "1"}})


@pytest.fixture
def part() -> Arrays:
    return recorder().record(100)


def same(a: Demonstrations, b: Demonstrations) -> None:
    for name in LEARNED:
        assert getattr(a, name).dtype == getattr(b, name).dtype, name
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
    assert (a.taken is None) == (b.taken is None)
    if a.taken is not None and b.taken is not None:
        np.testing.assert_array_equal(a.taken, b.taken)
    assert a.has_rewards == b.has_rewards


def test_everything_comes_back(tmp_path: Path, header: Header) -> None:
    part = recorder(("random",)).record(100)
    write_part(tmp_path / "a" / "file.npz", header, part)
    found, again = read_part(tmp_path / "a" / "file.npz")
    assert found.layout == header.layout and json.loads(found.to_json()) == json.loads(header.to_json())
    assert set(again) == set(part)
    for name, values in part.items():
        assert again[name].dtype == values.dtype, name
        np.testing.assert_array_equal(again[name], values, name)


def test_nothing_is_pickled_and_bytes_repeat(tmp_path: Path, header: Header, part: Arrays) -> None:
    for name in ("one.npz", "two.npz"):
        write_part(tmp_path / name, header, part)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert archive["jobs"].shape[:2] == (3, 100)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.npz", "two.npz"]


def test_decisions_in_memory_come_back(tmp_path: Path, header: Header) -> None:
    env = SchedulingVectorEnv(3, small_config())
    demos = record_demonstrations(env, get_scheduler("drf"), 300, seed=2)
    save_decisions(tmp_path / "demos.npz", demos, header.layout)
    found, again = read_decisions(tmp_path / "demos.npz")
    same(demos, again)
    assert again.provenance["teacher"] == "drf" and found.layout == header.layout


def test_parts_become_one_recording(tmp_path: Path, header: Header) -> None:
    pieces = recorder(("random",))
    for index, steps in enumerate((30, 30, 17)):
        write_part(part_path(tmp_path, index), header, pieces.record(steps))
    write_part(tmp_path.with_name("whole.npz"), header, recorder(("random",)).record(77))
    same(read_decisions(tmp_path)[1], read_decisions(tmp_path.with_name("whole.npz"))[1])


def test_a_file_made_elsewhere_with_numpy_alone(tmp_path: Path) -> None:
    """The example of docs/decision_files.md: three decisions of one cluster with two job slots."""
    header = {
        "schema": "dl2env-decisions",
        "schema_version": 1,
        "layout": {
            "observation": "native",
            "window": 2,
            "job_columns": ["present", "age", "workers"],
            "cluster_columns": ["free_gpus"],
            "max_workers": 4,
            "max_ps": 4,
        },
    }
    jobs = np.zeros((1, 3, 2, 3), np.float32)  # environments, steps, slots, columns
    jobs[0, :, 0] = [[1, 0.1, 0.00], [1, 0.1, 0.25], [1, 0.1, 0.50]]
    cluster = np.array([[[1.0], [0.9], [0.8]]])  # float64 will do
    masks = np.zeros((1, 3, 7), bool)
    masks[:, :, [0, 6]] = True
    actions = np.array([[0, 0, 6]], np.int8)  # two workers for the job in slot 0, then void
    path = tmp_path / "mine.npz"
    np.savez(path, header=np.array(json.dumps(header)), jobs=jobs, cluster=cluster, masks=masks, actions=actions)
    found, demos = read_decisions(path)
    assert found.layout.num_actions == 7 and found.provenance == {}
    np.testing.assert_array_equal(demos.actions[:, 0], [0, 0, 6])
    assert demos.jobs.shape == (3, 1, 2, 3) and demos.jobs.dtype == np.float32 and demos.cluster.dtype == np.float32
    assert not demos.has_rewards
    _, missing = demos.returns(Discounting())
    np.testing.assert_array_equal(missing, 1.0)


def broken(change: Callable[[dict[str, Any]], None]) -> Callable[[Path, Header, Arrays], str]:
    """What reading says about a file whose arrays were changed."""

    def message(path: Path, header: Header, part: Arrays) -> str:
        write_part(path, header, part)
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        change(arrays)
        np.savez(path, **arrays)
        with pytest.raises(TraceError) as caught:
            read_decisions(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return message


def set_to(name: str, index: tuple[int, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name][index] = value

    return change


def replace(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.__setitem__(name, value(arrays[name]))


def set_header(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays["header"] = np.array(json.dumps({**json.loads(str(arrays["header"])), **changes}))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("header"), ["no array header"]),
        (replace("header", lambda h: np.array("{")), ["header", "no JSON object"]),
        (replace("header", lambda h: np.array("[1]")), ["header", "no JSON object"]),
        (set_header(schema="other"), ["schema is 'other'"]),
        (set_header(schema_version=2), ["schema_version is 2", "reads 1"]),
        (set_header(layout=None), ["layout"]),
        (set_header(layout={"observation": "native"}), ["window", "missing"]),
        (set_header(provenance=3), ["provenance"]),
        (lambda a: a.pop("masks"), ["array masks is missing"]),
        (lambda a: a.pop("interval_ended"), ["no interval_ended", "all of them or none"]),
        (replace("actions", lambda a: a[0]), ["actions has shape (100,)", "(environments, steps)"]),
        (replace("actions", lambda a: a[:, :0]), ["actions has shape (3, 0)"]),
        (replace("actions", lambda a: a.astype(float)), ["actions has type float64", "integer"]),
        (replace("masks", lambda a: a.astype(np.int8)), ["masks has type int8", "bool"]),
        (replace("jobs", lambda a: a[:, :, :, :-1]), ["jobs has shape", "must be (3, 100, 4,"]),
        (replace("jobs", lambda a: a[:, :-1]), ["jobs has shape"]),
        (replace("cluster", lambda a: a[:, :, 1:]), ["cluster has shape"]),
        (replace("masks", lambda a: a[:, :, 3:]), ["masks has shape"]),
        (replace("final_jobs", lambda a: a[1:]), ["final_jobs has shape"]),
        (set_to("jobs", (1, 7, 2, 3), np.nan), ["jobs[1, 7, 2, 3]", "column type=", "not finite"]),
        (set_to("cluster", (2, 9, 0), 35.0), ["cluster[2, 9, 0]", "free_cpus", "= 35.0", "[-1, 1]"]),
        (set_to("rewards", (0, 0), np.inf), ["rewards[0, 0]", "not finite"]),
        (set_to("masks", (2, 5, -1), False), ["masks[2, 5]", "void"]),
        (set_to("actions", (1, 3), 13), ["actions[1, 3] = 13", "none of the 13 actions"]),
        (set_to("actions", (1, 3), -1), ["actions[1, 3] = -1", "none of the 13"]),
        (lambda a: a["masks"].__setitem__((0, 4, a["actions"][0, 4]), False), ["[0, 4]", "illegal"]),
        (set_to("interval_ended", (), False), ["terminated[0, ", "interval_ended is not"]),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, header: Header, part: Arrays, change: Callable[[dict[str, Any]], None], words: list[str]
) -> None:
    if change is not None and words[0] == "[0, 4]":
        part["actions"][4, 0] = 0  # not void, whose mask is looked at first
        part["masks"][4, 0, 0] = True
    text = broken(change)(tmp_path / "file.npz", header, part)
    for word in words:
        assert word in text


def test_other_kinds_of_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing\.npz: no such file"):
        read_decisions(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", header=np.array({"a": 1}, dtype=object))
    (tmp_path / "empty.npz").touch()
    for name in ("text.npz", "array.npy", "pickled.npz", "empty.npz"):
        with pytest.raises(TraceError, match=name):
            read_decisions(tmp_path / name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match=r"decisions-000000\.npz is missing"):
        read_header(tmp_path / "folder")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_one_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut anywhere, or with a byte changed: an error that names the file, or the very same decisions."""
    folder = tmp_path_factory.mktemp("damage")
    header = Header(layout_of(small_config()))
    write_part(folder / "good.npz", header, recorder().record(20))
    good = read_decisions(folder / "good.npz")[1]
    content = bytearray((folder / "good.npz").read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    (folder / "bad.npz").write_bytes(content)
    try:
        again = read_decisions(folder / "bad.npz")[1]
    except TraceError as error:
        assert str(folder / "bad.npz") in str(error)
    else:
        same(good, again)


def test_parts_that_do_not_belong_together(tmp_path: Path, header: Header) -> None:
    pieces = recorder()
    parts = [pieces.record(10) for _ in range(3)]

    def written(name: str, *chosen: tuple[Header, Arrays]) -> Path:
        for index, (own, part) in enumerate(chosen):
            write_part(part_path(tmp_path / name, index), own, part)
        return tmp_path / name

    def refused(folder: Path, words: str) -> None:
        with pytest.raises(TraceError, match=words):
            read_decisions(folder)

    refused(written("gap", (header, parts[0]), (header, parts[2])), r"decisions-000001\.npz: does not go on")
    other = dataclasses.replace(header, provenance={"seed": 2})
    refused(written("other", (header, parts[0]), (other, parts[1])), "other settings")
    fewer = {k: v for k, v in parts[1].items() if k != "next_jobs"}
    refused(written("fewer", (header, parts[0]), (header, fewer)), r"arrays of the part before it \(next_jobs\)")
    bare = {name: parts[1][name][:, :1] for name in ("jobs", "cluster", "masks", "actions")}
    narrow = {name: parts[0][name] for name in bare}
    refused(written("narrow", (header, narrow), (header, bare)), "1 environments, the part before has 3")
    folder = written("hole", *((header, part) for part in parts))
    part_path(folder, 1).unlink()
    refused(folder, r"decisions-000001\.npz: this part of the recording is missing")
    newer = dataclasses.replace(header, provenance={**header.provenance, "versions": {"a": "2"}})
    read_decisions(written("newer", (header, parts[0]), (newer, parts[1])))  # a new version of a package is no reason


def test_a_place_that_cannot_be_written(tmp_path: Path, header: Header, part: Arrays) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_part(tmp_path / "file" / "part.npz", header, part)


def test_layout_says_what_the_environment_shows() -> None:
    """Each named column has the number that the environment puts there."""
    for encoding in ("one_hot", "features", "both"):
        observation = dataclasses.replace(small_config().observation, type_encoding=encoding)
        config = dataclasses.replace(small_config(), observation=observation)
        layout = layout_of(config)
        env = SchedulingVectorEnv(2, config)
        obs, _ = env.reset(seed=0)
        assert obs["jobs"].shape[1:] == layout.jobs_shape and obs["cluster"].shape[1] == len(layout.cluster_columns)
        present = obs["jobs"][:, :, layout.job_columns.index("present")]
        np.testing.assert_array_equal(present > 0, env.view().is_present)
        workers = obs["jobs"][:, :, layout.job_columns.index("workers")] * layout.max_workers
        np.testing.assert_allclose(workers, env.view().workers)
        if encoding != "features":
            names = [c for c in layout.job_columns if c.startswith("type=")]
            b, i = np.argwhere(env.view().is_present)[0]
            type_name = env.simulator.speed.type_names[int(env.view().type_idx[b, i])]
            assert names[int(obs["jobs"][b, i, : len(names)].argmax())] == f"type={type_name}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"window": 5}, ["window 4", "has 5", "env.observation.window=4"]),
        ({"max_workers": 9}, ["max_workers 4", "workload.max_workers=4"]),
        ({"observation": "paper"}, ["observation native", "agent.observation=native"]),
        ({"cluster_columns": ("free_cpus",)}, ["cluster_columns differ", "not in this run: free_gpus"]),
        ({"job_columns": ("present", "novelty")}, ["not in the file: novelty", "and 4"]),
    ],
)
def test_other_observations_are_named(changes: dict[str, Any], words: list[str]) -> None:
    found = layout_of(small_config())
    with pytest.raises(TraceError) as caught:
        check_layout("file.npz", found, dataclasses.replace(found, **changes))
    for word in ("file.npz", *words):
        assert word in str(caught.value)
    check_layout("file.npz", found, found)


def test_columns_in_another_order() -> None:
    found = layout_of(small_config())
    turned = dataclasses.replace(found, job_columns=found.job_columns[::-1])
    with pytest.raises(TraceError, match="another order"):
        check_layout("file.npz", found, turned)


def test_worlds_that_differ_without_harm_are_listed() -> None:
    small, large = (get_scenario(name).config for name in ("dl2-small-v1", "dl2-large-v1"))
    recorded = json.loads(json.dumps(config_to_dict(large)))
    assert "cluster.servers" in world_differences(recorded, small)
    assert world_differences(json.loads(json.dumps(config_to_dict(small))), small) == []


def test_layouts_as_plain_values() -> None:
    layout = layout_of(small_config(), "released")
    assert layout.jobs_shape == (4, 6)
    assert ObservationLayout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout
    with pytest.raises(ConfigError, match="observation='odd'"):
        layout_of(small_config(), "odd")
    with pytest.raises(ConfigError, match="not be empty"):
        dataclasses.replace(layout, window=0)


def test_the_page_on_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Arrays) -> None:
    """Its example writes a file that is read, and its table has every array that is written."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "decision_files.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/decision_files.md", "exec"), {})
    found, demos = read_decisions(Path("mine.npz"))
    assert found.layout == layout_of(get_scenario("dl2-small-v1").config)
    np.testing.assert_array_equal(demos.actions[:, 0], [0, 0, 60])
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {*part, "taken", "behaviour", "header"} <= described
