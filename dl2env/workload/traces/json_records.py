"""JSON files that are a list of records (or one record per line), read record by record."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from dl2env.errors import TraceError
from dl2env.workload.traces.head import check_text, latin_1
from dl2env.workload.traces.report import Account
from dl2env.workload.traces.source import BLOCK_BYTES, TraceFile, read_exactly

_LONGEST_RECORD = 1 << 24  # characters
_BETWEEN = re.compile(r"[\s,]*")
_CUT_TAIL = 12  # characters; a literal, number or escape that the file's end cuts is no longer


def read_records(file: TraceFile, account: Account) -> Iterator[tuple[int, Any]]:
    """Records of a JSON list with the line that each begins in; memory holds some 32 MiB of text.

    A file that ends within a record gives those before it; the cut one is accounted as dropped. Records are counted as
    read by whoever uses them, the cut one here.

    Raises:
        TraceError: The file is damaged, empty, binary, no list of records, or not JSON somewhere in the middle.
    """
    decoder = json.JSONDecoder(strict=False)
    buffer, line, is_list, is_closed, started = "", 1, False, False, False
    for text, is_last in _texts(file, account):
        buffer += text
        at = 0
        if not started:
            at = len(buffer) - len(buffer.lstrip())
            is_list = buffer[at : at + 1] == "["
            if not is_list and buffer[at : at + 1] != "{":
                raise TraceError(f"{file.name}, line 1: not a JSON list of records; {_shown(buffer[at:])}")
            line += buffer.count("\n", 0, at)
            at += is_list
            started = True
        while True:
            between = _BETWEEN.match(buffer, at)
            assert between is not None
            line += buffer.count("\n", at, between.end())
            at = between.end()
            if at == len(buffer):
                break
            if is_list and buffer[at] == "]":
                is_closed, at = True, at + 1
                is_list = False
                continue
            if is_closed:
                raise TraceError(
                    f"{file.name}, line {line}: more text after the list of records: {_shown(buffer[at:])}"
                )
            try:
                record, end = decoder.raw_decode(buffer, at)
            except json.JSONDecodeError as error:
                rest = len(buffer.rstrip()) - error.pos
                may_be_cut = rest <= _CUT_TAIL or error.msg.startswith("Unterminated string")
                if may_be_cut and not is_last and len(buffer) - at < _LONGEST_RECORD + BLOCK_BYTES:
                    break  # the record goes on in the next block
                if not (may_be_cut and is_last):
                    where = line + buffer.count("\n", at, error.pos)
                    raise TraceError(
                        f"{file.name}, line {where}: not valid JSON ({error.msg}): {_shown(buffer[error.pos :])}; mend "
                        "the file or fetch it again"
                    ) from error
                account.rows_read += 1
                account.add("dropped", "the file ends within this record", [line], _shown(buffer[at:]))
                return
            except (ValueError, RecursionError) as error:
                raise TraceError(
                    f"{file.name}, line {line}: a record that cannot be read ({str(error)[:80]})"
                ) from error
            yield line, record
            line += buffer.count("\n", at, end)
            at = end
        buffer = buffer[at:]
    if is_list and not is_closed:
        account.add("noted", 'the list has no closing "]", so the file may be cut', [line])


def _texts(file: TraceFile, account: Account) -> Iterator[tuple[str, bool]]:
    """The file as text, block by block, and whether a block is the last."""
    utf_8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    decoder = io.IncrementalNewlineDecoder(utf_8, translate=True)
    line, told = 1, 0
    is_first = True
    with file.open() as stream:
        while True:
            block = read_exactly(stream, BLOCK_BYTES)
            is_last = len(block) < BLOCK_BYTES
            if is_first or b"\0" in block:
                check_text(file.name, block, line)
            if is_first:
                block = block.removeprefix(b"\xef\xbb\xbf")
                is_first = False
            escaped = decoder.decode(block, is_last)
            text = latin_1(escaped)
            if text != escaped:
                lines = zip(escaped.split("\n"), text.split("\n"), strict=True)
                wrong = [line + i for i, (before, after) in enumerate(lines) if before != after]
                account.add("warned", "not UTF-8 text, read as Latin-1", [number for number in wrong if number > told])
                told = wrong[-1]  # a line may go on in the next block
            line += text.count("\n")
            yield text, is_last
            if is_last:
                return


def _shown(text: str) -> str:
    return repr(text[:60])
