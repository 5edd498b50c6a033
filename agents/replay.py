"""Experience replay of DL2: decisions wait until their interval ends, then enter a first-in-first-out buffer.

A sample is (state, action, reward, next state). Time passes only at an interval's end, so the reward is that of the
interval and the next state the first one of the next interval (Peng et al., arXiv 1909.06040, as we understand it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Credit = Literal["interval", "to_go", "own_job"]
Sampling = Literal["uniform", "prioritized"]
Arrays = dict[str, NDArray[Any]]

_FIRST_LENGTH = 32
_PRIORITY_EXPONENT = 0.9
_LARGEST_PRIORITY = 4.0
_SMALLEST_PRIORITY = 0.01
_FIRST_IMPORTANCE_EXPONENT = 0.1
_IMPORTANCE_STEP = 1e-4


class PendingIntervals:
    """Decisions of B environments whose interval has not ended yet.

    Args:
        num_envs: B.
    """

    def __init__(self, num_envs: int) -> None:
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._arrays: Arrays = {}
        self._extra_rewards = np.zeros(num_envs)

    def add(
        self, rows: NDArray[np.bool_], rewards: NDArray[np.floating], decisions: Mapping[str, NDArray[Any]]
    ) -> None:
        """Appends one decision to each of some environments.

        Args:
            rows: (B,) environments whose decision is kept; the reward of the others counts for their interval all the
                same, as if it came with the interval's last kept decision.
            rewards: (B,) rewards of the step.
            decisions: (B, ...) arrays: observations, masks, actions and whatever else a sample holds.
        """
        index = np.flatnonzero(rows)
        if not self._arrays:
            self._arrays = {
                name: np.zeros((len(rows), _FIRST_LENGTH, *values.shape[1:]), dtype=values.dtype)
                for name, values in {"rewards": np.asarray(rewards, dtype=np.float32), **decisions}.items()
            }
        at = self._lengths[index]
        if len(index) and at.max() == self._arrays["rewards"].shape[1]:
            self._arrays = {name: np.concatenate([a, np.zeros_like(a)], axis=1) for name, a in self._arrays.items()}
        for name, values in decisions.items():
            self._arrays[name][index, at] = values[index]
        self._arrays["rewards"][index, at] = rewards[index]
        self._lengths[index] += 1
        self._extra_rewards[~rows] += rewards[~rows]

    def pop(self, b: int, credit: Credit) -> Arrays:
        """Decisions of environment b's interval, which has ended, each with its reward; they wait no longer.

        Args:
            b: Environment.
            credit: `interval`: each decision gets the sum of the interval's rewards. `to_go`: only of those that came
                with it or after it. `own_job`: those of its own step; the learner puts the job's in their place.

        Returns:
            (n, ...) arrays with the names given to `add`, and `rewards`.
        """
        n = int(self._lengths[b])
        self._lengths[b] = 0
        extra, self._extra_rewards[b] = self._extra_rewards[b], 0.0
        taken = {name: values[b, :n].copy() for name, values in self._arrays.items()}
        if n:
            to_go = np.cumsum(taken["rewards"][::-1], dtype=np.float64)[::-1] + extra
            if credit != "own_job":
                taken["rewards"][:] = to_go[0] if credit == "interval" else to_go
        return taken

    def state(self) -> Arrays:
        """Plain arrays for `restore`."""
        longest = int(self._lengths.max(initial=0))
        waiting = {f"waiting/{name}": values[:, :longest] for name, values in self._arrays.items()}
        return {"lengths": self._lengths.copy(), "extra_rewards": self._extra_rewards.copy(), **waiting}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues from a `state` of as many environments."""
        if len(state["lengths"]) != len(self._lengths):
            raise ValueError(f"{len(state['lengths'])} environments were saved, this run has {len(self._lengths)}")
        self._lengths[:] = state["lengths"]
        self._extra_rewards[:] = state["extra_rewards"]
        self._arrays = {}
        for name, values in state.items():
            if name.startswith("waiting/"):
                array = np.zeros(
                    (values.shape[0], max(_FIRST_LENGTH, values.shape[1]), *values.shape[2:]), values.dtype
                )
                array[:, : values.shape[1]] = values
                self._arrays[name.partition("/")[2]] = array


