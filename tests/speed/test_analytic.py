from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.errors import PlacementError, UnknownNameError
from dl2env.speed.analytic import analytic_parameters, isolated_step_time, samples_per_s, step_time
from dl2env.speed.characterization import NO_SHARING, PaiWorkloads, architecture_index, step_breakdown
from dl2env.speed.hardware import load_hardware
from dl2env.speed.parameters import ARCHITECTURES, SpeedParameters
from dl2env.speed.port import port
from tests.speed.cases import HARDWARE, MIXED_CLUSTER, all_types, close, job_type, parameters

TYPES = all_types()
ALL = parameters(*TYPES, cluster=MIXED_CLUSTER)


def scalar_step_time(
    p: SpeedParameters, t: int, workers: list[int], ps: list[int], stretch: list[float], kinds: list[int], group: int
) -> tuple[float, float, float, float]:
    """Input, compute, weights and overhead of one job that can train, after the text of docs/architecture.md."""
    job, names = p.types[t], {code: name for name, code in ARCHITECTURES.items()}
    architecture = names[int(job["architecture"])]
    used = [s for s in range(len(workers)) if workers[s] + ps[s] > 0]
    w, n_ps = sum(workers), sum(ps)
    x = 1.0 / w if job["is_synchronous"] else 1.0
    k = min(max(workers), group) if group > 0 else 1
    input_s = job["input_s"] * x * k
    compute_s = max(p.compute_s[t, kinds[s]] for s in used if workers[s] > 0) * x
    stretch = [value if len(used) > 1 else 1.0 for value in stretch]
    if architecture == "ps_worker":
        weight_s = 0.0
        if len(used) > 1:
            weight_s = job["ethernet_s"] * max(
                stretch[s] * (workers[s] * (n_ps - ps[s]) + ps[s] * (w - workers[s])) / n_ps for s in used
            )
        weight_s += job["weight_pcie_s"]
        weight_s += job["ps_service_s"] * w / n_ps * max(stretch[s] for s in used if ps[s] > 0)
    elif architecture == "all_reduce":
        weight_s = job["nvlink_s"] if w > 1 else 0.0
        if len(used) > 1:
            weight_s += job["ethernet_s"] * max(stretch[s] for s in used)
    else:
        weight_s = {"1wng": job["weight_pcie_s"], "pearl": job["nvlink_s"], "1w1g": 0.0}[architecture]
    return input_s, compute_s, weight_s, job["fixed_s"] + job["worker_cost_s"] * w + job["ps_cost_s"] * n_ps


