"""Several runs at a time: nothing finished is repeated, nothing stopped begins anew, wrong input is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import agents.multi_run
from agents.multi_run import TrainingRun, read_seeds, run_all, settings_digest, without_null
from agents.run_folder import WARMUP, RunFolder
from agents.seeds import SeedsFolder, is_seeds_folder
from agents.validation import Validator
from dl2env.errors import ConfigError
from dl2env.evaluation.leaderboard.pool import Event
from dl2env.evaluation.leaderboard.run import Progress
from tests.agents.test_pipeline import changed, interrupted, result, run

QUICK = changed(
    warmup={"num_decisions": 256, "epochs": 1},
    ppo={"num_decisions": 512, "validate_every": 2, "checkpoint_every": 1},
    evaluation={"plots": False, "decide": "sampled", "num_workloads": 2},
)


def in_this_process(
    job: Callable[..., Any], tasks: Sequence[Any], num_processes: int, stop_after: int | None = None
) -> Iterator[Event]:
    """The pool of processes, without the processes; the user stops it after some tasks."""
    for index, task in enumerate(tasks):
        if index == stop_after:
            raise KeyboardInterrupt
        yield Event(index, "started")
        told: list[float] = []
        try:
            yield Event(index, "done", job(task, told.append))
        except Exception as error:
            yield Event(index, "failed", str(error), "details")
        assert told == sorted(told) and all(0.0 <= share <= 1.0 for share in told)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.multi_run, "run_in_processes", in_this_process)
    monkeypatch.setattr(agents.multi_run, "_compile_kernels", lambda: None)


def runs_in(folder: Path, *seeds: int) -> list[TrainingRun]:
    return [TrainingRun(f"seed {s}", folder / f"seed-{s}", {**QUICK, "seed": s}, command=["test"]) for s in seeds]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Runs that were made one by one."""
    folder = tmp_path_factory.mktemp("whole")
    for seed in (1, 2):
        run(folder / str(seed), {**QUICK, "seed": seed})
    return {seed: folder / str(seed) for seed in (1, 2)}


def test_processes_do_what_single_runs_do(whole: dict[int, Path], tmp_path: Path) -> None:
    """Real processes, two at a time; done runs are not run again."""
    seen: list[Progress] = []
    runs = runs_in(tmp_path, 1, 2)
    first = run_all(runs, 2, seen.append)
    assert sorted(first.written) == [tmp_path / f"seed-{seed}" / "summary.json" for seed in (1, 2)]
    assert (first.kept, first.failures) == ([], [])
    for seed in (1, 2):
        assert result(tmp_path / f"seed-{seed}") == result(whole[seed])
        assert "fine-tuned" in (tmp_path / f"seed-{seed}" / "log.txt").read_text()
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    assert seen[-1].num_done == 2 and any(progress.running == ("seed 1", "seed 2") for progress in seen)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = run_all(runs, 2)
    assert (again.kept, again.written) == (["seed 1", "seed 2"], [])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_stopped_between_runs(
    whole: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_process: None
) -> None:
    runs = runs_in(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(agents.multi_run, "run_in_processes", lambda *a: in_this_process(*a, stop_after=1))
        with pytest.raises(KeyboardInterrupt):
            run_all(runs, 1)
    assert (tmp_path / "seed-1" / "summary.json").exists() and not (tmp_path / "seed-2").exists()
    after = run_all(runs, 1)
    assert (after.kept, len(after.written)) == (["seed 1"], 1)
    assert result(tmp_path / "seed-2") == result(whole[2])


def test_stopped_inside_a_run(
    whole: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_process: None
) -> None:
    """The third validation is at the end: the run has a checkpoint of its last update but one."""
    runs = runs_in(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Validator, "__call__", interrupted(Validator.__call__, 3))
        with pytest.raises(KeyboardInterrupt):
            run_all(runs, 1)
    assert list(RunFolder.open(tmp_path / "seed-1").phases) == [WARMUP]
    with monkeypatch.context() as patch:
        patch.setattr(agents.pipeline, "record_demonstrations", None)  # the warm-up is not made again
        run_all(runs, 1)
    assert result(tmp_path / "seed-1") == result(whole[1])


def test_one_run_fails_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_process: None) -> None:
    wrong = TrainingRun("wrong", tmp_path / "wrong", {**QUICK, "warmup": {"teacher": "drff"}})
    done = run_all([wrong, *runs_in(tmp_path, 1)], 1)
    assert len(done.written) == 1
    assert [(failure.label, "unknown scheduler 'drff'" in failure.error) for failure in done.failures] == [
        ("wrong", True)
    ]


