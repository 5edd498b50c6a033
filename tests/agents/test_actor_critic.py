from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from agents.actor_critic import ActorCritic, build_actor_critic
from agents.callbacks import Checkpoints, RolloutStatistics, Validation
from agents.checkpoint import CheckpointError, read_info, resume_training, save_training
from agents.dl2_config import DL2Config
from agents.learner import fine_tune
from agents.networks import NetworkConfig
from agents.observations import AgentVectorEnv
from agents.scheduler import NetworkScheduler
from agents.vec_env import SB3VecEnv
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from tests.agents.learners import SMALL
from tests.agents.picking_env import PickingEnv
from tests.agents.test_callbacks import CountRight, Memory
from tests.agents.worlds import small_config

QUICK = DL2Config(batch_size=32, replay_size=256, learning_starts=32, exploration="none", learning_rate=3e-3)
PAPER_NET = NetworkConfig(kind="flat", hidden_width=16, observation="paper", observation_scale="log")


def picking_learner(
    config: DL2Config = QUICK, num_envs: int = 4, seed: int = 0, network: NetworkConfig = SMALL
) -> ActorCritic:
    model = build_actor_critic(SB3VecEnv(PickingEnv(num_envs)), config, network, seed=seed)
    model.set_logger(Logger(None, []))
    return model


def real_learner(
    config: DL2Config, seed: int = 2, num_envs: int = 3, network: NetworkConfig = PAPER_NET
) -> ActorCritic:
    world = small_config()
    world = dataclasses.replace(
        world,
        dynamics=dataclasses.replace(world.dynamics, initial_bundle=False),
        reward=dataclasses.replace(world.reward, progress=1.0, speed_gain=0.0),
    )
    env: Any = SchedulingVectorEnv(num_envs, world)
    if network.observation != "native":
        env = AgentVectorEnv(env, network)
    model = build_actor_critic(SB3VecEnv(env), config, network, seed=seed)
    model.set_logger(Logger(None, []))
    return model


def weights(model: ActorCritic) -> torch.Tensor:
    return torch.cat([v.flatten().double() for v in model.policy.state_dict().values()])


def share_right(model: ActorCritic) -> float:
    env = PickingEnv(256)
    obs, _ = env.reset(seed=12345)
    actions = NetworkScheduler(model.policy.network, deterministic=True).act(obs, env.action_masks())
    return float((actions == env.answer).mean())


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "changes",
    [
        # The paper's: one reward for the interval's three decisions. With old experience it takes several times longer.
        {"replay_size": 64},
        pytest.param({"credit": "to_go", "ratio_limit": 1.0, "replay_size": 256}, marks=SLOW),
        pytest.param({"sampling": "prioritized", "importance_weights": True, "interval_gamma": 0.0}, marks=SLOW),
        pytest.param({"baseline": "moving_average"}, marks=SLOW),
        pytest.param({"baseline": "replay_mean", "replay_size": 64}, marks=SLOW),
        {"policy_gradient": "stored", "interval_gamma": 0.0, "entropy_per_action": True},
    ],
)
def test_learns_a_masked_task(changes: dict[str, Any]) -> None:
    settings = {"batch_size": 64, "learning_starts": 64, "entropy_coef": 0.02, "final_entropy_coef": 0.0, **changes}
    model = picking_learner(dataclasses.replace(QUICK, intervals_per_update=8, **settings), num_envs=16)
    assert share_right(model) < 0.6
    assert fine_tune(model, 12_000)
    assert share_right(model) > 0.9