class TestParameters:
    def test_constants_by_hand(self):
        record = parameters(job_type(ps_bytes_per_s=4e8, fixed_s=0.1)).types[0]
        expected = {
            "input_s": 0.2,
            "ethernet_s": 0.8,
            "weight_pcie_s": 0.4,
            "nvlink_s": 0.0,
            "ps_service_s": 2.0,
            "fixed_s": 0.1,
            "weight_bytes": 4e8,
            "batch_size": 12.0,
        }
        assert {name: float(record[name]) for name in expected} == pytest.approx(expected)
        assert parameters(job_type()).compute_s == pytest.approx(np.array([[1.0 + 0.5]]))

    @pytest.mark.parametrize(
        ("architecture", "media"),
        [
            ("ps_worker", (0.8, 0.4, 0.0)),
            ("all_reduce", (0.8, 0.0, 0.08)),
            ("1wng", (0.0, 0.4, 0.0)),
            ("pearl", (0.0, 0.0, 0.08)),
            ("1w1g", (0.0, 0.0, 0.0)),
        ],
    )
    def test_media_of_each_architecture(self, architecture, media):
        record = parameters(job_type(architecture=architecture)).types[0]
        assert tuple(record[["ethernet_s", "weight_pcie_s", "nvlink_s"]]) == pytest.approx(media)

    def test_fitted_rates_replace_hardware_times_efficiency(self):
        fitted = job_type(
            compute_efficiency=1.0, memory_efficiency=0.25, ethernet_bytes_per_s=8e9, pcie_bytes_per_s=1e9
        )
        p = parameters(fitted)
        assert p.compute_s[0, 0] == pytest.approx(0.5 + 1.0)
        assert float(p.types[0]["ethernet_s"]) == pytest.approx(0.1)
        assert float(p.types[0]["weight_pcie_s"]) == pytest.approx(0.8)
        assert float(p.types[0]["input_s"]) == pytest.approx(0.4)

    def test_workers_without_a_gpu_use_their_cpu_cores(self):
        p = parameters(job_type(worker_gpus=0), cluster=MIXED_CLUSTER)
        two_cores = 1e12 / (2 * 1e11 * 0.5) + 5e10 / (2 * 1e10 * 0.5)
        assert p.compute_s[0] == pytest.approx([two_cores, two_cores])
        assert p.types[0]["input_s"] == p.types[0]["weight_pcie_s"] == 0.0

    def test_caps(self):
        types = [job_type(name, architecture=name) for name in ARCHITECTURES] + [job_type(max_workers=3)]
        p = parameters(*types, caps=(6, 5))
        # Servers have 4 GPUs; 1w1g has one worker by definition.
        assert p.types["max_workers"].tolist() == [6, 6, 4, 4, 1, 3]
        assert p.types["max_ps"].tolist() == [5, 0, 0, 0, 0, 5]

    def test_gpu_kinds_start_with_the_most_common(self):
        p = parameters(job_type(), cluster=MIXED_CLUSTER)
        assert p.gpu_kinds == ("slow", "fast")
        assert p.compute_s[0] == pytest.approx([1.5, 1.5 / 4])

    def test_tasks_that_fit_nowhere_are_named(self):
        with pytest.raises(PlacementError, match="'big': a worker needs 2 CPUs and 9 GPUs"):
            parameters(job_type("big", worker_gpus=9))
        with pytest.raises(PlacementError, match="'fat': a parameter server needs 99 CPUs"):
            parameters(job_type("fat", ps_cpus=99))
        # Demands of servers a type does not have do not matter.
        assert len(parameters(job_type("fat", architecture="pearl", ps_cpus=99)).types) == 1

    def test_unknown_gpu_type(self):
        cluster = ClusterConfig(servers=(ServerGroup(1, gpu_type="abacus"),))
        with pytest.raises(UnknownNameError, match="GPU type 'abacus'"):
            analytic_parameters([job_type()], cluster, HARDWARE, 2, 2)


class TestStepByHand:
    """job_type(): input 0.2, compute 1.5 (slow), Ethernet 0.8, PCIe 0.4; P 1 and W 2 on three servers and so on."""

    P = parameters(job_type(ps_bytes_per_s=4e9, worker_cost_s=0.01, ps_cost_s=0.003, fixed_s=0.05))

    def test_two_workers_and_one_ps_apart(self):
        step = step_time(self.P, 0, [1, 1, 0], [0, 0, 1])
        assert step.input_s == pytest.approx(0.1)
        assert step.compute_s == pytest.approx(0.75)
        assert step.ethernet_s == pytest.approx(0.8 * 2)  # the PS's card carries the traffic of both workers
        assert step.local_s == pytest.approx(0.4)
        assert step.service_s == pytest.approx(0.2 * 2)
        assert step.overhead_s == pytest.approx(0.05 + 0.02 + 0.003)
        assert step.total_s == pytest.approx(0.1 + 0.75 + 1.6 + 0.4 + 0.4 + 0.073)

    def test_stretch_follows_the_worst_product_of_traffic_and_stretch(self):
        # Shares 1, 1, 2 with stretches 3, 1, 1.2: the first worker's card is the slowest (3 > 2.4).
        step = step_time(self.P, 0, [1, 1, 0], [0, 0, 1], stretch=[3.0, 1.0, 1.2])
        assert step.ethernet_s == pytest.approx(0.8 * 3)
        assert step.service_s == pytest.approx(0.4 * 1.2)  # only the server of the PS counts

    def test_one_server_has_no_ethernet_and_no_stretch(self):
        step = step_time(self.P, 0, [2, 0], [1, 0], stretch=[5.0, 5.0])
        assert step.ethernet_s == 0.0
        assert step.service_s == pytest.approx(0.4)
        assert step.local_s == pytest.approx(0.4)

    def test_ideal_overlap_hides_all_but_the_longest_part(self):
        step = step_time(self.P, 0, [1, 1, 0], [0, 0, 1], ideal_overlap=True)
        assert step.total_s == pytest.approx(2.4 + 0.073)

    def test_a_missing_task_never_ends_a_step(self):
        assert step_time(self.P, 0, [0, 0], [1, 0]).total_s == np.inf
        assert step_time(self.P, 0, [1, 1], [0, 0]).total_s == np.inf

    def test_the_slowest_gpu_kind_counts_only_where_workers_are(self):
        p = parameters(job_type(), cluster=MIXED_CLUSTER)
        assert step_time(p, 0, [1, 1, 0], [0, 0, 1], gpu_kind=[1, 1, 0]).compute_s == pytest.approx(1.5 / 4 / 2)
        assert step_time(p, 0, [1, 1, 0], [0, 0, 1], gpu_kind=[1, 0, 0]).compute_s == pytest.approx(1.5 / 2)

    def test_all_reduce(self):
        p = parameters(job_type(architecture="all_reduce", synchronous=False))
        apart = step_time(p, 0, [1, 2], [0, 0], stretch=[1.0, 2.5], pcie_group=8)
        assert apart.ethernet_s == pytest.approx(0.8 * 2.5)
        assert apart.local_s == pytest.approx(0.08)
        assert apart.input_s == pytest.approx(0.2 * 2)
        together = step_time(p, 0, [3, 0], [0, 0], stretch=[2.0, 2.0])
        assert (together.ethernet_s, together.local_s) == (0.0, pytest.approx(0.08))
        alone = step_time(p, 0, [1, 0], [0, 0])
        assert (alone.ethernet_s, alone.local_s) == (0.0, 0.0)

    def test_speed_of_synchronous_and_asynchronous_jobs(self):
        p = parameters(job_type(), job_type(synchronous=False))
        speed = samples_per_s(p, [0, 1], [3, 3], [2.0, 2.0])
        assert speed == pytest.approx([12 / 2, 3 * 12 / 2])
        assert samples_per_s(p, 0, 0, np.inf) == 0.0


