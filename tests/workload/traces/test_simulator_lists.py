"""Job lists of the Tiresias and ElasticFlow simulators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import read_trace
from tests.workload.traces.samples import real_file


def write(folder: Path, text: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_published_list_of_tiresias() -> None:
    table, report = read_trace(real_file("tiresias/60_job.csv"))
    assert table.format == "tiresias" and table.num_jobs == report.rows_read == 60
    assert Counter(table.num_gpus.tolist()) == {1: 30, 2: 10, 4: 10, 8: 10}
    assert set(table.label.counts().values()) == {6} and len(table.label.counts()) == 10
    assert table.duration_s[0] == 164 and table.extra["iterations"][0] == 606 and table.arrival_s[-1] == 1779
    assert not report.warnings


def test_tiresias_by_hand(tmp_path: Path) -> None:
    text = (
        "model_name,job_id,num_gpu,start_time,duration,model_scale\n"
        "vgg19,7,2,100,60,1\nresnet50,8,4,90,120,2\nvgg11,9,0.5,90,120,2\n"
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "tiresias" and table.label.tolist() == ["resnet50", "vgg19"]
    np.testing.assert_array_equal(table.arrival_s, [0, 10])
    assert np.isnan(table.extra["iterations"]).all()
    assert report.dropped["num_gpu is below 1"].first_rows == (4,)


def test_elasticflow_by_hand(tmp_path: Path) -> None:
    text = (
        "job_id,num_gpu,submit_time,iteration,model_name,duration,ddl,batch_size,best_effort,real_duration\n"
        "a,4,1000,5000,resnet50,1500,3100,256,0,1400\n"
        "b,1,900,800,bert,3000,5000,64,1,2900\n"
        "c,2,1100,100,gpt2,60,1050,8,0,50\n"
        "d,2,1200,100,gpt2,60,,8,0,50\n"
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "elasticflow" and table.job_id.tolist() == ["b", "a", "c", "d"]
    np.testing.assert_array_equal(table.extra["deadline_s"], [np.nan, 2100, -50, np.nan])
    np.testing.assert_array_equal(table.extra["is_best_effort"], [1, 0, 0, 0])
    np.testing.assert_array_equal(table.extra["iterations"], [800, 5000, 100, 100])
    np.testing.assert_array_equal(table.duration_s, [3000, 1500, 60, 60])
    assert report.warned["its deadline is before its arrival"].first_rows == (4,)


def test_the_two_are_told_apart(tmp_path: Path) -> None:
    common = "job_id,num_gpu,submit_time,model_name,duration"
    for more, expected in (
        ("", "tiresias"),
        ("iterations", "tiresias"),
        ("iteration", "elasticflow"),
        ("ddl", "elasticflow"),
    ):
        text = f"{common}{',' + more if more else ''}\n1,2,3,vgg16,60{',9' if more else ''}\n"
        assert read_trace(write(tmp_path, text))[0].format == expected


def test_wrong_cells_that_no_job_depends_on_are_left_unknown(tmp_path: Path) -> None:
    """Iterations of 0 and the like cost no job, but they are told, and strict reading fails."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration\n"
        "0,1,0,0,vgg19,160\n1,1,1,many,vgg19,160\n2,1,2,inf,vgg19,160\n3,1,3,,vgg19,160\n4,1,4,50,vgg19,160\n"
    )
    table, report = read_trace(path)
    assert report.rows_kept == 5
    np.testing.assert_array_equal(table.extra["iterations"], [np.nan, np.nan, np.nan, np.nan, 50])
    assert {reason: count.first_rows for reason, count in report.clamped.items()} == {
        "iterations is not positive, left unknown": (2,),
        "iterations is not a number, left unknown": (3,),
        "iterations is not finite, left unknown": (4,),
    }
    with pytest.raises(TraceError, match=r"jobs.csv, line 4: clamped: iterations is not finite"):
        read_trace(path, strict=True)
