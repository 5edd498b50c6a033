"""All splits of a scenario share one reading of a trace; a file that changes is read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl2env.config import EnvConfig, TraceConfig
from dl2env.config import WorkloadConfig as Workloads
from dl2env.errors import TraceError
from dl2env.scenarios import get_scenario
from dl2env.workload import build_workload_source
from dl2env.workload.traces import configured
from tests.workload.traces.samples import SAMPLES

TEXT = SAMPLES["tiresias"].text


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the traces that are read."""
    names: list[str] = []
    real = configured.read_found

    def counted(found: Any, **options: Any) -> Any:
        names.append(found.source.path)
        return real(found, **options)

    monkeypatch.setattr(configured, "read_found", counted)
    configured._read.cache_clear()
    return names


def jobs(path: Path, **trace: Any) -> Any:
    return build_workload_source(EnvConfig(workload=Workloads(num_jobs=1, trace=TraceConfig(str(path), **trace))))


def test_splits_share_a_reading(reads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = "".join(f"{i},1,{10 * i},{i + 1},vgg19,100,30\n" for i in range(40))
    path.write_text(TEXT.splitlines(keepends=True)[0] + rows)
    scenario = get_scenario("dl2-small-v1").derive({"workload.trace.path": str(path), "workload.num_jobs": 2})
    firsts = {split: scenario.workload_source(split)(0, 0, 0).provenance["first_job"] for split in ("train", "test")}
    assert firsts["train"] < 30 <= firsts["test"]
    scenario.workload_source("validation")
    assert reads == [str(path)]


def test_a_changed_file_is_read_again(reads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TEXT)
    assert jobs(path)(0, 0, 0).provenance["trace"]["reading"]["rows_kept"] == 3
    jobs(path)
    jobs(path, seed=1)
    assert len(reads) == 1
    jobs(path, strict=True)
    assert len(reads) == 2
    path.write_text("".join(TEXT.splitlines(keepends=True)[:2]))
    assert jobs(path)(0, 0, 0).provenance["trace"]["reading"]["rows_kept"] == 1
    assert len(reads) == 3
    stat = path.stat()
    path.write_text(path.read_text().replace("160", "170"))  # of the same length
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    jobs(path)
    assert len(reads) == 4
    path.unlink()
    with pytest.raises(TraceError, match="no such file"):
        jobs(path)


def test_another_companion_is_read(reads: list[str], tmp_path: Path) -> None:
    sample = SAMPLES["gavel"]
    path = sample.write(tmp_path)
    beside = tmp_path / "simulation_throughputs.json"
    steps = []
    for factor in ("10.0", "20.0"):
        beside.write_text(sample.companion.replace("10.0", factor))
        steps.append(jobs(path)(0, 0, 0).provenance["trace"]["steps"][1]["sha256"])
    assert len(reads) == 2 and steps[0] != steps[1]


def test_shared_arrays_are_read_only(reads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TEXT)
    found = configured.find_trace(path)
    table, _ = configured._read("tiresias", found.source, None, False, configured._stamps([path]))
    for array in (table.arrival_s, table.extra["iterations"], table.label.codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    np.testing.assert_array_equal(table.arrival_s, [0, 30, 55])
