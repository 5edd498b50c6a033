"""Identities that follow from the PAI formulas and the base hardware, whatever the paper prints."""

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
    NO_SHARING,
    ROOT_GROUP,
    SERVER_GROUP,
    PaiWorkloads,
    architecture_index,
    ring_traffic_bytes,
    samples_per_s,
    step_breakdown,
)
from dl2env.speed.hardware import Efficiency, load_hardware
from dl2env.speed.port import port, speedup

BASE = load_hardware("pai-base")
FAST_ETHERNET = dataclasses.replace(BASE, ethernet_bytes_per_s=100e9 / 8)


def workloads(architecture: str = "ps_worker", **changes: Any) -> PaiWorkloads:
    values: dict[str, Any] = dict(
        num_cnodes=1.0, batch_size=64.0, flops=0.0, memory_bytes=0.0, input_bytes=0.0, weight_traffic_bytes=0.0
    )
    return PaiWorkloads(architecture=architecture_index(architecture), **{**values, **changes})


def from_shares(weight: Any, data: Any = 0.0, num_cnodes: Any = 1.0) -> PaiWorkloads:
    """PS/Worker jobs whose step takes one second on base hardware, with these shares of it in T_w and T_d."""
    weight, data = np.asarray(weight, dtype=float), np.asarray(data, dtype=float)
    return workloads(
        num_cnodes=num_cnodes,
        weight_traffic_bytes=weight / (1 / BASE.effective_ethernet + 1 / BASE.effective_pcie),
        input_bytes=data * BASE.effective_pcie,
        flops=(1 - weight - data) * 11e12 * 0.7,
    )


def total_s(jobs: PaiWorkloads, architecture: str, **options: Any) -> Any:
    return step_breakdown(port(jobs, architecture), BASE, **options).total_s


WEIGHTS_ONLY = workloads(weight_traffic_bytes=1e9)


class TestWeightOnlyRatios:
    def test_allreduce_local_is_21_times_faster_than_ps_worker(self):
        ratio = total_s(WEIGHTS_ONLY, "ps_worker") / total_s(WEIGHTS_ONLY, "allreduce_local")
        assert ratio == pytest.approx(21.0, rel=1e-14)

    def test_allreduce_cluster_gains_by_42_over_34(self):
        ratio = total_s(WEIGHTS_ONLY, "ps_worker") / total_s(WEIGHTS_ONLY, "allreduce_cluster")
        assert ratio == pytest.approx(0.42 / 0.34, rel=1e-14)

    def test_100_gigabit_ethernet_gains_by_42_over_18(self):
        ratio = step_breakdown(WEIGHTS_ONLY, BASE).total_s / step_breakdown(WEIGHTS_ONLY, FAST_ETHERNET).total_s
        assert ratio == pytest.approx(0.42 / 0.18, rel=1e-14)

    def test_ethernet_takes_32_of_42_parts(self):
        shares = step_breakdown(WEIGHTS_ONLY, BASE).shares()
        assert shares["ethernet"] == pytest.approx(0.32 / 0.42, rel=1e-14)
        assert shares["pcie"] == pytest.approx(0.10 / 0.42, rel=1e-13)

    @given(st.floats(0.05, 1.0))
    def test_a_common_efficiency_cancels(self, efficiency):
        hardware = dataclasses.replace(BASE, efficiency=Efficiency(*(5 * [efficiency])))
        old = step_breakdown(WEIGHTS_ONLY, hardware).total_s
        new = step_breakdown(port(WEIGHTS_ONLY, "allreduce_local"), hardware).total_s
        assert old / new == pytest.approx(21.0, rel=1e-12)


class TestFasterEthernet:
    @given(st.floats(0.0, 1.0))
    def test_gain_of_a_job_with_weight_share_w(self, w):
        jobs = from_shares(w)
        gain = step_breakdown(jobs, BASE).total_s / step_breakdown(jobs, FAST_ETHERNET).total_s
        assert gain == pytest.approx(1 / (1 - 4 / 7 * w), rel=1e-12)

    def test_a_gain_of_1_7_needs_a_weight_share_of_72_percent(self):
        w = (1 - 1 / 1.7) * 7 / 4
        assert w == pytest.approx(0.7206, abs=5e-5)
        jobs = from_shares(w)
        gain = step_breakdown(jobs, BASE).total_s / step_breakdown(jobs, FAST_ETHERNET).total_s
        assert gain == pytest.approx(1.7, rel=1e-12)


class TestRingTraffic:
    """Trainable bytes are recalled sizes without optimiser slots; they give the recalled traffic."""

    @pytest.mark.parametrize(("trainable", "traffic"), [(204e6 / 2, 357e6), (1284e6 / 3, 1498e6), (416e6 / 2, 728e6)])
    def test_traffic_is_3_5_times_the_trainable_bytes_on_8_gpus(self, trainable, traffic):
        assert ring_traffic_bytes(trainable, 8) == pytest.approx(traffic, rel=1e-12)

    def test_two_and_one_gpus(self):
        assert ring_traffic_bytes(1e6, [1, 2]) == pytest.approx([0.0, 2e6])


