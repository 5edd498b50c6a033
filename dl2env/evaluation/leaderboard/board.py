"""A board: entries put together, those that do not fit set aside, and everything the pages show worked out.

The board is a function of the entries (and of the world's hashes they are held against), so the same entries give the
same pages, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import dl2env
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.entry import Entry
from dl2env.evaluation.leaderboard.folder import SetAside
from dl2env.evaluation.leaderboard.limits import Limits
from dl2env.evaluation.leaderboard.notices import board_notices, some_names
from dl2env.evaluation.metrics import NO_TRIM
from dl2env.evaluation.ranking import (
    RankRange,
    Standing,
    compare_on_scenario,
    compare_over_scenarios,
    win_matrix,
)
from dl2env.evaluation.statistics import Interval

SCORE = "mean_jct_s"

ORACLE_MARK = "†"
ORACLE_NOTE = (
    f"{ORACLE_MARK} An oracle: it knows the future, or sizes that no scheduler is told. Shown for comparison; it has "
    "no rank, and others are ranked without it."
)


@dataclass(frozen=True)
class ScenarioBoard:
    """Schedulers on one scenario.

    Attributes:
        name: Scenario.
        entries: (K) entries, in the order of their labels.
        num_workloads: Workloads that all entries have, in this order the first ones.
        workload_idx: For each entry, the places of these workloads in it.
        seed: Seed of the bootstrap.
        limits: Lower bounds and the search's results, where there are any.
    """

    name: str
    entries: tuple[Entry, ...]
    num_workloads: int
    workload_idx: tuple[NDArray[np.intp], ...]
    seed: int
    limits: Limits | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """(K) schedulers."""
        return tuple(entry.scheduler for entry in self.entries)

    @property
    def interval_s(self) -> float:
        """Scheduling interval in seconds."""
        return self.entries[0].interval_s

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the shared workloads, in their order."""
        return tuple(self.entries[0].workload_digests[i] for i in self.workload_idx[0])

    @property
    def oracles(self) -> frozenset[str]:
        """Schedulers that know what no scheduler can."""
        return frozenset(entry.scheduler for entry in self.entries if entry.is_oracle)

    @property
    def ranks(self) -> tuple[RankRange | None, ...]:
        """(K) ranks among the schedulers that are no oracles; None for oracles."""
        return _ranks(self._standing, self.oracles)

    @property
    def best(self) -> str | None:
        """The scheduler with the smallest mean JCT, oracles left out."""
        return _best(self._standing, self.oracles)

    def values(self, metric: str) -> NDArray[np.float64]:
        """(K, N) values of a metric on the shared workloads."""
        return np.stack([e.values(metric)[idx] for e, idx in zip(self.entries, self.workload_idx, strict=True)])

    def entry(self, label: str) -> Entry | None:
        """The entry of a scheduler, if there is one."""
        return next((entry for entry in self.entries if entry.scheduler == label), None)

    def standing(self, labels: Sequence[str] | None = None) -> Standing:
        """Comparison of all schedulers or of some, by mean JCT."""
        if labels is None:
            return self._standing
        rows = [self.labels.index(label) for label in labels]
        return Standing(
            tuple(labels), self._standing.log_mean[rows], self._standing.draws[rows], self._standing.num_resampled
        )

    def generator(self, purpose: str = "") -> np.random.Generator:
        """A generator of resamples, the same for every scenario.

        Scenarios mostly draw the k-th workload from the same seed, so that one that is easy in one scenario is easy in
        others too (most pairs of the suite correlate by 0.5 to 1). Resamples that take the same places everywhere keep
        that; independent ones would make averages over scenarios look far more certain than they are.
        """
        words = np.frombuffer(hashlib.sha256(purpose.encode()).digest()[:16], np.uint32)
        return np.random.default_rng([self.seed, *words.tolist()])

    @cached_property
    def _standing(self) -> Standing:
        return compare_on_scenario(self.labels, self.values(SCORE), self.generator())

    @cached_property
    def wins(self) -> NDArray[np.float64]:
        """(K, K) shares of workloads won, see `ranking.win_matrix`."""
        return win_matrix(self.values(SCORE))


