"""Measures of results with intervals, and what they say about a claim.

Intervals are 95 % percentile bootstrap intervals as in `dl2env.evaluation.statistics`: a resample draws the same
workloads for everything that is compared, and training seeds as wholes; results of one experiment draw the same seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agents.paper.claims import Check, Claim
from agents.paper.record import JCT, Record
from dl2env.errors import ConfigError
from dl2env.evaluation.statistics import CONFIDENCE, NUM_RESAMPLES, Interval

Verdict = Literal["agrees", "disagrees", "cannot tell", "not run", "shown only"]
Vector = NDArray[np.float64]

MIN_SEEDS = 3
"""Training seeds below which nothing is said of a learned scheduler."""

LEVEL_OF = "drf"
"""Baseline whose validation JCT `fewer_updates` refers to."""


@dataclass(frozen=True)
class Finding:
    """What results say about a check.

    Attributes:
        check: The check.
        verdict: See `judge`.
        effect: The measure with its interval; None if it was not run.
        num_seeds: Training seeds of the learned side with the fewest.
        has_enough: Whether these are enough to say something.
    """

    check: Check
    verdict: Verdict
    effect: Interval | None = None
    num_seeds: int = 0
    has_enough: bool = True

    @property
    def size(self) -> str:
        """How the measure compares with the published value: `smaller`, `as published`, `larger`, or nothing to say."""
        is_known = self.effect is not None and not math.isnan(self.effect.low)
        if self.effect is None or self.check.published is None or not (is_known and self.has_enough):
            return ""
        if self.effect.high < self.check.published:
            return "smaller"
        return "larger" if self.effect.low > self.check.published else "as published"


class Results:
    """The records of all experiments.

    Args:
        records: By experiment, see `agents.paper.record.read_records`.
    """

    def __init__(self, records: Mapping[str, Sequence[Record]]) -> None:
        self.records = records

    def rows(self, reference: str, metric: str = JCT) -> Vector | None:
        """(S, N) scores of `experiment/scheduler` per training run and workload; None if there are none.

        A scheduler that no training touches scores the same in every run and has one row.

        Raises:
            ConfigError: Runs of the experiment were tested on different workloads.
        """
        experiment, _, scheduler = reference.partition("/")
        records = self.records.get(experiment, ())
        found = [scores for record in records if (scores := record.scores(scheduler, metric)) is not None]
        if not found:
            return None
        if len({record.workloads for record in records}) > 1:
            raise ConfigError(f"results of {experiment} are of different workloads; run it again with replace=true")
        rows = np.stack(found)
        return rows[:1] if (rows == rows[0]).all() and scheduler not in ("fine-tuned", "warm-up") else rows

    def mean(self, reference: str) -> Interval | None:
        """Mean JCT in intervals; None if it was not run."""
        rows = self.rows(reference)
        return None if rows is None else _resampled({reference: rows}, lambda mean: mean[reference])

    def updates_to(self, experiment: str, level: float) -> Vector | None:
        """(S, 1) updates until the validation JCT is at `level` times DRF's; all updates where it never is."""
        rows = []
        for record in self.records.get(experiment, ()):
            if LEVEL_OF not in record.levels or not record.curve:
                return None
            goal = level * record.levels[LEVEL_OF]
            rows.append([next((updates for _, updates, jct in record.curve if jct <= goal), record.curve[-1][1])])
        return np.array(rows, dtype=np.float64) if rows else None

    def num_seeds(self, names: Sequence[str]) -> int:
        """Training seeds of the learned scheduler, or experiment, with the fewest; 0 if none is learned."""
        learned = [n for n in names if n.partition("/")[2] in ("fine-tuned", "warm-up", "")]
        return min((len(self.records.get(n.partition("/")[0], ())) for n in learned), default=0)


def find(check: Check, results: Results) -> Finding:
    """Measures and judges.

    Raises:
        ConfigError: What is to be compared was tested on different numbers of workloads.
    """
    effect = _measure(check, results)
    if effect is None:
        return Finding(check, "not run")
    num_seeds = results.num_seeds(check.references)
    has_enough = num_seeds >= MIN_SEEDS or _is_of_rules(check)
    verdict = judge(check, effect) if has_enough else _without_seeds(check)
    return Finding(check, verdict, effect, num_seeds, has_enough)


def _is_of_rules(check: Check) -> bool:
    """Whether nothing learned takes part, so that no seeds are needed."""
    return all(name.partition("/")[2] not in ("fine-tuned", "warm-up", "") for name in check.references)


def _without_seeds(check: Check) -> Verdict:
    return "shown only" if check.above is None and check.below is None else "cannot tell"


