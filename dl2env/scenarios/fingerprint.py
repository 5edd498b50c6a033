"""What a scenario's hash covers: everything that decides results, as plain values."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2env.config import CalibratedConfig, EnvConfig, ServerGroup, TraceConfig
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError, Dl2EnvError, TraceError
from dl2env.workload.job_types import JobType

_FIRST_KEYS = frozenset(
    """
    cluster cluster.servers cluster.servers.count cluster.servers.cpus cluster.servers.gpus cluster.servers.gpu_type
    cluster.hardware cluster.link_sharing cluster.pcie_group
    workload workload.job_types workload.include workload.num_jobs workload.max_workers workload.max_ps
    workload.arrivals workload.arrivals.kind workload.arrivals.rate_per_interval workload.arrivals.diurnal_swing
    workload.arrivals.diurnal_sd
    workload.sizes workload.sizes.kind workload.sizes.mean_s workload.sizes.sigma workload.sizes.reference_workers
    workload.sizes.reference_ps
    workload.trace workload.trace.path workload.trace.format workload.trace.start_fraction
    workload.trace.stop_fraction workload.trace.seed workload.trace.load_scale
    speed speed.model speed.table speed.clean_table speed.overlap
    estimate estimate.kind estimate.noise estimate.num_probes
    dynamics dynamics.interval_s dynamics.max_intervals dynamics.placement dynamics.scaling_cost
    dynamics.initial_bundle dynamics.mask_resources dynamics.window_skips_capped dynamics.auto_advance
    dynamics.exact_finish dynamics.load_by_sum dynamics.speed_noise dynamics.epoch_error
    """.split()
)
"""Keys of the world when hashes were first published; they always count. A key added later counts only where it has
another value than its default, so that it changes no earlier hash. The default of such a key must therefore stay."""


def world_values(config: EnvConfig, job_types: Sequence[JobType]) -> dict[str, Any]:
    """The world, its job types and hardware by content: names of files and comments do not count.

    Raises:
        ConfigError: A table or trace cannot be read.
    """
    world: dict[str, Any] = _without_later_defaults(config_to_dict(config), _defaults(config))
    world.pop("reward", None)
    world["observation"] = {"window": config.observation.window}
    # A catalogue, table or trace counts by its content, so that a copy elsewhere is the same world.
    del world["cluster"]["hardware"], world["workload"]["job_types"], world["workload"]["include"]
    if config.speed.table is not None:
        world["speed"]["table"] = _file_digest(config.speed.table, "speed.table")
    if config.workload.trace is not None:
        trace = world["workload"]["trace"]
        trace["path"] = _trace_digest(config.workload.trace.path, "workload.trace.path")
        companion = config.workload.trace.companion or _found_companion(config.workload.trace)
        if companion is not None:
            trace["companion"] = _trace_digest(companion, "workload.trace.companion")
    if config.workload.calibrated is not None:
        from dl2env.workload.calibrated.files import load_calibration

        world["workload"]["calibrated"]["file"] = load_calibration(config.workload.calibrated.file).digest()
    return {
        "world": world,
        "job_types": [_job_type_values(job_type) for job_type in job_types],
        "hardware": _hardware_values(config),
    }


def _defaults(config: EnvConfig) -> dict[str, Any]:
    defaults = config_to_dict(EnvConfig())
    defaults["cluster"]["servers"] = [config_to_dict(ServerGroup(group.count)) for group in config.cluster.servers]
    if config.workload.trace is not None:
        defaults["workload"]["trace"] = config_to_dict(TraceConfig(""))
    if config.workload.calibrated is not None:
        defaults["workload"]["calibrated"] = config_to_dict(CalibratedConfig("*"))  # no file's name
    return defaults


def _without_later_defaults(values: Any, defaults: Any, prefix: str = "") -> Any:
    """Nested values without those that came after the first keys and equal their default."""
    if isinstance(values, list) and isinstance(defaults, list) and len(values) == len(defaults):
        return [_without_later_defaults(v, d, prefix) for v, d in zip(values, defaults, strict=True)]
    if not isinstance(values, dict) or not isinstance(defaults, dict):
        return values
    kept = {}
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if dotted in _FIRST_KEYS or value != defaults.get(key):
            kept[key] = _without_later_defaults(value, defaults.get(key), f"{dotted}.")
    return kept


def _job_type_values(job_type: JobType) -> dict[str, Any]:
    return {f.name: getattr(job_type, f.name) for f in dataclasses.fields(job_type) if f.name != "sources"}


def _hardware_values(config: EnvConfig) -> dict[str, Any]:
    """The links record and the GPUs that the cluster has, as plain values."""
    from dl2env.speed.hardware import load_hardware

    hardware = load_hardware(config.cluster.hardware)
    values = dataclasses.asdict(hardware)
    kinds = sorted({group.gpu_type for group in config.cluster.servers})
    values["gpus"] = {kind: dataclasses.asdict(hardware.gpu(kind)) for kind in kinds}
    plain: dict[str, Any] = _without_prose(values)
    return plain


def _without_prose(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {str(key): _without_prose(value) for key, value in values.items() if key not in ("source", "name")}
    return values


def _found_companion(trace: TraceConfig) -> str | None:
    """The second file that reading the trace takes without being told, which decides results as a named one does."""
    from dl2env.workload.traces.reader import find_trace

    try:
        return find_trace(trace.path, trace.format).companion
    except Dl2EnvError:  # a file that is no trace is told when it is read; here its content alone counts
        return None


def _trace_digest(path: str, key: str) -> str:
    from dl2env.workload.traces.source import content_digest

    try:
        return content_digest(path)
    except TraceError as error:
        raise ConfigError(f"{key}: {error}") from error


def _file_digest(path: str, key: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{key}: {path}: cannot be read ({error.strerror}); give the path of the file") from error
