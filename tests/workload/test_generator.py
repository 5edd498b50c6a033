"""Workload sources: keyed, independent streams, work that meets durations, replayed windows."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import (
    ArrivalConfig,
    DynamicsConfig,
    EnvConfig,
    JobSizeConfig,
    TraceConfig,
    WorkloadConfig,
)
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.workload.generator import (
    STREAMS,
    EpisodeStreams,
    FixedWorkloads,
    GeneratedWorkloads,
    ReplayedWorkloads,
    build_workload_source,
)
from dl2env.workload.job_types import load_job_types
from dl2env.workload.jobs import Workload
from dl2env.workload.traces.assign import TraceJobs

TYPES = load_job_types("dl2")
SPEED = np.arange(10.0, 90.0, 10.0)  # (8,) samples/s


def source(config: WorkloadConfig | None = None, epoch_error: float = 0.0) -> GeneratedWorkloads:
    return GeneratedWorkloads(config or WorkloadConfig(), 1200.0, SPEED, TYPES, epoch_error)


keys = st.integers(0, 2**40)


@given(keys, st.integers(0, 5000), st.integers(0, 5000))
@settings(max_examples=30)
def test_keys_decide_everything(seed: int, env: int, episode: int) -> None:
    first = source(epoch_error=0.2)(seed, env, episode)
    assert first.digest() == source(epoch_error=0.2)(seed, env, episode).digest()
    others = [(seed + 1, env, episode), (seed, env + 1, episode), (seed, env, episode + 1)]
    digests = {source(epoch_error=0.2)(*key).digest() for key in others}
    assert len(digests | {first.digest()}) == 4
    assert len({source()(*key).noise_key for key in others}) == 3


def test_changing_one_part_shifts_no_other() -> None:
    plain = source()(3, 1, 2)
    uniform = source(WorkloadConfig(arrivals=ArrivalConfig(kind="uniform")))(3, 1, 2)
    fixed = source(WorkloadConfig(sizes=JobSizeConfig(kind="fixed")))(3, 1, 2)
    wrong = source(epoch_error=0.5)(3, 1, 2)
    for changed, fields in ((uniform, "arrival_s"), (fixed, "epochs true_epochs"), (wrong, "true_epochs")):
        for field in ("arrival_s", "type_idx", "epochs", "true_epochs", "samples_per_epoch", "noise_key"):
            is_equal = np.array_equal(getattr(changed, field), getattr(plain, field))
            assert is_equal == (field not in fields.split()), (fields, field)


def test_more_jobs_extend_the_same_workload() -> None:
    """Streams are independent, so the first jobs do not depend on how many follow."""
    few, many = (source(WorkloadConfig(num_jobs=n))(0, 0, 0) for n in (10, 50))
    for field in ("arrival_s", "epochs"):
        np.testing.assert_array_equal(getattr(few, field), getattr(many, field)[:10])


def test_streams_differ_and_repeat() -> None:
    streams = EpisodeStreams(0, 0, 0)
    draws = {name: streams.generator(name).random() for name in STREAMS}
    assert len(set(draws.values())) == len(STREAMS)
    assert draws == {name: streams.generator(name).random() for name in STREAMS}


def test_streams_have_no_common_bias() -> None:
    """Uniform, and uncorrelated between streams and between neighbouring keys."""
    draws = np.array(
        [
            [EpisodeStreams(seed, env, episode).generator(name).random() for name in ("arrivals", "types")]
            for seed in range(5)
            for env in range(20)
            for episode in range(20)
        ]
    )
    assert draws.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.02)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.06


def test_durations_are_met_at_the_reference_speed() -> None:
    config = WorkloadConfig(num_jobs=4000, sizes=JobSizeConfig(kind="fixed", mean_s=600.0))
    workload = source(config)(0, 0, 0)
    speed = SPEED[workload.type_idx]
    np.testing.assert_allclose(workload.epochs * workload.samples_per_epoch / speed, 600.0)
    np.testing.assert_array_equal(workload.samples_per_epoch, [TYPES[t].samples_per_epoch for t in workload.type_idx])
    shares = np.bincount(workload.type_idx, minlength=8) / 4000
    np.testing.assert_allclose(shares, 1 / 8, atol=0.02)


def test_active_types_are_drawn_from_the_whole_catalogue() -> None:
    """Only they come, with equal odds; their indices stay those of the catalogue, whatever the order of the names."""
    names = ("wlm", "vgg-16", "seq2seq")
    chosen = source(WorkloadConfig(num_jobs=6000, active_types=names))(0, 0, 0)
    assert chosen.type_names == tuple(job_type.name for job_type in TYPES)
    indices = sorted(chosen.type_names.index(name) for name in names)
    counts = np.bincount(chosen.type_idx, minlength=8)
    assert np.flatnonzero(counts).tolist() == indices
    np.testing.assert_allclose(counts[indices] / 6000, 1 / 3, atol=0.02)
    assert chosen.digest() == source(WorkloadConfig(num_jobs=6000, active_types=names[::-1]))(0, 0, 0).digest()
    everything = source(WorkloadConfig(num_jobs=50, active_types=chosen.type_names))(0, 0, 0)
    assert everything.digest() == source(WorkloadConfig(num_jobs=50))(0, 0, 0).digest()


def test_unknown_active_types_are_named() -> None:
    with pytest.raises(UnknownNameError, match="workload.active_types 'vgg'; choose one of: .*vgg-16"):
        source(WorkloadConfig(active_types=("vgg",)))


def test_replayed_jobs_get_active_types_only(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-{1 + i // 24:02d} {i % 24:02d}:00:00,600,1,600,vc" for i in range(200)]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows]) + "\n")
    trace = TraceConfig(str(path), format="philly")
    workload = WorkloadConfig(active_types=("inception-bn", "wlm"), num_jobs=200, trace=trace)
    jobs = build_workload_source(EnvConfig(workload=workload))(0, 0, 0)
    assert {jobs.type_names[t] for t in jobs.type_idx} == {"inception-bn", "wlm"}
    assert jobs.type_names == tuple(job_type.name for job_type in TYPES)


def test_epoch_error_range() -> None:
    workload = source(WorkloadConfig(num_jobs=5000), epoch_error=0.25)(0, 0, 0)
    factor = workload.true_epochs / workload.epochs
    assert 0.75 <= factor.min() < 0.76 and 1.24 < factor.max() <= 1.25
    assert factor.mean() == pytest.approx(1.0, abs=0.01)


def test_provenance_says_how_it_was_made() -> None:
    provenance = source()(5, 6, 7).provenance
    assert (provenance["seed"], provenance["env"], provenance["episode"]) == (5, 6, 7)
    assert provenance["config"]["sizes"]["kind"] == "published_bins"


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="8 types"):
        GeneratedWorkloads(WorkloadConfig(), 1200.0, SPEED[:3], TYPES)
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match=r"vgg-16.*reference_workers"):
            GeneratedWorkloads(WorkloadConfig(), 1200.0, np.where(np.arange(8) == 1, bad, SPEED), TYPES)
    with pytest.raises(ConfigError, match="epoch_error"):
        source(epoch_error=1.0)
    with pytest.raises(ConfigError, match="seed=-1"):
        source()(-1, 0, 0)
    with pytest.raises(ConfigError, match="at least one"):
        FixedWorkloads([])


def test_fixed_workloads_take_turns() -> None:
    workloads = [source()(i, 0, 0) for i in range(3)]
    fixed = FixedWorkloads(workloads)
    assert [fixed(9, 0, k) for k in range(4)] == [*workloads, workloads[0]]
    assert fixed(9, 1, 0) is workloads[1]


def trace_jobs(n: int) -> TraceJobs:
    number = np.arange(n)
    return TraceJobs(
        arrival_s=number * 10.0 + 3.0,
        type_idx=(number % 8).astype(np.int32),
        epochs=number + 1.0,
        samples_per_epoch=np.full(n, 100.0),
        duration_s=np.full(n, 60.0),
        workers=np.ones(n, np.int64),
        ps=np.ones(n, np.int64),
        source_row=number + 2,
        type_names=tuple(t.name for t in TYPES),
    )


def replay(n: int = 100, **changes: float) -> ReplayedWorkloads:
    trace = TraceConfig(path="some.csv", **changes)  # type: ignore[arg-type]
    return ReplayedWorkloads(WorkloadConfig(num_jobs=10, trace=trace), trace_jobs(n))


def test_replayed_windows_are_consecutive_and_stay_in_their_part() -> None:
    windows = replay(start_fraction=0.2, stop_fraction=0.5, load_scale=2.0)
    starts = set()
    for episode in range(300):
        workload = windows(0, 0, episode)
        np.testing.assert_allclose(workload.arrival_s, np.arange(10) * 5.0)  # load doubled
        np.testing.assert_array_equal(np.diff(workload.epochs), 1.0)
        start = int(workload.epochs[0]) - 1
        assert workload.provenance["first_job"] == start
        starts.add(start)
    assert starts == set(range(20, 41))  # 41 + 9 would be job 50, the next part's first


def test_replayed_parts_that_share_a_bound_are_disjoint() -> None:
    for n in (37, 100, 101):
        bounds = [0.0, 0.6, 0.8, 1.0]
        parts = []
        for start, stop in zip(bounds, bounds[1:], strict=False):
            trace = TraceConfig(path="some.csv", start_fraction=start, stop_fraction=stop)
            windows = ReplayedWorkloads(WorkloadConfig(num_jobs=1, trace=trace), trace_jobs(n))
            parts.append({windows(0, 0, k).provenance["first_job"] for k in range(800)})
        assert sum(map(len, parts)) == n == len(set.union(*parts))


def test_replay_of_a_part_that_is_too_short() -> None:
    with pytest.raises(ConfigError, match=r"some\.csv.*has 5 jobs.*num_jobs=10"):
        replay(start_fraction=0.95)
    with pytest.raises(ConfigError, match="trace"):
        ReplayedWorkloads(WorkloadConfig(), trace_jobs(100))


def test_build_generated_source_by_configuration() -> None:
    config = EnvConfig(
        workload=WorkloadConfig(num_jobs=5, sizes=JobSizeConfig(reference_workers=4, reference_ps=2)),
        dynamics=DynamicsConfig(epoch_error=0.1),
    )
    workload = build_workload_source(config)(1, 0, 0)
    assert workload.num_jobs == 5
    assert workload.type_names == tuple(t.name for t in TYPES)
    assert not np.array_equal(workload.epochs, workload.true_epochs)


def test_build_uses_isolated_speed_at_the_reference_allocation() -> None:
    from dl2env.speed import build_speed
    from dl2env.speed.estimate import estimated_speed, exact_estimate

    sizes = JobSizeConfig(kind="fixed", mean_s=1000.0, reference_workers=4, reference_ps=2)
    config = EnvConfig(workload=WorkloadConfig(num_jobs=40, sizes=sizes))
    workload = build_workload_source(config)(0, 0, 0)
    parameters = build_speed(TYPES, config)
    speed = estimated_speed(parameters, exact_estimate(parameters, config))[workload.type_idx, 4, 2]
    np.testing.assert_allclose(workload.epochs * workload.samples_per_epoch / speed, 1000.0)


def test_build_replayed_source_by_configuration(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = [f"2017-10-09 07:{i:02d}:00,{600 + i},{1 + i % 4},c{i}" for i in range(30)]
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *rows]) + "\n")
    config = EnvConfig(workload=WorkloadConfig(num_jobs=30, trace=TraceConfig(path=str(path))))
    workload = build_workload_source(config)(0, 0, 0)
    np.testing.assert_allclose(workload.arrival_s, np.arange(30) * 60.0)
    missing = dataclasses.replace(config.workload, trace=TraceConfig(path=str(tmp_path / "none.csv")))
    with pytest.raises(ValueError, match=r"none\.csv.*no such file"):
        build_workload_source(dataclasses.replace(config, workload=missing))


def test_public_names_are_lazy() -> None:
    import subprocess

    code = (
        "import sys, dl2env.workload as w; assert not any(m.startswith('dl2env.workload.') for m in sys.modules); "
        "assert all(getattr(w, n) for n in w.__all__); assert 'numba' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    import dl2env.workload as package

    assert package.Workload is Workload
    with pytest.raises(AttributeError, match="Workloads"):
        _ = package.Workloads  # type: ignore[attr-defined]
