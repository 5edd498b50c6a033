"""Workload sources: the job table of each episode, a pure function of (seed, environment, episode)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import ArrayLike, NDArray

from dl2env.config import EnvConfig, WorkloadConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.workload.arrivals import draw_arrivals
from dl2env.workload.jobs import Workload
from dl2env.workload.sizes import draw_durations, epochs_for

if TYPE_CHECKING:
    from dl2env.workload.job_types import JobType
    from dl2env.workload.traces.assign import TraceJobs

STREAMS = ("arrivals", "types", "sizes", "error", "noise_key", "window", "gpus")
"""Independent random streams of an episode. Append only: the position is part of the key."""


class WorkloadSource(Protocol):
    """Where an environment's episodes come from."""

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """The jobs of episode `episode` of environment `env` under `seed`; the same keys give the same jobs."""
        ...


class _Words(ISeedSequence):
    """Hands ready-made words to a bit generator; spawning sequences for each stream would take 50 us."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.asarray(self._words.view(dtype)[:n_words])


class EpisodeStreams:
    """Random generators of one episode, one per stream, so that drawing more from one never shifts another.

    All words come from one `numpy.random.SeedSequence` with entropy `seed` and spawn key (env, episode); stream i takes
    its words 4i to 4i + 3.

    Raises:
        ConfigError: A key is negative.
    """

    _NUM_WORDS = 4

    def __init__(self, seed: int, env: int, episode: int) -> None:
        if seed < 0 or env < 0 or episode < 0:
            raise ConfigError(f"workload keys seed={seed}, env={env}, episode={episode} must not be negative")
        sequence = np.random.SeedSequence(seed, spawn_key=(env, episode))
        self._words: NDArray[Any] = sequence.generate_state(self._NUM_WORDS * len(STREAMS), np.uint64)

    def _words_of(self, stream: str) -> NDArray[Any]:
        first = STREAMS.index(stream) * self._NUM_WORDS
        return self._words[first : first + self._NUM_WORDS]

    def generator(self, stream: str) -> np.random.Generator:
        """A fresh generator at the start of that stream."""
        words: Any = _Words(self._words_of(stream))  # PCG64 takes any ISeedSequence; its annotations do not say so
        return np.random.Generator(np.random.PCG64(words))

    @property
    def noise_key(self) -> int:
        """64-bit key of the simulator's own noise."""
        return int(self._words_of("noise_key")[0])


def true_epochs(epochs: NDArray[np.float64], epoch_error: float, streams: EpisodeStreams) -> NDArray[np.float64]:
    """Epochs at which jobs really complete: the stated ones times 1 + U(-epoch_error, epoch_error)."""
    if epoch_error == 0:
        return epochs
    return epochs * streams.generator("error").uniform(1.0 - epoch_error, 1.0 + epoch_error, epochs.size)


def check_epoch_error(epoch_error: float) -> float:
    """The value, which must lie in [0, 1)."""
    if not 0.0 <= epoch_error < 1.0:
        raise ConfigError(f"epoch_error={epoch_error} must lie in [0, 1)")
    return epoch_error


def active_type_indices(config: WorkloadConfig, job_types: Sequence[JobType]) -> NDArray[np.int32]:
    """Indices into the catalogue of the types that jobs are drawn from, in the catalogue's order.

    Raises:
        UnknownNameError: `active_types` names a type that the catalogue lacks.
    """
    names = [job_type.name for job_type in job_types]
    for name in config.active_types:
        if name not in names:
            raise UnknownNameError("job type of workload.active_types", name, names)
    chosen = set(config.active_types or names)
    return np.array([t for t, name in enumerate(names) if name in chosen], dtype=np.int32)


