"""Trains a scheduler and compares it: record a teacher, warm up, fine-tune by PPO, evaluate on held-out workloads.

- `python scripts/train.py`: the main job as `conf/config.yaml` describes it
- `python scripts/train.py experiment=smoke`: the same in less than a minute
- `python scripts/train.py workload=philly workload.path=<csv>`: on a recorded workload
- `python scripts/train.py resume=runs/<name>/<time>`: goes on with a stopped run
- `python scripts/train.py --help`: all groups and keys
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scripts import command_line


def train(values: dict[str, Any], path: Path) -> None:
    """Starts or resumes the run in a folder."""
    from agents.pipeline import run_pipeline  # torch: after the configuration is known to be right
    from agents.run_folder import RunFolder

    is_resumed = values.pop("resume") is not None
    folder = RunFolder.open(path) if is_resumed else RunFolder.create(path, values)
    try:
        summary = run_pipeline(folder, command=sys.argv)
    except KeyboardInterrupt:
        print(f"stopped; go on with: {sys.executable} {sys.argv[0]} resume={path}", file=sys.stderr)
        sys.exit(130)
    print(summary)


if __name__ == "__main__":
    command_line.run(train, "config")
