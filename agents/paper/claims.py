"""The table of claims, `data/paper/claims.toml`: what the paper says, and how each claim is tested.

A *reference* `experiment/scheduler` names a scheduler in the comparisons of an experiment of `conf/experiment/paper`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from dl2env.errors import ConfigError, UnknownNameError

CLAIMS = Path(__file__).resolve().parents[2] / "data" / "paper" / "claims.toml"

Mark = Literal["abstract", "paper", "scripts", "recalled"]
Measure = Literal["reduction", "increase", "growth_gap", "spread", "difference", "fewer_updates", "latency"]

MARKS: dict[str, str] = {
    "abstract": "the published abstract",
    "paper": "stated in the paper, as we understand it (known through a transcript that lacks parts)",
    "scripts": "read off plotting scripts that the authors published in 2018, a year before the paper's text",
    "recalled": "from memory, not checked",
}

_NEEDED: dict[str, tuple[str, ...]] = {
    "reduction": ("of", "than"),
    "increase": ("of", "than"),
    "growth_gap": ("of", "than", "beside_of", "beside_than"),
    "spread": ("among",),
    "difference": ("of", "than", "metric"),
    "fewer_updates": ("of", "than", "level"),
    "latency": ("of",),
}
_OF_EXPERIMENTS = ("fewer_updates", "latency")
METRICS = ("gpu_utilisation", "cpu_utilisation")


@dataclass(frozen=True)
class Check:
    """One statement that results can decide.

    Attributes:
        says: The statement.
        measure: What is measured. `reduction`: 1 - of / than, of mean JCTs. `increase`: of / than - 1. `growth_gap`:
            of / than - beside_of / beside_than. `spread`: largest / smallest - 1 `among` several. `difference`:
            of - than of a `metric`. `fewer_updates`: 1 - of / than, of the updates until the validation JCT is at
            `level` times DRF's. `latency`: 99th percentile of one decision's time in ms.
        of, than, beside_of, beside_than, among: References; experiments for `fewer_updates` and `latency`.
        metric: One of `METRICS`.
        level: See `measure`.
        above, below: The statement holds if the measure is above, or below, this; neither: it is only shown.
        published: The published value of the measure.
        mark: Where that is from.
    """

    says: str
    measure: Measure
    of: str = ""
    than: str = ""
    beside_of: str = ""
    beside_than: str = ""
    among: tuple[str, ...] = ()
    metric: str = ""
    level: float = 1.0
    above: float | None = None
    below: float | None = None
    published: float | None = None
    mark: Mark | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """All references, or experiments."""
        named = (self.of, self.than, self.beside_of, self.beside_than)
        return (*(name for name in named if name), *self.among)

    @property
    def experiments(self) -> tuple[str, ...]:
        """Experiments whose results it needs."""
        return tuple(dict.fromkeys(reference.partition("/")[0] for reference in self.references))


Lines = tuple[tuple[str, tuple[tuple[float, Any], ...]], ...]
"""Curves of a sweep: label, and points (x, reference or published value)."""


@dataclass(frozen=True)
class Picture:
    """What a claim's figure shows.

    Attributes:
        bars: Mean JCT of labelled references.
        sweep: Mean JCT of references over a number.
        x: What that number is.
        curves: Validation JCT over updates of labelled experiments.
        published_bars, published_sweep: The same with published values.
        mark: Where those are from.
    """

    bars: tuple[tuple[str, str], ...] = ()
    sweep: Lines = ()
    x: str = ""
    curves: tuple[tuple[str, str], ...] = ()
    published_bars: tuple[tuple[str, float], ...] = ()
    published_sweep: Lines = ()
    mark: Mark | None = None

    @property
    def labelled(self) -> tuple[tuple[str, str], ...]:
        """Label and reference of everything whose mean JCT is shown."""
        swept = tuple((f"{label}, {x:g}", reference) for label, points in self.sweep for x, reference in points)
        return (*self.bars, *swept)


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
        id: Short name.
        title: The claim in a line.
        says: What the paper says, as we understand it.
        number: Its number; None for what is no claim of the paper.
        experiments: Files of `conf/experiment/paper` that are run for it.
        checks: Statements.
        note: What to know about our test.
        picture: The figure.
        not_covered: Why it is not tested; then there is nothing else.
    """

    id: str
    title: str
    says: str
    number: int | None = None
    experiments: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    note: str = ""
    picture: Picture = field(default_factory=Picture)
    not_covered: str = ""


@dataclass(frozen=True)
class Claims:
    """The table.

    Attributes:
        claims: In order.
        tested_in: Experiments whose networks are compared in another experiment's world, by name.
    """

    claims: tuple[Claim, ...]
    tested_in: Mapping[str, str]

    @cached_property
    def experiments(self) -> tuple[str, ...]:
        """All experiments, in the order in which claims name them."""
        return tuple(dict.fromkeys(name for claim in self.claims for name in claim.experiments))

    @cached_property
    def timed(self) -> frozenset[str]:
        """Experiments whose decisions are timed."""
        checks = (check for claim in self.claims for check in claim.checks)
        return frozenset(check.of for check in checks if check.measure == "latency")


