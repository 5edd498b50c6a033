"""Paths that are no plain files, archives with odd members, files that change: a table or one clear error."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
import threading
import zipfile
from pathlib import Path

import polars as pl
import pytest

from dl2env.errors import TraceError
from dl2env.workload.cluster_files import read_nodes
from dl2env.workload.traces import rows
from dl2env.workload.traces.reader import find_trace, read_found, read_trace
from dl2env.workload.traces.source import content_digest, open_source
from tests.workload.traces.samples import SAMPLES

TEXT = SAMPLES["tiresias"].text.encode()


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_never_ends_is_not_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.close()
    errors: list[BaseException] = []

    def work() -> None:
        for use in (read_trace, read_nodes, content_digest):
            try:
                use(path)  # type: ignore[operator]
            except TraceError as error:
                errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "reading does not end"
    assert len(errors) == 3
    assert all("jobs.csv: cannot be read (a pipe, socket or device)" in str(error) for error in errors)


def test_a_folder_may_hold_a_pipe_beside_its_tables(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes(TEXT)
    os.mkfifo(tmp_path / "pipe.csv")
    assert read_trace(tmp_path)[0].num_jobs == 3


@pytest.mark.parametrize("path", ["", "::jobs.csv", "jobs\0.csv"])
def test_no_names_of_files(path: str) -> None:
    with pytest.raises(TraceError, match=r"no name of a file"):
        read_trace(path)


@pytest.mark.parametrize("name", ["no such file.csv", "jobs.csv/inside.csv", "x" * 400, "new\nline.csv", "\udcff.csv"])
def test_files_that_are_not_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes(TEXT)
    with pytest.raises(TraceError, match=r"no such file|cannot be read") as caught:
        read_trace(tmp_path / name)
    assert "\n" not in str(caught.value)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 99\n", "pointer of Git LFS"),
        (b"<!DOCTYPE html>\n<html lang='en'><head><title>404</title></head></html>\n", "a web page"),
    ],
)
def test_what_downloads_leave(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(content)
    for format in ("auto", "philly_json", *SAMPLES):
        with pytest.raises(TraceError, match=rf"jobs.csv, line 1: .*{words}"):
            read_trace(path, format)


@pytest.mark.parametrize("packing", ["zip", "tar"])
def test_members_may_be_packed_themselves(packing: str, tmp_path: Path) -> None:
    pack = zipped if packing == "zip" else tarred
    path = pack(tmp_path / "archive", {"folder/jobs.csv.gz": gzip.compress(TEXT), "notes.txt": b"about"})
    table, report = read_trace(path)
    assert table.num_jobs == 3 and "notes.txt" in report.layout["other files there, not read"]
    named, _ = read_trace(f"{path}::folder/jobs.csv.gz")
    assert named.job_id.tolist() == table.job_id.tolist()
    broken = pack(tmp_path / "broken", {"jobs.csv.gz": gzip.compress(TEXT * 50)[:-12]})
    with pytest.raises(TraceError, match=r"broken::jobs.csv.gz: the packed data is damaged"):
        read_trace(broken, "tiresias")


def test_links_folders_and_pipes_in_archives(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("link", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/hostname"
            archive.addfile(member)
        member = tarfile.TarInfo("../../jobs.csv")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    assert [file.member for file in open_source(path).files] == ["../../jobs.csv"]
    assert read_trace(path)[0].num_jobs == 3 and list(tmp_path.iterdir()) == [path]
    with pytest.raises(TraceError, match="has no member 'link'"):
        read_trace(f"{path}::link")


def test_of_two_members_of_a_name_the_last_counts(tmp_path: Path) -> None:
    older = SAMPLES["tiresias"].text.splitlines(keepends=True)
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w") as archive:
        for content in ("".join(older[:2]).encode(), TEXT):
            member = tarfile.TarInfo("jobs.csv")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert read_trace(path)[0].num_jobs == 3
    assert read_trace(f"{path}::jobs.csv")[0].num_jobs == 3


def test_names_within_archives_cannot_break_messages(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"x\ny.csv": TEXT, "jobs.csv": TEXT, "\u202e.csv": TEXT})
    with pytest.raises(TraceError, match=r"holds 3 files") as caught:
        read_trace(path, "tiresias")
    assert "\n" not in str(caught.value) and "\u202e" not in str(caught.value)


@pytest.mark.parametrize(("old", "new"), [(b"jobs\xc3\xa9", b"jobs\xff\xff"), (b"jobs\xc3\xa9.csv", b"\0" * 10)])
def test_damaged_names_within_archives(old: bytes, new: bytes, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"jobs\u00e9.csv": TEXT})
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(TraceError, match=r"a.zip"):
        read_trace(path)


def test_an_archive_in_an_archive_is_an_error(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {"jobs.csv": TEXT})
    outer = zipped(tmp_path / "outer.zip", {"inner.zip": inner.read_bytes()})
    with pytest.raises(TraceError, match=r"outer.zip::inner.zip, line \d+: a binary file"):
        read_trace(outer)


def test_files_that_shrink_vanish_or_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(TEXT)
    found = find_trace(path)
    lines = TEXT.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    table, report = read_found(found)
    assert table.num_jobs == report.rows_read == 1
    path.write_bytes(b"")
    with pytest.raises(TraceError, match=r"jobs.csv, line 1: the file is empty"):
        read_found(found)
    path.write_bytes(SAMPLES["pollux"].text.encode())
    with pytest.raises(TraceError, match=r"jobs.csv, line \d"):
        read_found(find_trace(path, "tiresias"))
    path.unlink()
    with pytest.raises(TraceError, match=r"jobs.csv: no such file"):
        read_found(found)

    # Cut while it is read, between two blocks.
    path.write_bytes(TEXT * 40)
    monkeypatch.setattr(rows, "BLOCK_BYTES", 100)
    real = rows.read_exactly

    def shrinking(stream: object, size: int) -> bytes:
        block = real(stream, size)  # type: ignore[arg-type]
        os.truncate(path, 500)
        return block

    monkeypatch.setattr(rows, "read_exactly", shrinking)
    table, report = read_trace(path)
    assert report.rows_read == report.rows_kept + report.rows_dropped < 40 * 3


def test_damaged_parquet_leaves_no_call_stack(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.parquet"
    pl.DataFrame({"arrival_s": [1.0, 2.0], "duration_s": [1.0, 2.0], "num_gpus": [1, 2]}).write_parquet(path)
    whole = path.read_bytes()
    failed = 0
    for place in range(4, len(whole) - 8, 3):
        path.write_bytes(whole[:place] + b"\xff\xff" + whole[place + 2 :])
        try:
            read_trace(path)
        except TraceError as error:
            failed += 1
            assert "jobs.parquet, row 1" in str(error) and "\n" not in str(error)
    assert failed > 50
    captured = capfd.readouterr()
    assert captured.err == "" and captured.out == ""


def test_an_archive_is_unpacked_once_to_find_and_once_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"{i}.csv": b"a,b\n1,2\n" for i in range(5)}
    path = tarred(tmp_path / "a.tar.gz", {**members, "jobs.csv": TEXT})
    opened = []
    real = tarfile.open
    monkeypatch.setattr(tarfile, "open", lambda *args, **options: opened.append(args) or real(*args, **options))
    found = find_trace(path)
    assert len(opened) == 1
    assert read_found(found)[0].num_jobs == 3
    assert len(opened) == 2
    find_trace(path)
    assert len(opened) == 2
    tarred(path, {"other.csv": TEXT})
    assert read_trace(path)[0].files == (f"{path}::other.csv",)
    with pytest.raises(TraceError, match=r"a.tar.gz::jobs.csv: cannot be read \(the archive has changed"):
        read_found(found)
