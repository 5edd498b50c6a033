"""The masked categorical distribution, as the few functions that training needs.

Going through `torch.distributions` normalises the logits twice and exponentiates masked ones; on a small network that
shows. Masked logits are set to -1e8, as in sb3-contrib, so the probabilities of masked actions are exactly zero for
logits of any sensible size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_MASKED = -1e8


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """(B, A) log probabilities of the legal actions; about -1e8 for the others.

    Args:
        logits: (B, A) scores.
        mask: (B, A) bool, True where the action is legal; at least one per row.
    """
    return torch.log_softmax(logits.masked_fill(~mask, _MASKED), dim=1)


def masked_sample(log_probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(B,) actions drawn from (B, A) log probabilities, by the Gumbel trick; never a masked one.

    Args:
        log_probs: Result of `masked_log_softmax`.
        generator: Source of randomness; None is torch's global one.
    """
    # -log(Exponential(1)) is Gumbel noise. The clamp keeps it far below the distance to a masked action.
    noise = torch.empty_like(log_probs).exponential_(generator=generator).clamp_min_(1e-30)
    return (log_probs - noise.log_()).argmax(dim=1)


class _LogProbEntropy(torch.autograd.Function):
    """Log probability of an action and entropy; one softmax forwards, one pass backwards."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mask: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        masked = logits.masked_fill(~mask, _MASKED)
        log_probs = torch.log_softmax(masked, dim=1)
        probs = torch.softmax(masked, dim=1)
        entropy = -(probs * log_probs).sum(dim=1)
        ctx.save_for_backward(probs, log_probs, entropy, actions)
        return log_probs.gather(1, actions.unsqueeze(1)).squeeze(1), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_prob: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        # d log p_a / d z_k = [k = a] - p_k and d H / d z_k = -p_k (log p_k + H).
        probs, log_probs, entropy, actions = ctx.saved_tensors
        grad = (log_probs + entropy.unsqueeze(1)).mul_(grad_entropy.unsqueeze(1)).add_(grad_log_prob.unsqueeze(1))
        grad.mul_(probs).neg_()
        grad.scatter_add_(1, actions.unsqueeze(1), grad_log_prob.unsqueeze(1))
        return grad, None, None


def log_prob_and_entropy(logits: Tensor, mask: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log probability of the given actions, and entropy over the legal actions, both (B,) and differentiable.

    Args:
        logits: (B, A) scores.
        mask: (B, A) bool, True where the action is legal; at least one per row.
        actions: (B,) int64 legal actions.
    """
    log_prob, entropy = _LogProbEntropy.apply(logits, mask, actions)
    return log_prob, entropy
