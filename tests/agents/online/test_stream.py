"""Segments hold the jobs that they say, where they say, and do not depend on each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.online.stream import Segment, StreamConfig, build_stream, segment_names
from dl2env.config import ArrivalConfig
from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.scenarios import Scenario, get_scenario
from tests.agents.online.worlds import SEGMENTS, small_stream, world


def with_arrivals(**values: object) -> Scenario:
    scenario = world()
    workload = dataclasses.replace(scenario.config.workload, arrivals=ArrivalConfig(**values))  # type: ignore[arg-type]
    return dataclasses.replace(scenario, config=dataclasses.replace(scenario.config, workload=workload))


def test_evenly_spaced_arrivals_are_exact() -> None:
    segments = (Segment(4, rate=2.0), Segment(3, rate=1.0), Segment(2, rate=4.0))
    stream = build_stream(with_arrivals(kind="uniform"), StreamConfig(segments))
    expected = [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 7.25, 7.5, 7.75, 8, 8.25, 8.5, 8.75]
    np.testing.assert_allclose(stream.workload.arrival_s / 1200.0, expected)
    assert stream.segment_of_job.tolist() == [0] * 8 + [1] * 3 + [2] * 8
    assert stream.starts.tolist() == [0, 4, 7, 9]
    assert stream.num_intervals == 9
    assert stream.config.workload.num_jobs == 19
    assert stream.config.dynamics.max_intervals > 9


def test_jobs_belong_to_their_segments() -> None:
    stream = small_stream()
    jobs = stream.workload
    interval = jobs.arrival_s / stream.config.dynamics.interval_s
    for s, segment in enumerate(SEGMENTS):
        own = stream.segment_of_job == s
        assert own.any()
        assert (interval[own] >= stream.starts[s]).all() and (interval[own] < stream.starts[s + 1]).all()
        names = {jobs.type_names[t] for t in jobs.type_idx[own]}
        assert names <= set(segment.types or jobs.type_names)


def test_a_long_segment_has_the_rate_it_says() -> None:
    stream = build_stream(world(), StreamConfig((Segment(400, rate=5.0),)))
    assert abs(stream.workload.num_jobs - 2000) < 4 * np.sqrt(2000)


@pytest.mark.parametrize("kind", ["poisson", "diurnal", "bursty"])
def test_every_process_covers_the_whole_segment(kind: str) -> None:
    stream = build_stream(with_arrivals(kind=kind, rate_per_interval=3.0), StreamConfig((Segment(200),)))
    assert stream.workload.arrival_s[-1] > 150 * 1200.0


def test_changing_a_segment_leaves_the_others_alone() -> None:
    first = small_stream()
    other = build_stream(world(), StreamConfig((Segment(30, (), 2.0), SEGMENTS[1]), 0))
    own, same = first.segment_of_job == 1, other.segment_of_job == 1
    np.testing.assert_allclose(
        first.workload.arrival_s[own] - 12 * 1200.0, other.workload.arrival_s[same] - 30 * 1200.0, rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(first.workload.epochs[own], other.workload.epochs[same])


def test_same_seed_same_stream() -> None:
    assert small_stream().workload.digest() == small_stream().workload.digest()
    assert small_stream().workload.digest() != small_stream(seed=1).workload.digest()


def test_names_of_segments() -> None:
    assert segment_names(SEGMENTS) == ["2 types, 0.5 jobs per interval", "all types, 1 jobs per interval"]
    assert segment_names((Segment(3),)) == ["all types"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Segment(0), "intervals=0"),
        (lambda: Segment(5, rate=0.0), "rate=0.0"),
        (lambda: Segment(5, rate=float("nan")), "rate=nan"),
        (lambda: StreamConfig(()), "no segments"),
        (lambda: StreamConfig(seed=-1), "stream.seed=-1"),
        (lambda: StreamConfig(drain_intervals=-1), "drain_intervals=-1"),
        (lambda: build_stream(world(), StreamConfig((Segment(5, ("resnet",)),))), "'resnet'"),
        (lambda: build_stream(world(), StreamConfig((Segment(1, rate=1e-9),))), "no job arrives"),
        (lambda: build_stream(with_arrivals(kind="batch"), StreamConfig()), "batch"),
        (lambda: build_stream(get_scenario("toy-v1"), StreamConfig()), "replays given jobs"),
    ],
)
def test_wrong_input(make: object, message: str) -> None:
    with pytest.raises(Dl2EnvError, match=message):
        make()  # type: ignore[operator]


def test_errors_are_of_the_configuration() -> None:
    with pytest.raises(ConfigError):
        Segment(-1)
