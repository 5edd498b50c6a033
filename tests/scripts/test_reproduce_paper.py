"""`scripts/reproduce_paper.py` as a user calls it, with runs of a few hundred decisions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import agents.multi_run
import agents.pipeline
from agents.paper.claims import read_claims
from agents.paper.runs import only_warmup, scaled
from agents.validation import Validator
from dl2env.errors import ConfigError
from scripts import command_line
from scripts.reproduce_paper import reproduce
from tests.agents.test_multi_run import in_this_process
from tests.agents.test_pipeline import interrupted
from tests.scripts.calls import command

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "overrides=['workload.num_jobs=3','agent.hidden_width=8','warmup.epochs=1','warmup.num_envs=4','dl2.num_updates=6',"
    "'dl2.validate_every=3','dl2.checkpoint_every=1','dl2.learning_starts=64','dl2.batch_size=32',"
    "'evaluation.baselines=[drf]','evaluation.num_workloads=2','evaluation.num_validation_workloads=1']"
)
BUDGET = [
    "scale=1e-3",
    SMALL.replace("num_updates=6", "num_updates=6000").replace("every=3'", "every=3000'"),
    "out=out",
]


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    """The command, its runs in this process."""
    monkeypatch.setattr(agents.multi_run, "_compile_kernels", lambda: None)
    with command(monkeypatch, folder, *arguments):
        command_line.run(reproduce, "reproduce_paper")


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.multi_run, "run_in_processes", in_this_process)


def records(folder: Path) -> dict[str, Any]:
    """All results without times."""
    found = {}
    for path in sorted((folder / "out" / "results").rglob("*.json")):
        content = json.loads(path.read_text())
        del content["timing"]
        found[path.relative_to(folder / "out").as_posix()] = content
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A call that was not stopped."""
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents.multi_run, "run_in_processes", in_this_process)
        call(patch, folder, "experiments=[dl2,offline_rl,no_replay]", "seeds=2", *BUDGET)
    return folder


def test_results(whole: Path) -> None:
    found = records(whole)
    names = [f"results/{name}/seed-{seed}.json" for name in ("dl2", "no_replay", "offline_rl") for seed in (1, 2)]
    assert list(found) == names
    for name, content in found.items():
        assert (whole / "out" / name).stat().st_size < 8000
        assert (content["num_updates"], content["scale"], content["decision_ms"]) == (6, 1e-3, None)
        assert [point[1] for point in content["curve"]] == [0, 3, 6]
        assert list(content["schedulers"]) == ["drf", "fine-tuned"] and set(content["levels"]) == {"drf"}
        assert content["settings"]["dl2"]["num_updates"] == 6
    # OfflineRL is trained in a world of its own and tested on the workloads and in the world of DL2.
    dl2, offline = found["results/dl2/seed-1.json"], found["results/offline_rl/seed-1.json"]
    assert offline["settings"]["env"]["cluster"]["link_sharing"] == 0.0
    for key in ("scenario_hash", "workloads", "scenario"):
        assert offline[key] == dl2[key]
    assert offline["schedulers"]["drf"] == dl2["schedulers"]["drf"]
    assert (dl2["tested_in"], offline["tested_in"]) == ("dl2", "dl2")


def test_page(whole: Path) -> None:
    page = (whole / "out" / "paper.md").read_text()
    assert "6 runs, seeds 1, 2" in page and "`scale=0.001`" in page
    assert "![DL2 beats DRF](figures/paper-drf.png)" in page and (whole / "out/figures/paper-drf.png").exists()
    assert "| 19 | [Experience replay helps](#19-experience-replay-helps) | 39.6 % (paper) |" in page


def test_warmups_are_shared_and_exact(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_process: None
) -> None:
    """DL2 and the one without replay have the same warm-up; alone, a run makes it itself and ends the same."""
    assert len(list((whole / "runs/paper/warmups").iterdir())) == 2
    call(monkeypatch, tmp_path, "experiments=no_replay", "seeds=[2]", *BUDGET)
    assert not (tmp_path / "runs/paper/warmups").exists()
    name = "results/no_replay/seed-2.json"
    assert records(tmp_path)[name] == records(whole)[name]