class ReplayBuffer:
    """The last `capacity` samples, of which batches are drawn.

    `uniform` (paper): without replacement. `prioritized` (released code): a sample enters with priority
    max(1, its reward - mean reward so far) and gets min(|TD error| + 0.01, 4)^0.9 once it has been used; it is drawn
    with probability proportional to its priority, with replacement, and weighs (size * probability)^-beta, where the
    largest weight of the batch is made 1 and beta rises from 0.1 to 1 by 0.0001 per batch.

    Args:
        capacity: Samples that are kept.
        sampling: See above.
        seed: Seeds the draws.
    """

    def __init__(self, capacity: int, sampling: Sampling = "uniform", seed: int = 0) -> None:
        self.capacity = capacity
        self._sampling = sampling
        self._rng = np.random.default_rng(seed)
        self._arrays: Arrays = {}
        self._priorities = np.zeros(capacity)
        self._position = 0
        self._size = 0
        self._reward_sum, self._num_added, self._num_batches = 0.0, 0, 0

    def __len__(self) -> int:
        """Samples in the buffer."""
        return self._size

    @property
    def mean_reward(self) -> float:
        """Mean reward of the samples in the buffer."""
        return float(self._arrays["rewards"][: self._size].mean()) if self._size else 0.0

    def add(self, samples: Mapping[str, NDArray[Any]]) -> None:
        """Appends (n, ...) samples in their order; the oldest ones make room."""
        n = len(samples["rewards"])
        if not self._arrays:
            self._arrays = {
                name: np.zeros((self.capacity, *values.shape[1:]), dtype=values.dtype)
                for name, values in samples.items()
            }
        self._reward_sum += float(samples["rewards"].sum(dtype=np.float64))
        self._num_added += n
        kept = min(n, self.capacity)
        index = (self._position + np.arange(n - kept, n)) % self.capacity
        for name, values in samples.items():
            self._arrays[name][index] = values[n - kept :]
        mean = self._reward_sum / max(self._num_added, 1)
        self._priorities[index] = np.maximum(1.0, samples["rewards"][n - kept :] - mean)
        self._position = (self._position + n) % self.capacity
        self._size = min(self._size + n, self.capacity)

    def sample(self, batch_size: int) -> tuple[Arrays, NDArray[np.int64], NDArray[np.float32]]:
        """Draws a batch.

        Args:
            batch_size: Samples to draw; all of them if `uniform` and there are no more.

        Returns:
            The samples, their places in the buffer (for `set_priorities`) and their importance weights.
        """
        if self._sampling == "uniform":
            index = self._rng.permutation(self._size)[:batch_size]
            weights = np.ones(len(index), dtype=np.float32)
        else:
            cumulated = np.cumsum(self._priorities[: self._size])
            drawn = self._rng.random(batch_size) * cumulated[-1]
            index = np.minimum(np.searchsorted(cumulated, drawn, side="right"), self._size - 1)
            probability = self._priorities[index] / cumulated[-1]
            exponent = min(1.0, _FIRST_IMPORTANCE_EXPONENT + _IMPORTANCE_STEP * self._num_batches)
            raw = (self._size * probability) ** -exponent
            weights = (raw / raw.max()).astype(np.float32)
        self._num_batches += 1
        return {name: values[index] for name, values in self._arrays.items()}, index, weights

    def set_priorities(self, index: NDArray[np.int64], td_errors: NDArray[np.floating]) -> None:
        """Gives used samples the priority of their TD errors."""
        bounded = np.minimum(np.abs(td_errors) + _SMALLEST_PRIORITY, _LARGEST_PRIORITY)
        self._priorities[index] = bounded**_PRIORITY_EXPONENT

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Plain arrays and JSON values for `restore`."""
        arrays = {f"samples/{name}": values[: self._size] for name, values in self._arrays.items()}
        counters = {
            "position": self._position,
            "reward_sum": self._reward_sum,
            "num_added": self._num_added,
            "num_batches": self._num_batches,
            "rng": self._rng.bit_generator.state,
        }
        return {"priorities": self._priorities[: self._size], **arrays}, counters

    def restore(self, arrays: Mapping[str, NDArray[Any]], counters: Mapping[str, Any]) -> None:
        """Continues from a `state` of a buffer of the same capacity."""
        priorities = arrays["priorities"]
        if len(priorities) > self.capacity:
            raise ValueError(f"{len(priorities)} samples were saved, this run keeps {self.capacity}")
        self._size = len(priorities)
        self._priorities[: self._size] = priorities
        self._arrays = {}
        for name, values in arrays.items():
            if name.startswith("samples/"):
                memory = np.zeros((self.capacity, *values.shape[1:]), dtype=values.dtype)
                memory[: self._size] = values
                self._arrays[name.partition("/")[2]] = memory
        self._position = int(counters["position"])
        self._reward_sum = float(counters["reward_sum"])
        self._num_added, self._num_batches = int(counters["num_added"]), int(counters["num_batches"])
        self._rng.bit_generator.state = counters["rng"]
