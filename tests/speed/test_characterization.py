"""Identities that follow from the PAI formulas and the base hardware, whatever the paper prints."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.characterization import (
    ARCHITECTURES,
    NO_SHARING,
    PARTS,
    ROOT_GROUP,
    PaiWorkloads,
    StepModel,
    architecture_index,
    ring_traffic_bytes,
    samples_per_s,
    step_breakdown,
)
from dl2env.speed.hardware import Efficiency, load_hardware
from dl2env.speed.port import port

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


class TestRecalledModels:
    """Model arithmetic on recalled inputs: only the arithmetic is exact, the inputs are as we understand the paper.

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


def test_parts_media_and_components_add_up():
    rng = np.random.default_rng(0)
    jobs = PaiWorkloads(architecture_index("ps_worker"), rng.integers(1, 65, 500), 1.0, *rng.random((4, 500)) * 1e11)
    for name in ARCHITECTURES:
        step = step_breakdown(port(jobs, name), BASE)
        assert set(step.parts()) == set(step.shares()) == set(PARTS)
        for total in (sum(step.parts().values()), sum(step.by_medium().values())):
            assert np.allclose(total, step.total_s, rtol=1e-14)
        assert np.allclose(step.by_medium()["PCIe"], step.input_s + step.pcie_s, rtol=1e-15)
        assert np.allclose(step.weight_share(), step.weight_s / step.total_s, rtol=1e-14)


def test_efficiency_of_each_medium_scales_its_parts_alone():
    jobs = workloads(flops=1e12, memory_bytes=1e10, input_bytes=1e9, weight_traffic_bytes=1e9)
    media = {
        "compute": "GPU compute",
        "memory": "GPU memory",
        "pcie": "PCIe",
        "ethernet": "Ethernet",
        "nvlink": "NVLink",
    }
    for architecture in ARCHITECTURES:
        ported = port(jobs, architecture)
        before = step_breakdown(ported, BASE).by_medium()
        for name, medium in media.items():
            hardware = dataclasses.replace(BASE, efficiency=dataclasses.replace(BASE.efficiency, **{name: 0.35}))
            after = step_breakdown(ported, hardware).by_medium()
            assert {m: after[m][0] for m in after} == pytest.approx(
                {m: before[m][0] * (2.0 if m == medium else 1.0) for m in before}, rel=1e-14
            )


@given(st.sampled_from(ARCHITECTURES), features, features, features, features, st.integers(1, 64), st.floats(1.1, 50.0))
def test_more_work_never_makes_a_step_shorter_and_more_of_everything_scales_it(
    architecture, flops, memory, data, traffic, n, factor
):
    values = dict(flops=flops, memory_bytes=memory, input_bytes=data, weight_traffic_bytes=traffic)
    for overlap in ("none", "ideal"):
        base = step_breakdown(port(workloads(num_cnodes=n, **values), architecture), BASE, overlap=overlap).total_s[0]
        for name in values:
            more = workloads(num_cnodes=n, **{**values, name: values[name] * factor})
            assert step_breakdown(port(more, architecture), BASE, overlap=overlap).total_s[0] >= base
        scaled = workloads(num_cnodes=n, **{name: value * factor for name, value in values.items()})
        total = step_breakdown(port(scaled, architecture), BASE, overlap=overlap).total_s[0]
        assert total == pytest.approx(factor * base, rel=1e-12)


def test_step_model_holds_the_arguments_of_the_breakdown():
    jobs = from_shares(0.3, 0.4, num_cnodes=16)
    model = StepModel(FAST_ETHERNET, "v100", "ideal", ROOT_GROUP, cluster_shares_pcie=False)
    for name in ARCHITECTURES:
        ported = port(jobs, name)
        expected = step_breakdown(
            ported, FAST_ETHERNET, gpu="v100", overlap="ideal", pcie_group=ROOT_GROUP, cluster_shares_pcie=False
        )
        assert model.breakdown(ported).total_s == expected.total_s


def test_records_accept_names_select_rows_and_know_weights():
    jobs = PaiWorkloads(
        ["ps_worker", "1w1g", "pearl"], [9, 1, 8], 1.0, 1.0, 1.0, 1.0, [1.0, 0.0, 3.0], 5.0, [0.0, 1.0, 2.0]
    )
    assert jobs.architecture.tolist() == [architecture_index(name) for name in ("ps_worker", "1w1g", "pearl")]
    assert jobs.is_on("ps_worker", "pearl").tolist() == [True, False, True]
    assert jobs.weight_bytes.tolist() == [5.0, 6.0, 7.0]
    chosen = jobs.select(jobs.is_on("pearl"))
    assert (chosen.size, chosen.num_cnodes.tolist(), chosen.weight_traffic_bytes.tolist()) == (1, [8.0], [3.0])
    assert jobs.select(np.array([2, 0])).weight_bytes.tolist() == [7.0, 5.0]
    assert np.isnan(WEIGHTS_ONLY.weight_bytes).all()