@dataclass(frozen=True)
class Board:
    """All scenarios, and the headline over them.

    Attributes:
        scenarios: In the order in which they are shown.
        reference: Scheduler that ratios refer to.
        split: Which workloads.
        set_aside: What is not compared.
        notices: What a reader has to know, a sentence each.
    """

    scenarios: tuple[ScenarioBoard, ...]
    reference: str
    split: str
    set_aside: tuple[SetAside, ...] = ()
    notices: tuple[str, ...] = ()

    @cached_property
    def with_reference(self) -> tuple[ScenarioBoard, ...]:
        """Scenarios with a result of the reference."""
        return tuple(s for s in self.scenarios if self.reference in s.labels)

    @cached_property
    def headline_scenarios(self) -> tuple[ScenarioBoard, ...]:
        """Scenarios that the overall ranking is over: with a result of the reference, and several workloads.

        A single workload says nothing about others, so its scenario would only pretend certainty. Where no scenario has
        more than one, all count.
        """
        return tuple(s for s in self.with_reference if s.num_workloads > 1) or self.with_reference

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All schedulers."""
        return tuple(sorted({label for s in self.scenarios for label in s.labels}))

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """Schedulers with results on all headline scenarios."""
        shown = self.headline_scenarios
        return tuple(label for label in self.labels if shown and all(label in s.labels for s in shown))

    @cached_property
    def overall(self) -> Standing | None:
        """Comparison over the headline scenarios; None without a reference."""
        if not self.ranked:
            return None
        return compare_over_scenarios([s.standing(self.ranked) for s in self.headline_scenarios])

    @cached_property
    def oracles(self) -> frozenset[str]:
        """Schedulers that know what no scheduler can."""
        return frozenset(label for s in self.scenarios for label in s.oracles)

    @cached_property
    def overall_ranks(self) -> tuple[RankRange | None, ...]:
        """(K) ranks of `overall`'s schedulers among those that are no oracles; None for oracles."""
        return () if self.overall is None else _ranks(self.overall, self.oracles)

    @cached_property
    def best(self) -> str | None:
        """The first of the overall ranking, oracles left out."""
        return None if self.overall is None else _best(self.overall, self.oracles)

    @cached_property
    def overall_wins(self) -> NDArray[np.float64]:
        """(K, K) share of workloads won between ranked schedulers, averaged over scenarios."""
        rows = [[s.labels.index(label) for label in self.ranked] for s in self.headline_scenarios]
        wins = [s.wins[np.ix_(k, k)] for s, k in zip(self.headline_scenarios, rows, strict=True)]
        mean: NDArray[np.float64] = np.mean(wins, axis=0)
        return mean

    def missing(self, label: str) -> tuple[str, ...]:
        """Headline scenarios that a scheduler has no result on."""
        return tuple(s.name for s in self.headline_scenarios if label not in s.labels)

    def geometric_ratio(self, label: str, metric: str) -> float:
        """Geometric mean over the headline scenarios of a metric's mean over that of the reference; NaN if one is 0."""
        logs = []
        for s in self.headline_scenarios:
            values = s.values(metric).mean(axis=1)
            mine, theirs = values[s.labels.index(label)], values[s.labels.index(self.reference)]
            logs.append(np.log(mine / theirs) if mine > 0 and theirs > 0 else np.nan)
        return float(np.exp(np.mean(logs)))

    def over_scenarios(self, label: str, metric: str, how: str = "mean") -> float:
        """Mean, sum or maximum over the headline scenarios of a scheduler's metric on the shared workloads."""
        per_scenario = [s.values(metric)[s.labels.index(label)] for s in self.headline_scenarios]
        if how == "max":
            return float(max(values.max() for values in per_scenario))
        if how == "sum":
            return float(sum(values.sum() for values in per_scenario))
        return float(np.mean([values.mean() for values in per_scenario]))


def build_board(
    entries: Iterable[Entry],
    *,
    reference: str = "drf",
    split: str = "test",
    scenario_order: Sequence[str] = (),
    only_listed: bool = False,
    hashes: Mapping[str, str] | None = None,
    codes: Mapping[str, str] | None = None,
    set_aside: Iterable[SetAside] = (),
    limits: Iterable[Limits] = (),
    seed: int = 0,
) -> Board:
    """Puts entries together.

    Args:
        entries: Where two are of one scheduler and scenario, the first one counts.
        reference: Scheduler that ratios refer to.
        split: Entries of other splits are set aside.
        scenario_order: Scenarios first in this order, others after them by name.
        only_listed: Leave out scenarios that the order does not name.
        hashes: Hash of each scenario as it is today; for scenarios not in it, that of most entries counts.
        codes: Digest of today's code by name of the scheduler; entries of other code are named in a notice.
        set_aside: Files that could not be read.
        limits: Of the scenarios; where two fit one scenario, the first counts.
        seed: Seed of the bootstrap.

    Raises:
        ConfigError: No entry is left.
    """
    aside = list(set_aside)
    cells: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        if entry.split == split and not (only_listed and entry.scenario not in scenario_order):
            cells.setdefault((entry.scenario, entry.scheduler), entry)
    names = sorted({name for name, _ in cells})
    order = [*(n for n in scenario_order if n in names), *(n for n in names if n not in scenario_order)]
    scenarios = []
    notices: list[str] = []
    for name in order:
        of_scenario = [cells[key] for key in sorted(cells) if key[0] == name]
        fitting, stale = _fitting(of_scenario, (hashes or {}).get(name))
        aside += stale
        if fitting:
            scenarios.append(_scenario_board(name, fitting, aside, notices, seed))
    if not scenarios:
        reasons = f"; set aside: {aside[0].name}: {aside[0].reason}" if aside else ""
        raise ConfigError(f"no entry of split {split} to show{reasons}")
    of_split = [item for item in limits if item.split == split]
    scenarios = [_with_limits(s, [item for item in of_split if item.scenario == s.name], aside) for s in scenarios]
    board = Board(tuple(scenarios), reference, split, tuple(aside))
    notices += board_notices(board, codes or {})
    return replace(board, notices=tuple(notices))


