"""The batch simulator: B independent clusters stepped together by numba kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.sim import dynamics, features, fitting
from dl2env.sim.build import build_state
from dl2env.sim.estimates import Estimator
from dl2env.sim.state import REWARD_TERMS, Report, State
from dl2env.speed.parameters import SpeedParameters
from dl2env.workload.job_types import JobType
from dl2env.workload.jobs import Workload

_NUM_TERMS = len(REWARD_TERMS)
_NUM_FLAGS = len(Report._fields) - 1

_MUTABLE = (
    "env",
    "jobs",
    "active",
    "entries",
    "servers",
    "least_loaded",
    "server_jobs",
    "server_entries",
    "num_fit",
    "estimate",
    "best_speed",
    "fit",
    "window",
    "obs_jobs",
    "obs_cluster",
    "mask",
)

_OBSERVED = ("window", "obs_jobs", "obs_cluster", "mask")
"""Of these, what depends on the size of the window."""


@dataclass(frozen=True)
class JobRecords:
    """What happened to the jobs of one environment, in arrival order. Times in seconds from the episode's start.

    Attributes:
        arrival_s: (N,) arrival times.
        start_s: (N,) start of the first interval in which the job trained; NaN if it never did.
        finish_s: (N,) completion times; NaN for unfinished jobs.
        type_idx: (N,) job types.
        epochs: (N,) total epochs as estimated.
        epochs_done: (N,) epochs trained.
        samples_per_epoch: (N,) samples of an epoch.
        gpu_s: (N,) GPU unit seconds held.
        num_resizes: (N,) changes of allocation between intervals in which it trained.
        intervals_run: (N,) intervals in which it trained.
        num_intervals: Intervals that have begun and ended.
        end_s: Time at which the records were taken: the start of the current interval.
        used_cpu_s, used_gpu_s: Allocated unit seconds of the cluster.
        num_decisions: Decisions taken.
        share_full: Share of ended intervals at whose end some job type's task fitted no server.
    """

    arrival_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    type_idx: NDArray[np.int16]
    epochs: NDArray[np.float64]
    epochs_done: NDArray[np.float64]
    samples_per_epoch: NDArray[np.float64]
    gpu_s: NDArray[np.float64]
    num_resizes: NDArray[np.int32]
    intervals_run: NDArray[np.int32]
    num_intervals: int
    end_s: float
    used_cpu_s: float
    used_gpu_s: float
    num_decisions: int
    share_full: float

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """(N,) job completion times; NaN for unfinished jobs."""
        return self.finish_s - self.arrival_s


class Snapshot(NamedTuple):
    """Copies of everything that changes; see `ClusterSimulator.restore`."""

    arrays: dict[str, NDArray[np.generic]]
    is_done: NDArray[np.bool_]


class ClusterSimulator:
    """B clusters with their job queues, stepped one scheduling decision at a time.

    Args:
        config: What to simulate.
        num_envs: B, the number of independent clusters.
        max_jobs: Longest episode that can be loaded; default `config.workload.num_jobs`.
        job_types: Catalogue to use instead of the one `config.workload` names.
        speed: Speed parameters to use instead of the ones built from the configuration.

    Raises:
        Dl2EnvError: The configuration cannot be simulated, for example because a type's task fits no server.
    """

    def __init__(
        self,
        config: EnvConfig,
        num_envs: int,
        max_jobs: int | None = None,
        job_types: Sequence[JobType] | None = None,
        speed: SpeedParameters | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs={num_envs} must be at least 1")
        self.config = config
        self.num_envs = num_envs
        self.max_jobs = config.workload.num_jobs if max_jobs is None else max_jobs
        self.state: State
        self.speed: SpeedParameters
        self._estimator: Estimator
        self.state, self.speed, self._estimator = build_state(config, num_envs, self.max_jobs, job_types, speed)
        self._fits_online = config.estimate.kind == "fitted"
        self._is_done = np.ones(num_envs, dtype=np.bool_)

    @property
    def window(self) -> int:
        """J, the number of job slots."""
        return self.config.observation.window

    @property
    def num_actions(self) -> int:
        """3 J + 1."""
        return 3 * self.window + 1

    @property
    def is_done(self) -> NDArray[np.bool_]:
        """(B,) environments whose episode has ended and that wait for `load`."""
        return self._is_done.copy()

    def load(self, env_idx: Sequence[int] | NDArray[np.integer], workloads: Sequence[Workload]) -> None:
        """Puts a workload into each of the given environments and moves them to their first decision.

        Args:
            env_idx: Environments to reset.
            workloads: One per environment.

        Raises:
            ConfigError: A workload has more jobs than `max_jobs` or another catalogue than the simulator.
        """
        indices = np.asarray(env_idx, dtype=np.int64)
        if len(indices) != len(workloads):
            raise ConfigError(f"load: {len(indices)} environments but {len(workloads)} workloads")
        for b, workload in zip(indices, workloads, strict=True):
            self._write_jobs(int(b), workload)
        dynamics.reset_envs(self.state, indices)
        self._is_done[indices] = False

    def _write_jobs(self, b: int, workload: Workload) -> None:
        n = workload.num_jobs
        if n > self.max_jobs:
            raise ConfigError(f"the workload has {n} jobs, the simulator was built for max_jobs={self.max_jobs}")
        if workload.type_names != self.speed.type_names:
            raise ConfigError(
                f"the workload uses the job types {', '.join(workload.type_names)}; the simulator was built for "
                f"{', '.join(self.speed.type_names)}"
            )
        last_s = (self.config.dynamics.max_intervals - 1) * self.config.dynamics.interval_s
        if workload.arrival_s[0] > last_s:
            raise ConfigError(
                f"the workload's first job arrives at {workload.arrival_s[0]:g} s, after the last interval of an "
                f"episode begins ({last_s:g} s); raise dynamics.max_intervals or shift the arrivals"
            )
        jobs = self.state.jobs[b, :n]
        jobs[:] = np.zeros((), dtype=jobs.dtype)
        jobs["arrival_s"] = workload.arrival_s
        jobs["type"] = workload.type_idx
        jobs["epochs"] = workload.epochs
        jobs["true_epochs"] = workload.true_epochs
        jobs["samples_per_epoch"] = workload.samples_per_epoch
        jobs["start_s"] = np.nan
        jobs["finish_s"] = np.nan
        jobs["stretch"] = 1.0
        jobs["slot"] = -1
        env = self.state.env[b]
        env["num_jobs"] = n
        env["noise_key"] = workload.noise_key
        self._estimator.write(self.state, b, workload.noise_key)

    def step(self, actions: ArrayLike) -> Report:
        """Takes one decision in each environment that is not done.

        Args:
            actions: (B,) actions; entries of done environments are ignored.

        Returns:
            A report of fresh arrays; all zero for environments that were done.

        Raises:
            ConfigError: The actions are not one integer per environment.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,):
            raise ConfigError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if chosen.dtype != np.int64:
            if chosen.dtype.kind not in "iu":
                raise ConfigError(f"actions must be integers, got {chosen.dtype}")
            chosen = chosen.astype(np.int64)
        report = Report(np.empty((self.num_envs, _NUM_TERMS)), *np.empty((_NUM_FLAGS, self.num_envs), dtype=np.bool_))
        dynamics.step_envs(self.state, chosen, self._is_done, report)
        if self._fits_online and report.interval_ended.any():
            fitting.refit_estimates(self.state, report.interval_ended & ~self._is_done)
        return report

    def run_intervals(self, decide: Callable[..., None], num_intervals: int, *rule: Any) -> NDArray[np.int64]:
        """Lets a kernel take all decisions of whole intervals, in each environment that is not done.

        Afterwards an environment is at the first decision of an interval and can be stepped like any other, except that
        this interval may offer void alone. Rewards of the skipped intervals are lost.

        Args:
            decide: Kernel `decide(state, is_done, num_intervals, num_illegal, *rule)`; it must end each interval by
                `dynamics.advance`, mark environments that are done, and count actions that failed.
            num_intervals: How many intervals at most.
            *rule: Passed on to the kernel.

        Returns:
            (B,) numbers of actions that failed.
        """
        num_illegal = np.zeros(self.num_envs, dtype=np.int64)
        # What is known of speeds changes with every interval that was observed.
        rounds, intervals = (num_intervals, 1) if self._fits_online else (1, num_intervals)
        for _ in range(rounds):
            if self._is_done.all():
                break
            decide(self.state, self._is_done, intervals, num_illegal, *rule)
            if self._fits_online:
                fitting.refit_estimates(self.state, ~self._is_done)
        return num_illegal

    @contextmanager
    def only(self, env_idx: Sequence[int]) -> Iterator[None]:
        """While entered, only these environments take part in `step` and `run_intervals`."""
        was_done = self._is_done.copy()
        chosen = np.asarray(env_idx, dtype=np.int64)
        self._is_done[:] = True
        self._is_done[chosen] = was_done[chosen]
        try:
            yield
        finally:
            was_done[chosen] = self._is_done[chosen]
            self._is_done[:] = was_done

    def observation(self, env_idx: Sequence[int] | NDArray[np.integer] | None = None) -> dict[str, NDArray[np.float32]]:
        """What an agent sees, see `sim.features`.

        Args:
            env_idx: n environments; all by default.

        Returns:
            Fresh arrays `jobs` (n, J, F) and `cluster` (n, C).
        """
        chosen = np.arange(self.num_envs) if env_idx is None else np.asarray(env_idx, dtype=np.int64)
        jobs = self.state.obs_jobs[chosen]
        features.write_gains(self.state, chosen, jobs)
        return {"jobs": jobs, "cluster": self.state.obs_cluster[chosen]}

    def action_masks(self) -> NDArray[np.bool_]:
        """Fresh (B, 3 J + 1) array, True where the action is legal; void always is."""
        return self.state.mask.copy()

    def records(self, b: int) -> JobRecords:
        """Per-job records of environment b, as they stand now."""
        env = self.state.env[b]
        jobs = self.state.jobs[b, : int(env["num_jobs"])]
        intervals = int(env["interval"])
        return JobRecords(
            **{
                name: jobs[name].copy()
                for name in (
                    "arrival_s",
                    "start_s",
                    "finish_s",
                    "epochs",
                    "epochs_done",
                    "samples_per_epoch",
                    "gpu_s",
                    "num_resizes",
                    "intervals_run",
                )
            },
            type_idx=jobs["type"].copy(),
            num_intervals=intervals,
            end_s=intervals * self.config.dynamics.interval_s,
            used_cpu_s=float(env["used_cpu_s"]),
            used_gpu_s=float(env["used_gpu_s"]),
            num_decisions=int(env["num_decisions"]),
            share_full=float(env["num_intervals_full"]) / max(intervals, 1),
        )

    def snapshot(self) -> Snapshot:
        """Copies everything that changes."""
        return Snapshot({name: getattr(self.state, name).copy() for name in _MUTABLE}, self._is_done.copy())

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of this simulator (or of one with the same configuration and size)."""
        for name, values in snapshot.arrays.items():
            getattr(self.state, name)[...] = values
        self._is_done[:] = snapshot.is_done

    def copy_env(self, other: ClusterSimulator, source: int, targets: NDArray[np.integer]) -> None:
        """Puts an environment of another simulator, in its present state, into environments of this one.

        Args:
            other: A simulator of the same world and `max_jobs`; its window may differ, and is not copied.
            source: Environment of `other`.
            targets: Environments of this simulator to overwrite.
        """
        for name in _MUTABLE:
            if name not in _OBSERVED:
                ours, theirs = getattr(self.state, name), getattr(other.state, name)
                if len(theirs) == other.num_envs and len(ours) == self.num_envs:
                    ours[targets] = theirs[source]
        self._is_done[targets] = other._is_done[source]
        self.state.env["num_legal"][targets] = self.state.mask[targets, :-1].sum(axis=1)
        dynamics.refill_windows(self.state, np.asarray(targets, dtype=np.int64))
