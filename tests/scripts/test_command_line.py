"""Errors of the command line: one line that names the key and says the cure, status 2, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dl2env.errors import ConfigError
from scripts import command_line
from tests.scripts.calls import command

Seen = list[tuple[dict[str, Any], Path]]


def outcome(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    *arguments: str,
    task: command_line.Task | None = None,
) -> tuple[int, str, Seen]:
    """Exit status, stderr and what the task was called with."""
    seen: Seen = []

    def note(values: dict[str, Any], path: Path) -> None:
        assert path.is_dir()
        seen.append((values, path))

    status = 0
    with command(monkeypatch, folder, *arguments):
        try:
            command_line.run(task or note, "config")
        except SystemExit as end:
            status = int(end.code or 0)
    return status, capsys.readouterr().err, seen


def test_task_gets_plain_values_and_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, error, seen = outcome(monkeypatch, capsys, tmp_path, "seed=7", "experiment=scratch")
    assert (status, error, len(seen)) == (0, "", 1)
    values, folder = seen[0]
    assert values["seed"] == 7 and values["resume"] is None and values["warmup"]["enabled"] is False
    assert "run_dir" not in values and "hydra" not in values
    assert folder.parts[:2] == ("runs", "scratch") and not folder.is_absolute()


def test_run_dir_is_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where"
    (tmp_path / "here").mkdir()
    _, _, seen = outcome(monkeypatch, capsys, tmp_path / "here", f"run_dir='{elsewhere}'")
    assert seen[0][1] == elsewhere


def test_sweep_has_a_folder_per_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _, seen = outcome(monkeypatch, capsys, tmp_path, "-m", "seed=3,4", "run_dir=sweep")
    assert status == 0
    assert [(values["seed"], folder) for values, folder in seen] == [(3, Path("sweep/0")), (4, Path("sweep/1"))]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ppo.epochz=3"], ["ppo.epochz: unknown key", "did you mean ppo.epochs?"]),
        (["ppo.zzz=3"], ["ppo.zzz: unknown key", "known keys: checkpoint_every, clip_range,"]),
        (["nonsense=1"], ["nonsense: unknown key", "known keys: agent,"]),
        (["nonsense.deep=1"], ["nonsense.deep: unknown key", "there is no group nonsense"]),
        (["scenario=other"], ["scenario=other: unknown; choose one of: bursty-v1, ", " dl2-small-v1, "]),
        (
            ["experiment=other"],
            ["experiment=other: unknown; choose one of: default, generalist, scratch, smoke, warmup_only"],
        ),
        (["seed=[1"], ["seed=[1: cannot be read", "write key=value"]),
        (["seed"], ["seed: cannot be read"]),
        (["+seed=1"], ["seed=1"]),
        (["~nothing"], ["nothing"]),
        (["seed=${nothing}"], ["nothing"]),
        (["ppo=1"], ["ppo=1: unknown; choose one of: "]),
        (["+env=3"], ["+env=3: unknown; choose one of: checkpoint_scaling,"]),
        (["env=[3]"], ["env=[3]: unknown; choose one of: checkpoint_scaling,"]),
        (["=3"], ["write key=value"]),
        (["run_dir="], ["run_dir=: not the name of a folder"]),
        (["run_dir=null"], ["run_dir=None: not the name of a folder"]),
        (["run_dir=/dev/null"], ["/dev/null: no run folder can be made there", "choose another run_dir"]),
        (["run_dir=/dev/null/a"], ["/dev/null/a: no run folder can be made there", "choose another run_dir"]),
        (["resume=runs/none"], ["resume=runs/none: no run to resume", "give the folder of a run"]),
    ],
)
def test_wrong_arguments(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    status, error, seen = outcome(monkeypatch, capsys, tmp_path, *arguments)
    assert (status, seen) == (2, [])
    assert error.startswith("error: ") and error.count("\n") == 1
    assert [word for word in words if word not in error] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_resumed_run_takes_no_other_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{}")
    status, error, seen = outcome(monkeypatch, capsys, tmp_path, "resume=old", "seed=3")
    assert (status, seen) == (2, [])
    assert error == "error: resume: a resumed run keeps its own settings; leave out seed=3\n"
    status, error, seen = outcome(monkeypatch, capsys, tmp_path, "resume=old")
    assert (status, error) == (0, "")
    assert seen[0][1] == Path("old") and seen[0][0]["resume"] == "old"


def test_errors_of_the_task_are_one_line_and_leave_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(values: dict[str, Any], path: Path) -> None:
        raise ConfigError("jobs.csv, row 3: duration is NaN;\n  mend it")

    status, error, _ = outcome(monkeypatch, capsys, tmp_path, "run_dir=new", task=fail)
    assert (status, error) == (2, "error: jobs.csv, row 3: duration is NaN; mend it\n")
    assert not (tmp_path / "new").exists()


def test_ctrl_c_has_its_own_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def stop(values: dict[str, Any], path: Path) -> None:
        raise KeyboardInterrupt

    status, error, _ = outcome(monkeypatch, capsys, tmp_path, task=stop)
    assert (status, error) == (130, "interrupted\n")


def test_a_bug_is_not_dressed_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def crash(values: dict[str, Any], path: Path) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        outcome(monkeypatch, capsys, tmp_path, task=crash)