placements = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)


@given(st.data(), placements, st.integers(0, len(TYPES) - 1), st.sampled_from([0, 2, 8]), st.booleans())
def test_agrees_with_the_scalar_rules(data, placement, t, group, overlap):
    if not TYPES[t].uses_ps:
        placement = [(w, 0) for w, _ in placement]
        if TYPES[t].architecture != "all_reduce":
            placement = [(w if s == 0 else 0, 0) for s, (w, _) in enumerate(placement)]
    workers, ps = (list(column) for column in zip(*placement, strict=True))
    size = len(placement)
    stretch = data.draw(st.lists(st.floats(1.0, 4.0), min_size=size, max_size=size))
    kinds = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    step = step_time(ALL, t, workers, ps, stretch=stretch, gpu_kind=kinds, pcie_group=group, ideal_overlap=overlap)
    if sum(workers) == 0 or (TYPES[t].uses_ps and sum(ps) == 0):
        assert step.total_s == np.inf
        return
    input_s, compute_s, weight_s, overhead_s = scalar_step_time(ALL, t, workers, ps, stretch, kinds, group)
    parts = (input_s, compute_s, weight_s)
    assert close(step.total_s, (max(parts) if overlap else sum(parts)) + overhead_s)


def test_many_jobs_at_once_equal_one_by_one():
    rng = np.random.default_rng(0)
    idx = np.array([0, 1, 2, 3])  # PS/Worker and all-reduce
    workers, ps = rng.integers(0, 3, (2, 4, 5))
    ps[2:] = 0
    stretch, kinds = rng.uniform(1, 3, 5), rng.integers(0, 2, 5)
    together = step_time(ALL, idx, workers, ps, stretch=stretch, gpu_kind=kinds, pcie_group=4)
    for j in range(4):
        alone = step_time(ALL, idx[j], workers[j], ps[j], stretch=stretch, gpu_kind=kinds, pcie_group=4)
        for name in alone._fields:
            assert close(getattr(together, name)[j], getattr(alone, name))


