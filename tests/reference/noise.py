"""Speed noise of a job in an interval, as a hash: it depends on nothing a scheduler can influence."""

from __future__ import annotations

_MASK_64 = (1 << 64) - 1
_JOB_STRIDE = 0x9E3779B97F4A7C15
_INTERVAL_STRIDE = 0xBF58476D1CE4E5B9


def splitmix64_finalise(x: int) -> int:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014): mixes 64 bits into 64 bits."""
    x &= _MASK_64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return x ^ (x >> 31)


def uniform(noise_key: int, job: int, interval: int) -> float:
    """A number in [0, 1) that is fixed by the workload's key, the job's index and the interval's index."""
    x = noise_key + job * _JOB_STRIDE + interval * _INTERVAL_STRIDE
    x = splitmix64_finalise(splitmix64_finalise(x))
    return (x >> 11) * 2.0**-53


def speed_factor(speed_noise: float, noise_key: int, job: int, interval: int) -> float:
    """Factor of the job's true speed in the interval, in [1 - speed_noise, 1 + speed_noise)."""
    return 1.0 + speed_noise * (2.0 * uniform(noise_key, job, interval) - 1.0)
