"""Shows how much jobs slow each other down in a scenario, for several strengths of link sharing and of speed noise.

The published anchor is that same-model jobs of DL2's production trace vary by 27.3 % in duration (standard deviation
over mean). The table gives the same figure for the speeds of simulated jobs of one type at equal workers and parameter
servers under a scheduler, DRF by default.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from dl2env.errors import Dl2EnvError
from dl2env.evaluation.contention import measure_contention
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler

COLUMNS = ("sharing", "noise", "variation", "slowdown", "full intervals", "mean JCT")


def percent(share: float) -> str:
    """A share as a cell of the table; a dash where nothing could be measured."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="dl2-small-v1")
    parser.add_argument("--scheduler", default="drf")
    parser.add_argument("--sharing", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0, 2.7])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.4])
    parser.add_argument("--workloads", type=int, default=32, help="training workloads per row")
    options = parser.parse_args(arguments)
    try:
        scenario = get_scenario(options.scenario)
        scheduler = get_scheduler(options.scheduler)
        print("  ".join(f"{name:>14s}" for name in COLUMNS))
        for noise in options.noise:
            for sharing in options.sharing:
                world = scenario.derive({"cluster.link_sharing": sharing, "dynamics.speed_noise": noise})
                found = measure_contention(scheduler, world.config, world.workloads("train", options.workloads))
                row = (
                    f"{sharing:g}",
                    f"{noise:g}",
                    percent(found.speed_variation),
                    percent(found.mean_slowdown),
                    percent(found.share_full),
                    f"{found.mean_jct_intervals:.2f}",
                )
                print("  ".join(f"{cell:>14s}" for cell in row), flush=True)
    except Dl2EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
