"""Standard Workload Format: header, unknown values, resumed jobs, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import TraceError
from dl2env.workload.traces import read_trace

HEADER = "; Version: 2.2\n; Computer: IBM SP2\n;    MaxProcs: 128\n; UnixStartTime: 823046400\n;\n"


def row(number: int, submit: float, run: float, allocated: int, requested: int, status: int, **more: object) -> str:
    wait, memory = more.get("wait", 5), more.get("memory", -1)
    head = f"  {number} {submit}  {wait} {run} {allocated} -1 -1 {requested} 9000 {memory} {status}"
    return f"{head} {more.get('user', 3)} {more.get('group', -1)} -1 1 -1 -1 -1\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "log.swf"
    path.write_text(text, encoding="utf-8")
    return path


def test_by_hand(tmp_path: Path) -> None:
    text = HEADER + "".join(
        (
            row(1, 10, 3600, 8, 16, 1, memory=1048576),  # requested processors count
            row(2, 20, 60, 4, -1, 0, wait=-1, group=7),
            row(3, 30, -1, -1, 4, 5),
            row(4, 40, 500, 4, 4, 5, user=-1),
            row(5, 50, 0, 1, 1, 1),
            row(6, 60, -1, 4, 4, 1),
            row(7, 70, 60, -1, -1, 1),
            row(8, 80, 60, 2, 2, -1),
            row(9, -1, 60, 2, 2, 1),
            row(10, 90, 60, 2, 2, 9),
        )
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.format == "swf" and table.job_id.tolist() == ["1", "2", "4", "5", "8", "10"]
    assert table.status.tolist() == ["completed", "failed", "killed", "completed", "unknown", "unknown"]
    np.testing.assert_array_equal(table.arrival_s, [0, 10, 30, 40, 70, 80])
    np.testing.assert_array_equal(table.duration_s, [3600, 60, 500, 1, 60, 60])
    np.testing.assert_array_equal(table.num_gpus, [16, 4, 4, 1, 2, 2])
    np.testing.assert_array_equal(table.memory_gib[:2], [16, np.nan])  # 1 GiB for each of 16 processors
    np.testing.assert_array_equal(table.extra["wait_s"], [5, np.nan, 5, 5, 5, 5])
    assert table.user.tolist() == ["3", "3", "", "3", "3", "3"] and table.group.tolist() == ["", "7", "", "", "", ""]
    dropped = {reason: (count.first_rows, count.is_warning) for reason, count in report.dropped.items()}
    assert dropped == {
        "submit time is negative": ((14,), True),
        "cancelled before it started": ((8,), False),
        "run time is unknown": ((11,), True),
        "number of processors is unknown": ((12,), True),
    }
    assert report.clamped["run time 0, counted as 1 s"].first_rows == (10,)
    assert report.warned["status is none of -1 to 5"].first_rows == (15,)
    assert report.layout["header MaxProcs"] == "128" and report.layout["header UnixStartTime"] == "823046400"
    assert report.rows_read == 10


def test_pieces_of_resumed_jobs(tmp_path: Path) -> None:
    text = "".join(
        (
            row(1, 0, 300, 4, 4, 1),
            row(1, 0, 100, 4, 4, 2),
            row(1, 200, 200, 4, 4, 3),
            row(2, 5, 100, 4, 4, 2),
            row(2, 5, 100, 4, 4, 4),
            row(3, 10, 100, 4, 4, 1),
        )
    )
    table, report = read_trace(write(tmp_path, text))
    assert table.job_id.tolist() == ["1", "3"] and table.duration_s.tolist() == [300, 100]
    assert report.merged["piece of a job that was stopped and resumed"].first_rows == (2, 3)
    assert report.dropped["piece of a resumed job that has no row of its own"].first_rows == (4, 5)
    assert "has the job id of another row" not in report.warned


def test_tabs_and_blanks(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 300, 4, 4, 1) + row(2, 5, 100, 4, 4, 2).replace(" 2 3", " 1 3")
    expected, _ = read_trace(write(tmp_path, text))
    table, _ = read_trace(write(tmp_path, text.replace(" ", "\t")))
    np.testing.assert_array_equal(table.duration_s, expected.duration_s)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER, "no jobs|only comments"),
        (HEADER + "1 2 3\n", "not 18 numbers"),
        (row(1, 0, 300, 4, 4, 1).strip().replace("  ", " ").replace(" ", ",") + "\n", "comma"),
        (row(1, 0, -1, 4, 4, 1), "line 1: run time is unknown"),
    ],
)
def test_files_without_jobs(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(write(tmp_path, text))
