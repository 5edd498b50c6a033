from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.players import Cast, Memory, Player, check_can_record, memory_of
from agents.recording import Recorder, WorkloadLog, record_demonstrations
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, TraceError
from dl2env.schedulers import get_scheduler
from dl2env.workload.generator import build_workload_source
from tests.agents.picking_env import PickingEnv, PickingTeacher
from tests.agents.worlds import small_config


class Always:
    """Takes void, or the last legal action of a job."""

    def __init__(self, name: str, is_void: bool) -> None:
        self.name = name
        self._is_void = is_void

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        void = action_mask.shape[1] - 1
        last = void - 1 - action_mask[:, -2::-1].argmax(axis=1)
        return np.where(action_mask[:, :-1].any(axis=1) & (not self._is_void), last, void)


def recorder(
    seed: int = 1, teachers: tuple[str, ...] = ("drf",), behaviours: tuple[str, ...] = (), envs: int = 3
) -> Recorder:
    config = small_config()
    log = WorkloadLog(build_workload_source(config))
    return Recorder(
        SchedulingVectorEnv(envs, config, workloads=log),
        [Player(get_scheduler(name)) for name in teachers],
        [Player(get_scheduler(name)) for name in behaviours],
        seed=seed,
        log=log,
    )


def test_parts_in_a_row_are_one_recording() -> None:
    whole = recorder().record(200)
    pieces = recorder()
    parts = [pieces.record(n) for n in (70, 1, 129)]
    for name in ("jobs", "cluster", "masks", "actions", "rewards", "interval_ended", "terminated", "teacher"):
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    for name in ("final_jobs", "final_cluster", "start_digest", "start_env", "start_episode"):
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    np.testing.assert_array_equal(parts[0]["next_jobs"], whole["jobs"][70])
    np.testing.assert_array_equal(parts[-1]["next_jobs"], whole["next_jobs"])


def test_episodes_that_begin_and_end() -> None:
    part = recorder().record(200)
    done = part["terminated"] | part["truncated"]
    assert len(part["final_jobs"]) == done.sum() > 3
    np.testing.assert_array_equal(part["start_step"][:3], 0)
    np.testing.assert_array_equal(part["start_step"][3:], 1 + np.argwhere(done)[:, 0])
    np.testing.assert_array_equal(part["start_env"][3:], np.argwhere(done)[:, 1])
    source = build_workload_source(small_config())
    for k in (0, 4, len(part["start_env"]) - 1):
        workload = source(1, int(part["start_env"][k]), int(part["start_episode"][k]))
        assert part["start_digest"][k].decode() == workload.digest()


def test_last_observation_of_an_episode_is_that_of_the_environment() -> None:
    env = SchedulingVectorEnv(1, small_config())
    part = Recorder(env, [Player(get_scheduler("drf"))], seed=4).record(120)
    env.reset(seed=4)
    finals = []
    for action in part["actions"]:
        infos = env.step(action)[4]
        if "final_obs" in infos:
            finals.append(infos["final_obs"][0]["jobs"])
    np.testing.assert_array_equal(part["final_jobs"], np.stack(finals))


def test_teacher_labels_the_states_that_another_scheduler_visits() -> None:
    part = recorder(teachers=("optimus",), behaviours=("drf",)).record(150)
    visited = recorder(teachers=("drf",)).record(150)
    np.testing.assert_array_equal(part["jobs"], visited["jobs"])
    np.testing.assert_array_equal(part["taken"], visited["actions"])
    np.testing.assert_array_equal(part["rewards"], visited["rewards"])
    assert (part["actions"] != part["taken"]).any()
    # The labels are what the teacher does there, asked in a world of its own.
    env = SchedulingVectorEnv(3, small_config())
    obs, _ = env.reset(seed=1)
    teacher = get_scheduler("optimus")
    for t in range(150):
        np.testing.assert_array_equal(teacher.act(obs, env.action_masks(), env.view()), part["actions"][t])
        obs = env.step(part["taken"][t])[0]


def test_a_labelling_scheduler_does_not_move_tasks() -> None:
    """Released Tetris pins the server of the next task; while it only labels, nobody may notice."""
    alone = recorder(teachers=("drf",)).record(150)
    labelled = recorder(teachers=("released-tetris",), behaviours=("drf",)).record(150)
    np.testing.assert_array_equal(labelled["taken"], alone["actions"])
    np.testing.assert_array_equal(labelled["jobs"], alone["jobs"])
    assert (labelled["pinned"] == -1).all()
    # While it acts, its pins count: it meets the same states as alone.
    acting = recorder(teachers=("drf",), behaviours=("released-tetris",)).record(150)
    assert (acting["pinned"] >= 0).any()
    np.testing.assert_array_equal(acting["jobs"], recorder(teachers=("released-tetris",)).record(150)["jobs"])


