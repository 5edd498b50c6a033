"""The heuristics exactly as the released DL2 code has them, for the faithful mode.

They see all jobs, start from an empty cluster (`initial_bundle=False`) and answer with an action even where no server
can hold it: in the faithful mode a task that does not fit ends the interval, which is how the released code stops. Ties
go to the earlier job. What they do differently from the published algorithms is said in each class.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError
from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView, Observation
from dl2env.schedulers.heuristic import SeesAllJobs
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand


@kernel
def _has_room(job, job_type):
    return job.workers < job_type.max_workers and job.ps < job_type.max_ps


BY_ARRIVAL, BY_SHARE, BY_FRACTION = range(3)


@kernel
def choose_bundle(jobs, window, types, order, actions):
    """Writes a bundle for the first job with room in the given order; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        lowest = math.inf
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            if not _has_room(job, types[job.type]):
                continue
            key = 0.0
            if order == BY_SHARE:
                key = job.dominant_share
            elif order == BY_FRACTION:
                key = 1.0 - job.epochs_done / job.epochs
            if key < lowest:
                lowest = key
                actions[b] = 3 * slot + BUNDLE


@kernel
def choose_optimus(jobs, window, types, table, interval_s, actions):
    """Writes released Optimus' action of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        smallest = 0.0
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            w = job.workers
            p = job.ps
            if w == 0 or p == 0:
                actions[b] = 3 * slot + (WORKER if w == 0 else PS)
                break  # no other job can precede one that lacks a role, but an earlier such job
            left = job.epochs - job.epochs_done
            speeds = table[job.type]
            now = left / (speeds[w, p] * interval_s / job.samples_per_epoch)
            by_worker = now - left / (speeds[w + 1, p] * interval_s / job.samples_per_epoch)
            by_ps = now - left / (speeds[w, p + 1] * interval_s / job.samples_per_epoch)
            kind = PS if by_ps >= by_worker else WORKER
            key = -by_ps if kind == PS else -by_worker
            at_cap = p >= types[job.type].max_ps if kind == PS else w >= types[job.type].max_workers
            if key < smallest and not at_cap:
                smallest = key
                actions[b] = 3 * slot + kind


@kernel
def choose_tetris(jobs, window, types, servers, pinned, actions):
    """Writes released Tetris' action and server of each environment; `actions` comes filled with void."""
    for b in range(window.shape[0]):
        void = actions[b]
        s = max(pinned[b], 0)
        while s < servers.shape[1] and actions[b] == void:
            free_cpus = servers[b, s].free_cpus
            free_gpus = servers[b, s].free_gpus
            sum_alignment = 0.0
            sum_size = 0.0
            for slot in range(window.shape[1]):
                i = window[b, slot]
                if i < 0:
                    break
                job = jobs[b, i]
                cpus, gpus = action_demand(types[job.type], BUNDLE)
                sum_alignment += free_cpus * cpus + free_gpus * gpus
                sum_size += (cpus + gpus) * (1.0 - job.epochs_done / job.epochs)
            weight = sum_alignment / sum_size if sum_size != 0.0 else 0.0
            best = -1
            highest = -math.inf
            for slot in range(window.shape[1]):
                i = window[b, slot]
                if i < 0 or weight == 0.0:
                    break
                job = jobs[b, i]
                if not _has_room(job, types[job.type]):
                    continue
                cpus, gpus = action_demand(types[job.type], BUNDLE)
                size = (cpus + gpus) * (1.0 - job.epochs_done / job.epochs)
                score = free_cpus * cpus + free_gpus * gpus + weight * size
                if score > highest:
                    highest = score
                    best = slot
            if best >= 0:
                cpus, gpus = action_demand(types[jobs[b, window[b, best]].type], BUNDLE)
                if cpus <= free_cpus and gpus <= free_gpus:
                    actions[b] = 3 * best + BUNDLE
            if actions[b] == void:
                s += 1
        pinned[b] = min(s, servers.shape[1] - 1)


class _Released(SeesAllJobs):
    """Base: insists on an empty start."""

    name = "released"

    def act(self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView) -> NDArray[np.integer]:
        """Chooses one action per environment; see `Scheduler.act`."""
        del observation
        actions = np.full(len(action_mask), action_mask.shape[1] - 1, dtype=np.int64)
        self._choose(view, actions)
        return actions

    def _choose(self, view: ClusterView, actions: NDArray[np.int64]) -> None:
        """Overwrites the void actions given."""
        raise NotImplementedError

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Sees every job, at its place for the whole interval.

        Raises:
            ConfigError: The configuration gives initial bundles or lets capped jobs leave the window.
        """
        if config.dynamics.initial_bundle or config.dynamics.window_skips_capped:
            raise ConfigError(
                f"scheduler {self.name!r} is for the faithful mode without the learning environment's extras; set "
                "dynamics.initial_bundle=false and dynamics.window_skips_capped=false"
            )
        return super().configure(config)


class _ReleasedInOrder(_Released):
    order = BY_ARRIVAL

    def _choose(self, view: ClusterView, actions: NDArray[np.int64]) -> None:
        state = view.simulator.state
        choose_bundle(state.jobs, state.window, state.types, self.order, actions)


class ReleasedDrf(_ReleasedInOrder):
    """DRF with one parameter server per worker that stops at the first bundle that does not fit."""

    name = "released-drf"
    order = BY_SHARE


class ReleasedFifo(_ReleasedInOrder):
    """FIFO that stops at the first bundle that does not fit."""

    name = "released-fifo"
    order = BY_ARRIVAL


class ReleasedSrtf(_ReleasedInOrder):
    """The released "SRTF": by remaining *fraction* of the epochs, which stops at the first bundle that does not fit."""

    name = "released-srtf"
    order = BY_FRACTION


class ReleasedOptimus(_Released):
    """Optimus that reads the true speed table and does not divide by the dominant resource.

    A job whose better role is at its cap is dropped even if the other role could grow.
    """

    name = "released-optimus"

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Needs the measured table.

        Raises:
            ConfigError: The speed model is not `measured`, or see the base class.
        """
        if config.speed.model != "measured":
            raise ConfigError("scheduler 'released-optimus' reads a measured speed table; set speed.model=measured")
        return super().configure(config)

    def _choose(self, view: ClusterView, actions: NDArray[np.int64]) -> None:
        state = view.simulator.state
        choose_optimus(state.jobs, state.window, state.types, state.table, view.config.dynamics.interval_s, actions)


class ReleasedTetris(_Released):
    """Tetris that fills servers in id order and *adds* the remaining-work term, so that long jobs come first."""

    name = "released-tetris"

    def _choose(self, view: ClusterView, actions: NDArray[np.int64]) -> None:
        state = view.simulator.state
        pinned = view.pinned_server.astype(np.int64)
        choose_tetris(state.jobs, state.window, state.types, state.servers, pinned, actions)
        view.pin_servers(pinned)


def released_config(config: EnvConfig) -> EnvConfig:
    """A faithful configuration as the released heuristics want it: empty start, every job in the window."""
    dynamics = dataclasses.replace(config.dynamics, initial_bundle=False, window_skips_capped=False)
    observation = dataclasses.replace(config.observation, window=config.workload.num_jobs)
    return dataclasses.replace(config, dynamics=dynamics, observation=observation)
