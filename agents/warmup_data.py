"""Recorded decisions as the warm-up's minibatches: which rows it learns from, which it holds out, in what mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agents.demonstrations import DecisionMix
from agents.returns import Discounting
from dl2env.errors import ConfigError

MAX_MISSING = 0.05
"""Returns whose missing part is discounted less than this much are not used to fit the value."""


@dataclass(frozen=True)
class Samples:
    """Decisions as tensors, one row per decision."""

    jobs: Tensor
    cluster: Tensor
    masks: Tensor
    actions: Tensor
    returns: Tensor
    has_return: Tensor

    @classmethod
    def of(cls, mix: DecisionMix, discounting: Discounting) -> Samples:
        """Rows of one recording after the other; in a recording, row t * B + b is step t of environment b."""
        columns: list[list[Tensor]] = []
        for demos in mix.recordings:
            returns, missing = demos.returns(discounting)
            has_return = (missing <= MAX_MISSING).astype(np.float32)
            arrays = (demos.jobs, demos.cluster, demos.masks, demos.actions, returns, has_return)
            columns.append([torch.from_numpy(np.ascontiguousarray(a)).flatten(0, 1) for a in arrays])
        if len(columns) == 1:  # no copy
            return cls(*columns[0])
        return cls(*(torch.cat(parts) for parts in zip(*columns, strict=True)))

    def rows(self, indices: Tensor) -> Samples:
        """The decisions of these rows."""
        return Samples(*(getattr(self, name).index_select(0, indices) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class RowSplit:
    """Rows to learn from and rows held out, per recording.

    Attributes:
        train: Rows to learn from.
        held: Rows held out.
        shares: Share of each recording in an epoch; None: every row counts alike.
    """

    train: tuple[Tensor, ...]
    held: tuple[Tensor, ...]
    shares: tuple[float, ...] | None

    @property
    def num_train(self) -> int:
        """Rows of an epoch."""
        return sum(len(rows) for rows in self.train)

    def epoch(self, generator: torch.Generator) -> Tensor:
        """Rows of the next epoch, shuffled.

        With shares, each recording gives its share of the epoch's rows: a part of its own, or its own several times.
        """
        if self.shares is None:
            rows = torch.cat(self.train)
        else:
            rows = torch.cat(
                [
                    _drawn(own, max(1, round(share * self.num_train)), generator)
                    for own, share in zip(self.train, self.shares, strict=True)
                ]
            )
        return rows[torch.randperm(len(rows), generator=generator)]

    @property
    def epoch_size(self) -> int:
        """Rows of an epoch with the shares rounded."""
        if self.shares is None:
            return self.num_train
        return sum(max(1, round(share * self.num_train)) for share in self.shares)

    def held_groups(self) -> Sequence[tuple[float, Tensor]]:
        """Held-out rows with the weight of their mean."""
        if self.shares is None:
            return [(1.0, torch.cat(self.held))]
        return list(zip(self.shares, self.held, strict=True))


def _drawn(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` rows, each as often as any other, or once more."""
    repeats = -(-count // len(rows))
    orders = [torch.randperm(len(rows), generator=generator) for _ in range(repeats)]
    return rows[torch.cat(orders)[:count]]


def split_rows(
    mix: DecisionMix, samples: Samples, fraction: float, generator: torch.Generator, *, teach_void: bool = True
) -> RowSplit:
    """Holds out whole environments of each recording, or the last steps of one that has a single environment.

    Args:
        mix: The recordings.
        samples: Their decisions.
        fraction: Share to hold out.
        generator: Draws the environments.
        teach_void: Off: decisions in which the teacher ended the interval are left out.

    Raises:
        ConfigError: There are too few decisions.
    """
    train, held = [], []
    start = 0
    void = samples.masks.shape[1] - 1
    for demos in mix.recordings:
        steps, num_envs = demos.actions.shape
        rows = start + torch.arange(steps * num_envs).view(steps, num_envs)
        start += steps * num_envs
        if num_envs > 1:
            num_held = min(max(1, round(fraction * num_envs)), num_envs - 1)
            order = torch.randperm(num_envs, generator=generator)
            parts = [rows[:, order[num_held:]].flatten(), rows[:, order[:num_held]].flatten()]
        else:
            num_held = max(1, round(fraction * steps))
            parts = [rows[:-num_held].flatten(), rows[-num_held:].flatten()]
        if len(parts[0]) == 0:
            raise ConfigError(f"warmup: {steps * num_envs} recorded decisions are too few; record more")
        if not teach_void:
            parts = [part[samples.actions[part] != void] for part in parts]
            if min(len(part) for part in parts) == 0:
                raise ConfigError(
                    "warmup.teach_void=false leaves no decision to learn from: the teacher only ended intervals"
                )
        train.append(parts[0])
        held.append(parts[1])
    return RowSplit(tuple(train), tuple(held), mix.shares if mix.weights else None)