class GeneratedWorkloads:
    """Draws jobs of random types, arrivals and sizes.

    A job's epochs are those that its type, alone at the reference allocation, trains in the drawn duration.

    Args:
        config: What to draw.
        interval_s: Length of a scheduling interval.
        reference_speed: (T,) isolated samples/s of each type at the reference allocation.
        job_types: The catalogue, T types.
        epoch_error: True epochs are (1 + U(-x, x)) times those that schedulers see.

    Raises:
        ConfigError: The speeds do not fit the catalogue, or one is not positive.
        UnknownNameError: `config.active_types` names a type that the catalogue lacks.
    """

    def __init__(
        self,
        config: WorkloadConfig,
        interval_s: float,
        reference_speed: ArrayLike,
        job_types: Sequence[JobType],
        epoch_error: float = 0.0,
    ) -> None:
        speed = np.asarray(reference_speed, dtype=np.float64)
        if speed.shape != (len(job_types),):
            raise ConfigError(f"reference_speed: shape {speed.shape}, but the catalogue has {len(job_types)} types")
        for job_type, value in zip(job_types, speed.tolist(), strict=True):
            if not 0.0 < value < np.inf:
                sizes = config.sizes
                raise ConfigError(
                    f"job type {job_type.name!r} trains {value} samples/s with {sizes.reference_workers} workers and "
                    f"{sizes.reference_ps} PSs; change sizes.reference_workers or sizes.reference_ps"
                )
        self._config = config
        self._interval_s = interval_s
        self._speed = speed
        self._samples_per_epoch = np.array([job_type.samples_per_epoch for job_type in job_types])
        self._names = tuple(job_type.name for job_type in job_types)
        self._active = active_type_indices(config, job_types)
        self._epoch_error = check_epoch_error(epoch_error)
        self._provenance = {"source": "generated", "epoch_error": epoch_error, "config": config_to_dict(config)}

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """Draws one episode."""
        config = self._config
        streams = EpisodeStreams(seed, env, episode)
        arrival_s = draw_arrivals(streams.generator("arrivals"), config.num_jobs, config.arrivals, self._interval_s)
        nth = streams.generator("types").integers(len(self._active), size=config.num_jobs, dtype=np.int32)
        type_idx = self._active[nth]
        duration_s = draw_durations(streams.generator("sizes"), config.num_jobs, config.sizes)
        samples_per_epoch = self._samples_per_epoch[type_idx]
        epochs = epochs_for(duration_s, self._speed[type_idx], samples_per_epoch)
        return Workload(
            arrival_s=arrival_s,
            type_idx=type_idx,
            epochs=epochs,
            true_epochs=true_epochs(epochs, self._epoch_error, streams),
            samples_per_epoch=samples_per_epoch,
            type_names=self._names,
            noise_key=streams.noise_key,
            provenance=keyed(self._provenance, seed, env, episode),
        )