def read_claims(path: Path = CLAIMS) -> Claims:
    """Reads and checks the table.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong; the message names the claim and the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); restore the file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file ({error}); restore the file") from error
    try:
        claims = tuple(_claim(values) for values in _list(content.pop("claim", []), "claim"))
        tested_in = content.pop("tested_in", {})
        _require(not content, f"{', '.join(content)}: unknown key; there are: claim, tested_in")
        _check_together(claims, tested_in)
    except _WrongError as error:
        raise ConfigError(f"{path}: {error}") from error
    return Claims(claims, tested_in)


class _WrongError(ValueError):
    """What is wrong, without the file."""


def _require(condition: object, message: str) -> None:
    if not condition:
        raise _WrongError(message)


def _list(value: Any, name: str) -> list[Any]:
    _require(isinstance(value, list), f"{name}: expected a list")
    return list(value)


def _claim(values: Any) -> Claim:
    _require(isinstance(values, dict), "claim: expected groups of keys")
    name = str(values.get("id", "?"))
    where = f"claim {name}"
    kept = dict(values)
    checks = tuple(
        _check(f"{where}, check {k + 1}", v) for k, v in enumerate(_list(kept.pop("check", []), f"{where}: check"))
    )
    picture = _picture(where, kept.pop("figure", {}))
    claim: Claim = _build(Claim, {**kept, "checks": checks, "picture": picture}, where)
    _require(re.fullmatch(r"[a-z0-9-]+", claim.id), f"{where}: id: lower case, digits and hyphens only")
    if claim.not_covered:
        _require(not (claim.experiments or claim.checks), f"{where}: not_covered: then it has no experiment or check")
        return claim
    _require(claim.experiments, f"{where}: experiments: name at least one, or say why not: not_covered")
    _require(claim.checks, f"{where}: check: give at least one, or say why not: not_covered")
    return claim


def _check(where: str, values: Any) -> Check:
    _require(isinstance(values, dict), f"{where}: expected a group of keys")
    check: Check = _build(Check, values, where)
    known = get_args(Measure)
    _require(check.measure in known, f"{where}: measure={check.measure!r} is unknown; choose one of {', '.join(known)}")
    for key in _NEEDED[check.measure]:
        _require(getattr(check, key), f"{where}: {key} is missing, which measure={check.measure} needs")
    _require(check.above is None or check.below is None, f"{where}: above, below: give one of them")
    _require((check.published is None) == (check.mark is None), f"{where}: published and mark belong together")
    _require(check.mark is None or check.mark in MARKS, f"{where}: mark={check.mark!r}: one of {', '.join(MARKS)}")
    _require(not check.metric or check.metric in METRICS, f"{where}: metric: one of {', '.join(METRICS)}")
    for reference in check.references:
        _require(
            ("/" in reference) != (check.measure in _OF_EXPERIMENTS),
            f"{where}: {reference!r}: give experiment/scheduler, or for {' and '.join(_OF_EXPERIMENTS)} an experiment",
        )
    return check


def _picture(where: str, values: Any) -> Picture:
    _require(isinstance(values, dict), f"{where}: figure: expected a group of keys")
    picture: Picture = _build(Picture, values, f"{where}: figure")
    has_published = bool(picture.published_bars or picture.published_sweep)
    _require(has_published == (picture.mark is not None), f"{where}: figure: published values and mark belong together")
    _require(not picture.sweep or picture.x, f"{where}: figure: x is missing")
    return picture


def _build(cls: Any, values: dict[str, Any], where: str) -> Any:
    known = {f.name for f in fields(cls)}
    for key in values:
        _require(key in known, f"{where}: {key}: unknown key; there are: {', '.join(sorted(known))}")
    try:
        return cls(**{key: _frozen(value) for key, value in values.items()})
    except TypeError as error:
        raise _WrongError(f"{where}: {str(error).partition('__init__() ')[2]}") from error


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _check_together(claims: Sequence[Claim], tested_in: Any) -> None:
    ids = [claim.id for claim in claims]
    _require(len(set(ids)) == len(ids), "claim: two have the same id")
    numbers = [claim.number for claim in claims if claim.number is not None]
    _require(len(set(numbers)) == len(numbers), "claim: two have the same number")
    experiments = {name for claim in claims for name in claim.experiments}
    for claim in claims:
        for name in _named(claim):
            _require(name in experiments, f"claim {claim.id}: {name} is an experiment of no claim")
    _require(isinstance(tested_in, dict), "tested_in: expected a group of keys")
    for name, other in tested_in.items():
        _require({name, other} <= experiments, f"tested_in: {name} or {other} is an experiment of no claim")


def _named(claim: Claim) -> Iterator[str]:
    for check in claim.checks:
        yield from check.experiments
    for _, reference in claim.picture.labelled:
        yield reference.partition("/")[0]
    for _, name in claim.picture.curves:
        yield name


def choose_experiments(given: Any, claims: Claims) -> list[str]:
    """Experiments by name, pattern (`window_*`) or id of a claim, or all of them.

    Args:
        given: `all`, a name, or a list of names.
        claims: The table.

    Raises:
        ConfigError: It is no list of names, or an empty one.
        UnknownNameError: There is no experiment or claim of that name.
    """
    from fnmatch import fnmatchcase

    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names) or not names:
        raise ConfigError(f"experiments={given}: give all, or a list of experiments, patterns and claims")
    by_claim = {claim.id: claim.experiments for claim in claims.claims}
    chosen: list[str] = []
    for name in names:
        found = [e for e in claims.experiments if name == "all" or fnmatchcase(e, name)]
        found = found or list(by_claim.get(name, ()))
        if not found:
            raise UnknownNameError("experiment or claim", name, [*claims.experiments, *by_claim])
        chosen += found
    return list(dict.fromkeys(chosen))
