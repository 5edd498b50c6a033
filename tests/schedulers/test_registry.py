"""Schedulers by name and by import path, and what is said when there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.runner import evaluate
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import Scheduler, configured
from tests.evaluation.fakes import small_scenario
from tests.schedulers.own import LongestQueue

OWN = "tests.schedulers.own"


@pytest.mark.parametrize("name", scheduler_names())
def test_every_registered_name_gives_a_scheduler(name: str) -> None:
    scheduler = get_scheduler(name)
    assert isinstance(scheduler, Scheduler)
    assert scheduler is not get_scheduler(name)
    # Options given in the name show in the scheduler's own name, so that tables do not mix them up.
    assert scheduler.name == name or scheduler.name.startswith(f"{name}-")


def test_the_issue_asks_for_these() -> None:
    rules = {"drf", "fifo", "srtf", "tetris", "optimus"}
    wanted = rules | {f"released-{name}" for name in rules} | {"optimus-exact", "optimus-fitted", "optimus-noisy"}
    wanted |= {"random", "drf-tuned", "maxmin", "themis", "gavel-maxmin", "gavel-makespan", "pollux", "elasticflow"}
    wanted |= {"marginal", "marginal-tuned", "marginal-lookahead", "best-config", "search", "afs"}
    assert wanted <= set(scheduler_names())
    assert scheduler_names() == sorted(scheduler_names())


def test_the_documentation_has_one_row_for_each() -> None:
    page = Path(__file__).parents[2] / "docs" / "schedulers.md"
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| `")]
    assert sorted(row[1].strip(" `") for row in rows) == scheduler_names()
    assert all(len(row) == 7 and row[2].strip() and row[3].strip() for row in rows)


def test_options_go_to_the_constructor_over_the_registered_ones() -> None:
    assert get_scheduler("optimus-noisy", noise=0.3).name == "optimus-noisy-0.3"
    assert get_scheduler(f"{OWN}:LongestQueue").name == "longest-queue"


def test_ones_own_scheduler_is_evaluated_like_the_others() -> None:
    scenario = small_scenario()
    evaluation = evaluate([get_scheduler(f"{OWN}:LongestQueue"), get_scheduler("fifo")], scenario, num_workloads=6)
    result = evaluation.results["longest-queue"]
    assert result.num_illegal.sum() == 0 and np.isfinite(result.values("mean_jct_s")).all()
    assert result.values("num_unfinished").sum() == 0
    again = evaluate([LongestQueue()], scenario, num_workloads=6, batch=1).results["longest-queue"]
    assert again.metrics == result.metrics


@pytest.mark.parametrize("name", ["DRF", "drff", "", "tests.schedulers.own.LongestQueue"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"^unknown scheduler '{re.escape(name)}'; choose one of: ") as caught:
        get_scheduler(name)
    message = str(caught.value)
    assert "\n" not in message and "package.module:Class" in message
    assert all(known in message for known in scheduler_names())


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("no_such_package:Class", {}, "cannot be imported.*No module named 'no_such_package'.*package.module:Class"),
        (f"{OWN}:Missing", {}, "cannot be imported.*Missing.*package.module:Class"),
        (":Class", {}, "no import path; write package.module:Class"),
        (f"{OWN}:", {}, "no import path; write package.module:Class"),
        (".own:LongestQueue", {}, "no import path; write package.module:Class"),
        ("tests/schedulers/own.py:LongestQueue", {}, "no import path; write package.module:Class"),
        (f"{OWN}:LongestQueue", {"speed": 3}, "takes no arguments"),
        ("drf", {"ps_per_workers": 2}, "unexpected keyword argument 'ps_per_workers'"),
        ("random", {"seed": "x"}, "seed='x' must be a number in"),
        (f"{OWN}:NOT_A_CLASS", {}, "not callable"),
        (f"{OWN}:Named", {}, "needs a string `name` and a method `act`"),
        (f"{OWN}:Named", {"name": 3}, "needs a string `name` and a method `act`"),
        (f"{OWN}:Nameless", {}, "needs a string `name` and a method `act`"),
    ],
)
def test_what_cannot_be_built_is_told_in_one_line(name: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        get_scheduler(name, **options)
    message = str(caught.value)
    assert "\n" not in message and message.startswith((f"scheduler '{name}'", f"{name}: "))


@pytest.mark.parametrize("error", [RuntimeError("no\nlicence"), SystemExit(3), ZeroDivisionError()])
def test_a_class_that_cannot_be_built_is_one_error(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fails(self: object) -> None:
        raise error

    monkeypatch.setattr(LongestQueue, "__init__", fails)
    with pytest.raises(ConfigError, match=rf"cannot be built \({type(error).__name__}: (no licence|3|)\)"):
        get_scheduler(f"{OWN}:LongestQueue")


def test_configure_must_return_a_configuration() -> None:
    class Careless:
        name = "careless"

        def act(self, observation: Any, action_mask: Any, view: Any) -> Any:
            raise AssertionError

        def configure(self, config: EnvConfig) -> Any:
            return None

    with pytest.raises(ConfigError, match="'careless'.*must return an EnvConfig, not None"):
        configured(Careless(), EnvConfig())
