"""Which schedulers and scenarios a command means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.evaluation.leaderboard.selection import choose_scenarios, choose_schedulers
from dl2env.resources import data_path
from dl2env.scenarios import suite_names
from dl2env.schedulers.registry import scheduler_names

GROUPS = {"all": ["*"], "two": ["drf", {"name": "optimus", "options": {"estimate": "noisy", "noise": 0.2}}], "none": []}
OWN = "tests.schedulers.own:LongestQueue"


def labels(given: Any, **kwargs: Any) -> list[str]:
    return [choice.label for choice in choose_schedulers(given, GROUPS, **kwargs)]


def test_groups_patterns_and_options() -> None:
    assert labels("all") == scheduler_names()
    assert labels("all", exclude=["released-*", "void"]) == [
        n for n in scheduler_names() if n != "void" and not n.startswith("released-")
    ]
    assert labels("two") == labels(["two"]) == ["drf", "optimus(estimate=noisy, noise=0.2)"]
    assert labels("drf") == ["drf"]
    assert labels(["optimus-*"]) == [n for n in scheduler_names() if n.startswith("optimus-")]
    assert labels([OWN, {"name": "drf", "label": "Fair"}]) == ["longest-queue", "Fair"]


def test_a_choice_knows_its_class_seed_and_state() -> None:
    drawing = "tests.evaluation.leaderboard.odd_schedulers:Drawing"
    drf, own, drawn, seeded, keyed = choose_schedulers(
        ["drf", OWN, drawing, {"name": drawing, "options": {"seed": 7}, "label": "x"}, "random"], {}
    )
    assert drf.is_deterministic and drf.module == "dl2env.schedulers.drf" and drf.build().name == "drf"
    assert own.module == "tests.schedulers.own" and own.is_deterministic
    assert (drawn.seed, seeded.seed, seeded.is_deterministic) == (0, 7, False)
    assert keyed.is_deterministic and keyed.seed is None  # takes a seed, but declares that it is
    noisy = [
        choose_schedulers([{"name": "optimus", "options": {"estimate": "noisy", "noise": noise}}], {})[0]
        for noise in (0.1, 0.2)
    ]
    assert noisy[0].options_digest != noisy[1].options_digest


def test_an_oracle_says_so() -> None:
    folder = "tests.evaluation.leaderboard.odd_schedulers"
    oracle, other = choose_schedulers([f"{folder}:Knowing", f"{folder}:Sleepy"], {})
    assert oracle.is_oracle and not other.is_oracle


def test_files_that_options_name_count_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "weights"

    def translate(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "tests.evaluation.fakes:Answers", {"answer": str(tmp_path / "folder"), **options}

    digests = []
    for text in ("a", "b", "a"):
        file.write_text(text)
        (choice,) = choose_schedulers(["some folder"], {}, translate=translate)
        digests.append(choice.options_digest)
    assert choice.label == "odd" and choice.options["answer"] == str(tmp_path / "folder")
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nothing", "unknown scheduler 'nothing'"),
        (["x*"], "unknown scheduler 'x*'"),
        ("none", "nothing chosen"),
        ([], "nothing chosen"),
        (3, "give a name, a list of names, or a group: all, two, none"),
        ([3], "give a name, or a mapping"),
        ([{"options": {}}], "give a name, or a mapping"),
        ([{"name": "drf", "seed": 1}], "drf: seed: unknown key; there are name, options, label"),
        ([{"name": "drf", "options": 3}], "drf: options=3: give a mapping"),
        ([{"name": "drf", "label": ""}], "drf: label='': give a text"),
        ([{"name": "drf", "options": {"x": 1}}], "scheduler 'drf'"),
        (["drf", "drf"], "'drf' comes twice"),
        (["drf", "all"], "'drf' comes twice"),
        (["drf", {"name": "void", "label": "DRF"}], "the same file name"),
        (["tests.none:X"], "cannot be imported"),
    ],
)
def test_wrong_schedulers(given: Any, words: str) -> None:
    with pytest.raises(Dl2EnvError) as caught:
        choose_schedulers(given, GROUPS)
    assert words in str(caught.value)


def test_scenarios_by_name_pattern_and_file() -> None:
    assert [c.source for c in choose_scenarios("suite", {"suite": ["*"]})] == suite_names()
    assert [c.build().name for c in choose_scenarios(["toy-v1"], {})] == ["toy-v1"]
    path = str(data_path("scenarios", "toy-v1.toml"))
    assert choose_scenarios(path, {})[0].build().hash() == choose_scenarios("toy-v1", {})[0].build().hash()


def test_a_template_joins_the_suite_with_its_file(tmp_path: Path) -> None:
    name = suite_names(templates=True)[-1]
    chosen = choose_scenarios("suite", {"suite": ["*"]}, {name: str(tmp_path / "trace.csv")})
    assert [c.source for c in chosen] == [*suite_names(), name]
    assert list(chosen[-1].paths.values()) == [str(tmp_path / "trace.csv")]
    (key,) = chosen[-1].paths
    assert choose_scenarios([name], {}, {name: {key: "f"}})[0].paths == {key: "f"}
    with pytest.raises(ConfigError, match=f"scenario {name} needs {key}"):
        choose_scenarios([name], {})[0].build()


@pytest.mark.parametrize(
    ("given", "paths", "words"),
    [
        ([3], {}, "3 is no name"),
        (["x*"], {}, "unknown scenario 'x*'"),
        (["toy-v1", "toy-v1"], {}, "'toy-v1' comes twice"),
        (["toy-v1"], {"dl2-small-v1": "f"}, "scenario_paths.dl2-small-v1: that scenario is not chosen"),
        (["toy-v1"], {"toy-v1": "f"}, "scenario_paths.toy-v1=f: the scenario needs no file"),
    ],
)
def test_wrong_scenarios(given: Any, paths: dict[str, str], words: str) -> None:
    with pytest.raises(Dl2EnvError) as caught:
        choose_scenarios(given, {}, paths)
    assert words in str(caught.value)


UNREADY = "tests.evaluation.leaderboard.odd_schedulers:Unready"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"error": "no\nlicence"}, r"cannot be built \(RuntimeError: no licence\)"),
        ({"name": ""}, "'' is no name for tables and files"),
        ({"name": "a\nb"}, "is no name for tables"),
        ({"name": "x" * 201}, "a label of 1 to 200 printable characters"),
        ({"name": "\ud800"}, "is no name for tables"),
        ({"name": float("nan")}, "give plain, finite values"),
        ({"name": {1, 2}}, "give plain, finite values"),
    ],
)
def test_schedulers_that_cannot_be_built_or_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_schedulers([{"name": UNREADY, "options": options}], {})


@pytest.mark.parametrize("text", ["raise RuntimeError('boom')", "def x(:", "import sys; sys.exit(0)", "1 / 0"])
def test_modules_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"broken_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=f"scheduler '{name}:X': cannot be built"):
        choose_schedulers([f"{name}:X"], {})


def test_a_seed_that_nobody_gave_is_0_and_written_down() -> None:
    (choice,) = choose_schedulers([UNREADY], {})
    assert (choice.options, choice.seed, choice.is_deterministic, choice.label) == ({"seed": 0}, 0, False, "unready")
    (given,) = choose_schedulers([{"name": UNREADY, "options": {"seed": 5}}], {})
    assert (given.options, given.seed) == ({"seed": 5}, 5)


def test_wrong_groups_and_exclusions() -> None:
    wrong: Any
    for wrong in (None, 3, {"all": None}, {"all": "drf"}):
        with pytest.raises(ConfigError, match="scheduler_groups"):
            choose_schedulers(["drf"], wrong)
        with pytest.raises(ConfigError, match="scenario_groups"):
            choose_scenarios(["toy-v1"], wrong)
    for wrong in (None, 3, "drf", [3]):
        with pytest.raises(ConfigError, match="exclude="):
            choose_schedulers(["drf"], {}, wrong)
    wrong = 3
    with pytest.raises(ConfigError, match="scenario_paths=3"):
        choose_scenarios(["toy-v1"], {}, wrong)