def test_teachers_take_turns_by_episode() -> None:
    env = SchedulingVectorEnv(8, small_config())
    players = [Player(Always("void", True), 1.0), Player(Always("job", False), 3.0)]
    part = Recorder(env, players, seed=2).record(400)
    done = part["terminated"] | part["truncated"]
    void = part["masks"].shape[2] - 1
    has_choice = part["masks"][:, :, :-1].any(axis=2)
    np.testing.assert_array_equal(part["actions"][has_choice] == void, part["teacher"][has_choice] == 0)
    # The player changes at episode borders only.
    changes = part["teacher"][1:] != part["teacher"][:-1]
    assert changes.any() and not (changes & ~done[:-1]).any()
    again = Recorder(SchedulingVectorEnv(8, small_config()), players, seed=2).record(400)
    np.testing.assert_array_equal(part["teacher"], again["teacher"])


def test_players_are_drawn_by_weight() -> None:
    cast = Cast([Player(Always("a", True), 1.0), Player(Always("b", False), 3.0)], "teacher", 0, 2000)
    assert abs((cast.chosen == 1).mean() - 0.75) < 0.04  # four standard deviations
    other = Cast([Player(Always("a", True), 1.0), Player(Always("b", False), 3.0)], "behaviour", 0, 2000)
    assert 0.5 < (cast.chosen == other.chosen).mean() < 0.75


def test_wrong_players() -> None:
    with pytest.raises(ConfigError, match="teacher: 0 schedulers"):
        Recorder(PickingEnv(2), [])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be positive"):
        Recorder(PickingEnv(2), [Player(PickingTeacher(), -1.0)])  # type: ignore[arg-type]

    class Outside:
        name = "outside"

        def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
            return np.full(len(action_mask), 99)

    with pytest.raises(ConfigError, match="behaviour 'outside' took action 99"):
        record_demonstrations(PickingEnv(2), PickingTeacher(), 10, behaviours=[Player(Outside())])  # type: ignore[arg-type]


def test_knowledge_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"teacher=x brings its own speed estimate \(fitted\)"):
        check_can_record("teacher=x", get_scheduler("optimus-fitted"), small_config())
    check_can_record("teacher=drf", get_scheduler("drf"), small_config())


def test_what_players_remember() -> None:
    for name in ("drf", "random", "released-drf", "void"):
        assert memory_of(get_scheduler(name)) == Memory.NONE
    assert memory_of(get_scheduler("search")) == Memory.INTERVAL
    teacher: Any = PickingTeacher()
    assert memory_of(teacher) == Memory.ALL
    teacher.memory = "none"
    assert memory_of(teacher) == Memory.NONE
    teacher.memory = "some"
    with pytest.raises(ConfigError, match="'picking': memory='some'"):
        memory_of(teacher)


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize(
    ("teachers", "behaviours"),
    [(("drf", "srtf"), ("random", "drf")), (("released-tetris",), ()), (("drf",), ("tetris", "best-config"))],
)
def test_following_leads_to_the_same_future(ask: bool, teachers: tuple[str, ...], behaviours: tuple[str, ...]) -> None:
    """Also where those who act pin servers."""
    first = recorder(teachers=teachers, behaviours=behaviours)
    parts = [first.record(60), first.record(60)]
    second = recorder(teachers=teachers, behaviours=behaviours)
    second.follow(parts[0], "part", ask_from=np.zeros(3, np.int64) if ask else None)
    again = second.record(60)
    assert set(again) == set(parts[1])
    for name, values in parts[1].items():
        np.testing.assert_array_equal(again[name], values, name)


def test_a_part_that_was_begun_is_finished() -> None:
    whole = recorder().record(100)
    begun = recorder().record(37)
    second = recorder()
    second.follow(begun, "part")
    finished = second.record(100, begun=begun)
    for name, values in whole.items():
        np.testing.assert_array_equal(finished[name], values, name)


def test_a_world_that_changed_is_noticed() -> None:
    part = recorder(seed=1).record(40)
    with pytest.raises(TraceError, match="part 0: jobs of step 0"):
        recorder(seed=2).follow(part, "part 0")
    part["rewards"][7, 1] += 1.0
    with pytest.raises(TraceError, match="rewards of step 7"):
        recorder(seed=1).follow(part, "part 0")
    part = recorder(seed=1).record(40)
    with pytest.raises(TraceError, match="actions of step"):
        recorder(seed=1, teachers=("srtf",)).follow(part, "part 0", ask_from=np.zeros(3, np.int64))
