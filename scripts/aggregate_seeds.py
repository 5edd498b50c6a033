"""Puts training runs that differ in their seed together into one table with intervals over seeds and workloads.

Example:
    python scripts/train.py -m seed=1,2,3,4,5 run_dir=runs/seeds
    python scripts/aggregate_seeds.py runs/seeds/*
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.seeds import per_seed_lines, read_summaries, seeds_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--compare-with", nargs="+", default=["drf", "optimus-exact", "warm-up"])
    parser.add_argument("--scheduler", default="fine-tuned", help="scheduler to list run by run")
    options = parser.parse_args(arguments)
    try:
        summaries = read_summaries(options.folders)
        first = summaries[0]
        if options.scheduler not in first["schedulers"]:
            known = ", ".join(first["schedulers"])
            print(f"error: no results of {options.scheduler!r}; the runs have: {known}", file=sys.stderr)
            return 2
        print(
            f"{first['scenario']['name']}, {len(first['workload_digests'])} {first['split']} workloads, "
            f"{len(summaries)} training seeds"
        )
        print(seeds_table(summaries, options.compare_with))
        for line in per_seed_lines(summaries, options.scheduler, options.compare_with):
            print(line)
    except Dl2EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
