"""Runs schedulers on the same workloads and keeps what happened to every job."""

from __future__ import annotations

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
    from dl2env.schedulers.base import Scheduler

DEFAULT_BATCH = 64

Progress = Callable[[str, int, int], None]
"""Called with the scheduler's name, the number of finished workloads and their total."""


class SchedulerError(Dl2EnvError):
    """A scheduler broke its contract; the message names it."""


@dataclass(frozen=True)
class Latency:
    """How long a scheduler took to decide. Wall-clock time, so it differs from run to run.

    The first call is left out unless it is the only one: it may compile kernels or load a library.

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
    """

    name: str
    config: EnvConfig
    metrics: tuple[EpisodeMetrics, ...]
    records: tuple[JobRecords, ...]
    num_illegal: NDArray[np.int64]
    latency: Latency

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
    from dl2env.schedulers.base import configured

    if not workloads or batch < 1:
        raise ConfigError(f"evaluation: {len(workloads)} workloads in batches of {batch}; both must be at least 1")
    name = scheduler.name if name is None else name
    config = configured(scheduler, config)
    sim = ClusterSimulator(config, min(batch, len(workloads)), max_jobs=max(w.num_jobs for w in workloads))
    run = _Run(name, scheduler, sim, workloads)
    run.start(np.arange(sim.num_envs))
    while run.is_live.any():
        done = run.step()
        if len(done) == 0:
            continue
        if progress is not None:
            for k in range(len(done)):
                progress(name, run.num_finished - len(done) + k + 1, len(workloads))
        run.start(done)
    return run.result()


class _Run:
    """State of `run_scheduler`: which workload each environment plays, and what is known so far."""

    def __init__(self, name: str, scheduler: Scheduler, sim: ClusterSimulator, workloads: Sequence[Workload]) -> None:
        from dl2env.schedulers.base import ClusterView

        self._name = name
        self._scheduler = scheduler
        self._sim = sim
        self._view = ClusterView(sim)
        self._workloads = workloads
        self._playing = np.full(sim.num_envs, -1)  # workload of each live environment
        self._next = 0
        self._records: list[JobRecords | None] = [None] * len(workloads)
        self._num_illegal = np.zeros(len(workloads), dtype=np.int64)
        self._calls: list[tuple[float, int]] = []  # seconds and live environments of each call
        self.num_finished = 0
        self.is_live = np.zeros(sim.num_envs, dtype=np.bool_)  # environments that play a workload

    def start(self, env_idx: NDArray[np.integer]) -> None:
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

    def step(self) -> NDArray[np.intp]:
        """One decision in every environment; returns the environments whose episode ended."""
        is_live = self.is_live
        num_live = int(is_live.sum())
        mask = self._sim.action_masks()
        if num_live < len(mask):
            mask[~is_live, :-1] = False
        observation = self._sim.observation()
        started = time.perf_counter()
        try:
            actions = self._scheduler.act(observation, mask, self._view)
        except Exception as error:
            error.add_note(f"raised by scheduler {self._name!r}")
            raise
        self._calls.append((time.perf_counter() - started, num_live))
        report = self._sim.step(checked_actions(self._name, actions, is_live, self._sim.num_actions))
        if report.is_illegal.any():  # no workload is played twice at a time, so fancy indexing adds up
            self._num_illegal[self._playing[report.is_illegal]] += 1
        done = np.flatnonzero(report.terminated | report.truncated)
        for b in done:
            self._records[self._playing[b]] = self._sim.records(int(b))
        self.num_finished += len(done)
        return done

    def result(self) -> SchedulerResult:
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
        calls = np.array(self._calls[1:] or self._calls)
        latency = Latency(
            total_s=float(calls[:, 0].sum()),
            num_calls=len(calls),
            num_decisions=int(calls[:, 1].sum()),
            p99_call_s=float(np.percentile(calls[:, 0], 99)),
        )
        return SchedulerResult(self._name, sim.config, metrics, records, self._num_illegal, latency)


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
