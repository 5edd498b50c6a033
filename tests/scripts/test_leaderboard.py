"""The leaderboard's command, from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dl2env.scenarios import suite_names
from scripts import command_line
from scripts import leaderboard as script
from tests.scripts.calls import command, composed

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "evaluation" / "leaderboard" / "small-v1.toml"
OWN = '''"""A scheduler of a user's."""
import time

import numpy as np


class Mine:
    name = "mine"

    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s

    def act(self, observation, action_mask, view):
        time.sleep(self.delay_s)
        return action_mask.argmax(axis=1)
'''


def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command in this process."""
    status = 0
    path = list(sys.path)
    with command(monkeypatch, folder, *arguments):
        try:
            command_line.run(script.leaderboard, "leaderboard")
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            sys.path[:] = path
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # The child takes Ctrl-C even where this process was started in the background and ignores it.
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "leaderboard.py"), *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    )


def entries(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))


def group_members(pgid: int) -> list[int]:
    """Live processes of a process group, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().rpartition(")")[::2]
        except OSError:
            continue
        state, _, group = fields.split()[:3]
        if int(group) == pgid and state != "Z":
            found.append(int(name.split()[0]))
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["schedulers=[nothing]"], "unknown scheduler 'nothing'"),
        (["scenarios=[nothing]"], "unknown scenario 'nothing'"),
        (["num_workloads=0"], "num_workloads=0 must be at least 1"),
        (["num_workloads=x"], "num_workloads: expected int, got 'x'"),
        (["processes=0"], "processes=0"),
        (["split=tset"], "unknown split 'tset'"),
        (["trim=[0.5,0.6]"], "trim=(0.5, 0.6)"),
        (["trim=[0.5]"], "trim=[0.5]: give two shares"),
        (["sample=0", "verify=x.json"], "sample=0: give a number of workloads, or all"),
        (["verify=x.json"], "x.json: cannot be read"),
        (["scenario_paths.x=y"], "scenario_paths.x: unknown key"),
        (["scenario_paths.philly-replay-v1=y"], "scenario_paths.philly-replay-v1: that scenario is not chosen"),
        (["scenarios=[philly-replay-v1]"], "scenario philly-replay-v1 needs workload.trace.path"),
        (["+scenario_paths.x=y"], "scenario_paths.x: that scenario is not chosen"),
        (["build_only=true", "with_committed=false"], "no entry of split test to show"),
        (["nonsense=1"], "nonsense: unknown key"),
        (["search_workloads=-1"], "search_workloads=-1 must be at least 0"),
        (["search_seconds=0"], "search_seconds=0.0 must be positive, or null"),
        (["search_horizon=0"], "search_horizon=0 must be at least 1"),
        (["limits=maybe"], "limits: expected bool, got 'maybe'"),
        (["verify=_limits.json"], "_limits.json: cannot be read"),
        (["out="], "out= is empty"),
        (["reference="], "reference= is empty"),
        (["reference=drff", "with_committed=false"], "unknown reference 'drff'"),
        (["reference=drff", "with_committed=false", "build_only=true"], "unknown reference 'drff'"),
        (["sample=true"], "sample=True: give a number of workloads, or all"),
        (["scenario_paths=3"], "scenario_paths=3: give files by scenario"),
        (["scheduler_groups=null"], "scheduler_groups=None"),
        (["scenario_groups=3"], "scenario_groups=3"),
        (["exclude=3"], "exclude=3: give a list"),
        (["out=/proc/none", "schedulers=[void]", "scenarios=[toy-v1]"], "/proc/none: no entries can be written there"),
    ],
)
def test_wrong_arguments(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    words: str,
) -> None:
    status, _, error = call(
        monkeypatch, capsys, tmp_path, "out=board", "scenarios=[toy-v1]", "schedulers=[drf]", *arguments
    )
    assert status == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert words in error
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_board_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Own scheduler from the working folder, own scenario by file; then again, pages only, and verified."""
    (tmp_path / "mypkg.py").write_text(OWN)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    common = [
        "schedulers=[drf,mypkg:Mine]",
        f"scenarios=[toy-v1,'{SMALL}']",
        "num_workloads=3",
        "out=board",
        "processes=1",
    ]
    status, out, error = call(monkeypatch, capsys, tmp_path, *common)
    assert status == 0, error
    board = tmp_path / "board"
    files = ["_limits.json", "drf.json", "mine.json"]
    assert entries(board) == [f"{name}/{file}" for name in ("small-v1", "toy-v1") for file in files]
    assert "6 of 6 cells to run" in out and out.splitlines()[-2:] == ["board/leaderboard.md", "board/leaderboard.html"]
    entry = json.loads((board / "small-v1" / "mine.json").read_text())
    assert entry["scheduler_name"] == "mypkg:Mine" and len(entry["workload_digests"]) == 3
    pages = {path: path.read_bytes() for path in board.glob("leaderboard.*")}
    assert len(pages) == 2 and b"mine" in pages[board / "leaderboard.md"]
    assert all(b"What is left to win" in page for page in pages.values())
    limits = json.loads((board / "small-v1" / "_limits.json").read_text())
    assert len(limits["bound_jct_s"]) == len(limits["search_jct_s"]) == 3

    status, out, _ = call(monkeypatch, capsys, tmp_path, *common)
    assert status == 0 and "0 of 6 cells to run, 6 have their file already" in out
    status, out, _ = call(monkeypatch, capsys, tmp_path, *common, "build_only=true")
    assert status == 0 and {path: path.read_bytes() for path in pages} == pages

    status, out, error = call(monkeypatch, capsys, tmp_path, "verify=board/toy-v1/drf.json")
    assert status == 0 and out == "drf on toy-v1 holds: 1 of 1 workloads run again, all metrics are the same\n", error
    status, out, error = call(monkeypatch, capsys, tmp_path, "verify=board/toy-v1/_limits.json")
    assert status == 0 and "limits of toy-v1 holds: 1 bounds and 1 of 1 searches worked out again" in out, error
    path = board / "toy-v1" / "drf.json"
    path.write_text(path.read_text().replace('"num_decisions":', '"num_decisions":1', 2))
    status, out, _ = call(monkeypatch, capsys, tmp_path, "verify=board/toy-v1/drf.json")
    assert status == 1 and "drf on toy-v1 does not hold" in out and "num_decisions" in out
    assert [p for p in (tmp_path / "runs").rglob("*") if p.is_file()] == []


def test_damaged_files_are_skipped_with_a_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = ["schedulers=[void]", "scenarios=[toy-v1]", "num_workloads=1", "out=board", "reference=void"]
    common += ["processes=1", "search_horizon=5", "with_committed=false"]
    assert call(monkeypatch, capsys, tmp_path, *common)[0] == 0
    folder = tmp_path / "board" / "toy-v1"
    (folder / "cut.json").write_text('{"schema"')
    whole = (folder / "_limits.json").read_text()
    (folder / "_limits.json").write_text(whole[:100])
    status, _, error = call(monkeypatch, capsys, tmp_path, *common, "build_only=true")
    assert status == 0 and "not compared: toy-v1/cut.json: not a JSON file" in error
    assert "not compared: toy-v1/_limits.json: not a JSON file" in error
    page = (tmp_path / "board" / "leaderboard.md").read_text()
    assert "toy-v1/cut.json" in page and "What is left to win" not in page
    # The damaged limits, and they alone, are made again.
    status, out, _ = call(monkeypatch, capsys, tmp_path, *common)
    assert status == 0 and "1 of 2 cells to run, 1 have their file already" in out
    again, before = json.loads((folder / "_limits.json").read_text()), json.loads(whole)
    del again["timing"], before["timing"]
    assert again == before
    assert "What is left to win" in (tmp_path / "board" / "leaderboard.md").read_text()


def test_limits_of_the_checkout_serve_a_board_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = ["scenarios=[toy-v1]", "num_workloads=1", "processes=1", "search_horizon=5"]
    assert call(monkeypatch, capsys, tmp_path, *common, "schedulers=[drf]", "out=whole")[0] == 0
    monkeypatch.setattr(script, "COMMITTED", tmp_path / "whole")
    status, out, error = call(monkeypatch, capsys, tmp_path, *common, "schedulers=[void]", "out=mine")
    assert status == 0 and "1 of 1 cells to run" in out, error
    assert entries(tmp_path / "mine") == ["toy-v1/void.json"]
    assert "What is left to win" in (tmp_path / "mine" / "leaderboard.md").read_text()
    for argument in ("with_committed=false", "search_horizon=6"):  # not shown, or not the same
        status, out, error = call(
            monkeypatch, capsys, tmp_path, *common, "schedulers=[drf]", f"out={argument[:6]}", argument
        )
        assert status == 0 and "2 of 2 cells to run" in out, error


def test_without_limits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = ["schedulers=[drf]", f"scenarios=['{SMALL}']", "num_workloads=1", "out=board", "processes=1"]
    for arguments in (["limits=false"], ["trim=[0.2,0.2]"]):
        status, out, error = call(monkeypatch, capsys, tmp_path, *common, *arguments)
        assert status == 0 and "1 of 1 cells to run" in out, error
        assert entries(tmp_path / "board") == ["small-v1/drf.json"]


def test_the_search_is_in_the_limits_and_not_among_all_schedulers() -> None:
    from dl2env.evaluation.leaderboard.selection import choose_schedulers
    from dl2env.schedulers.registry import scheduler_names

    conf = composed(config="leaderboard")
    chosen = choose_schedulers(conf["schedulers"], conf["scheduler_groups"], conf["exclude"])
    left_out = {"search", "marginal-tuned", "random-rules"}
    others = {name for name in scheduler_names() if name not in left_out and not name.startswith("released-")}
    assert {choice.label for choice in chosen} == others | {"generalist"}


def test_a_failing_cell_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = "tests.evaluation.leaderboard.odd_schedulers:Broken"
    common = [f"schedulers=[void,{broken}]", "scenarios=[toy-v1]", "num_workloads=1", "out=board", "run_dir=run"]
    common += ["limits=false"]
    status, _, error = call(monkeypatch, capsys, tmp_path, *common, "processes=1")
    assert status == 1
    assert error.splitlines()[-2:] == [
        "1 cell failed (tracebacks: run/failures.txt):",
        "  broken on toy-v1: RuntimeError: out of order",
    ]
    assert "Traceback" in (tmp_path / "run" / "failures.txt").read_text()
    assert entries(tmp_path / "board") == ["toy-v1/void.json"]
    assert (tmp_path / "board" / "leaderboard.html").exists()


def test_every_scenario_that_needs_a_file_has_a_key() -> None:
    templates = set(suite_names(templates=True)) - set(suite_names())
    assert set(composed(config="leaderboard")["scenario_paths"]) == templates


def test_a_checkpoint_is_a_scheduler(tmp_path: Path) -> None:
    assert script._checkpoint("drf", {"a": 1}) == ("drf", {"a": 1})
    name, options = script._checkpoint(str(tmp_path), {"deterministic": True})
    assert name == "agents.scheduler:CheckpointScheduler"
    assert options == {"path": str(tmp_path), "deterministic": True}


SLOW = {
    "scheduler": ["schedulers=[void,{name: 'mypkg:Mine', options: {delay_s: 0.5}}]", "num_workloads=2", "limits=false"],
    "limits": ["schedulers=[void]", "num_workloads=20", "search_workloads=20", "search_seconds=null"],
}
AGAIN = {"scheduler": ["schedulers=[void,drf]"], "limits": ["search_workloads=1", "search_horizon=5"]}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("what", ["scheduler", "limits"])
def test_stopped_at_any_moment_it_keeps_finished_cells(tmp_path: Path, what: str, number: signal.Signals) -> None:
    (tmp_path / "mypkg.py").write_text(OWN)
    common = ["scenarios=[dl2-small-v1]", "out=board", "processes=2"]
    process = start(tmp_path, *SLOW[what], *common)
    finished = tmp_path / "board" / "dl2-small-v1" / "void.json"
    deadline = time.monotonic() + 120
    while not finished.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stopped = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.kill()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - stopped < 20
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), error
    if number == signal.SIGINT:
        assert "Traceback" not in error
        assert "stopped; finished cells are kept, go on with the same command:" in error and "out=board" in error
    while group_members(process.pid):
        assert time.monotonic() - stopped < 30
        time.sleep(0.2)
    assert entries(tmp_path / "board") == ["dl2-small-v1/void.json"]
    assert [path.name for path in (tmp_path / "board").rglob("*") if path.is_file()] == ["void.json"]  # no drafts
    before = finished.read_bytes()
    again = start(tmp_path, *SLOW[what], *AGAIN[what], *common)
    out, error = again.communicate(timeout=120)
    assert again.returncode == 0, error
    assert "1 of 2 cells to run, 1 have their file already" in out
    assert finished.read_bytes() == before
    assert len(entries(tmp_path / "board")) == 2


@pytest.mark.slow
def test_a_trained_network_joins_by_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its weights count: another network in the same folder is run again."""
    import torch

    from agents.checkpoint import save_network
    from agents.networks import NetworkConfig, ObservationShape, build_network
    from dl2env.scenarios import get_scenario
    from dl2env.sim.simulator import ClusterSimulator

    config = get_scenario("toy-v1").config
    seen = ClusterSimulator(config, 1).observation()
    shape = ObservationShape(*seen["jobs"].shape[1:], *seen["cluster"].shape[1:])
    agent = "{name: agent, options: {deterministic: true}, label: trained}"
    common = [f"schedulers=[drf,{agent}]", "scenarios=[toy-v1]", "num_workloads=1", "out=board", "processes=1"]
    common += ["limits=false"]
    for seed, to_run in ((0, 2), (0, 0), (1, 1)):
        torch.manual_seed(seed)
        save_network(tmp_path / "agent", build_network(NetworkConfig(), shape), env_config=config)
        status, out, error = call(monkeypatch, capsys, tmp_path, *common)
        assert status == 0, error
        assert f"{to_run} of 2 cells to run" in out
    entry = json.loads((tmp_path / "board" / "toy-v1" / "trained.json").read_text())
    assert entry["scheduler_name"] == "agents.scheduler:CheckpointScheduler" and entry["is_deterministic"]
    assert entry["options"] == {"path": "agent", "deterministic": True}
    status, out, _ = call(monkeypatch, capsys, tmp_path, "verify=board/toy-v1/trained.json")
    assert status == 0 and "trained on toy-v1 holds" in out
