"""Random numbers that are functions of keys, not of a stream: kernels may draw them in any order."""

from __future__ import annotations

import numpy as np

from dl2env.jit import inline_kernel, kernel


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


@inline_kernel
def interval_noise(noise_key, job, interval, speed_noise):
    """Factor 1 + U(-speed_noise, speed_noise), a pure function of its keys: no policy can shift another's draws."""
    return 1.0 + speed_noise * (2.0 * keyed_uniform(noise_key, job, interval) - 1.0)


@kernel
def earliest_finish(noise_key, speed_noise, interval_s, first_interval, full_speed_s):
    """When jobs finish that run at a given speed from their first interval on, whatever the noise of each interval.

    Args:
        noise_key: Of the workload.
        speed_noise: Half width of the noise.
        interval_s: Length of an interval in seconds.
        first_interval: (N,) interval in which each job starts.
        full_speed_s: (N,) seconds it needs without noise; replaced by the time at which it finishes.
    """
    for i in range(full_speed_s.shape[0]):
        left_s = full_speed_s[i]
        interval = first_interval[i]
        while True:
            factor = interval_noise(noise_key, i, interval, speed_noise)
            if left_s <= interval_s * factor:
                break
            left_s -= interval_s * factor
            interval += 1
        full_speed_s[i] = interval * interval_s + left_s / factor
