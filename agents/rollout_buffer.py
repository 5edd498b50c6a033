"""Rollout buffer of MaskablePPO with discounting that knows scheduling intervals."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableDictRolloutBufferSamples
from torch import Tensor

from agents.returns import Discounting, generalized_advantages


class IntervalRolloutBuffer(MaskableDictRolloutBuffer):
    """Keeps T steps of B environments in memory that is allocated once and computes advantages by interval.

    Differences from the parent: discount and lambda depend on whether a step ended an interval (`Discounting`); masks
    are bools; minibatches are gathered from tensors, in an order drawn from the buffer's own generator.

    Args:
        buffer_size: T, steps per environment.
        observation_space: Space of one observation.
        action_space: `Discrete` space.
        device: Where minibatches go.
        gae_lambda: Ignored; SB3 passes it. `discounting` holds the numbers.
        gamma: Ignored likewise.
        n_envs: B.
        discounting: Discounts and trace lengths.
        interval_ended: Returns, after a step of the environments, (B,) flags of those whose interval it ended.
        seed: Seed of the minibatch order.
    """

    observations: dict[str, Tensor]  # type: ignore[assignment]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        device: torch.device | str = "auto",
        gae_lambda: float = 1.0,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        discounting: Discounting,
        interval_ended: Callable[[], NDArray[np.bool_]],
        seed: int = 0,
    ) -> None:
        self.discounting = discounting
        self._interval_ended = interval_ended
        self.generator = torch.Generator().manual_seed(seed)
        size = (buffer_size, n_envs)
        self.mask_dims = int(action_space.n)
        self._steps: dict[str, Tensor] = {
            "actions": torch.zeros(size, dtype=torch.int64),
            "action_masks": torch.ones((*size, self.mask_dims), dtype=torch.bool),
            **{name: torch.zeros(size) for name in ("values", "log_probs", "advantages", "returns")},
        }
        self._observations = {
            name: torch.zeros((*size, *(box.shape or ()))) for name, box in observation_space.spaces.items()
        }
        # Seen as numpy arrays for the sums over time, and by SB3 for its explained variance; the memory is shared.
        self.rewards = np.zeros(size, dtype=np.float32)
        self.episode_starts = np.zeros(size, dtype=np.bool_)
        self.interval_ends = np.zeros(size, dtype=np.bool_)
        for name in ("values", "log_probs", "advantages", "returns"):
            setattr(self, name, self._steps[name].numpy())
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)

    def reset(self) -> None:
        """Starts over at step 0; nothing is allocated."""
        self.observations = self._observations
        self.pos = 0
        self.full = False
        self.generator_ready = False

    def add(  # type: ignore[override]
        self,
        obs: dict[str, NDArray[np.float32]],
        action: NDArray[np.int64],
        reward: NDArray[np.floating],
        episode_start: NDArray[np.bool_],
        value: Tensor,
        log_prob: Tensor,
        action_masks: NDArray[np.bool_] | None = None,
    ) -> None:
        """Stores one step of all environments, after the environments have made it.

        Args:
            obs: Observations before the step.
            action: (B,) or (B, 1) actions.
            reward: (B,) rewards.
            episode_start: (B,) whether the observation is the first of its episode.
            value: (B, 1) values of the observations.
            log_prob: (B,) log probabilities of the actions.
            action_masks: (B, A) legal actions; None keeps all legal.
        """
        t = self.pos
        for name, memory in self._observations.items():
            memory[t] = torch.from_numpy(obs[name])
        self._steps["actions"][t] = torch.from_numpy(action.reshape(-1))
        if action_masks is not None:
            self._steps["action_masks"][t] = torch.from_numpy(action_masks)
        self._steps["values"][t] = value.flatten()
        self._steps["log_probs"][t] = log_prob
        self.rewards[t] = reward
        self.episode_starts[t] = episode_start
        self.interval_ends[t] = self._interval_ended()
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Fills `advantages` and `returns` once all steps are there.

        Args:
            last_values: (B, 1) values of the observations after the last step.
            dones: (B,) whether the last step ended the episode.
        """
        done = np.concatenate([self.episode_starts[1:], np.asarray(dones, dtype=np.bool_)[None]])
        self.advantages[:] = generalized_advantages(
            self.rewards,
            self.values,
            self.interval_ends,
            done,
            last_values.cpu().numpy().reshape(-1),
            self.discounting,
        )
        np.add(self.advantages, self.values, out=self.returns)

    def get(  # type: ignore[override]
        self, batch_size: int | None = None
    ) -> Generator[MaskableDictRolloutBufferSamples, None, None]:
        """Yields all steps once, in random order, in minibatches."""
        assert self.full, "the rollout is not complete"
        total = self.buffer_size * self.n_envs
        order = torch.randperm(total, generator=self.generator)
        for indices in order.split(batch_size or total):
            yield self._get_samples(indices)

    def _get_samples(self, batch_inds: Tensor, env: Any = None) -> MaskableDictRolloutBufferSamples:  # type: ignore[override]
        def gather(memory: Tensor) -> Tensor:
            return memory.flatten(0, 1).index_select(0, batch_inds).to(self.device)

        return MaskableDictRolloutBufferSamples(
            observations={name: gather(memory) for name, memory in self._observations.items()},
            actions=gather(self._steps["actions"]),
            old_values=gather(self._steps["values"]),
            old_log_prob=gather(self._steps["log_probs"]),
            advantages=gather(self._steps["advantages"]),
            returns=gather(self._steps["returns"]),
            action_masks=gather(self._steps["action_masks"]),
        )