def _fitting(entries: Sequence[Entry], scenario_hash: str | None) -> tuple[list[Entry], list[SetAside]]:
    """Entries of today's world and version, measured in one way, and the others."""
    if scenario_hash is None:
        counts = Counter(entry.scenario_hash for entry in entries)
        scenario_hash = min(counts, key=lambda h: (-counts[h], h))
    trims = Counter(entry.trim for entry in entries)
    trim = min(trims, key=lambda t: (-trims[t], t))
    fitting, stale = [], []
    for entry in entries:
        reason = ""
        if entry.scenario_hash != scenario_hash:
            reason = "the scenario is another one now (its hash differs); run the cell again"
        elif entry.version != dl2env.__version__:
            reason = f"made with dl2env {entry.version}, this is {dl2env.__version__}; run the cell again"
        elif entry.trim != trim:
            reason = f"averages leave out {entry.trim} of the jobs, those of most entries {trim}; run with one trim"
        if reason:
            stale.append(SetAside(f"{entry.scheduler} on {entry.scenario}", reason))
        else:
            fitting.append(entry)
    return fitting, stale


def _with_limits(scenario: ScenarioBoard, found: Sequence[Limits], aside: list[SetAside]) -> ScenarioBoard:
    """Adds the first limits that fit, and sets aside those that do not, unless others do."""
    stale = []
    for limits in found:
        reason = ""
        if limits.scenario_hash != scenario.entries[0].scenario_hash:
            reason = "the scenario is another one now (its hash differs); run the leaderboard again"
        elif limits.version != dl2env.__version__:
            reason = f"made with dl2env {limits.version}, this is {dl2env.__version__}; run the leaderboard again"
        elif not set(limits.workload_digests) & set(scenario.digests):
            reason = "shares no workload with the entries; run the leaderboard again"
        elif scenario.entries[0].trim != NO_TRIM:
            reason = "limits are of all jobs, the entries' averages leave some out (trim)"
        if not reason:
            return replace(scenario, limits=limits)
        stale.append(SetAside(f"limits of {scenario.name}", reason))
    aside += stale
    return scenario


def _ranks(standing: Standing, oracles: frozenset[str]) -> tuple[RankRange | None, ...]:
    rows = [k for k, name in enumerate(standing.names) if name not in oracles]
    names = tuple(standing.names[k] for k in rows)
    real = Standing(names, standing.log_mean[rows], standing.draws[rows], standing.num_resampled)
    ranks = dict(zip(real.names, real.ranks, strict=True))
    return tuple(ranks.get(name) for name in standing.names)


def _best(standing: Standing, oracles: frozenset[str]) -> str | None:
    return next((standing.names[k] for k in standing.order if standing.names[k] not in oracles), None)


def _scenario_board(
    name: str, entries: Sequence[Entry], aside: list[SetAside], notices: list[str], seed: int
) -> ScenarioBoard:
    """Pairs entries by workload: those that all have are compared."""
    largest = max(entries, key=lambda e: (e.num_workloads, e.scheduler))
    kept = []
    for entry in entries:
        if set(entry.workload_digests) & set(largest.workload_digests):
            kept.append(entry)
        else:
            reason = f"shares no workload with {largest.scheduler}; run the cell again"
            aside.append(SetAside(f"{entry.scheduler} on {entry.scenario}", reason))
    shared = set.intersection(*(set(entry.workload_digests) for entry in kept))
    if not shared:
        raise ConfigError(f"scenario {name}: no workload that all entries have; run its cells again")
    digests = [digest for digest in largest.workload_digests if digest in shared]
    if len(digests) < largest.num_workloads:
        fewest = min(entry.num_workloads for entry in kept)
        short = [entry.scheduler for entry in kept if entry.num_workloads == fewest]
        notices.append(
            f"{name}: compared on the {len(digests)} of {largest.num_workloads} workloads that all entries have; "
            f"the fewest has {some_names(short)}."
        )
    places = tuple(np.array([entry.workload_digests.index(d) for d in digests], dtype=np.intp) for entry in kept)
    return ScenarioBoard(name, tuple(kept), len(digests), places, seed)


def marked(label: str, oracles: Collection[str]) -> str:
    """A scheduler's label, with a mark if it is an oracle."""
    return f"{label} {ORACLE_MARK}" if label in oracles else label


def interval_text(interval: Interval, digits: int = 3) -> str:
    """`0.912 [0.880, 0.941]`; without bounds where nothing could be resampled."""
    if np.isnan(interval.low):
        return f"{interval.estimate:.{digits}f}"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
