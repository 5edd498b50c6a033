"""Every value of small files, worked out by hand: Philly, Pollux, openb, spot and the project's own format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import TraceError, UnknownNameError
from dl2env.workload.traces import RowCount, read_trace
from dl2env.workload.traces.own import REQUIRED, properties, schema, write_table
from dl2env.workload.traces.pollux import GPU_HOURS
from tests.workload.traces.samples import SAMPLES

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:33,30.0,8,240.0,6c71a0

"""


def write(folder: Path, content: str | bytes, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_philly(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, PHILLY))
    assert table.format == report.format == "philly"
    np.testing.assert_array_equal(table.arrival_s, [0.0, 30.0, 2932.0, 2932.0])
    np.testing.assert_array_equal(table.duration_s, [2951.0, 30.0, 66.0, 66.0])
    np.testing.assert_array_equal(table.num_gpus, [2, 8, 1, 1])
    assert table.group.tolist() == ["6214e9", "6c71a0", "11cb48", "11cb48"]
    np.testing.assert_array_equal(table.source_row, [3, 5, 2, 4])
    assert table.offered_gpus == pytest.approx((5902 + 240 + 66 + 66) / 2932)
    assert (report.rows_read, report.rows_kept, report.rows_dropped) == (5, 4, 1)
    assert report.dropped == {"blank line": RowCount(1, (6,))}
    assert report.noted == {
        "repeats another row exactly": RowCount(1, (4,)),
        "arrives before the row above": RowCount(2, (3, 5)),
        "runs for less than 60 s": RowCount(1, (5,)),
    }
    assert report.warnings == {} and report.origin == "2017-10-09 06:13:03"
    assert table.origin_s == 1507529583.0  # 2017-10-09 06:13:03 on its own clock
    text = str(report)
    assert "jobs.csv (philly): 5 rows read = 4 kept + 1 dropped + 0 merged" in text and "1 (line 6)" in text
    read_trace(tmp_path / "jobs.csv", strict=True)  # a blank line is no warning


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (",8,240.0", ",0,0.0", "num_gpus is below 1"),
        (",8,240.0", ",1.5,45.0", "num_gpus is not a whole number"),
        (",8,240.0", ",1e12,3e13", "num_gpus is above 1e+06"),
        ("2017-10-09 06:13:33", "9 October", "timestamp is not a time like 2017-10-09 07:01:55"),
        ("2017-10-09 06:13:33", "2017-13-09 06:13:33", "timestamp is not a time like 2017-10-09 07:01:55"),
        ("2017-10-09 06:13:33", "2017-02-30 06:13:33", "timestamp is not a time like 2017-10-09 07:01:55"),
        ("2017-10-09 06:13:33", "2017-10-09 24:13:33", "timestamp is not a time like 2017-10-09 07:01:55"),
        ("2017-10-09 06:13:33", "2017-10-09 06:13:33+01:00", "timestamp has a time zone, unlike the rows above"),
        (",6c71a0", ",6c71a0,9", "not 5 cells"),
        (",6c71a0", "", "not 5 cells"),
        (",6c71a0", ',"6c71a0', "a quote that never closes"),
    ],
)
def test_wrong_philly_rows_are_dropped_and_named(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert PHILLY.count(old) == 1
    path = write(tmp_path, PHILLY.replace(old, new))
    table, report = read_trace(path)
    assert table.num_jobs == 3
    assert report.dropped[reason].first_rows == (5,) and report.dropped[reason].example
    with pytest.raises(TraceError) as error:
        read_trace(path, strict=True)
    assert f"jobs.csv, line 5: dropped: {reason} (" in str(error.value)


def test_gpu_time_that_does_not_fit_is_told(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, PHILLY.replace("5902.0", "5903.0")))
    assert table.num_jobs == 4
    assert report.warned == {"gpu_time is not duration x num_gpus and is not used": RowCount(1, (3,))}


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2017-10-09T06:13:33", 30.0),
        ("2017-10-09 06:13:33.5", 30.5),
        ("2017-10-09 06:14", 57.0),
        ("2017-10-10", 64017.0),
    ],
)
def test_forms_of_times(tmp_path: Path, stamp: str, seconds: float) -> None:
    table, _ = read_trace(write(tmp_path, PHILLY.replace("2017-10-09 06:13:33", stamp)))
    assert seconds in table.arrival_s


