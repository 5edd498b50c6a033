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
    """What the search settled on for an interval: this rule now, and that one to the end."""

    first: Heuristic
    tail: Heuristic
    cost_s: float
    episode: tuple[int, int]
    interval: int


class SearchScheduler(SeesAllJobs):
    """In each interval the rule whose decisions lead to the least total JCT, found by playing the episode to its end.

    Every interval each rule, and variants of the contention-aware marginal gain with random job weights, decides for
    one interval in a copy of the cluster; the copy then goes on under the tail rule of the best plan so far. A rule is
    also tried with itself as tail. The plan so far stays among the choices, so with an unlimited horizon the total JCT
    is never above that of the best rule (rollouts with a portfolio: Bertsekas, Tsitsiklis and Wu, J. Heuristics 1997).

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
            plan = self._plans.get(b)
            is_current = plan is not None and plan.episode == _episode(sim, b) and self._copies_of is sim
            if plan is None or not is_current or plan.interval != sim.state.env["interval"][b]:
                plan = self._search(sim, b)
            only = np.zeros_like(action_mask)
            only[b] = action_mask[b]
            actions[b] = plan.first.act(observation, only, view)[b]
        return actions

    def run_intervals(self, simulator: ClusterSimulator, num_intervals: int) -> NDArray[np.int64]:
        """Takes all decisions of the next intervals; see `IntervalScheduler.run_intervals`."""
        num_illegal = np.zeros(simulator.num_envs, dtype=np.int64)
        for _ in range(num_intervals):
            for b in np.flatnonzero(~simulator.is_done).tolist():
                first = self._search(simulator, b).first
                with simulator.only([b]):
                    num_illegal += first.run_intervals(simulator, 1)
        return num_illegal

    def _search(self, sim: ClusterSimulator, b: int) -> _Plan:
        """Finds and keeps the plan for the present interval of an environment."""
        copies = self._copies_for(sim)
        copies.copy_env(sim, b, np.arange(copies.num_envs))
        last = self._plans.get(b)
        episode = _episode(sim, b)
        interval = int(sim.state.env["interval"][b])
        is_next = last is not None and last.episode == episode and last.interval < interval
        tail = last.tail if last is not None and is_next else self._rules[0]
        for c, choice in enumerate(self._choices):
            with copies.only([c]):
                choice.run_intervals(copies, 1)
        num_choices = len(self._choices)
        with copies.only(range(num_choices)):
            tail.run_intervals(copies, self._horizon - 1)
        for c, rule in enumerate(self._rules, start=num_choices):
            with copies.only([c]):
                rule.run_intervals(copies, self._horizon)
        costs = _total_jct_s(copies)
        best = int(np.argmin(costs))
        first = self._choices[best] if best < num_choices else self._rules[best - num_choices]
        plan = _Plan(first, tail if best < num_choices else first, float(costs[best]), episode, interval)
        self._plans[b] = plan
        return plan

    def _copies_for(self, sim: ClusterSimulator) -> ClusterSimulator:
        """The simulator in which things are tried; plans for another one are forgotten."""
        if self._copies is None or self._copies_of is not sim:
            narrow = dataclasses.replace(sim.config.observation, window=1)
            config = dataclasses.replace(sim.config, observation=narrow)
            num_copies = len(self._choices) + len(self._rules)
            self._copies = ClusterSimulator(config, num_copies, max_jobs=sim.max_jobs, speed=sim.speed)
            self._copies_of = sim
            self._plans = {}
        return self._copies


def _rule(name: str, options: dict[str, float]) -> Heuristic:
    from dl2env.schedulers.registry import get_scheduler

    rule = get_scheduler(name, **options)
    assert isinstance(rule, Heuristic)
    return rule


def _episode(sim: ClusterSimulator, b: int) -> tuple[int, int]:
    """Tells one episode of an environment from the next."""
    env = sim.state.env[b]
    return int(env["noise_key"]), int(env["num_jobs"])


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
