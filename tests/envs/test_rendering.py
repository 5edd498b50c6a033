"""Rendering: the text says what the simulator holds, the history is right, the picture changes and keeps its size."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from dl2env.envs import SchedulingEnv, SchedulingVectorEnv
from dl2env.envs.gantt import HEIGHT, WIDTH
from dl2env.envs.history import AllocationHistory
from dl2env.scenarios import get_scenario
from tests.envs.worlds import IDS, WORLDS, given_jobs, random_legal, random_mixed, small_world


def toy() -> SchedulingEnv:
    """Jobs that train one epoch per interval of 120 s with one worker and one PS; two epochs and a half each."""
    config = get_scenario("toy-v1").config
    workloads = given_jobs(config, [0.0, 60.0], [2.5, 2.5], samples_per_epoch=120.0)
    return SchedulingEnv(config, workloads=workloads, render_mode="ansi")


@pytest.mark.parametrize("env_id", IDS)
def test_every_mode_renders_through_make(env_id: str) -> None:
    text = gymnasium.make(env_id, render_mode="ansi")
    text.reset(seed=0)
    frame: Any = text.render()
    assert isinstance(frame, str) and frame.startswith("interval ")
    picture = gymnasium.make(env_id, render_mode="rgb_array")
    picture.reset(seed=0)
    frame = picture.render()
    assert frame.shape == (HEIGHT, WIDTH, 3) and frame.dtype == np.uint8
    assert picture.metadata["render_fps"] > 0
    plain = gymnasium.make(env_id).unwrapped
    plain.reset(seed=0)
    assert plain.render() is None


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_rendering_needs_an_episode(mode: str) -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        SchedulingEnv(small_world(), render_mode=mode).render()
    with pytest.raises(ResetNeeded, match="call reset"):
        SchedulingVectorEnv(2, small_world(), render_mode=mode).render()


def test_table_says_what_the_simulator_holds() -> None:
    env = toy()
    env.reset(seed=0)
    env.step(0)
    env.step(6)
    env.step(3)
    lines = env.render().splitlines()
    assert lines[0].split("   ") == [
        "interval 1 (0.0 h)",
        "free: 1/6 CPUs, 1/4 GPUs",
        "jobs: 2 active, 0 finished, 0 to come",
    ]
    header = "slot job type age left ideal left workers PSs samples/s speed slowdown"
    assert lines[1].split() == header.split()
    # Job 0 trained two of its 2.5 epochs with two workers. At best, 2 samples/s of 120 per epoch, it needs 0.25
    # intervals, and job 1 1.25. Job 1 now has a second worker, on another server, which this type does not mind.
    assert lines[2].split() == "0 0 toy-compute 1.0 20% 0.25 1 1 1.0 50% 0%".split()
    assert lines[3].split()[:-1] == "1 1 toy-compute 0.5 100% 1.25 2 1 2.0 100%".split()
    assert len({len(line) for line in lines[1:]}) == 1, "columns are aligned"
    assert len(lines) == 4


def test_table_lists_jobs_outside_the_window_and_copes_with_an_empty_one() -> None:
    env = SchedulingEnv(small_world(), workloads=given_jobs(small_world(), [0.0] * 5, [2.0] * 5), render_mode="ansi")
    env.reset(seed=0)
    assert env.render().splitlines()[-1] == "outside the window, with workers + PSs: 3 (1+1), 4 (1+1)"
    env = SchedulingEnv(WORLDS["released"], render_mode="ansi")  # without auto_advance: starts before any job is there
    env.reset(seed=0)
    assert "no jobs in the window" in env.render()


# More jobs than the cluster holds, and nothing to decide: steps that pass through several intervals.
CROWDED = small_world(workload=dict(num_jobs=30, max_workers=1, max_ps=1), window=2)


@pytest.mark.parametrize("name", [*WORLDS, "crowded"])
def test_history_is_what_the_jobs_really_held(name: str) -> None:
    env = SchedulingEnv(WORLDS.get(name, CROWDED), render_mode="ansi")
    assert env._renderer is not None
    history = env._renderer.history
    rng = np.random.default_rng(1)
    state = env.simulator.state
    interval_s = env.config.dynamics.interval_s
    longest_jump = 0
    for seed in (3, None):
        _, info = env.reset(seed=seed)
        is_over, previous = False, int(state.env[0]["interval"])
        while not is_over:
            _, _, terminated, truncated, info = env.step(int(random_mixed(rng, info["action_mask"][None])[0]))
            is_over = terminated or truncated
            longest_jump = max(longest_jump, int(state.env[0]["interval"]) - previous)
            previous = int(state.env[0]["interval"])
        past, jobs = history.past().astype(np.int64), state.jobs[0]
        assert len(past) + history.first_interval == state.env[0]["interval"]
        types = state.types[jobs["type"]]
        gpus = past[:, :, 0] * types["worker_gpus"] + past[:, :, 1] * types["ps_gpus"]
        if name == "crowded":
            # Only the last of several intervals passed in one step is known; they are mostly alike.
            assert gpus.sum() * interval_s == pytest.approx(float(state.env[0]["used_gpu_s"]), rel=0.1)
            continue
        np.testing.assert_allclose(gpus.sum(axis=0) * interval_s, jobs["gpu_s"])
        trained = (past[:, :, 0] > 0) & ((past[:, :, 1] > 0) | (types["max_ps"] == 0))
        np.testing.assert_array_equal(trained.sum(axis=0), jobs["intervals_run"])
    assert longest_jump > 2 or name != "crowded"


def test_history_ends_with_what_was_held_when_the_episode_was_cut_off() -> None:
    config = dataclasses.replace(CROWDED, dynamics=dataclasses.replace(CROWDED.dynamics, max_intervals=9))
    env = SchedulingEnv(config, render_mode="ansi")
    assert env._renderer is not None
    state = env.simulator.state
    _, info = env.reset(seed=3)
    is_over, jump, previous = False, 0, 0
    while not is_over:
        *_, is_over, info = env.step(int(info["action_mask"].argmax()))
        jump, previous = int(state.env[0]["interval"]) - previous, int(state.env[0]["interval"])
    assert jump > 1 and info["num_unfinished"] > 0, "cut off in an interval without a choice"
    last = env._renderer.history.past()[-1]
    active = state.active[0, : state.env[0]["num_active"]]
    np.testing.assert_array_equal(last[active, 0], state.jobs["workers"][0, active])
    assert last[active].any()


def test_history_starts_again_after_a_restore() -> None:
    env = SchedulingEnv(WORLDS["default"], render_mode="ansi")
    assert env._renderer is not None
    env.reset(seed=0)
    void = env.simulator.num_actions - 1
    env.step(void)
    snapshot = env.simulator.snapshot()
    for _ in range(3):
        env.step(void)
    env.simulator.restore(snapshot)
    env.step(void)
    history: AllocationHistory = env._renderer.history
    assert len(history.past()) + history.first_interval == env.simulator.state.env[0]["interval"]


def test_picture_shows_progress_and_keeps_its_size() -> None:
    env = SchedulingEnv(WORLDS["default"], render_mode="rgb_array")
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    frames = [env.render()]
    is_over = False
    while not is_over:
        _, _, terminated, truncated, info = env.step(int(random_legal(rng, info["action_mask"])))
        is_over = terminated or truncated
    frames.append(env.render())
    env.reset()
    frames.append(env.render())
    assert {frame.shape for frame in frames} == {(HEIGHT, WIDTH, 3)}
    # Bars are the only saturated colours of some extent besides the legend and the line of the CPUs.
    coloured = [int((np.ptp(frame.astype(int), axis=2) > 60).sum()) for frame in frames]
    assert coloured[1] > 2 * coloured[0] and coloured[1] > 2 * coloured[2]


def test_vector_environment_renders_each_member() -> None:
    env = SchedulingVectorEnv(3, WORLDS["truncated"], render_mode="ansi")
    singles = [SchedulingEnv(WORLDS["truncated"], env_index=b, render_mode="ansi") for b in range(3)]
    rng = np.random.default_rng(0)
    _, infos = env.reset(seed=0)
    for single in singles:
        single.reset(seed=0)
    for _ in range(120):
        actions = random_mixed(rng, infos["action_mask"])
        _, _, terminated, truncated, infos = env.step(actions)
        for b, single in enumerate(singles):
            single.step(actions[b])
            if terminated[b] or truncated[b]:
                single.reset()
    frames = env.render()
    assert frames == tuple(single.render() for single in singles)
    for renderer, single in zip(env._renderers, singles, strict=True):
        assert single._renderer is not None
        np.testing.assert_array_equal(renderer.history.past(), single._renderer.history.past())
    assert SchedulingVectorEnv(2, WORLDS["default"]).render() is None


def test_matplotlib_is_used_without_pyplot_and_its_absence_named_with_the_cure() -> None:
    code = (
        "import sys, gymnasium, dl2env\n"
        "env = gymnasium.make('dl2env/SchedulingToy-v0', render_mode='rgb_array'); env.reset(seed=0); env.render()\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
        "sys.modules['matplotlib.figure'] = None\n"
        "try:\n    env.render()\n"
        "except gymnasium.error.DependencyNotInstalled as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    used_pyplot, message = result.stdout.splitlines()
    assert used_pyplot == "False"
    assert "pip install 'dl2env[train]'" in message
