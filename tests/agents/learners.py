"""Small learners on the picking task."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.logger import Logger

from agents.networks import NetworkConfig
from agents.ppo import PPOConfig, SchedulingPPO, build_ppo
from agents.vec_env import SB3VecEnv
from tests.agents.picking_env import PickingEnv

SMALL = NetworkConfig(slot_width=16, context_width=16, hidden_width=32)
QUICK = PPOConfig(steps_per_update=16, minibatch_size=64, epochs=2)


def picking_learner(seed: int = 0, config: PPOConfig = QUICK, num_envs: int = 8, **sizes: Any) -> SchedulingPPO:
    model = build_ppo(SB3VecEnv(PickingEnv(num_envs, **sizes)), config, SMALL, seed=seed)
    model.set_logger(Logger(None, []))
    return model
