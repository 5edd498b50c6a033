"""Counts one training step of a PyTorch model and writes a job type that scenarios can use.

MODEL names a function that returns (module, example inputs, loss function or target): `package.module:factory`, or
`file.py:factory`, or `file.py` with a function `training_step`. docs/profiling.md shows an example and says what is
counted. Use the result with workload.job_types=OUTPUT.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from agents.profiling.optimizers import OPTIMIZERS
from agents.profiling.record import JobOptions, check_output, format_record, job_type_of, write_catalogue
from agents.profiling.results import PRECISIONS, StepProfile, StepSettings
from agents.profiling.shipped import shipped_catalogue
from agents.profiling.step import profile_step
from agents.profiling.training_step import load_training_step
from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.resources import data_path
from dl2env.speed.parameters import ARCHITECTURES


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see python scripts/profile_model.py --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="package.module:factory, file.py:factory or file.py")
    parser.add_argument("--output", type=Path, help="catalogue to write, a .toml file")
    parser.add_argument("--append", action="store_true", help="add the record to the catalogue")
    parser.add_argument("--overwrite", action="store_true", help="replace the catalogue if it exists")
    parser.add_argument("--shipped", action="store_true", help="write data/job_types/profiled.toml anew; no MODEL")
    job = parser.add_argument_group("job type")
    job.add_argument("--name", help="name of the type")
    job.add_argument("--samples-per-epoch", type=float, help="samples of one pass over the data")
    job.add_argument("--samples-source", default="given", help="where that number comes from")
    job.add_argument("--architecture", default="all_reduce", help=", ".join(ARCHITECTURES))
    job.add_argument("--replicas", type=int, default=8, help="replicas for which weight traffic is computed (8)")
    job.add_argument(
        "--global-batch", action="store_true", help="the batch is the whole job's, not each worker's (synchronous=true)"
    )
    for demand, default in (("worker-cpus", 2), ("worker-gpus", 1), ("ps-cpus", 2), ("ps-gpus", 0)):
        job.add_argument(f"--{demand}", type=int, default=default, help=f"demand of a task ({default})")
    job.add_argument("--max-workers", type=int, help="largest sensible number of workers (no limit)")
    step = parser.add_argument_group("training step")
    step.add_argument("--batch-size", type=int, help="passed to the factory's parameter batch_size")
    step.add_argument("--samples", type=float, help="samples in the batch, where the first dimension does not tell")
    step.add_argument("--optimizer", default="sgd-momentum", help=", ".join(OPTIMIZERS))
    step.add_argument("--precision", default="32-true", help=", ".join(PRECISIONS))
    step.add_argument(
        "--sparse", default="declared", help="tables with sparse gradients: declared (sparse=True), all, none"
    )
    step.add_argument("--attention", default="unfused", help="unfused, or fused (FlashAttention)")
    step.add_argument("--execution", default="fake", help="fake (shapes only), or real for models that need values")
    return parser


def summary_lines(profile: StepProfile) -> list[str]:
    """What was counted, for the terminal."""
    lines = [
        f"{profile.num_parameters:,} trainable parameters"
        + (f", {profile.num_frozen:,} frozen" if profile.num_frozen else ""),
        f"{profile.samples:g} samples, {profile.input_bytes / 1e6:.4g} MB of input",
        f"{'':18s}{'forward':>12s}{'backward':>12s}{'optimizer':>12s}{'step':>12s}",
        _row("GFLOP", profile.flops),
        _row("GB moved", profile.memory_bytes),
        "GB moved by: "
        + ", ".join(f"{kind} {moved / 1e9:.4g}" for kind, moved in profile.memory_bytes_by_kind.items() if moved),
        f"MB of weights: dense {profile.dense_weight_bytes / 1e6:.4g}, embedding "
        f"{profile.embedding_weight_bytes / 1e6:.4g}; of optimizer state: "
        f"{(profile.dense_slot_bytes + profile.embedding_slot_bytes) / 1e6:.4g}",
    ]
    for table in profile.tables:
        if table.is_sparse:
            how = "counted in the batch" if table.is_counted else "one per look-up"
            lines.append(f"table {table.name}: {table.touched_rows:,} of {table.num_rows:,} rows touched ({how})")
    return lines


def _row(label: str, values: dict[str, int]) -> str:
    return f"{label:18s}" + "".join(f"{value / 1e9:12.4g}" for value in (*values.values(), sum(values.values())))


def _profile_one(options: argparse.Namespace) -> None:
    for key in ("model", "name", "samples_per_epoch", "output"):
        if getattr(options, key) is None:
            flag = "MODEL" if key == "model" else f"--{key.replace('_', '-')}"
            raise ConfigError(f"{flag} is missing; see python scripts/profile_model.py --help")
    check_output(options.output, append=options.append, overwrite=options.overwrite)
    settings = StepSettings(
        optimizer=options.optimizer,
        precision=options.precision,
        sparse=options.sparse,
        attention=options.attention,
        execution=options.execution,
    )
    job = JobOptions(
        name=options.name,
        samples_per_epoch=options.samples_per_epoch,
        architecture=options.architecture,
        replicas=options.replicas,
        is_global_batch=options.global_batch,
        worker_cpus=options.worker_cpus,
        worker_gpus=options.worker_gpus,
        ps_cpus=options.ps_cpus,
        ps_gpus=options.ps_gpus,
        max_workers=options.max_workers,
        sources={"samples_per_epoch": options.samples_source},
        origin=options.model,
    )
    step = load_training_step(options.model, options.batch_size)
    if options.samples is not None:
        step = dataclasses.replace(step, samples=options.samples)
    profile = profile_step(step, settings)
    record = format_record(job_type_of(profile, job))
    print("\n".join(summary_lines(profile)))
    write_catalogue(options.output, record, append=options.append)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.shipped:
            if options.model is not None:
                raise ConfigError(f"{options.model}: --shipped takes no MODEL; leave one of them out")
            options.output = options.output or data_path("job_types", "profiled.toml")
            write_catalogue(options.output, shipped_catalogue())
        else:
            _profile_one(options)
    except Dl2EnvError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
