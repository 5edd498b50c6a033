"""How text becomes rows: line ends, quotes and encodings of every kind, and no row that gets lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.workload.traces import JobTable, ReadReport, json_records, read_trace, rows
from tests.workload.traces.samples import SAMPLES

HEADER = "job_id,num_gpu,submit_time,model_name,duration\n"
JOBS = ["a,1,0,vgg19,100", "b,2,10,vgg16,200", "c,4,20,vgg11,300", "d,8,30,alexnet,400"]


def read(folder: Path, content: str | bytes, **options: Any) -> tuple[JobTable, ReadReport]:
    path = folder / "jobs.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path, **options)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
@pytest.mark.parametrize("before", ["", "\n", "\r\n", "\x0c\n", "\x0b\r\n", "\u2028\n", "  \n\n"])
@pytest.mark.parametrize("block", [64, 97, 1 << 25])
def test_line_ends(end: str, before: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends a line, and wherever a block of the file ends, all four jobs are there."""
    monkeypatch.setattr(rows, "BLOCK_BYTES", block)
    content = before + end.join([HEADER.rstrip(), *JOBS]) + end
    table, report = read(tmp_path, content)
    assert table.job_id.tolist() == ["a", "b", "c", "d"] and not report.warnings
    blank = 4 if end == "\r\r\n" else 0  # each line is followed by an empty one, the header by one that is no row
    assert report.rows_read == 4 + blank + (1 if end == "\r\r\n" else 0)
    text = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [text[line - 1] for line in table.source_row] == JOBS


def test_only_line_ends_end_lines(tmp_path: Path) -> None:
    """Other characters that Unicode counts as line ends are text of a cell."""
    odd = ["a\x0bb", "a\x0cb", "a\x1cb", "a\x85b", "a\u2028b", "a\u2029b"]
    lines = [f"{name},1,{i},vgg19,100\n" for i, name in enumerate(odd)]
    table, report = read(tmp_path, HEADER + "".join(lines))
    assert table.job_id.tolist() == odd and report.rows_read == 6


@pytest.mark.parametrize("block", [64, 1 << 25])
def test_a_stray_quote_swallows_no_rows(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_BYTES", block)
    lines = ['a,1,0,5" disk,100', JOBS[1], '"c,4,20,vgg11,300', JOBS[3], 'e,1,40,14" screen,100', "f,1,50,x,100"]
    table, report = read(tmp_path, HEADER + "\n".join(lines) + "\n")
    assert table.job_id.tolist() == ["a", "b", "d", "e", "f"]
    assert table.label.tolist()[0] == '5" disk'
    assert report.rows_read == 6
    ((reason, count),) = report.dropped.items()
    assert reason == "a quote that never closes" and count.first_rows == (4,)


@pytest.mark.parametrize("block", [64, 1 << 25])
def test_quoted_cells_may_hold_anything(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_BYTES", block)
    lines = ['"a,1",1,0,"two\nlines, and ""quotes""",100', '"b",2,10,"",200', '"""c""",4,20,x,300', JOBS[3]]
    table, report = read(tmp_path, HEADER + "\n".join(lines) + "\n")
    assert table.job_id.tolist() == ["a,1", "b", '"c"', "d"]
    assert table.label.tolist() == ['two\nlines, and "quotes"', "", "x", "alexnet"]
    assert table.source_row.tolist() == [2, 4, 5, 6] and report.rows_read == 4 and not report.warnings


@pytest.mark.parametrize("block", [64, 1 << 25])
def test_lines_that_are_not_utf_8_are_counted_one_by_one(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BLOCK_BYTES", block)
    lines = [
        "\u00e9t\u00e9,1,0,vgg19,100".encode(),
        "\u00e9t\u00e9,2,10,vgg16,200".encode("latin-1"),
        b"c,4,20,\xff\xfe,300",
    ]
    table, report = read(tmp_path, HEADER.encode() + b"\n".join(lines) + b"\n")
    assert table.job_id.tolist() == ["\u00e9t\u00e9", "\u00e9t\u00e9", "c"]  # UTF-8 around them stays UTF-8
    assert table.label.tolist()[2] == "\u00ff\u00fe"
    found = report.warned["not UTF-8 text, read as Latin-1"]
    assert (found.count, found.first_rows) == (2, (3, 4))


@pytest.mark.parametrize("block", [64, 1 << 25])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_json_lines_and_encodings(block: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "BLOCK_BYTES", block)
    text = SAMPLES["philly_json"].text
    records = json.loads(text)
    lines = [json.dumps({**record, "user": "\u00e9"}, ensure_ascii=False) for record in records]
    content = ["[" + lines[0] + ","] + [line + "," for line in lines[1:-1]] + [lines[-1] + "]"]
    encoded = [line.encode("latin-1" if i == 2 else "utf-8") for i, line in enumerate(content)]
    path = tmp_path / "jobs.json"
    path.write_bytes(end.encode().join(encoded) + end.encode())
    table, report = read_trace(path)
    assert sorted(table.source_row.tolist()) == [1, 2, 3, 4] and set(table.user.tolist()) == {"\u00e9"}
    found = report.warned["not UTF-8 text, read as Latin-1"]
    assert (found.count, found.first_rows) == (1, (3,))


def test_comments_of_swf_may_be_indented(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("; Version: 2.2\n  ; a note\n\t;\n" + SAMPLES["swf"].text)
    table, report = read_trace(path)
    assert table.num_jobs == report.rows_read == 3 and not report.warnings
    np.testing.assert_array_equal(table.source_row, [4, 6, 5])
