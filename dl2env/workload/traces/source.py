"""Opening trace files in place: plain, gzip, bzip2, xz, members of zip and tar archives, folders of tables."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import hashlib
import itertools
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from dl2env.errors import TraceError

Kind = Literal["plain", "gzip", "bzip2", "xz", "zip", "tar"]
MEMBER_SEPARATOR = "::"
HEAD_BYTES = 1 << 18
BLOCK_BYTES = 1 << 25
_MOST_HEADS = 64

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
)
_LONGEST_MAGIC = max(len(magic) for magic, _ in _MAGIC)
_OPENERS: dict[str, Any] = {"plain": open, "gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_CORRUPT = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
    struct.error,
    OverflowError,
    UnicodeError,  # names within a damaged archive
)
_IGNORED_SUFFIXES = (".header", ".md", ".sha256", ".png", ".pdf", ".py", ".ipynb", ".sh")


@dataclass(frozen=True)
class TraceFile:
    """One file of text or Parquet, possibly inside an archive.

    Attributes:
        path: The file on disk.
        kind: How it is packed.
        member: Name inside the archive; empty for a file of its own.
        place: Which of a tar archive's members it is, from 0.
    """

    path: Path
    kind: Kind = "plain"
    member: str = ""
    place: int = 0

    @property
    def name(self) -> str:
        """Name for messages: `path` or `path::member`."""
        return printable(f"{self.path}{MEMBER_SEPARATOR}{self.member}" if self.member else str(self.path))

    @property
    def short_name(self) -> str:
        """Last part of the name."""
        return printable((self.member or self.path.name).rsplit("/", 1)[-1])

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The unpacked bytes as a stream.

        Raises:
            TraceError: The file cannot be opened or, while it is read, proves damaged.
        """
        with unpacking(self.name), contextlib.ExitStack() as stack:
            if self.kind == "zip":
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                try:
                    member = stack.enter_context(archive.open(self.member))
                except RuntimeError as error:  # what zipfile raises for encrypted members
                    raise TraceError(f"{self.name}: cannot be unpacked ({error}); unpack it yourself") from error
                yield stack.enter_context(_unpacked(member))
            elif self.kind == "tar":
                tar = stack.enter_context(tarfile.open(self.path, "r:*"))
                # Finding a member by name would unpack the whole archive.
                info = next(itertools.islice(tar, self.place, None), None)
                content = tar.extractfile(info) if info is not None and info.name == self.member else None
                if content is None:
                    raise TraceError(f"{self.name}: cannot be read (the archive has changed meanwhile); try again")
                yield stack.enter_context(_unpacked(stack.enter_context(content)))
            else:
                yield stack.enter_context(_OPENERS[self.kind](self.path, "rb"))

    @cached_property
    def head(self) -> bytes:
        """The first 256 KiB."""
        with self.open() as stream:
            return read_exactly(stream, HEAD_BYTES)

    def content(self) -> bytes:
        """All bytes; for formats that are read as a whole (JSON, Parquet)."""
        with self.open() as stream:
            return stream.read()

    def is_parquet(self) -> bool:
        """Whether the content is an Apache Parquet file."""
        return self.head[:4] == b"PAR1"


def _unpacked(member: IO[bytes]) -> IO[bytes]:
    """An archive's member, which may be packed once more, such as `jobs.csv.gz` in a tar archive."""
    start = read_exactly(member, _LONGEST_MAGIC)
    member.seek(0)
    kind = next((kind for magic, kind in _MAGIC if start.startswith(magic)), "plain")
    stream: IO[bytes] = _OPENERS[kind](member, "rb") if kind in ("gzip", "bzip2", "xz") else member
    return stream


