"""Supervised warm-up: a network learns a teacher's decisions, and its value head the returns of them.

**Why the network is taught some void.** The usual teachers fill the cluster in every interval, so ending an interval
early (void) is never a label, and a copy gives it a probability near zero. PPO only learns about actions it samples: it
then never finds out that stopping early pays, and stays at the teacher's level. So the label is mixed: the teacher's
action with weight `1 - void_probability`, void with weight `void_probability`, in every decision. What is missing to
that probability on average is added to void's logit at the end. Adding a constant alone is not enough: where void was
never taught its log odds differ by tens from one decision to the next, so a constant that gives 2 % on average makes
void certain in a few decisions and leaves it impossible in all others.

**Why the labels are smoothed.** A sharp copy of one teacher tries nothing else: fine-tuning then refines the teacher
instead of leaving it. A share `label_smoothing` of the label goes to all legal actions alike, so that every action
keeps being tried, and the most likely action is still the teacher's.

**What happens to the prior.** A network that starts from the speed model's gains (`gain_prior`) copies the teacher
without them, and gets them back at the end. Fine-tuning begins with the product of both policies, the teacher's to the
power of `teacher_power`: what the speed model speaks for, and where that leaves a choice, what the teacher would do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from agents.demonstrations import DecisionMix, Demonstrations
from agents.masked import masked_log_softmax
from agents.networks import SchedulingNetwork
from agents.returns import Discounting
from agents.warmup_data import Samples, split_rows
from dl2env.errors import ConfigError

WarmupLoss = Literal["cross_entropy", "mean_square", "mean_absolute"]

ScalarLog = Callable[[str, float, int], None]
"""Called with tag, value and step; `SummaryWriter.add_scalar` is one."""

_EVALUATION_ROWS = 1024


@dataclass(frozen=True)
class WarmupConfig:
    """Settings of the warm-up.

    Attributes:
        num_decisions: Decisions of the teacher to record.
        epochs: Most passes over them.
        minibatch_size: Decisions per gradient step.
        learning_rate: Of Adam at the start; linear to a tenth of it at the last epoch's end.
        holdout_fraction: Share of the recorded environments kept for validation.
        patience: Stop after that many epochs without a better loss on the held-out decisions.
        value_coef: Weight of the value loss, in squared standard deviations of the returns.
        max_grad_norm: The gradient is shortened to this length.
        label_smoothing: Weight of the uniform distribution over legal actions in the labels.
        void_probability: Weight of void in the labels, and its mean probability after the warm-up, at least. 0: as the
            teacher does.
        teacher_power: The copy's probabilities are raised to this power at the end; below 1 the policy starts out less
            sure of its teacher.
        teach_void: Learn the teacher's voids too. Off: decisions in which it ended the interval are left out, as in the
            released code of DL2, which has no label for them.
        loss: Between network and label: `cross_entropy`, or of the probabilities `mean_square` or `mean_absolute`, the
            two that DL2's paper compares it with.
        max_steps: Stop after that many gradient steps; None: after `epochs`.
    """

    num_decisions: int = 65536
    epochs: int = 10
    minibatch_size: int = 1024
    learning_rate: float = 2e-3
    holdout_fraction: float = 0.1
    patience: int = 3
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    label_smoothing: float = 0.3
    void_probability: float = 0.03
    teacher_power: float = 1.0
    teach_void: bool = True
    loss: WarmupLoss = "cross_entropy"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_decisions", "epochs", "minibatch_size", "patience", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"warmup.{name}={value} must be at least 1")
        if self.loss not in get_args(WarmupLoss):
            raise ConfigError(f"warmup.loss={self.loss!r} is unknown; choose one of: {', '.join(get_args(WarmupLoss))}")
        for name in ("holdout_fraction", "void_probability", "label_smoothing"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"warmup.{name}={getattr(self, name)} must lie in [0, 1)")
        if self.void_probability + self.label_smoothing >= 1.0:
            raise ConfigError("warmup: void_probability + label_smoothing must be below 1, or no teacher is left")
        if not 0.0 < self.teacher_power <= 1.0:
            raise ConfigError(f"warmup.teacher_power={self.teacher_power} must lie in (0, 1]")
        if not self.learning_rate > 0 or not self.max_grad_norm > 0 or self.value_coef < 0:
            raise ConfigError("warmup: learning_rate and max_grad_norm must be positive, value_coef not negative")


@dataclass(frozen=True)
class WarmupResult:
    """What a warm-up reached. Losses and accuracy are those of the held-out decisions after the best epoch.

    Attributes:
        loss: Mean cross-entropy in nats.
        accuracy: Share of decisions in which the teacher's action was the most probable one.
        value_loss: Mean squared error of the value in squared standard deviations of the returns.
        epochs: Epochs trained.
        void_probability: Mean probability of void over the demonstrations, after it was raised.
        void_shift: What was added to void's logit.
    """

    loss: float
    accuracy: float
    value_loss: float
    epochs: int
    void_probability: float
    void_shift: float


@dataclass(frozen=True)
class WarmupProgress:
    """A gradient step of the warm-up: `step` of at most `total_steps`, with its own loss and accuracy."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    accuracy: float


