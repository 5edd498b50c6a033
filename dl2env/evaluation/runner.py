"""Runs schedulers on the same workloads and keeps what happened to every job.

Schedulers that can take the decisions of whole intervals at once are run that way, which is several times faster; the
outcome is the same.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.evaluation.metrics import METRIC_NAMES, EpisodeMetrics, IsolatedSpeeds, episode_metrics
from dl2env.scenarios import Scenario, Split
from dl2env.sim.simulator import ClusterSimulator, JobRecords
from dl2env.workload.jobs import Workload

if TYPE_CHECKING:
    from dl2env.schedulers.base import ClusterView, IntervalScheduler, Scheduler

DEFAULT_BATCH = 64
_INTERVALS_PER_CALL = 64  # between two looks at progress and Ctrl-C
_LATENCY_SAMPLE = 300  # decisions

Progress = Callable[[str, int, int], None]
"""Called with the scheduler's name, the number of finished workloads and their total."""


class SchedulerError(Dl2EnvError):
    """A scheduler broke its contract; the message names it."""


@dataclass(frozen=True)
class Latency:
    """How long a scheduler took to decide. Wall-clock time, so it differs from run to run.

    The first call is left out unless it is the only one: it may compile kernels or load a library. For a scheduler that
    was run by whole intervals it comes from a sample of single decisions, from the middle of the first workload on.

    Attributes:
        total_s: Time inside `Scheduler.act`.
        num_calls: Calls; each decides for all environments of the batch.
        num_decisions: Decisions for environments that were still running.
        p99_call_s: 99th percentile of one call's time. With `batch=1`, of one decision.
    """

    total_s: float
    num_calls: int
    num_decisions: int
    p99_call_s: float

    @property
    def ms_per_decision(self) -> float:
        """Milliseconds per decision, amortised over the batch."""
        return 1e3 * self.total_s / max(self.num_decisions, 1)


@dataclass(frozen=True)
class SchedulerResult:
    """One scheduler on N workloads, in their order.

    Attributes:
        name: Name of the scheduler.
        config: The world as this scheduler saw it: its own window and knowledge of speeds, if it asks for them.
        metrics: (N) metrics per workload.
        records: (N) records of the jobs per workload.
        num_illegal: (N,) illegal actions per workload; each ended an interval like void.
        latency: Decision times.
        cpu_s: CPU seconds of the whole run, simulation included. Differs from run to run.
    """

    name: str
    config: EnvConfig
    metrics: tuple[EpisodeMetrics, ...]
    records: tuple[JobRecords, ...]
    num_illegal: NDArray[np.int64]
    latency: Latency
    cpu_s: float = float("nan")

    def values(self, metric: str) -> NDArray[np.float64]:
        """(N,) values of one of `METRIC_NAMES` per workload.

        Raises:
            UnknownNameError: There is no such metric.
        """
        if metric not in METRIC_NAMES:
            raise UnknownNameError("metric", metric, METRIC_NAMES)
        return np.array([getattr(metrics, metric) for metrics in self.metrics], dtype=np.float64)


@dataclass(frozen=True)
class Evaluation:
    """Several schedulers on the same workloads of a scenario.

    Attributes:
        scenario: The world.
        split: Which workloads of it.
        workloads: (N) the workloads.
        results: Result of each scheduler, by name, in the order they ran.
        interrupted: The run was stopped by the user; schedulers that had not finished are missing.
    """

    scenario: Scenario
    split: Split
    workloads: tuple[Workload, ...]
    results: dict[str, SchedulerResult] = field(default_factory=dict)
    interrupted: bool = False

    def scores(self, names: str | Sequence[str], metric: str = "mean_jct_intervals") -> NDArray[np.float64]:
        """Scores for `evaluation.statistics`: (N,) for a name, (S, N) for the names of S training runs.

        Raises:
            UnknownNameError: There is no result of that name, or no such metric.
        """
        if isinstance(names, str):
            if names not in self.results:
                raise UnknownNameError("scheduler of this evaluation", names, list(self.results))
            return self.results[names].values(metric)
        return np.stack([self.scores(name, metric) for name in names])


def evaluate(
    schedulers: Mapping[str, Scheduler] | Sequence[Scheduler],
    scenario: Scenario,
    split: Split = "test",
    num_workloads: int = 50,
    batch: int = DEFAULT_BATCH,
    progress: Progress | None = None,
) -> Evaluation:
    """Runs every scheduler on the first workloads of a split, all on the same ones.

    Ctrl-C between or inside schedulers ends the run and returns those that finished; if none has, it is raised.

    Args:
        schedulers: Schedulers by name, or a list of schedulers with distinct `name`s.
        scenario: The world.
        split: Which workloads; `test` for results, `validation` for choices made along the way.
        num_workloads: How many. Scenarios with fixed workloads may have fewer.
        batch: Environments simulated at once. It changes latency, not results.
        progress: Called after each finished workload.

    Raises:
        ConfigError: There is no scheduler, or two share a name, or a number is not positive.
        SchedulerError: A scheduler returned something other than one action per environment.
    """
    named = _by_name(schedulers)
    evaluation = Evaluation(scenario, split, tuple(scenario.workloads(split, num_workloads)))
    try:
        for name, scheduler in named.items():
            evaluation.results[name] = run_scheduler(
                scheduler, scenario.config, evaluation.workloads, name=name, batch=batch, progress=progress
            )
    except KeyboardInterrupt:
        if not evaluation.results:
            raise
        return Evaluation(scenario, split, evaluation.workloads, evaluation.results, interrupted=True)
    return evaluation


