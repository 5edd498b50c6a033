"""From a counted training step to a job type, and to a catalogue file that scenarios can name."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from agents.profiling.results import StepProfile
from agents.profiling.traffic import TRAFFIC_RULES, weight_traffic_bytes
from dl2env.errors import ConfigError
from dl2env.workload.job_types import JobType, load_job_types

_DEMAND = "assumed: the same tasks as in the DL2 catalogue, so that both run on the same clusters"


@dataclass(frozen=True)
class JobOptions:
    """What a job type needs beyond the step itself.

    Attributes:
        name: Name of the type.
        samples_per_epoch: Samples of one pass over the data, counted as the batch is.
        architecture: Key of `dl2env.speed.parameters.ARCHITECTURES`.
        replicas: Replicas n for which the weight traffic is computed.
        is_global_batch: The batch is that of the whole job, split over its workers, rather than that of each worker.
        worker_cpus, worker_gpus, ps_cpus, ps_gpus: Demands of a task; PSs only for `ps_worker`.
        max_workers: Largest sensible number of workers; None: no limit.
        sources: Source by field, where it is not the default one.
        origin: Where the model was taken from, for the sources of counted values.
    """

    name: str
    samples_per_epoch: float
    architecture: str = "all_reduce"
    replicas: int = 8
    is_global_batch: bool = False
    worker_cpus: int = 2
    worker_gpus: int = 1
    ps_cpus: int = 2
    ps_gpus: int = 0
    max_workers: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""


def job_type_of(profile: StepProfile, options: JobOptions) -> JobType:
    """The job type of a counted step, every value with its source.

    Raises:
        ConfigError: An option is out of range.
    """
    uses_ps = options.architecture == "ps_worker"
    traffic = weight_traffic_bytes(
        options.architecture, options.replicas, profile.dense_gradient_bytes, profile.row_gradient_bytes
    )
    return JobType(
        name=options.name,
        architecture=options.architecture,
        synchronous=options.is_global_batch,
        batch_size=profile.samples,
        samples_per_epoch=options.samples_per_epoch,
        worker_cpus=options.worker_cpus,
        worker_gpus=options.worker_gpus,
        ps_cpus=options.ps_cpus if uses_ps else 0,
        ps_gpus=options.ps_gpus if uses_ps else 0,
        flops=profile.total_flops,
        memory_bytes=profile.total_memory_bytes,
        input_bytes=profile.input_bytes,
        weight_traffic_bytes=traffic,
        dense_weight_bytes=profile.dense_weight_bytes,
        embedding_weight_bytes=profile.embedding_weight_bytes,
        max_workers=options.max_workers,
        sources=_sources(profile, options),
    )


def _sources(profile: StepProfile, options: JobOptions) -> dict[str, str]:
    origin = f" of {options.origin}" if options.origin else ""
    settings = profile.settings
    optimizer = settings.optimizer if isinstance(settings.optimizer, str) else "own optimizer"
    how = f"{settings.precision}, {optimizer}, {settings.attention} attention, {settings.execution} tensors"
    rows = f" and {_mb(profile.row_gradient_bytes)} of touched rows" if profile.row_gradient_bytes else ""
    replicas = f", n = {options.replicas}" if options.architecture in ("all_reduce", "pearl") else ""
    slots = profile.dense_slot_bytes, profile.embedding_slot_bytes
    demands = dict.fromkeys(("worker_cpus", "worker_gpus"), _DEMAND)
    if options.architecture == "ps_worker":
        demands |= dict.fromkeys(("ps_cpus", "ps_gpus"), _DEMAND)
    else:
        demands |= dict.fromkeys(("ps_cpus", "ps_gpus"), "no parameter servers on this architecture")
    found = {
        "architecture": "chosen",
        "synchronous": "chosen: the counted batch is that of the whole job, split over its workers"
        if options.is_global_batch
        else "chosen: the counted batch is that of each worker",
        "batch_size": f"samples in the example batch{origin}",
        "samples_per_epoch": "given",
        **demands,
        "flops": f"counted with PyTorch's FLOP counter over one training step{origin} ({how})",
        "memory_bytes": "counted: bytes read and written by all operators that are not compute-bound, nothing fused, "
        f"{_mb(profile.memory_bytes['optimizer'])} of them by the optimizer",
        "input_bytes": "counted: the tensors of the example batch",
        "weight_traffic_bytes": f"{TRAFFIC_RULES[options.architecture]}{replicas}; "
        f"{_mb(profile.dense_gradient_bytes)} of dense gradients{rows}",
        "dense_weight_bytes": f"counted: trainable weights; optimizer state of {_mb(slots[0])} not included",
        "embedding_weight_bytes": f"counted: tables used for look-ups; optimizer state of {_mb(slots[1])} not included",
    }
    if options.max_workers is not None:
        found["max_workers"] = "given"
    return {**found, **options.sources}


def _mb(value: float) -> str:
    return f"{value / 1e6:.4g} MB"


def format_record(job_type: JobType) -> str:
    """TOML text of a job type: a `[[job_type]]` table and its sources. Counted numbers have six digits."""
    lines = ["[[job_type]]"]
    for entry in fields(JobType):
        value = getattr(job_type, entry.name)
        if entry.name != "sources" and value != entry.default:
            is_given = entry.name in ("batch_size", "samples_per_epoch")
            lines.append(f"{entry.name} = {_exact(value) if is_given else _toml(value)}")
    lines += ["", "[job_type.sources]"]
    lines += [f"{key} = {_toml(text)}" for key, text in job_type.sources.items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string
    assert isinstance(value, (int, float))
    return _exact(value) if abs(value) < 1e6 else f"{value:.6g}"


def _exact(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def format_catalogue(job_types: Sequence[JobType], header: str) -> str:
    """TOML text of a catalogue.

    Args:
        job_types: Its types.
        header: Comment at the top, without `#`.
    """
    comment = "\n".join(f"# {line}".rstrip() for line in header.splitlines())
    return "\n".join([comment + "\n", *(format_record(job_type) for job_type in job_types)])


def check_output(path: Path, *, append: bool, overwrite: bool) -> None:
    """Looks whether a catalogue can be written there, before time is spent on counting.

    Raises:
        ConfigError: The name is wrong, the file exists and may not be changed, or its folder is missing.
    """
    if path.suffix != ".toml" or path.stem.endswith("_fit"):
        raise ConfigError(f"{path}: a catalogue of job types is named <name>.toml (not <name>_fit.toml)")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: no folder {path.parent}; make it or choose another --output")
    if path.exists() and not (append or overwrite):
        raise ConfigError(
            f"{path}: exists; choose another --output, add the record to it (--append) or replace it (--overwrite)"
        )


def write_catalogue(path: Path, text: str, *, append: bool = False) -> None:
    """Writes a catalogue and reads it back; a file that was there is replaced only if that succeeds.

    Args:
        path: File to write.
        text: Its content, or with `append` what is added to the present content.
        append: Keep what is there.

    Raises:
        ConfigError: The file cannot be written, or the result is no valid catalogue (a name that appears twice).
    """
    draft = path.with_name(f".{path.stem}.{os.getpid()}.toml")
    try:
        if append and path.exists():
            text = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n" + text
        draft.write_text(text, encoding="utf-8")
        try:
            load_job_types(draft)
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(draft), str(path))) from error
        draft.replace(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot be written ({reason}); choose another --output") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
