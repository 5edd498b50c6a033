"""Pretrained networks: that they are there, decide as they did when they were scored, and how one is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agents.pretrained
from agents.pretrained import CARD, PretrainedScheduler, pretrained_names, publish, read_card, score
from agents.run_folder import RunFolder
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios import get_scenario
from tests.agents.test_pipeline import changed, run

SCORED = [(name, scenario) for name in pretrained_names() for scenario in read_card(name).scores]


@pytest.mark.parametrize(("name", "scenario"), SCORED)
def test_networks_score_what_their_cards_say(name: str, scenario: str) -> None:
    expected = read_card(name).scores[scenario]
    assert expected.scenario_hash == get_scenario(scenario).hash()
    found = score(PretrainedScheduler(name), scenario, expected.num_workloads)
    assert found.num_illegal == expected.num_illegal == 0
    # Another processor may round another way where two actions are as good as equal.
    assert found.mean_jct == pytest.approx(expected.mean_jct, rel=5e-3)


def test_publishing_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "checkpoints"
    monkeypatch.setattr(agents.pretrained, "data_path", lambda *parts: tmp_path.joinpath(*parts))
    assert pretrained_names() == []
    small = {"observation": {"window": 4, "type_encoding": "features"}}
    settings: dict[str, Any] = changed(evaluation={"plots": False}, ppo={"num_decisions": 256}) | {"env": small}
    run(tmp_path / "run", settings)
    said: list[str] = []
    card = publish(
        tmp_path / "run",
        home / "mine",
        "A trial.",
        ["testbed-v1"],
        deterministic=True,
        window=5,
        num_workloads=2,
        progress=said.append,
    )
    assert pretrained_names() == ["mine"] and read_card("mine") == card
    assert card.learned == {
        "dl2-small-v1": RunFolder.open(tmp_path / "run").phases["fine-tuning"]["scenarios"].popitem()[1]
    }
    assert said == [f"testbed-v1: {card.scores['testbed-v1'].mean_jct:.3f} intervals"]
    scheduler = PretrainedScheduler("mine")
    assert scheduler.name == "mine" and scheduler.deterministic
    assert score(scheduler, "testbed-v1", 2) == card.scores["testbed-v1"]
    with pytest.raises(ConfigError, match="exists already"):
        publish(tmp_path / "run", home / "mine", "", [], deterministic=True, window=5, num_workloads=1)
    with pytest.raises(UnknownNameError, match="mine"):
        PretrainedScheduler("yours")
    for damaged in ("{", "[]", json.dumps({"scores": {}}), json.dumps({"scores": {"x": {"y": 1}}})):
        (home / "mine" / CARD).write_text(damaged)
        with pytest.raises(ConfigError, match=r"pretrained.json.*cannot be read"):
            PretrainedScheduler("mine")
