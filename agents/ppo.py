"""PPO fine-tuning: sb3-contrib's MaskablePPO with discounting by interval, annealed entropy and normalised values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO

from agents.networks import NetworkConfig
from agents.policies import NetworkPolicy, policy_class
from agents.returns import Discounting
from agents.rollout_buffer import IntervalRolloutBuffer
from agents.vec_env import SB3VecEnv
from dl2env.errors import ConfigError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO (Schulman et al., arXiv 1707.06347). One update uses `steps_per_update` * B decisions.

    With one epoch, one minibatch and no limit on the KL divergence this is A2C (Mnih et al., arXiv 1602.01783): each
    decision is used once, while the policy is still the one that took it, so nothing is ever clipped (Huang et al.,
    arXiv 2205.09123). The optimizer is Adam, where A2C's is usually RMSprop.

    Attributes:
        steps_per_update: Decisions per environment between updates.
        minibatch_size: Decisions per gradient step; None: all of an update.
        epochs: Passes over the decisions of an update.
        learning_rate: Of Adam, at the start; linear to `final_learning_rate` at the end.
        final_learning_rate: See above.
        ramp_updates: Updates at the start of a training over which the learning rate rises linearly to the one above.
            Adam's first steps are of full length whatever the gradient; after a warm-up they can throw the policy into
            ending every interval at once.
        entropy_coef: Weight of the entropy bonus at the start; linear to `final_entropy_coef` at the end.
        final_entropy_coef: See above.
        clip_range: Largest relative change of a decision's probability that is rewarded.
        target_kl: An update stops once its mean KL divergence exceeds 1.5 times this; None: never.
        value_coef: Weight of the value loss (of normalised values if `normalize_values`).
        max_grad_norm: The gradient is shortened to this length.
        normalize_advantage: Shift and scale the advantages of a minibatch to mean 0 and standard deviation 1.
        normalize_values: Learn values in units of the returns' standard deviation.
        decision_gamma: Discount between decisions of one interval.
        gae_lambda: GAE lambda between decisions of one interval.
        interval_gamma: Discount across an interval's end; 0 cuts there.
        interval_lambda: GAE lambda across an interval's end.
    """

    steps_per_update: int = 128
    minibatch_size: int | None = 2048
    epochs: int = 3
    learning_rate: float = 2e-3
    final_learning_rate: float = 1e-4
    ramp_updates: int = 8
    entropy_coef: float = 0.01
    final_entropy_coef: float = 0.001
    clip_range: float = 0.2
    target_kl: float | None = 0.05
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = True
    normalize_values: bool = True
    decision_gamma: float = 1.0
    gae_lambda: float = 0.95
    interval_gamma: float = 0.0
    interval_lambda: float = 0.95

    def __post_init__(self) -> None:
        for name in ("steps_per_update", "minibatch_size", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be at least 1")
        for name in ("learning_rate", "clip_range", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be positive")
        for name in ("ramp_updates", "final_learning_rate", "entropy_coef", "final_entropy_coef", "value_coef"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must not be negative")
        if self.target_kl is not None and not self.target_kl > 0:
            raise ConfigError(f"ppo.target_kl={self.target_kl} must be positive, or null for no limit")
        self.discounting  # noqa: B018 - checks the discounts

    @property
    def discounting(self) -> Discounting:
        """The discounts and trace lengths."""
        return Discounting(self.decision_gamma, self.gae_lambda, self.interval_gamma, self.interval_lambda)


class SchedulingPPO(MaskablePPO):
    """MaskablePPO whose entropy weight is annealed and whose values are normalised; see `build_ppo`."""

    algorithm: ClassVar[str] = "ppo"
    policy: NetworkPolicy
    rollout_buffer: IntervalRolloutBuffer  # type: ignore[assignment]
    config: PPOConfig
    stop_requested: bool = False  # set by whoever wants the training to end at the next border between updates
    ended_early: bool = False  # set by a callback that ends the training at the present border

    def train(self) -> None:
        """One update from the rollout buffer."""
        config = self.config
        progress = 1.0 - self._current_progress_remaining
        self.ent_coef = config.entropy_coef + progress * (config.final_entropy_coef - config.entropy_coef)
        self.vf_coef = config.value_coef
        if config.normalize_values:
            head = self.policy.network.value_head
            head.rescale(torch.from_numpy(self.rollout_buffer.returns).to(head.weight.device))
            # The parent's loss is in squared units of the return.
            self.vf_coef = config.value_coef / float(head.std) ** 2
        super().train()
        self.logger.record("train/entropy_coef", self.ent_coef)
        self.logger.record("train/value_std", float(self.policy.network.value_head.std))

    def _update_learning_rate(self, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
        """Sets the scheduled learning rate, less during the first updates."""
        super()._update_learning_rate(optimizers)
        # The running update counts as done: its decisions have been made.
        ramp = min(1.0, self.updates_done / max(1, self.config.ramp_updates))
        for group in self.policy.optimizer.param_groups:
            group["lr"] *= ramp

    @property
    def updates_done(self) -> int:
        """Updates since the start of training, earlier runs included."""
        return self.num_timesteps // (self.n_steps * self.n_envs)

    @property
    def is_between_updates(self) -> bool:
        """Whether it stands exactly between two updates."""
        return self.num_timesteps % (self.n_steps * self.n_envs) == 0

    def training_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What resuming needs besides network, optimizer and environments."""
        return {"minibatch_rng": self.rollout_buffer.generator.get_state()}, {}

    def restore_training(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continues from a `training_state`."""
        self.rollout_buffer.generator.set_state(state["minibatch_rng"])


def build_ppo(
    env: SB3VecEnv,
    config: PPOConfig | None = None,
    network: NetworkConfig | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> SchedulingPPO:
    """A learner with a new network.

    Args:
        env: Environments to learn in.
        config: Settings of PPO.
        network: Kind and sizes of the network.
        seed: Seeds the weights, the environments and all draws. SB3 also seeds the global generators of numpy, torch
            and `random` with it; only the initial weights are drawn from them.
        device: Torch device of the network. These networks are small: a GPU pays only with thousands of environments.

    Raises:
        ConfigError: A rollout is smaller than a minibatch.
    """
    config = config or PPOConfig()
    network = network or NetworkConfig()
    rollout = config.steps_per_update * env.num_envs
    minibatch_size = config.minibatch_size or rollout
    if rollout < minibatch_size:
        raise ConfigError(
            f"ppo.minibatch_size={minibatch_size} exceeds the {rollout} decisions of an update "
            f"({config.steps_per_update} steps of {env.num_envs} environments); lower it or collect more"
        )

    def learning_rate(progress_remaining: float) -> float:
        span = config.learning_rate - config.final_learning_rate
        return config.final_learning_rate + progress_remaining * span

    model = SchedulingPPO(
        policy_class(network),
        env,
        learning_rate=learning_rate,
        n_steps=config.steps_per_update,
        batch_size=minibatch_size,
        n_epochs=config.epochs,
        # SB3 uses it for the value of a truncated episode's last observation. Truncation is an interval's end.
        gamma=config.interval_gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        normalize_advantage=config.normalize_advantage,
        ent_coef=config.entropy_coef,
        vf_coef=config.value_coef,
        max_grad_norm=config.max_grad_norm,
        target_kl=config.target_kl,
        rollout_buffer_class=IntervalRolloutBuffer,
        rollout_buffer_kwargs={
            "discounting": config.discounting,
            "interval_ended": lambda: env.interval_ended,
            "seed": seed,
        },
        policy_kwargs={"network": network},
        seed=seed,
        device=device,
    )
    model.config = config
    model.policy.generator = torch.Generator(model.device).manual_seed(seed)
    return model