def run_scheduler(
    scheduler: Scheduler,
    config: EnvConfig,
    workloads: Sequence[Workload],
    *,
    name: str | None = None,
    batch: int = DEFAULT_BATCH,
    progress: Progress | None = None,
) -> SchedulerResult:
    """Runs one scheduler on workloads, several at once; see `evaluate`."""
    from dl2env.schedulers.base import IntervalScheduler, configured

    if not workloads or batch < 1:
        raise ConfigError(f"evaluation: {len(workloads)} workloads in batches of {batch}; both must be at least 1")
    started = time.process_time()
    name = scheduler.name if name is None else name
    config = configured(scheduler, config)
    run: _Run
    if isinstance(scheduler, IntervalScheduler):
        run = _IntervalRun(name, scheduler, config, workloads, batch)
    else:
        run = _DecisionRun(name, scheduler, config, workloads, batch)
    while run.is_live.any():
        finished_before = run.num_finished
        run.step()
        if progress is not None:
            for count in range(finished_before + 1, run.num_finished + 1):
                progress(name, count, len(workloads))
    return run.result(time.process_time() - started)


class _Run:
    """Progress of `run_scheduler`: which workload each environment plays, and what is known so far."""

    def __init__(
        self, name: str, scheduler: Scheduler, config: EnvConfig, workloads: Sequence[Workload], batch: int
    ) -> None:
        self._name = name
        self._scheduler = scheduler
        self._config = config
        self._sim = self._simulator(min(batch, len(workloads)), workloads)
        self._workloads = workloads
        self._playing = np.full(self._sim.num_envs, -1)  # workload of each live environment
        self._next = 0
        self._records: list[JobRecords | None] = [None] * len(workloads)
        self._num_illegal = np.zeros(len(workloads), dtype=np.int64)
        self.num_finished = 0
        self.is_live = np.zeros(self._sim.num_envs, dtype=np.bool_)  # environments that play a workload
        self._start(np.arange(self._sim.num_envs))

    def _simulator(self, num_envs: int, workloads: Sequence[Workload]) -> ClusterSimulator:
        return ClusterSimulator(self._config, num_envs, max_jobs=max(w.num_jobs for w in workloads))

    def _start(self, env_idx: NDArray[np.integer]) -> None:
        """Gives the next workloads to these environments, as long as there are any."""
        chosen = env_idx[: len(self._workloads) - self._next]
        self.is_live[env_idx] = False
        if len(chosen) == 0:
            return
        numbers = np.arange(self._next, self._next + len(chosen))
        self._next += len(chosen)
        self._playing[chosen] = numbers
        self.is_live[chosen] = True
        self._sim.load(chosen, [self._workloads[i] for i in numbers.tolist()])

    def step(self) -> None:
        """Goes on in every live environment, and starts the next workload where one has ended."""
        num_illegal = self._advance()
        if num_illegal.any():  # no workload is played twice at a time, so fancy indexing adds up
            at_fault = np.flatnonzero(num_illegal)
            self._num_illegal[self._playing[at_fault]] += num_illegal[at_fault]
        done = np.flatnonzero(self._sim.is_done & self.is_live)
        for b in done:
            self._records[self._playing[b]] = self._sim.records(int(b))
        self.num_finished += len(done)
        if len(done):
            self._start(done)

    def _advance(self) -> NDArray[np.integer]:
        """Decides and simulates; returns the illegal actions per environment."""
        raise NotImplementedError

    def _latency(self) -> Latency:
        raise NotImplementedError

    def result(self, cpu_s: float) -> SchedulerResult:
        """Everything, once all workloads are done."""
        sim = self._sim
        specs = sim.state.specs
        speeds = IsolatedSpeeds.of(sim)
        records = tuple(record for record in self._records if record is not None)
        metrics = tuple(
            episode_metrics(
                record,
                workload,
                speeds,
                capacity=(float(specs["cpus"].sum()), float(specs["gpus"].sum())),
                interval_s=sim.config.dynamics.interval_s,
            )
            for record, workload in zip(records, self._workloads, strict=True)
        )
        return SchedulerResult(self._name, self._config, metrics, records, self._num_illegal, self._latency(), cpu_s)


