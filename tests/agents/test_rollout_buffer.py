from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from agents.returns import Discounting, generalized_advantages
from agents.rollout_buffer import IntervalRolloutBuffer

STEPS, ENVS, ACTIONS = 5, 3, 4
SPACE = spaces.Dict({"jobs": spaces.Box(-1, 1, (1, 2), np.float32), "cluster": spaces.Box(-1, 1, (1,), np.float32)})


class Filled:
    """A buffer with random content, and that content."""

    def __init__(self, seed: int = 0, last_done: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.ended = np.zeros(ENVS, dtype=bool)
        self.discounting = Discounting(1.0, 0.9, 0.5, 0.7)
        self.buffer = IntervalRolloutBuffer(
            STEPS,
            SPACE,
            spaces.Discrete(ACTIONS),
            "cpu",
            n_envs=ENVS,
            discounting=self.discounting,
            interval_ended=lambda: self.ended,
            seed=seed,
        )
        shape = (STEPS, ENVS)
        self.jobs = rng.normal(size=(*shape, 1, 2)).astype(np.float32)
        self.actions = rng.integers(0, ACTIONS, shape)
        self.rewards = rng.normal(size=shape).astype(np.float32)
        self.values = rng.normal(size=shape).astype(np.float32)
        self.ends = rng.random(shape) < 0.5
        self.done = self.ends & (rng.random(shape) < 0.5)
        self.done[-1] = last_done
        self.masks = rng.random((*shape, ACTIONS)) < 0.5
        self.last_values = rng.normal(size=ENVS).astype(np.float32)
        self.fill()

    def fill(self) -> None:
        self.buffer.reset()
        for t in range(STEPS):
            self.ended = self.ends[t]
            self.buffer.add(
                {"jobs": self.jobs[t], "cluster": np.full((ENVS, 1), t, np.float32)},
                self.actions[t].reshape(-1, 1),
                self.rewards[t],
                self.done[t - 1] if t else np.ones(ENVS, dtype=bool),
                torch.from_numpy(self.values[t]).unsqueeze(1),
                torch.full((ENVS,), float(-t)),
                action_masks=self.masks[t],
            )
        self.buffer.compute_returns_and_advantage(torch.from_numpy(self.last_values).unsqueeze(1), self.done[-1])


def test_advantages_use_the_flags_of_each_step() -> None:
    for last_done in (False, True):
        case = Filled(last_done=last_done)
        expected = generalized_advantages(
            case.rewards, case.values, case.ends, case.done, case.last_values, case.discounting
        )
        np.testing.assert_array_equal(case.buffer.advantages, expected)
        np.testing.assert_array_equal(case.buffer.returns, expected + case.values)


def test_minibatches_hold_every_decision_once_with_its_own_data() -> None:
    case = Filled()
    batches = list(case.buffer.get(4))
    assert [len(batch.actions) for batch in batches] == [4, 4, 4, 3]
    jobs = torch.cat([batch.observations["jobs"] for batch in batches]).numpy().reshape(-1, 2)
    flat = case.jobs.reshape(-1, 2)
    rows = [int(np.flatnonzero((flat == row).all(axis=1))[0]) for row in jobs]
    assert sorted(rows) == list(range(STEPS * ENVS))
    for name, expected in (
        ("actions", case.actions),
        ("old_values", case.values),
        ("old_log_prob", np.repeat(-np.arange(STEPS, dtype=np.float32), ENVS).reshape(STEPS, ENVS)),
        ("advantages", case.buffer.advantages),
        ("returns", case.buffer.returns),
        ("action_masks", case.masks),
    ):
        got = torch.cat([getattr(batch, name) for batch in batches]).numpy()
        np.testing.assert_array_equal(got, expected.reshape(STEPS * ENVS, -1).squeeze()[rows])


def test_minibatch_order_comes_from_the_buffers_own_seed() -> None:
    def order(seed: int) -> list[float]:
        np.random.seed(1)  # noqa: NPY002 - the global generators must not matter
        torch.manual_seed(1)
        case = Filled(seed)
        return [float(x) for x in torch.cat([b.old_log_prob + b.old_values for b in case.buffer.get(4)])]

    assert order(3) == order(3)
    case = Filled(3)
    first, second = (torch.cat([b.old_values for b in case.buffer.get(4)]) for _ in range(2))
    assert not torch.equal(first, second)


def test_a_second_rollout_reuses_the_memory() -> None:
    case = Filled()
    memory = case.buffer.observations["jobs"].data_ptr()
    case.jobs += 1
    case.fill()
    assert case.buffer.observations["jobs"].data_ptr() == memory
    np.testing.assert_array_equal(case.buffer.observations["jobs"].numpy(), case.jobs)
