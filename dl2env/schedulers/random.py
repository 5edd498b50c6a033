"""Uniformly random legal actions."""

from __future__ import annotations

import numpy as np

from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import RANDOM
from dl2env.schedulers.heuristic import Heuristic, checked_option, has_kind
from dl2env.sim.noise import keyed_uniform

VOID_ACTION = -1


@inline_kernel
def draw(state, b, action, params):
    """The number in [0, 1) that an action of the present decision drew; `params[0]` is the seed.

    A pure function of seed, workload and decision: the same in a batch of any size, and no one else's draws move it.
    """
    env = state.env[b]
    return keyed_uniform(env.noise_key + np.uint64(params[0]), action, env.num_decisions)


@inline_kernel
def score_random(state, b, i, legal, params):
    """The highest draw of all legal actions wins; void's is the one to beat."""
    best = draw(state, b, VOID_ACTION, params)
    kind = -1
    for k in range(3):
        if has_kind(legal, k):
            value = draw(state, b, 3 * i + k, params)
            if value > best:
                best = value
                kind = k
    return best, kind


class RandomScheduler(Heuristic):
    """Chooses each legal action, void included, with equal probability: the floor of every table.

    Args:
        seed: Seed of its draws, which never shift a workload.
    """

    name = "random"
    code = RANDOM

    def __init__(self, seed: int = 0) -> None:
        checked_option("random", "seed", seed, 0, 2**53 - 1)
        super().__init__(seed)