def warm_up(
    network: SchedulingNetwork,
    demos: Demonstrations | DecisionMix,
    config: WarmupConfig | None = None,
    discounting: Discounting | None = None,
    *,
    seed: int = 0,
    progress: Callable[[WarmupProgress], None] | None = None,
    log: ScalarLog | None = None,
) -> WarmupResult:
    """Trains a network in place to decide like the teacher and to value what comes of it.

    The environments that are held out are whole ones, since neighbouring decisions of one environment look alike. The
    weights of the epoch with the smallest held-out loss are kept.

    Args:
        network: The network.
        demos: What the teacher did; several recordings are mixed as they say.
        config: Settings.
        discounting: The discounts that PPO will use, so that the value means the same.
        seed: Seeds the split and the order of the minibatches.
        progress: Called after each gradient step.
        log: Receives `warmup/loss`, `warmup/accuracy` and `warmup/value_loss` per epoch (held out) and
            `warmup/train_loss` per gradient step.

    Raises:
        ConfigError: The network cannot read the demonstrations, or they are too few to hold any out.
    """
    config = config or WarmupConfig()
    mix = demos if isinstance(demos, DecisionMix) else DecisionMix((demos,))
    samples = Samples.of(mix, discounting or Discounting())
    generator = torch.Generator().manual_seed(seed)
    split = split_rows(mix, samples, config.holdout_fraction, generator, teach_void=config.teach_void)
    if config.value_coef > 0 and samples.has_return.any():
        network.value_head.rescale(samples.returns[samples.has_return.bool()], rate=1.0)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)
    network.shift_prior(-network.config.gain_prior)
    steps_per_epoch = -(-split.epoch_size // config.minibatch_size)
    total_steps = min(steps_per_epoch * config.epochs, config.max_steps or steps_per_epoch * config.epochs)
    best, best_weights, best_epoch, step = (float("inf"), 0.0, float("inf")), network.state_dict(), 0, 0
    best_total = float("inf")
    epoch = 0
    for epoch in range(1, config.epochs + 1):
        for rows in split.epoch(generator).split(config.minibatch_size)[: total_steps - step]:
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * (1.0 - 0.9 * step / total_steps)
            loss, accuracy = _gradient_step(network, optimizer, samples.rows(rows), config)
            step += 1
            if progress is not None:
                progress(WarmupProgress(step, total_steps, epoch, loss, accuracy))
            if log is not None:
                log("warmup/train_loss", loss, step)
        held = _held_out(network, samples, split.held_groups())
        if log is not None:
            for tag, value in zip(("loss", "accuracy", "value_loss"), held, strict=True):
                log(f"warmup/{tag}", value, step)
        # The cross-entropy of a network that learned by another loss says little: it may be sure and sometimes wrong.
        copy_loss = held[0] if config.loss == "cross_entropy" else 1.0 - held[1]
        total = copy_loss + config.value_coef * held[2]
        if total < best_total:
            best_total, best, best_epoch = total, held, epoch
            best_weights = copy.deepcopy(network.state_dict())
        elif epoch - best_epoch >= config.patience:
            break
        if step == total_steps:
            break
    network.load_state_dict(best_weights)
    network.scale_logits(config.teacher_power)
    network.shift_prior(network.config.gain_prior)
    shift, probability = raise_void(network, samples.jobs, samples.cluster, samples.masks, config.void_probability)
    return WarmupResult(*best, epochs=epoch, void_probability=probability, void_shift=shift)


def _value_loss(network: SchedulingNetwork, values: Tensor, batch: Samples) -> Tensor:
    errors = (values - batch.returns) / network.value_head.std
    return (errors.square() * batch.has_return).sum() / batch.has_return.sum().clamp_min(1.0)


def _gradient_step(
    network: SchedulingNetwork, optimizer: torch.optim.Optimizer, batch: Samples, config: WarmupConfig
) -> tuple[float, float]:
    """One step on the mixed labels; returns the cross-entropy with the teacher and the accuracy before it."""
    logits, values = network(batch.jobs, batch.cluster)
    log_probs = masked_log_softmax(logits, batch.masks)
    loss = -log_probs.gather(1, batch.actions.unsqueeze(1)).mean()
    uniform = -((log_probs * batch.masks).sum(dim=1) / batch.masks.sum(dim=1)).mean()
    void, smooth = config.void_probability, config.label_smoothing
    if config.loss == "cross_entropy":
        mixed = (1.0 - void - smooth) * loss + smooth * uniform - void * log_probs[:, -1].mean()
    else:
        label = smooth * batch.masks / batch.masks.sum(dim=1, keepdim=True)
        label[:, -1] += void
        label.scatter_add_(1, batch.actions.unsqueeze(1), torch.full_like(label[:, :1], 1.0 - void - smooth))
        gaps = log_probs.exp() - label
        mixed = (gaps.square() if config.loss == "mean_square" else gaps.abs()).sum(dim=1).mean()
    optimizer.zero_grad()
    (mixed + config.value_coef * _value_loss(network, values, batch)).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
    optimizer.step()
    return loss.item(), _accuracy(logits.detach(), batch)


def _accuracy(logits: Tensor, batch: Samples) -> float:
    choice = logits.masked_fill(~batch.masks, -torch.inf).argmax(dim=1)
    return (choice == batch.actions).float().mean().item()


@torch.no_grad()
def _held_out(
    network: SchedulingNetwork, samples: Samples, groups: Sequence[tuple[float, Tensor]]
) -> tuple[float, float, float]:
    """Cross-entropy, accuracy and value loss: means over the rows of each group, summed by the groups' weights."""
    total = torch.zeros(3, dtype=torch.float64)
    for weight, rows in groups:
        sums = torch.zeros(3, dtype=torch.float64)
        for part in rows.split(_EVALUATION_ROWS):
            batch = samples.rows(part)
            logits, values = network(batch.jobs, batch.cluster)
            log_prob = masked_log_softmax(logits, batch.masks).gather(1, batch.actions.unsqueeze(1))
            figures = (-log_prob.mean(), _accuracy(logits, batch), _value_loss(network, values, batch))
            sums += torch.tensor([float(x) for x in figures], dtype=torch.float64) * len(part)
        total += weight * (sums / len(rows))
    loss, accuracy, value_loss = total.tolist()
    return loss, accuracy, value_loss


@torch.no_grad()
def raise_void(
    network: SchedulingNetwork, jobs: Tensor, cluster: Tensor, masks: Tensor, target: float, max_rows: int = 16384
) -> tuple[float, float]:
    """Raises void's logit until void's mean probability over the given decisions is `target`.

    Decisions in which void is the only legal action do not count. A probability that is high enough stays as it is.

    Args:
        network: Network to change.
        jobs: (N, J, F) observations.
        cluster: (N, C) observations.
        masks: (N, A) legal actions.
        target: Mean probability wanted, below 1; 0 changes nothing.
        max_rows: Look at that many decisions at most, evenly spread.

    Returns:
        What was added to the logit, and void's mean probability now.
    """
    # Log odds of void against all other legal actions.
    odds: list[Tensor] = []
    for rows in torch.arange(0, len(jobs), max(1, len(jobs) // max_rows)).split(_EVALUATION_ROWS):
        rows = rows[masks[rows, :-1].any(dim=1)]
        if len(rows):
            logits = network.logits(jobs[rows], cluster[rows]).double()
            others = logits[:, :-1].masked_fill(~masks[rows, :-1], -torch.inf).logsumexp(dim=1)
            odds.append(logits[:, -1] - others)
    if not odds:
        return 0.0, 1.0
    all_odds = torch.cat(odds)

    def probability(shift: float) -> float:
        return torch.sigmoid(all_odds + shift).mean().item()

    low, high = 0.0, 0.0
    if probability(0.0) < target:
        # With this shift even the least likely void has the wanted probability.
        high = float(np.log(target / (1.0 - target)) - all_odds.min())
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if probability(middle) < target else (low, middle)
    network.shift_void(high)
    return high, probability(high)
