"""Philly job log: attempts, logging errors, censoring and lines, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import JobTable, ReadReport, json_records, read_trace


def attempt(start: str | None, end: str | None, *servers: int) -> dict[str, Any]:
    """One attempt with so many GPUs on each server; times are hours and minutes of one day."""
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(n)]} for i, n in enumerate(servers)]
    times = [None if time is None else f"2017-10-09 {time}:00" for time in (start, end)]
    return {"start_time": times[0], "end_time": times[1], "detail": detail}


def job(
    name: str, *attempts: Any, submitted: str | None = "06:00", status: str = "Pass", **more: Any
) -> dict[str, Any]:
    time = None if submitted is None else f"2017-10-09 {submitted}:00"
    record = {"status": status, "vc": "a", "jobid": name, "attempts": list(attempts)}
    return {**record, "submitted_time": time, "user": "u", **more}


def read(folder: Path, records: list[Any] | str, **options: Any) -> tuple[JobTable, ReadReport]:
    path = folder / "cluster_job_log"
    path.write_text(records if isinstance(records, str) else json.dumps(records, indent=1), encoding="utf-8")
    return read_trace(path, **options)


def test_attempts_add_up(tmp_path: Path) -> None:
    records = [
        job("one", attempt("06:10", "06:40", 4, 4), status="Killed"),
        job(
            "retried", attempt("06:00", "06:30", 8), attempt("07:00", "08:00", 8, 8), submitted="05:50", status="Failed"
        ),
        job("no detail at the end", attempt("06:20", "06:30", 2), attempt("06:30", "06:40")),
    ]
    table, report = read(tmp_path, records)
    assert table.format == "philly_json"
    assert table.job_id.tolist() == ["retried", "one", "no detail at the end"]
    assert table.status.tolist() == ["failed", "killed", "completed"]
    np.testing.assert_array_equal(table.arrival_s, [0, 600, 600])
    np.testing.assert_array_equal(table.duration_s, [5400, 1800, 1200])
    np.testing.assert_array_equal(table.num_gpus, [16, 8, 2])
    np.testing.assert_array_equal(table.extra["attempts"], [2, 1, 2])
    np.testing.assert_array_equal(table.extra["last_attempt_s"], [3600, 1800, 600])
    np.testing.assert_array_equal(table.extra["servers"], [2, 2, 1])
    np.testing.assert_array_equal(table.extra["wait_s"], [600, 600, 1200])
    assert table.group.tolist() == ["a"] * 3 and table.user.tolist() == ["u"] * 3
    assert not table.is_censored.any() and not report.warnings
    assert report.noted["its attempts differ in GPUs"].count == 1
    assert report.origin == "2017-10-09 05:50:00"


def test_jobs_that_still_ran_are_censored_at_the_latest_time(tmp_path: Path) -> None:
    records = [
        job("open", attempt("06:10", "06:20", 1), attempt("07:00", None, 2)),
        job("done", attempt("06:10", "09:00", 1)),
        job("just started", attempt("09:00", None, 1)),
    ]
    table, report = read(tmp_path, records)
    assert table.job_id.tolist() == ["open", "done"]
    np.testing.assert_array_equal(table.is_censored, [True, False])
    np.testing.assert_array_equal(table.duration_s, [600 + 7200, 10200])
    assert table.status.tolist() == ["running", "completed"]
    assert report.dropped["started when the log was taken"].count == 1 and not report.warnings


def test_what_is_wrong_is_counted_with_the_line_of_the_record(tmp_path: Path) -> None:
    good = job("good", attempt("06:10", "06:40", 1))
    lines = [
        json.dumps(record)
        for record in (
            good,
            job("empty"),
            job("none", submitted="06:00", attempts=None),
            job("no start", attempt(None, "07:00", 1)),
            job("no gpus", attempt("06:10", "07:00")),
            job("instant", attempt("06:10", "06:10", 1)),
            job("backward", attempt("06:10", "06:05", 1)),
            job("no time", attempt("06:10", "06:40", 1), submitted=None),
            job("odd time", {"start_time": "yesterday", "end_time": None, "detail": []}),
            job("zone", {"start_time": "2017-10-09 06:00:00+00:00", "end_time": None, "detail": []}),
            job("odd attempts", 5),
            {"jobid": "half"},
            7,
            job("gap", attempt("06:10", None, 1), attempt("07:00", "08:00", 1)),
            job("odd status", attempt("06:10", "06:40", 1), status="Lost"),
            job("early", attempt("05:00", "06:40", 1)),
        )
    ]
    table, report = read(tmp_path, "[" + ",\n".join(lines) + "]\n")
    assert sorted(table.job_id.tolist()) == ["early", "gap", "good", "odd status"]
    dropped = {reason: (count.count, count.first_rows, count.is_warning) for reason, count in report.dropped.items()}
    assert dropped == {
        "never ran: no attempts": (2, (2, 3), False),
        "no attempt has a start time and an end time": (1, (4,), True),
        "no attempt names its GPUs": (1, (5,), True),
        "ran for 0 s": (1, (6,), True),
        "ends before it starts": (1, (7,), True),
        "submitted_time is missing": (1, (8,), True),
        "the time of an attempt is not like 2017-10-09 07:01:55": (1, (9,), True),
        "the time of an attempt has a zone and submitted_time has none, or the reverse": (1, (10,), True),
        "attempts is not a list of records with start_time, end_time and detail": (1, (11,), True),
        "not a record with jobid, attempts, submitted_time": (2, (12, 13), True),
    }
    assert {reason: count.first_rows for reason, count in report.warned.items()} == {
        "status is none of Pass, Killed, Failed": (15,),
        "an attempt lacks its start or end and is left out": (14,),
        "starts before it is submitted": (16,),
    }
    gap = table.job_id.tolist().index("gap")
    assert table.duration_s[gap] == 3600 and not table.is_censored[gap]
    with pytest.raises(TraceError, match="cluster_job_log, line 4: dropped: no attempt has a start"):
        read(tmp_path, "[" + ",\n".join(lines) + "]\n", strict=True)


def test_repeated_records_and_identifiers(tmp_path: Path) -> None:
    same = job("a", attempt("06:10", "06:40", 1))
    _, report = read(tmp_path, [same, same, job("a", attempt("06:10", "07:40", 1))])
    assert report.warned["repeats another row exactly"].count == 1
    assert report.warned["has the job id of another row"].count == 1


def test_one_record_per_line(tmp_path: Path) -> None:
    records = [job(f"j{i}", attempt("06:10", "06:40", i + 1)) for i in range(3)]
    expected, _ = read(tmp_path, records)
    table, _ = read(tmp_path, "\n".join(json.dumps(record) for record in records) + "\n")
    np.testing.assert_array_equal(table.num_gpus, expected.num_gpus)
    np.testing.assert_array_equal(table.source_row, [1, 2, 3])


def test_a_cut_file_keeps_what_is_whole(tmp_path: Path) -> None:
    text = json.dumps([job(f"j{i}", attempt("06:10", "06:40", 1)) for i in range(3)], indent=1)
    table, report = read(tmp_path, text[: text.index('"j2"') + 30])
    assert table.job_id.tolist() == ["j0", "j1"]
    cut = report.dropped["the file ends within this record"]
    assert cut.count == 1 and cut.is_warning and report.rows_read == 3
    assert cut.first_rows == (text[: text.index('"j2"')].rsplit("{", 1)[0].count("\n") + 1,)


def test_json_that_is_wrong_in_the_middle_is_one_error(tmp_path: Path) -> None:
    lines = [json.dumps(job(f"j{i}", attempt("06:10", "06:40", 1))) for i in range(4)]
    lines[2] = lines[2].replace('"vc":', '"vc"')
    with pytest.raises(TraceError, match="cluster_job_log, line 3: not valid JSON"):
        read(tmp_path, "[" + ",\n".join(lines) + "]")
    with pytest.raises(TraceError, match="line 2: more text after the list"):
        read(tmp_path, f"[{lines[0]}]\n{lines[1]}")
    with pytest.raises(TraceError, match="line 1: a record that cannot be read"):
        read(tmp_path, '[{"jobid": ' + "[" * 100_000, format="philly_json")
    with pytest.raises(TraceError, match="line 1: a record that cannot be read"):
        read(tmp_path, '[{"jobid": ' + "9" * 5000 + "}]", format="philly_json")


def test_small_blocks_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and letters of several bytes may lie across the ends of blocks."""
    records = [job(f"j\u00e9\u4e16{i}", attempt("06:10", "06:40", i + 1)) for i in range(20)]
    text = json.dumps(records, indent=1, ensure_ascii=False)
    expected, whole = read(tmp_path, text)
    for size in (1, 7, 100):
        monkeypatch.setattr(json_records, "BLOCK_BYTES", size)
        table, report = read(tmp_path, text)
        assert table.job_id.tolist() == expected.job_id.tolist()
        np.testing.assert_array_equal(table.source_row, expected.source_row)
        assert report == whole
