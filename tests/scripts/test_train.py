"""`scripts/train.py` as a user calls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agents.multi_run
from scripts import command_line
from scripts.train import train
from tests.agents.test_multi_run import in_this_process
from tests.scripts.calls import command

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "train.py"
HEADER = "timestamp,duration,num_gpus,cluster"
ROWS = [f"2017-10-09 07:{i:02d}:00,{60 * (i + 1)},1,a" for i in range(40)]

SMALL = [
    "workload.num_jobs=4",
    "workload.max_workers=3",
    "workload.max_ps=3",
    "env.observation.window=4",
    "warmup.num_envs=4",
    "warmup.num_decisions=512",
    "ppo.num_envs=8",
    "ppo.steps_per_update=32",
    "ppo.minibatch_size=64",
    "ppo.num_decisions=1024",
    "evaluation.baselines=[drf]",
    "evaluation.num_workloads=2",
    "evaluation.num_validation_workloads=2",
]


def write(folder: Path, *lines: str) -> None:
    (folder / "jobs.csv").write_text("\n".join([*lines, ""]))


def call(folder: Path, *arguments: str, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout_s
    )


PHILLY = ["workload=philly", "workload.path=jobs.csv"]
STRICT = [*PHILLY, "workload.trace.strict=true"]


@pytest.mark.parametrize(
    ("arguments", "lines", "words"),
    [
        (["workload=philly", "workload.path=none.csv"], [HEADER, *ROWS], ["none.csv"]),
        (["workload=philly"], [HEADER, *ROWS], ["workload.path: not set", "workload.path=<csv>"]),
        (PHILLY, ["timestamp,seconds,num_gpus,cluster", *ROWS], ["jobs.csv, line 1", "duration"]),
        (STRICT, [HEADER, *ROWS[:5], "2017-10-09 09:00:00,nan,1,a"], ["jobs.csv, line 7", "duration", "nan"]),
        (STRICT, [HEADER, *ROWS[:5], "2017-10-09 09:00:00,-3,1,a"], ["jobs.csv, line 7", "duration", "-3"]),
        (PHILLY, [HEADER, *ROWS], ["jobs.csv", "fewer than workload.num_jobs=60", "lower num_jobs"]),
        (["evaluation.baselines=[drf,best]"], [], ["unknown scheduler 'best'; choose one of: ", " drf, ", " fifo, "]),
        (["scenario.name=big-v1"], [], ["unknown scenario 'big-v1'", "dl2-small-v1"]),
        (["env.dynamics.placement=anywhere"], [], ["dynamics.placement='anywhere'", "least_loaded"]),
        (["env.dynamics.interval_s=soon"], [], ["dl2-small-v1.dynamics.interval_s: expected float, got 'soon'"]),
        (
            ["env.cluster.servers=[{count: 2, gpus: 0, gpu_type: gtx-1080ti}]"],
            [],
            ["more than any server has", "enlarge"],
        ),
        (["ppo.minibatch_size=1000000"], [], ["ppo.minibatch_size=1000000 exceeds", "lower it"]),
        (["run_dir=old"], [], ["old: holds a run already", "resume=old"]),
        (["seeds=[1]", "run_dir=old"], [], ["old: holds a run already", "resume=old"]),
        (["seeds=[]"], [], ["seeds: there is none", "seeds=[1,2,3]"]),
        (["seeds=[2,2]"], [], ["seeds=[2, 2]: a seed is repeated"]),
        (["seeds=2", "evaluation.baselines=[best]"], [], ["unknown scheduler 'best'"]),
        (["seeds=2", "processes=0"], [], ["processes=0 must be at least 1"]),
    ],
)
def test_wrong_input(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    lines: list[str],
    words: list[str],
) -> None:
    """One line that names the file and row, or the key, and the cure; nothing is left behind."""
    write(tmp_path, *lines)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{}")
    with command(monkeypatch, tmp_path, *arguments), pytest.raises(SystemExit) as end:
        command_line.run(train, "config")
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert [word for word in words if word not in error] == [], error
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["jobs.csv", "run.json"]


def test_wrong_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, HEADER, *ROWS[:5], "2017-10-09 09:00:00,nan,1,a")
    result = call(tmp_path, *STRICT)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1 and "jobs.csv, line 7" in result.stderr


def test_run_by_the_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The table, the path of the summary last, bars on stderr, and the way back into a stopped run."""
    with command(monkeypatch, tmp_path, *SMALL, "run_dir=new"):
        command_line.run(train, "config")
    output, error = capsys.readouterr()
    assert output.rstrip().splitlines()[-1] == "new/summary.json"
    assert "fine-tuned" in output
    for phase in ("record drf", "warm-up", "fine-tuning", "evaluate"):
        assert f"{phase}:" in error, phase
    first = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert first["command"][1:] == [*SMALL, "run_dir=new"]
    with command(monkeypatch, tmp_path, "resume=new"):
        command_line.run(train, "config")
    output, error = capsys.readouterr()
    assert output.rstrip().splitlines()[-1] == "new/summary.json" and "fine-tuned" in output


