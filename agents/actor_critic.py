"""The learner of DL2: policy gradient with a critic, experience replay and job-aware exploration.

Peng et al., arXiv 1909.06040, as we understand it; `agents.dl2_config` says where each setting comes from. Where
several clusters learn together, B environments take the place of the paper's B schedulers around one parameter server:
one update per B intervals, from one batch of all experience.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from agents.dl2_config import DL2Config
from agents.exploration import Exploration, epsilon
from agents.job_credit import JobProgress
from agents.learner import derived_rng_seed
from agents.masked import log_prob_and_entropy, masked_log_softmax, masked_sample
from agents.networks import NetworkConfig
from agents.policies import NetworkPolicy, policy_class
from agents.replay import PendingIntervals, ReplayBuffer
from agents.vec_env import SB3VecEnv


class ActorCritic(BaseAlgorithm):
    """DL2's learner; see `build_actor_critic`. One update after `intervals_per_update` intervals.

    Decisions that leave no choice, and those that fail (where the mask lets them pass), are not learned from; their
    rewards are credited to the other decisions of their interval.
    """

    algorithm: ClassVar[str] = "dl2"
    policy: NetworkPolicy
    config: DL2Config
    env: Any  # SB3VecEnv
    _last_obs: Any  # of it: arrays by name
    stop_requested: bool = False  # set by whoever wants the training to end at the next border between updates
    ended_early: bool = False  # set by a callback that ends the training at the present border

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        build: Any = self.policy_class
        self.policy = build(self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs)
        self.policy.to(self.device)
        seed, config, num_envs = int(self.seed or 0), self.config, self.n_envs
        self.policy.generator = torch.Generator(self.device).manual_seed(seed)
        self.replay = ReplayBuffer(config.replay_size, config.sampling, derived_rng_seed(seed, 0))
        self.pending = PendingIntervals(num_envs)
        self.exploration = Exploration(
            config.exploration,
            num_envs,
            config.exploration_probability,
            config.exploration_ratio,
            derived_rng_seed(seed, 1),
        )
        self._progress = JobProgress(self.env.env) if config.credit == "own_job" else None
        self._is_collecting = False
        self._interval_starts = np.ones(num_envs, dtype=np.bool_)
        self._moving_average: float | None = None
        self._num_forced, self._num_decided = 0, 0

    @property
    def updates_done(self) -> int:
        """Updates since the start of training, earlier runs included."""
        return self._n_updates

    @property
    def is_between_updates(self) -> bool:
        """Whether it stands exactly between two updates."""
        return not self._is_collecting

    def learn(  # type: ignore[override]
        self, total_timesteps: int, callback: Any = None, *, reset_num_timesteps: bool = True
    ) -> ActorCritic:
        """Trains on that many further decisions, rounded up to whole updates."""
        total, callbacks = self._setup_learn(total_timesteps, callback, reset_num_timesteps)
        callbacks.on_training_start(locals(), globals())
        while self.num_timesteps < total:
            callbacks.on_rollout_start()
            if not self._collect(callbacks):
                break
            callbacks.on_rollout_end()
            self._is_collecting = False
            self._update_current_progress_remaining(self.num_timesteps, total)
            if len(self.replay) >= self.config.learning_starts:
                self.train()
        callbacks.on_training_end()
        return self

    def _collect(self, callbacks: BaseCallback) -> bool:
        """Decides until enough intervals have ended; False if a callback stopped it."""
        config, env = self.config, self.env
        missing = config.intervals_per_update or self.n_envs
        self.policy.set_training_mode(False)
        while missing > 0:
            obs: dict[str, NDArray[np.float32]] = self._last_obs
            masks = np.asarray(env.env.action_masks())
            actions, log_probs = self._decide(obs, masks)
            own: dict[str, NDArray[Any]] = {}
            if self._progress is not None:
                own["job"] = self._progress.jobs_of(actions)
                self._progress.before_step()
            self._last_obs, rewards, dones, infos = env.step(actions)
            self.num_timesteps += self.n_envs
            self._is_collecting = True
            callbacks.update_locals(locals())
            if not callbacks.on_step():
                return False
            self._update_info_buffer(infos, dones)
            decisions: dict[str, NDArray[Any]] = {
                **obs,
                **own,
                "masks": masks,
                "actions": actions,
                "log_probs": np.take_along_axis(log_probs, actions[:, None], axis=1)[:, 0],
            }
            if config.policy_gradient == "stored":
                decisions["probabilities"] = np.exp(log_probs)
            has_choice = masks[:, :-1].any(axis=1)
            self.pending.add(has_choice & ~env.is_illegal, rewards, decisions)
            ended = env.interval_ended | dones
            for b in np.flatnonzero(ended):
                self._store(int(b), bool(dones[b]), infos[b])
            self._interval_starts = ended
            self._last_episode_starts = dones
            missing -= int(ended.sum())
        return True

    @torch.no_grad()
    def _decide(
        self, obs: dict[str, NDArray[np.float32]], masks: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Actions, exploration included, and the policy's log probabilities (B, A)."""
        config = self.config
        tensors: Any = obs_as_tensor(obs, self.device)
        legal = torch.as_tensor(masks, device=self.device)
        log_probs = masked_log_softmax(self.policy.network.logits(tensors["jobs"], tensors["cluster"]), legal)
        sampled = masked_sample(log_probs, self.policy.generator).cpu().numpy()
        logged = log_probs.cpu().numpy()
        self.exploration.start_intervals(self._interval_starts)
        view = None if config.exploration == "none" else self.env.env.view()
        random_probability = epsilon(self.updates_done, config.epsilon_decay) if config.epsilon_greedy else 0.0
        actions = self.exploration.explore(sampled, np.exp(logged), masks, view, random_probability)
        self._num_forced += int((actions != sampled).sum())
        self._num_decided += len(actions)
        return actions, logged

    def _store(self, b: int, is_done: bool, info: dict[str, Any]) -> None:
        """Moves the decisions of an interval that has ended into the replay buffer."""
        samples = self.pending.pop(b, self.config.credit)
        n = len(samples["rewards"])
        if n == 0:
            return
        if self._progress is not None:
            samples["rewards"] = self._progress.rewards(b, samples.pop("job"))
        last: Any = info["terminal_observation"] if is_done else {k: v[b] for k, v in self._last_obs.items()}
        for name in ("jobs", "cluster"):
            samples[f"next_{name}"] = np.broadcast_to(last[name], (n, *last[name].shape))
        # The time limit is no end of the world: what would have followed has the value of the last state.
        goes_on = not is_done or info["TimeLimit.truncated"]
        samples["continues"] = np.full(n, goes_on, dtype=np.float32)
        self.replay.add(samples)
        mean = float(samples["rewards"].mean())
        past = mean if self._moving_average is None else self._moving_average
        self._moving_average = past + (1.0 - self.config.average_decay) * (mean - past)

    def train(self) -> None:
        """One update from a batch of the replay buffer."""
        config, network = self.config, self.policy.network
        self.policy.set_training_mode(True)
        drawn, index, weights = self.replay.sample(config.batch_size)
        batch = {name: torch.from_numpy(values).to(self.device) for name, values in drawn.items()}
        logits, values = network(batch["jobs"], batch["cluster"])
        td_errors = self._targets(batch) - values
        advantages = self._advantages(batch, td_errors.detach())
        if config.importance_weights:
            advantages = advantages * torch.from_numpy(weights).to(self.device)
        policy_loss, entropy = self._policy_loss(logits, batch, advantages)
        value_loss = td_errors.square().mean() / network.value_head.std**2
        progress = 1.0 - self._current_progress_remaining
        entropy_coef = config.entropy_coef + progress * (config.final_entropy_coef - config.entropy_coef)
        loss = policy_loss - entropy_coef * entropy
        if config.baseline == "critic":
            loss = loss + config.value_coef * value_loss
        self.policy.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm or float("inf"))
        self.policy.optimizer.step()
        self.replay.set_priorities(index, td_errors.detach().cpu().numpy())
        self._n_updates += 1
        self.logger.record_mean("train/policy_gradient_loss", policy_loss.item())
        self.logger.record_mean("train/value_loss", value_loss.item())
        self.logger.record_mean("train/entropy_loss", -entropy.item())
        self.logger.record_mean("train/advantage_std", float(advantages.std(correction=0)))
        self.logger.record_mean("train/gradient_norm", float(norm))
        if self._n_updates % config.log_every == 0:
            self._log(entropy_coef)

    @torch.no_grad()
    def _targets(self, batch: dict[str, Tensor]) -> Tensor:
        """(n,) Q of the decisions: the reward and, with a critic, the discounted value of the next interval."""
        if self.config.baseline != "critic" or self.config.interval_gamma == 0.0:
            return batch["rewards"]
        following = self.policy.network.values(batch["next_jobs"], batch["next_cluster"])
        return batch["rewards"] + self.config.interval_gamma * batch["continues"] * following

    def _advantages(self, batch: dict[str, Tensor], td_errors: Tensor) -> Tensor:
        baseline = self.config.baseline
        if baseline == "critic":
            return td_errors
        level = {"moving_average": self._moving_average or 0.0, "replay_mean": self.replay.mean_reward, "none": 0.0}
        return batch["rewards"] - level[baseline]

    def _policy_loss(self, logits: Tensor, batch: dict[str, Tensor], advantages: Tensor) -> tuple[Tensor, Tensor]:
        """The loss whose gradient is the policy gradient, and the entropy."""
        config = self.config
        num_actions = logits.shape[1] if config.entropy_per_action else 1
        actions = batch["actions"]
        if config.policy_gradient == "current":
            log_prob, entropy = log_prob_and_entropy(logits, batch["masks"], actions)
            if config.ratio_limit is not None:
                ratio = (log_prob.detach() - batch["log_probs"]).exp().clamp_max(config.ratio_limit)
                advantages = advantages * ratio
            return -(advantages * log_prob).mean(), entropy.mean() / num_actions
        # Linear in the logits, so that their gradients are the ones wanted, with the entropy's true value.
        stored = batch["probabilities"]
        chosen = torch.nn.functional.one_hot(actions, logits.shape[1])
        loss = (advantages * ((stored - chosen) * logits).sum(dim=1)).mean()
        log_stored = stored.clamp_min(1e-30).log()
        entropy = -(stored * log_stored).sum(dim=1)
        slope = -stored * (log_stored + entropy.unsqueeze(1))
        linear = (slope * (logits - logits.detach())).sum(dim=1)
        return loss, (entropy + linear).mean() / num_actions

    def _log(self, entropy_coef: float) -> None:
        episodes = self.ep_info_buffer or ()
        if episodes:
            self.logger.record("rollout/ep_rew_mean", float(np.mean([info["r"] for info in episodes])))
            self.logger.record("rollout/ep_len_mean", float(np.mean([info["l"] for info in episodes])))
        self.logger.record("rollout/explored_share", self._num_forced / max(self._num_decided, 1))
        self._num_forced, self._num_decided = 0, 0
        self.logger.record("train/entropy_coef", entropy_coef)
        self.logger.record("train/learning_rate", self.config.learning_rate)
        self.logger.record("train/replay_size", len(self.replay))
        self.logger.dump(self.num_timesteps)

    def training_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What resuming needs besides network, optimizer and environments."""
        replay, counters = self.replay.state()
        content = {
            "replay": counters,
            "exploration": self.exploration.state(),
            "interval_starts": self._interval_starts.tolist(),
            "moving_average": self._moving_average,
        }
        pending = {f"pending/{name}": values for name, values in self.pending.state().items()}
        return {"dl2": json.dumps(content)}, {**{f"replay/{name}": v for name, v in replay.items()}, **pending}

    def restore_training(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continues from a `training_state`."""
        content = json.loads(state["dl2"])
        self.replay.restore(_below("replay", arrays), content["replay"])
        self.exploration.restore(content["exploration"])
        self._moving_average = content["moving_average"]
        # Where the environments could not be restored, new episodes begin.
        starts = np.array(content["interval_starts"], dtype=np.bool_)
        assert self._last_episode_starts is not None
        if self._last_episode_starts.all():
            self._interval_starts = np.ones_like(starts)
        else:
            self._interval_starts = starts
            self.pending.restore(_below("pending", arrays))


def _below(group: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name[len(group) + 1 :]: values for name, values in arrays.items() if name.startswith(f"{group}/")}


def build_actor_critic(
    env: SB3VecEnv,
    config: DL2Config | None = None,
    network: NetworkConfig | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> ActorCritic:
    """A learner with a new network.

    Args:
        env: Environments to learn in; with one environment this is the learner of the paper.
        config: Settings of the learner.
        network: Kind and sizes of the network; the paper's is `flat`.
        seed: Seeds the weights, the environments and all draws. SB3 also seeds the global generators of numpy, torch
            and `random` with it; only the initial weights are drawn from them.
        device: Torch device of the network.
    """
    config = config or DL2Config()
    network = network or NetworkConfig(kind="flat")
    model = ActorCritic(
        policy_class(network),
        env,
        learning_rate=config.learning_rate,
        policy_kwargs={"network": network},
        seed=seed,
        device=device,
        support_multi_env=True,
    )
    model.config = config
    model._setup_model()
    return model
