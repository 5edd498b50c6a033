"""One result out of several training runs: means and intervals over training seeds and workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.evaluation.statistics import mean_interval, reduction_interval

Summary = dict[str, Any]


def read_summaries(folders: Sequence[Path]) -> list[Summary]:
    """The `summary.json` of each run folder, in order of their training seeds.

    Raises:
        ConfigError: A summary is missing or damaged, two have the same seed, or their workloads differ.
    """
    summaries = []
    for folder in folders:
        path = folder / "summary.json"
        try:
            summaries.append(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); name folders of finished runs") from error
        except ValueError as error:
            raise ConfigError(f"{path}: not a JSON file ({error}); run that training again") from error
    if not summaries:
        raise ConfigError("no run folders; name at least one")
    try:
        summaries.sort(key=lambda summary: summary["extra"]["seed"])
        seeds = [summary["extra"]["seed"] for summary in summaries]
        worlds = {(s["scenario"]["hash"], tuple(s["workload_digests"])) for s in summaries}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"a summary lacks {error}; only summaries of training runs can be put together") from error
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"training seeds {seeds}: each run needs a seed of its own")
    if len(worlds) > 1:
        raise ConfigError("the runs were compared on different workloads; put together runs of one scenario and size")
    return summaries


def scores(summaries: Sequence[Summary], scheduler: str) -> NDArray[np.float64]:
    """(S, N) mean JCT in intervals of a scheduler per training run and workload."""
    rows = []
    for summary in summaries:
        interval_s = summary["config"]["dynamics"]["interval_s"]
        rows.append(np.array(summary["schedulers"][scheduler]["per_workload"]["mean_jct_s"]) / interval_s)
    return np.stack(rows)


def seeds_table(summaries: Sequence[Summary], baselines: Sequence[str], seed: int = 0) -> str:
    """A Markdown table of mean JCTs and reductions with 95 % intervals over training seeds and workloads.

    Schedulers that no training touches score the same in every run and count once.

    Args:
        summaries: Of runs that differ in their training seed.
        baselines: Schedulers to compare with; those that did not run are left out.
        seed: Seed of the resamples.
    """
    names = [name for name in summaries[0]["schedulers"] if all(name in s["schedulers"] for s in summaries)]
    table = {name: scores(summaries, name) for name in names}
    table = {name: rows[:1] if (rows == rows[0]).all() else rows for name, rows in table.items()}
    shown = [name for name in baselines if name in table]
    head = ["scheduler", "mean JCT (intervals)", *(f"less than {name}" for name in shown)]
    lines = [_row(head), _row(["---"] * len(head))]
    for name, rows in table.items():
        mean = mean_interval(rows, np.random.default_rng(seed))
        cells = [name, f"{mean.estimate:.2f} [{mean.low:.2f}, {mean.high:.2f}]"]
        for other in shown:
            if other == name:
                cells.append("")
                continue
            cut = reduction_interval(rows, table[other], np.random.default_rng(seed))
            cells.append(f"{100 * cut.estimate:.1f} % [{100 * cut.low:.1f}, {100 * cut.high:.1f}]")
        lines.append(_row(cells))
    return "\n".join(lines)


def per_seed_lines(summaries: Sequence[Summary], scheduler: str, baselines: Sequence[str]) -> list[str]:
    """One line per training run: seed, mean JCT and reductions."""
    lines = []
    for summary in summaries:
        own = scores([summary], scheduler).mean()
        cuts = [
            f"{100 * (1.0 - own / scores([summary], name).mean()):.1f} % less than {name}"
            for name in baselines
            if name in summary["schedulers"]
        ]
        lines.append(f"seed {summary['extra']['seed']}: {scheduler} {own:.2f}, {', '.join(cuts)}")
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
