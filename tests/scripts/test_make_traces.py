"""`scripts/make_traces.py` as a user calls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from agents.decision_files import part_path, read_decisions, read_header
from dl2env.scenarios import get_scenario
from scripts import command_line
from scripts.make_traces import MakeTracesSettings, make_traces, read_role, read_settings
from tests.scripts.calls import command, composed

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_traces.py"

SMALL = [
    "workload.num_jobs=4",
    "workload.max_workers=3",
    "workload.max_ps=3",
    "env.observation.window=4",
    "num_envs=4",
    "num_decisions=400",
    "decisions_per_part=160",
]


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    with command(monkeypatch, folder, *SMALL, *arguments):
        command_line.run(make_traces, "make_traces")


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> str:
    """The one line with which a wrong command ends."""
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, folder, *arguments)
    assert caught.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line and "decision/s" not in line]
    assert len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_settings_are_those_of_the_file() -> None:
    values = composed(config="make_traces")
    assert read_settings(values) == MakeTracesSettings()
    written = yaml.safe_load((ROOT / "conf" / "make_traces.yaml").read_text(encoding="utf-8"))
    fields = set(MakeTracesSettings.__dataclass_fields__)
    assert set(written) - {"defaults", "teacher", "behaviour", "run_dir", "hydra"} == fields
    assert set(values) == fields | {"teacher", "behaviour", "scenario", "workload", "speed", "env"}


def test_a_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(monkeypatch, tmp_path, "run_dir=run", "teacher=srtf", "seed=5")
    header = read_header(tmp_path / "run" / "decisions")
    provenance = header.provenance
    assert provenance["teachers"][0]["name"] == "srtf" and provenance["behaviours"] == []
    assert provenance["seed"] == 5 and provenance["num_envs"] == 4
    assert provenance["scenario"]["split"] == "train" and "workload.num_jobs=4" in provenance["scenario"]["name"]
    assert provenance["env"]["workload"]["num_jobs"] == 4
    assert provenance["versions"]["numpy"] == np.__version__
    with np.load(part_path(tmp_path / "run" / "decisions", 0)) as archive:
        workload = get_scenario("dl2-small-v1").derive(
            {"workload.num_jobs": 4, "workload.max_workers": 3, "workload.max_ps": 3}
        )
        digest = workload.workload_source("train")(5, 0, 0).digest()
        assert archive["start_digest"][0].decode() == digest
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["num_decisions"] == 400 and summary["provenance"]["seed"] == 5
    assert summary["num_bytes"] == sum(len(c) for c in contents(tmp_path / "run" / "decisions").values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "run/summary.json" and "400 decisions" in lines[-2]


def test_the_same_command_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for out in ("a", "b"):
        call(monkeypatch, tmp_path, f"out={out}")
    call(monkeypatch, tmp_path, "out=other", "seed=2")
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "other")
    call(monkeypatch, tmp_path, "out=c", "num_decisions=200")
    call(monkeypatch, tmp_path, "out=c")
    assert contents(tmp_path / "c") == contents(tmp_path / "a")


def test_several_teachers_and_a_network_that_acts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from agents.checkpoint import save_network
    from agents.networks import NetworkConfig, ObservationShape, build_network

    call(monkeypatch, tmp_path, "out=plain")
    demos = read_decisions(tmp_path / "plain")[1]
    shape = ObservationShape(demos.jobs.shape[2], demos.jobs.shape[3], demos.cluster.shape[2])
    save_network(tmp_path / "net", build_network(NetworkConfig(slot_width=8, context_width=8), shape))
    call(
        monkeypatch,
        tmp_path,
        "out=mix",
        "teacher=[drf, {name: optimus, options: {}, weight: 3}]",
        "behaviour=[{name: net, options: {seed: 4}}, random]",
    )
    header, mix = read_decisions(tmp_path / "mix")
    assert [(t["name"], t["weight"]) for t in header.provenance["teachers"]] == [("drf", 1.0), ("optimus", 3.0)]
    first, second = header.provenance["behaviours"]
    assert first["name"] == "agents.scheduler:CheckpointScheduler" and first["options"] == {"path": "net", "seed": 4}
    assert len(first["options_digest"]) > 8 and second["name"] == "random"
    assert mix.taken is not None and (mix.taken != mix.actions).any()
    with np.load(part_path(tmp_path / "mix", 0)) as archive:
        assert set(np.unique(archive["teacher"])) == set(np.unique(archive["behaviour"])) == {0, 1}
    # A network that samples is asked again when the recording goes on, and is the same.
    call(monkeypatch, tmp_path, "out=part", "behaviour={name: net, options: {seed: 4}}", "num_decisions=160")
    call(monkeypatch, tmp_path, "out=part", "behaviour={name: net, options: {seed: 4}}")
    call(monkeypatch, tmp_path, "out=whole", "behaviour={name: net, options: {seed: 4}}")
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_scheduler_of_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_own_teacher.py").write_text(
        "class Stops:\n"
        "    name = 'stops'\n"
        "    def __init__(self, after=0):\n"
        "        self.after = after\n"
        "    def act(self, observation, action_mask, view):\n"
        "        import numpy as np\n"
        "        return np.full(len(action_mask), action_mask.shape[1] - 1)\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    call(monkeypatch, tmp_path, "out=own", "teacher={name: 'my_own_teacher:Stops', options: {after: 2}}")
    header, demos = read_decisions(tmp_path / "own")
    assert (demos.actions == header.layout.num_actions - 1).all()
    assert header.provenance["teachers"][0]["options"] == {"after": 2}


@pytest.mark.parametrize("observation", ["paper", "released"])
def test_observations_of_the_paper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, observation: str) -> None:
    call(monkeypatch, tmp_path, "out=a", f"observation={observation}", "observation_scale=log")
    header, demos = read_decisions(tmp_path / "a")
    assert header.layout.observation == observation and header.layout.scale == "log"
    assert demos.jobs.shape[2:] == header.layout.jobs_shape


def test_minari(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    minari = pytest.importorskip("minari", reason="needs minari, an optional dependency")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    call(monkeypatch, tmp_path, "out=a", "format=minari", "minari.dataset_id=dl2env/drf-v0", "minari.author=someone")
    dataset = minari.load_dataset("dl2env/drf-v0")
    assert dataset.total_steps == 400 and dataset.storage.metadata["author"] == {"someone"}
    assert "warmup.files=[minari:dl2env/drf-v0]" in capsys.readouterr().out
    # A complete recording is only exported.
    call(monkeypatch, tmp_path, "out=a", "format=minari", "minari.dataset_id=dl2env/drf-v1")
    assert "400 decisions, 0 of them new" in capsys.readouterr().out
    error = refused(monkeypatch, capsys, tmp_path, "out=b", "format=minari", "minari.dataset_id=dl2env/drf-v1")
    assert "exists already" in error and not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["teacher=nobody"], ["unknown scheduler 'nobody'"]),
        (["teacher=[]"], ["teacher: no scheduler given"]),
        (["teacher='optimus*'"], ["patterns are not taken"]),
        (["teacher={name: drf, weight: 0}"], ["weight=0 must be a positive number"]),
        (["teacher={name: drf, options: {speed: 3}}"], ["drf", "speed"]),
        (["teacher=optimus-fitted"], ["teacher=optimus-fitted brings its own speed estimate", "env.estimate.kind"]),
        (["split=training"], ["unknown split 'training'"]),
        (["format=csv"], ["unknown format 'csv'"]),
        (["format=minari"], ["minari.dataset_id: not set"]),
        (["num_envs=0"], ["num_envs=0 must be at least 1"]),
        (["seed=-1"], ["seed=-1"]),
        (["observation=odd"], ["unknown observation 'odd'"]),
        (["scenario=nowhere"], ["scenario=nowhere: unknown"]),
        (["num_decision=3"], ["num_decision: unknown key; did you mean num_decisions?"]),
    ],
)
def test_wrong_commands(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: list[str],
) -> None:
    error = refused(monkeypatch, capsys, tmp_path, *arguments)
    for word in words:
        assert word in error
    assert not list(tmp_path.rglob("*.npz"))


def test_another_recording_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, tmp_path, "out=a")
    before = contents(tmp_path / "a")
    error = refused(monkeypatch, capsys, tmp_path, "out=a", "teacher=srtf", "num_decisions=800")
    assert "other settings (provenance.teachers)" in error
    assert contents(tmp_path / "a") == before


def test_test_workloads_are_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, tmp_path, "out=a", "split=test")
    assert "note: recorded from test workloads" in capsys.readouterr().out
    assert read_header(tmp_path / "a").provenance["scenario"]["split"] == "test"


def test_roles() -> None:
    role = read_role("teacher", "drf")
    assert role.label == "drf" and role.weights == (1.0,) and role.players()[0].scheduler.name == "drf"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_processes(tmp_path: Path, how: signal.Signals) -> None:
    """Whatever ends the process, what is on disk is whole, and the same command ends with the same bytes."""
    arguments = [*SMALL[:5], "num_decisions=60000", "decisions_per_part=2000", "teacher=[drf, random]"]

    def start(out: str) -> subprocess.Popen[str]:
        line = [sys.executable, str(SCRIPT), *arguments, f"out={out}"]
        return subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    process = start("stopped")
    deadline = time.monotonic() + 300.0
    while not part_path(tmp_path / "stopped", 2).exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    demos: Any = read_decisions(tmp_path / "stopped")[1]
    assert 6000 <= demos.num_decisions < 60000
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert f"go on with: {Path(sys.executable).name} {SCRIPT}" in errors and "out=stopped" in errors
    for out in ("stopped", "whole"):
        assert start(out).communicate(timeout=300)[0].splitlines()[-1].endswith("summary.json")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
