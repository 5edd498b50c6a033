"""Trains a scheduler and compares it: record a teacher, warm up, fine-tune by PPO, evaluate on held-out workloads.

- `python scripts/train.py`: the main job as `conf/config.yaml` describes it
- `python scripts/train.py experiment=smoke`: the same in less than a minute
- `python scripts/train.py workload=philly workload.path=<csv>`: on a recorded workload
- `python scripts/train.py seeds=5`: five times, with seeds 1 to 5, several at a time, and one table over all of them
- `python scripts/train.py resume=runs/<name>/<time>`: goes on with a stopped run, or with several
- `python scripts/train.py --help`: all groups and keys
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dl2env.errors import ConfigError
from scripts import command_line
from scripts.run_set import run_set


def train(values: dict[str, Any], path: Path) -> None:
    """Starts or resumes the run, or the runs of several seeds, in a folder."""
    from agents.pipeline import run_pipeline  # torch: after the configuration is known to be right
    from agents.run_folder import RunFolder
    from agents.seeds import is_seeds_folder

    seeds, processes = values.pop("seeds"), values.pop("processes")
    is_resumed = values.pop("resume") is not None
    if seeds is not None or (is_resumed and is_seeds_folder(path)):
        _train_seeds(values, path, seeds, processes, is_resumed)
        return
    folder = RunFolder.open(path) if is_resumed else RunFolder.create(path, values)
    try:
        summary = run_pipeline(folder, command=sys.argv)
    except KeyboardInterrupt:
        print(f"stopped; go on with: {_resume(path)}", file=sys.stderr)
        sys.exit(130)
    print(summary)


def _train_seeds(values: dict[str, Any], path: Path, seeds: Any, processes: int | None, is_resumed: bool) -> None:
    from agents.multi_run import read_seeds
    from agents.pipeline import build_world
    from agents.run_folder import RunFolder
    from agents.seeds import SeedsFolder

    if not is_resumed:
        seeds = read_seeds(seeds)
        if processes is not None and not (isinstance(processes, int) and processes >= 1):
            raise ConfigError(f"processes={processes} must be at least 1")
        # What is wrong with the settings is wrong with every seed.
        build_world(RunFolder.create(path, {**values, "seed": seeds[0]}))
    folder = SeedsFolder.open(path) if is_resumed else SeedsFolder.create(path, values, seeds)
    print(f"run folder {path}; log of each run: {path}/seed-<seed>/log.txt")
    result = run_set(folder.runs(sys.argv), processes, path, _resume(path), "training")
    if result.failures:
        sys.exit(1)
    table, summary = folder.aggregate(sys.argv)
    print(table)
    print(summary)


def _resume(path: Path) -> str:
    return f"{sys.executable} {sys.argv[0]} resume={path}"


if __name__ == "__main__":
    command_line.run(train, "config")
