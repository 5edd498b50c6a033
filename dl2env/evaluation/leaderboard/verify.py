"""Runs some workloads of an entry again and says whether the entry holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dl2env
from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.evaluation.leaderboard.cell import Cell, make_cells, metric_columns, run_workloads
from dl2env.evaluation.leaderboard.entry import ENTRY_METRICS, Entry, read_entry
from dl2env.evaluation.leaderboard.selection import choose_scenarios, choose_schedulers
from dl2env.evaluation.statistics import difference_interval
from dl2env.scenarios import Scenario
from dl2env.workload.jobs import Workload

REL_TOLERANCE = 1e-5
"""Entries have six significant digits."""

CONFIDENCE = 0.99
"""Of the interval for schedulers that draw: one in a hundred right entries fails by chance."""


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Attributes:
        holds: The entry holds.
        lines: What to tell the user.
    """

    holds: bool
    lines: tuple[str, ...]


def verify_entry(
    path: Path,
    *,
    sample: int | None = 10,
    paths: Mapping[str, Any] | None = None,
    batch: int = 64,
    seed: int = 0,
) -> Verdict:
    """Runs a sample of an entry's workloads again.

    All metrics of a deterministic scheduler must come out as they are in the entry. One that draws must have a mean
    JCT whose paired difference to the entry's is within chance.

    Args:
        path: The entry.
        sample: Number of workloads, chosen at random; None for all.
        paths: By scenario the file that it needs (see `selection.choose_scenarios`), or the scenario's own TOML file.
        batch: Environments at once, at most.
        seed: Seed of the choice.

    Raises:
        EntryError: The file is no entry.
        Dl2EnvError: Its scheduler or scenario cannot be built here.
    """
    entry = read_entry(path)
    cell = _cell(entry, paths, batch)
    name = f"{entry.scheduler} on {entry.scenario}"
    if cell.scenario_hash != entry.scenario_hash:
        return Verdict(False, (f"{name} does not hold: the scenario is another one here (its hash differs)",))
    scenario = cell.scenario.build()
    available = scenario.workloads(cell.split, entry.num_workloads)
    digests = [workload.digest()[:16] for workload in available]
    if tuple(digests) != entry.workload_digests:
        return Verdict(False, (f"{name} does not hold: its workloads are not those of the scenario",))
    rows = _sample(entry.num_workloads, sample, seed)
    notes = []
    if entry.version != dl2env.__version__:
        notes.append(f"note: made with dl2env {entry.version}, this is {dl2env.__version__}")
    elif entry.code_digest != cell.code:
        notes.append("note: made with other code of the same version")
    return _compared(entry, cell, scenario, [available[i] for i in rows], rows, name, notes)


def _compared(
    entry: Entry,
    cell: Cell,
    scenario: Scenario,
    workloads: Sequence[Workload],
    rows: NDArray[np.intp],
    name: str,
    notes: list[str],
) -> Verdict:
    columns = metric_columns(run_workloads(cell, scenario, workloads))
    wrong = []
    for metric in ENTRY_METRICS:
        now, then = columns[metric], entry.values(metric)[rows]
        is_off = ~np.isclose(now, then, rtol=REL_TOLERANCE, atol=1e-9)
        if is_off.any():
            k = int(np.argmax(is_off))
            wrong.append(
                f"  {metric}: {int(is_off.sum())} of {len(rows)} workloads differ, "
                f"such as {rows[k]}: {then[k]:g} in the entry, {now[k]:g} now"
            )
    what = f"{len(rows)} of {entry.num_workloads} workloads run again"
    if not wrong:
        return Verdict(True, (f"{name} holds: {what}, all metrics are the same", *notes))
    if entry.is_deterministic:
        return Verdict(False, (f"{name} does not hold: {what}", *wrong, *notes))
    interval = difference_interval(
        columns["mean_jct_intervals"],
        entry.values("mean_jct_intervals")[rows],
        np.random.default_rng(0),
        confidence=CONFIDENCE,
    )
    bounds = f"mean JCT changes by {interval.estimate:+.3g} [{interval.low:.3g}, {interval.high:.3g}] intervals (99 %)"
    if interval.low <= 0.0 <= interval.high:
        return Verdict(True, (f"{name} holds within chance: {what}, {bounds}", *notes))
    if np.isnan(interval.low):
        return Verdict(False, (f"{name}: one workload cannot tell chance from error; sample more", *notes))
    return Verdict(False, (f"{name} does not hold: {what}, {bounds}", *notes))


def _cell(entry: Entry, paths: Mapping[str, Any] | None, batch: int) -> Cell:
    choice = {"name": entry.scheduler_name, "options": dict(entry.options), "label": entry.scheduler}
    given = (paths or {}).get(entry.scenario)
    is_scenario = isinstance(given, str) and given.endswith(".toml")  # else a file that the scenario needs
    source = given if is_scenario else entry.scenario
    files = {} if given is None or is_scenario else {entry.scenario: given}
    try:
        (cell,) = make_cells(
            choose_schedulers([choice], {}),
            choose_scenarios([source], {}, files),
            split=entry.split,  # type: ignore[arg-type]
            num_workloads=entry.num_workloads,
            batch=batch,
            trim=entry.trim,
        )
    except Dl2EnvError as error:
        raise ConfigError(f"{entry.scheduler} on {entry.scenario} cannot be run here: {error}") from error
    return cell


def _sample(count: int, sample: int | None, seed: int) -> NDArray[np.intp]:
    """Places of the workloads to run, rising."""
    if sample is None or sample >= count:
        return np.arange(count, dtype=np.intp)
    return np.sort(np.random.default_rng(seed).choice(count, sample, replace=False)).astype(np.intp)
