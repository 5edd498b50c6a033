"""An online run end to end: what it leaves, that it repeats, that it goes on where it was stopped, wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import agents.online.result
import agents.online.run
from agents.online.folder import OnlineFolder
from agents.online.measures import interval_costs
from agents.online.replay import play_stream
from agents.online.run import build_online_world, play_others, run_online
from agents.online.settings import first_world, read_online_settings
from agents.scheduler import CheckpointScheduler
from dl2env.errors import ConfigError, Dl2EnvError
from dl2env.schedulers import get_scheduler
from tests.agents.online.worlds import SETTINGS, changed


def run(path: Path, settings: dict[str, Any] | None = None) -> list[str]:
    """Starts a run, or resumes the one in the folder; returns what it said."""
    said: list[str] = []
    exists = (path / "run.json").exists()
    folder = OnlineFolder.open(path) if exists else OnlineFolder.create(path, settings or SETTINGS)
    assert isinstance(folder, OnlineFolder)
    assert run_online(folder, show_bars=False, say=said.append, command=["test"]) == path / "summary.json"
    return said


def result(path: Path) -> dict[str, Any]:
    """`summary.json` without what differs from run to run."""
    content: dict[str, Any] = json.loads((path / "summary.json").read_text())
    del content["timing"]
    return content


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(path / "final" / "policy.pt", weights_only=True))


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.online.result, "write_figures", lambda *arguments: {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run that was not stopped, and what it said."""
    path = tmp_path_factory.mktemp("online") / "whole"
    return path, run(path)


def test_result_is_complete(whole: tuple[Path, list[str]]) -> None:
    path, said = whole
    content = result(path)
    assert list(content["schedulers"]) == ["agent", "drf", "void"]
    assert content["schedulers"]["drf"]["worst_window_ratio"] == 1.0
    assert content["schedulers"]["drf"]["final_regret"] == 0.0
    assert content["seed"] == 3
    assert content["settings"]["stream"]["segments"][1]["rate"] == 1.0
    assert content["versions"]["torch"] == torch.__version__
    assert len(content["scenario"]["hash"]) == 64
    assert content["command"] == ["test"]
    assert content["segment_starts"] == [0, 14, 24]
    guard = content["guard"]
    assert guard["accepted"] + guard["overridden"] > 0
    assert guard["override_share"] == guard["overridden"] / (guard["accepted"] + guard["overridden"])
    table = (path / "table.txt").read_text().rstrip("\n")
    assert table in said
    assert [line.split()[0] for line in table.splitlines()[1:4]] == ["agent", "drf", "void"]
    for name in ("regret.png", "window_ratio.png", "segments.png", "overrides.png"):
        assert (path / name).read_bytes().startswith(b"\x89PNG"), name
    assert not (path / "partial.json").exists()
    assert CheckpointScheduler(path / "final").info.env is not None
    assert run(path) == [table]  # nothing is left to do


def test_figures_are_those_of_the_jobs(whole: tuple[Path, list[str]]) -> None:
    path, _ = whole
    world = build_online_world(read_online_settings(SETTINGS))
    jobs = play_stream(get_scheduler("drf"), world.stream)
    costs = interval_costs(jobs.arrival_s, jobs.finish_s, 1200.0, 24)
    content = result(path)
    np.testing.assert_allclose(content["interval_costs"]["drf"], costs, atol=1e-6)
    assert content["workload_digest"] == world.stream.workload.digest()
    own = np.array(content["interval_costs"]["agent"])
    assert content["schedulers"]["agent"]["final_regret"] == pytest.approx((own - costs).sum(), abs=1e-3)


def test_warm_up_sees_the_first_segment_only() -> None:
    settings = read_online_settings(SETTINGS)
    config = first_world(settings, settings.stream.segments[0]).config.workload
    assert config.active_types == ("resnet-50", "vgg-16")
    assert config.arrivals.rate_per_interval == 0.5


