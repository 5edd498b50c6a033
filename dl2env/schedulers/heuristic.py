"""What the heuristics share: they see every job, and each is a rule that kernels score jobs by."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.jit import inline_kernel
from dl2env.schedulers.base import ClusterView, Observation
from dl2env.sim.placement import BUNDLE, PS, WORKER
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS

NUM_PARAMS = 5
NUM_LEVELS = 32
"""Levels of attained service that a plan may tell apart."""

CANDIDATE_DTYPE = np.dtype(
    [
        ("key", np.float64),  # the candidate with the highest key is next, of equal keys the earliest job
        ("order", np.float64),  # of a planned rule: jobs with a higher one are served first
        ("version", np.int32),  # tells whether the key is up to date
        ("server", np.int16),  # server for the next task, -1: the placement strategy decides
        ("kind", np.int8),  # next task, -1: none
        ("legal", np.int8),  # bit k: tasks of kind k are legal
        ("workers", np.int16),  # of a planned rule: wanted numbers
        ("ps", np.int16),
        ("gpu_kind", np.int16),  # of a planned rule: workers on this GPU kind only, -1: any
        ("step", np.int16),  # of a plan that grows jobs step by step: how far this one has come
    ],
    align=True,
)


STEP_DTYPE = np.dtype(
    [
        ("speed", np.float64),  # estimated isolated samples/s
        ("share", np.float64),  # dominant share of the cluster
        ("workers", np.int16),
        ("ps", np.int16),
    ],
    align=True,
)
"""An allocation that a plan considers for a job of some type."""


class Scratch(NamedTuple):
    """Room for kernels that serve one environment after the other.

    N: jobs of the longest episode, T: job types, C: cells of the estimate of a type, G: GPU kinds.
    """

    candidates: NDArray[np.void]  # (N,) CANDIDATE_DTYPE, by job
    heap: NDArray[np.int32]  # (N,) jobs, a binary heap by key
    values: NDArray[np.float64]  # (N,) for plans to work in
    levels: NDArray[np.float64]  # (NUM_LEVELS, 4) for plans that group jobs by the service they have attained
    requests: NDArray[np.int16]  # (T, 2) workers and PSs that jobs of a type ask for
    cells: NDArray[np.void]  # (C,) STEP_DTYPE, for `write_steps` to work in
    steps: NDArray[np.void]  # (T, C + 1) STEP_DTYPE: allocations by which jobs of a type grow, see `growth`
    num_steps: NDArray[np.int16]  # (T,) how many, the first not counted; -1: not worked out yet
    rates: NDArray[np.float64]  # (T, G, 4) what a gang of a type is on a GPU kind, see `gavel_program`
    kinds: NDArray[np.float64]  # (G, 5) state of the GPU kinds
    program: NDArray[np.float64]  # (3, max(G + 1, 3), G + 2) a linear program
    fractions: NDArray[np.float64]  # (G + 3, N, G) shares of time on GPU kinds, and candidates for them
    shared: NDArray[np.float64]  # (8,) what `prepare` finds out for `score_shared`
    terms: NDArray[np.float64]  # (4,) reward terms, of no interest here

    @classmethod
    def of(cls, num_jobs: int, num_types: int = 0, num_cells: int = 0, num_kinds: int = 0) -> Scratch:
        """Room for episodes of up to `num_jobs` jobs of `num_types` types."""
        return cls(
            candidates=np.zeros(num_jobs, CANDIDATE_DTYPE),
            heap=np.zeros(num_jobs, np.int32),
            values=np.zeros(num_jobs),
            levels=np.zeros((NUM_LEVELS, 4)),
            requests=np.zeros((num_types, 2), np.int16),
            cells=np.zeros(num_cells, STEP_DTYPE),
            steps=np.zeros((num_types, num_cells + 1), STEP_DTYPE),
            num_steps=np.zeros(num_types, np.int16),
            rates=np.zeros((num_types, num_kinds, 4)),
            kinds=np.zeros((num_kinds, 5)),
            program=np.zeros((3, max(num_kinds + 1, 3), num_kinds + 2)),
            fractions=np.zeros((num_kinds + 3, num_jobs, num_kinds)),
            shared=np.zeros(8),
            terms=np.zeros(len(REWARD_TERMS)),
        )

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Jobs, types, cells and GPU kinds there is room for."""
        return len(self.heap), len(self.requests), len(self.cells), len(self.kinds)


@inline_kernel
def shares_server(classes, demands):
    """Whether one worker and one parameter server of a type can share a server of the empty cluster.

    Args:
        classes: TYPE_CLASSES_DTYPE record of the type.
        demands: (D,) DEMAND_DTYPE.
    """
    return demands[classes.bundle].initial_fit > 0


@inline_kernel
def is_half_started(job, job_type, is_paired):
    """Whether a job of a type that cannot start on one server has one role only.

    It goes first, or workers of many jobs could take the room of all parameter servers.
    """
    return not is_paired and job_type.max_ps > 0 and (job.workers > 0) != (job.ps > 0)


