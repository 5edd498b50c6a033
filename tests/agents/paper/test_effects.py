"""Measures, intervals and verdicts on results whose answers are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from agents.paper.claims import Check, Claim
from agents.paper.effects import Finding, Results, assess, conclude, find, judge
from agents.paper.record import JCT
from dl2env.errors import ConfigError
from dl2env.evaluation.statistics import Interval, reduction_interval
from tests.agents.paper.records import record

NAN = float("nan")
BESIDE = {"beside_of": "dl2/drf", "beside_than": "other/drf"}  # the same in both: no growth


def results(num_seeds: int = 5, spread: float = 0.1) -> Results:
    """DL2 at half of DRF, give or take; `other` 20 % above DL2; curves that reach 5.5 at updates 10 and 20."""
    rng = np.random.default_rng(0)
    drf = np.array([8.0, 10.0, 12.0, 9.0])
    records: dict[str, list[Any]] = {"dl2": [], "other": []}
    for seed in range(1, num_seeds + 1):
        own = drf / 2 * (1.0 + spread * rng.uniform(-1.0, 1.0))
        jct = {"fine-tuned": own.tolist(), "drf": drf.tolist()}
        late = [[0, 0, 9.0], [100, 10, 7.0], [200, 20, 5.0]]
        records["dl2"].append(record("dl2", seed, jct, decision_ms=1.0 + 0.1 * seed))
        records["other"].append(record("other", seed, {**jct, "fine-tuned": (1.2 * own).tolist()}, curve=late))
    return Results(records)


def check(measure: str, **values: Any) -> Check:
    return Check("s", measure, **values)  # type: ignore[arg-type]


REDUCTION = check("reduction", of="dl2/fine-tuned", than="dl2/drf", above=0.0, published=0.5, mark="paper")


def test_reduction_is_that_of_the_statistics() -> None:
    found = find(REDUCTION, results())
    assert found.effect is not None
    ours = results().rows("dl2/fine-tuned")
    assert ours is not None and ours.shape == (5, 4)
    drf = results().rows("dl2/drf")
    assert drf is not None and drf.shape == (1, 4)  # no training touches it
    expected = reduction_interval(ours, drf, np.random.default_rng(3))
    np.testing.assert_allclose(found.effect, expected, atol=0.01)
    assert (found.verdict, found.size, found.num_seeds) == ("agrees", "as published", 5)


@pytest.mark.parametrize(
    ("measure", "values", "expected"),
    [
        ("increase", {"of": "other/fine-tuned", "than": "dl2/fine-tuned"}, 0.2),
        ("reduction", {"of": "dl2/fine-tuned", "than": "other/fine-tuned"}, 1 - 1 / 1.2),
        ("spread", {"among": ("dl2/fine-tuned", "other/fine-tuned")}, 0.2),
        ("growth_gap", {"of": "other/fine-tuned", "than": "dl2/fine-tuned", **BESIDE}, 0.2),
        ("fewer_updates", {"of": "dl2", "than": "other"}, 0.5),
        ("latency", {"of": "dl2"}, 1.3),
    ],
)
def test_measures(measure: str, values: dict[str, Any], expected: float) -> None:
    effect = find(check(measure, **values), results()).effect
    assert effect is not None and effect.estimate == pytest.approx(expected)
    assert effect.low <= effect.estimate + 1e-12 and effect.estimate <= effect.high + 1e-12


def test_updates_until_a_level() -> None:
    """DRF's level on the validation workloads is 5.5; what never gets there counts with all its updates."""
    found = results()
    for level, expected in ((1.0, 10.0), (0.9, 20.0), (0.5, 20.0), (2.0, 0.0)):
        updates = found.updates_to("dl2", level)
        assert updates is not None and set(updates[:, 0]) == {expected}, level
    never = find(check("fewer_updates", of="other", than="dl2", level=2.0, above=0.0), found)
    assert never.effect is not None and math.isnan(never.effect.estimate) and never.verdict == "cannot tell"
    assert Results({"dl2": [record(levels={})]}).updates_to("dl2", 1.0) is None


def test_differences_of_utilisation() -> None:
    metrics = {"fine-tuned": [0.6, 0.8], "drf": [0.5, 0.5]}
    records = []
    for seed in (1, 2, 3):
        jct = {"fine-tuned": [1.0, 1.0], "drf": [2.0, 2.0]}
        made = record("dl2", seed, jct)
        both = {n: {JCT: jct[n], "gpu_utilisation": metrics[n]} for n in jct}
        records.append(record("dl2", seed, jct, schedulers=both))
        assert made.scores("fine-tuned", "gpu_utilisation") is None
    found = find(
        check("difference", metric="gpu_utilisation", of="dl2/fine-tuned", than="dl2/drf", above=0.0),
        Results({"dl2": records}),
    )
    assert found.effect is not None and found.effect.estimate == pytest.approx(0.2) and found.verdict == "agrees"


