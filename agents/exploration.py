"""Exploration of DL2 in training: actions that rules put in place of the policy's own in poor states.

Marks: [paper] Peng et al., arXiv 1909.06040, as we understand it; [code] the released code, as described.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

ExplorationKind = Literal["none", "paper", "released"]

Ints = NDArray[np.int64]

_WORKER, _PS, _BUNDLE = 0, 1, 2
_SMALLEST_PROBABILITY = 1e-20
_RAREST_SHARE = 1e-3


class Counts(Protocol):
    """The part of a `dl2env.schedulers.base.ClusterView` that the rules look at: (B, J) arrays."""

    @property
    def is_present(self) -> NDArray[np.bool_]:
        """Slots that hold a job."""
        ...

    @property
    def workers(self) -> NDArray[Any]:
        """Workers of this interval."""
        ...

    @property
    def ps(self) -> NDArray[Any]:
        """Parameter servers of this interval."""
        ...


def epsilon(num_updates: int, decay: float) -> float:
    """Probability of a random action after a number of updates, 2 / (1 + exp(updates / decay)) [code]."""
    return 2.0 / (1.0 + math.exp(min(num_updates / decay, 700.0)))


class Exploration:
    """Replaces sampled actions, by rules about workers and parameter servers (PSs) and by chance.

    `paper` [paper], with the given probability at each decision, if the state is poor: the first job in arrival order
    that has (i) workers but no PS gets a PS, (ii) PSs but no worker gets a worker, (iii) more than `ratio` times as
    many of one as of the other gets one of the fewer kind.

    `released` [code]:

    1. Balance: let the tasks of the best- and the least-served job be M and m > 0. If floor(M / m) exceeds a number
       drawn from {3, 4, 5}, the least-served job gets a bundle or a worker, half and half.
    2. Then the jobs in order; the first for which one of these holds decides, in place of 1.:
       (a) all kinds of actions have been used and the rarest makes up less than 0.1 % of them: it is taken;
       (b) no worker or no PS: the missing one, a PS if both are missing;
       (c) PSs > workers * rho, rho drawn from {3..7} once per interval, in half of the cases: a bundle or a worker,
       half and half;
       (d) otherwise, workers >= PSs / 2, in half of the cases: a PS (99 %) or a bundle (1 %).

    Rules only take legal actions (released: of probability above 1e-20); where one could not act, the next is asked.
    One of the released checks looks at the probability of the wrong kind; that slip is not copied.

    Args:
        kind: The rules.
        num_envs: B.
        probability: Of acting in a poor state (`paper`).
        ratio: Largest ratio of workers to PSs or of PSs to workers of a state that is not poor (`paper`).
        seed: Seeds all draws.
    """

    def __init__(
        self, kind: ExplorationKind, num_envs: int, probability: float = 0.4, ratio: float = 10.0, seed: int = 0
    ) -> None:
        self.kind = kind
        self._probability = probability
        self._ratio = ratio
        self._rng = np.random.default_rng(seed)
        self._rho = np.zeros(num_envs, dtype=np.int64)
        self._num_used = np.zeros(3, dtype=np.int64)

    def start_intervals(self, envs: NDArray[np.bool_]) -> None:
        """Tells in which of the (B,) environments an interval begins."""
        if self.kind == "released":
            self._rho = np.where(envs, self._rng.integers(3, 8, len(envs)), self._rho)

    def explore(
        self,
        actions: Ints,
        probabilities: NDArray[np.floating],
        mask: NDArray[np.bool_],
        view: Counts | None,
        random_probability: float = 0.0,
    ) -> Ints:
        """The actions to take.

        Args:
            actions: (B,) what the policy would do.
            probabilities: (B, 3 J + 1) its probabilities.
            mask: (B, 3 J + 1) legal actions.
            view: The clusters; not needed without rules.
            random_probability: Take a uniformly random legal action that often (epsilon-greedy).
        """
        chosen = np.array(actions, dtype=np.int64)
        if self.kind != "none":
            assert view is not None
            forced = (
                self._by_paper(view, mask) if self.kind == "paper" else self._as_released(view, mask, probabilities)
            )
            chosen = np.where(forced >= 0, forced, chosen)
        if random_probability > 0.0:
            any_legal = np.where(mask, self._rng.random(mask.shape), -1.0).argmax(axis=1)
            chosen = np.where(self._rng.random(len(chosen)) < random_probability, any_legal, chosen)
        kinds = chosen[chosen < mask.shape[1] - 1] % 3
        self._num_used += np.bincount(kinds, minlength=3)
        return chosen

    def _by_paper(self, view: Counts, mask: NDArray[np.bool_]) -> Ints:
        workers, ps = view.workers.astype(np.int64), view.ps.astype(np.int64)
        wanted = np.full(workers.shape, -1)
        wanted[workers > self._ratio * ps] = _PS  # (i) and half of (iii)
        wanted[ps > self._ratio * workers] = _WORKER  # (ii) and the other half
        forced = _first_legal(wanted, mask)
        return np.where(self._rng.random(len(forced)) < self._probability, forced, -1)

    def _as_released(self, view: Counts, mask: NDArray[np.bool_], probabilities: NDArray[np.floating]) -> Ints:
        rng = self._rng
        present = view.is_present
        workers, ps = view.workers.astype(np.int64), view.ps.astype(np.int64)
        shape = workers.shape
        possible = mask & (probabilities > _SMALLEST_PROBABILITY)
        balanced = self._balance(present, workers + ps, possible)
        # One array per rule: the kind of action that it wants for each job, -1 for none.
        rarest = np.full(shape, -1)
        if self._num_used.min() > 0 and self._num_used.min() < _RAREST_SHARE * self._num_used.sum():
            rarest[present] = self._num_used.argmin()
        missing = np.where(ps == 0, _PS, np.where(workers == 0, _WORKER, -1))
        has_many_ps = ps > workers * self._rho[:, None]
        is_heads = rng.random(shape) < 0.5
        worker_or_bundle = np.where(rng.random(shape) < 0.5, _BUNDLE, _WORKER)
        ps_or_bundle = np.where(rng.random(shape) < 0.99, _PS, _BUNDLE)
        many_ps = np.where(has_many_ps & is_heads, worker_or_bundle, -1)
        few_ps = np.where(~has_many_ps & (2 * workers >= ps) & is_heads, ps_or_bundle, -1)
        rules = np.stack([rarest, missing, many_ps, few_ps], axis=2)  # (B, J, rules)
        rules[~present] = -1
        action = 3 * np.arange(shape[1])[:, None] + rules
        legal = (rules >= 0) & np.take_along_axis(
            possible[:, None, :].repeat(shape[1], axis=1), np.maximum(action, 0), axis=2
        )
        flat = legal.reshape(len(legal), -1)  # job by job, and rule by rule within a job
        first = flat.argmax(axis=1)
        rows = np.arange(len(flat))
        return np.where(flat[rows, first], action.reshape(len(flat), -1)[rows, first], balanced)

    def _balance(self, present: NDArray[np.bool_], tasks: Ints, possible: NDArray[np.bool_]) -> Ints:
        """Rule 1: an action, or -1."""
        B = len(tasks)
        lowest = np.where(present, tasks, np.iinfo(np.int64).max)
        slot = lowest.argmin(axis=1)
        least = lowest[np.arange(B), slot]
        most = np.where(present, tasks, 0).max(axis=1)
        limit = self._rng.integers(3, 6, B)
        kind = np.where(self._rng.random(B) < 0.5, _BUNDLE, _WORKER)
        action = 3 * slot + kind
        fires = present.any(axis=1) & (least > 0) & (most // np.maximum(least, 1) > limit)
        return np.where(fires & possible[np.arange(B), action], action, -1)

    def state(self) -> dict[str, Any]:
        """Plain values for `restore`."""
        return {
            "rho": self._rho.tolist(),
            "num_used": self._num_used.tolist(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a `state` of as many environments."""
        self._rho = np.array(state["rho"], dtype=np.int64)
        self._num_used = np.array(state["num_used"], dtype=np.int64)
        self._rng.bit_generator.state = state["rng"]


def _first_legal(wanted: Ints, mask: NDArray[np.bool_]) -> Ints:
    """(B,) the first legal action of those that (B, J) slots want by kind; -1 where there is none."""
    B, J = wanted.shape
    action = 3 * np.arange(J) + np.maximum(wanted, 0)
    legal = (wanted >= 0) & np.take_along_axis(mask, action, axis=1)
    first = legal.argmax(axis=1)
    rows = np.arange(B)
    return np.where(legal[rows, first], action[rows, first], -1)
