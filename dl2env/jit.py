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


@cache
def _sources_digest() -> str:
    package = Path(__file__).parent
    sha = hashlib.sha256()
    for folder in _KERNEL_FOLDERS:
        for source in sorted((package / folder).glob("*.py")):
            sha.update(source.name.encode())
            sha.update(source.read_bytes())
    return sha.hexdigest()


def kernel(function: F) -> F:
    """Compiles a function with numba on its first call.

    Divisions follow IEEE rules (no ZeroDivisionError), so that idle jobs give infinities to be handled, not exceptions.
    """
    dispatcher = numba.njit(error_model="numpy", nogil=True, cache=True)(function)
    cache_file = getattr(dispatcher._cache, "_cache_file", None)
    if cache_file is None or not hasattr(cache_file, "_source_stamp"):
        # An unknown numba: a stale cache would be silently wrong, a missing one only slow.
        return numba.njit(error_model="numpy", nogil=True)(function)  # type: ignore[no-any-return]
    cache_file._source_stamp = (cache_file._source_stamp, _sources_digest())
    return dispatcher  # type: ignore[no-any-return]
