"""PPO fine-tuning: sb3-contrib's MaskablePPO with discounting by interval, annealed entropy and normalised values."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

from agents.networks import NetworkConfig
from agents.policies import NetworkPolicy, policy_class
from agents.returns import Discounting
from agents.rollout_buffer import IntervalRolloutBuffer
from agents.vec_env import SB3VecEnv
from dl2env.errors import ConfigError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO (Schulman et al., arXiv 1707.06347). One update uses `steps_per_update` * B decisions.

    Attributes:
        steps_per_update: Decisions per environment between updates.
        minibatch_size: Decisions per gradient step.
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
        normalize_values: Learn values in units of the returns' standard deviation.
        decision_gamma: Discount between decisions of one interval.
        gae_lambda: GAE lambda between decisions of one interval.
        interval_gamma: Discount across an interval's end; 0 cuts there.
        interval_lambda: GAE lambda across an interval's end.
    """

    steps_per_update: int = 128
    minibatch_size: int = 2048
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
    normalize_values: bool = True
    decision_gamma: float = 1.0
    gae_lambda: float = 0.95
    interval_gamma: float = 0.0
    interval_lambda: float = 0.95

    def __post_init__(self) -> None:
        for name in ("steps_per_update", "minibatch_size", "epochs"):
            if getattr(self, name) < 1:
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

    policy: NetworkPolicy
    rollout_buffer: IntervalRolloutBuffer  # type: ignore[assignment]
    config: PPOConfig
    stop_requested: bool = False  # set by whoever wants the training to end at the next border between updates

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
    if rollout < config.minibatch_size:
        raise ConfigError(
            f"ppo.minibatch_size={config.minibatch_size} exceeds the {rollout} decisions of an update "
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
        batch_size=config.minibatch_size,
        n_epochs=config.epochs,
        # SB3 uses it for the value of a truncated episode's last observation. Truncation is an interval's end.
        gamma=config.interval_gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
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


class _StopOnRequest(BaseCallback):
    """Ends the training at the next border between updates once a stop is requested."""

    model: SchedulingPPO
    _is_last: bool = False

    def _on_rollout_start(self) -> None:
        # SB3 can be stopped after a step only; the other callbacks see the request at this same border.
        self._is_last = self.model.stop_requested

    def _on_step(self) -> bool:
        return not self._is_last


@contextmanager
def _ctrl_c_requests_stop(model: SchedulingPPO) -> Iterator[None]:
    """The first Ctrl-C asks for a stop at the next border between updates, the second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    previous = signal.getsignal(signal.SIGINT)

    def request(signum: int, frame: FrameType | None) -> None:
        model.stop_requested = True
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def fine_tune(model: SchedulingPPO, total_decisions: int, callbacks: Sequence[BaseCallback] = ()) -> bool:
    """Trains until the learner has seen `total_decisions` decisions, those of earlier runs included.

    The first Ctrl-C lets the running update finish and keeps a checkpoint if `agents.callbacks.Checkpoints` is among
    the callbacks; a second one raises `KeyboardInterrupt`, and the last periodic checkpoint stays. To go on later,
    build a new learner and resume from that checkpoint.

    Args:
        model: The learner; a resumed one goes on where it stopped.
        total_decisions: Rounded up to whole updates. The schedules end there.
        callbacks: See `agents.callbacks`.

    Returns:
        Whether the training is complete; False if the user stopped it.
    """
    remaining = total_decisions - model.num_timesteps
    if remaining <= 0:
        return True
    model.stop_requested = False
    with _ctrl_c_requests_stop(model):
        model.learn(
            remaining,
            callback=[_StopOnRequest(), *callbacks],
            reset_num_timesteps=model.num_timesteps == 0,
        )
    return not model.stop_requested
