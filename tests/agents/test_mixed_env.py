"""Environments of several scenarios side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.utils import get_action_masks

from agents.mixed_env import MixedVecEnv
from agents.pipeline import build_world, run_pipeline
from agents.run_folder import RunFolder
from agents.vec_env import SB3VecEnv
from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, UnknownNameError
from tests.agents.test_pipeline import changed, weights


def world(num_servers: int, window: int = 4) -> EnvConfig:
    return config_from_dict(
        EnvConfig,
        {
            "workload": {"num_jobs": 4, "max_workers": 3, "max_ps": 3, "sizes": {"mean_s": 3000.0}},
            "cluster": {"servers": [{"count": num_servers, "gpu_type": "gtx-1080ti"}]},
            "observation": {"window": window},
        },
        "test",
    )


def mixed() -> MixedVecEnv:
    parts = [SB3VecEnv(SchedulingVectorEnv(size, world(servers))) for size, servers in ((2, 3), (3, 6))]
    return MixedVecEnv(parts, ["small", "large"])


def masked_random(env: MixedVecEnv | SB3VecEnv, rng: np.random.Generator) -> NDArray[np.int64]:
    masks = get_action_masks(env)
    return np.asarray((rng.random(masks.shape) * masks).argmax(axis=1))


def test_it_is_its_parts_side_by_side() -> None:
    env = mixed()
    env.seed(7)
    obs: Any = env.reset()
    seeds = [int(own.generate_state(1)[0]) for own in np.random.SeedSequence(7).spawn(2)]
    alone = [SB3VecEnv(SchedulingVectorEnv(size, world(servers))) for size, servers in ((2, 3), (3, 6))]
    for part, seed in zip(alone, seeds, strict=True):
        part.seed(seed)
    first: Any = [part.reset() for part in alone]
    np.testing.assert_array_equal(obs["jobs"], np.concatenate([own["jobs"] for own in first]))
    assert env.num_envs == 5 and len(env.reset_infos) == 5
    assert [config.cluster.num_servers for config in env.get_attr("config")] == [3, 3, 6, 6, 6]
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(150):
        actions = masked_random(env, rng)
        obs, rewards, dones, infos = env.step(actions)
        own = [part.step(chosen) for part, chosen in zip(alone, np.split(actions, [2]), strict=True)]
        for name in ("jobs", "cluster"):
            np.testing.assert_array_equal(obs[name], np.concatenate([step[0][name] for step in own]))  # type: ignore[index, call-overload]
        np.testing.assert_array_equal(rewards, np.concatenate([step[1] for step in own]))
        np.testing.assert_array_equal(dones, np.concatenate([step[2] for step in own]))
        np.testing.assert_array_equal(env.interval_ended, np.concatenate([part.interval_ended for part in alone]))
        assert [bool(info) for info in infos] == dones.tolist()
        ends += int(dones.sum())
    assert ends > 2
    statistics = [part.pop_statistics() for part in alone]
    for name, value in env.pop_statistics().items():
        assert value == pytest.approx((2 * statistics[0][name] + 3 * statistics[1][name]) / 5)
    assert env.pop_statistics() == {}


def test_restored_state_continues_step_for_step() -> None:
    env, other = mixed(), mixed()
    env.seed(1)
    env.reset()
    rng = np.random.default_rng(1)
    for _ in range(30):
        env.step(masked_random(env, rng))
    state = env.state()
    assert state is not None
    other.restore(state)
    for _ in range(60):
        actions = masked_random(env, rng)
        expected: Any = env.step(actions)
        got: Any = other.step(actions)
        np.testing.assert_array_equal(expected[0]["jobs"], got[0]["jobs"])
        np.testing.assert_array_equal(expected[1], got[1])


def test_observations_must_have_one_form() -> None:
    parts = [SB3VecEnv(SchedulingVectorEnv(1, world(3, window))) for window in (4, 5)]
    with pytest.raises(ConfigError, match=r"b and a differ in form.*observation.window"):
        MixedVecEnv(parts, ["a", "b"])


MIX = changed(
    ppo={"scenarios": ["bursty-v1", "dl2-small-v1", "testbed-v1"], "num_envs": 4, "num_decisions": 512},
    agent={"gain_prior": 20.0},
    evaluation={"baselines": ["drf"], "plots": False},
) | {"env": {"observation": {"window": 4, "type_encoding": "features"}}, "workload": {"num_jobs": 4}}


def test_a_run_learns_in_several_scenarios_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    folder = RunFolder.create(whole, MIX)
    assert [own.name.split("+")[0] for own in build_world(folder).learned] == MIX["ppo"]["scenarios"]
    run_pipeline(folder, show_bars=False, say=lambda text: None)
    phases = json.loads((whole / "run.json").read_text())["phases"]
    assert len(phases["fine-tuning"]["scenarios"]) == 3

    import agents.validation

    calls = 0
    original = agents.validation.MeanValidator.__call__

    def interrupted(self: Any, scheduler: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return original(self, scheduler)

    with monkeypatch.context() as patch:
        patch.setattr(agents.validation.MeanValidator, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(RunFolder.create(stopped, MIX), show_bars=False, say=lambda text: None)
    run_pipeline(RunFolder.open(stopped), show_bars=False, say=lambda text: None)
    assert (stopped / "validation.json").read_text() == (whole / "validation.json").read_text()
    for key, value in weights(stopped / "last").items():
        assert torch.equal(value, weights(whole / "last")[key]), key


@pytest.mark.parametrize(
    ("scenarios", "error", "message"),
    [
        (["testbed-v1", "testbed-v1"], ConfigError, "names a scenario twice"),
        (["testbed-v1"] + [f"s{k}" for k in range(4)], ConfigError, "need as many ppo.num_envs"),
        (["nowhere"], UnknownNameError, "nowhere"),
    ],
)
def test_wrong_scenarios_end_the_run_at_once(
    tmp_path: Path, scenarios: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build_world(RunFolder.create(tmp_path / "run", changed(ppo={"scenarios": scenarios, "num_envs": 4})))
