"""Discounting that knows scheduling intervals: the sums behind the rollout buffer and the fit of the critic.

Decisions inside an interval follow each other without time passing; an interval's end lets `interval_s` seconds pass.
So discount and trace length are numbers of two kinds: `decision_*` from one decision to the next of the same interval,
`interval_*` from an interval's last decision to the first of the next. An episode ends with an interval.

Letters: T steps, B environments. All arrays are (T, B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Discounting:
    """Discounts and GAE trace lengths.

    Attributes:
        decision_gamma: Discount between decisions of one interval.
        gae_lambda: GAE lambda between decisions of one interval.
        interval_gamma: Discount across an interval's end. 0 cuts there: a decision answers for its own interval only,
            which suits rewards that already price the future (`speed_gain`).
        interval_lambda: GAE lambda across an interval's end; without effect when `interval_gamma` is 0.
    """

    decision_gamma: float = 1.0
    gae_lambda: float = 0.95
    interval_gamma: float = 0.0
    interval_lambda: float = 0.95

    def __post_init__(self) -> None:
        for name in ("decision_gamma", "gae_lambda", "interval_gamma", "interval_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name}={getattr(self, name)} must lie in [0, 1]")


def generalized_advantages(
    rewards: Floats,
    values: Floats,
    interval_ended: Bools,
    done: Bools,
    last_values: Floats,
    discounting: Discounting,
) -> NDArray[np.float32]:
    """Generalised advantage estimates with discount and lambda per step.

    `A_t = r_t + g_t V_{t+1} - V_t + g_t l_t A_{t+1}`, where g_t and l_t are the decision or the interval numbers
    depending on whether step t ended an interval, and 0 where it ended the episode. With equal numbers this is
    Schulman et al., arXiv 1506.02438. Add the values to get lambda-returns.

    Args:
        rewards: Rewards.
        values: Values of the observations that the steps started from.
        interval_ended: The step ended a scheduling interval.
        done: The step ended the episode.
        last_values: (B,) values of the observations after the last step.
        discounting: The numbers.
    """
    gamma = np.where(interval_ended, np.float32(discounting.interval_gamma), np.float32(discounting.decision_gamma))
    gamma[done] = 0.0
    trace = gamma * np.where(
        interval_ended, np.float32(discounting.interval_lambda), np.float32(discounting.gae_lambda)
    )
    next_values = np.concatenate([values[1:], last_values[None]])
    advantages = (rewards + gamma * next_values - values).astype(np.float32)
    for t in range(len(rewards) - 2, -1, -1):
        advantages[t] += trace[t] * advantages[t + 1]
    return advantages


def discounted_returns(
    rewards: Floats, interval_ended: Bools, done: Bools, truncated: Bools, discounting: Discounting
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Discounted sums of the recorded rewards, and how much of each return is missing.

    Args:
        rewards: Rewards.
        interval_ended: The step ended a scheduling interval.
        done: The step ended the episode.
        truncated: The step ended the episode by the interval limit; what would have followed is missing.
        discounting: The discounts; the lambdas are not used.

    Returns:
        The returns, and the discount with which the first reward after the recording would have entered each: 0 where
        the return is complete.
    """
    gamma = np.where(interval_ended, discounting.interval_gamma, discounting.decision_gamma)
    returns = rewards.astype(np.float64)
    missing = np.where(truncated | ~done, gamma, 0.0)
    gamma[done] = 0.0
    for t in range(len(rewards) - 2, -1, -1):
        returns[t] += gamma[t] * returns[t + 1]
        missing[t] = np.where(done[t], missing[t], gamma[t] * missing[t + 1])
    return returns.astype(np.float32), missing.astype(np.float32)
