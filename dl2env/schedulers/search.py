"""A slow search with the true model and the whole future: what is left to win, not a scheduler anyone could run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig, EstimateConfig
from dl2env.schedulers.base import ClusterView, Observation
from dl2env.schedulers.heuristic import Heuristic, SeesAllJobs, checked_option
from dl2env.sim.simulator import ClusterSimulator

RULES: tuple[tuple[str, dict[str, float]], ...] = (
    ("marginal", {}),
    ("marginal", {"per_share": False}),
    ("marginal", {"exponent": 0.25}),
    ("marginal", {"exponent": 0.5}),
    ("marginal", {"exponent": 1.0}),
    ("best-config", {}),
    ("best-config", {"speed_share": 0.8}),
    ("optimus-exact", {}),
    ("srtf", {}),
    ("fifo", {}),
    ("drf", {}),
    ("void", {}),
)
"""Rules that the search chooses from, and that play an episode to its end."""


@dataclass(frozen=True)
class _Plan:
    """The rule that the search settled on for an interval."""

    rule: Heuristic
    episode: tuple[int, int]
    interval: int


class SearchScheduler(SeesAllJobs):
    """In each interval the rule whose decisions lead to the least total JCT, found by playing the episode to its end.

    Every interval each rule plays a copy of the cluster to its end; the best one is the tail. Then each rule, and
    variants of the contention-aware marginal gain with random job weights, decides for one interval in a copy that goes
    on under the tail. The tail is itself a choice in the next interval, so with an unlimited horizon the total JCT is
    never above that of the best rule (rollouts with a portfolio: Bertsekas, Tsitsiklis and Wu, J. Heuristics 1997).

    The copies hold the true speeds, the noise and all jobs that are still to arrive. The result is therefore no
    scheduler to compare with but an estimate of the ceiling: someone who knows everything can win at least that much.

    Args:
        num_variants: Random variants per interval.
        spread: How much they differ, see `MarginalGainScheduler`.
        horizon: Intervals that a copy is played for; the jobs left then are counted with their time so far and twice
            their remaining time at best speed.
        seed: Seed of the variants.
    """

    name = "search"
    is_oracle = True
    deterministic = True

    def __init__(self, num_variants: int = 12, spread: float = 1.0, horizon: int = 1000, seed: int = 0) -> None:
        checked_option("search", "num_variants", num_variants, 0, 10_000)
        checked_option("search", "horizon", horizon, 1, 1_000_000)
        self._rules = [_rule(name, options) for name, options in RULES]
        self._choices = list(self._rules)
        for v in range(int(num_variants)):
            self._choices.append(_rule("marginal", {"spread": spread, "seed": seed * num_variants + v}))
        self._horizon = int(horizon)
        self._copies: ClusterSimulator | None = None
        self._copies_of: ClusterSimulator | None = None
        self._plans: dict[int, _Plan] = {}

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Sees every job, and knows true speeds."""
        return dataclasses.replace(super().configure(config), estimate=EstimateConfig())

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """Chooses one action per environment; see `Scheduler.act`."""
        sim = view.simulator
        actions = np.full(len(action_mask), action_mask.shape[1] - 1, dtype=np.int64)
        for b in np.flatnonzero(action_mask[:, :-1].any(axis=1)).tolist():
            plan = self._plans.get(b) if self._copies_of is sim else None
            if plan is None or (plan.episode, plan.interval) != _moment(sim, b):
                plan = self._plans[b] = _Plan(self._search(sim, b), *_moment(sim, b))
            only = np.zeros_like(action_mask)
            only[b] = action_mask[b]
            actions[b] = plan.rule.act(observation, only, view)[b]
        return actions

    def run_intervals(self, simulator: ClusterSimulator, num_intervals: int) -> NDArray[np.int64]:
        """Takes all decisions of the next intervals; see `IntervalScheduler.run_intervals`."""
        num_illegal = np.zeros(simulator.num_envs, dtype=np.int64)
        for _ in range(num_intervals):
            for b in np.flatnonzero(~simulator.is_done).tolist():
                rule = self._search(simulator, b)
                with simulator.only([b]):
                    num_illegal += rule.run_intervals(simulator, 1)
        return num_illegal

    def _search(self, sim: ClusterSimulator, b: int) -> Heuristic:
        """Finds the rule for the present interval of an environment."""
        copies = self._copies_for(sim)
        copies.copy_env(sim, b, np.arange(copies.num_envs))
        for c, rule in enumerate(self._rules):
            with copies.only([c]):
                rule.run_intervals(copies, self._horizon)
        tail = self._rules[int(np.argmin(_total_jct_s(copies)[: len(self._rules)]))]
        copies.copy_env(sim, b, np.arange(copies.num_envs))
        for c, choice in enumerate(self._choices):
            with copies.only([c]):
                choice.run_intervals(copies, 1)
        tail.run_intervals(copies, self._horizon - 1)
        costs = _total_jct_s(copies)
        # The tail itself, unless something is better: rounding must not decide.
        best = self._choices.index(tail)
        for c in range(len(self._choices)):
            best = c if costs[c] < costs[best] * (1.0 - 1e-12) else best
        return self._choices[best]

    def _copies_for(self, sim: ClusterSimulator) -> ClusterSimulator:
        """The simulator in which things are tried; plans for another one are forgotten."""
        if self._copies is None or self._copies_of is not sim:
            narrow = dataclasses.replace(sim.config.observation, window=1)
            config = dataclasses.replace(sim.config, observation=narrow)
            self._copies = ClusterSimulator(config, len(self._choices), max_jobs=sim.max_jobs, speed=sim.speed)
            self._copies_of = sim
            self._plans = {}
        return self._copies


def _rule(name: str, options: dict[str, float]) -> Heuristic:
    from dl2env.schedulers.registry import get_scheduler

    rule = get_scheduler(name, **options)
    assert isinstance(rule, Heuristic)
    return rule


def _moment(sim: ClusterSimulator, b: int) -> tuple[tuple[int, int], int]:
    """Tells one interval of one episode from others."""
    env = sim.state.env[b]
    return (int(env["noise_key"]), int(env["num_jobs"])), int(env["interval"])


def _total_jct_s(sim: ClusterSimulator) -> NDArray[np.float64]:
    """(B,) summed JCT of the jobs that have arrived; unfinished ones count twice their remaining time at best speed."""
    env, jobs = sim.state.env, sim.state.jobs
    now_s = env["interval"][:, None] * sim.config.dynamics.interval_s
    best_speed = sim.state.best_speed[0][jobs["type"]]
    left_s = (jobs["true_epochs"] - jobs["epochs_done"]) * jobs["samples_per_epoch"] / best_speed
    so_far_s = now_s - jobs["arrival_s"]
    jct_s = np.where(np.isnan(jobs["finish_s"]), so_far_s + 2.0 * left_s, jobs["finish_s"] - jobs["arrival_s"])
    is_counted = (np.arange(jobs.shape[1]) < env["num_jobs"][:, None]) & (so_far_s >= 0.0)
    total: NDArray[np.float64] = np.where(is_counted, jct_s, 0.0).sum(axis=1)
    return total
