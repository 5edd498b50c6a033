"""Settings of DL2's learner, each with its source.

Marks: [paper] Peng et al., arXiv 1909.06040, as we understand it; [code] the released code, as
described; [ours] neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from agents.exploration import ExplorationKind
from agents.replay import Credit, Sampling
from agents.returns import Discounting
from dl2env.errors import ConfigError

Baseline = Literal["critic", "moving_average", "replay_mean", "none"]
PolicyGradient = Literal["current", "stored"]

_CHOICES: dict[str, Any] = {
    "sampling": Sampling,
    "credit": Credit,
    "baseline": Baseline,
    "policy_gradient": PolicyGradient,
    "exploration": ExplorationKind,
}


@dataclass(frozen=True)
class DL2Config:
    """Settings of DL2's learner; the defaults are the paper's.

    Attributes:
        batch_size: Decisions per update. 256 [paper, code].
        replay_size: Decisions that are kept, first in, first out. 8192 [paper, code]. As large as a batch: only the
            newest ones are learned from (what the authors call no replay [code]).
        learning_starts: No update before that many decisions are kept. 8192 [code]; 256 [ours].
        sampling: Of batches: `uniform` [paper] or `prioritized` [code], see `agents.replay.ReplayBuffer`.
        intervals_per_update: Intervals that end between two updates, counted over all environments; None: B, so that
            each environment plays one interval per update [paper, code].
        interval_gamma: Discount across an interval's end. 0.9 [paper]; 0: no bootstrap [code].
        credit: Which rewards a decision answers for: `interval`: all of its interval [paper, code]; `to_go`: those
            from it to the interval's end [ours]; `own_job`: whatever the reward is, what the job that it is for trains
            in the interval, as a share of all its epochs, and nothing for void [paper's ablation, as we understand it].
        baseline: What is taken from Q(s, a) = reward + gamma V(next interval): `critic`: V(s) [paper, code]. Without a
            critic Q is the reward, and from it is taken its exponential `moving_average` [paper's ablation], the mean
            of the rewards that are kept, `replay_mean` [code's ablation], or `none` [ours].
        average_decay: Weight of the past in the moving average. Assumed [ours].
        policy_gradient: `current`: of the log probability under the present policy [paper]. `stored`: the gradient of
            the logits is (probability at decision time - one-hot action) * advantage, up to `replay_size` decisions
            old, and so is the entropy's [code].
        ratio_limit: Weigh decisions by min(present / former probability, limit), which corrects for their age; None:
            no correction [paper, code].
        importance_weights: With prioritised sampling, multiply advantages by the importance weights [code].
        learning_rate: Of Adam. 1e-4 [paper].
        value_coef: Weight of the squared TD error.
        entropy_coef: Weight of the entropy bonus at the start; linear to `final_entropy_coef` at the end. 0.1 [paper].
        final_entropy_coef: See above. The same: the code's annealing is switched off [code].
        entropy_per_action: Average the entropy over the 3 J + 1 actions too, which makes it small [code].
        max_grad_norm: Shorten the gradient to this length; None: never.
        exploration: Rules that act in training: `none`, `paper` or `released`, see `agents.exploration.Exploration`.
        exploration_probability: Of a rule to act in a poor state. 0.4 [paper].
        exploration_ratio: Ratio of workers and PSs from which a state is poor. 10 [paper].
        epsilon_greedy: Take random legal actions with probability 2 / (1 + exp(updates / `epsilon_decay`)); with
            `exploration: none` this is the authors' "exploration off" [code].
        epsilon_decay: See above. 500 [code].
        log_every: Updates between two writes of scalars.
    """

    batch_size: int = 256
    replay_size: int = 8192
    learning_starts: int = 256
    sampling: Sampling = "uniform"
    intervals_per_update: int | None = None
    interval_gamma: float = 0.9
    credit: Credit = "interval"
    baseline: Baseline = "critic"
    average_decay: float = 0.99
    policy_gradient: PolicyGradient = "current"
    ratio_limit: float | None = None
    importance_weights: bool = False
    learning_rate: float = 1e-4
    value_coef: float = 0.5
    entropy_coef: float = 0.1
    final_entropy_coef: float = 0.1
    entropy_per_action: bool = False
    max_grad_norm: float | None = None
    exploration: ExplorationKind = "paper"
    exploration_probability: float = 0.4
    exploration_ratio: float = 10.0
    epsilon_greedy: bool = False
    epsilon_decay: float = 500.0
    log_every: int = 20

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ConfigError(f"dl2.{name}={getattr(self, name)!r} is unknown; choose one of: {known}")
        for name in ("batch_size", "replay_size", "learning_starts", "log_every", "intervals_per_update"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"dl2.{name}={value} must be at least 1")
        for name in ("learning_rate", "exploration_ratio", "epsilon_decay", "max_grad_norm", "ratio_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"dl2.{name}={value} must be positive")
        for name in ("entropy_coef", "final_entropy_coef", "value_coef"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"dl2.{name}={getattr(self, name)} must not be negative")
        for name in ("interval_gamma", "exploration_probability", "average_decay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"dl2.{name}={getattr(self, name)} must lie in [0, 1]")
        for name in ("batch_size", "learning_starts"):
            if getattr(self, name) > self.replay_size:
                raise ConfigError(
                    f"dl2.{name}={getattr(self, name)} exceeds dl2.replay_size={self.replay_size}; lower it"
                )
        if self.importance_weights and self.sampling != "prioritized":
            raise ConfigError("dl2.importance_weights: only with dl2.sampling=prioritized")
        if self.ratio_limit is not None and self.policy_gradient == "stored":
            raise ConfigError("dl2.ratio_limit: the stored gradient has no ratio; set dl2.policy_gradient=current")

    @property
    def discounting(self) -> Discounting:
        """The discounts of the critic's target, for the fit of a critic during the warm-up."""
        return Discounting(1.0, 1.0, self.interval_gamma, 1.0)
