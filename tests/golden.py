"""Reads golden files: traces with the exact outcome of the released DL2 simulator.

The environment variable `DL2ENV_GOLDEN_DIR` names the folder; the default is `../shared/golden` beside the repository.
Typical use in a test module::

    @pytest.mark.parametrize("path", golden_params())
    def test_something(path):
        golden = load_golden(path)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.config import (
    ClusterConfig,
    DynamicsConfig,
    EnvConfig,
    ObservationConfig,
    RewardConfig,
    ServerGroup,
    SpeedConfig,
    WorkloadConfig,
)
from dl2env.speed.parameters import PS_WORKER, TYPE_DTYPE, SpeedParameters
from dl2env.workload.jobs import Workload

GOLDEN_DIR_VARIABLE = "DL2ENV_GOLDEN_DIR"
_DEFAULT_DIR = Path(__file__).resolve().parents[1] / ".." / "shared" / "golden"
_GPU_KIND = "pai-base"
_DEFAULT_DEMANDS = ([2, 4], [2, 0])  # of types that no job of the file has


def golden_dir() -> Path:
    """Folder that is searched for golden files; it need not exist."""
    return Path(os.environ.get(GOLDEN_DIR_VARIABLE) or _DEFAULT_DIR).resolve()


def golden_files() -> list[Path]:
    """Golden files, sorted by name; empty when there are none."""
    return sorted(golden_dir().glob("*.json"))


def golden_params(slow: tuple[str, ...] = ()) -> list[Any]:
    """Paths for `pytest.mark.parametrize`, or one skipped entry that gives the reason.

    Args:
        slow: Prefixes of file names that get the mark `slow`.
    """
    files = golden_files()
    if not files:
        reason = f"no golden files in {golden_dir()}; name their folder in {GOLDEN_DIR_VARIABLE}"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="no-golden-files")]
    params = []
    for path in files:
        marks = [pytest.mark.slow] if path.name.startswith(slow) else []
        params.append(pytest.param(path, marks=marks, id=path.stem))
    return params


@dataclass(frozen=True)
class Golden:
    """One golden file.

    Attributes:
        name: Name of the file's scenario.
        config: Faithful environment of it; reward is the `progress` term, as in the released code.
        workload: Its jobs; `samples_per_epoch` holds batches per epoch (the released unit slip).
        parameters: Types with demands and the measured table, (T, W + 2, P + 2) by (workers, PSs).
        estimate: (T, W + 2, P + 2, 2) step seconds (inverse of the table, 0 where that is not positive) and 0
            communication seconds.
        job_ids: Id in the file of each job of the workload.
        slot_s: Length of an interval in seconds.
        is_fine_grained: Whether jobs finish inside an interval.
        heuristics: Outcome by heuristic (`DRF`, `SRTF`, `FIFO`, `Tetris`, `Optimus`), as in the file.
        rl: Transitions of the released RL environment, as in the file.
    """

    name: str
    config: EnvConfig
    workload: Workload
    parameters: SpeedParameters
    estimate: NDArray[np.float64]
    job_ids: tuple[int, ...]
    slot_s: float
    is_fine_grained: bool
    heuristics: dict[str, Any]
    rl: dict[str, Any]

    def end_times(self, finish_s: NDArray[np.float64] | list[float]) -> dict[int, float]:
        """Released `end_time` in slots by job id, from finish times in seconds in the workload's order."""
        return {job: float(finish) / self.slot_s - 1.0 for job, finish in zip(self.job_ids, finish_s, strict=True)}

    def jct_slots(self, finish_s: NDArray[np.float64] | list[float]) -> dict[int, float]:
        """Released job completion time in slots by job id."""
        pairs = zip(self.job_ids, finish_s, self.workload.arrival_s, strict=True)
        return {job: (float(finish) - float(arrival)) / self.slot_s for job, finish, arrival in pairs}