@pytest.mark.parametrize(
    ("bounds", "interval", "verdict"),
    [
        ({"above": 0.0}, (0.2, 0.1, 0.3), "agrees"),
        ({"above": 0.0}, (-0.2, -0.3, -0.1), "disagrees"),
        ({"above": 0.0}, (0.1, -0.1, 0.3), "cannot tell"),
        ({"above": 0.0}, (0.1, 0.0, 0.3), "cannot tell"),
        ({"below": 0.05}, (0.0, -0.1, 0.04), "agrees"),
        ({"below": 0.05}, (0.1, 0.06, 0.2), "disagrees"),
        ({"below": 0.05}, (0.05, 0.0, 0.1), "cannot tell"),
        ({"above": 0.0}, (0.2, NAN, NAN), "cannot tell"),
        ({}, (0.2, 0.1, 0.3), "shown only"),
    ],
)
def test_verdicts(bounds: dict[str, float], interval: tuple[float, float, float], verdict: str) -> None:
    assert judge(check("increase", of="a/b", than="c/d", **bounds), Interval(*interval)) == verdict


@pytest.mark.parametrize(
    ("interval", "size"),
    [
        ((0.2, 0.1, 0.3), "smaller"),
        ((0.5, 0.4, 0.6), "as published"),
        ((0.8, 0.7, 0.9), "larger"),
        ((0.5, NAN, NAN), ""),
    ],
)
def test_size_against_the_published_value(interval: tuple[float, float, float], size: str) -> None:
    assert Finding(REDUCTION, "agrees", Interval(*interval), 5).size == size


def test_too_few_seeds_say_nothing() -> None:
    """Of a learned scheduler; rules need none."""
    few = find(REDUCTION, results(num_seeds=2))
    assert few.effect is not None and few.effect.low > 0 and (few.verdict, few.size) == ("cannot tell", "")
    of_rules = check("reduction", of="dl2/drf", than="other/drf", below=0.1)
    assert find(of_rules, results(num_seeds=1)).verdict == "agrees"
    assert find(check("increase", of="dl2/fine-tuned", than="dl2/drf"), results(2)).verdict == "shown only"


def test_what_was_not_run() -> None:
    missing = check("increase", of="third/fine-tuned", than="dl2/fine-tuned", above=0.0)
    assert find(missing, results()) == Finding(missing, "not run")
    assert find(check("latency", of="other", below=3.0), results()).verdict == "not run"


def test_claims_are_as_good_as_their_worst_check() -> None:
    claim = Claim("a", "A", "a")
    findings = {v: Finding(REDUCTION, v) for v in ("agrees", "disagrees", "cannot tell", "not run", "shown only")}  # type: ignore[arg-type]
    for verdicts, expected in (
        (["agrees", "agrees"], "agrees"),
        (["agrees", "shown only"], "agrees"),
        (["agrees", "disagrees", "cannot tell"], "disagrees"),
        (["agrees", "cannot tell"], "cannot tell"),
        (["agrees", "not run"], "cannot tell"),
        (["not run", "not run"], "not run"),
        (["shown only"], "shown only"),
    ):
        assert conclude(claim, [findings[v] for v in verdicts]) == expected, verdicts


def test_a_claim_with_results() -> None:
    (item,) = assess([Claim("a", "A", "a", 1, ("dl2",), (REDUCTION,))], results())
    assert item.verdict == "agrees" and item.findings[0].effect == find(REDUCTION, results()).effect


def test_what_cannot_be_compared() -> None:
    two = Results({"dl2": [record()], "other": [record("other", jct={"fine-tuned": [1.0, 2.0]})]})
    with pytest.raises(ConfigError, match=r"tested on 2 and 3 workloads; run them with one number"):
        find(check("increase", of="other/fine-tuned", than="dl2/fine-tuned"), two)
    mixed = Results({"dl2": [record(), record(seed=2, workloads="v")]})
    with pytest.raises(ConfigError, match="results of dl2 are of different workloads; run it again with replace=true"):
        mixed.rows("dl2/fine-tuned")


def test_one_run_on_one_workload_has_no_interval() -> None:
    one = Results({"dl2": [record(jct={"fine-tuned": [4.0], "drf": [8.0]})]})
    found = find(REDUCTION, one)
    assert found.effect is not None and found.effect.estimate == 0.5 and math.isnan(found.effect.low)
