"""Transformers: BERT-base, GPT-2 small, and the base model of Vaswani et al. for translation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from agents.profiling.training_step import TrainingStep


class Attention(nn.Module):
    """Multi-head attention; queries may come from another sequence than keys and values."""

    def __init__(self, width: int, heads: int, dropout: float, has_bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.mix: Callable[..., torch.Tensor] = F.scaled_dot_product_attention
        self.query = nn.Linear(width, width, bias=has_bias)
        self.key_value = nn.Linear(width, 2 * width, bias=has_bias)
        self.output = nn.Linear(width, width, bias=has_bias)

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """(B, T, D) queries and (B, S, D) memory to (B, T, D); the mask is added to the scores."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), *self.key_value(memory).chunk(2, dim=-1))
        )
        dropout = self.dropout if self.training else 0.0
        mixed = self.mix(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal)
        result: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    """One layer: self-attention, attention to a memory if it has one, and two dense layers, each with a residual."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        activation: nn.Module,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        norm_first: bool = False,
        has_memory: bool = False,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(width, heads, attention_dropout)
        self.memory_attention = Attention(width, heads, attention_dropout) if has_memory else None
        self.dense = nn.Sequential(nn.Linear(width, hidden), activation, nn.Linear(hidden, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if has_memory else 2))
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
        is_causal: bool = False,
    ) -> torch.Tensor:
        """(B, T, D) to (B, T, D)."""
        x = self._residual(0, x, lambda y: self.attention(y, y, mask, is_causal))
        if self.memory_attention is not None:
            attend = self.memory_attention
            x = self._residual(1, x, lambda y: attend(y, memory))
        return self._residual(-1, x, self.dense)

    def _residual(self, index: int, x: torch.Tensor, layer: object) -> torch.Tensor:
        norm = self.norms[index]
        assert callable(layer)
        if self.norm_first:
            return x + self.drop(layer(norm(x)))
        result: torch.Tensor = norm(x + self.drop(layer(x)))
        return result


class BertForSpans(nn.Module):
    """BERT-base, uncased (Devlin et al. 2019), with the head that marks an answer's first and last token."""

    def __init__(self, layers: int = 12, width: int = 768, vocabulary: int = 30522, positions: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(width, width // 64, 4 * width, nn.GELU()) for _ in range(layers))
        # Part of the published 110 million parameters, though this task does not use it.
        self.pooler = nn.Linear(width, width)
        self.spans = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, T) tokens, segments and mask (1: a word, 0: padding) to (B, 2, T) scores of first and last token."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.norm(self.words(tokens) + self.positions(positions) + self.segments(segments)))
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, mask=added)
        scores: torch.Tensor = self.spans(x).transpose(1, 2)
        return scores


class Gpt2(nn.Module):
    """GPT-2 small (Radford et al. 2019): 124.4 million parameters, output layer tied to the word embedding."""

    def __init__(self, layers: int = 12, width: int = 768, vocabulary: int = 50257, positions: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            Block(width, width // 64, 4 * width, nn.GELU(approximate="tanh"), norm_first=True) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T) tokens to (B, T, V) scores of the next one."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return F.linear(self.norm(x), self.words.weight)


def _sinusoids(positions: int, width: int) -> torch.Tensor:
    """(positions, width) sines and cosines of geometrically spaced wavelengths."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Translator(nn.Module):
    """Transformer base model (Vaswani et al. 2017): one embedding for both languages and the output layer."""

    def __init__(
        self, layers: int = 6, width: int = 512, hidden: int = 2048, vocabulary: int = 37000, positions: int = 256
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.register_buffer("positions", _sinusoids(positions, width), persistent=False)
        self.scale = math.sqrt(width)
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.ModuleList(Block(width, 8, hidden, nn.ReLU(), attention_dropout=0.0) for _ in range(layers))
        self.decoder = nn.ModuleList(
            Block(width, 8, hidden, nn.ReLU(), attention_dropout=0.0, has_memory=True) for _ in range(layers)
        )

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = self.get_buffer("positions")[: tokens.shape[1]]
        result: torch.Tensor = self.drop(self.words(tokens) * self.scale + positions)
        return result

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S) source and (B, T) shifted target tokens to (B, T, V) scores."""
        memory, x = self._embedded(source), self._embedded(target)
        for block in self.encoder:
            memory = block(memory)
        for block in self.decoder:
            x = block(x, memory=memory, is_causal=True)
        return F.linear(x, self.words.weight)


def span_loss(scores: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of first and last token: (B, 2, T) scores, (B, 2) positions."""
    return F.cross_entropy(scores.flatten(0, 1), spans.flatten())


def bert_base(batch_size: int = 12, tokens: int = 384) -> TrainingStep:
    """BERT-base fine-tuned for question answering, sequences of 384 tokens."""
    with torch.device("meta"):
        ids = torch.empty(batch_size, tokens, dtype=torch.int64)
        spans = torch.empty(batch_size, 2, dtype=torch.int64)
        inputs = (ids, torch.empty_like(ids), torch.empty_like(ids))
        return TrainingStep(BertForSpans(), inputs, span_loss, spans)


def gpt2_small(batch_size: int = 8, tokens: int = 1024) -> TrainingStep:
    """GPT-2 small trained on sequences of 1024 tokens."""
    with torch.device("meta"):
        ids = torch.empty(batch_size, tokens, dtype=torch.int64)
        return TrainingStep(Gpt2(), ids, target=torch.empty_like(ids))


def transformer_nmt(batch_size: int = 192, tokens: int = 32) -> TrainingStep:
    """Transformer base on `batch_size` sentence pairs of 32 tokens in either language; a sample is a target token."""
    with torch.device("meta"):
        ids = torch.empty(batch_size, tokens, dtype=torch.int64)
        inputs = (ids, torch.empty_like(ids))
        return TrainingStep(Translator(), inputs, target=torch.empty_like(ids), samples=batch_size * tokens)