def test_nothing_is_repeated(whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(agents.multi_run, "run_in_processes", None)
    before = records(whole)
    call(monkeypatch, whole, "experiments=[dl2,offline_rl,no_replay]", "seeds=2", *BUDGET)
    output = capsys.readouterr().out
    assert "0 of 6 runs have no result yet" in output and output.rstrip().splitlines()[-1] == "out/paper.md"
    assert records(whole) == before


@pytest.mark.parametrize("place", ["between runs", "inside a run"])
def test_stopped_and_called_again(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    arguments = ["experiments=dl2", "seeds=2", *BUDGET]
    with monkeypatch.context() as patch:
        stop_after = 1 if place == "between runs" else None
        patch.setattr(agents.multi_run, "run_in_processes", lambda *a: in_this_process(*a, stop_after=stop_after))
        if stop_after is None:
            patch.setattr(Validator, "__call__", interrupted(Validator.__call__, 5))
        with pytest.raises(SystemExit) as end:
            call(patch, tmp_path, *arguments)
    assert end.value.code == 130
    assert "go on with: " in capsys.readouterr().err
    done = len(records(tmp_path))
    assert done == 1
    with monkeypatch.context() as patch:
        patch.setattr(agents.multi_run, "run_in_processes", in_this_process)
        call(patch, tmp_path, *arguments)
    assert "1 of 2 runs have no result yet" in capsys.readouterr().out
    expected = records(whole)
    for name, content in records(tmp_path).items():
        assert content == expected[name]


def test_other_settings_do_not_replace_a_result(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, whole, "experiments=dl2", "seeds=[1]", "scale=0.5", "out=out")
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "out/results/dl2/seed-1.json: made with other settings (scale 0.001); replace it with replace=true" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["experiments=[dl3]"], "unknown experiment or claim 'dl3'; choose one of: "),
        (["experiments=[]"], "experiments=[]: give all, or a list"),
        (["seeds=[]"], "seeds: there is none"),
        (["seeds=[1,1]"], "a seed is repeated"),
        (["seeds=0"], "seeds: there is none"),
        (["scale=0"], "scale=0.0 must be a positive number"),
        (["scale=much"], "scale: expected float"),
        (["processes=0"], "processes=0 must be at least 1"),
        (["overrides=['dl2.num_updatez=3']"], "dl2.num_updatez: unknown key; did you mean dl2.num_updates?"),
        (["overrides=['dl2.num_updates=0']", "scale=1"], "dl2.num_updates=0 must be at least 1"),
        (["overrides=['env.dynamics.speed_noise=-1']"], "speed_noise"),
        (["overrides=['seed=3']"], "overrides: 'seed=3': give key=value, but not for experiment"),
        (["overrides=['ppo']"], "overrides: 'ppo': give key=value"),
        (["out="], "out= is empty"),
        (["runz=x"], "runz: unknown key"),
    ],
)
def test_wrong_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(agents.multi_run, "run_in_processes", None)
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, tmp_path, *(["out=out"] if "out=" not in arguments else []), *arguments)
    error = capsys.readouterr().err
    assert end.value.code == 2 and message in error and error.count("\n") == 1, error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_damaged_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out" / "results" / "dl2" / "seed-1.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": "dl2env-paper-run", "schema_ver')
    for arguments in (["experiments=dl2", "seeds=1"], ["build_only=true"]):
        with pytest.raises(SystemExit) as end:
            call(monkeypatch, tmp_path, *arguments, *BUDGET)
        assert end.value.code == 2
        assert "out/results/dl2/seed-1.json: not a JSON file" in capsys.readouterr().err


def test_a_failed_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_process: None
) -> None:
    def fails(*arguments: Any) -> None:
        raise ConfigError("no luck today")

    monkeypatch.setattr(agents.pipeline, "run_fine_tuning", fails)
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, tmp_path, "experiments=dl2", "seeds=1", *BUDGET, "run_dir=here")
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert "1 runs failed (tracebacks: here/failures.txt)" in error and "dl2, seed 1: no luck today" in error
    assert (tmp_path / "out" / "paper.md").exists()


def test_scale() -> None:
    values = command_line.compose_run(["experiment=paper/dl2"])
    small = scaled(values, 0.01)
    assert small["warmup"]["num_decisions"] == 1024  # at least
    assert (small["dl2"]["num_updates"], small["dl2"]["num_decisions"], small["dl2"]["validate_every"]) == (
        60,
        20_000,
        15,
    )
    assert scaled(values, 1.0) == values and small["ppo"] == values["ppo"]
    for wrong in (0.0, -1.0, float("inf"), True):
        with pytest.raises(ConfigError, match="scale"):
            scaled(values, wrong)


def test_only_what_matters_for_the_warmup() -> None:
    """Where the critic is not trained, rewards and the learner have no part in the warm-up."""
    base, reward, teacher = (
        only_warmup(command_line.compose_run([f"experiment=paper/{name}"]))
        for name in ("dl2", "reward_jct", "teacher_fifo")
    )
    assert base == reward != teacher
    critic = [command_line.compose_run(["algorithm=ppo", f"ppo.gae_lambda={value}"]) for value in (0.5, 0.9)]
    assert only_warmup(critic[0]) != only_warmup(critic[1])


def test_every_experiment_gets_settings_that_hold(tmp_path: Path) -> None:
    from scripts.reproduce_paper import PaperSettings, _runs

    claims = read_claims()
    settings = PaperSettings(0.1, (), 1, str(tmp_path / "runs"), str(tmp_path / "out"), False, False)
    runs = _runs(settings, claims, ["offline_rl", "window_40", "warmup_only"], [1, 2])
    assert len({run.path for run in runs}) == len({run.record_path for run in runs}) == 6
    assert [run.is_timed for run in runs] == [False, False, True, True, False, False]
    assert runs[0].test_settings is not None and runs[2].test_settings is None
    assert not runs[4].checked.fine_tuning.enabled and runs[4].cost < runs[0].cost


@pytest.mark.slow
def test_killed_and_called_again(whole: Path, tmp_path: Path) -> None:
    """Real processes, ended by force at once, all of them; the same command completes the results."""
    arguments = [sys.executable, str(ROOT / "scripts" / "reproduce_paper.py"), "experiments=dl2", "seeds=2", *BUDGET]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 300.0
        while not list(tmp_path.glob("runs/paper/dl2/*/last")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    expected = records(whole)
    found = records(tmp_path)
    assert len(found) == 2
    for name, content in found.items():
        assert content == expected[name]