class TestIsolated:
    W, P = 5, 4

    def table(self, **options: Any) -> Any:
        return isolated_step_time(ALL, self.W, self.P, **options)

    @pytest.mark.parametrize("group", [0, 3])
    @pytest.mark.parametrize("overlap", [False, True])
    def test_every_cell_is_a_placement_with_one_task_per_server(self, group, overlap):
        table = self.table(pcie_group=group, ideal_overlap=overlap)
        assert table.shape == (len(TYPES), self.W + 2, self.P + 2, 2)
        for t, kind in enumerate(TYPES):
            for w in range(self.W + 2):
                for p in range(self.P + 2):
                    allowed = w > 0 and (p > 0) == kind.uses_ps and (kind.architecture != "1w1g" or w == 1)
                    if not allowed:
                        assert table[t, w, p].tolist() == [np.inf, 0.0]
                        continue
                    workers, ps = [1] * w + [0] * p, [0] * w + [1] * p
                    if kind.architecture in ("1wng", "pearl", "1w1g"):
                        workers, ps = [w], [0]
                    step = step_time(ALL, t, workers, ps, pcie_group=group, ideal_overlap=overlap)
                    assert close(table[t, w, p], [step.total_s, step.ethernet_s + step.service_s])

    def test_communication_is_what_stretch_multiplies(self):
        table = self.table()
        for t in (0, 1, 2, 3):
            ps = [0, 0, 1, 1] if TYPES[t].uses_ps else [0] * 4
            stretched = step_time(ALL, t, [1, 1, 0, 0], ps, stretch=2.5).total_s
            step_s, communication_s = table[t, 2, sum(ps)]
            assert close(stretched, step_s + 1.5 * communication_s)

    def test_more_servers_never_slow_a_job_without_their_cost(self):
        p = parameters(*(job_type(str(sync), synchronous=sync, ps_bytes_per_s=1e9) for sync in (True, False)))
        steps = isolated_step_time(p, 8, 8)[:, 1:, 1:, 0]
        assert (np.diff(steps, axis=2) <= 1e-15).all()

    def test_more_workers_may_slow_a_synchronous_job(self):
        p = parameters(job_type(ps_bytes_per_s=1e9))
        assert np.diff(isolated_step_time(p, 8, 8)[0, 1:, 1, 0]).max() > 0

    def test_gpu_kind(self):
        fast = self.table(gpu_kind=1)
        assert close(self.table()[0, 1, 1, 0] - fast[0, 1, 1, 0], 1.5 * 3 / 4)


BASE = load_hardware("pai-base")


@given(
    st.floats(1e9, 1e13), st.floats(1e6, 1e11), st.floats(0, 1e9), st.floats(1e3, 1e10), st.integers(1, 6), st.data()
)
def test_reduces_to_the_ps_worker_row_of_pai(flops, memory, data_bytes, traffic, workers, data):
    """One task per server, P >= W, no service limit, nothing shared, asynchronous: the plain PAI formula."""
    ps = data.draw(st.integers(workers, 8))
    features = dict(flops=flops, memory_bytes=memory, input_bytes=data_bytes, weight_traffic_bytes=traffic)
    p = analytic_parameters([job_type(synchronous=False, **features)], ClusterConfig(), BASE, 8, 8)
    jobs = PaiWorkloads(architecture=architecture_index("ps_worker"), num_cnodes=workers, batch_size=12, **features)
    expected = step_breakdown(jobs, BASE, pcie_group=NO_SHARING).total_s[0]
    step = step_time(p, 0, [1] * workers + [0] * ps, [0] * workers + [1] * ps)
    assert close(step.total_s, expected)


@pytest.mark.parametrize(
    ("ours", "pai", "workers", "servers"),
    [
        ("all_reduce", "allreduce_local", 4, 1),
        ("all_reduce", "allreduce_cluster", 4, 4),
        ("1wng", "1wng", 4, 1),
        ("pearl", "pearl", 4, 1),
        ("1w1g", "1w1g", 1, 1),
    ],
)
def test_reduces_to_the_other_rows_of_pai(ours, pai, workers, servers):
    features = dict(flops=1e12, memory_bytes=2e10, input_bytes=3e8, weight_traffic_bytes=4e8)
    cluster = ClusterConfig(servers=(ServerGroup(4, cpus=16, gpus=8),))
    p = analytic_parameters([job_type(architecture=ours, synchronous=False, **features)], cluster, BASE, 8, 8)
    jobs = PaiWorkloads(architecture_index("ps_worker"), num_cnodes=workers, batch_size=12, **features)
    expected = step_breakdown(port(jobs, pai), BASE, cluster_shares_pcie=False).total_s[0]
    n_w = [workers // servers] * servers
    assert close(step_time(p, 0, n_w, [0] * servers, pcie_group=8).total_s, expected)


def test_one_worker_and_one_ps_on_a_server_lose_the_ethernet_term_only():
    p = parameters(job_type())
    apart, together = step_time(p, 0, [1, 0], [0, 1]), step_time(p, 0, [1], [1])
    assert close(apart.total_s - together.total_s, 0.8)
