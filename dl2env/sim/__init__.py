"""The batch simulator: numba kernels over record arrays."""