def printable(text: str) -> str:
    """A name for messages and reports, with line ends and other odd characters written as escapes."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in plain)


@contextlib.contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Turns what broken files raise into one error."""
    try:
        yield
    except FileNotFoundError as error:
        raise TraceError(f"{name}: no such file; check the path of the trace") from error
    except _CORRUPT as error:
        reason = printable(str(error).split("\n")[0]) or type(error).__name__
        raise TraceError(
            f"{name}: the packed data is damaged or ends too early ({reason}); fetch the file again"
        ) from error
    except OSError as error:
        reason = printable(error.strerror or str(error))
        raise TraceError(f"{name}: cannot be read ({reason}); check the file and its permissions") from error


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the stream."""
    parts = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@dataclass(frozen=True)
class TraceSource:
    """What a path leads to: one file, or the files of a folder or archive, in order of their names.

    Attributes:
        path: As the user gave it.
        files: The files in it.
        unused: Names of others there that belong to no trace.
    """

    path: str
    files: tuple[TraceFile, ...]
    unused: tuple[str, ...] = ()

    def only(self) -> TraceFile:
        """The single file.

        Raises:
            TraceError: There are several.
        """
        if len(self.files) > 1:
            names = ", ".join(printable(file.member or file.path.name) for file in self.files[:8])
            raise TraceError(
                f"{self.path}: holds {len(self.files)} files ({names}{', ...' if len(self.files) > 8 else ''}); name "
                f"one, as in {self.files[0].name}"
            )
        return self.files[0]


def open_source(path: str | Path) -> TraceSource:
    """Finds the files that a path leads to.

    Args:
        path: A file, packed or not; an archive or `archive::member`; a folder of tables. Packed files and archives are
            told by content, not by name.

    Raises:
        TraceError: Nothing there, nothing in it, or it cannot be opened.
    """
    text = str(path)
    outer, _, member = text.partition(MEMBER_SEPARATOR)
    if not outer or "\0" in text:
        raise TraceError(f"{printable(text)!r}: cannot be read (no name of a file); give the path of a trace")
    file = Path(outer)
    with unpacking(printable(outer)):
        if file.is_dir():
            files = [
                TraceFile(child, _kind(child))
                for child in sorted(file.iterdir())
                if child.is_file() and _is_wanted(child.name)
            ]
            if not files:
                raise TraceError(f"{printable(text)}: is a folder without files; give the path of a trace")
            # Tables in a folder may each be packed in an archive of their own.
            parts = [part for one in files for part in _members(one)]
        else:
            parts = _members(TraceFile(file, _kind(file)))
    if member:
        parts = [part for part in parts if part.member == member]
        if not parts:
            raise TraceError(f"{printable(outer)}: has no member {member!r}; list the archive to see its names")
    return TraceSource(printable(text), tuple(parts))


def _is_wanted(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return not base.startswith((".", "_", "README", "LICENSE")) and not base.endswith(_IGNORED_SUFFIXES)


def _kind(path: Path) -> Kind:
    if path.exists() and not path.is_file():  # reading one of these may never end
        raise TraceError(f"{printable(str(path))}: cannot be read (a pipe, socket or device); give a file or folder")
    with path.open("rb") as stream:
        start = stream.read(512)
    found = [kind for magic, kind in _MAGIC if start.startswith(magic)]
    if not found:
        return "tar" if start[257:262] == b"ustar" else "plain"
    kind = found[0]
    if kind == "zip":
        return kind
    with _OPENERS[kind](path, "rb") as unpacked:
        inner = read_exactly(unpacked, 512)
    return "tar" if inner[257:262] == b"ustar" else kind


def _members(file: TraceFile) -> list[TraceFile]:
    """The files of an archive, or the file itself."""
    if file.kind == "zip":
        with zipfile.ZipFile(file.path) as archive:
            names = [info.filename for info in archive.infolist() if info.filename and info.filename[-1] != "/"]
        members = {name: TraceFile(file.path, "zip", name) for name in names if _is_wanted(name)}
    elif file.kind == "tar":
        stat = file.path.stat()
        members = _tar_members(file.path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    else:
        return [file]
    if not members:
        raise TraceError(f"{file.name}: the archive holds no table; give the path of a trace")
    return [members[name] for name in sorted(members)]


@functools.lru_cache(maxsize=16)
def _tar_members(path: Path, stamp: tuple[int, int, int]) -> dict[str, TraceFile]:
    """The members by name, with the heads of the first ones; remembered, as it takes unpacking the whole archive.

    Of several members of one name the last one counts, as for the tools that unpack archives.
    """
    members: dict[str, TraceFile] = {}
    with tarfile.open(path, "r:*") as tar:
        for place, info in enumerate(tar):
            if not info.isfile() or not _is_wanted(info.name):
                continue
            members[info.name] = file = TraceFile(path, "tar", info.name, place)
            content = tar.extractfile(info)
            if content is not None and len(members) <= _MOST_HEADS:
                with contextlib.suppress(OSError, *_CORRUPT):  # told when the member is read
                    file.__dict__["head"] = read_exactly(_unpacked(content), HEAD_BYTES)
    return members


def content_digest(path: str | Path) -> str:
    """SHA-256 of everything that a path leads to; of a single file on disk, that of its bytes.

    Raises:
        TraceError: It cannot be read.
    """
    text = str(path)
    source = open_source(path)
    outer = Path(text)
    if MEMBER_SEPARATOR not in text and not outer.is_dir():
        with unpacking(printable(text)):
            return _digest(outer)
    sha = hashlib.sha256()
    for file in source.files:
        inner = hashlib.sha256()
        with file.open() as stream:
            for block in iter(lambda stream=stream: stream.read(BLOCK_BYTES), b""):  # type: ignore[misc]
                inner.update(block)
        sha.update(f"{file.short_name} {inner.hexdigest()}\n".encode())
    return sha.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
