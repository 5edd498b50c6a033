"""BERT-base as frameworks of its time ran it: normalisation, GELU and dropout made of elementary operators.

The memory-access figures of the PAI characterization come from TensorFlow jobs of 2018 and 2019. There, batch
normalisation was one operator, but layer normalisation, GELU and dropout were written in terms of additions, products,
powers and means, each with its own trip to memory. The mathematics and the FLOPs of compute-bound operators are those
of `agents.profiling.models.transformers`.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from agents.profiling.models import transformers
from agents.profiling.training_step import TrainingStep


class LayerNorm(nn.Module):
    """Layer normalisation over the last dimension, from means, squares and products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.offset = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) to (..., D)."""
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        scale = torch.rsqrt(variance + 1e-12) * self.gain
        return x * scale + (self.offset - mean * scale)


class Gelu(nn.Module):
    """GELU in its tanh form."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Element-wise."""
        inner = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))
        return x * (0.5 * (1.0 + inner))


class Dropout(nn.Module):
    """Dropout by a rounded random number."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Element-wise."""
        return dropout(x, self.probability)


def dropout(x: torch.Tensor, probability: float) -> torch.Tensor:
    """Scales a value or replaces it by 0."""
    keep = 1.0 - probability
    return x / keep * torch.floor(torch.rand_like(x) + keep)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
) -> torch.Tensor:
    """Scaled dot-product attention, (B, H, T, D) each, with an additive mask."""
    scores = query @ key.transpose(-1, -2) * (1.0 / math.sqrt(query.shape[-1])) + attn_mask
    return dropout(scores.softmax(-1), dropout_p) @ value


def with_elementary_operators(module: nn.Module) -> None:
    """Replaces layers of a transformer by those of this file, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.LayerNorm):
            setattr(module, name, LayerNorm(child.normalized_shape[0]))
        elif isinstance(child, nn.GELU):
            setattr(module, name, Gelu())
        elif isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(child.p))
        else:
            with_elementary_operators(child)
    if isinstance(module, transformers.Attention):
        module.mix = attention


def bert_base(batch_size: int = 12, tokens: int = 384) -> TrainingStep:
    """`agents.profiling.models.transformers.bert_base` in elementary operators."""
    step = transformers.bert_base(batch_size, tokens)
    with torch.device("meta"):
        with_elementary_operators(step.module)
    return step