def load_golden(path: Path) -> Golden:
    """Reads one golden file.

    Args:
        path: JSON file as described in the README of the golden folder.

    Raises:
        ValueError: Jobs are not in arrival order or differ in demands within a type, or the table ends at the caps.
    """
    raw = json.loads(path.read_text())
    released, jobs = raw["config"], raw["jobs"]
    slot_s = float(released["slot_seconds"])
    max_workers, max_ps = int(released["max_workers"]), int(released["max_ps"])
    type_ids = sorted(int(key) for key in raw["speed_table_ext"])
    parameters = _parameters(path, raw, type_ids, max_workers, max_ps)

    keys = [(job["arrival_slot"], job["id"]) for job in jobs]
    if keys != sorted(keys):
        raise ValueError(f"{path}: jobs are not in the order (arrival_slot, id)")
    workload = Workload(
        arrival_s=np.array([job["arrival_slot"] * slot_s for job in jobs]),
        type_idx=np.array([type_ids.index(job["type"]) for job in jobs], dtype=np.int32),
        epochs=np.array([float(job["num_epochs"]) for job in jobs]),
        true_epochs=np.array([float(job["real_num_epochs"]) for job in jobs]),
        samples_per_epoch=np.array([float(job["epoch_size"]) for job in jobs]),
        type_names=parameters.type_names,
    )
    cpus, gpus = released["slots_per_node"]
    config = EnvConfig(
        cluster=ClusterConfig(servers=(ServerGroup(int(released["num_nodes"]), int(cpus), int(gpus), _GPU_KIND),)),
        workload=WorkloadConfig(num_jobs=len(jobs), max_workers=max_workers, max_ps=max_ps),
        speed=SpeedConfig(model="measured", table=str(path)),
        dynamics=DynamicsConfig.faithful(
            interval_s=slot_s,
            max_intervals=1_000_000,  # the released limit of 1000 holds in its RL environment only, and raises
            exact_finish=bool(released["fine_grain_jct"]),
        ),
        reward=RewardConfig(progress=1.0, speed_gain=0.0),
        observation=ObservationConfig(window=int(released["window"])),
    )
    return Golden(
        name=raw["name"],
        config=config,
        workload=workload,
        parameters=parameters,
        estimate=_estimate(parameters.table),
        job_ids=tuple(job["id"] for job in jobs),
        slot_s=slot_s,
        is_fine_grained=bool(released["fine_grain_jct"]),
        heuristics=raw["heuristics"],
        rl=raw["rl"],
    )


def _parameters(path: Path, raw: dict[str, Any], type_ids: list[int], max_workers: int, max_ps: int) -> SpeedParameters:
    types = np.zeros(len(type_ids), dtype=TYPE_DTYPE)
    table = np.zeros((len(type_ids), max_workers + 2, max_ps + 2))
    names = []
    for index, type_id in enumerate(type_ids):
        of_type = [job for job in raw["jobs"] if job["type"] == type_id]
        names.append(of_type[0]["model"] if of_type else f"type-{type_id}")
        worker, ps = (of_type[0]["worker_demand"], of_type[0]["ps_demand"]) if of_type else _DEFAULT_DEMANDS
        for job in of_type:
            if (job["worker_demand"], job["ps_demand"]) != (worker, ps):
                raise ValueError(f"{path}: job {job['id']} has other demands than earlier jobs of type {type_id}")
        record = types[index]
        record["architecture"], record["is_synchronous"] = PS_WORKER, True
        record["max_workers"], record["max_ps"] = max_workers, max_ps
        record["worker_cpus"], record["worker_gpus"] = worker
        record["ps_cpus"], record["ps_gpus"] = ps
        record["batch_size"] = 1.0  # so that an estimated step lasts 1 / speed
        by_ps_and_worker = np.array(raw["speed_table_ext"][str(type_id)], dtype=np.float64)
        if by_ps_and_worker.shape[0] <= max_ps or by_ps_and_worker.shape[1] <= max_workers:
            raise ValueError(f"{path}: speed_table_ext of type {type_id} must reach one past the caps")
        table[index, 1:, 1:] = by_ps_and_worker.T[: max_workers + 1, : max_ps + 1]
    compute_s = np.zeros((len(type_ids), 1))
    return SpeedParameters(types, compute_s, table, (_GPU_KIND,), tuple(names))


def _estimate(table: NDArray[np.float64]) -> NDArray[np.float64]:
    estimate = np.zeros((*table.shape, 2))
    np.divide(1.0, table, out=estimate[..., 0], where=table > 0.0)
    return estimate
