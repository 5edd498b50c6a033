"""Trainings that end before their last decision: patience with the validations, and a limit of updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import agents.pipeline
from agents.callbacks import Checkpoints, UpdateLimit, Validation
from agents.checkpoint import read_info
from agents.learner import fine_tune
from agents.run_folder import FINE_TUNING, RunFolder
from agents.settings import read_settings
from agents.validation import Validator
from dl2env.errors import ConfigError
from tests.agents.learners import picking_learner
from tests.agents.test_pipeline import changed, interrupted, result, run, weights


class Scripted:
    """Validation figures from a list."""

    def __init__(self, values: list[float]) -> None:
        self.values = iter(values)

    def __call__(self, scheduler: Any) -> dict[str, float]:
        return {"avg_jct": next(self.values)}


def test_patience_counts_validations_since_the_best(tmp_path: Path) -> None:
    """Best at update 1, then three without a better one (a tie is none): the end is at update 4."""
    model = picking_learner()
    validation = Validation(Scripted([5.0, 3.0, 3.0, 4.0, 3.5, 0.0]), every=1, best=tmp_path / "best", patience=3)
    assert fine_tune(model, 100 * 128, [validation, Checkpoints(tmp_path / "last", every=100)])
    assert model.ended_early and validation.num_worse == 3
    assert [decisions for decisions, _ in validation.history] == [0, 128, 256, 384, 512]
    assert read_info(tmp_path / "last").num_updates == 4
    assert read_info(tmp_path / "best").metrics == {"avg_jct": 3.0, "num_decisions": 128.0}


def test_the_last_network_is_that_of_the_border(tmp_path: Path) -> None:
    early, whole = picking_learner(seed=2), picking_learner(seed=2)
    fine_tune(early, 100 * 128, [UpdateLimit(2), Checkpoints(tmp_path / "last", every=100)])
    fine_tune(whole, 100 * 128, [Checkpoints(tmp_path / "whole", every=2), UpdateLimit(3)])
    assert read_info(tmp_path / "last").num_decisions == 256
    ours, theirs = weights(tmp_path / "last"), weights(tmp_path / "whole")
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())


def test_without_patience_it_goes_on(tmp_path: Path) -> None:
    model = picking_learner()
    fine_tune(model, 4 * 128, [Validation(Scripted([1.0, 2.0, 3.0, 4.0, 5.0]), every=1)])
    assert not model.ended_early and model.updates_done == 4


def test_a_limit_validates_and_saves_where_it_ends(tmp_path: Path) -> None:
    model = picking_learner()
    validation = Validation(Scripted([1.0, 2.0]), every=100)
    fine_tune(model, 100 * 128, [UpdateLimit(3), validation, Checkpoints(tmp_path / "last", every=100)])
    assert [decisions for decisions, _ in validation.history] == [0, 384]
    assert read_info(tmp_path / "last").num_updates == 3


EARLY = changed(
    ppo={"patience": 2, "validate_every": 1, "checkpoint_every": 3, "num_decisions": 2048, "learning_rate": 0.5},
    evaluation={"plots": False, "decide": "sampled"},
)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("early") / "run"
    said = run(path, EARLY)
    assert any(text.startswith("fine-tuning: early stop") for text in said)
    return path


def test_run_says_that_it_stopped_early(early: Path) -> None:
    jct = [figures["avg_jct"] for figures in json.loads((early / "validation.json").read_text())]
    assert 3 <= len(jct) < 17
    assert min(jct[-2:]) >= min(jct[:-2]) and all(min(jct[k - 2 : k]) < min(jct[: k - 2]) for k in range(3, len(jct)))
    phase = RunFolder.open(early).result(FINE_TUNING)
    assert phase["early_stop"] is True
    assert (phase["num_updates"], phase["num_decisions"]) == (len(jct) - 1, 128 * (len(jct) - 1))
    assert result(early)["extra"]["fine_tuning"]["early_stop"] is True
    assert read_info(early / "last").num_updates == phase["num_updates"]


@pytest.mark.parametrize("at_call", [2, 3])
def test_stopped_run_ends_early_at_the_same_update(
    early: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_call: int
) -> None:
    path = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(Validator, "__call__", interrupted(Validator.__call__, at_call))
        with pytest.raises(KeyboardInterrupt):
            run(path, EARLY)
    run(path)
    assert (path / "validation.json").read_text() == (early / "validation.json").read_text()
    assert result(path) == result(early)
    for checkpoint in ("best", "last"):
        expected = weights(early / checkpoint)
        assert all(torch.equal(value, expected[key]) for key, value in weights(path / checkpoint).items())


def test_killed_after_the_early_end(early: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end has been reached and saved, but not noted yet."""
    path = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(agents.pipeline, "fine_tune", interrupted(agents.pipeline.fine_tune, 1))
        with pytest.raises(KeyboardInterrupt):
            run(path, EARLY)
    with monkeypatch.context() as patch:
        complete = RunFolder.complete

        def killed(self: RunFolder, phase: str, **values: Any) -> None:
            if phase == FINE_TUNING:
                raise KeyboardInterrupt
            complete(self, phase, **values)

        patch.setattr(RunFolder, "complete", killed)
        with pytest.raises(KeyboardInterrupt):
            run(path)
    run(path)
    assert result(path) == result(early)


@pytest.mark.parametrize("group", ["ppo", "dl2"])
@pytest.mark.parametrize("key", ["patience", "num_updates"])
def test_wrong_values(group: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{group}\.{key}=0 must be at least 1"):
        read_settings({group: {key: 0}})
    assert getattr(read_settings({}).ppo, key) is None
