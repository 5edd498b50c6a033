"""Lets an agent learn while it schedules a stream of jobs that does not end, and compares it with its teacher.

- `python scripts/online.py`: warm-up on DRF, then PPO on the stream, with practice in copies and behind a guard
- `python scripts/online.py method=naive`: learns only from what it does, with no guard
- `python scripts/online.py stream=load`: another stream; `conf/stream/` has those that there are
- `python scripts/online.py resume=runs/<name>/<time>`: goes on with a stopped run
- `python scripts/online.py --help`: all groups and keys
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scripts import command_line


def online(values: dict[str, Any], path: Path) -> None:
    """Starts or resumes the run in a folder."""
    from agents.online.folder import OnlineFolder
    from agents.online.run import run_online  # torch: after the configuration is known to be right

    is_resumed = values.pop("resume") is not None
    folder = OnlineFolder.open(path) if is_resumed else OnlineFolder.create(path, values)
    assert isinstance(folder, OnlineFolder)
    try:
        summary = run_online(folder, command=sys.argv)
    except KeyboardInterrupt:
        print(f"stopped; go on with: {sys.executable} {sys.argv[0]} resume={path}", file=sys.stderr)
        sys.exit(130)
    print(summary)


if __name__ == "__main__":
    command_line.run(online, "online")