def test_records_do_not_change_with_the_callers_arrays():
    flops = np.array([1.0, 2.0])
    jobs = workloads(flops=flops)
    flops[:] = -1.0
    assert jobs.flops.tolist() == [1.0, 2.0]


def test_one_million_jobs_take_about_a_second():
    rng = np.random.default_rng(0)
    n = 1_000_000
    jobs = PaiWorkloads(rng.integers(0, 6, n), 1.0, 64.0, *(rng.random((4, n)) * 1e11))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        total_s = step_breakdown(jobs, BASE).total_s
        seconds.append(time.process_time() - start)
    print(f"step breakdown of {n:,} jobs: {min(seconds):.3f} s")
    assert total_s.shape == (n,)
    assert min(seconds) < 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(flops=[1.0, -1.0]), r"workload 1: flops=-1\.0 must be finite and at least 0"),
        (dict(memory_bytes=[np.nan]), "workload 0: memory_bytes=nan"),
        (dict(weight_traffic_bytes=-1e9), "workload 0: weight_traffic_bytes=-1"),
        (dict(input_bytes=np.inf), "workload 0: input_bytes=inf"),
        (dict(dense_weight_bytes=[np.nan, -1.0]), r"workload 1: dense_weight_bytes=-1\.0"),
        (dict(num_cnodes=0), r"num_cnodes=0\.0 must be a whole number of at least 1"),
        (dict(num_cnodes=[2.0, 2.5]), r"workload 1: num_cnodes=2\.5 must be a whole number"),
        (dict(batch_size=0.5), r"batch_size=0\.5 must be finite and at least 1"),
        (dict(flops=[1.0, 2.0], memory_bytes=[1.0] * 3), r"different lengths \(flops 2, memory_bytes 3\)"),
    ],
)
def test_bad_input_names_row_and_field(changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        workloads(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("index", [-1, 6, 256, 0.5])
def test_bad_indices_of_architectures(index):
    with pytest.raises(ConfigError, match=r"workload 1: architecture=.* must be an index into 1w1g, 1wng"):
        dataclasses.replace(workloads(flops=[1.0, 2.0]), architecture=np.array([0, index]))


def test_unknown_architectures_are_named_with_the_known_ones():
    for call in (
        lambda: architecture_index("ring"),
        lambda: WEIGHTS_ONLY.is_on("ring"),
        lambda: port(WEIGHTS_ONLY, "ring"),
    ):
        with pytest.raises(UnknownNameError, match=r"unknown architecture 'ring'; choose one of: 1w1g.*pearl"):
            call()
    with pytest.raises(UnknownNameError, match=r"PAI workload 1: 'ring'; choose one of"):
        PaiWorkloads(["pearl", "ring"], 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("architecture", "n", "message"),
    [
        ("1wng", 9, "workload 1: num_cnodes=9 on 1wng, but a server has 8 GPUs"),
        ("allreduce_local", 16, "num_cnodes=16 on allreduce_local, but a server has 8 GPUs"),
        ("pearl", 9, "num_cnodes=9 on pearl, but a server has 8 GPUs"),
        ("1w1g", 2, "num_cnodes=2 on 1w1g, but 1w1g has one"),
    ],
)
def test_more_local_cnodes_than_gpus(architecture, n, message):
    with pytest.raises(ConfigError, match=message):
        PaiWorkloads(architecture_index(architecture), [1, n], 1.0, 1.0, 1.0, 1.0, 1.0)
    for larger in ("ps_worker", "allreduce_cluster"):
        assert PaiWorkloads(architecture_index(larger), [1, n], 1.0, 1.0, 1.0, 1.0, 1.0).size == 2


def test_bad_assumptions():
    with pytest.raises(UnknownNameError, match="unknown overlap 'some'; choose one of: ideal, none"):
        step_breakdown(WEIGHTS_ONLY, BASE, overlap="some")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pcie_group=-1"):
        step_breakdown(WEIGHTS_ONLY, BASE, pcie_group=-1)
    with pytest.raises(UnknownNameError, match="GPU type 'abacus'"):
        step_breakdown(WEIGHTS_ONLY, BASE, gpu="abacus")


@pytest.mark.parametrize("name", ["ethernet_bytes_per_s", "pcie_bytes_per_s", "nvlink_bytes_per_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bandwidth_must_be_positive(name, value):
    with pytest.raises(ConfigError, match=rf"Hardware\.{name}=.* must be a positive number"):
        dataclasses.replace(BASE, **{name: value})
