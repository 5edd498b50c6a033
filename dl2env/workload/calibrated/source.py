"""Workloads that a calibration describes, on the cluster and with the job types of a configuration.

Each job gets a type and the work that meets its duration by the rule for recorded jobs (`traces.assign`): a type drawn
from those that can take its GPUs, workers for these, and the work that it does alone in the drawn duration. Jobs
without GPUs that no type can stand for are left out of the shares, as a replay leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import CalibratedConfig, EnvConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError
from dl2env.workload.calibrated.draw import DAY_S, draw_jobs
from dl2env.workload.calibrated.files import load_calibration
from dl2env.workload.calibrated.model import Calibration
from dl2env.workload.generator import (
    EpisodeStreams,
    active_type_indices,
    check_epoch_error,
    keyed,
    training_speeds,
    true_epochs,
)
from dl2env.workload.job_types import JobType
from dl2env.workload.jobs import Workload
from dl2env.workload.sizes import epochs_for
from dl2env.workload.traces.assign import possible_types, types_by_chance
from dl2env.workload.traces.table import JobTable

FloatArray = NDArray[np.float64]


class CalibratedWorkloads:
    """Draws episodes from a calibration; further jobs of an episode extend the same sequence.

    Args:
        config: The environment; its workload names the calibration.
        calibration: The parameters; by default those that the configuration names.

    Raises:
        ConfigError: The configuration names no calibration, its file is wrong, a type that is needed does not train, or
            a load is asked for that jobs or cluster without GPUs cannot have.
    """

    def __init__(self, config: EnvConfig, calibration: Calibration | None = None) -> None:
        settings = config.workload.calibrated
        if settings is None:
            raise ConfigError("workload.calibrated: not set; name a calibration")
        self._calibration = load_calibration(settings.file) if calibration is None else calibration
        self._num_jobs = config.workload.num_jobs
        self._epoch_error = check_epoch_error(config.dynamics.epoch_error)
        all_types, speed, max_workers, max_ps = training_speeds(config)
        self._active = active_type_indices(config.workload, all_types)
        self._names = tuple(job_type.name for job_type in all_types)
        job_types = [all_types[t] for t in self._active]
        active = self._active
        self._set_up(settings, job_types, speed[active], max_workers[active], max_ps[active])
        capacity = float(sum(group.count * group.gpus for group in config.cluster.servers))
        self._jobs_per_s = self._rate(settings, capacity)
        self._provenance: dict[str, Any] = {
            "source": "calibrated",
            "epoch_error": self._epoch_error,
            "config": config_to_dict(config.workload),
            "calibration": {
                "name": self._calibration.name,
                "digest": self._calibration.digest(),
                "jobs_per_day": self._jobs_per_s * DAY_S,
                "gpu_s_per_job": self.gpu_s_per_job,
                "left_out_share": self._left_out,
                "provenance": self._calibration.provenance,
            },
        }

    @property
    def calibration(self) -> Calibration:
        """The parameters."""
        return self._calibration

    @property
    def jobs_per_s(self) -> float:
        """Mean rate of arrivals on this cluster."""
        return self._jobs_per_s

    @property
    def gpu_s_per_job(self) -> float:
        """Mean GPU seconds of a job with the GPUs of its workers, exact but for the numerical integral of durations."""
        return float((self._shares * self._mean_gpu_s).sum())

    def _set_up(
        self,
        settings: CalibratedConfig,
        job_types: Sequence[JobType],
        speed: FloatArray,
        max_workers: NDArray[np.int64],
        max_ps: NDArray[np.int64],
    ) -> None:
        calibration = self._calibration
        num_classes = len(calibration.gpus)
        classes = JobTable.of(np.zeros(num_classes), np.ones(num_classes), calibration.num_gpus)
        wanted, self._can_take = possible_types(classes, job_types, max_workers)
        has_type = self._can_take.any(axis=1)
        shares = np.where(has_type, calibration.shares, 0.0)
        if not shares.sum() > 0:
            raise ConfigError(
                f"calibration {calibration.name}: none of its jobs uses a GPU and every job type does; add a type "
                "without GPUs to workload.include, or choose another calibration"
            )
        self._left_out = 1.0 - float(shares.sum())
        self._shares = shares / shares.sum()
        uses_ps = np.array([job_type.uses_ps for job_type in job_types])
        worker_gpus = np.array([job_type.worker_gpus for job_type in job_types], dtype=np.int64)
        workers = np.minimum(wanted, max_workers)
        ps = np.minimum(workers, np.where(uses_ps, max_ps, 0))
        self._speed = speed[np.arange(len(job_types)), workers, ps]
        is_idle = self._can_take & ~(np.isfinite(self._speed) & (self._speed > 0))
        if is_idle.any():
            c, t = np.argwhere(is_idle)[0].tolist()
            raise ConfigError(
                f"calibration {calibration.name}: type {job_types[t].name!r} trains {self._speed[c, t]} samples/s with "
                f"{workers[c, t]} workers and {ps[c, t]} PSs; lower workload.max_workers or leave the type out of "
                "workload.include"
            )
        self._samples_per_epoch = np.array([job_type.samples_per_epoch for job_type in job_types])
        durations = np.array([model.mean_s for model in calibration.duration_of])
        chance = self._can_take / np.maximum(self._can_take.sum(axis=1, keepdims=True), 1)
        self._mean_gpu_s = durations * (chance * workers * worker_gpus).sum(axis=1)

    def _rate(self, settings: CalibratedConfig, capacity_gpus: float) -> float:
        recorded = self._calibration.arrivals.jobs_per_day / DAY_S * (1.0 - self._left_out)
        if settings.target_load is None:
            return recorded * settings.load_scale
        gpu_s = self.gpu_s_per_job
        if not (gpu_s > 0 and capacity_gpus > 0):
            raise ConfigError(
                f"workload.calibrated.target_load={settings.target_load:g} cannot be reached: jobs and cluster need "
                "GPUs; leave it out and set load_scale"
            )
        return settings.target_load * capacity_gpus / gpu_s

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """Draws one episode."""
        streams = EpisodeStreams(seed, env, episode)
        jobs = draw_jobs(
            self._calibration,
            self._num_jobs,
            self._jobs_per_s,
            arrivals=streams.generator("arrivals"),
            gpus=streams.generator("gpus"),
            sizes=streams.generator("sizes"),
            shares=self._shares,
        )
        chances = streams.generator("types").random(self._num_jobs)
        types = types_by_chance(self._can_take[jobs.gpu_class], chances)
        samples_per_epoch = self._samples_per_epoch[types]
        epochs = epochs_for(jobs.duration_s, self._speed[jobs.gpu_class, types], samples_per_epoch)
        return Workload(
            arrival_s=jobs.arrival_s,
            type_idx=self._active[types],
            epochs=epochs,
            true_epochs=true_epochs(epochs, self._epoch_error, streams),
            samples_per_epoch=samples_per_epoch,
            type_names=self._names,
            noise_key=streams.noise_key,
            provenance=keyed(self._provenance, seed, env, episode),
        )