def test_a_warmup_is_taken_over(whole: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "other"
    with monkeypatch.context() as patch:
        patch.setattr(agents.pipeline, "record_demonstrations", None)
        TrainingRun("other", path, {**QUICK, "seed": 1}, warmup_of=whole[1], command=["test"]).run(lambda share: None)
    assert result(path) == result(whole[1])
    assert RunFolder.open(path).result(WARMUP)["taken_from"] == str(whole[1])
    with pytest.raises(ConfigError, match="has no complete warm-up; run it first"):
        RunFolder.create(tmp_path / "new", QUICK).adopt_warmup(RunFolder.create(tmp_path / "none", QUICK))


def test_folders_of_something_else(tmp_path: Path, one_process: None) -> None:
    (one,) = runs_in(tmp_path, 1)
    RunFolder.create(one.path, {**QUICK, "seed": 7}).store()
    with pytest.raises(ConfigError, match=r"seed-1: holds a run with other settings; remove the folder"):
        run_all([one], 1)
    (one.path / "run.json").write_text("{ half")
    with pytest.raises(ConfigError, match=r"run\.json: cannot be read .*: remove the folder .*seed-1"):
        run_all([one], 1)
    with pytest.raises(ConfigError, match="processes=0 must be at least 1"):
        run_all([one], 0)


def test_cost_grows_with_the_budget(tmp_path: Path) -> None:
    (small,) = runs_in(tmp_path, 1)
    large = TrainingRun("large", tmp_path / "l", changed(ppo={"num_decisions": 100_000}))
    limited = TrainingRun("limited", tmp_path / "l", changed(ppo={"num_decisions": 100_000, "num_updates": 10}))
    assert small.cost < limited.cost < large.cost
    shared = TrainingRun("shared", tmp_path / "s", QUICK, warmup_of=tmp_path)
    assert shared.cost < small.cost


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "seeds: there is none"),
        (0, "seeds: there is none"),
        ([1, 2, 1], r"seeds=\[1, 2, 1\]: a seed is repeated"),
        (["1"], "give a list of whole numbers"),
        ([1.5], "give a list of whole numbers"),
        ("five", "seeds=five: give a list of whole numbers, or how many"),
        (True, "give a list of whole numbers"),
        ([-1], "-1 must lie in"),
        ([2**32], "must lie in"),
    ],
)
def test_wrong_seeds(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_seeds(value)


def test_seeds() -> None:
    assert read_seeds(3) == [1, 2, 3]
    assert read_seeds([4, 2]) == [4, 2]


def test_digest_ignores_what_is_null() -> None:
    assert settings_digest({**QUICK, "speed": {"model": None}}) == settings_digest(QUICK)
    assert settings_digest({**QUICK, "seed": 4}) != settings_digest(QUICK)
    assert without_null({"a": None, "b": {"c": None}, "d": {"e": 0}}) == {"d": {"e": 0}}


def test_several_seeds_in_one_folder(whole: dict[int, Path], tmp_path: Path, one_process: None) -> None:
    folder = SeedsFolder.create(tmp_path / "new", QUICK, [2, 1])
    run_all(folder.runs(["test"]), 1)
    assert is_seeds_folder(folder.path) and SeedsFolder.open(folder.path).seeds == [2, 1]
    table, path = SeedsFolder.open(folder.path).aggregate(["test"])
    content = json.loads(path.read_text())
    assert content["seeds"] == [2, 1] and set(content["schedulers"]) == {"drf", "random", "warm-up", "fine-tuned"}
    values = [result(whole[s])["schedulers"]["fine-tuned"]["per_workload"]["mean_jct_s"] for s in (1, 2)]
    mean = sum(map(sum, values)) / 4 / 1200.0
    assert content["schedulers"]["fine-tuned"]["mean_jct_intervals"]["estimate"] == pytest.approx(mean)
    assert f"{mean:.2f} [" in table and "2 training seeds" in table and "seed 2: fine-tuned" in table
    assert (folder.path / "table.md").read_text() == table + "\n"
    with pytest.raises(ConfigError, match="holds a run already; continue it with resume="):
        SeedsFolder.create(folder.path, QUICK, [1])


def test_damaged_folder_of_seeds(tmp_path: Path) -> None:
    folder = SeedsFolder.create(tmp_path / "new", QUICK, [1, 2])
    with pytest.raises(ConfigError, match=r"seed-1/summary\.json: cannot be read"):
        folder.aggregate()
    file = folder.path / "run.json"
    content = json.loads(file.read_text())
    for change, message in (
        ({"seeds": [1, 1]}, "a seed is repeated"),
        ({"schema": "x"}, "not a set of runs"),
        ({"settings": None}, "settings or seeds are missing"),
        ({"settings": {"nam": 1}}, "nam: unknown key"),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(ConfigError, match=message):
            SeedsFolder.open(folder.path)
    file.write_text("[]")
    with pytest.raises(ConfigError, match="not a run"):
        is_seeds_folder(folder.path)
