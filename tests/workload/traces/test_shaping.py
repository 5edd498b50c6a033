"""Shaping of recorded workloads: hand-computed steps, targets that are met, provenance, hashes and wrong settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import ClusterConfig, EnvConfig, ServerGroup, ShapingConfig, TraceConfig
from dl2env.config import WorkloadConfig as Workloads
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError
from dl2env.scenarios.fingerprint import world_values
from dl2env.workload import build_workload_source
from dl2env.workload.generator import training_speeds
from dl2env.workload.jobs import Workload
from dl2env.workload.traces import JobTable
from dl2env.workload.traces.shaping import (
    digest,
    gpu_load,
    map_gpus,
    part_bounds,
    sample_owners,
    scale_load,
    shape,
    split,
    thin,
    time_window,
)

ARRIVAL_S = [0.0, 10.0, 20.0, 20.0, 50.0, 100.0]
DURATION_S = [60.0, 600.0, 30.0, 3600.0, 120.0, 240.0]
GPUS = [1.0, 3.0, 0.5, 8.0, 12.0, 6.0]
USERS = ["a", "b", "a", "", "c", "b"]


def table(**columns: Any) -> JobTable:
    return JobTable.of(ARRIVAL_S, DURATION_S, GPUS, texts={"user": USERS}, **columns)


def write(folder: Path) -> Path:
    rows = zip(ARRIVAL_S, DURATION_S, GPUS, USERS, strict=True)
    path = folder / "jobs.csv"
    path.write_text("arrival_s,duration_s,num_gpus,user\n" + "".join(f"{a},{d},{g},{u}\n" for a, d, g, u in rows))
    return path


def config(path: Path, num_jobs: int = 6, parts_by: str = "jobs", **shaping: Any) -> EnvConfig:
    values = {"path": str(path), "parts_by": parts_by, "shaping": shaping}
    trace: TraceConfig = config_from_dict(TraceConfig, values)
    cluster = ClusterConfig(servers=(ServerGroup(5, gpus=4),))
    return EnvConfig(cluster=cluster, workload=Workloads(num_jobs=num_jobs, trace=trace))


def load_of(settings: EnvConfig, workload: Workload, gpus: np.ndarray) -> float:
    """Offered load of a workload from its work alone: what each job takes, in time, with `gpus` workers."""
    job_types, speed, _, _ = training_speeds(settings)
    gpu_s = 0.0
    for t, epochs, samples, workers in zip(
        workload.type_idx, workload.true_epochs, workload.samples_per_epoch, gpus, strict=True
    ):
        rate = speed[t, workers, workers if job_types[t].uses_ps else 0]
        gpu_s += epochs * samples / rate * workers * job_types[t].worker_gpus
    capacity = sum(group.count * group.gpus for group in settings.cluster.servers)
    return gpu_s / capacity / (workload.arrival_s[-1] - workload.arrival_s[0])


def test_defaults_change_nothing() -> None:
    before = table()
    assert shape(before, ShapingConfig()) is before


def test_a_window_is_half_open() -> None:
    after = time_window(table(), 10.0, 50.0)
    assert after.arrival_s.tolist() == [10, 20, 20]
    assert after.steps[-1] == {"step": "time_window", "from_s": 10.0, "until_s": 50.0, "jobs": 3}
    assert time_window(table(), 50.0, None).arrival_s.tolist() == [50, 100]
    with pytest.raises(ConfigError, match=r"no job arrives from from_s=101.0 to until_s=None; .* from 0 to 100 s"):
        time_window(table(), 101.0, None)


def test_whole_users_are_drawn() -> None:
    one = sample_owners(table(), "users", 0.5, 3)  # a, b, c and the job without a user: four, of which two
    assert one.steps[-1] == {
        "step": "sample", "by": "users", "share": 0.5, "seed": 3, "kept": 2, "of": 4, "jobs": one.num_jobs
    }  # fmt: skip
    kept = {job: user for job, user in zip(one.source_row.tolist(), one.user.tolist(), strict=True)}
    whole: dict[str, set[int]] = {}
    for row, user in enumerate(USERS, 1):
        whole.setdefault(user, set()).add(row)
    assert set(kept) == set().union(*(whole[user] for user in set(kept.values())))
    assert len(set(kept.values())) == 2
    with pytest.raises(ConfigError, match="sample_by=groups, but no job .* names any; choose sample_by=jobs or users"):
        sample_owners(table(), "groups", 0.5, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.3, 0.6), st.floats(0.6, 1.0))
def test_smaller_samples_are_parts_of_larger_ones(seed: int, small: float, large: float) -> None:
    n = 200
    users = [f"u{i % 17}" if i % 5 else None for i in range(n)]
    jobs = JobTable.of(np.arange(n), np.ones(n), np.ones(n), texts={"user": users})
    for draw in (thin, lambda jobs, share, seed: sample_owners(jobs, "users", share, seed)):
        a, b, again = draw(jobs, small, seed), draw(jobs, large, seed), draw(jobs, small, seed)
        assert set(a.source_row.tolist()) <= set(b.source_row.tolist())
        assert digest(a) == digest(again)


def test_thinning_keeps_the_share() -> None:
    n = 20_000
    jobs = JobTable.of(np.arange(n), np.ones(n), np.ones(n))
    kept = thin(jobs, 0.25, 1).num_jobs
    assert abs(kept - n / 4) < 5 * np.sqrt(n * 0.25 * 0.75)
    assert digest(thin(jobs, 0.25, 1)) != digest(thin(jobs, 0.25, 2))


@pytest.mark.parametrize(
    ("shaping", "gpus"),
    [
        ({"gpu_rounding": "whole"}, [1, 3, 1, 8, 12, 6]),
        ({"gpu_rounding": "power_of_two_up"}, [1, 4, 1, 8, 16, 8]),
        ({"gpu_rounding": "power_of_two_down"}, [1, 2, 1, 8, 8, 4]),
        ({"gpu_rounding": "power_of_two_nearest"}, [1, 4, 1, 8, 16, 8]),
        ({"gpu_map": ["3:4", "0.5:1", "12:0"]}, [1, 4, 1, 8, 0, 6]),
        ({"max_gpus": 8}, [1, 3, 0.5, 8, 8, 6]),
        ({"max_gpus": 6, "above_max_gpus": "drop"}, [1, 3, 0.5, 6]),
        ({"gpu_map": ["6:5"], "gpu_rounding": "power_of_two_up", "max_gpus": 4}, [1, 4, 1, 4, 4, 4]),
    ],
)
def test_numbers_of_gpus(shaping: dict[str, Any], gpus: list[float]) -> None:
    before = table()
    after = map_gpus(before, config_from_dict(ShapingConfig, shaping))
    assert after.num_gpus.tolist() == gpus
    step = after.steps[-1]
    assert step["step"] == "map_gpus" and step["jobs"] == len(gpus)
    assert after.num_jobs < 6 or step["changed"] == int((after.num_gpus != before.num_gpus).sum())
    np.testing.assert_array_equal(after.duration_s, before.duration_s[np.isin(before.source_row, after.source_row)])


def test_gpu_time_can_be_kept() -> None:
    shaping = ShapingConfig(gpu_rounding="power_of_two_up", max_gpus=4, gpu_change_keeps="gpu_time")
    before = table(num_workers=np.full(6, 1))
    after = map_gpus(before, shaping)
    np.testing.assert_allclose(after.duration_s * after.num_gpus, before.duration_s * before.num_gpus, rtol=1e-12)
    assert after.num_workers.tolist() == [1, 0, 0, 0, 0, 0]  # roles of changed jobs hold no longer
    with pytest.raises(ConfigError, match="takes all GPUs from the job of line 2, which cannot keep its gpu_time"):
        map_gpus(before, ShapingConfig(gpu_map=("3:0",), gpu_change_keeps="gpu_time"))


def test_load_by_hand() -> None:
    # 1 GPU x 60 s and 2 GPUs x 100 s arrive in 50 s at 4 GPUs: 260 / 200.
    assert gpu_load(np.array([5.0, 55.0]), np.array([60.0, 200.0]), 4) == pytest.approx(1.3)
    assert gpu_load(np.array([5.0, 5.0]), np.array([60.0, 200.0]), 4) == np.inf
    assert np.isnan(gpu_load(np.array([5.0]), np.array([60.0]), 0))
    jobs = JobTable.of([5.0, 30.0, 55.0], [60.0, 1.0, 100.0], [1, 1, 2])
    by_arrivals, by_sizes = (scale_load(jobs, 1.3, 2.6, by) for by in ("arrivals", "sizes"))
    assert by_arrivals.arrival_s.tolist() == [5.0, 17.5, 30.0] and by_arrivals.duration_s.tolist() == [60, 1, 100]
    assert by_sizes.arrival_s.tolist() == [5, 30, 55] and by_sizes.duration_s.tolist() == [120, 2, 200]
    assert by_sizes.steps[-1] == {
        "step": "scale_load", "by": "sizes", "from": 1.3, "to": 2.6, "factor": 2.0, "jobs": 3
    }  # fmt: skip
    for wrong in (0.0, np.inf, np.nan):
        with pytest.raises(ConfigError, match="cannot be reached from a load of"):
            scale_load(jobs, wrong, 1.0, "sizes")


@pytest.mark.parametrize("by", ["arrivals", "sizes"])
@pytest.mark.parametrize("target", [0.2, 1.7])
def test_the_target_load_is_met_in_the_simulators_jobs(by: str, target: float, tmp_path: Path) -> None:
    settings = config(write(tmp_path), target_load=target, load_by=by)
    workload = build_workload_source(settings)(0, 0, 0)
    gpus = np.array([1, 3, 1, 8, 12, 6])  # half a GPU is a whole one in the simulator
    assert load_of(settings, workload, gpus) == pytest.approx(target, rel=1e-9)
    recorded = build_workload_source(config(write(tmp_path)))(0, 0, 0)
    assert (by == "sizes") == np.array_equal(workload.arrival_s, recorded.arrival_s)
    assert (by == "arrivals") == np.array_equal(workload.epochs, recorded.epochs)
    np.testing.assert_array_equal(workload.type_idx, recorded.type_idx)


def test_every_step_is_in_provenance_and_hashes(tmp_path: Path) -> None:
    path = write(tmp_path)
    steps = {"from_s": 10.0, "sample_share": 0.99, "gpu_rounding": "whole", "target_load": 0.5}
    seen, digests = set(), set()
    for n in range(len(steps) + 1):
        settings = config(path, 3, **dict(list(steps.items())[:n]))
        workload = build_workload_source(settings)(0, 0, 0)
        trace = workload.provenance["trace"]
        names = [step["step"] for step in trace["steps"]]
        assert names == ["read", "time_window", "thin", "map_gpus", "scale_load"][: n + 1]
        digests.add(trace["digest"])
        job_types, *_ = training_speeds(settings)
        world = world_values(settings, job_types)["world"]["workload"]["trace"]
        assert set(world.get("shaping", ())) == set(list(steps)[:n]) and "parts_by" not in world
        seen.add(str(world))
    assert len(digests) == len(seen) == len(steps) + 1


def test_shaping_survives_plain_values() -> None:
    shaping = ShapingConfig(from_s=1.0, gpu_map=("3:4",), target_load=0.5)
    trace = TraceConfig("t", shaping=shaping, parts_by="time")
    assert config_from_dict(TraceConfig, config_to_dict(trace)) == trace


def test_parts_by_time() -> None:
    arrival_s = np.array(ARRIVAL_S)
    assert [part_bounds(arrival_s, a, b, "time") for a, b in ((0, 0.2), (0.2, 0.5), (0.5, 1))] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]
    assert part_bounds(arrival_s, 0.5, 1.0, "jobs") == (3, 6)
    parts = split(table(), {"train": (0.0, 0.2), "validation": (0.2, 0.5), "test": (0.5, 1.0)})
    assert [part.arrival_s.tolist() for part in parts.values()] == [[0, 10], [20, 20], [50, 100]]
    assert parts["test"].steps[-1] == {
        "step": "part", "name": "test", "by": "time", "start": 0.5, "stop": 1.0, "jobs": 2
    }  # fmt: skip
    assert split(table(), {"empty": (0.6, 0.9)})["empty"].num_jobs == 0


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=40),
    st.lists(st.floats(0.0, 1.0), min_size=0, max_size=5),
    st.sampled_from(["jobs", "time"]),
)
def test_parts_hold_every_job_once(arrivals: list[float], cuts: list[float], by: str) -> None:
    arrival_s = np.sort(np.array(arrivals))
    bounds = sorted({0.0, *cuts, 1.0})
    parts = [part_bounds(arrival_s, a, b, by) for a, b in zip(bounds, bounds[1:], strict=False)]
    assert [i for first, end in parts for i in range(first, end)] == list(range(len(arrivals)))


def test_episodes_are_cut_from_parts_by_time(tmp_path: Path) -> None:
    settings = config(write(tmp_path), 2, parts_by="time")
    assert settings.workload.trace is not None
    trace = dataclasses.replace(settings.workload.trace, start_fraction=0.5, stop_fraction=1.0)
    settings = dataclasses.replace(settings, workload=dataclasses.replace(settings.workload, trace=trace))
    source = build_workload_source(settings)
    assert {source(0, 0, episode).provenance["first_job"] for episode in range(10)} == {4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"from_s": -1.0}, "from_s=-1.0 must be seconds from the first job"),
        ({"from_s": 5.0, "until_s": 5.0}, "from_s < until_s must hold"),
        ({"until_s": 0.0}, "from_s < until_s must hold"),
        ({"sample_share": 0.0}, r"sample_share=0.0 must lie in \(0, 1\]"),
        ({"sample_share": 1.5}, "sample_share=1.5 must lie"),
        ({"sample_by": "nodes"}, "sample_by='nodes' is unknown; choose one of: jobs, users, groups"),
        ({"sample_seed": -1}, "sample_seed=-1 must not be negative"),
        ({"gpu_map": ["3"]}, "'3' is no <recorded>:<new> pair"),
        ({"gpu_map": ["3:nan"]}, "'3:nan' is no <recorded>:<new> pair"),
        ({"gpu_map": ["3:4", "3.0:2"]}, "3 GPUs are mapped twice"),
        ({"gpu_rounding": "up"}, "gpu_rounding='up' is unknown"),
        ({"max_gpus": 0.0}, "max_gpus=0.0 must be positive"),
        ({"target_load": -0.5}, "target_load=-0.5 must be positive"),
        ({"load_by": "rate"}, "load_by='rate' is unknown; choose one of: arrivals, sizes"),
        ({"share": 1.0}, "unknown key"),
    ],
)
def test_wrong_settings(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_dict(ShapingConfig, values)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"load_scale=2.0 changes shaping.target_load=0.5; set load_scale to 1"):
        TraceConfig("t", load_scale=2.0, shaping=ShapingConfig(target_load=0.5))
    with pytest.raises(ConfigError, match="parts_by='days' is unknown"):
        config_from_dict(TraceConfig, {"path": "t", "parts_by": "days"})


def test_steps_that_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sample_share=0.001 leaves none of 6 jobs; raise it"):
        build_workload_source(config(write(tmp_path), sample_share=0.001))
    with pytest.raises(ConfigError, match=r"every job has more than max_gpus=0.1 GPUs"):
        build_workload_source(config(write(tmp_path), max_gpus=0.1, above_max_gpus="drop"))
