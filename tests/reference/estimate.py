"""Exact knowledge of isolated speeds, computed from the true speed of jobs placed alone with a server per task."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, EnvConfig, ServerGroup
from dl2env.speed.parameters import SINGLE, SpeedParameters
from tests.reference.cluster import Cluster, Job, JobType, Tasks, read_types
from tests.reference.speed import Links, TrueSpeed


class _Stretched(Links):
    """Every link stretched alike."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def stretch(self, server_id: int, job: Job) -> float:
        return self.factor


def exact_estimate(config: EnvConfig, parameters: SpeedParameters, gpu_kind: int = 0) -> NDArray[np.float64]:
    """(T, W + 2, P + 2, 2) step seconds and, of these, the seconds that stretch multiplies; (inf, 0) without training.

    Args:
        config: Caps, PCIe sharing, overlap and speed model.
        parameters: Types and their speeds.
        gpu_kind: GPU kind that all workers use.
    """
    num_workers, num_ps = config.workload.max_workers + 2, config.workload.max_ps + 2
    estimate = np.zeros((len(parameters.types), num_workers, num_ps, 2))
    estimate[..., 0] = math.inf
    group = ServerGroup(num_workers + num_ps, gpu_type=parameters.gpu_kinds[gpu_kind])
    cluster = Cluster(ClusterConfig((group,)), parameters.gpu_kinds, "spread", False)
    speed = TrueSpeed(cluster, config.cluster, config.speed, parameters)
    for kind in read_types(parameters):
        for workers in range(1, 2 if kind.architecture == SINGLE else num_workers):
            for ps in range(1, num_ps) if kind.needs_ps else (0,):
                job = _isolated_job(kind, workers, ps)
                estimate[kind.index, workers, ps] = _step_and_communication(job, speed)
    return estimate


def _isolated_job(kind: JobType, workers: int, ps: int) -> Job:
    job = Job(0, kind, 0.0, 1.0, 1.0, 1.0)
    if kind.needs_one_server:
        job.tasks[0] = Tasks(workers, 0)
    else:
        job.tasks = {s: Tasks(1, 0) if s < workers else Tasks(0, 1) for s in range(workers + ps)}
    return job


def _step_and_communication(job: Job, speed: TrueSpeed) -> tuple[float, float]:
    alone = _Stretched(1.0)
    if speed.table is not None:
        samples = job.type.batch_size * (1 if job.type.is_synchronous else job.workers)
        measured = speed.speed(job, alone)
        return (samples / measured if measured > 0.0 else math.inf), 0.0
    communication_s = speed.weights_s(job, _Stretched(2.0)) - speed.weights_s(job, alone)
    return speed.step_s(job, alone), communication_s
