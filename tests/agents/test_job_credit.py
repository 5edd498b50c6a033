"""Rewards of the decision's own job, checked against the reward that all jobs get together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from agents.actor_critic import build_actor_critic
from agents.callbacks import Checkpoints
from agents.checkpoint import resume_training
from agents.dl2_config import DL2Config
from agents.job_credit import JobProgress
from agents.learner import fine_tune
from agents.networks import NetworkConfig
from agents.observations import AgentVectorEnv
from agents.vec_env import SB3VecEnv
from dl2env.config import RewardConfig
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from tests.agents.picking_env import PickingEnv
from tests.agents.worlds import small_config

CONFIG = small_config()
# Without initial bundles only jobs that a decision was for train.
CONFIG = dataclasses.replace(
    CONFIG,
    dynamics=dataclasses.replace(CONFIG.dynamics, initial_bundle=False, max_intervals=60),
    reward=RewardConfig(progress=1.0, jct=0.0, ideal_progress=0.0, speed_gain=0.0),
)
NETWORK = NetworkConfig(kind="flat", hidden_width=8, observation="paper", observation_scale="log")


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_jobs_share_what_all_get(is_wrapped: bool) -> None:
    """Over the jobs that were decided for, it sums to the interval's reward, also where an episode ends."""
    env: Any = SchedulingVectorEnv(3, CONFIG)
    env = AgentVectorEnv(env, NETWORK) if is_wrapped else env
    env.reset(seed=1)
    progress = JobProgress(env)
    rng = np.random.default_rng(0)
    jobs: list[list[int]] = [[], [], []]
    total = np.zeros(3)
    num_checked, num_ended, num_void = 0, 0, 0
    for _ in range(1500):
        masks = env.action_masks()
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        for b, job in enumerate(progress.jobs_of(actions)):
            jobs[b].append(int(job))
            assert (job == -1) == (actions[b] == masks.shape[1] - 1)
        progress.before_step()
        _, rewards, terminated, truncated, infos = env.step(actions)
        total += rewards
        for b in np.flatnonzero(infos["interval_ended"]):
            own = progress.rewards(b, np.array(jobs[b]))
            by_job = dict(zip(jobs[b], own.tolist(), strict=True))
            assert all(value == by_job[job] for job, value in zip(jobs[b], own.tolist(), strict=True))
            num_void += -1 in by_job
            assert by_job.pop(-1, 0.0) == 0.0
            assert sum(by_job.values()) == pytest.approx(total[b], abs=1e-5)
            num_checked += total[b] > 0
            num_ended += bool(terminated[b] | truncated[b])
            jobs[b], total[b] = [], 0.0
    assert num_checked > 100 and num_ended > 5 and num_void > 100


def learner(seed: int = 0) -> Any:
    env = SB3VecEnv(AgentVectorEnv(SchedulingVectorEnv(2, CONFIG), NETWORK))
    config = DL2Config(batch_size=16, replay_size=64, learning_starts=16, credit="own_job")
    model = build_actor_critic(env, config, NETWORK, seed=seed)
    model.set_logger(Logger(None, []))
    return model


def test_learner_uses_it_and_resumes(tmp_path: Path) -> None:
    whole, stopped = learner(), learner()
    fine_tune(whole, 400)
    arrays, _ = whole.replay.state()
    assert "samples/job" not in arrays
    voids = arrays["samples/actions"] == 3 * 4
    assert voids.any() and (arrays["samples/rewards"][voids] == 0.0).all()
    assert (arrays["samples/rewards"][~voids] > 0.0).any()
    fine_tune(stopped, 200, [Checkpoints(tmp_path / "last")])
    resumed = learner()
    resume_training(tmp_path / "last", resumed)
    fine_tune(resumed, 400)
    for a, b in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_needs_a_simulator() -> None:
    with pytest.raises(ConfigError, match=r"dl2\.credit=own_job: only environments with a simulator"):
        JobProgress(PickingEnv(2))