def test_times_with_zones_are_read_as_utc(tmp_path: Path) -> None:
    text = PHILLY.replace("06:13:03", "06:13:03Z").replace("06:13:33", "08:13:33+02:00")
    text = text.replace("07:01:55", "02:01:55-0500")
    table, report = read_trace(write(tmp_path, text))
    np.testing.assert_array_equal(table.arrival_s, [0.0, 30.0, 2932.0, 2932.0])
    assert report.layout["times"] == "with a zone, read as UTC"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("timestamp,length,num_gpus,gpu_time,cluster", ["line 1", "duration", "length"]),
        ("a,b,c,d,e", ["line 1", "philly", "pollux", "num_replicas"]),
        ("", ["line 1"]),
    ],
)
def test_wrong_headers(tmp_path: Path, header: str, words: list[str]) -> None:
    path = write(tmp_path, PHILLY.replace("timestamp,duration,num_gpus,gpu_time,cluster", header))
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert [word for word in words if word not in str(error.value)] == [], error.value


def test_a_column_twice(tmp_path: Path) -> None:
    text = PHILLY.replace("gpu_time", "duration")
    with pytest.raises(TraceError, match="line 1: column 'duration' appears twice"):
        read_trace(write(tmp_path, text))


def test_missing_file_folder_format_and_member(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: no such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="is a folder without files"):
        read_trace(tmp_path)
    path = write(tmp_path, PHILLY)
    with pytest.raises(UnknownNameError, match="trace format 'xml'"):
        read_trace(path, "xml")
    with pytest.raises(TraceError, match="has no member 'a.csv'"):
        read_trace(f"{path}::a.csv")
    write(tmp_path, PHILLY, "more.csv")
    with pytest.raises(TraceError, match=r"holds 2 files \(jobs.csv, more.csv\); name one"):
        read_trace(tmp_path)
    write(tmp_path, SAMPLES["pollux"].text, "more.csv")
    with pytest.raises(TraceError, match="files of several formats .*philly: jobs.csv"):
        read_trace(tmp_path)
    write(tmp_path, "nothing", "more.csv")
    table, report = read_trace(tmp_path)
    assert table.num_jobs == 4 and report.layout["other files there, not read"] == "more.csv"


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
    columns = (table.duration_s, table.num_gpus, table.group.tolist())
    assert list(zip(*columns, strict=True)) == [job[1:] for _, job in expected]
    repeats = report.noted.get("repeats another row exactly", RowCount(0))
    assert repeats.count == len(jobs) - len(set(jobs))
    assert report.rows_read == report.rows_kept == len(jobs)


def test_pollux(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, SAMPLES["pollux"].text))
    np.testing.assert_array_equal(table.arrival_s, [0.0, 3.5, 28.0])
    np.testing.assert_array_equal(table.num_gpus, [2, 16, 1])
    gpu_hours = [GPU_HOURS["cifar10"], GPU_HOURS["imagenet"], GPU_HOURS["ncf"]]
    np.testing.assert_allclose(table.duration_s * table.num_gpus / 3600, gpu_hours)
    assert table.label.tolist() == ["cifar10", "imagenet", "ncf"]
    np.testing.assert_array_equal(table.extra["batch_size"], [2048, 3200, 32768])
    assert "assumed" in report.duration_rule and report.rows_read == report.rows_kept == 3
    assert GPU_HOURS["cifar10"] < GPU_HOURS["bert"] < GPU_HOURS["yolov3"] < GPU_HOURS["imagenet"]
    _, report = read_trace(write(tmp_path, SAMPLES["pollux"].text.replace(",imagenet,", ",gpt,")))
    ((reason, rows),) = report.dropped.items()
    assert reason.startswith("application is none of cifar10") and rows.example == "application='gpt'"


OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,12000,16384,1,1000,,LS,Running,100,12537,150
b,6000,12288,1,460,V100M16|V100M32,BE,Succeeded,427,1290,430
c,64000,262144,8,1000,,Guaranteed,Failed,300,900,310
d,4000,8192,0,0,,BE,Succeeded,500,600,500
e,4000,8192,1,1000,,BE,Pending,510,600,
f,4000,8192,1,1000,,BE,Running,510,600,
g,4000,8192,1,1000,,BE,Succeeded,520,520,521
h,4000,8192,2,500,,BE,Succeeded,530,630,520
"""


def test_openb(tmp_path: Path) -> None:
    table, report = read_trace(write(tmp_path, OPENB))
    assert table.job_id.tolist() == ["a", "c", "b", "d", "h"]
    np.testing.assert_array_equal(table.arrival_s, [0, 200, 327, 400, 430])
    np.testing.assert_array_equal(table.duration_s, [12387, 590, 860, 100, 110])
    np.testing.assert_array_equal(table.num_gpus, [1, 8, 0.46, 0, 1])
    np.testing.assert_array_equal(table.num_cpus, [12, 64, 6, 4, 4])
    np.testing.assert_array_equal(table.memory_gib, [16, 256, 12, 8, 8])
    assert table.status.tolist() == ["running", "failed", "completed", "completed", "completed"]
    assert table.is_censored.tolist() == [True, False, False, False, False]
    assert table.gpu_kind[2] == "V100M16|V100M32" and table.group[0] == "LS"
    np.testing.assert_array_equal(table.extra["wait_s"], [50, 10, 3, 0, -10])
    assert report.dropped == {
        "never scheduled (Pending)": RowCount(1, (6,)),
        "scheduled_time is missing": RowCount(1, (7,)),
        "deleted before or when it was scheduled": RowCount(1, (8,)),
    }
    assert list(report.warnings) == [
        "dropped: scheduled_time is missing",
        "dropped: deleted before or when it was scheduled",
        "warned: scheduled before it was created",
        "warned: a share of several GPUs",
    ]
    assert report.warned["scheduled before it was created"].first_rows == (9,)


def test_spot(tmp_path: Path) -> None:
    table, _ = read_trace(write(tmp_path, SAMPLES["spot"].text))
    np.testing.assert_array_equal(table.arrival_s, [0, 10, 20.5])
    np.testing.assert_array_equal(table.num_gpus, [1, 0.5, 32])  # per worker x workers
    np.testing.assert_array_equal(table.num_workers, [1, 1, 4])
    np.testing.assert_array_equal(table.num_cpus, [8, 4, 384])
    np.testing.assert_array_equal(table.extra["is_spot"], [0, 1, 1])
    assert table.group.tolist() == ["org-a", "org-a", "org-b"]
    assert table.gpu_kind.counts() == {"A10": 2, "A100-SXM4-80GB": 1}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_own_format_writes_what_it_reads(tmp_path: Path, suffix: str) -> None:
    expected, _ = read_trace(write(tmp_path, OPENB))
    path = tmp_path / f"table.{suffix}"
    write_table(expected, path)
    table, report = read_trace(path)
    assert table.format == "dl2env" and report.rows_kept == expected.num_jobs
    for name in ("arrival_s", "duration_s", "num_gpus", "num_cpus", "memory_gib", "is_censored"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
    for name in ("job_id", "status", "group", "gpu_kind"):
        assert getattr(table, name).tolist() == getattr(expected, name).tolist()
    np.testing.assert_array_equal(table.extra["wait_s"], expected.extra["wait_s"])


def test_own_format_is_checked_against_its_schema(tmp_path: Path) -> None:
    assert tuple(schema()["items"]["required"]) == REQUIRED
    text = (
        "arrival_s,duration_s,num_gpus,status,num_workers,spare\n0,60,1,completed,2,x\n1,60,1,done,2,x\n2,60,1,,2.5,x\n"
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.num_jobs == 1 and report.layout["columns left out"] == "spare"
    assert {rows.first_rows for rows in report.dropped.values()} == {(3,), (4,)}
    assert set(properties()) >= {"job_id", "label", "gpu_kind", "is_censored"}
    jsonschema = json.dumps(schema())
    assert "2020-12" in jsonschema


def test_a_table_is_written_as_csv_or_parquet_only(tmp_path: Path) -> None:
    table, _ = read_trace(write(tmp_path, PHILLY))
    with pytest.raises(TraceError, match="csv or .parquet"):
        write_table(table, tmp_path / "table.xlsx")
    with pytest.raises(TraceError, match="cannot be written"):
        write_table(table, tmp_path / "none" / "table.csv")


def test_damaged_parquet(tmp_path: Path) -> None:
    table, _ = read_trace(write(tmp_path, PHILLY))
    path = tmp_path / "table.parquet"
    write_table(table, path)
    data = path.read_bytes()
    for stop in (10, len(data) // 2, len(data) - 6):
        with pytest.raises(TraceError, match=r"table.parquet, row 1"):
            read_trace(write(tmp_path, data[:stop], "table.parquet"))


def test_a_million_blocks_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that blocks cut, quoted cells over several lines among them, read the same."""
    import dl2env.workload.traces.rows as module

    rows = [
        f'2017-10-09 07:{i % 60:02d}:00,{60 + i},1,{60 + i},"a""{i % 7}{chr(10) if i % 3 else ","}b"'
        for i in range(200)
    ]
    path = write(tmp_path, "timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n")
    expected, whole = read_trace(path, "philly")
    assert expected.num_jobs == 200 and whole.rows_dropped == 0
    for size in (60, 97, 256, 1000):
        monkeypatch.setattr(module, "BLOCK_BYTES", size)
        table, report = read_trace(path, "philly")
        np.testing.assert_array_equal(table.duration_s, expected.duration_s)
        assert table.group.tolist() == expected.group.tolist()
        np.testing.assert_array_equal(table.source_row, expected.source_row)
        assert report.rows_read == whole.rows_read
