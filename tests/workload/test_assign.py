"""The rule that gives recorded jobs a type and work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError
from dl2env.workload.job_types import JobType, load_job_types
from dl2env.workload.traces import JobTable, assign_work

PS_TYPE: dict[str, Any] = {
    "architecture": "ps_worker",
    "synchronous": True,
    "batch_size": 10,
    "samples_per_epoch": 1000,
    "worker_cpus": 1,
    "worker_gpus": 1,
    "ps_cpus": 1,
    "ps_gpus": 0,
    "flops": 1.0,
    "memory_bytes": 0.0,
    "input_bytes": 0.0,
    "weight_traffic_bytes": 0.0,
    "dense_weight_bytes": 0.0,
    "embedding_weight_bytes": 0.0,
}


def job_type(name: str, **changes: Any) -> JobType:
    return JobType(name=name, **{**PS_TYPE, **changes})


def table(
    gpus: list[float] | list[int], labels: list[str] | None = None, format: str = "philly", **columns: Any
) -> JobTable:
    n = len(gpus)
    return JobTable.of(
        np.arange(n, dtype=float),
        np.arange(n) * 100.0 + 50.0,
        gpus,
        format=format,
        source_row=np.arange(n) + 2,
        texts={"label": labels or ["vc"] * n},
        **columns,
    )


def test_work_and_clamping_by_hand() -> None:
    speed = np.arange(1.0, 101.0).reshape(1, 10, 10)  # speed[0, w, p] = 1 + 10 w + p
    jobs, report = assign_work(table([1, 4, 20]), [job_type("net")], speed, 8, 3, seed=0)
    assert jobs.workers.tolist() == [1, 4, 8]
    assert jobs.ps.tolist() == [1, 3, 3]
    # duration x speed / samples per epoch
    np.testing.assert_allclose(jobs.epochs, [50 * 12 / 1000, 150 * 44 / 1000, 250 * 84 / 1000])
    assert report.clamped.count == 1 and report.clamped.first_rows == (4,)
    assert report.jobs_per_type == {"net": 3} and report.by_label == 0
    assert "1 (line 4)" in str(report)


def test_types_without_parameter_servers() -> None:
    types = [job_type("ring", architecture="all_reduce", ps_cpus=0)]
    speed = np.ones((1, 9, 1))
    jobs, _ = assign_work(table([3]), types, speed, 8, 8, seed=0)
    assert (jobs.workers[0], jobs.ps[0]) == (3, 0)


def test_workers_with_several_gpus() -> None:
    jobs, report = assign_work(table([1, 4, 5]), [job_type("net", worker_gpus=2)], np.ones((1, 9, 9)), 8, 8, seed=0)
    assert jobs.workers.tolist() == [1, 2, 3]
    assert report.clamped.count == 0


def test_small_types_take_small_jobs_only() -> None:
    types = [job_type("single", architecture="1w1g"), job_type("net"), job_type("cpu", worker_gpus=0)]
    gpus = [1, 2, 8, 30] * 500
    jobs, report = assign_work(table(gpus), types, np.ones((3, 9, 9)), [1, 8, 8], 8, seed=4)
    small = jobs.type_idx[::4]
    assert np.bincount(small, minlength=3).tolist() == pytest.approx([250, 250, 0], abs=50)
    assert set(jobs.type_idx[np.array(gpus) > 1].tolist()) == {1}
    assert report.jobs_per_type["cpu"] == 0
    assert report.clamped.count == 500


def test_types_without_gpus_serve_when_there_are_no_others() -> None:
    jobs, _ = assign_work(table([2]), [job_type("cpu", worker_gpus=0)], np.ones((1, 9, 9)), 8, 8, seed=0)
    assert (jobs.type_idx[0], jobs.workers[0]) == (0, 2)


def test_pollux_labels() -> None:
    types = load_job_types("dl2")
    labels = ["cifar10", "imagenet", "ncf", "yolov3"] * 50
    jobs, report = assign_work(table([20] * 200, labels, "pollux"), types, np.ones((8, 17, 17)), 16, 16, seed=0)
    names = np.array([types[t].name for t in jobs.type_idx])
    assert set(names[0::4]) == {"resnext-110"} and set(names[1::4]) == {"resnet-50"} and set(names[2::4]) == {"dssm"}
    assert len(set(names[3::4])) > 3  # drawn
    assert report.by_label == 150 and report.clamped.count == 200
    other, report = assign_work(table([20] * 200, labels, "philly"), types, np.ones((8, 17, 17)), 16, 16, seed=0)
    assert report.by_label == 0  # no such labels in that format
    np.testing.assert_array_equal(other.type_idx[3::4], jobs.type_idx[3::4])


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=40),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(0, 2**32),
)
def test_recorded_durations_are_met(gpus: list[int], max_workers: int, max_ps: int, seed: int) -> None:
    types = load_job_types("dl2")
    speed = np.random.default_rng(seed).uniform(0.1, 100.0, (8, 17, 17))
    recorded = table(gpus)
    jobs, report = assign_work(recorded, types, speed, max_workers, max_ps, seed)
    assert (jobs.workers <= max_workers).all() and (jobs.ps <= max_ps).all()
    np.testing.assert_allclose(
        jobs.epochs * jobs.samples_per_epoch / speed[jobs.type_idx, jobs.workers, jobs.ps], recorded.duration_s
    )
    assert report.clamped.count == sum(g > max_workers for g in gpus)
    assert sum(report.jobs_per_type.values()) == len(gpus)
    again, _ = assign_work(recorded, types, speed, max_workers, max_ps, seed)
    np.testing.assert_array_equal(again.type_idx, jobs.type_idx)


def test_the_seed_matters_and_a_prefix_keeps_its_types() -> None:
    types = load_job_types("dl2")
    speed = np.ones((8, 17, 17))
    first, _ = assign_work(table([1] * 100), types, speed, 16, 16, seed=1)
    second, _ = assign_work(table([1] * 100), types, speed, 16, 16, seed=2)
    prefix, _ = assign_work(table([1] * 10), types, speed, 16, 16, seed=1)
    assert (first.type_idx != second.type_idx).any()
    np.testing.assert_array_equal(prefix.type_idx, first.type_idx[:10])


def test_shares_of_gpus_are_rounded_up_and_counted() -> None:
    jobs, report = assign_work(
        table([0.5, 1.0, 2.3, 10 * 0.1 + 2]), [job_type("net")], np.ones((1, 9, 9)), 8, 8, seed=0
    )
    assert jobs.workers.tolist() == [1, 1, 3, 3]
    assert report.rounded_up.count == 2 and report.rounded_up.first_rows == (2, 4)
    assert report.recorded_gpu_s == pytest.approx(0.5 * 50 + 150 + 2.3 * 250 + 3 * 350)
    assert report.assigned_gpu_s == pytest.approx(50 + 150 + 3 * 250 + 3 * 350)


def test_roles_of_the_trace_are_used() -> None:
    types = [job_type("net"), job_type("ring", architecture="all_reduce", ps_cpus=0)]
    columns = {"num_workers": np.array([4, 4, 10, 0]), "num_ps": np.array([2, 0, 3, 0])}
    recorded = table([2.0, 4, 80, 4], **columns)
    for seed in range(10):
        jobs, report = assign_work(recorded, types, np.ones((2, 17, 17)), 16, 2, seed)
        assert jobs.type_idx[:3].tolist() == [0, 1, 0]  # parameter servers, none, parameter servers
        assert jobs.workers.tolist() == [4, 4, 16, 4]  # 10 workers with 8 GPUs each are clamped to 16 of one GPU
        assert jobs.ps[:3].tolist() == [2, 0, 2]
        assert report.clamped.count == 1


def test_jobs_without_gpus() -> None:
    recorded = table([0, 1, 0, 2], num_cpus=np.array([3.0, 8, np.nan, 8]))
    jobs, report = assign_work(recorded, [job_type("net")], np.ones((1, 9, 9)), 8, 8, seed=0)
    assert report.left_out.count == 2 and report.left_out.first_rows == (2, 4)
    assert jobs.source_row.tolist() == [3, 5] and jobs.arrival_s.tolist() == [0.0, 2.0]
    types = [job_type("net"), job_type("cpu", worker_gpus=0)]
    jobs, report = assign_work(recorded, types, np.ones((2, 9, 9)), 8, 8, seed=0)
    assert jobs.type_idx.tolist() == [1, 0, 1, 0] and jobs.workers.tolist() == [3, 1, 1, 2]
    assert report.left_out.count == 0
    with pytest.raises(ConfigError, match="no job uses a GPU"):
        assign_work(table([0, 0]), [job_type("net")], np.ones((1, 9, 9)), 8, 8, seed=0)


def test_a_label_that_is_a_type_is_that_type() -> None:
    types = load_job_types("dl2")
    labels = ["vgg-16", "dssm"] * 20
    jobs, report = assign_work(table([1] * 40, labels, "dl2env"), types, np.ones((8, 17, 17)), 16, 16, seed=0)
    assert [types[t].name for t in jobs.type_idx] == labels and report.by_label == 40


def test_wrong_speeds() -> None:
    with pytest.raises(ConfigError, match="8 workers"):
        assign_work(table([1]), [job_type("net")], np.ones((1, 8, 9)), 8, 8, seed=0)
    with pytest.raises(ConfigError, match=r"line 3.*'net'.*2 workers and 2 PSs"):
        speed = np.ones((1, 9, 9))
        speed[0, 2, 2] = 0.0
        assign_work(table([1, 2]), [job_type("net")], speed, 8, 8, seed=0)
