"""Decisions to learn from: the data of the supervised warm-up, wherever they were made.

`agents.recording` makes them in memory, `agents.decision_files` and `agents.minari_data` read them from disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.returns import Discounting, discounted_returns
from dl2env.errors import ConfigError


@dataclass(frozen=True)
class Demonstrations:
    """T decisions in each of B environments, in the order they were made.

    Attributes:
        jobs: (T, B, J, F) float32 observations of the job slots.
        cluster: (T, B, C) float32 observations of the cluster.
        masks: (T, B, A) bool, legal actions.
        actions: (T, B) int64, labels: what the teacher does in this state.
        rewards: (T, B) float32.
        interval_ended: (T, B) bool, the decision ended a scheduling interval.
        terminated: (T, B) bool, it ended the episode.
        truncated: (T, B) bool, it ended the episode by the interval limit.
        provenance: Teacher, seed, environment, versions.
        taken: (T, B) int64, what was done; None: the labels. Rewards and what follows are those of this action.
        has_rewards: Whether rewards were recorded, in the units of the run that learns from them.
    """

    jobs: NDArray[np.float32]
    cluster: NDArray[np.float32]
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    interval_ended: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    taken: NDArray[np.int64] | None = None
    has_rewards: bool = True

    @property
    def num_decisions(self) -> int:
        """T * B."""
        return int(self.actions.size)

    @property
    def num_envs(self) -> int:
        """B."""
        return int(self.actions.shape[1])

    def returns(self, discounting: Discounting) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(T, B) discounted returns of the teacher, and the discount with which what is not known enters each.

        The second number is 0 where the return is complete. What follows an action that the teacher would not have
        taken is not known, nor are returns of recordings without rewards.
        """
        done = self.terminated | self.truncated
        returns, missing = discounted_returns(self.rewards, self.interval_ended, done, self.truncated, discounting)
        if not self.has_rewards:
            return returns, np.ones_like(missing)
        if self.taken is not None:
            gamma = np.where(self.interval_ended, discounting.interval_gamma, discounting.decision_gamma)
            strays = self.taken != self.actions
            for t in range(len(strays) - 1, -1, -1):
                if t + 1 < len(strays):
                    inherited = np.where(done[t], missing[t], gamma[t] * missing[t + 1])
                    missing[t] = np.maximum(missing[t], inherited)
                missing[t][strays[t]] = 1.0
        return returns, missing


@dataclass(frozen=True)
class DecisionMix:
    """Several recordings to learn from at once.

    Attributes:
        recordings: The recordings; their observations have the same layout.
        weights: How the decisions of an epoch are shared between them; empty: every decision counts alike.

    Raises:
        ConfigError: There is no recording, the weights do not fit them, or their arrays have other shapes.
    """

    recordings: tuple[Demonstrations, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_weights(len(self.recordings), self.weights)
        shapes = {(d.jobs.shape[2:], d.cluster.shape[2:], d.masks.shape[2:]) for d in self.recordings}
        if len(shapes) > 1:
            raise ConfigError(f"recordings of different observations cannot be mixed: {sorted(shapes)}")

    @property
    def num_decisions(self) -> int:
        """Decisions of all recordings."""
        return sum(recording.num_decisions for recording in self.recordings)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each recording in an epoch; they sum to 1."""
        weights = self.weights or tuple(float(recording.num_decisions) for recording in self.recordings)
        return tuple(weight / sum(weights) for weight in weights)


def check_weights(num_recordings: int, weights: Sequence[float]) -> None:
    """Raises a `ConfigError` unless there is a recording, and no weight or a positive one for each."""
    if num_recordings < 1:
        raise ConfigError("no recording to learn from; give at least one")
    if weights and (len(weights) != num_recordings or not all(weight > 0 for weight in weights)):
        raise ConfigError(
            f"{len(weights)} weights {list(weights)} for {num_recordings} recordings; give none or a positive one each"
        )
