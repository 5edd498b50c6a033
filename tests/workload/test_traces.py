"""Trace readers: hand-made files of each format, every defect, and the real files where they are at hand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import TraceError, UnknownNameError
from dl2env.workload.traces import RowCount, read_trace
from dl2env.workload.traces.pollux import GPU_HOURS

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:33,30.0,8,240.0,6c71a0

"""
POLLUX = """name,time,application,num_replicas,batch_size
cifar10-0,107,cifar10,2,2048
imagenet-1,110.5,imagenet,16,3200
ncf-2,135,ncf,1,32768
"""

TRACES_DIR = Path(os.environ.get("DL2ENV_TRACES_DIR", Path(__file__).resolve().parents[2] / ".." / "shared" / "traces"))
REAL_PHILLY = TRACES_DIR / "adaptdl-osdi21" / "traces" / "philly.csv"
REAL_POLLUX = TRACES_DIR / "adaptdl-osdi21" / "workloads" / "workload-1.csv"


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "jobs.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_philly_by_hand(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, PHILLY))
    assert table.format == report.format == "philly"
    np.testing.assert_array_equal(table.arrival_s, [0.0, 30.0, 2932.0, 2932.0])
    np.testing.assert_array_equal(table.duration_s, [2951.0, 30.0, 66.0, 66.0])
    np.testing.assert_array_equal(table.num_gpus, [2, 8, 1, 1])
    assert table.label == ("6214e9", "6c71a0", "11cb48", "11cb48")
    np.testing.assert_array_equal(table.source_row, [3, 5, 2, 4])
    assert table.offered_gpus == pytest.approx((5902 + 240 + 66 + 66) / 2932)
    assert (report.rows_read, report.rows_kept) == (5, 4)
    assert report.dropped == {"blank last line": RowCount(1, (6,))}
    assert report.noted == {
        "repeats another row exactly": RowCount(1, (4,)),
        "arrives before the row above": RowCount(2, (3, 5)),
        "runs for less than 60 s": RowCount(1, (5,)),
    }
    assert report.origin == "2017-10-09 06:13:03"
    text = str(report)
    assert "jobs.csv (philly): 5 rows read, 4 kept" in text and "1 (rows 6)" in text


def test_pollux_by_hand(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, POLLUX))
    assert table.format == "pollux"
    np.testing.assert_array_equal(table.arrival_s, [0.0, 3.5, 28.0])
    np.testing.assert_array_equal(table.num_gpus, [2, 16, 1])
    gpu_hours = [GPU_HOURS["cifar10"], GPU_HOURS["imagenet"], GPU_HOURS["ncf"]]
    np.testing.assert_allclose(table.duration_s * table.num_gpus / 3600, gpu_hours)
    assert table.label == ("cifar10", "imagenet", "ncf")
    assert "assumed" in report.duration_rule and report.rows_read == report.rows_kept == 3
    assert GPU_HOURS["cifar10"] < GPU_HOURS["bert"] < GPU_HOURS["yolov3"] < GPU_HOURS["imagenet"]


def test_any_column_order_and_more_columns(tmp_path: Path) -> None:
    text = "extra,cluster,num_gpus,duration,timestamp\nx,a,2,10,2017-10-09T06:00:00\n"
    table, _ = read_trace(write(tmp_path, text))
    assert table.format == "philly" and table.duration_s[0] == 10.0 and table.num_gpus[0] == 2


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + PHILLY.encode(),
        PHILLY.replace("\n", "\r\n").encode(),
        PHILLY.strip().encode(),
        (PHILLY + "\n  \n,,\n").encode(),
        PHILLY.replace("11cb48", '"11cb48"').encode(),
        PHILLY.replace(",", " , ").encode(),
    ],
    ids=["byte-order mark", "CRLF", "no last newline", "blank lines at the end", "quotes", "blanks around cells"],
)
def test_harmless_variants_read_the_same(tmp_path: Path, content: bytes) -> None:
    expected, _ = read_trace(write(tmp_path, PHILLY))
    table, report = read_trace(write(tmp_path, content))
    for field in ("arrival_s", "duration_s", "num_gpus", "source_row"):
        np.testing.assert_array_equal(getattr(table, field), getattr(expected, field))
    assert table.label == expected.label
    assert report.rows_kept == 4
    assert report.rows_read == report.rows_kept + report.dropped["blank last line"].count


