"""Damaged and unusual files of every format: a table with a full account, or one error naming file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dl2env.errors import TraceError
from dl2env.workload.traces import JobTable, ReadReport, format_names, read_trace
from tests.workload.traces.samples import SAMPLES, Sample

NAMES = sorted(SAMPLES)
WITH_HEADER = [name for name in NAMES if SAMPLES[name].has_header and SAMPLES[name].delimiter]
TABLES = [name for name in NAMES if SAMPLES[name].delimiter]
WITH_DURATION = [name for name in NAMES if SAMPLES[name].duration_column is not None]


def test_every_format_has_a_sample() -> None:
    assert set(SAMPLES) == set(format_names())


def read(sample: Sample, path: Path, format: str = "auto", strict: bool = False) -> tuple[JobTable, ReadReport]:
    companion = sample.companion_path(path.parent)
    return read_trace(path, format, companion=companion, strict=strict)


def check(table: JobTable, report: ReadReport) -> None:
    """What holds for every table, whatever was read."""
    assert table.num_jobs >= 1
    assert report.rows_read == report.rows_kept + report.rows_dropped + report.rows_merged
    assert report.rows_kept == table.num_jobs
    assert table.arrival_s[0] == 0 and (np.diff(table.arrival_s) >= 0).all()
    assert np.isfinite(table.arrival_s).all() and np.isfinite(table.duration_s).all()
    assert (table.duration_s > 0).all() and (table.num_gpus >= 0).all() and np.isfinite(table.num_gpus).all()
    assert (table.source_row >= 1).all()
    assert str(report) and report.to_dict()


def survives(sample: Sample, path: Path, format: str = "auto") -> tuple[JobTable, ReadReport] | str:
    """The table and report of a file, or the message of the one error that it may raise."""
    try:
        table, report = read(sample, path, format)
    except TraceError as error:
        message = str(error)
        assert "\n" not in message, message
        assert path.name in message, message
        assert re.search(r"\b(line|row) \d+|packed data|cannot be read|no table", message), message
        return message
    check(table, report)
    return table, report


def same(first: JobTable, second: JobTable) -> None:
    for name in ("arrival_s", "duration_s", "num_gpus", "num_cpus", "num_workers", "num_ps", "is_censored"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for name in ("job_id", "status", "user", "group", "label", "gpu_kind"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_sample_is_read_in_full(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    table, report = read(sample, sample.write(tmp_path), strict=False)
    check(table, report)
    assert table.format == report.format == name
    assert table.num_jobs == sample.num_jobs
    assert report.rows_dropped == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz", "zip", "tar", "tar.gz", "folder"])
def test_packed_files_read_the_same(name: str, packing: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    plain = sample.write(tmp_path)
    expected, _ = read(sample, plain)
    data = sample.text.encode()
    path = tmp_path / "packed.bin"
    if packing in ("gzip", "bzip2", "xz"):
        path.write_bytes({"gzip": gzip, "bzip2": bz2, "xz": lzma}[packing].compress(data))  # type: ignore[attr-defined]
    elif packing == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"data/jobs{sample.suffix}", data)
            archive.writestr("README.md", "about")
    elif packing == "folder":
        path = tmp_path / "folder"
        path.mkdir()
        (path / f"jobs{sample.suffix}").write_bytes(data)
    else:
        with tarfile.open(path, "w:gz" if packing == "tar.gz" else "w") as tar:
            member = tarfile.TarInfo(f"data/jobs{sample.suffix}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    table, report = read(sample, path)
    check(table, report)
    same(table, expected)
    if packing in ("zip", "tar", "tar.gz"):
        named, _ = read(sample, Path(f"{path}::data/jobs{sample.suffix}"))
        same(named, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", ["byte-order mark", "CRLF", "no last line end", "blank lines at the end"])
def test_harmless_variants_read_the_same(name: str, variant: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    expected, _ = read(sample, sample.write(tmp_path, name="plain"))
    data = sample.text.encode()
    changed = {
        "byte-order mark": b"\xef\xbb\xbf" + data,
        "CRLF": data.replace(b"\n", b"\r\n"),
        "no last line end": data.rstrip(b"\n"),
        "blank lines at the end": data + b"\n  \n\n",
    }[variant]
    table, report = read(sample, sample.write(tmp_path, changed))
    check(table, report)
    same(table, expected)


@pytest.mark.parametrize("name", WITH_HEADER)
@pytest.mark.parametrize("variant", ["reordered", "more columns", "quoted", "quoted delimiters", "tab", "semicolon"])
def test_tables_by_header_read_the_same(name: str, variant: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    expected, _ = read(sample, sample.write(tmp_path, name="plain"))
    rows = [line.split(sample.delimiter) for line in sample.text.splitlines()]
    mark = sample.delimiter
    if variant == "reordered":
        rows = [row[::-1] for row in rows]
    elif variant == "more columns":
        rows = [["note", *rows[0]], *(["x", *row] for row in rows[1:])]
    elif variant == "quoted":
        rows = [[f'"{cell}"' for cell in row] for row in rows]
    elif variant == "quoted delimiters":
        rows = [["note", *rows[0]], *([f'"a{mark}b"', *row] for row in rows[1:])]
    else:
        mark = "\t" if variant == "tab" else ";"
    text = "".join(mark.join(row) + "\n" for row in rows)
    table, report = read(sample, sample.write(tmp_path, text))
    check(table, report)
    same(table, expected)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "cell", ["nan", "inf", "-inf", "-5", "0", "1e300", "1e999", "", "x", '"1,5"', "0x10", "\uff11"]
)
def test_any_cell_replaced(name: str, cell: str, tmp_path: Path) -> None:
    """Every cell of the first row of data in turn."""
    sample = SAMPLES[name]
    rows = [line.split(sample.delimiter) for line in sample.text.splitlines()]
    first = 1 if sample.has_header else 0
    for column in range(len(rows[first])):
        changed = [list(row) for row in rows]
        changed[first][column] = cell
        text = "".join(sample.delimiter.join(row) + "\n" for row in changed)
        survives(sample, sample.write(tmp_path, text, name=f"jobs{column}"), name)


@pytest.mark.parametrize("name", WITH_DURATION)
@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("nan", "missing"),
        ("", "missing"),
        ("inf", "not finite"),
        ("-5", "not positive"),
        ("0", "not positive"),
        ("1e300", "above"),
        ("abc", "not a number"),
    ],
)
def test_wrong_durations_are_counted_and_named(name: str, cell: str, reason: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    rows = [line.split(sample.delimiter) for line in sample.text.splitlines()]
    line = 2 if sample.has_header else 1
    assert sample.duration_column is not None
    rows[line - 1][sample.duration_column] = cell
    path = sample.write(tmp_path, "".join(sample.delimiter.join(row) + "\n" for row in rows))
    table, report = read(sample, path)
    check(table, report)
    assert table.num_jobs == sample.num_jobs - 1
    ((found, count),) = report.dropped.items()
    assert reason in found and count.count == 1 and count.first_rows == (line,) and count.is_warning
    with pytest.raises(TraceError, match=rf"{path.name}, line {line}: dropped: .*{reason}"):
        read(sample, path, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_truncated_anywhere(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    for stop in range(0, len(sample.text), max(len(sample.text) // 40, 1)):
        survives(sample, sample.write(tmp_path, sample.text[:stop]))


@pytest.mark.parametrize("name", NAMES)
def test_truncated_gzip(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    data = gzip.compress(sample.text.encode())
    for stop in (5, 12, len(data) // 2, len(data) - 4):
        path = sample.write(tmp_path, data[:stop])
        assert isinstance(survives(sample, path), str)
        assert isinstance(survives(sample, path, name), str)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (bytes(range(256)) * 4, "binary"),
        (b"\x01\x02\x03\x04\x05" * 100, "binary"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"PK\x03\x04 not a zip", "packed data"),
        (b"\x1f\x8b\x08 not gzip", "packed data"),
        (b"PAR1 not parquet", "row 1"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"<html><body>404</body></html>", "line 1"),
        (b"hello", "line 1"),
        (b"{", "line 1"),
        (b"[]", "line 1"),
        (b"{}", "line 1"),
        (b"[[[[[[[[[[", "line 1"),
        (b"\n\n\n1,2,3\n", "line"),
    ],
)
def test_files_that_are_no_trace(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path, content)
    for format in ("auto", name):
        message = survives(sample, path, format)
        assert isinstance(message, str)
        if format == "auto":
            assert words in message


@pytest.mark.parametrize("name", NAMES)
def test_latin_1(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    lines = sample.text.splitlines(keepends=True)
    for index in range(len(lines)):
        changed = "".join(lines[:index]) + lines[index].replace("a", "\xe9", 1) + "".join(lines[index + 1 :])
        outcome = survives(sample, sample.write(tmp_path, changed.encode("latin-1")), name)
        if "\xe9" in changed and not isinstance(outcome, str) and sample.delimiter:
            assert "not UTF-8 text, read as Latin-1" in " ".join(outcome[1].warned)


@pytest.mark.parametrize("name", NAMES)
def test_header_missing_or_extra(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    lines = sample.text.splitlines(keepends=True)
    if sample.has_header:
        assert isinstance(survives(sample, sample.write(tmp_path, "".join(lines[1:]))), str)
        outcome = survives(sample, sample.write(tmp_path, lines[0] + sample.text))  # the header twice
        if not isinstance(outcome, str):
            assert outcome[0].num_jobs == sample.num_jobs and outcome[1].rows_dropped == 1
    else:
        survives(sample, sample.write(tmp_path, "a,b,c\n" + sample.text))


@pytest.mark.parametrize("name", WITH_HEADER)
def test_each_column_missing_or_twice(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    rows = [line.split(sample.delimiter) for line in sample.text.splitlines()]
    for column in range(len(rows[0])):
        lacking = [[cell for k, cell in enumerate(row) if k != column] for row in rows]
        text = "".join(sample.delimiter.join(row) + "\n" for row in lacking)
        for format in ("auto", name):
            outcome = survives(sample, sample.write(tmp_path, text), format)
            if isinstance(outcome, str) and format == name:
                assert rows[0][column] in outcome
        twice = [[row[column], *row] for row in rows]
        survives(sample, sample.write(tmp_path, "".join(sample.delimiter.join(row) + "\n" for row in twice)), name)


@pytest.mark.parametrize("name", TABLES)
def test_ragged_rows_and_open_quotes(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    lines = sample.text.splitlines()
    first = 1 if sample.has_header else 0
    mark = sample.delimiter if sample.delimiter.strip() else "\t" if sample.delimiter == "\t" else " "
    for change in (lines[first] + mark * 20 + "1", lines[first].split(mark)[0], '"' + lines[first], lines[first] + '"'):
        text = "\n".join([*lines[:first], change, *lines[first + 1 :]]) + "\n"
        outcome = survives(sample, sample.write(tmp_path, text), name)
        if not isinstance(outcome, str):
            assert outcome[1].rows_read >= len(lines) - first


@pytest.mark.parametrize("name", NAMES)
def test_rows_twice(name: str, tmp_path: Path) -> None:
    """Duplicate rows, and with them duplicate identifiers, are all accounted for."""
    sample = SAMPLES[name]
    if not sample.delimiter:
        pytest.skip("not a table of lines")
    lines = sample.text.splitlines(keepends=True)
    first = 1 if sample.has_header else 0
    table, report = read(sample, sample.write(tmp_path, sample.text + "".join(lines[first:])))
    check(table, report)
    counts = {**report.warned, **report.noted, **report.merged, **report.dropped}
    told = sum(count.count for reason, count in counts.items() if re.search("repeat|further|another|same", reason))
    assert told >= len(lines) - first


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_damage(name: str, data: st.DataObject, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    content = bytearray(sample.text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(len(content), start + 20)))
        content[start:stop] = data.draw(st.binary(max_size=6))
    path = sample.write(tmp_path, bytes(content))
    survives(sample, path, name)
    survives(sample, path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_files_of_one_format_read_as_another(name: str, other: str, tmp_path: Path) -> None:
    """Detection chooses the right format among all, and forcing another gives an error or a table, no more."""
    sample = SAMPLES[name]
    path = sample.write(tmp_path)
    if other == name:
        assert read(sample, path)[0].format == name
    else:
        survives(sample, path, other)


@pytest.mark.parametrize("name", NAMES)
def test_shifted_arrivals_and_order_do_not_matter(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    if not sample.delimiter:
        pytest.skip("not a table of lines")
    expected, _ = read(sample, sample.write(tmp_path, name="plain"))
    lines = sample.text.splitlines(keepends=True)
    first = 1 if sample.has_header else 0
    table, _ = read(
        sample, sample.write(tmp_path, "".join([*lines[:first], *lines[: first - 1 if first else None : -1]]))
    )
    np.testing.assert_array_equal(np.sort(table.arrival_s), np.sort(expected.arrival_s))
    np.testing.assert_array_equal(np.sort(table.duration_s), np.sort(expected.duration_s))
