"""Configuration of recorded workloads: a replayed trace, shaped or not, or a calibration to draw from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from dl2env.config_checks import require, require_choice, require_positive

PartsBy = Literal["jobs", "time"]
SampleBy = Literal["jobs", "users", "groups"]
GpuRounding = Literal["none", "whole", "power_of_two_up", "power_of_two_down", "power_of_two_nearest"]
AboveMaxGpus = Literal["clamp", "drop"]
GpuChangeKeeps = Literal["duration", "gpu_time"]
LoadBy = Literal["arrivals", "sizes"]
TraceFormatName = Literal[
    "auto",
    "philly",
    "philly_json",
    "pollux",
    "pai",
    "openb",
    "spot",
    "helios",
    "acme",
    "gavel",
    "tiresias",
    "elasticflow",
    "swf",
    "dl2env",
]
TRACE_FORMATS: tuple[str, ...] = get_args(TraceFormatName)
"""Trace formats by name; a module of `dl2env.workload.traces` reads each. `auto`: found by content."""


@dataclass(frozen=True)
class ShapingConfig:
    """Changes of a recorded workload, in this order; the defaults change nothing (`dl2env.workload.traces.shaping`).

    Attributes:
        from_s, until_s: Jobs that arrive in [from_s, until_s) are kept, in seconds after the first job of the file.
        sample_by: What is drawn: single `jobs` (thinning, each on its own), or all jobs of whole `users` or `groups`.
            Jobs that name none count as a user or group of their own each.
        sample_share: Share of these that is kept, above 0 and at most 1.
        sample_seed: Seed of the draw. A smaller share under the same seed keeps a part of what a larger one keeps.
        gpu_map: `<recorded>:<new>` numbers of GPUs, such as `3:4`; other numbers stay.
        gpu_rounding: GPUs become `whole` numbers, rounded up, or powers of two: the next, the last or the nearest by
            ratio. Jobs without GPUs stay so.
        max_gpus: Most GPUs of a job.
        above_max_gpus: Jobs above it get that number (`clamp`) or are left out (`drop`).
        gpu_change_keeps: What a job with another number of GPUs keeps: its `duration`, or its `gpu_time`, the product
            of both.
        target_load: GPU time that the jobs take at their assigned GPUs, over that of the whole cluster from first to
            last arrival, is brought to this value. Above 1 the cluster cannot keep up.
        load_by: Whether the times between `arrivals` or the `sizes` of jobs (their durations) are scaled for that.
    """

    from_s: float | None = None
    until_s: float | None = None
    sample_by: SampleBy = "jobs"
    sample_share: float = 1.0
    sample_seed: int = 0
    gpu_map: tuple[str, ...] = ()
    gpu_rounding: GpuRounding = "none"
    max_gpus: float | None = None
    above_max_gpus: AboveMaxGpus = "clamp"
    gpu_change_keeps: GpuChangeKeeps = "duration"
    target_load: float | None = None
    load_by: LoadBy = "arrivals"

    def __post_init__(self) -> None:
        for key, choices in _CHOICES.items():
            require_choice(f"shaping.{key}", getattr(self, key), choices)
        for key in ("from_s", "until_s"):
            value = getattr(self, key)
            require(
                value is None or 0.0 <= value < math.inf,
                f"shaping.{key}={value} must be seconds from the first job, finite and not negative",
            )
        require(
            self.until_s is None or (self.from_s or 0.0) < self.until_s,
            f"shaping: from_s={self.from_s}, until_s={self.until_s}; from_s < until_s must hold",
        )
        require(0.0 < self.sample_share <= 1.0, f"shaping.sample_share={self.sample_share} must lie in (0, 1]")
        require(self.sample_seed >= 0, f"shaping.sample_seed={self.sample_seed} must not be negative")
        for key in ("max_gpus", "target_load"):
            if getattr(self, key) is not None:
                require_positive(f"shaping.{key}", getattr(self, key))
        self.gpu_counts()

    def gpu_counts(self) -> dict[float, float]:
        """`gpu_map` as numbers.

        Raises:
            ConfigError: An entry is no pair of numbers, or one number is mapped twice.
        """
        counts: dict[float, float] = {}
        for entry in self.gpu_map:
            try:
                recorded, new = (float(part) for part in entry.split(":"))
            except ValueError:
                recorded = new = math.nan
            require(
                0.0 <= recorded < math.inf and 0.0 <= new < math.inf,
                f"shaping.gpu_map: {entry!r} is no <recorded>:<new> pair of GPU numbers, such as '3:4'",
            )
            require(recorded not in counts, f"shaping.gpu_map: {recorded:g} GPUs are mapped twice; leave one out")
            counts[recorded] = new
        return counts


_CHOICES: dict[str, tuple[str, ...]] = {
    "sample_by": get_args(SampleBy),
    "gpu_rounding": get_args(GpuRounding),
    "above_max_gpus": get_args(AboveMaxGpus),
    "gpu_change_keeps": get_args(GpuChangeKeeps),
    "load_by": get_args(LoadBy),
}


@dataclass(frozen=True)
class TraceConfig:
    """A recorded workload to replay instead of a generated one.

    Attributes:
        path: Trace file, packed or not, `archive::member`, or a folder of tables. Its format is found by content unless
            `format` names it.
        format: One of `TRACE_FORMATS` (docs/traces.md describes each).
        companion: Second file that a format needs: Gavel's table of throughputs.
        strict: Rows that are wrong or suspicious are errors; off, they are left out or kept, counted and reported.
        start_fraction, stop_fraction: Part of the trace's jobs (in arrival order) that episodes are cut from. Disjoint
            ranges make disjoint train and test splits.
        parts_by: Whether these fractions are shares of the `jobs` or of the `time` from first to last arrival, which
            leaves no job of a later time in an earlier part. Holds for the splits of a scenario too.
        seed: Seed of the rule that gives each recorded job a training type.
        load_scale: Recorded inter-arrival times are divided by it (2 doubles the load).
        shaping: Which of the jobs, with how many GPUs and at what load.
    """

    path: str
    format: TraceFormatName = "auto"
    start_fraction: float = 0.0
    stop_fraction: float = 1.0
    seed: int = 0
    load_scale: float = 1.0
    companion: str | None = None
    strict: bool = False
    parts_by: PartsBy = "jobs"
    shaping: ShapingConfig = field(default_factory=ShapingConfig)

    def __post_init__(self) -> None:
        require_choice("workload.trace.format", self.format, TRACE_FORMATS)
        require(
            0.0 <= self.start_fraction < self.stop_fraction <= 1.0,
            f"workload.trace: start_fraction={self.start_fraction}, stop_fraction={self.stop_fraction}; "
            "0 <= start_fraction < stop_fraction <= 1 must hold",
        )
        require_positive("workload.trace.load_scale", self.load_scale)
        require_choice("workload.trace.parts_by", self.parts_by, get_args(PartsBy))
        require(
            self.load_scale == 1 or self.shaping.target_load is None,
            f"workload.trace: load_scale={self.load_scale} changes shaping.target_load={self.shaping.target_load}; "
            "set load_scale to 1 or leave target_load out",
        )


@dataclass(frozen=True)
class CalibratedConfig:
    """Workloads drawn from parameters that were fitted to a trace (docs/calibrated_workloads.md).

    Attributes:
        file: Name of a calibration in `data/calibrations` (`philly`, `openb`, `gavel`), or the path of a YAML file of
            that form, which `scripts/fit_workload.py` writes.
        target_load: Offered load in the long run: GPU time of the jobs, at the GPUs of their workers, over that of the
            whole cluster. Sets the rate of arrivals; cycles and bursts keep their real time scales. None: the recorded
            rate.
        load_scale: The recorded rate is multiplied by it (2 doubles the load).
    """

    file: str = ""
    target_load: float | None = None
    load_scale: float = 1.0

    def __post_init__(self) -> None:
        require(
            bool(self.file),
            "workload.calibrated.file: not set; name a calibration of data/calibrations, or give a YAML file's path",
        )
        require_positive("workload.calibrated.load_scale", self.load_scale)
        if self.target_load is not None:
            require_positive("workload.calibrated.target_load", self.target_load)
            require(
                self.load_scale == 1,
                f"workload.calibrated: load_scale={self.load_scale} changes target_load={self.target_load}; set "
                "load_scale to 1 or leave target_load out",
            )