class ReplayedWorkloads:
    """Cuts episodes out of a recorded trace: consecutive jobs from a random start within a part of it.

    Args:
        config: `num_jobs`, and `trace` for the part and the load.
        jobs: The trace's jobs with types and work.
        epoch_error: As in `GeneratedWorkloads`.
        provenance: How the jobs came from the trace, kept with each workload.

    Raises:
        ConfigError: The part holds fewer jobs than an episode, or the configuration names no trace.
    """

    def __init__(
        self,
        config: WorkloadConfig,
        jobs: TraceJobs,
        epoch_error: float = 0.0,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        if config.trace is None:
            raise ConfigError("workload.trace: not set; name the trace to replay")
        from dl2env.workload.traces.shaping import part_bounds

        trace = config.trace
        self._first, stop = part_bounds(jobs.arrival_s, trace.start_fraction, trace.stop_fraction, trace.parts_by)
        self._num_starts = stop - self._first - config.num_jobs + 1
        if self._num_starts < 1:
            raise ConfigError(
                f"{trace.path}: its part {trace.start_fraction:g} to {trace.stop_fraction:g} has {stop - self._first} "
                f"jobs, fewer than workload.num_jobs={config.num_jobs}; lower num_jobs or widen the part"
            )
        self._config = config
        self._trace = trace
        self._jobs = jobs
        self._epoch_error = check_epoch_error(epoch_error)
        self._provenance = {"source": "replayed", "epoch_error": epoch_error, "config": config_to_dict(config)}
        if provenance:
            self._provenance["trace"] = dict(provenance)

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """Cuts one episode; times count from its first job."""
        streams = EpisodeStreams(seed, env, episode)
        start = self._first + int(streams.generator("window").integers(self._num_starts))
        part = slice(start, start + self._config.num_jobs)
        jobs = self._jobs
        epochs = jobs.epochs[part]
        return Workload(
            arrival_s=(jobs.arrival_s[part] - jobs.arrival_s[start]) / self._trace.load_scale,
            type_idx=jobs.type_idx[part],
            epochs=epochs,
            true_epochs=true_epochs(epochs, self._epoch_error, streams),
            samples_per_epoch=jobs.samples_per_epoch[part],
            type_names=jobs.type_names,
            noise_key=streams.noise_key,
            provenance={**keyed(self._provenance, seed, env, episode), "first_job": start},
        )


class FixedWorkloads:
    """Plays given workloads in turn: environment e starts with number e, and goes round.

    Raises:
        ConfigError: The list is empty.
    """

    def __init__(self, workloads: Sequence[Workload]) -> None:
        if not workloads:
            raise ConfigError("FixedWorkloads: no workloads; give at least one")
        self._workloads = tuple(workloads)

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """The workload whose turn it is; the seed has no effect."""
        return self._workloads[(env + episode) % len(self._workloads)]


def keyed(provenance: Mapping[str, Any], seed: int, env: int, episode: int) -> dict[str, Any]:
    """The provenance of one episode."""
    return {**provenance, "seed": seed, "env": env, "episode": episode}


def training_speeds(
    config: EnvConfig,
) -> tuple[tuple[JobType, ...], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """What turns durations into work: T job types, (T, W + 2, P + 2) true isolated samples/s, (T,) caps on tasks.

    Raises:
        Dl2EnvError: The configuration, the catalogue or the speed table is wrong.
    """
    from dl2env.speed import build_speed
    from dl2env.speed.estimate import estimated_speed, exact_estimate
    from dl2env.workload.job_types import load_job_types

    job_types = load_job_types(config.workload.job_types, config.workload.include)
    parameters = build_speed(job_types, config)
    speed = estimated_speed(parameters, exact_estimate(parameters, config))
    return (
        job_types,
        speed,
        parameters.types["max_workers"].astype(np.int64),
        parameters.types["max_ps"].astype(np.int64),
    )


def build_workload_source(config: EnvConfig) -> WorkloadSource:
    """The source that a configuration describes: a trace or a calibration if it names one, else generated jobs.

    Durations, drawn or recorded, are turned into work by the true isolated speeds of `config.speed` on that cluster.

    Raises:
        Dl2EnvError: The configuration, the catalogue, the speed table, the trace or the calibration is wrong.
    """
    workload, epoch_error = config.workload, config.dynamics.epoch_error
    if workload.trace is not None:
        from dl2env.workload.traces.configured import configured_jobs

        jobs, provenance = configured_jobs(config)
        return ReplayedWorkloads(workload, jobs, epoch_error, provenance)
    if workload.calibrated is not None:
        from dl2env.workload.calibrated.source import CalibratedWorkloads

        return CalibratedWorkloads(config)
    job_types, speed, max_workers, max_ps = training_speeds(config)
    workers = np.minimum(workload.sizes.reference_workers, max_workers)
    ps = np.minimum(workload.sizes.reference_ps, max_ps)
    reference_speed = speed[np.arange(len(job_types)), workers, ps]
    return GeneratedWorkloads(workload, config.dynamics.interval_s, reference_speed, job_types, epoch_error)
