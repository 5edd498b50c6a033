"""Long random play of every registered id: no exception, every observation inside its space, finite rewards."""

from __future__ import annotations

from typing import Any, get_args

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dl2env.config import Placement, ScalingCost
from dl2env.envs import SchedulingVectorEnv
from dl2env.sim.state import REWARD_TERMS
from tests.envs.worlds import IDS, WORLDS, random_legal, small_world

NUM_STEPS, NUM_ENVS = 100_000, 20


def assert_inside(space: Any, observations: dict[str, NDArray[Any]], where: str) -> None:
    """A vectorised `space.contains` for a batch of observations."""
    assert isinstance(space, spaces.Dict) and set(observations) == set(space.spaces), where
    for key, box in space.spaces.items():
        values = observations[key]
        assert isinstance(box, spaces.Box)
        assert values.dtype == box.dtype and values.shape[1:] == box.shape, f"{where}, {key}"
        # A NaN fails both comparisons.
        assert ((values >= box.low) & (values <= box.high)).all(), f"{where}, {key}"


def act(rng: np.random.Generator, masks: NDArray[np.bool_], is_masked: bool) -> NDArray[np.int64]:
    return random_legal(rng, masks) if is_masked else rng.integers(masks.shape[1], size=len(masks))


def play_vector(env: SchedulingVectorEnv, num_steps: int, is_masked: bool) -> dict[str, int]:
    rng = np.random.default_rng(17)
    space = env.single_observation_space
    observations, infos = env.reset(seed=23)
    counts = dict(ended=0, illegal=0, unfinished=0)
    for step in range(-(-num_steps // env.num_envs)):
        where = f"step {step}"
        assert_inside(space, observations, where)
        masks = infos["action_mask"]
        assert masks[:, -1].all(), where
        actions = act(rng, masks, is_masked)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        assert np.isfinite(rewards).all(), where
        assert all(np.isfinite(infos["reward_terms"][term]).all() for term in REWARD_TERMS), where
        illegal = infos["illegal_action"]
        assert (illegal | masks[np.arange(env.num_envs), actions]).all(), f"{where}: masked actions are flagged"
        assert (infos["interval_ended"] | ~illegal).all(), f"{where}: illegal actions end the interval"
        counts["illegal"] += int(illegal.sum())
        for b in np.flatnonzero(terminated | truncated):
            counts["ended"] += 1
            counts["unfinished"] += int(infos["final_info"]["num_unfinished"][b])
            final = {key: values[None] for key, values in infos["final_obs"][b].items()}
            assert_inside(space, final, f"{where}, final")
    return counts


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("env_id", IDS)
def test_registered_id(env_id: str, is_masked: bool) -> None:
    env: Any = gymnasium.make_vec(env_id, num_envs=NUM_ENVS)
    counts = play_vector(env, NUM_STEPS, is_masked)
    assert counts["ended"] >= NUM_ENVS
    assert counts["illegal"] == 0 if is_masked else counts["illegal"] > 1000


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("name", WORLDS)
def test_other_rules(name: str, is_masked: bool) -> None:
    counts = play_vector(SchedulingVectorEnv(10, WORLDS[name]), 5_000, is_masked)
    assert counts["ended"] >= 5
    # Without a mask of resources, actions that fit nowhere fail.
    assert counts["illegal"] > 0 if not is_masked or name == "released" else counts["illegal"] == 0
    assert (counts["unfinished"] > 0) == (name == "truncated")


@settings(max_examples=15)
@given(
    dynamics=st.fixed_dictionaries(
        {
            "placement": st.sampled_from(get_args(Placement)),
            "scaling_cost": st.sampled_from(get_args(ScalingCost)),
            "max_intervals": st.sampled_from([6, 12, 1000]),
            "speed_noise": st.sampled_from([0.0, 0.5]),
            "epoch_error": st.sampled_from([0.0, 0.9]),
            **{
                switch: st.booleans()
                for switch in (
                    "initial_bundle",
                    "mask_resources",
                    "window_skips_capped",
                    "auto_advance",
                    "exact_finish",
                    "load_by_sum",
                )
            },
        }
    ),
    window=st.integers(1, 9),
    link_sharing=st.sampled_from([0.0, 0.4, 1.0]),
    is_masked=st.booleans(),
)
def test_any_rules(dynamics: dict[str, Any], window: int, link_sharing: float, is_masked: bool) -> None:
    env = SchedulingVectorEnv(4, small_world(dynamics=dynamics, window=window, link_sharing=link_sharing))
    counts = play_vector(env, 600, is_masked)
    if is_masked and dynamics["mask_resources"]:
        assert counts["illegal"] == 0


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("env_id", IDS)
def test_single_environment_with_all_wrappers_of_make(env_id: str, is_masked: bool) -> None:
    env = gymnasium.make(env_id)
    rng = np.random.default_rng(3)
    observation, info = env.reset(seed=1)
    ended = 0
    for step in range(3000):
        action = act(rng, info["action_mask"][None], is_masked)[0]
        observation, reward, terminated, truncated, info = env.step(int(action))
        assert np.isfinite(float(reward)), step
        batch = {key: values[None] for key, values in observation.items()}
        assert_inside(env.observation_space, batch, f"step {step}")
        if terminated or truncated:
            ended += 1
            observation, info = env.reset()
    assert ended > 0
