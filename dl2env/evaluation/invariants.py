"""Invariants of the simulation: what must hold in every state, over every step and in every episode's records.

Everything is recomputed in plain numpy from the jobs' lists of tasks (`evaluation.recount`, `evaluation.replay`), not
with the simulator's kernels. That costs milliseconds per decision, so nothing here runs unless asked for::

    result = run_scheduler(checked(scheduler), config, workloads)  # every decision of a run

    with InvariantChecker(sim):  # every step of a simulator, whatever drives it
        ...

    check_records(sim.records(0), workload, config)  # what an episode left behind, however it was run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.interval_invariants import GIVEN, Interval
from dl2env.evaluation.record_invariants import check_records
from dl2env.evaluation.replay import Replay
from dl2env.evaluation.state_invariants import FIXED, check_lists, check_state
from dl2env.evaluation.violations import Claims, InvariantError
from dl2env.schedulers.base import ClusterView, IntervalScheduler, Observation, Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS, Report
from dl2env.workload.jobs import Workload

__all__ = [
    "CheckedIntervalScheduler",
    "CheckedScheduler",
    "InvariantChecker",
    "InvariantError",
    "check_records",
    "check_state",
    "checked",
]

REPLAYED = ("epochs_done", "start_s", "finish_s", "gpu_s", "intervals_run", "num_resizes", "last_workers", "last_ps")
WATCHED = ("load", "step", "run_intervals")
FLAGS = ("interval_ended", "is_illegal", "terminated", "truncated")
WORK = {"epochs_done", "intervals_run", "gpu_s", "num_resizes"}


class InvariantChecker:
    """Checks every `load`, `step` and `run_intervals` of a simulator while it is entered as a context.

    A step is compared with its replay: the decision's placement, the training of every job (speed x time), completions,
    admissions, initial bundles and rewards. Of an interval that a kernel decides alone the placements are not seen; its
    work, allocated time and counts are checked against bounds. After either the whole state is checked, see
    `check_state`.

    Args:
        sim: The simulator; its methods are checked whoever calls them.
        every: Replay and recount one decision in so many; those that end an interval are always checked.

    Raises:
        ConfigError: `every` is not positive, or another checker watches the simulator.
    """

    def __init__(self, sim: ClusterSimulator, every: int = 1) -> None:
        if every < 1:
            raise ConfigError(f"invariant checker: every={every} must be at least 1")
        self._sim = sim
        self._every = every
        self._num_steps = 0
        self._fixed = {name: getattr(sim.state, name).copy() for name in FIXED}

    @staticmethod
    def watching(sim: ClusterSimulator) -> InvariantChecker | None:
        """The checker that watches a simulator, if any."""
        owner = getattr(sim.__dict__.get("step"), "__self__", None)
        return owner if isinstance(owner, InvariantChecker) else None

    def __enter__(self) -> InvariantChecker:
        if self.watching(self._sim) is not None:
            raise ConfigError("invariant checker: another one watches this simulator already")
        # Instance attributes shadow the methods: whoever steps this simulator is checked, and no other simulator.
        vars(self._sim).update({name: getattr(self, name) for name in WATCHED})
        return self

    def __exit__(self, *_: object) -> None:
        for name in WATCHED:
            vars(self._sim).pop(name, None)

    def check(self, envs: Sequence[int] | None = None) -> None:
        """Checks the present state of the given environments (default: all).

        Raises:
            InvariantError: An invariant is violated.
        """
        check_state(self._sim, envs)
        self._check_fixed()

    def load(self, env_idx: Sequence[int] | NDArray[np.integer], workloads: Sequence[Workload]) -> None:
        """`ClusterSimulator.load`, and a check of what it left."""
        sim = self._sim
        type(sim).load(sim, env_idx, workloads)
        for b, workload in zip(np.asarray(env_idx).tolist(), workloads, strict=True):
            _check_loaded(sim, b, workload)
        self.check(np.asarray(env_idx).tolist())

    def step(self, actions: ArrayLike) -> Report:
        """`ClusterSimulator.step`, and a check of what it did."""
        sim = self._sim
        chosen = np.asarray(actions)
        was_done = sim.is_done
        is_due = self._num_steps % self._every == 0
        self._num_steps += 1
        if self._every > 1 and not is_due:
            before = sim.snapshot()
        expected = [None if was_done[b] else _Step(sim, b) for b in range(sim.num_envs)] if is_due else None
        report = type(sim).step(sim, actions)
        if expected is None:
            # The replay needs the state before the step: go back for it where an interval has ended.
            ended = np.flatnonzero(report.interval_ended)
            if len(ended) == 0:
                return report
            after = sim.snapshot()
            sim.restore(before)
            expected = [_Step(sim, b) if report.interval_ended[b] else None for b in range(sim.num_envs)]
            sim.restore(after)
        for b, step in enumerate(expected):
            if step is not None:
                step.check(sim, int(chosen[b]), report)
            elif is_due:
                _check_untouched(sim, b, report)
        self.check([b for b, step in enumerate(expected) if step is not None])
        return report

    def run_intervals(self, decide: Callable[..., None], num_intervals: int, *rule: Any) -> NDArray[np.int64]:
        """`ClusterSimulator.run_intervals`, one interval at a time, and a check after each."""
        sim = self._sim
        num_illegal = np.zeros(sim.num_envs, dtype=np.int64)
        for _ in range(num_intervals):
            live = np.flatnonzero(~sim.is_done).tolist()
            if not live:
                break
            intervals = [Interval(sim, b) for b in live]
            num_illegal += type(sim).run_intervals(sim, decide, 1, *rule)
            for interval in intervals:
                interval.check(sim)
            self.check(live)
        return num_illegal

    def _check_fixed(self) -> None:
        for name, values in self._fixed.items():
            claims = Claims(None, None)
            claims.that(
                np.array_equal(values, getattr(self._sim.state, name)), "fixed", f"{name} has changed during the run"
            )


class _Step:
    """One environment before a step, to judge what the step makes of it."""

    def __init__(self, sim: ClusterSimulator, b: int) -> None:
        self._b = b
        self._replay = Replay(sim, b)
        self._interval = Interval(sim, b)
        self._env = sim.state.env[b].copy()

    def check(self, sim: ClusterSimulator, action: int, report: Report) -> None:
        """Compares the state after the step, and what was reported, with the replay."""
        b, replay, state = self._b, self._replay, sim.state
        check_lists(sim, b)
        env, jobs = state.env[b], state.jobs[b, : len(replay.jobs)]
        claims = Claims(b, int(self._env["interval"]))
        gains = self._interval.check_forward(claims, env, jobs)
        progress = float((gains / jobs["epochs"]).sum())
        claims.close("work", "reported progress against the jobs' gains", report.reward_terms[b, 0], progress)
        legal = self._decide(action, sim.num_actions - 1)
        ends = action == sim.num_actions - 1 or not legal
        ends |= sim.config.dynamics.auto_advance and not replay.is_legal[replay.slots].any()
        if ends:
            replay.end_interval(jobs["finish_s"])
        replay.charge_waiting()
        flags = (ends, not legal, replay.is_terminated, replay.is_truncated)
        for name, expected in zip(FLAGS, flags, strict=True):
            claims.same("report", name, bool(getattr(report, name)[b]), bool(expected))
        claims.same("time", "interval after the step", int(env["interval"]), replay.interval)
        for name in REPLAYED:
            invariant = "work" if name in WORK else "times"
            claims.close(invariant, name, jobs[name], replay.jobs[name], jobs=range(len(jobs)))
        totals = np.array([env["used_cpu_s"], env["used_gpu_s"]])
        claims.close("work", "allocated CPU and GPU unit seconds", totals, replay.used_s)
        claims.same("work", "num_intervals_full", int(env["num_intervals_full"]), replay.num_full)
        claims.same("jobs", "next_job", int(env["next_job"]), replay.next_job)
        claims.same("jobs", "active jobs", state.active[b, : env["num_active"]].tolist(), replay.active)
        claims.same("reward", "waiting not charged", float(env["pending_wait"]), 0.0)
        claims.same("time", "num_decisions", int(env["num_decisions"]), int(self._env["num_decisions"]) + 1)
        if sim.config.estimate.kind == "fitted":
            claims.close("estimate", "normal equations", state.fit[b], replay.fit)
        if not sim.is_done[b]:
            claims.same("placement", "pinned_server", int(env["pinned_server"]), replay.pinned)
            tasks = Replay(sim, b).tasks
            at = np.argwhere(tasks != replay.tasks)
            detail = f"server {at[0][1]} holds {tasks[*at[0][:2]]} (workers, PSs), not" if len(at) else ""
            detail += f" {replay.tasks[*at[0][:2]]}" if len(at) else ""
            claims.that(len(at) == 0, "placement", detail, replay.active[at[0][0]] if len(at) else None)
        for name, value in zip(REWARD_TERMS, report.reward_terms[b], strict=True):
            claims.close("reward", f"reward term {name}", value, replay.reward[name])

    def _decide(self, action: int, void: int) -> bool:
        """Replays the action; False when it was illegal or failed."""
        replay = self._replay
        if action == void:
            return True
        slot, kind = divmod(action, 3)
        slots = replay.slots
        if not 0 <= action < void or slot >= len(slots) or not replay.is_legal[slots[slot], kind]:
            return False
        return replay.act(slots[slot], kind)


def _check_untouched(sim: ClusterSimulator, b: int, report: Report) -> None:
    """A finished environment ignores actions."""
    claims = Claims(b, int(sim.state.env["interval"][b]))
    for name in Report._fields:
        claims.that(not np.any(getattr(report, name)[b]), "report", f"{name} of a finished environment is not zero")


def _check_loaded(sim: ClusterSimulator, b: int, workload: Workload) -> None:
    env, jobs = sim.state.env[b], sim.state.jobs[b, : workload.num_jobs]
    claims = Claims(b, int(env["interval"]))
    claims.same("jobs", "num_jobs", int(env["num_jobs"]), workload.num_jobs)
    claims.same("fixed", "noise_key", int(env["noise_key"]), int(workload.noise_key))
    for name in GIVEN:
        values = workload.type_idx if name == "type" else getattr(workload, name)
        claims.close("fixed", name, jobs[name], values, jobs=range(len(jobs)))
    for name in ("epochs_done", "gpu_s", "intervals_run", "num_resizes", "last_workers", "last_ps"):
        claims.close("work", f"{name} of a new episode", jobs[name], np.zeros(len(jobs)), jobs=range(len(jobs)))
    for name in ("num_finished", "num_decisions", "num_intervals_full", "used_cpu_s", "used_gpu_s"):
        claims.same("work", f"{name} of a new episode", float(env[name]), 0.0)
    first_s = float(workload.arrival_s[0])
    before_s = (int(env["interval"]) - 1) * sim.config.dynamics.interval_s
    claims.that(
        env["interval"] == 0 or (sim.config.dynamics.auto_advance and first_s > before_s),
        "time",
        f"the episode starts in interval {env['interval']}, its first job arrives at {first_s:g} s",
    )


class CheckedScheduler:
    """A scheduler whose every decision, and everything that follows from it, is checked; see `checked`."""

    def __init__(self, scheduler: Scheduler, every: int = 1) -> None:
        self._scheduler = scheduler
        self._every = every
        self._num_calls = 0
        self.name = scheduler.name

    def configure(self, config: EnvConfig) -> EnvConfig:
        """What the scheduler asks for."""
        return configured(self._scheduler, config)

    def _watch(self, sim: ClusterSimulator) -> None:
        """Checks the simulator from now on, for as long as it lives."""
        if InvariantChecker.watching(sim) is None:
            InvariantChecker(sim, self._every).__enter__().check()

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """The scheduler's actions; see `Scheduler.act`.

        Raises:
            InvariantError: The state before the decision is wrong, or the scheduler changed it.
        """
        sim = view.simulator
        self._watch(sim)
        self._num_calls += 1
        if (self._num_calls - 1) % self._every:
            return self._scheduler.act(observation, action_mask, view)
        before: dict[str, NDArray[Any]] = dict(sim.snapshot().arrays)
        before["env"]["pinned_server"] = 0  # the one thing a scheduler may set
        is_live = ~sim.is_done
        claims = Claims(None, None)
        claims.that(
            np.array_equal(action_mask[is_live], sim.state.mask[is_live]),
            "mask",
            "the scheduler is shown another mask than the simulator's",
        )
        actions = self._scheduler.act(observation, action_mask, view)
        for name, values in before.items():
            now = getattr(sim.state, name)
            if name == "env":
                now = now.copy()
                now["pinned_server"] = 0
            for field in values.dtype.names or (None,):
                was, is_now = (values, now) if field is None else (values[field], now[field])
                same = np.array_equal(was, is_now, equal_nan=was.dtype.kind == "f")
                label = name if field is None else f"{name}.{field}"
                claims.that(same, "read-only", f"scheduler {self.name!r} changed {label} of the simulator")
        return actions


class CheckedIntervalScheduler(CheckedScheduler):
    """The same for a scheduler that takes the decisions of whole intervals in a kernel."""

    _scheduler: IntervalScheduler

    def run_intervals(self, simulator: ClusterSimulator, num_intervals: int) -> NDArray[np.int64]:
        """See `IntervalScheduler.run_intervals`."""
        self._watch(simulator)
        return self._scheduler.run_intervals(simulator, num_intervals)


def checked(scheduler: Scheduler, every: int = 1, by_intervals: bool = False) -> CheckedScheduler:
    """Wraps a scheduler so that any run with it is checked: `evaluate`, `run_scheduler`, recording, an own loop.

    From the first decision on, the simulator behind the view is watched until it is dropped: its state before each
    decision, that the scheduler only reads it, and each step and load (see `InvariantChecker`).

    Args:
        scheduler: The scheduler.
        every: Check one decision in so many, and those that end an interval.
        by_intervals: Keep to the scheduler's `run_intervals` if it has one. Its decisions are then not seen, only what
            comes of them; without it everything goes through `act`, where each can be checked.
    """
    if by_intervals and isinstance(scheduler, IntervalScheduler):
        return CheckedIntervalScheduler(scheduler, every)
    return CheckedScheduler(scheduler, every)
