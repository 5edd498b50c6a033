from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.demonstrations import Demonstrations
from agents.recording import record_demonstrations
from agents.returns import Discounting
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.schedulers import get_scheduler
from tests.agents.picking_env import PickingEnv, PickingTeacher
from tests.agents.worlds import small_config


def test_recording_holds_what_the_teacher_saw_and_did() -> None:
    steps: list[tuple[int, int]] = []
    demos = record_demonstrations(
        PickingEnv(4), PickingTeacher(), 38, seed=1, progress=lambda now, total: steps.append((now, total))
    )
    assert demos.actions.shape == (10, 4) and demos.num_decisions == 40 and demos.num_envs == 4
    assert steps[-1] == (40, 40)
    np.testing.assert_array_equal(demos.rewards, 1.0)
    np.testing.assert_array_equal(demos.interval_ended[:, 0], np.arange(10) % 3 == 2)
    np.testing.assert_array_equal((demos.terminated | demos.truncated)[:, 0], np.arange(10) % 6 == 5)
    flat_jobs = demos.jobs[:, :, :, 1:4].reshape(10, 4, -1)
    np.testing.assert_array_equal(flat_jobs.argmax(axis=2), demos.actions)
    assert np.take_along_axis(demos.masks, demos.actions[..., None], axis=2).all()
    returns, missing = demos.returns(Discounting(interval_gamma=0.0))
    np.testing.assert_array_equal(returns[:9, 0], [3, 2, 1] * 3)
    np.testing.assert_array_equal(missing[:, 0] > 0, np.arange(10) == 9)


def test_a_heuristic_in_the_real_environment() -> None:
    env = SchedulingVectorEnv(3, small_config())
    first, second = (record_demonstrations(env, get_scheduler("drf"), 300, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.jobs, second.jobs)
    np.testing.assert_array_equal(first.actions, second.actions)
    assert first.terminated.any() and first.provenance["teacher"] == "drf"
    assert first.provenance["env"]["observation"]["window"] == 4
    other = record_demonstrations(env, get_scheduler("drf"), 300, seed=3)
    assert not np.array_equal(first.actions, other.actions)


def test_file_round_trip_without_pickle(tmp_path: Path) -> None:
    demos = record_demonstrations(PickingEnv(4), PickingTeacher(), 20)
    path = tmp_path / "folder" / "demos.npz"
    demos.save(path)
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
    loaded = Demonstrations.load(path)
    for name in ("jobs", "cluster", "masks", "actions", "rewards", "interval_ended", "terminated", "truncated"):
        assert getattr(loaded, name).dtype == getattr(demos, name).dtype
        np.testing.assert_array_equal(getattr(loaded, name), getattr(demos, name))
    assert loaded.provenance == demos.provenance


def test_files_that_are_no_recordings_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing\.npz: no such file"):
        Demonstrations.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(TraceError, match=r"text\.npz"):
        Demonstrations.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", jobs=np.zeros(3))
    with pytest.raises(TraceError, match=r"other\.npz"):
        Demonstrations.load(tmp_path / "other.npz")
    header = '{"schema": "dl2env-demonstrations", "schema_version": 99, "provenance": {}}'
    np.savez(tmp_path / "new.npz", header=np.array(header))
    with pytest.raises(TraceError, match="version 99"):
        Demonstrations.load(tmp_path / "new.npz")


def test_a_teacher_that_ignores_the_mask_is_refused() -> None:
    class Careless:
        name = "careless"

        def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
            return (~action_mask).argmax(axis=1)

    with pytest.raises(ConfigError, match="careless"):
        record_demonstrations(PickingEnv(4), Careless(), 10)
    with pytest.raises(ConfigError, match="at least 1"):
        record_demonstrations(PickingEnv(4), PickingTeacher(), 0)
