"""The command `scripts/online.py`: its configuration, and a run from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.online.settings import OnlineConfig, read_online_settings
from agents.online.stream import StreamConfig, build_stream
from agents.settings import build_scenario
from scripts.command_line import CONF, run
from scripts.online import online
from tests.scripts.calls import command, composed

METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
STREAMS = sorted(path.stem for path in (CONF / "stream").glob("*.yaml"))


def values(*overrides: str) -> dict[str, Any]:
    return composed(*overrides, config="online")


def test_configuration_has_all_keys_and_the_defaults() -> None:
    written = yaml.safe_load((CONF / "online.yaml").read_text(encoding="utf-8"))["online"]
    assert set(written) == {f.name for f in dataclasses.fields(OnlineConfig)}
    defaults = dataclasses.asdict(OnlineConfig())
    assert {key: tuple(v) if isinstance(v, list) else v for key, v in written.items()} == defaults


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_can_be_drawn(name: str) -> None:
    written = yaml.safe_load((CONF / "stream" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert set(written) == {f.name for f in dataclasses.fields(StreamConfig)}
    settings = read_online_settings(values(f"stream={name}"))
    stream = build_stream(build_scenario(settings.run), settings.stream)
    assert stream.workload.num_jobs > 500


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_built(name: str) -> None:
    settings = read_online_settings(values(f"method={name}"))
    assert settings.online.guard == ("none" if name in ("naive", "practice_unguarded") else "rollout")
    assert settings.online.choose_from_practice == (name == "search")
    assert (settings.run.ppo.num_envs > 1) == (name not in ("naive", "guarded"))
    assert settings.run.dl2.num_envs == settings.run.ppo.num_envs
    for algorithm in ("a2c", "dl2", "dl2_released"):
        read_online_settings(values(f"method={name}", f"algorithm={algorithm}"))


ARGUMENTS = (
    "method=guarded",
    "stream.segments=[{intervals: 8, types: [resnet-50, vgg-16], rate: 1.0}, {intervals: 6, rate: 2.0}]",
    "online.window=5",
    "online.baselines=[void]",
    "env.cluster.servers=[{count: 3, gpu_type: gtx-1080ti}]",
    "warmup.num_envs=2",
    "warmup.num_decisions=256",
    "warmup.epochs=1",
    "warmup.minibatch_size=64",
    "ppo.steps_per_update=32",
    "ppo.minibatch_size=32",
    "run_dir=out",
)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with command(monkeypatch, tmp_path, *ARGUMENTS):
        run(online, "online")
    assert capsys.readouterr().out.splitlines()[-1] == "out/summary.json"
    content = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert content["num_intervals"] == 14
    assert list(content["schedulers"]) == ["agent", "drf", "void"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("online.guard=maybe", "online.guard='maybe'"),
        ("stream=none", "choose one of: load, steady, types, types_and_load"),
        ("method=none", "choose one of: guarded, naive, practice, practice_unguarded, search"),
        ("online.windows=3", "online.windows"),
        ("stream.segments=[]", "no segments"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with command(monkeypatch, tmp_path, argument, "run_dir=out"), pytest.raises(SystemExit) as stop:
        run(online, "online")
    assert stop.value.code == 2
    told = capsys.readouterr().err.strip()
    assert "\n" not in told
    assert message in told
    assert not (tmp_path / "out").exists()
