"""The one way kernels are compiled: numba, cached on disk, and recompiled when any kernel source changes.

Numba's disk cache notices a change of the file that holds a function, but not of functions it calls in other files
(numba issue 1833). The kernels here call each other across modules, so the cache stamp of each covers all of them.
"""

from __future__ import annotations

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
def _sources_digest() -> str:
    package = Path(__file__).parent
    sha = hashlib.sha256(Path(__file__).read_bytes())
    for folder in _KERNEL_FOLDERS:
        for source in sorted((package / folder).glob("*.py")):
            text = source.read_bytes()
            if b"kernel" in text or source.name in _CONSTANTS:
                sha.update(source.name.encode())
                sha.update(text)
    return sha.hexdigest()


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
    cache_file._source_stamp = (cache_file._source_stamp, _sources_digest())
    return dispatcher  # type: ignore[no-any-return]


def allocating_kernel(function: F) -> F:
    """Like `kernel`, for functions that create arrays; slower to call, because it counts references."""
    return _compile(function, _nrt=True)
