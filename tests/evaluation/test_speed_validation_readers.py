"""Readers of measured step times, on small files of the published forms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.folds import configuration_folds
from dl2env.evaluation.speed_validation.readers import read_application, read_applications, read_ps_tables
from dl2env.evaluation.speed_validation.steps import repeat_error
from dl2env.workload.job_types import load_job_types

PLACEMENTS = "placement,local_bsz,step_time,sync_time\n1,32,0.5,0.1\n12,32,0.8,0.2\n21,32,1.0,0.2\n\n"
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n3,7,64,2.0,1.0\n"


def write_application(folder: Path, placements: str | None = PLACEMENTS, scalability: str | None = SCALABILITY) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("placements.csv", placements), ("scalability.csv", scalability)):
        if text is not None:
            (folder / name).write_text(text)
    return folder


def test_placements_and_spread_replicas(tmp_path: Path) -> None:
    steps = read_application(write_application(tmp_path / "cifar10"))
    assert steps.name == "cifar10" and steps.size == 4
    assert steps.workers.tolist() == [[1, 0, 0], [2, 1, 0], [2, 1, 0], [3, 2, 2]]
    assert not steps.ps.any()
    assert steps.batch.tolist() == [32, 32, 32, 64] and steps.step_s.tolist() == [0.5, 0.8, 1.0, 2.0]
    assert steps.configuration.tolist() == ["1", "2+1", "2+1", "3+2+2"]  # servers are alike
    assert steps.groups() == ["1 GPU", "2 servers", "3 servers"]
    assert repeat_error(steps) == pytest.approx((0.9 / 0.8 - 1 + 1 - 0.9) / 2)  # median 0.9 against 0.8 and 1.0


def test_columns_in_any_order_and_more_of_them(tmp_path: Path) -> None:
    text = "\ufeffx, step_time ,placement,local_bsz\nq,0.25,44,8\n"
    steps = read_application(write_application(tmp_path / "bert", text, None))
    assert steps.workers.tolist() == [[4, 4]] and steps.step_s.tolist() == [0.25]


def test_folders_below_traces(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_application(tmp_path / "traces" / name)
    (tmp_path / "workloads").mkdir()
    assert [steps.name for steps in read_applications(tmp_path)] == ["a", "b"]
    assert [steps.name for steps in read_applications(tmp_path / "traces")] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "placement,local_bsz,step_time"]),
        ("placement,local_bsz,step_time\n", ["no row"]),
        ("placement;local_bsz;step_time\n1;2;3\n", ["commas"]),
        ("placement\tlocal_bsz\tstep_time\n1\t2\t3\n", ["commas"]),
        ("placement,local_bsz\n1,2\n", ["no column step_time"]),
        ("placement,local_bsz,step_time\n1,32,0.5\n1,32,-0.5\n", ["line 3", "step_time='-0.5'", "positive"]),
        ("placement,local_bsz,step_time\n1,32,0\n", ["line 2", "step_time"]),
        ("placement,local_bsz,step_time\n1,32,nan\n", ["line 2", "step_time"]),
        ("placement,local_bsz,step_time\n1,32,1e300\n", ["line 2", "step_time='1e300'", "unit"]),
        ("placement,local_bsz,step_time\n1,1e-300,1\n", ["line 2", "local_bsz='1e-300'", "unit"]),
        ("placement,local_bsz,step_time\n1,many,1\n", ["line 2", "local_bsz='many'"]),
        ("placement,local_bsz,step_time\n1,32\n", ["line 2", "2 values for 3 columns"]),
        ("placement,local_bsz,step_time\n10,32,1\n", ["line 2", "placement='10'"]),
        ("placement,local_bsz,step_time\nab,32,1\n", ["line 2", "placement='ab'"]),
    ],
)
def test_wrong_placements(tmp_path: Path, text: str, words: list[str]) -> None:
    folder = write_application(tmp_path / "app", text, None)
    with pytest.raises(ConfigError) as error:
        read_application(folder)
    message = str(error.value)
    assert all(word in message for word in ["placements.csv", *words]) and "\n" not in message


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("4,3,8,1.0", ["num_nodes=4", "num_replicas=3"]),
        ("1.5,3,8,1.0", ["num_nodes='1.5'", "whole"]),
        ("1000000,1000000,8,1.0", ["num_nodes=1000000", "100,000"]),
    ],
)
def test_wrong_scalability(tmp_path: Path, row: str, words: list[str]) -> None:
    folder = write_application(tmp_path / "app", None, f"num_nodes,num_replicas,local_bsz,step_time\n{row}\n")
    with pytest.raises(ConfigError) as error:
        read_application(folder)
    assert all(word in str(error.value) for word in ["scalability.csv, line 2", *words])


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        read_applications(tmp_path / "none")
    with pytest.raises(ConfigError, match="no folder in it has placements.csv"):
        read_applications(tmp_path)
    with pytest.raises(ConfigError, match="neither"):
        read_application(tmp_path)


def ps_table(path: Path, speed: list[list[float | None]], name: str = "resnet-50", **entry: object) -> Path:
    content = {"schema": "dl2env-speed-table/1", "types": {name: {"speed": speed, **entry}}}
    path.write_text(json.dumps(content))
    return path


def test_speeds_become_step_times(tmp_path: Path) -> None:
    job_types = load_job_types("dl2")
    batch = next(t.batch_size for t in job_types if t.name == "resnet-50")
    measured = [[True, True], [True, False]]
    ps_table(tmp_path / "t.json", [[16.0, 8.0], [0.0, 99.0]], measured=measured)
    (steps,) = read_ps_tables(tmp_path / "t.json", job_types)
    assert steps.step_s.tolist() == [batch / 16.0, batch / 8.0]  # the failed run and the unmeasured cell are left out
    assert steps.num_failed == 1
    assert steps.workers.tolist() == [[1, 0, 0], [1, 1, 0]] and steps.ps.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert steps.configuration.tolist() == ["1 workers, 1 PSs", "2 workers, 1 PSs"]


def test_tables_of_a_folder_must_agree(tmp_path: Path) -> None:
    job_types = load_job_types("dl2")
    ps_table(tmp_path / "a.json", [[16.0, 8.0]])
    ps_table(tmp_path / "b.json", [[16.0, 8.0, 7.0], [9.0, 9.0, 9.0]])
    (steps,) = read_ps_tables(tmp_path, job_types)
    assert steps.size == 6
    ps_table(tmp_path / "b.json", [[15.0, 8.0, 7.0], [9.0, 9.0, 9.0]])
    with pytest.raises(ConfigError, match="differ"):
        read_ps_tables(tmp_path, job_types)


def test_wrong_tables(tmp_path: Path) -> None:
    job_types = load_job_types("dl2")
    with pytest.raises(ConfigError, match="no JSON file"):
        read_ps_tables(tmp_path, job_types)
    with pytest.raises(ConfigError, match="'alexnet' is no job type"):
        read_ps_tables(ps_table(tmp_path / "t.json", [[1.0]], "alexnet"), job_types)
    with pytest.raises(ConfigError, match="no measured speed"):
        read_ps_tables(ps_table(tmp_path / "t.json", [[None]]), job_types)
    with pytest.raises(ConfigError, match="batch_size 7"):
        read_ps_tables(ps_table(tmp_path / "t.json", [[1.0]], batch_size=7), job_types)
    with pytest.raises(ConfigError, match="has no parameter servers"):
        read_ps_tables(ps_table(tmp_path / "t.json", [[1.0]], "cifar10"), load_job_types("adaptdl"))


def test_group_labels_of_cells(tmp_path: Path) -> None:
    ps_table(tmp_path / "t.json", np.ones((12, 12)).tolist())
    (steps,) = read_ps_tables(tmp_path / "t.json", load_job_types("dl2"))
    assert steps.groups() == ["2-6 tasks", "7-12 tasks", "13-18 tasks", "over 18 tasks"]
    assert set(steps.num_tasks[steps.group == "13-18 tasks"]) == {13, 14, 15, 16, 17, 18}


@pytest.mark.parametrize(
    ("value", "words"), [("-1.0", "must not be negative"), ("1e300", "at most 1e"), ("9" * 400, "at most 1e")]
)
def test_impossible_speeds(tmp_path: Path, value: str, words: str) -> None:
    path = tmp_path / "table.json"
    text = ps_table(tmp_path / "whole.json", [[1.25, 2.0]]).read_text()
    path.write_text(text.replace("1.25", value))
    with pytest.raises(ConfigError, match=words) as error:
        read_ps_tables(path, load_job_types("dl2"))
    assert "speed[0][0]" in str(error.value) and len(str(error.value)) < 300


def test_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_ps_tables(path, load_job_types("dl2"))


def test_one_configuration_cannot_be_left_out(tmp_path: Path) -> None:
    steps = read_application(write_application(tmp_path / "app", "placement,local_bsz,step_time\n1,32,1\n", None))
    with pytest.raises(ConfigError, match="one configuration only"):
        configuration_folds(steps, 10, np.random.default_rng(0))
