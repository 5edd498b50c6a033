"""One step time: simulator kernel, analytic model and PAI library agree for every architecture and placement.

The simulator is run for one interval with tasks pinned to servers; the step time follows from the epochs that the job
trained. So this covers the kernel as the simulator calls it, whatever it is made of.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, DynamicsConfig, EnvConfig, ServerGroup, SpeedConfig, WorkloadConfig
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.analytic import step_time
from dl2env.speed.characterization import PaiWorkloads, StepModel, architecture_index
from dl2env.speed.hardware import load_hardware
from dl2env.speed.port import port
from dl2env.workload.jobs import Workload
from tests.speed.cases import job_type

NUM_JOBS, INTERVAL_S, NUM_SERVERS, NUM_GPUS = 12, 1000.0, 24, 8
TOLERANCE = 1e-12
EPOCHS = 1e15  # more than any job trains


@dataclasses.dataclass(frozen=True)
class Case:
    """An architecture of the library and where the simulator puts its tasks: server ids, one per task."""

    ours: str
    pai: str
    workers: tuple[int, ...]
    ps: tuple[int, ...] = ()
    cluster_shares_pcie: bool = True


def apart(num_workers: int, num_ps: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(range(num_workers)), tuple(range(num_workers, num_workers + num_ps))


PS_COUNTS = [(1, 1), (2, 2), (3, 9), (8, 8)]  # as many PSs as workers or more
CASES = {
    "1w1g": Case("1w1g", "1w1g", (5,)),
    **{f"{name}, {n}": Case(name, name, (3,) * n) for name in ("1wng", "pearl") for n in (1, 2, 5, 8)},
    **{f"PS/Worker, {w} + {p}": Case("ps_worker", "ps_worker", *apart(w, p)) for w, p in PS_COUNTS},
    **{f"AllReduce-Local, {n}": Case("all_reduce", "allreduce_local", (0,) * n) for n in (2, 4, 7, 8)},
    # Full servers share PCIe as the library has it; a worker per server shares nothing.
    **{
        f"AllReduce-Cluster, packed {n}": Case("all_reduce", "allreduce_cluster", tuple(i // 8 for i in range(n)))
        for n in (9, 12, 16)
    },
    **{
        f"AllReduce-Cluster, apart {n}": Case("all_reduce", "allreduce_cluster", apart(n)[0], (), False)
        for n in (2, 5, 16)
    },
}


def features(seed: int) -> dict[str, NDArray[np.float64]]:
    """Features over many orders of magnitude; some jobs lack one of them."""
    rng = np.random.default_rng(seed)
    names = ("flops", "memory_bytes", "input_bytes", "weight_traffic_bytes")
    drawn = {
        name: 10 ** rng.uniform(low, high, NUM_JOBS)
        for name, (low, high) in zip(names, [(9, 14), (7, 12), (4, 10), (5, 11)], strict=True)
    }
    for i, name in enumerate(names[1:]):
        drawn[name][i] = 0.0
    return drawn


def simulated_step_s(
    case: Case,
    work: dict[str, NDArray[np.float64]],
    synchronous: bool,
    overlap: Any,
    group: int,
    hardware: str,
    gpu: str,
) -> tuple[NDArray[np.float64], ClusterSimulator]:
    """(NUM_JOBS,) seconds of a step, one job per environment."""
    batch = 12.0
    types = [
        job_type(
            f"job-{i}",
            architecture=case.ours,
            synchronous=synchronous,
            batch_size=batch,
            worker_cpus=1,
            ps_cpus=1,
            **{name: float(values[i]) for name, values in work.items()},
        )
        for i in range(NUM_JOBS)
    ]
    config = EnvConfig(
        cluster=ClusterConfig(
            servers=(ServerGroup(NUM_SERVERS, cpus=16, gpus=NUM_GPUS, gpu_type=gpu),),
            hardware=hardware,
            pcie_group=group,
        ),
        workload=WorkloadConfig(num_jobs=1),
        speed=SpeedConfig(overlap=overlap),
        dynamics=DynamicsConfig(
            interval_s=INTERVAL_S, max_intervals=5, initial_bundle=False, scaling_cost="none", auto_advance=False
        ),
    )
    sim = ClusterSimulator(config, NUM_JOBS, job_types=types)
    names = tuple(kind.name for kind in types)
    sim.load(
        range(NUM_JOBS),
        [
            Workload(
                arrival_s=np.zeros(1),
                type_idx=np.array([i]),
                epochs=np.array([EPOCHS]),
                true_epochs=np.array([EPOCHS]),
                samples_per_epoch=np.ones(1),
                type_names=names,
                noise_key=0,
            )
            for i in range(NUM_JOBS)
        ],
    )
    for action, servers in ((0, case.workers), (1, case.ps)):
        for server in servers:
            sim.state.env["pinned_server"] = server
            report = sim.step(np.full(NUM_JOBS, action))
            assert not report.is_illegal.any()
    sim.step(np.full(NUM_JOBS, sim.num_actions - 1))
    done = np.array([sim.records(b).epochs_done[0] for b in range(NUM_JOBS)])
    num_batches = 1 if synchronous else len(case.workers)
    return num_batches * batch * INTERVAL_S / done, sim


def library_step_s(
    case: Case,
    work: dict[str, NDArray[np.float64]],
    synchronous: bool,
    overlap: Any,
    group: int,
    hardware: str,
    gpu: str,
) -> NDArray[np.float64]:
    workers = len(case.workers)
    # A synchronous job splits its batch over the workers; weights and gradients are not split.
    scale = {name: 1.0 if name == "weight_traffic_bytes" or not synchronous else workers for name in work}
    jobs = PaiWorkloads(
        architecture=np.array([architecture_index("ps_worker")]),
        num_cnodes=workers,
        batch_size=1.0,
        **{name: values / scale[name] for name, values in work.items()},
    )
    ported = port(jobs, case.pai)
    assert (ported.num_cnodes == workers).all()
    model = StepModel(load_hardware(hardware), gpu, overlap, group, case.cluster_shares_pcie)
    return model.breakdown(ported).total_s


def analytic_step_s(sim: ClusterSimulator, case: Case, overlap: Any, group: int) -> NDArray[np.float64]:
    counts = [np.bincount(np.array(servers, dtype=int), minlength=NUM_SERVERS) for servers in (case.workers, case.ps)]
    shape = (NUM_JOBS, NUM_SERVERS)
    return step_time(
        sim.speed,
        np.arange(NUM_JOBS),
        np.broadcast_to(counts[0], shape),
        np.broadcast_to(counts[1], shape),
        pcie_group=group,
        ideal_overlap=overlap == "ideal",
    ).total_s


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("synchronous", [False, True], ids=["async", "sync"])
def test_simulator_analytic_model_and_library_agree(name: str, synchronous: bool) -> None:
    case = CASES[name]
    worlds = [
        ("none", 8, "pai-base", "pai-base"),
        ("ideal", 4, "pai-testbed", "v100"),
        ("none", 0, "dl2-testbed", "t4"),
    ]
    for seed, world in enumerate(worlds):
        work = features(seed)
        simulated, sim = simulated_step_s(case, work, synchronous, *world)
        library = library_step_s(case, work, synchronous, *world)
        overlap, group = world[:2]
        np.testing.assert_allclose(simulated, library, rtol=TOLERANCE, atol=0)
        np.testing.assert_allclose(analytic_step_s(sim, case, overlap, group), library, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize(("ps", "factor"), [(1, 4.0), (2, 2.0), (3, 4 / 3), (4, 1.0)])
def test_fewer_servers_than_workers_multiply_the_ethernet_term_only(ps: int, factor: float) -> None:
    """Where the elastic model leaves the PAI row: W / P replicas' traffic through the busiest link."""
    case, work = Case("ps_worker", "ps_worker", *apart(4, ps)), features(0)
    world = ("none", 8, "pai-base", "pai-base")
    simulated, _ = simulated_step_s(case, work, False, *world)
    ethernet_s = work["weight_traffic_bytes"] / load_hardware("pai-base").effective_ethernet
    expected = library_step_s(case, work, False, *world) + (factor - 1) * ethernet_s
    np.testing.assert_allclose(simulated, expected, rtol=TOLERANCE, atol=0)


def test_one_all_reduce_worker_has_no_traffic_in_the_simulator() -> None:
    """The library takes S_w as measured, so a job of one replica must come with none; the elastic model knows W."""
    case, work = Case("all_reduce", "allreduce_local", (0,)), features(1)
    world = ("none", 8, "pai-base", "pai-base")
    simulated, _ = simulated_step_s(case, work, False, *world)
    without = {**work, "weight_traffic_bytes": np.zeros(NUM_JOBS)}
    np.testing.assert_allclose(simulated, library_step_s(case, without, False, *world), rtol=TOLERANCE, atol=0)
    assert (library_step_s(case, work, False, *world) >= simulated).all()