class CountIntervals(BaseCallback):
    """Intervals that ended by update."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[int] = []
        self._sum = 0

    def _on_step(self) -> bool:
        env: Any = self.model.env
        self._sum += int(env.interval_ended.sum())
        return True

    def _on_rollout_end(self) -> None:
        self.ended.append(self._sum)
        self._sum = 0


@pytest.mark.parametrize("num_envs", [1, 4])
def test_one_update_per_interval(num_envs: int) -> None:
    """With one environment after each interval; with B after B intervals, whatever environment they ended in."""
    model = picking_learner(dataclasses.replace(QUICK, batch_size=1, learning_starts=1), num_envs)
    count = CountIntervals()
    fine_tune(model, 60 * num_envs, [count])
    assert model.updates_done == len(count.ended)
    if num_envs == 1:
        assert set(count.ended) == {1}
        assert 20 <= model.updates_done <= 60  # an interval has at most three decisions
    else:
        assert min(count.ended) == num_envs and max(count.ended) < 2 * num_envs


def test_no_update_before_enough_is_kept() -> None:
    model = picking_learner(dataclasses.replace(QUICK, learning_starts=200))
    before = weights(model)
    fine_tune(model, 150)
    assert model.updates_done == 0 and torch.equal(weights(model), before)
    fine_tune(model, 400)
    assert model.updates_done > 0 and not torch.equal(weights(model), before)


class Watch(BaseCallback):
    """What the environments showed, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        seen = {k: self.locals[k] for k in ("obs", "actions", "rewards", "dones", "infos")}
        env: Any = self.locals["env"]
        self.steps.append({**seen, "ended": env.interval_ended, "new": self.model._last_obs})
        return True


@pytest.mark.parametrize("credit", ["interval", "to_go"])
def test_samples_are_what_happened(credit: Any) -> None:
    """Every sample has its interval's reward and the first state after the interval, also where an episode ends."""
    model = picking_learner(dataclasses.replace(QUICK, learning_starts=256, credit=credit), num_envs=1)
    watch = Watch()
    fine_tune(model, 120, [watch])
    arrays, _ = model.replay.state()
    expected: list[dict[str, Any]] = []
    interval: list[dict[str, Any]] = []
    continues = set()
    for step in watch.steps:
        interval.append(step)
        if not step["ended"][0]:
            continue
        done, info = bool(step["dones"][0]), step["infos"][0]
        after = info["terminal_observation"] if done else {name: v[0] for name, v in step["new"].items()}
        rewards = [float(s["rewards"][0]) for s in interval]
        for i, s in enumerate(interval):
            goes_on = not done or info["TimeLimit.truncated"]
            continues.add((done, goes_on))
            expected.append(
                {
                    "actions": s["actions"][0],
                    "jobs": s["obs"]["jobs"][0],
                    "rewards": sum(rewards if credit == "interval" else rewards[i:]),
                    "next_jobs": after["jobs"],
                    "next_cluster": after["cluster"],
                    "continues": float(goes_on),
                }
            )
        interval = []
    assert continues == {(False, True), (True, False), (True, True)}
    assert len(model.replay) == len(expected) > 100
    for i, sample in enumerate(expected):
        for name, value in sample.items():
            np.testing.assert_array_equal(arrays[f"samples/{name}"][i], value, err_msg=name)