def test_replayed_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path, HEADER, *ROWS)
    arguments = [*PHILLY, *SMALL, "ppo.enabled=false", "run_dir=new"]
    with command(monkeypatch, tmp_path, *arguments):
        command_line.run(train, "config")
    output = capsys.readouterr().out
    assert "+workload.num_jobs=4" in output and "jobs.csv" in output
    config = json.loads((tmp_path / "new" / "summary.json").read_text())["config"]
    assert config["workload"]["trace"]["path"] == str(tmp_path / "jobs.csv")


def test_several_seeds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One table over the seeds; called again with resume= it makes it from what is there."""
    monkeypatch.setattr(agents.multi_run, "run_in_processes", in_this_process)
    monkeypatch.setattr(agents.multi_run, "_compile_kernels", lambda: None)
    arguments = [*SMALL, "evaluation.plots=false", "evaluation.picture_every=null", "seeds=[5,3]", "run_dir=new"]
    with command(monkeypatch, tmp_path, *arguments):
        command_line.run(train, "config")
    output = capsys.readouterr().out
    assert output.rstrip().splitlines()[-1] == "new/summary.json"
    assert "2 training seeds" in output and "seed 5: fine-tuned" in output
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "run.json",
        "seed-3",
        "seed-5",
        "summary.json",
        "table.md",
    ]
    (tmp_path / "new" / "summary.json").unlink()
    monkeypatch.setattr(agents.multi_run, "run_in_processes", None)
    with command(monkeypatch, tmp_path, "resume=new"):
        command_line.run(train, "config")
    assert "2 were done already" in capsys.readouterr().out and (tmp_path / "new" / "summary.json").exists()


@pytest.mark.slow
def test_ctrl_c_and_resume(tmp_path: Path) -> None:
    """A real Ctrl-C during the fine-tuning: status 130, a line on how to go on, and that command completes the run."""
    arguments = [*SMALL, "ppo.num_decisions=1_000_000", "run_dir=new"]
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 240.0
        while not (tmp_path / "new" / "last").is_dir():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120.0)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert f"go on with: {sys.executable} {SCRIPT} resume=new" in error.splitlines()[-1]
    run = json.loads((tmp_path / "new" / "run.json").read_text())
    assert list(run["phases"]) == ["warm-up"]
    stopped_at = json.loads((tmp_path / "new" / "last" / "config.json").read_text())["num_decisions"]
    run["settings"]["ppo"]["num_decisions"] = stopped_at + 256
    (tmp_path / "new" / "run.json").write_text(json.dumps(run))
    result = call(tmp_path, "resume=new")
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert summary["extra"]["num_decisions"]["fine_tuning"] == stopped_at + 256


@pytest.mark.slow
def test_smoke_experiment(tmp_path: Path) -> None:
    result = call(tmp_path, "experiment=smoke", "run_dir=new")
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().splitlines()[-1] == "new/summary.json"
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert {"drf", "optimus-exact", "optimus-fitted", "warm-up", "fine-tuned"} <= set(summary["schedulers"])
    assert all(entry["num_unfinished"] == 0 for entry in summary["schedulers"].values())