class _DecisionRun(_Run):
    """Asks the scheduler for every decision."""

    def __init__(
        self, name: str, scheduler: Scheduler, config: EnvConfig, workloads: Sequence[Workload], batch: int
    ) -> None:
        from dl2env.schedulers.base import ClusterView

        super().__init__(name, scheduler, config, workloads, batch)
        self._view = ClusterView(self._sim)
        self._calls: list[tuple[float, int]] = []  # seconds and live environments of each call

    def _advance(self) -> NDArray[np.integer]:
        mask = self._sim.action_masks()
        mask[~self.is_live, :-1] = False
        seconds, actions = _timed_act(self._name, self._scheduler, self._sim, self._view, mask)
        self._calls.append((seconds, int(self.is_live.sum())))
        report = self._sim.step(checked_actions(self._name, actions, self.is_live, self._sim.num_actions))
        return report.is_illegal.astype(np.int64)

    def _latency(self) -> Latency:
        return _latency_of(self._calls)


class _IntervalRun(_Run):
    """Lets the scheduler run whole intervals."""

    _scheduler: IntervalScheduler

    def _simulator(self, num_envs: int, workloads: Sequence[Workload]) -> ClusterSimulator:
        # Nothing reads window, observation and mask here; the smallest window costs least.
        narrow = dataclasses.replace(self._config.observation, window=1)
        config = dataclasses.replace(self._config, observation=narrow)
        return ClusterSimulator(config, num_envs, max_jobs=max(w.num_jobs for w in workloads))

    def _advance(self) -> NDArray[np.integer]:
        return self._scheduler.run_intervals(self._sim, _INTERVALS_PER_CALL)

    def _latency(self) -> Latency:
        from dl2env.schedulers.base import ClusterView

        workload = self._workloads[0]
        records = self._records[0]
        sim = super()._simulator(1, [workload])
        sim.load([0], [workload])
        half = records.num_intervals // 2 if records is not None else 0
        while sim.state.env["interval"][0] < half:
            self._scheduler.run_intervals(sim, 1)  # idle intervals are skipped: a larger number could end the episode
        view = ClusterView(sim)
        calls: list[tuple[float, int]] = []
        while len(calls) < _LATENCY_SAMPLE and not sim.is_done[0]:
            seconds, actions = _timed_act(self._name, self._scheduler, sim, view, sim.action_masks())
            calls.append((seconds, 1))
            sim.step(actions)
        return _latency_of(calls)


def _timed_act(
    name: str, scheduler: Scheduler, sim: ClusterSimulator, view: ClusterView, mask: NDArray[np.bool_]
) -> tuple[float, Any]:
    """Seconds that `act` took, and what it returned."""
    observation = sim.observation()
    started = time.perf_counter()
    try:
        actions = scheduler.act(observation, mask, view)
    except Exception as error:
        error.add_note(f"raised by scheduler {name!r}")
        raise
    return time.perf_counter() - started, actions


def _latency_of(calls: Sequence[tuple[float, int]]) -> Latency:
    counted = np.array(calls[1:] or calls)
    return Latency(
        total_s=float(counted[:, 0].sum()),
        num_calls=len(counted),
        num_decisions=int(counted[:, 1].sum()),
        p99_call_s=float(np.percentile(counted[:, 0], 99)),
    )


def checked_actions(name: str, actions: Any, is_live: NDArray[np.bool_], num_actions: int) -> NDArray[np.int64]:
    """The actions of a scheduler as (B,) int64; void in environments that are not live.

    Raises:
        SchedulerError: Wrong shape, not whole numbers, or out of range in a live environment.
    """
    try:
        array = np.asarray(actions)
    except ValueError as error:
        raise SchedulerError(f"scheduler {name!r} returned no array of actions ({error})") from error
    if array.shape != is_live.shape:
        raise SchedulerError(
            f"scheduler {name!r} returned actions of shape {array.shape}; return one per environment, {is_live.shape}"
        )
    if array.dtype.kind not in "iu":
        raise SchedulerError(f"scheduler {name!r} returned actions of type {array.dtype}; return integers (int64)")
    outside = is_live & ((array < 0) | (array >= num_actions))
    if outside.any():
        b = int(np.argmax(outside))
        raise SchedulerError(
            f"scheduler {name!r} returned action {array[b]} in environment {b}; actions are 0 to {num_actions - 1}"
        )
    chosen: NDArray[np.int64] = np.where(is_live, array, num_actions - 1).astype(np.int64)
    return chosen


def _by_name(schedulers: Mapping[str, Scheduler] | Sequence[Scheduler]) -> dict[str, Scheduler]:
    for s in schedulers.values() if isinstance(schedulers, Mapping) else schedulers:
        if isinstance(s, type) or not hasattr(s, "act") or not hasattr(s, "name"):
            raise ConfigError(f"evaluation: {s!r} is no scheduler; give objects such as get_scheduler('drf')")
    pairs = list(schedulers.items()) if isinstance(schedulers, Mapping) else [(s.name, s) for s in schedulers]
    if not pairs:
        raise ConfigError("evaluation: no schedulers; give at least one")
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ConfigError(f"evaluation: two schedulers are named {twice!r}; give a mapping with distinct names")
    return named
