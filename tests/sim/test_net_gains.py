"""The gains in the observation: the net ones foretell what the reward term `speed_gain` pays."""

from __future__ import annotations

import numpy as np
import pytest

from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.schedulers import get_scheduler
from dl2env.sim.features import JOB_FEATURES, NUM_GAINS, NUM_KINDS

DEMAND = JOB_FEATURES.index("demand_worker") - len(JOB_FEATURES)


def test_they_are_the_last_columns() -> None:
    assert all(name.startswith("net_gain_") for name in JOB_FEATURES[-NUM_GAINS:-NUM_KINDS])
    assert all(name.startswith("gain_ahead_") for name in JOB_FEATURES[-NUM_KINDS:])
    assert not any("gain_ahead" in name or "net_gain" in name for name in JOB_FEATURES[:-NUM_GAINS])


@pytest.mark.parametrize("scenario", ["dl2-small-v1", "heterogeneous-v1", "pai-models-v1", "estimation-error-v1"])
def test_they_foretell_the_speed_gain(scenario: str) -> None:
    env = SchedulingVectorEnv(4, scenario=scenario)
    rng = np.random.default_rng(5)
    obs, infos = env.reset(seed=3)
    seen = []
    for _ in range(300):
        odds = rng.random(infos["action_mask"].shape) * infos["action_mask"]
        odds[:, -1] = rng.random(4) < 0.05
        actions = odds.argmax(axis=1)
        shown = obs["jobs"]
        obs, _, _, _, infos = env.step(actions)
        paid = infos["reward_terms"]["speed_gain"]
        for b in np.flatnonzero(actions < env.simulator.num_actions - 1):
            slot, kind = divmod(int(actions[b]), 3)
            gain, column = paid[b], shown[b, slot, kind - NUM_GAINS]
            assert np.sign(column) == np.sign(round(gain, 7))
            if kind < 2 and (demand := shown[b, slot, DEMAND + kind]) < 1.0:  # larger ones are clipped
                assert column == pytest.approx(gain / (abs(gain) + 0.1 * demand + 1e-6), abs=1e-5)
            seen.append(gain)
    assert min(seen) < -0.01 and max(seen) > 0.01  # both signs were met


def test_they_are_zero_where_nothing_is_legal() -> None:
    env = SchedulingVectorEnv(3, scenario="saturated-12-v1")
    obs, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        for shown in np.split(obs["jobs"][:, :, -NUM_GAINS:], 2, axis=2):
            assert not shown.reshape(3, -1)[~infos["action_mask"][:, :-1]].any()
        odds = rng.random(infos["action_mask"].shape) * infos["action_mask"]
        odds[:, -1] *= 0.02
        obs, _, _, _, infos = env.step(odds.argmax(axis=1))


def test_gains_ahead_are_the_choice_of_the_rule_that_looks_ahead() -> None:
    """The largest of them is the next action of `marginal-lookahead`, and there is none where it ends the interval."""
    env = SchedulingVectorEnv(4, scenario="estimation-error-v1")
    rule = get_scheduler("marginal-lookahead")
    obs, infos = env.reset(seed=2)
    kinds = set()
    for _ in range(300):
        actions = rule.act(obs, infos["action_mask"], env.view())
        ahead = obs["jobs"][:, :, -NUM_KINDS:].reshape(4, -1)
        for b, action in enumerate(actions):
            if action == ahead.shape[1]:
                assert ahead[b].max() <= 1e-4
            else:
                assert ahead[b, action] == pytest.approx(ahead[b].max(), abs=1e-5)
                net = obs["jobs"][b, action // 3, action % 3 - NUM_GAINS]
                kinds.add("ahead" if net < ahead[b, action] else "next")
        obs, _, _, _, infos = env.step(actions)
    assert kinds == {"ahead", "next"}
