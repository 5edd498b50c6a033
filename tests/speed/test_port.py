"""Ports between architectures: identities that follow from the formulas, properties, and which architecture is best."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.characterization import (
    ARCHITECTURES,
    GPUS_PER_SERVER,
    LOCAL,
    NO_SHARING,
    ROOT_GROUP,
    SERVER_GROUP,
    PaiWorkloads,
    StepModel,
    architecture_index,
    samples_per_s,
)
from dl2env.speed.port import compare_architectures, port, port_speedup, speedup, weights_fit
from tests.speed.test_characterization import BASE, from_shares, total_s, workloads

MODEL = StepModel(BASE)


class TestPort:
    @pytest.mark.parametrize(("n", "single", "throughput"), [(2, 21.0, 21.0), (8, 21.0, 21.0), (16, 21.0, 10.5)])
    def test_weights_only(self, n, single, throughput):
        jobs = from_shares(1.0, num_cnodes=n)
        gain = port_speedup(jobs, "allreduce_local", MODEL)
        assert gain.single_cnode == pytest.approx(single, rel=1e-12)
        assert gain.throughput == pytest.approx(throughput, rel=1e-12)

    @given(st.floats(0.0, 1.0))
    def test_without_weights_eight_replicas_share_pcie(self, d):
        gain = port_speedup(from_shares(0.0, d, num_cnodes=8), "allreduce_local", MODEL)
        assert gain.single_cnode == pytest.approx(1 / (1 + 7 * d), rel=1e-12)

    def test_a_root_of_four_shares_less_and_no_sharing_leaves_input_alone(self):
        jobs = from_shares(0.0, 0.5, num_cnodes=8)
        assert total_s(jobs, "allreduce_local", pcie_group=SERVER_GROUP) == pytest.approx(0.5 + 8 * 0.5)
        assert total_s(jobs, "allreduce_local", pcie_group=ROOT_GROUP) == pytest.approx(0.5 + 4 * 0.5)
        assert total_s(jobs, "allreduce_local", pcie_group=NO_SHARING) == pytest.approx(1.0)

    def test_sharing_on_clusters_can_be_turned_off_alone(self):
        jobs = from_shares(0.0, 0.5, num_cnodes=16)
        assert total_s(jobs, "allreduce_cluster") == pytest.approx(0.5 + 8 * 0.5)
        assert total_s(jobs, "allreduce_cluster", cluster_shares_pcie=False) == pytest.approx(1.0)
        assert total_s(jobs, "allreduce_local", cluster_shares_pcie=False) == pytest.approx(0.5 + 8 * 0.5)

    def test_replica_limits(self):
        jobs = from_shares([0.5, 0.5, 0.5], num_cnodes=[1, 8, 30])
        limits = {name: port(jobs, name).num_cnodes.tolist() for name in ARCHITECTURES}
        assert limits == {
            "1w1g": [1, 1, 1],
            "1wng": [1, 8, 8],
            "ps_worker": [1, 8, 30],
            "allreduce_local": [1, 8, 8],
            "allreduce_cluster": [1, 8, 30],
            "pearl": [1, 8, 8],
        }

    def test_only_architecture_and_replicas_change(self):
        jobs = workloads(num_cnodes=[3, 30], flops=[1.0, 2.0], weight_traffic_bytes=5.0, dense_weight_bytes=[6.0, 7.0])
        for name in ARCHITECTURES:
            ported = port(jobs, name)
            assert ported.is_on(name).all()
            for feature in ("batch_size", "flops", "memory_bytes", "input_bytes", "weight_traffic_bytes"):
                assert (getattr(ported, feature) == getattr(jobs, feature)).all()
            assert ported.dense_weight_bytes.tolist() == [6.0, 7.0]
        assert jobs.is_on("ps_worker").all() and jobs.num_cnodes.tolist() == [3, 30]


features = st.one_of(st.just(0.0), st.floats(1.0, 1e12))
names = st.sampled_from(ARCHITECTURES)


@given(names, names, features, features, features, features, st.integers(1, 200), st.sampled_from(["none", "ideal"]))
def test_throughput_is_single_gain_times_replicas(old, new, flops, memory, data, traffic, n, overlap):
    values = dict(flops=flops, memory_bytes=memory, input_bytes=data, weight_traffic_bytes=traffic)
    model = dataclasses.replace(MODEL, overlap=overlap)
    jobs = port(workloads(num_cnodes=n, **values), old)
    gain, ported = port_speedup(jobs, new, model), port(jobs, new)
    kept = ported.num_cnodes[0] / jobs.num_cnodes[0]
    assert kept == (1 / jobs.num_cnodes[0] if new == "1w1g" else min(1, 8 / jobs.num_cnodes[0]) if new in LOCAL else 1)
    assert gain.throughput[0] == gain.single_cnode[0] * kept
    before, after = model.breakdown(jobs).total_s[0], model.breakdown(ported).total_s[0]
    if before > 0 and after > 0:
        rates = samples_per_s(ported, model.breakdown(ported)) / samples_per_s(jobs, model.breakdown(jobs))
        assert gain.throughput == pytest.approx(rates, rel=1e-12)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 500), st.sampled_from(["none", "ideal"]))
def test_bounds_of_both_ports_from_ps_worker(w, data, n, overlap):
    """Whatever the job: at most 21x per cNode on AllReduce-Local, at most 0.42 / 0.34 on AllReduce-Cluster."""
    jobs = from_shares(w, (1 - w) * data, num_cnodes=n)
    model = dataclasses.replace(MODEL, overlap=overlap)
    local, cluster = (port_speedup(jobs, name, model) for name in ("allreduce_local", "allreduce_cluster"))
    assert local.single_cnode[0] <= 21.0 * (1 + 1e-12)
    assert local.throughput[0] <= 21.0 * min(1.0, 8 / n) * (1 + 1e-12)
    assert cluster.single_cnode[0] <= 0.42 / 0.34 * (1 + 1e-12)
    assert (cluster.throughput == cluster.single_cnode).all()


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 64))
def test_closed_form_from_ps_worker_to_allreduce_local(w, data, n):
    """T_new / T_old = w / 21 + d * min(n, group) + rest, for every kind of PCIe sharing."""
    d = (1 - w) * data
    for group in (SERVER_GROUP, ROOT_GROUP, NO_SHARING):
        sharers = min(n, group) if group else 1
        gain = port_speedup(
            from_shares(w, d, num_cnodes=n), "allreduce_local", dataclasses.replace(MODEL, pcie_group=group)
        )
        assert gain.single_cnode[0] == pytest.approx(1 / (w / 21 + d * sharers + (1 - w - d)), rel=1e-9)


@given(names, features, features, features, features, st.integers(1, 200))
def test_porting_twice_is_porting_once(name, flops, memory, data, traffic, n):
    jobs = workloads(num_cnodes=n, flops=flops, memory_bytes=memory, input_bytes=data, weight_traffic_bytes=traffic)
    once = port(jobs, name)
    assert (port(once, name).num_cnodes == once.num_cnodes).all()
    assert port_speedup(once, name, MODEL).throughput.tolist() == [1.0]


def test_jobs_without_work():
    nothing = workloads(num_cnodes=4)
    assert port_speedup(nothing, "allreduce_local", MODEL).single_cnode.tolist() == [1.0]
    only_weights = workloads(num_cnodes=1, weight_traffic_bytes=1e9)
    ported = port(only_weights, "1w1g")
    gain = speedup(only_weights, MODEL.breakdown(only_weights), ported, MODEL.breakdown(ported))
    assert gain.single_cnode.tolist() == [np.inf]


def compared(jobs: PaiWorkloads, memory: float | None = None) -> Any:
    comparison = compare_architectures(jobs, MODEL, gpu_memory_bytes=memory)
    return [comparison.architectures[i] for i in comparison.best], comparison


class TestComparison:
    def test_weight_bound_small_jobs_belong_on_nvlink_large_ones_on_the_network(self):
        best, comparison = compared(from_shares([0.9, 0.9, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0], num_cnodes=[8, 300, 8, 8]))
        # Shared PCIe would slow the third, and the fourth is equally fast on all: both stay.
        assert best == ["allreduce_local", "allreduce_cluster", "ps_worker", "ps_worker"]
        assert comparison.samples_per_s.shape == (6, 4)
        step_s = 0.9 / 21 + 0.1
        row = comparison.architectures.index("allreduce_local")
        assert comparison.samples_per_s[row, 0] == pytest.approx(8 * 64 / step_s)

    def test_ties_stay_where_they_are(self):
        jobs = workloads(flops=[1e12] * 6)
        jobs = dataclasses.replace(jobs, architecture=np.arange(6))
        assert compared(jobs)[0] == list(ARCHITECTURES)

    def test_weights_that_do_not_fit_leave_pearl(self):
        jobs = dataclasses.replace(
            from_shares([0.9, 0.9, 0.9], num_cnodes=[8, 8, 8]),
            dense_weight_bytes=np.array([1e9, 1e9, 40e9]),
            embedding_weight_bytes=np.array([1e9, 54e9, 0.0]),
        )
        best, comparison = compared(jobs, 16e9)
        # 1 + 54 / 8 GB fit on each GPU, 55 GB do not; 40 GB of dense weights fit into host memory only.
        assert best == ["allreduce_local", "pearl", "1wng"]
        zero = comparison.samples_per_s == 0
        assert zero.sum(axis=1).tolist() == [2, 0, 0, 2, 2, 1]

    def test_weights_fit_by_hand(self):
        jobs = dataclasses.replace(
            from_shares([0.5, 0.5], num_cnodes=[2, 30]),
            dense_weight_bytes=np.full(2, 4e9),
            embedding_weight_bytes=np.full(2, 24e9),
        )
        fit = {name: weights_fit(jobs, name, 10e9).tolist() for name in ARCHITECTURES}
        assert fit == {
            "1w1g": [False, False],
            "1wng": [True, True],
            "ps_worker": [True, True],
            "allreduce_local": [False, False],
            "allreduce_cluster": [False, False],
            "pearl": [False, True],  # 4 + 24 / 2 and, on 8 GPUs, 4 + 24 / 8
        }
        assert weights_fit(jobs, "pearl", 7e9).tolist() == [False, True]
        assert weights_fit(jobs, "pearl", 7e9 - 1).tolist() == [False, False]

    def test_bad_input(self):
        jobs = from_shares([0.5, 0.5])
        with pytest.raises(ConfigError, match="PAI workload 0: weights unknown; give dense_weight_bytes"):
            compare_architectures(jobs, MODEL, gpu_memory_bytes=16e9)
        with pytest.raises(ConfigError, match="gpu_memory_bytes=0"):
            weights_fit(jobs, "pearl", 0)
        with pytest.raises(UnknownNameError, match="'ring'"):
            compare_architectures(jobs, MODEL, ["ps_worker", "ring"])


def test_the_limit_of_local_cnodes_is_a_servers_gpus():
    jobs = from_shares(0.5, num_cnodes=100)
    assert port(jobs, "pearl").num_cnodes.tolist() == [GPUS_PER_SERVER]
    assert PaiWorkloads(architecture_index("pearl"), GPUS_PER_SERVER, 1.0, 1.0, 1.0, 1.0, 1.0).size == 1
