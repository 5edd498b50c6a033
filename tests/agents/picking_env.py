"""A vector environment that is learnable in seconds: find the marked job and the action it is marked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

FEATURES = 5  # present, three marks, noise
CLUSTER = 2


class PickingEnv(VectorEnv):
    """One present slot carries mark k of three; action 3 i + k of that slot is worth 1, everything else 0.

    An interval has three decisions or ends early by void, an episode has `num_intervals`. Every second episode is
    truncated instead of terminated.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
    render_mode = None

    def __init__(self, num_envs: int, num_slots: int = 4, num_intervals: int = 2, reuse_arrays: bool = False) -> None:
        self.num_envs = num_envs
        self.num_slots = num_slots
        self.num_intervals = num_intervals
        self.single_observation_space = spaces.Dict(
            {
                "jobs": spaces.Box(-1.0, 1.0, (num_slots, FEATURES), np.float32),
                "cluster": spaces.Box(-1.0, 1.0, (CLUSTER,), np.float32),
            }
        )
        self.single_action_space = spaces.Discrete(3 * num_slots + 1)
        self._reuse = reuse_arrays
        self._obs = {
            "jobs": np.zeros((num_envs, num_slots, FEATURES), np.float32),
            "cluster": np.zeros((num_envs, CLUSTER), np.float32),
        }
        self._mask = np.zeros((num_envs, 3 * num_slots + 1), dtype=np.bool_)
        self.answer = np.zeros(num_envs, dtype=np.int64)
        self.seeds: list[Any] = []
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        self.seeds.append(seed)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._decision = np.zeros(self.num_envs, dtype=np.int64)
        self._interval = np.zeros(self.num_envs, dtype=np.int64)
        self._episode = np.zeros(self.num_envs, dtype=np.int64)
        for b in range(self.num_envs):
            self._draw(b)
        return self._observe(), {}

    def _draw(self, b: int) -> None:
        jobs = self._obs["jobs"][b]
        jobs[:] = 0.0
        present = self._rng.choice(self.num_slots, self._rng.integers(1, self.num_slots + 1), replace=False)
        jobs[present, 0] = 1.0
        jobs[present, 4] = self._rng.uniform(-1, 1, len(present))
        slot, kind = self._rng.choice(present), self._rng.integers(3)
        jobs[slot, 1 + kind] = 1.0
        self.answer[b] = 3 * slot + kind
        self._obs["cluster"][b] = self._rng.uniform(-1, 1, CLUSTER)
        mask = self._mask[b]
        mask[:] = False
        mask[:-1].reshape(-1, 3)[present] = self._rng.random((len(present), 3)) < 0.7
        mask[self.answer[b]] = mask[-1] = True

    def _observe(self) -> dict[str, NDArray[Any]]:
        return self._obs if self._reuse else {name: values.copy() for name, values in self._obs.items()}

    def action_masks(self) -> NDArray[np.bool_]:
        return self._mask.copy()

    def view(self) -> PickingEnv:
        return self

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self._mask[np.arange(self.num_envs), actions].all(), "an illegal action"
        rewards = (actions == self.answer).astype(np.float64)
        self._decision += 1
        interval_ended = (actions == self._mask.shape[1] - 1) | (self._decision == 3)
        self._decision[interval_ended] = 0
        self._interval += interval_ended
        done = self._interval == self.num_intervals
        truncated = done & (self._episode % 2 == 1)
        infos: dict[str, Any] = {
            "interval_ended": interval_ended,
            "illegal_action": np.zeros(self.num_envs, dtype=np.bool_),
            "reward_terms": {"right": rewards.copy()},
        }
        for b in range(self.num_envs):
            self._draw(b)
        if done.any():
            # The observation that this episode would have gone on with; autoreset draws another.
            infos["final_obs"] = np.full(self.num_envs, None, dtype=object)
            for b in np.flatnonzero(done):
                infos["final_obs"][b] = {name: values[b].copy() for name, values in self._obs.items()}
                self._draw(b)
            infos["final_info"] = {"mean_jct_s": np.where(done, 100.0 * self._episode, np.nan)}
            self._interval[done] = 0
            self._episode[done] += 1
        return self._observe(), rewards, done & ~truncated, truncated, infos


class PickingTeacher:
    """Always right, and so never void."""

    name = "picking"

    def act(self, observation: Any, action_mask: NDArray[np.bool_], view: PickingEnv) -> NDArray[np.int64]:
        jobs = observation["jobs"]
        return (jobs[:, :, 1:4].reshape(len(jobs), -1)).argmax(axis=1)