@inline_kernel
def counts_after(job, job_type, is_paired, kind):
    """(workers, parameter servers) by which to judge an action: those after it.

    A job whose first worker and parameter server no server can hold together starts with one of them; that one is
    judged as if it brought the other.
    """
    workers = job.workers + (0 if kind == PS else 1)
    num_ps = job.ps + (0 if kind == WORKER else 1)
    if not is_paired and job_type.max_ps > 0 and job.workers == 0 and job.ps == 0:
        return 1, 1
    return workers, num_ps


@inline_kernel
def has_kind(legal, kind):
    """Whether tasks of a kind are among the legal ones."""
    return (legal >> kind) & 1 == 1


@inline_kernel
def grow_kind(legal, job, job_type, is_paired, ps_per_worker):
    """Kind of the legal action that adds tasks to a job in the given ratio, -1 when there is none.

    Args:
        legal: Bits of the legal kinds.
        job: JOB_DTYPE record.
        job_type: TYPE_DTYPE record.
        is_paired: Add a worker and a parameter server (PS) at once where both are wanted. Off, for types whose pair no
            server can hold, they come one after the other.
        ps_per_worker: Wanted parameter servers per worker; types without parameter servers just get workers.
    """
    kind = BUNDLE
    if job_type.max_ps == 0:
        kind = WORKER
    elif job.workers > 0 and job.ps + 1 <= job.workers * ps_per_worker:
        kind = PS
    elif job.ps > 0 and job.ps >= (job.workers + 1) * ps_per_worker:
        kind = WORKER
    elif not is_paired:
        kind = PS if job.workers > 0 and job.ps == 0 else WORKER
    return kind if has_kind(legal, kind) else -1


@inline_kernel
def remaining_seconds(job, best_speed):
    """Seconds a job has left at the best isolated speed of its type, by the user's estimate of its epochs."""
    return max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch / best_speed


def checked_option(rule: str, name: str, value: float, low: float, high: float, *, above: bool = False) -> float:
    """A numeric option of a scheduler, if it lies between `low` and `high`; `high` itself is excluded when infinite.

    Args:
        rule: Name of the scheduler.
        name: Name of the option.
        value: Its value.
        low: Smallest value.
        high: Largest value.
        above: The smallest value is excluded too.

    Raises:
        ConfigError: It does not, or is no number.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value > low if above else value >= low) or value > high or math.isinf(value):
        bounds = f"{'(' if above else '['}{low:g}, {high:g}{')' if math.isinf(high) else ']'}"
        raise ConfigError(f"{rule}: {name}={value!r} must be a number in {bounds}")
    return value


class SeesAllJobs:
    """Asks for a window as large as the episode."""

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Widens the window to all jobs: a heuristic has no input layer to keep small."""
        window = max(config.workload.num_jobs, config.observation.window)
        return dataclasses.replace(config, observation=dataclasses.replace(config.observation, window=window))


class Heuristic(SeesAllJobs):
    """Base of the heuristics: sees every job of the episode in its window and decides by a rule that kernels know.

    `act` takes one decision, like every scheduler; `run_intervals` takes all decisions of whole intervals in one kernel
    call, with the same outcome.

    Attributes:
        name: What tables call it.
        code: The rule, one of `schedulers.codes`.
        params: (NUM_PARAMS,) its parameters.
    """

    name = "heuristic"
    deterministic = True  # rules that draw, draw by seed, workload and decision
    code: int

    def __init__(self, *params: float) -> None:
        self.params = np.zeros(NUM_PARAMS)
        self.params[: len(params)] = params
        self._scratch = Scratch.of(0)

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """Chooses one action per environment; see `Scheduler.act`."""
        from dl2env.schedulers.engine import choose  # it knows all rules, so it imports this module

        del observation
        actions = np.full(len(action_mask), action_mask.shape[1] - 1, dtype=np.int64)
        servers = np.full(len(action_mask), -1, dtype=np.int64)
        sim = view.simulator
        choose(sim.state, action_mask, self.code, self.params, self._room(sim), actions, servers)
        if servers.max() >= 0 or view.pinned_server.max() >= 0:
            view.pin_servers(servers)
        return actions

    def run_intervals(self, simulator: ClusterSimulator, num_intervals: int) -> NDArray[np.int64]:
        """Takes all decisions of the next intervals; see `IntervalScheduler.run_intervals`."""
        from dl2env.schedulers.engine import run_intervals

        return simulator.run_intervals(run_intervals, num_intervals, self.code, self.params, self._room(simulator))

    def _room(self, simulator: ClusterSimulator) -> Scratch:
        num_types, num_kinds = simulator.state.compute_s.shape
        _, _, num_workers, num_ps, _ = simulator.state.estimate.shape
        needed = (simulator.max_jobs, num_types, num_workers * num_ps, num_kinds)
        if any(have < need for have, need in zip(self._scratch.size, needed, strict=True)):
            self._scratch = Scratch.of(*needed)
        return self._scratch
