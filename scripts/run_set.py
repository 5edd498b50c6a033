"""What commands share that train several times: the bar over all runs, and what they say of failures and Ctrl-C."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.multi_run import TrainingRun
    from dl2env.evaluation.leaderboard.run import Progress, RunResult


def run_set(runs: Sequence[TrainingRun], processes: int | None, path: Path, resume_with: str, what: str) -> RunResult:
    """Runs what is not done, with a bar; Ctrl-C ends the command with status 130.

    Args:
        runs: The runs.
        processes: How many at a time; None: as many as there are cores.
        path: Folder for the tracebacks of failures.
        resume_with: Command line that goes on after Ctrl-C.
        what: What is run, for messages.
    """
    from agents.multi_run import num_cores, run_all

    count = num_cores() if processes is None else processes
    print(f"{what}: {len(runs)} runs, {count} at a time", flush=True)
    try:
        with ShareBar() as bar:
            result = run_all(runs, count, bar.show)
    except KeyboardInterrupt:
        print(f"stopped; nothing that is finished is lost, go on with: {resume_with}", file=sys.stderr)
        sys.exit(130)
    kept = f", {len(result.kept)} were done already" if result.kept else ""
    print(f"{what}: {len(result.written)} runs in {result.wall_s:.0f} s{kept}", flush=True)
    if result.failures:
        details = path / "failures.txt"
        details.parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(f"{failure.label}: {failure.error}\n{failure.details}" for failure in result.failures)
        details.write_text(text, encoding="utf-8")
        print(f"{len(result.failures)} runs failed (tracebacks: {details}):", file=sys.stderr)
        for failure in result.failures:
            print(f"  {failure.label}: {failure.error}", file=sys.stderr)
    return result


def same_command() -> str:
    """The command line that is running."""
    return shlex.join([Path(sys.executable).name, *sys.argv])


class ShareBar:
    """Share of the work that is done, time gone and left, and what runs now, on stderr."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            total=1.0,
            bar_format="{percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}",
            dynamic_ncols=True,
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
        )

    def show(self, progress: Progress) -> None:
        """Moves the bar to where a set of runs stands."""
        now = f"{progress.num_done} of {progress.num_cells} done; {', '.join(progress.running)}"
        self._bar.set_postfix_str(now, refresh=False)
        self._bar.update(max(progress.share - self._bar.n, 0.0))

    def __enter__(self) -> ShareBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