class TestPort:
    @pytest.mark.parametrize(("n", "single", "throughput"), [(2, 21.0, 21.0), (8, 21.0, 21.0), (16, 21.0, 10.5)])
    def test_weights_only(self, n, single, throughput):
        jobs = from_shares(1.0, num_cnodes=n)
        gain = _ported_gain(jobs, "allreduce_local")
        assert gain.single_cnode == pytest.approx(single, rel=1e-12)
        assert gain.throughput == pytest.approx(throughput, rel=1e-12)

    @given(st.floats(0.0, 1.0))
    def test_without_weights_eight_replicas_share_pcie(self, d):
        gain = _ported_gain(from_shares(0.0, d, num_cnodes=8), "allreduce_local")
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


def _ported_gain(jobs: PaiWorkloads, architecture: str) -> Any:
    ported = port(jobs, architecture)
    return speedup(jobs, step_breakdown(jobs, BASE), ported, step_breakdown(ported, BASE))


class TestRecalledModels:
    """Model arithmetic on recalled inputs: only the arithmetic is exact.

    In order: ResNet50, NMT, BERT, Speech, Multi-Interests, GCN.
    """

    JOBS = workloads(
        batch_size=[64, 6144, 12, 32, 2048, 512],
        flops=[1.56e12, 2.5e12, 2.1e12, 7.9e12, 105.8e9, 330.7e9],
        memory_bytes=[31.9e9, 101.6e9, 107.3e9, 20.4e9, 100.4e9, 25.79e9],
        input_bytes=[38e6, 22e3, 46e3, 804e6, 261e6, 1.2e6],
        weight_traffic_bytes=[357e6, 1.33e9, 1.5e9, 728e6, 122e6, 3e9],
    )

    @pytest.mark.parametrize(
        ("architecture", "seconds"),
        [
            ("1w1g", [0.2536, 0.4698, 0.4260, 1.1700, 0.1945, 0.0800]),
            ("ps_worker", [0.4678, 1.2678, 1.3260, 1.6068, 0.2677, 1.8800]),
            ("allreduce_local", [0.2638, 0.5078, 0.4689, 1.1908, 0.1979, 0.1657]),
            ("allreduce_cluster", [0.4270, 1.1158, 1.1546, 1.5236, 0.2537, 1.5371]),
        ],
    )
    def test_step_seconds(self, architecture, seconds):
        assert total_s(self.JOBS, architecture, pcie_group=NO_SHARING) == pytest.approx(seconds, abs=5.1e-5)

    def test_components(self):
        step = step_breakdown(self.JOBS, BASE)
        assert step.compute_bound_s == pytest.approx([0.2026, 0.3247, 0.2727, 1.0260, 0.0137, 0.0429], abs=5.1e-5)
        assert step.memory_bound_s == pytest.approx([0.0456, 0.1451, 0.1533, 0.0291, 0.1434, 0.0368], abs=5.1e-5)
        assert step.input_s == pytest.approx([0.0054, 0.0000, 0.0000, 0.1149, 0.0373, 0.0002], abs=5.1e-5)
        assert step.weight_s / step.total_s == pytest.approx([0.458, 0.629, 0.679, 0.272, 0.273, 0.957], abs=5.1e-4)


features = st.floats(0.0, 1e12)


@given(st.sampled_from(ARCHITECTURES), features, features, features, features, st.integers(1, 64))
def test_ideal_overlap_is_the_longest_part_and_never_slower(architecture, flops, memory, data, traffic, n):
    jobs = workloads(flops=flops, memory_bytes=memory, input_bytes=data, weight_traffic_bytes=traffic, num_cnodes=n)
    jobs = port(jobs, architecture)
    plain, ideal = step_breakdown(jobs, BASE), step_breakdown(jobs, BASE, overlap="ideal")
    assert ideal.total_s == max(plain.input_s, plain.compute_s, plain.weight_s)
    assert ideal.total_s <= plain.total_s <= 3 * ideal.total_s * (1 + 1e-12)
    if plain.total_s > 0:
        assert sum(plain.shares().values()) == pytest.approx(1.0)


def test_media_of_each_architecture():
    used = {}
    for name in ARCHITECTURES:
        step = step_breakdown(port(WEIGHTS_ONLY, name), BASE)
        used[name] = tuple(bool(s[0] > 0) for s in (step.ethernet_s, step.pcie_s, step.nvlink_s))
    assert used == {
        "1w1g": (False, False, False),
        "1wng": (False, True, False),
        "ps_worker": (True, True, False),
        "allreduce_local": (False, False, True),
        "allreduce_cluster": (True, False, True),
        "pearl": (False, False, True),
    }


def test_throughput_counts_all_replicas():
    jobs = from_shares([0.5, 0.5], num_cnodes=[1, 4])
    assert samples_per_s(jobs, step_breakdown(jobs, BASE)) == pytest.approx([64.0, 256.0])


def test_bad_input_names_row_and_field():
    with pytest.raises(ConfigError, match="workload 1: flops=-1.0"):
        workloads(flops=[1.0, -1.0])
    with pytest.raises(ConfigError, match="num_cnodes=0.0"):
        workloads(num_cnodes=0)
    with pytest.raises(UnknownNameError, match="'ring'.*pearl"):
        port(WEIGHTS_ONLY, "ring")
