from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from agents.learner import fine_tune
from agents.networks import NetworkConfig
from agents.ppo import PPOConfig, SchedulingPPO, build_ppo
from agents.scheduler import NetworkScheduler
from agents.vec_env import SB3VecEnv
from dl2env.errors import ConfigError
from tests.agents.learners import QUICK, SMALL, picking_learner
from tests.agents.picking_env import PickingEnv


def weights(model: SchedulingPPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()])


def share_right(model: SchedulingPPO) -> float:
    """Share of right actions of the most probable choice, on unseen observations."""
    env = PickingEnv(256)
    obs, _ = env.reset(seed=12345)
    actions = NetworkScheduler(model.policy.network, deterministic=True).act(obs, env.action_masks())
    return float((actions == env.answer).mean())


@pytest.mark.parametrize("normalize_values", [True, False])
def test_learns_a_masked_task(normalize_values: bool) -> None:
    config = PPOConfig(
        steps_per_update=32,
        minibatch_size=512,
        epochs=4,
        learning_rate=1e-2,
        ramp_updates=1,
        entropy_coef=0.01,
        target_kl=None,
        normalize_values=normalize_values,
    )
    model = picking_learner(config=config, num_envs=16)
    assert share_right(model) < 0.6
    assert fine_tune(model, 12 * 16 * 32)
    assert model.updates_done == 12 and model.num_timesteps == 12 * 16 * 32
    assert share_right(model) > 0.95


def test_one_epoch_and_one_minibatch_are_a2c() -> None:
    """The step is that of the plain policy gradient on the same decisions, whatever the clip range."""
    config = PPOConfig(
        steps_per_update=16,
        minibatch_size=None,
        epochs=1,
        ramp_updates=0,
        target_kl=None,
        normalize_advantage=False,
        normalize_values=False,
        gae_lambda=1.0,
        entropy_coef=0.01,
        final_entropy_coef=0.01,
    )
    model, clipped = (picking_learner(config=dataclasses.replace(config, clip_range=c)) for c in (0.2, 1e-4))
    start = copy.deepcopy(model.policy.state_dict())
    for m in (model, clipped):
        fine_tune(m, 128)
    assert torch.equal(weights(model), weights(clipped))
    assert model._n_updates == 1
    by_hand = picking_learner(config=config)
    by_hand.policy.load_state_dict(start)
    (batch,) = list(model.rollout_buffer.get(128))
    values, log_prob, entropy = by_hand.policy.evaluate_actions(batch.observations, batch.actions, batch.action_masks)
    advantages = batch.returns - batch.old_values
    loss = -(advantages * log_prob).mean() + 0.5 * (batch.returns - values[:, 0]).square().mean()
    loss = loss - 0.01 * entropy.mean()
    optimizer = by_hand.policy.optimizer
    for group in optimizer.param_groups:
        group["lr"] = config.final_learning_rate  # all decisions are made
    loss.backward()
    torch.nn.utils.clip_grad_norm_(by_hand.policy.parameters(), config.max_grad_norm)
    optimizer.step()
    torch.testing.assert_close(weights(by_hand), weights(model), rtol=0, atol=2e-7)
    assert not torch.allclose(weights(model), torch.cat([v.flatten() for v in start.values()])[: len(weights(model))])


def test_same_seed_same_weights() -> None:
    models = [picking_learner(seed) for seed in (1, 1, 2)]
    for model in models:
        fine_tune(model, 4 * 128)
    first, second, third = map(weights, models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_schedules_run_from_start_to_end() -> None:
    config = dataclasses.replace(
        QUICK, learning_rate=1e-2, ramp_updates=2, final_learning_rate=1e-3, entropy_coef=0.1, final_entropy_coef=0.02
    )
    model = picking_learner(config=config)
    seen: list[tuple[float, float]] = []
    train = model.train

    def spy() -> None:
        train()
        seen.append((model.ent_coef, model.policy.optimizer.param_groups[0]["lr"]))

    model.train = spy  # type: ignore[method-assign]
    fine_tune(model, 4 * 128)
    # After a quarter, half, three quarters and all of the decisions; the first update has half the learning rate.
    np.testing.assert_allclose(seen, [(0.08, 7.75e-3 / 2), (0.06, 5.5e-3), (0.04, 3.25e-3), (0.02, 1e-3)])


def test_values_are_normalized_by_the_returns() -> None:
    model = picking_learner()
    fine_tune(model, 128)
    head = model.policy.network.value_head
    assert float(head.std) == pytest.approx(float(model.rollout_buffer.returns.std(ddof=1)), rel=1e-4)
    assert model.vf_coef == pytest.approx(0.5 / float(head.std) ** 2)


def test_intervals_of_the_environment_reach_the_buffer() -> None:
    model = picking_learner()
    fine_tune(model, 128)
    done = model.rollout_buffer.episode_starts[1:]
    assert model.rollout_buffer.interval_ends[:-1][done].all()  # an episode ends with an interval
    assert 0 < model.rollout_buffer.interval_ends.mean() < 1


def test_more_than_asked_for_is_not_trained() -> None:
    model = picking_learner()
    fine_tune(model, 200)  # rounded up to two updates of 128
    assert model.num_timesteps == 256
    before = weights(model)
    assert fine_tune(model, 256)
    assert torch.equal(weights(model), before)


def test_a_flat_network_trains_too() -> None:
    env = SB3VecEnv(PickingEnv(8))
    model = build_ppo(env, QUICK, NetworkConfig(kind="flat", hidden_width=16), seed=1)
    before = weights(model)
    from stable_baselines3.common.logger import Logger

    model.set_logger(Logger(None, []))
    fine_tune(model, 128)
    assert not torch.equal(weights(model), before)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="minibatch_size=2048 exceeds the 1024 decisions"):
        build_ppo(SB3VecEnv(PickingEnv(8)), PPOConfig(), SMALL)
    with pytest.raises(ConfigError, match="ppo.epochs=0"):
        PPOConfig(epochs=0)
    with pytest.raises(ConfigError, match="interval_gamma"):
        PPOConfig(interval_gamma=2.0)
    with pytest.raises(ConfigError, match="target_kl"):
        PPOConfig(target_kl=0.0)
    with pytest.raises(ConfigError, match="learning_rate"):
        PPOConfig(learning_rate=float("nan"))
