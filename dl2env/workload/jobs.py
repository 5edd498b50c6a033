"""The job table of one episode."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """Jobs of one episode in arrival order, one array entry per job.

    Attributes:
        arrival_s: (N,) float64 arrival times in seconds, not decreasing, first one >= 0.
        type_idx: (N,) int32 index into the job-type catalogue `type_names`.
        epochs: (N,) float64 total epochs as the user states them (what schedulers see); positive.
        true_epochs: (N,) float64 epochs at which the job really completes; positive.
        samples_per_epoch: (N,) float64 samples of one epoch; positive.
        type_names: Names of the catalogue's types.
        noise_key: Seeds the simulator's per-interval noise, so that policies cannot shift it. Hand-made workloads
            should give one other than 0, for which the first job's first draw is always the lowest.
        provenance: How the table was made (generator or trace, seed, config); stored with results.
    """

    arrival_s: NDArray[np.float64]
    type_idx: NDArray[np.int32]
    epochs: NDArray[np.float64]
    true_epochs: NDArray[np.float64]
    samples_per_epoch: NDArray[np.float64]
    type_names: tuple[str, ...]
    noise_key: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = ("arrival_s", "epochs", "true_epochs", "samples_per_epoch")
        for name in arrays:
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        object.__setattr__(self, "type_idx", np.ascontiguousarray(self.type_idx, dtype=np.int32))
        for name in (*arrays, "type_idx"):
            if getattr(self, name).shape != self.arrival_s.shape or self.arrival_s.ndim != 1:
                raise ConfigError(f"workload: {name} must be a vector with one entry per job")
        if self.num_jobs == 0:
            raise ConfigError("workload: no jobs; give at least one")
        for name in arrays:
            values = getattr(self, name)
            bad = ~np.isfinite(values) | ((values < 0) if name == "arrival_s" else (values <= 0))
            if bad.any():
                row = int(np.argmax(bad))
                wanted = "not negative" if name == "arrival_s" else "positive"
                raise ConfigError(f"workload: {name} of job {row} is {values[row]}; it must be finite and {wanted}")
        if (np.diff(self.arrival_s) < 0).any():
            row = int(np.argmax(np.diff(self.arrival_s) < 0)) + 1
            raise ConfigError(f"workload: job {row} arrives before job {row - 1}; sort the jobs by arrival_s")
        outside = (self.type_idx < 0) | (self.type_idx >= len(self.type_names))
        if outside.any():
            row = int(np.argmax(outside))
            raise ConfigError(
                f"workload: type_idx of job {row} is {self.type_idx[row]}; the catalogue has "
                f"{len(self.type_names)} types"
            )

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return int(self.arrival_s.shape[0])

    def digest(self) -> str:
        """SHA-256 of the job table (not of its provenance), as hexadecimal text."""
        sha = hashlib.sha256()
        for values in (self.arrival_s, self.type_idx, self.epochs, self.true_epochs, self.samples_per_epoch):
            sha.update(values.tobytes())
        sha.update("\n".join(self.type_names).encode())
        sha.update(str(self.noise_key).encode())
        return sha.hexdigest()
