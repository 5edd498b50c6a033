"""The table of claims: its content, and what it says of wrong entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.paper.claims import CLAIMS, choose_experiments, read_claims
from dl2env.errors import ConfigError, UnknownNameError

GOOD = """
[tested_in]
two = "one"

[[claim]]
id = "a"
number = 1
title = "A"
says = "a"
experiments = ["one", "two"]

[claim.figure]
bars = [["x", "one/drf"]]
published_bars = [["x", 1.0]]
mark = "paper"

[[claim.check]]
says = "less"
measure = "reduction"
of = "one/fine-tuned"
than = "two/drf"
above = 0.0
published = 0.1
mark = "paper"
"""


def test_the_table() -> None:
    claims = read_claims()
    assert len(claims.experiments) > 40 and claims.tested_in == {"offline_rl": "dl2"} and claims.timed == {"window_40"}
    for claim in claims.claims:
        for check in claim.checks:
            assert set(check.experiments) <= {*claim.experiments, "dl2"}, claim.id
    first = claims.claims[0].checks[0]
    assert (first.published, first.mark, first.references) == (0.441, "abstract", ("dl2/fine-tuned", "dl2/drf"))
    assert (Path(CLAIMS).read_text()).count("[[claim]]") == 23


def test_a_good_table(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(GOOD)
    (claim,) = read_claims(path).claims
    assert claim.picture.labelled == (("x", "one/drf"),)
    assert claim.checks[0].experiments == ("one", "two")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "a"', 'id = "A b"', "lower case"),
        ('title = "A"', "", "claim a: missing 1 required positional argument: 'title'"),
        ('says = "a"', 'say = "a"', "claim a: say: unknown key; there are: .*says"),
        ('experiments = ["one", "two"]', "", "claim a: experiments: name at least one, or say why not"),
        ('experiments = ["one", "two"]', 'experiments = ["one"]', "claim a: two is an experiment of no claim"),
        ('measure = "reduction"', 'measure = "cut"', "check 1: measure='cut' is unknown; choose one of reduction"),
        ('than = "two/drf"', "", "check 1: than is missing, which measure=reduction needs"),
        ('than = "two/drf"', 'than = "two"', "'two': give experiment/scheduler"),
        ("above = 0.0", "above = 0.0\nbelow = 1.0", "above, below: give one of them"),
        ('above = 0.0\npublished = 0.1\nmark = "paper"', "published = 0.1", "published and mark belong together"),
        ('0.1\nmark = "paper"', '0.1\nmark = "rumour"', "mark='rumour': one of abstract, paper"),
        ('published_bars = [["x", 1.0]]', "", "figure: published values and mark belong together"),
        ('bars = [["x", "one/drf"]]', 'sweep = [["x", [[1, "one/drf"]]]]', "figure: x is missing"),
        ('two = "one"', 'three = "one"', "tested_in: three or one is an experiment of no claim"),
        ("[[claim.check]]", "[[claim.test]]", "claim a: test: unknown key"),
        ("[tested_in]", "[tested]", "tested: unknown key; there are: claim, tested_in"),
        ("[[claim]]", "[[claim]", "not a TOML file"),
        (GOOD, GOOD + GOOD.partition("[[claim]]")[1] + GOOD.partition("[[claim]]")[2], "two have the same id"),
    ],
)
def test_wrong_entries_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "claims.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        read_claims(path)
    assert str(caught.value).startswith(str(path))


def test_missing_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"claims\.toml: cannot be read"):
        read_claims(tmp_path / "claims.toml")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("rl_only", ["rl_only"]),
        (["epoch_error_*"], ["epoch_error_05", "epoch_error_15", "epoch_error_25"]),
        (["teachers", "teacher_fifo"], ["teacher_fifo", "teacher_srtf"]),
        (["replay"], ["dl2", "no_replay"]),
    ],
)
def test_chosen_experiments(given: Any, expected: list[str]) -> None:
    assert choose_experiments(given, read_claims()) == expected


def test_all_experiments() -> None:
    claims = read_claims()
    assert choose_experiments("all", claims) == list(claims.experiments)
    with pytest.raises(UnknownNameError, match="unknown experiment or claim 'no_such'; choose one of: .*arrivals"):
        choose_experiments(["dl2", "no_such"], claims)
    for wrong in ([], None, 3, [1]):
        with pytest.raises(ConfigError, match="give all, or a list of experiments"):
            choose_experiments(wrong, claims)