def fail(path: Path, words: list[str], format: str = "auto") -> None:
    with pytest.raises(TraceError) as error:
        read_trace(path, format)
    message = str(error.value)
    assert "\n" not in message and path.name in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2951.0,2", "-2951.0,2", ["row 3", "duration", "'-2951.0'", "positive"]),
        ("2951.0,2", "nan,2", ["row 3", "duration", "finite"]),
        ("2951.0,2", "inf,2", ["row 3", "duration", "finite"]),
        ("2951.0,2", "0,2", ["row 3", "duration", "positive"]),
        ("2951.0,2", ",2", ["row 3", "duration", "empty"]),
        ("2951.0,2", "long,2", ["row 3", "duration", "'long'", "number"]),
        (",8,240.0", ",0,0.0", ["row 5", "num_gpus", "at least 1"]),
        (",8,240.0", ",-8,240.0", ["row 5", "num_gpus"]),
        (",8,240.0", ",0.5,15.0", ["row 5", "num_gpus", "at least 1"]),
        (",8,240.0", ",1.5,45.0", ["row 5", "num_gpus", "whole"]),
        (",8,240.0", ",1e12,3e13", ["row 5", "num_gpus", "at most"]),
        ("5902.0", "5903.0", ["row 3", "gpu_time", "num_gpus"]),
        ("2017-10-09 06:13:33", "9 October", ["row 5", "timestamp", "'9 October'"]),
        ("2017-10-09 06:13:33", "2017-10-09 06:13:33+01:00", ["row 5", "timestamp", "zone"]),
        ("2017-10-09 06:13:33", "2017-13-09 06:13:33", ["row 5", "timestamp"]),
        ("2951.0,2,", "2951.0,2,9,", ["row 3", "6 cells", "5"]),
        ("2017-10-09 06:13:03,2951.0,2,5902.0,6214e9", "", ["row 3", "blank"]),
        ("6c71a0", "", ["row 5", "cluster", "empty"]),
        ("timestamp,duration,", "timestamp,length,", ["row 1", "duration", "length"]),
        ("timestamp,duration,", "timestamp,timestamp,", ["row 1", "timestamp", "twice"]),
        ("timestamp,duration,num_gpus,gpu_time,cluster", "a,b,c,d,e", ["row 1", "philly", "pollux", "num_replicas"]),
        ("timestamp,duration,num_gpus,gpu_time,cluster", "", ["row 1", "header"]),
        ("6c71a0", '"6c71a0', ["CSV"]),
    ],
)
def test_wrong_philly_rows(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in PHILLY
    fail(write(tmp_path, PHILLY.replace(old, new)), words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("110.5", "-1", ["row 3", "time", "at least 0"]),
        ("imagenet,16", "imagenet,0", ["row 3", "num_replicas"]),
        ("imagenet,16", "gpt,16", ["row 3", "application", "'gpt'", "cifar10"]),
        ("32768", "0", ["row 4", "batch_size"]),
        ("num_replicas", "replicas", ["row 1", "num_replicas"]),
    ],
)
def test_wrong_pollux_rows(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    fail(write(tmp_path, POLLUX.replace(old, new)), words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\n \n", ["empty"]),
        (PHILLY.splitlines()[0].encode(), ["no jobs"]),
        (bytes(range(256)), ["binary"]),
        (b"\x1f\x8b\x08\x01\x02\xff", ["UTF-8"]),
        (PHILLY.encode("utf-16"), ["UTF-16"]),
        (PHILLY.replace("6214e9", "\xe9").encode("latin-1"), ["UTF-8"]),
        (b"\xef\xbb\xbf", ["blank"]),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, content: bytes, words: list[str]) -> None:
    fail(write(tmp_path, content), words)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    fail(tmp_path / "none.csv", ["no such file"])
    fail(tmp_path, ["folder"])


def test_named_format(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY)
    assert read_trace(path, "philly")[0].num_jobs == 4
    fail(path, ["num_replicas", "pollux"], format="pollux")
    with pytest.raises(UnknownNameError, match="helios"):
        read_trace(path, "helios")


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(1, 10**6), st.integers(1, 128), st.sampled_from("abc")),
        min_size=1,
        max_size=30,
    )
)
def test_reader_sorts_and_keeps_every_job(tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple]) -> None:  # type: ignore[type-arg]
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    lines = ["timestamp,duration,num_gpus,cluster"]
    for second, duration, gpus, label in jobs:
        stamp = np.datetime64("2017-10-09T00:00:00") + np.timedelta64(second, "s")
        lines.append(f"{stamp},{duration},{gpus},{label}")
    path.write_text("\n".join(lines))
    table, report = read_trace(path)
    expected = sorted(enumerate(jobs), key=lambda job: (job[1][0], job[0]))
    first = min(job[0] for job in jobs)
    assert table.source_row.tolist() == [i + 2 for i, _ in expected]
    assert table.arrival_s.tolist() == [job[0] - first for _, job in expected]
    assert list(zip(table.duration_s, table.num_gpus, table.label, strict=True)) == [job[1:] for _, job in expected]
    assert report.noted["repeats another row exactly"].count == len(jobs) - len(set(jobs))
    assert report.rows_read == report.rows_kept == len(jobs)


@pytest.mark.skipif(not REAL_PHILLY.is_file(), reason="the philly.csv trace is not at hand (DL2ENV_TRACES_DIR)")
def test_real_philly_file() -> None:
    start = time.process_time()
    table, report = read_trace(REAL_PHILLY)
    assert time.process_time() - start < 2.0
    assert (report.rows_read, report.rows_kept, table.num_jobs) == (82_248, 82_247, 82_247)
    assert report.dropped["blank last line"].count == 1
    assert report.noted["repeats another row exactly"].count == 65
    assert report.noted["runs for less than 60 s"].count == 7_654
    assert report.noted["arrives before the row above"].count > 0
    assert table.duration_s.max() == 4_628_226 and np.median(table.duration_s) == 1_144
    assert table.duration_s.mean() == pytest.approx(13_136, abs=0.5)
    gpus, counts = np.unique(table.num_gpus, return_counts=True)
    assert dict(zip(gpus.tolist(), counts.tolist(), strict=True)) == {
        1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
    }  # fmt: skip
    assert len(set(table.label)) == 15


@pytest.mark.skipif(not REAL_POLLUX.is_file(), reason="the Pollux workloads are not at hand (DL2ENV_TRACES_DIR)")
def test_real_pollux_file() -> None:
    table, report = read_trace(REAL_POLLUX)
    assert table.format == "pollux" and report.rows_kept == 160
    assert table.arrival_s[-1] == 27_695 - 107
    assert report.noted["arrives before the row above"].count == 0
