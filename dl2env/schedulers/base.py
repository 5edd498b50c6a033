"""The contract of everything that decides, and the structured view of the clusters it may use."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.estimate import SpeedEstimate

Observation = dict[str, NDArray[np.float32]]


@runtime_checkable
class Scheduler(Protocol):
    """Chooses one action per environment and decision.

    Attributes:
        name: What tables call it.
    """

    name: str

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """Decides.

        Args:
            observation: `jobs` (B, J, F) and `cluster` (B, C).
            action_mask: (B, 3 J + 1), True where an action is legal; the last action, void, always is.
            view: Structured access to the same clusters.

        Returns:
            (B,) actions.
        """
        ...


@runtime_checkable
class IntervalScheduler(Scheduler, Protocol):
    """A scheduler that can also take all decisions of whole intervals at once, which saves a call per decision."""

    def run_intervals(self, simulator: ClusterSimulator, num_intervals: int) -> NDArray[np.int64]:
        """Takes all decisions of the next intervals of every environment that is not done.

        The outcome is that of `act` with a window that holds all jobs.

        Args:
            simulator: The clusters.
            num_intervals: How many intervals to run; fewer in environments whose episode ends.

        Returns:
            (B,) numbers of illegal actions.
        """
        ...


def configured(scheduler: Scheduler, config: EnvConfig) -> EnvConfig:
    """The configuration under which a scheduler wants to be run: what it sees, never what happens.

    A scheduler may have a method `configure(config) -> EnvConfig` that changes `observation` (a heuristic wants all
    jobs in its window) and `estimate` (Optimus with fitted speeds).

    Raises:
        ConfigError: It changed anything else, or returned no configuration.
    """
    configure = getattr(scheduler, "configure", None)
    if configure is None:
        return config
    wanted: EnvConfig = configure(config)
    if not isinstance(wanted, EnvConfig):
        raise ConfigError(f"scheduler {scheduler.name!r}: configure() must return an EnvConfig, not {wanted!r}")
    if dataclasses.replace(wanted, observation=config.observation, estimate=config.estimate) != config:
        raise ConfigError(f"scheduler {scheduler.name!r}: configure() may change only `observation` and `estimate`")
    return wanted


class ClusterView:
    """Structured access to B clusters, read-only but for `pin_servers`. Each access reads the present state.

    (B, J) arrays follow the window; entries of empty slots are 0 (`job_idx`: -1).
    """

    def __init__(self, simulator: ClusterSimulator) -> None:
        self._simulator = simulator

    @property
    def simulator(self) -> ClusterSimulator:
        """The simulator behind the view, for kernels that read its arrays; not to be stepped or changed."""
        return self._simulator

    @property
    def config(self) -> EnvConfig:
        """Configuration of the clusters."""
        return self._simulator.config

    @cached_property
    def estimate(self) -> SpeedEstimate:
        """Estimated speeds by type, workers and PSs (of environment 0, where environments know different things)."""
        return SpeedEstimate(self._simulator.speed, self._simulator.state.estimate[0])

    @property
    def is_done(self) -> NDArray[np.bool_]:
        """(B,) environments whose episode has ended."""
        return self._simulator.is_done

    @property
    def job_idx(self) -> NDArray[np.int32]:
        """(B, J) index of the job in each slot within its episode, -1 for an empty slot."""
        return self._simulator.state.window.copy()

    @property
    def is_present(self) -> NDArray[np.bool_]:
        """(B, J) slots that hold a job."""
        return self._simulator.state.window >= 0

    def _jobs(self, field: str) -> NDArray[np.generic]:
        window = self._simulator.state.window
        values = np.take_along_axis(self._simulator.state.jobs[field], np.maximum(window, 0), axis=1)
        values[window < 0] = 0
        return values

    @property
    def type_idx(self) -> NDArray[np.generic]:
        """(B, J) job types."""
        return self._jobs("type")

    @property
    def workers(self) -> NDArray[np.generic]:
        """(B, J) workers allocated in this interval."""
        return self._jobs("workers")

    @property
    def ps(self) -> NDArray[np.generic]:
        """(B, J) parameter servers allocated in this interval."""
        return self._jobs("ps")

    @property
    def arrival_s(self) -> NDArray[np.generic]:
        """(B, J) arrival times in seconds."""
        return self._jobs("arrival_s")

    @property
    def dominant_share(self) -> NDArray[np.generic]:
        """(B, J) largest share of a cluster resource that the job holds."""
        return self._jobs("dominant_share")

    @property
    def speed(self) -> NDArray[np.generic]:
        """(B, J) estimated samples/s under the present placement and contention."""
        return self._jobs("speed")

    @property
    def remaining_samples(self) -> NDArray[np.float64]:
        """(B, J) samples left by the user's estimate."""
        left = np.maximum(self._jobs("epochs").astype(np.float64) - self._jobs("epochs_done").astype(np.float64), 0.0)
        return np.asarray(left * self._jobs("samples_per_epoch"))

    @property
    def remaining_s(self) -> NDArray[np.float64]:
        """(B, J) seconds left at the best isolated speed of each job's type."""
        state = self._simulator.state
        env = np.arange(self._simulator.num_envs)[:, None] % state.best_speed.shape[0]
        best = state.best_speed[env, np.maximum(self._jobs("type").astype(np.int64), 0)]
        return np.asarray(self.remaining_samples / best)

    @property
    def free_cpus(self) -> NDArray[np.generic]:
        """(B,) free CPU units of the cluster."""
        return self._simulator.state.env["free_cpus"].copy()

    @property
    def free_gpus(self) -> NDArray[np.generic]:
        """(B,) free GPU units of the cluster."""
        return self._simulator.state.env["free_gpus"].copy()

    @property
    def interval(self) -> NDArray[np.generic]:
        """(B,) index of the current scheduling interval."""
        return self._simulator.state.env["interval"].copy()

    @property
    def pinned_server(self) -> NDArray[np.generic]:
        """(B,) server that takes the next tasks, -1 where the placement strategy decides."""
        return self._simulator.state.env["pinned_server"].copy()

    def pin_servers(self, servers: NDArray[np.integer]) -> None:
        """Sends the next tasks of each environment to one server, for schedulers that place tasks themselves.

        The mask does not know of it: a task that does not fit there fails, which ends the interval.

        Args:
            servers: (B,) server ids; -1 leaves the choice to the placement strategy, as does each new interval.
        """
        chosen = np.asarray(servers)
        if ((chosen < -1) | (chosen >= self._simulator.state.specs.shape[0])).any():
            raise ConfigError(f"pin_servers: servers are 0 to {self._simulator.state.specs.shape[0] - 1}, or -1")
        self._simulator.state.env["pinned_server"] = chosen
