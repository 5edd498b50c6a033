"""A made-up small file of every format: name -> sample. The tests of this folder run on all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

TRACES_DIR = Path(os.environ.get("DL2ENV_TRACES_DIR", Path(__file__).resolve().parents[4] / "shared" / "traces"))
"""Public traces for tests of counts, where they are at hand."""


def real_file(name: str) -> Path:
    """A public trace file; the test is skipped where it is absent."""
    path = TRACES_DIR / name
    if not path.exists():
        pytest.skip(f"the public trace {name} is not at hand (DL2ENV_TRACES_DIR)")
    return path


@dataclass(frozen=True)
class Sample:
    """A small file of a format.

    Attributes:
        text: Its content: several rows, all of which become jobs.
        num_jobs: Jobs in it.
        suffix: Of the file's name.
        delimiter: Between cells; empty if the file is no table of cells.
        has_header: Whether the first line names columns that may be in any order.
        duration_column: Cell that holds the duration, from 0; None where there is none.
        companion: Content of the companion file, if the format needs one.
        companion_suffix: Of its name.
    """

    text: str
    num_jobs: int
    suffix: str = ".csv"
    delimiter: str = ","
    has_header: bool = True
    duration_column: int | None = None
    companion: str = ""
    companion_suffix: str = ".json"

    def write(self, folder: Path, content: str | bytes | None = None, name: str = "jobs") -> Path:
        """Writes the sample, or a variant of it, into a folder."""
        path = folder / f"{name}{self.suffix}"
        data = self.text if content is None else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def companion_path(self, folder: Path) -> Path | None:
        """Writes the companion file, if there is one."""
        if not self.companion:
            return None
        path = folder / f"companion{self.companion_suffix}"
        path.write_text(self.companion, encoding="utf-8")
        return path


SAMPLES: dict[str, Sample] = {
    "philly": Sample(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n"
        "2017-10-09 07:05:55,660.0,1,660.0,11cb48\n"
        "2017-10-09 06:13:33,30.0,8,240.0,6c71a0\n",
        num_jobs=4,
        duration_column=1,
    ),
    "pollux": Sample(
        "name,time,application,num_replicas,batch_size\n"
        "cifar10-0,107,cifar10,2,2048\n"
        "imagenet-1,110.5,imagenet,16,3200\n"
        "ncf-2,135,ncf,1,32768\n",
        num_jobs=3,
    ),
}
