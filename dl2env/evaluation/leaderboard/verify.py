"""Runs some workloads of an entry, or of a scenario's limits, again and says whether the file holds."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import dl2env
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.evaluation.bounds import BoundCalculator
from dl2env.evaluation.leaderboard.board import SCORE
from dl2env.evaluation.leaderboard.cell import Cell, jct_quantiles, make_cells, metric_columns, run_workloads
from dl2env.evaluation.leaderboard.entry import ENTRY_METRICS, Entry, read_entry
from dl2env.evaluation.leaderboard.limits import OPTIONS, Limits, read_limits
from dl2env.evaluation.leaderboard.limits_cell import LimitsCell, LimitsOptions, make_limits_cells, search_workload
from dl2env.evaluation.leaderboard.selection import Groups, choose_scenarios, choose_schedulers
from dl2env.evaluation.statistics import sign_flip_p
from dl2env.scenarios import Scenario
from dl2env.workload.jobs import Workload

if TYPE_CHECKING:
    from dl2env.evaluation.runner import SchedulerResult

REL_TOLERANCE = 1e-5
"""Entries have six significant digits."""

LEVEL = 0.01
"""Of the test for schedulers that draw: one in a hundred right entries fails by chance."""

MIN_SAMPLE = 8
"""Workloads that this test needs: with fewer it never fails."""

_DRAWS = (
    "note: a workload's result must depend on the workload alone; a scheduler that draws takes a seed, and none keeps "
    "anything from one workload to the next"
)


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
    seed: int | None = None,
) -> Verdict:
    """Runs a sample of an entry's workloads again.

    All metrics of a deterministic scheduler must come out as they are in the entry, and, where all workloads are run
    again, the quantiles of JCT too. The mean JCT of one that draws must be within chance of the entry's
    (`statistics.sign_flip_p`). What else the entry says of world and scheduler must be what is found here; times,
    versions and the command are not held against anything.

    Args:
        path: The entry.
        sample: Number of workloads, chosen at random; None for all.
        paths: By scenario the file that it needs (see `selection.choose_scenarios`), or the scenario's own TOML file.
        batch: Environments at once, at most.
        seed: Seed of the choice; None: another choice each time, so that nobody can know which ones to leave right.

    Raises:
        EntryError: The file is no entry.
        Dl2EnvError: Its scheduler or scenario cannot be built here.
    """
    entry = read_entry(path)
    cell = _cell(entry, paths, batch)
    name = f"{entry.scheduler} on {entry.scenario}"
    scenario, available, wrong = _world(entry, cell, name)
    if wrong is not None:
        return wrong
    rows = _sample(entry.num_workloads, sample, seed)
    workloads = [available[i] for i in rows]
    result = run_workloads(cell, scenario, workloads)
    wrong_facts = _wrong_facts(entry, cell, scenario, result)
    if wrong_facts:
        return Verdict(False, (f"{name} does not hold: it says other things of itself than are found", *wrong_facts))
    return _compared(entry, result, workloads, rows, name, _notes(entry, cell))


def verify_limits(
    path: Path, *, sample: int | None = 10, paths: Mapping[str, Any] | None = None, seed: int | None = None
) -> Verdict:
    """Works out all bounds of a file of limits again, and the search on a sample of its workloads.

    Args:
        path: The file.
        sample: Number of searched workloads, chosen at random; None for all.
        paths: As in `verify_entry`.
        seed: As in `verify_entry`.

    Raises:
        LimitsError: The file holds no limits.
        Dl2EnvError: Its scenario cannot be built here.
    """
    limits = read_limits(path)
    name = f"limits of {limits.scenario}"
    options = LimitsOptions(**{key: limits.options[key] for key in OPTIONS})
    try:
        (cell,) = make_limits_cells(
            choose_scenarios(*_scenario(limits.scenario, paths)),
            split=limits.split,  # type: ignore[arg-type]
            num_workloads=limits.num_workloads,
            options=options,
        )
    except Dl2EnvError as error:
        raise ConfigError(f"{name} cannot be worked out here: {error}") from error
    scenario, available, wrong = _world(limits, cell, name)
    if wrong is not None:
        return wrong
    calculator = BoundCalculator(scenario.config)
    now = {"bound_jct_s": {k: calculator.bound(w).mean_jct_s for k, w in enumerate(available)}}
    rows = _sample(limits.num_searched, sample, seed).tolist()
    now["search_jct_s"] = {k: search_workload(cell.scheduler, scenario.config, available[k])[0] for k in rows}
    lines = []
    for field, values in now.items():
        then = getattr(limits, field)
        off = [k for k, value in values.items() if not np.isclose(value, then[k], rtol=REL_TOLERANCE)]
        if off:
            example = f"{off[0]}: {then[off[0]]:g} in the file, {values[off[0]]:g} now"
            lines.append(f"  {field}: {len(off)} of {len(values)} workloads differ, such as {example}")
    what = f"{limits.num_workloads} bounds and {len(rows)} of {limits.num_searched} searches worked out again"
    notes = _notes(limits, cell)
    if lines:
        return Verdict(False, (f"{name} does not hold: {what}", *lines, *notes))
    return Verdict(True, (f"{name} holds: {what}, all are the same", *notes))


def _world(
    file: Entry | Limits, cell: Cell | LimitsCell, name: str
) -> tuple[Scenario, Sequence[Workload], Verdict | None]:
    """Scenario and workloads of a file, and the verdict if they are others than it names."""
    scenario = cell.scenario.build()
    if cell.scenario_hash != file.scenario_hash:
        reason = "the scenario is another one here (its hash differs)"
        return scenario, [], Verdict(False, (f"{name} does not hold: {reason}",))
    available = scenario.workloads(cell.split, file.num_workloads)
    if tuple(workload.digest()[:16] for workload in available) != file.workload_digests:
        reason = "its workloads are not those of the scenario"
        return scenario, [], Verdict(False, (f"{name} does not hold: {reason}",))
    return scenario, available, None


def _notes(file: Entry | Limits, cell: Cell | LimitsCell) -> list[str]:
    if file.version != dl2env.__version__:
        return [f"note: made with dl2env {file.version}, this is {dl2env.__version__}"]
    return ["note: made with other code of the same version"] if file.code_digest != cell.code else []


def _wrong_facts(entry: Entry, cell: Cell, scenario: Scenario, result: SchedulerResult) -> list[str]:
    """What an entry says of world and scheduler, and is not so."""
    choice = cell.scheduler
    found: dict[str, Any] = {
        "interval_s": scenario.config.dynamics.interval_s,
        "seeds": {"workloads": scenario.seed, "scheduler": choice.seed},
        "is_deterministic": choice.is_deterministic,
        "is_oracle": choice.is_oracle,
        "estimate": config_to_dict(result.config.estimate),
    }
    then = {name: getattr(entry, name) for name in found}
    return [f"  {k}: {then[k]} in the entry, {found[k]} here" for k in found if then[k] != found[k]]


def _compared(
    entry: Entry,
    result: SchedulerResult,
    workloads: Sequence[Workload],
    rows: NDArray[np.intp],
    name: str,
    notes: list[str],
) -> Verdict:
    columns = metric_columns(result)
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
    if not wrong and len(rows) == entry.num_workloads:  # quantiles are over the jobs of all workloads
        now = np.array(jct_quantiles(result, workloads))
        is_off = ~np.isclose(now, entry.jct_quantiles_s, rtol=REL_TOLERANCE)
        if is_off.any():
            wrong.append(f"  jct_quantiles_s: {int(is_off.sum())} of {len(now)} differ")
    what = f"{len(rows)} of {entry.num_workloads} workloads run again"
    if not wrong:
        return Verdict(True, (f"{name} holds: {what}, all metrics are the same", *notes))
    if entry.is_deterministic:
        hint = [_DRAWS] if ":" in entry.scheduler_name else []
        return Verdict(False, (f"{name} does not hold: {what}", *wrong, *hint, *notes))
    if len(rows) < MIN_SAMPLE:
        few = (
            f"{name}: {len(rows)} of a scheduler that draws cannot tell chance from error; sample at least {MIN_SAMPLE}"
        )
        return Verdict(False, (few, *notes))
    change_s = columns[SCORE] - entry.values(SCORE)[rows]
    p = sign_flip_p(change_s, np.random.default_rng(0))
    change = f"mean JCT changes by {change_s.mean() / entry.interval_s:+.3g} intervals (p = {p:.2g}, flips of signs)"
    if p >= LEVEL:
        return Verdict(True, (f"{name} holds within chance: {what}, {change}", *notes))
    return Verdict(False, (f"{name} does not hold: {what}, {change}", *notes))


def _cell(entry: Entry, paths: Mapping[str, Any] | None, batch: int) -> Cell:
    _check_is_class(entry.scheduler_name)
    choice = {"name": entry.scheduler_name, "options": dict(entry.options), "label": entry.scheduler}
    try:
        (cell,) = make_cells(
            choose_schedulers([choice], {}),
            choose_scenarios(*_scenario(entry.scenario, paths)),
            split=entry.split,  # type: ignore[arg-type]
            num_workloads=entry.num_workloads,
            batch=batch,
            trim=entry.trim,
        )
    except Dl2EnvError as error:
        raise ConfigError(f"{entry.scheduler} on {entry.scenario} cannot be run here: {error}") from error
    return cell


def _check_is_class(name: str) -> None:
    """An entry's import path must lead to a class of schedulers: `os:system` and its like are not called."""
    if ":" not in name:
        return
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except (Exception, SystemExit):
        return  # `choose_schedulers` says what is wrong
    if not (isinstance(found, type) and callable(getattr(found, "act", None))):
        raise ConfigError(f"scheduler {name!r} cannot be run here: no class with a method `act`")


def _scenario(name: str, paths: Mapping[str, Any] | None) -> tuple[list[str], Groups, dict[str, Any]]:
    """Arguments of `choose_scenarios` for a scenario and what the user gave for it."""
    given = (paths or {}).get(name)
    if isinstance(given, str) and given.endswith(".toml"):  # the scenario itself, else a file that it needs
        return [given], {}, {}
    return [name], {}, {} if given is None else {name: given}


def _sample(count: int, sample: int | None, seed: int | None) -> NDArray[np.intp]:
    """Places of the workloads to run, rising."""
    if sample is None or sample >= count:
        return np.arange(count, dtype=np.intp)
    return np.sort(np.random.default_rng(seed).choice(count, sample, replace=False)).astype(np.intp)
