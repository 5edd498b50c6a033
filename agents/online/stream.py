"""A long stream of jobs in segments: job types and load change from one to the next."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError
from dl2env.scenarios import Scenario
from dl2env.workload.generator import build_workload_source
from dl2env.workload.jobs import Workload

STREAM_KEY = 2**40
"""Added to a stream's seed: no scenario split draws from seeds that large."""


@dataclass(frozen=True)
class Segment:
    """A part of the stream.

    Attributes:
        intervals: Its length in scheduling intervals.
        types: Names of the job types that arrive, with equal probability; empty: as in the scenario.
        rate: Mean arrivals per interval; None: as in the scenario.
    """

    intervals: int
    types: tuple[str, ...] = ()
    rate: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", tuple(self.types))
        if self.intervals < 1:
            raise ConfigError(f"stream.segments: intervals={self.intervals} of a segment must be at least 1")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise ConfigError(f"stream.segments: rate={self.rate} of a segment must be positive and finite")


@dataclass(frozen=True)
class StreamConfig:
    """The stream.

    Attributes:
        segments: Its parts, one after the other.
        seed: Which stream of this description; no other seed of a run has an effect on it.
        drain_intervals: After the last segment no job arrives, and scheduling goes on until all jobs are done, at most
            for that many intervals. They complete the JCTs; windows and regret end with the last segment.
    """

    segments: tuple[Segment, ...] = field(default=(Segment(500),))
    seed: int = 0
    drain_intervals: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.segments))
        if not self.segments:
            raise ConfigError("stream.segments: no segments; give at least one")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"stream.seed={self.seed} must lie in 0..2**32 - 1")
        if self.drain_intervals < 0:
            raise ConfigError(f"stream.drain_intervals={self.drain_intervals} must not be negative")

    @property
    def intervals(self) -> int:
        """Length of all segments."""
        return sum(segment.intervals for segment in self.segments)


@dataclass(frozen=True)
class Stream:
    """A stream that has been drawn.

    Attributes:
        config: The world, with room for all jobs and intervals of the stream.
        workload: The jobs.
        starts: (S + 1,) first interval of each segment, and the end of the last.
        segments: The segments.
        segment_of_job: (N,) segment in which each job arrives.
    """

    config: EnvConfig
    workload: Workload
    starts: NDArray[np.int64]
    segments: tuple[Segment, ...]
    segment_of_job: NDArray[np.int64]

    @property
    def num_intervals(self) -> int:
        """Intervals of all segments; jobs may stay longer."""
        return int(self.starts[-1])


def build_stream(scenario: Scenario, stream: StreamConfig) -> Stream:
    """Draws the jobs of every segment and joins them.

    A segment's jobs are the first of a workload of the scenario with the segment's types and rate, those that arrive
    within its length; each segment has its own random streams, so changing one changes no other. The process starts
    anew with each segment (a burst or a daily cycle does not go on).

    Args:
        scenario: The world. It must draw its jobs.
        stream: The segments.

    Raises:
        Dl2EnvError: The scenario replays a trace, a type is unknown, or no job arrives at all.
    """
    base = scenario.config
    if scenario.fixed_workloads or base.workload.trace is not None:
        raise ConfigError(
            f"scenario {scenario.name} replays given jobs; a stream is drawn, choose a scenario that draws its jobs"
        )
    if base.workload.arrivals.kind == "batch":
        raise ConfigError("workload.arrivals.kind=batch: all jobs at once are no stream; choose another process")
    parts = [_draw(base, stream, i) for i in range(len(stream.segments))]
    starts = np.cumsum([0, *(segment.intervals for segment in stream.segments)])
    interval_s = base.dynamics.interval_s
    num_jobs = sum(part.num_jobs for part in parts if part is not None)
    if num_jobs == 0:
        raise ConfigError("stream.segments: no job arrives; make a segment longer or raise its rate")
    owners = [i for i, part in enumerate(parts) if part is not None]
    kept = [part for part in parts if part is not None]
    joined = {
        name: np.concatenate([getattr(part, name) for part in kept])
        for name in ("type_idx", "epochs", "true_epochs", "samples_per_epoch")
    }
    workload = Workload(
        arrival_s=np.concatenate([p.arrival_s + starts[i] * interval_s for i, p in zip(owners, kept, strict=True)]),
        **joined,
        type_names=kept[0].type_names,
        noise_key=kept[0].noise_key,
        provenance={"source": "stream", "scenario": scenario.name, "stream": config_to_dict(stream)},
    )
    config = dataclasses.replace(
        base,
        workload=dataclasses.replace(base.workload, num_jobs=num_jobs),
        dynamics=dataclasses.replace(base.dynamics, max_intervals=int(starts[-1]) + stream.drain_intervals + 1),
    )
    segment_of_job = np.repeat(owners, [part.num_jobs for part in kept]).astype(np.int64)
    return Stream(config, workload, starts.astype(np.int64), stream.segments, segment_of_job)


def segment_overrides(segment: Segment) -> dict[str, object]:
    """What a segment changes of a scenario, by dotted key."""
    changed: dict[str, object] = {}
    if segment.types:
        changed["workload.active_types"] = list(segment.types)
    if segment.rate is not None:
        changed["workload.arrivals.rate_per_interval"] = segment.rate
    return changed


def _draw(base: EnvConfig, stream: StreamConfig, index: int) -> Workload | None:
    """The jobs of one segment, times from its start; None if there are none."""
    segment = stream.segments[index]
    arrivals = base.workload.arrivals
    if segment.rate is not None:
        arrivals = dataclasses.replace(arrivals, rate_per_interval=segment.rate)
    span_s = segment.intervals * base.dynamics.interval_s
    count = math.ceil(1.2 * arrivals.rate_per_interval * segment.intervals) + 16
    while True:
        drawn = dataclasses.replace(
            base.workload,
            num_jobs=count,
            arrivals=arrivals,
            active_types=segment.types or base.workload.active_types,
        )
        source = build_workload_source(dataclasses.replace(base, workload=drawn))
        jobs = source(STREAM_KEY + stream.seed, index, 0)
        if jobs.arrival_s[-1] >= span_s:
            break
        count *= 2
    n = int(np.searchsorted(jobs.arrival_s, span_s, side="left"))
    return None if n == 0 else _first(jobs, n)


def _first(jobs: Workload, n: int) -> Workload:
    arrays = ("arrival_s", "type_idx", "epochs", "true_epochs", "samples_per_epoch")
    return dataclasses.replace(jobs, **{name: getattr(jobs, name)[:n] for name in arrays})


def segment_names(segments: Sequence[Segment]) -> list[str]:
    """Short descriptions for tables and figures."""
    names = []
    for segment in segments:
        types = f"{len(segment.types)} types" if segment.types else "all types"
        names.append(types if segment.rate is None else f"{types}, {segment.rate:g} jobs per interval")
    return names