def test_curves_are_there(whole: tuple[Path, list[str]]) -> None:
    events = EventAccumulator(str(whole[0] / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {"online/interval", "online/regret", "online/window_ratio", "online/override_share", "train/value_loss"}
    assert wanted - tags == set()
    intervals = [event.value for event in events.Scalars("online/interval")]
    assert intervals == sorted(intervals) and intervals[-1] > 5


@pytest.mark.usefixtures("without_plots")
def test_same_seed_same_result_other_seed_same_stream(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    run(tmp_path / "again")
    assert result(tmp_path / "again") == result(whole[0])
    run(tmp_path / "other", {**SETTINGS, "seed": 4})
    other = result(tmp_path / "other")
    assert other["workload_digest"] == result(whole[0])["workload_digest"]
    assert other["interval_costs"]["drf"] == result(whole[0])["interval_costs"]["drf"]
    assert other["interval_costs"]["agent"] != result(whole[0])["interval_costs"]["agent"]


class StopAfter(BaseCallback):
    """What Ctrl-C does, at a given update."""

    def __init__(self, updates: int) -> None:
        super().__init__()
        self._updates = updates

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.model.updates_done >= self._updates:  # type: ignore[attr-defined]
            self.model.stop_requested = True  # type: ignore[attr-defined]


VARIANTS: dict[str, dict[str, Any]] = {
    "practice": SETTINGS,
    "search": changed(online={"choose_from_practice": True, "practice_intervals": 2}, ppo={"interval_gamma": 0.9}),
    "naive": changed(online={"guard": "none"}, ppo={"num_envs": 1, "minibatch_size": 16}),
    "paper": {
        **changed(online={"guard": "none"}, agent={"kind": "flat", "observation": "paper", "hidden_width": 8}),
        "algorithm": "dl2",
    },
}


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("variant", VARIANTS)
def test_stopped_run_ends_as_one_that_was_not(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = VARIANTS[variant]
    run(tmp_path / "whole", settings)
    fine_tune = agents.online.run.fine_tune

    def stopped(model: Any, total: int, callbacks: Any) -> bool:
        return fine_tune(model, total, [StopAfter(model.updates_done + 1), *callbacks])

    stops = 0
    with monkeypatch.context() as patch:
        patch.setattr(agents.online.run, "fine_tune", stopped)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / "parts", settings)
            stops += 1
            partial = json.loads((tmp_path / "parts" / "partial.json").read_text())
            assert 0 < partial["num_intervals"] < 24
    run(tmp_path / "parts")
    assert stops == 2
    assert result(tmp_path / "parts") == result(tmp_path / "whole")
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for name, values in one.items():
        assert torch.equal(values, two[name]), name


@pytest.mark.usefixtures("without_plots")
def test_starts_from_a_checkpoint(whole: tuple[Path, list[str]], tmp_path: Path) -> None:
    settings = changed(online={"checkpoint": str(whole[0] / "warmup")})
    run(tmp_path / "run", settings)
    assert not (tmp_path / "run" / "warmup").exists()
    assert result(tmp_path / "run")["interval_costs"] == result(whole[0])["interval_costs"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stream": {"segments": []}}, "no segments"),
        ({"stream": {"segments": [{"intervals": 3, "rates": 1}]}}, "rates"),
        ({"stream": {"segments": [{"intervals": 3}]}, "online": {"window": 5}}, "online.window=5 exceeds"),
        ({"online": {"guard": "magic"}}, "online.guard='magic'"),
        ({"online": {"guard_horizon": 0}}, "guard_horizon=0"),
        ({"online": {"guard_tolerance": -0.1}}, "guard_tolerance=-0.1"),
        ({"online": {"baselines": ["void", "void"]}}, "twice"),
        ({"online": {"guard": "none", "choose_from_practice": True}}, "choose_from_practice"),
        ({"online": {**SETTINGS["online"], "checkpoint": "/nowhere"}}, "/nowhere"),
        ({"online": {"typo": 1}}, "typo"),
        ({"evaluation": {}}, "evaluation: unknown key"),
        ({"ppo": {**SETTINGS["ppo"], "enabled": False}}, "ppo.enabled=false"),
        ({"warmup": {"teacher": "nobody"}}, "nobody"),
        ({"warmup": {"teacher": "search"}}, "knows the future"),
        ({"warmup": {"teacher": "optimus-noisy"}}, "its own speed estimate"),
        ({"stream": {"segments": [{"intervals": 30, "types": ["resnet"]}]}}, "'resnet'"),
    ],
)
def test_wrong_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Dl2EnvError, match=message):
        build_online_world(read_online_settings({**SETTINGS, **change}))


def test_teacher_must_be_able_to_take_over(whole: tuple[Path, list[str]]) -> None:
    settings = read_online_settings(changed(warmup={"teacher": str(whole[0] / "warmup")}))
    with pytest.raises(ConfigError, match="whole intervals"):
        build_online_world(settings)


def test_networks_can_be_baselines(whole: tuple[Path, list[str]]) -> None:
    settings = read_online_settings(changed(online={"baselines": [str(whole[0] / "warmup")]}))
    records = play_others(build_online_world(settings))
    assert list(records) == ["drf", str(whole[0] / "warmup")]
    assert not np.isnan(records[str(whole[0] / "warmup")].finish_s).any()


def test_folder_is_not_written_over(whole: tuple[Path, list[str]]) -> None:
    with pytest.raises(ConfigError, match="holds a run already"):
        OnlineFolder.create(whole[0], SETTINGS)
