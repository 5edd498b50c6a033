"""The one way kernels are compiled: numba, cached on disk, and recompiled when a source they are made of changes.

Numba's disk cache notices a change of the file that holds a function, but not of functions it calls in other files
(numba issue 1833). The kernels here call each other across modules, so the cache stamp of each covers its file and all
kernel files that it imports.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

_KERNEL_FOLDERS = ("sim", "speed", "schedulers")
_CONSTANTS = ("state.py", "parameters.py")  # no kernels, but record layouts and codes compiled into them


@cache
def _sources_digest(source: Path) -> str:
    """Digest of everything that the kernels of a file are made of: this module, the file, and what it imports."""
    sha = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(_kernel_sources(source)):
        sha.update(path.name.encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()


def _kernel_sources(source: Path) -> set[Path]:
    """The file and the kernel files it imports, directly or not."""
    found: set[Path] = set()
    due = [source]
    while due:
        path = due.pop()
        if path not in found:
            found.add(path)
            due += [imported for imported in _imports(path) if _holds_kernels(imported)]
    return found


@cache
def _imports(source: Path) -> tuple[Path, ...]:
    """Files of this package that a file names in its import statements, wherever they stand in it."""
    package = Path(__file__).parent
    names = []
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from package import module` names a file by its last part.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    prefix = f"{package.name}."
    paths = [package.joinpath(*name.removeprefix(prefix).split(".")) for name in names if name.startswith(prefix)]
    return tuple(path.with_suffix(".py") for path in paths if path.with_suffix(".py").is_file())


@cache
def _holds_kernels(source: Path) -> bool:
    if source.parent.parent != Path(__file__).parent or source.parent.name not in _KERNEL_FOLDERS:
        return False
    return source.name in _CONSTANTS or b"kernel" in source.read_bytes()


def kernel(function: F) -> F:
    """Compiles a function with numba on its first call.

    Divisions follow IEEE rules (no ZeroDivisionError), so that idle jobs give infinities to be handled, not exceptions.
    """
    return _compile(function)


def inline_kernel(function: F) -> F:
    """Like `kernel`, for small functions on the hot path: their machine code goes into each caller.

    A call passes each array as seven or more words; for the simulator's state that is 1.5 kB, more than such a function
    works on.
    """
    return _compile(function, forceinline=True)


def _compile(function: F, **options: Any) -> F:
    options = {"error_model": "numpy", "nogil": True, "_nrt": False, **options}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that numba may write its cache to
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is None or not hasattr(cache_file, "_source_stamp"):
        # An unknown numba: a stale cache would be silently wrong, a missing one only slow.
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    source = Path(function.__code__.co_filename)
    cache_file._source_stamp = (cache_file._source_stamp, _sources_digest(source))
    return dispatcher  # type: ignore[no-any-return]


def allocating_kernel(function: F) -> F:
    """Like `kernel`, for functions that create arrays; slower to call, because it counts references."""
    return _compile(function, _nrt=True)
