"""Puts the best network of a training run into data/checkpoints, with its expected scores.

Example:
    python scripts/publish_checkpoint.py runs/generalist/seed-1 generalist --description "One policy for all scenarios."
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import Dl2EnvError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a complete run")
    parser.add_argument("name", help="name of the network: folder of data/checkpoints")
    parser.add_argument("--description", required=True, help="one sentence about it")
    parser.add_argument("--scenarios", nargs="+", default=["dl2-small-v1", "saturated-24-v1", "pai-models-v1"])
    parser.add_argument("--workloads", type=int, default=8, help="test workloads per scenario")
    parser.add_argument("--window", type=int, default=64, help="job slots to run with")
    parser.add_argument("--sampled", action="store_true", help="it is to sample its actions")
    options = parser.parse_args(arguments)
    try:
        from agents.pretrained import publish
        from dl2env.resources import data_path

        target = data_path("checkpoints", options.name)
        publish(
            options.run,
            target,
            options.description,
            options.scenarios,
            deterministic=not options.sampled,
            window=options.window,
            num_workloads=options.workloads,
        )
    except Dl2EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