def batch_of(model: ActorCritic, n: int = 6) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    masks = torch.rand(n, 13, generator=g) < 0.5
    masks[:, -1] = True
    stored = torch.softmax(torch.rand(n, 13, generator=g).masked_fill(~masks, -torch.inf), dim=1)
    return {
        "jobs": torch.rand(n, 4, 5, generator=g),
        "cluster": torch.rand(n, 2, generator=g),
        "next_jobs": torch.rand(n, 4, 5, generator=g),
        "next_cluster": torch.rand(n, 2, generator=g),
        "masks": masks,
        "actions": torch.multinomial(stored, 1, generator=g)[:, 0],
        "probabilities": stored,
        "log_probs": torch.full((n,), -2.0),
        "rewards": torch.rand(n, generator=g),
        "continues": torch.tensor([1.0, 0.0] * (n // 2)),
    }


def test_targets_and_advantages_by_hand() -> None:
    model = picking_learner(dataclasses.replace(QUICK, interval_gamma=0.5))
    batch = batch_of(model)
    following = model.policy.network.values(batch["next_jobs"], batch["next_cluster"]).detach()
    expected = batch["rewards"] + torch.where(batch["continues"] > 0, 0.5 * following, 0.0)
    torch.testing.assert_close(model._targets(batch), expected)
    bandit = picking_learner(dataclasses.replace(QUICK, interval_gamma=0.0))
    torch.testing.assert_close(bandit._targets(batch), batch["rewards"])
    td = torch.arange(6.0)
    torch.testing.assert_close(model._advantages(batch, td), td)
    for baseline, level in (("none", 0.0), ("moving_average", 0.25), ("replay_mean", 2.0)):
        other = picking_learner(dataclasses.replace(QUICK, baseline=baseline))  # type: ignore[arg-type]
        other._moving_average = 0.25
        other.replay.add({"rewards": np.array([1.0, 3.0], dtype=np.float32)})
        torch.testing.assert_close(other._targets(batch), batch["rewards"])
        torch.testing.assert_close(other._advantages(batch, td), batch["rewards"] - level)


def logit_gradients(model: ActorCritic, batch: dict[str, torch.Tensor], entropy_coef: float) -> torch.Tensor:
    logits = torch.randn(6, 13, generator=torch.Generator().manual_seed(1), requires_grad=True)
    loss, entropy = model._policy_loss(logits, batch, torch.arange(6.0) - 2.0)
    (loss - entropy_coef * entropy).backward()
    assert logits.grad is not None
    return logits.grad


def test_policy_gradients() -> None:
    """Against the formulas: present policy with and without the correction for age, and the released one."""
    batch = batch_of(picking_learner())
    advantages = torch.arange(6.0) - 2.0
    logits = torch.randn(6, 13, generator=torch.Generator().manual_seed(1))
    present = torch.softmax(logits.masked_fill(~batch["masks"], -torch.inf), dim=1)
    one_hot = torch.nn.functional.one_hot(batch["actions"], 13)

    def slope_of_entropy(p: torch.Tensor) -> torch.Tensor:
        log_p = p.clamp_min(1e-30).log()
        return -p * (log_p - (p * log_p).sum(dim=1, keepdim=True))

    plain = picking_learner()
    expected = (present - one_hot) * advantages[:, None] - 0.3 * slope_of_entropy(present)
    torch.testing.assert_close(logit_gradients(plain, batch, 0.3), expected / 6, rtol=1e-4, atol=1e-6)

    corrected = picking_learner(dataclasses.replace(QUICK, ratio_limit=1.5))
    ratio = (present.gather(1, batch["actions"][:, None]) * np.e**2).clamp_max(1.5)
    assert (ratio < 1.5).any() and (ratio == 1.5).any()
    expected = (present - one_hot) * advantages[:, None] * ratio
    torch.testing.assert_close(logit_gradients(corrected, batch, 0.0), expected / 6, rtol=1e-4, atol=1e-6)

    released = picking_learner(dataclasses.replace(QUICK, policy_gradient="stored", entropy_per_action=True))
    stored = batch["probabilities"]
    expected = (stored - one_hot) * advantages[:, None] - 0.3 / 13 * slope_of_entropy(stored)
    torch.testing.assert_close(logit_gradients(released, batch, 0.3), expected / 6, rtol=1e-4, atol=1e-6)


def test_critic_learns_discounted_values() -> None:
    """Each state leads to itself, or to the end: values reward / (1 - gamma) and reward."""
    config = dataclasses.replace(QUICK, interval_gamma=0.5)
    model = picking_learner(config, network=NetworkConfig(kind="flat", hidden_width=64))
    batch = {name: values.numpy() for name, values in batch_of(model, 32).items()}
    batch |= {"next_jobs": batch["jobs"], "next_cluster": batch["cluster"]}
    model.replay.add(batch)
    for _ in range(400):
        model.train()
    with torch.no_grad():
        values = model.policy.network.values(torch.from_numpy(batch["jobs"]), torch.from_numpy(batch["cluster"]))
    np.testing.assert_allclose(values, batch["rewards"] * np.where(batch["continues"], 2.0, 1.0), atol=0.15)


def test_without_a_critic_the_value_is_left_alone() -> None:
    model = picking_learner(dataclasses.replace(QUICK, baseline="moving_average"))
    before = model.policy.network.value_head.weight.clone()
    fine_tune(model, 400)
    assert model.updates_done > 10
    assert torch.equal(model.policy.network.value_head.weight, before)


def test_entropy_weight_is_annealed() -> None:
    memory = Memory()
    model = picking_learner(dataclasses.replace(QUICK, entropy_coef=0.1, final_entropy_coef=0.02, log_every=1))
    model.set_logger(Logger(None, [memory]))
    fine_tune(model, 2000, [RolloutStatistics()])
    rows = [row for _, row in memory.rows]
    first, last = rows[0]["train/entropy_coef"], rows[-1]["train/entropy_coef"]
    assert 0.09 < first < 0.1 and last == pytest.approx(0.02, abs=1e-3)
    wanted = {"train/policy_gradient_loss", "train/value_loss", "train/entropy_loss", "train/advantage_std"}
    wanted |= {"rollout/ep_rew_mean", "rollout/explored_share", "rollout/void_share", "rollout/avg_jct_s"}
    assert wanted <= set(rows[-1])


@pytest.mark.parametrize("kind", ["paper", "released"])
def test_exploration_acts_in_training_only(kind: Any) -> None:
    model = real_learner(dataclasses.replace(QUICK, exploration=kind, log_every=1))
    memory = Memory()
    model.set_logger(Logger(None, [memory]))
    fine_tune(model, 600)
    assert max(row["rollout/explored_share"] for _, row in memory.rows) > 0.05
    env = model.env.env
    obs, masks = env.observe(), env.action_masks()
    logits = model.policy.network.logits(torch.from_numpy(obs["jobs"]), torch.from_numpy(obs["cluster"]))
    expected = logits.masked_fill(~torch.from_numpy(masks), -1e8).argmax(dim=1).numpy()
    actions = NetworkScheduler(model.policy.network, deterministic=True).act(env.observe(), masks, env.view())
    np.testing.assert_array_equal(actions, expected)


def test_actions_that_fail_are_not_learned_from() -> None:
    world = small_config()
    world = dataclasses.replace(
        world, dynamics=dataclasses.replace(world.dynamics, mask_resources=False, auto_advance=False)
    )
    config = dataclasses.replace(QUICK, replay_size=4096)
    model = build_actor_critic(SB3VecEnv(SchedulingVectorEnv(2, world)), config, SMALL, seed=1)
    model.set_logger(Logger(None, []))
    failed = 0

    class Count(BaseCallback):
        def _on_step(self) -> bool:
            nonlocal failed
            has_choice = self.locals["masks"][:, :-1].any(axis=1)
            failed += int((model.env.is_illegal | ~has_choice).sum())
            return True

    fine_tune(model, 600, [Count()])
    waiting = int(model.pending.state()["lengths"].sum())
    assert failed > 5
    assert len(model.replay) + waiting == model.num_timesteps - failed


def test_same_seed_same_weights() -> None:
    models = [real_learner(dataclasses.replace(QUICK, exploration="released"), seed) for seed in (1, 1, 2)]
    for model in models:
        fine_tune(model, 400)
    first, second, third = map(weights, models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


class StopAfter(BaseCallback):
    """Requests a stop while the experience for the given update is collected."""

    def __init__(self, updates: int) -> None:
        super().__init__()
        self._updates = updates

    def _on_step(self) -> bool:
        model: Any = self.model
        model.stop_requested |= model.updates_done == self._updates - 1
        return True


@pytest.mark.parametrize(
    "changes",
    [
        {"exploration": "paper", "baseline": "moving_average"},
        {
            "exploration": "released",
            "sampling": "prioritized",
            "importance_weights": True,
            "policy_gradient": "stored",
            "epsilon_greedy": True,
        },
    ],
)
def test_resuming_continues_bit_for_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = dataclasses.replace(QUICK, replay_size=100, final_entropy_coef=0.0, **changes)
    whole, first, resumed = (real_learner(config) for _ in range(3))
    assert fine_tune(whole, 900)
    last = tmp_path / "last"
    assert not fine_tune(first, 900, [StopAfter(11), Checkpoints(last, every=10**6)])
    info = resume_training(last, resumed)
    assert info.num_updates == resumed.updates_done == 11 and not info.ppo
    assert info.dl2 is not None and info.dl2["replay_size"] == 100
    assert resumed.pending.state()["lengths"].sum() > 0  # in the middle of intervals of some environments
    assert fine_tune(resumed, 900)
    assert resumed.updates_done == whole.updates_done > 20
    assert torch.equal(weights(resumed), weights(whole))
    ours, theirs = resumed.training_state(), whole.training_state()
    assert ours[0] == theirs[0]
    for name, values in ours[1].items():
        np.testing.assert_array_equal(values, theirs[1][name], err_msg=name)


def test_a_checkpoint_of_another_learner_is_refused(tmp_path: Path) -> None:
    model = real_learner(QUICK)
    fine_tune(model, 200)
    save_training(tmp_path / "last", model)
    with pytest.raises(CheckpointError, match=r"does not fit this run \(.* samples were saved, this run keeps 40"):
        resume_training(tmp_path / "last", real_learner(dataclasses.replace(QUICK, replay_size=40)))
    with pytest.raises(CheckpointError, match=r"3 environments were saved, this run has 2"):
        resume_training(tmp_path / "last", real_learner(QUICK, num_envs=2))


def test_resuming_without_a_snapshot_starts_new_episodes(tmp_path: Path) -> None:
    model, resumed = picking_learner(), picking_learner()
    fine_tune(model, 200)
    save_training(tmp_path / "last", model)
    info = resume_training(tmp_path / "last", resumed)
    assert resumed.num_timesteps == info.num_decisions == model.num_timesteps
    assert len(resumed.replay) == len(model.replay)
    fine_tune(resumed, 400)
    assert resumed.updates_done > model.updates_done


def test_validation_does_not_change_the_training(tmp_path: Path) -> None:
    models = [picking_learner(seed=3) for _ in range(2)]
    validation = Validation(CountRight(), every=10)
    fine_tune(models[0], 600)
    fine_tune(models[1], 600, [validation, RolloutStatistics(), Checkpoints(tmp_path / "last", every=10)])
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert len(validation.history) == models[1].updates_done // 10 + 2
    assert read_info(tmp_path / "last").num_updates == models[1].updates_done


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "lifo"}, r"dl2\.sampling='lifo' is unknown; choose one of: uniform, prioritized"),
        ({"baseline": "actor"}, r"dl2\.baseline='actor' is unknown"),
        ({"exploration": "all"}, r"dl2\.exploration='all' is unknown; choose one of: none, paper, released"),
        ({"batch_size": 0}, r"dl2\.batch_size=0 must be at least 1"),
        ({"intervals_per_update": 0}, r"dl2\.intervals_per_update=0 must be at least 1"),
        ({"replay_size": 100}, r"dl2\.batch_size=256 exceeds dl2\.replay_size=100; lower it"),
        ({"learning_rate": 0.0}, r"dl2\.learning_rate=0\.0 must be positive"),
        ({"max_grad_norm": -1.0}, r"dl2\.max_grad_norm=-1\.0 must be positive"),
        ({"entropy_coef": -0.1}, r"dl2\.entropy_coef=-0\.1 must not be negative"),
        ({"interval_gamma": 1.5}, r"dl2\.interval_gamma=1\.5 must lie in \[0, 1\]"),
        ({"importance_weights": True}, r"dl2\.importance_weights: only with dl2\.sampling=prioritized"),
        ({"policy_gradient": "stored", "ratio_limit": 1.0}, r"dl2\.ratio_limit: the stored gradient has no ratio"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DL2Config(**changes)
