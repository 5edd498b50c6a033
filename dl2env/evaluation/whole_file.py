"""Text files that are written whole or not at all, also when several programs write the same one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> Path:
    """Writes a text, making the folders above it, and returns the path.

    The draft's name is that of this process, so that two programs that write one file do not take each other's draft;
    the later one's text stays. Lone surrogates, which UTF-8 has no place for, become escapes, in JSON the right ones.

    Raises:
        OSError: The file cannot be written.
    """
    content = text.encode("utf-8", "backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return path
