"""Random numbers that are functions of keys, not of a stream: kernels may draw them in any order."""

from __future__ import annotations

import numpy as np

from dl2env.jit import inline_kernel


@inline_kernel
def _mix(x):
    # Finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inline_kernel
def keyed_uniform(key, first, second):
    """Uniform number in [0, 1) of a key and two counters."""
    x = np.uint64(key)
    x += np.uint64(first) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(second) * np.uint64(0xBF58476D1CE4E5B9)
    return (_mix(_mix(x)) >> np.uint64(11)) * 1.1102230246251565e-16