def judge(check: Check, effect: Interval) -> Verdict:
    """The verdict, by rule: the whole interval must lie on one side of the check's bound.

    Returns:
        `agrees` if it lies on the claimed side, `disagrees` if on the other, `cannot tell` if it includes the bound;
        `shown only` for a check without a bound.
    """
    if check.above is None and check.below is None:
        return "shown only"
    if math.isnan(effect.low) or math.isnan(effect.high):
        return "cannot tell"
    if check.above is not None:
        is_true, is_false = effect.low > check.above, effect.high < check.above
    else:
        assert check.below is not None
        is_true, is_false = effect.high < check.below, effect.low > check.below
    return "agrees" if is_true else "disagrees" if is_false else "cannot tell"


def conclude(claim: Claim, findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim: it disagrees if one check does, and agrees if all do."""
    verdicts = {finding.verdict for finding in findings}
    if verdicts <= {"not run"}:
        return "not run"
    for verdict in ("disagrees", "cannot tell", "not run"):
        if verdict in verdicts:
            return "cannot tell" if verdict == "not run" else verdict
    return "agrees" if "agrees" in verdicts else "shown only"


def _measure(check: Check, results: Results) -> Interval | None:
    if check.measure == "latency":
        times = [r.decision_ms for r in results.records.get(check.of, ()) if r.decision_ms is not None]
        return _resampled({check.of: np.array(times)[:, None]}, lambda mean: mean[check.of]) if times else None
    rows: dict[str, Vector] = {}
    for name in check.references:
        if check.measure == "fewer_updates":
            found = results.updates_to(name, check.level)
        else:
            found = results.rows(name, check.metric or JCT)
        if found is None:
            return None
        rows[name] = found
    return _resampled(rows, lambda mean: _FORMULAS[check.measure](check, mean))


Means = Mapping[str, Vector]


def _ratio(numerator: Vector, denominator: Vector) -> Vector:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


def _spread(check: Check, mean: Means) -> Vector:
    stacked = np.stack([mean[name] for name in check.among])
    return _ratio(stacked.max(axis=0), stacked.min(axis=0)) - 1.0


_FORMULAS: dict[str, Callable[[Check, Means], Vector]] = {
    "reduction": lambda check, mean: 1.0 - _ratio(mean[check.of], mean[check.than]),
    "increase": lambda check, mean: _ratio(mean[check.of], mean[check.than]) - 1.0,
    "growth_gap": lambda check, mean: (
        _ratio(mean[check.of], mean[check.than]) - _ratio(mean[check.beside_of], mean[check.beside_than])
    ),
    "spread": _spread,
    "difference": lambda check, mean: mean[check.of] - mean[check.than],
    "fewer_updates": lambda check, mean: 1.0 - _ratio(mean[check.of], mean[check.than]),
}


def _resampled(rows: Mapping[str, Vector], measure: Callable[[Means], Vector], seed: int = 0) -> Interval:
    """Interval of a function of mean scores.

    Args:
        rows: (S, N) scores by reference, all with the same N.
        measure: Takes the means of the references, a number or (R,) resampled ones each.
        seed: Seed of the resamples.
    """
    sizes = {matrix.shape[1] for matrix in rows.values()}
    if len(sizes) > 1:
        raise ConfigError(
            f"{', '.join(rows)}: tested on {' and '.join(map(str, sorted(sizes)))} workloads; run them with one number"
        )
    num_workloads = sizes.pop()
    estimate = float(measure({name: np.array([matrix.mean()]) for name, matrix in rows.items()})[0])
    if num_workloads * max(len(matrix) for matrix in rows.values()) < 2:
        return Interval(estimate, float("nan"), float("nan"))
    workloads = _counts(np.random.default_rng([seed, 0]), num_workloads)
    means = {}
    for name, matrix in rows.items():
        key = [*name.partition("/")[0].encode()]  # one experiment, the same seeds
        seeds = _counts(np.random.default_rng([seed, 1, len(matrix), *key]), len(matrix))
        means[name] = np.einsum("rn,rn->r", seeds @ matrix, workloads)
    draws = measure(means)
    draws = draws[~np.isnan(draws)]
    if math.isnan(estimate) or len(draws) < NUM_RESAMPLES // 2:
        return Interval(estimate, float("nan"), float("nan"))
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(draws, [tail, 100.0 - tail])
    return Interval(estimate, float(low), float(high))


def _counts(rng: np.random.Generator, size: int) -> Vector:
    """(R, size) relative frequencies with which resamples take each of `size` items."""
    drawn: Vector = rng.multinomial(size, np.full(size, 1.0 / size), size=NUM_RESAMPLES) / size
    return drawn


@dataclass(frozen=True)
class Assessed:
    """A claim and what the results say about it."""

    claim: Claim
    findings: tuple[Finding, ...] = field(default=())
    verdict: Verdict = "not run"


def assess(claims: Sequence[Claim], results: Results) -> list[Assessed]:
    """All claims, judged."""
    assessed = []
    for claim in claims:
        findings = tuple(find(check, results) for check in claim.checks)
        assessed.append(Assessed(claim, findings, conclude(claim, findings)))
    return assessed
