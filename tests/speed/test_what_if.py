"""Other hardware: by hand, against the closed form of a step, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.characterization import ARCHITECTURES, PARTS, PaiWorkloads, StepModel
from dl2env.speed.hardware import load_variation
from dl2env.speed.port import port
from dl2env.speed.what_if import (
    QUANTITIES,
    base_values,
    class_means,
    full_product,
    mean_speedups,
    most_sensitive,
    one_at_a_time,
    sensitivity,
    speedup_curves,
    with_capacities,
)
from tests.speed.test_characterization import BASE, from_shares, workloads

MODEL = StepModel(BASE)


def mixed_jobs(seed: int = 0, n: int = 300) -> PaiWorkloads:
    """Jobs of all architectures with random features."""
    rng = np.random.default_rng(seed)
    architecture = rng.integers(0, len(ARCHITECTURES), n)
    sizes = np.where(architecture == 0, 1, rng.integers(1, 9, n))
    return PaiWorkloads(architecture, sizes, 32.0, *(10 ** rng.uniform(6, 12, (4, n))))


def test_base_values_and_the_catalogues_grid():
    assert base_values(MODEL) == {
        "peak_flops": 11e12,
        "memory_bytes_per_s": 1e12,
        "pcie_bytes_per_s": 10e9,
        "ethernet_bytes_per_s": 25e9 / 8,
        "nvlink_bytes_per_s": 50e9,
    }
    assert [v.label for v in one_at_a_time(MODEL, load_variation())] == [
        "GPU compute 8 TFLOPS",
        "GPU compute 16 TFLOPS",
        "GPU compute 32 TFLOPS",
        "GPU compute 64 TFLOPS",
        "GPU memory 1 TB/s",
        "GPU memory 2 TB/s",
        "GPU memory 4 TB/s",
        "Ethernet 10 Gb/s",
        "Ethernet 25 Gb/s",
        "Ethernet 100 Gb/s",
        "PCIe 10 GB/s",
        "PCIe 50 GB/s",
    ]
    assert {quantity.label for quantity in QUANTITIES.values()} == {part.medium for part in PARTS.values()}


def test_only_the_named_capacities_change():
    other = with_capacities(MODEL, {"peak_flops": 5e13, "nvlink_bytes_per_s": 3e11})
    assert base_values(other) == base_values(MODEL) | {"peak_flops": 5e13, "nvlink_bytes_per_s": 3e11}
    assert other.hardware.efficiency == BASE.efficiency and other.hardware.gpu("v100") == BASE.gpu("v100")
    assert base_values(MODEL)["peak_flops"] == 11e12


@given(st.floats(0.0, 1.0), st.floats(1.0, 100.0))
def test_ethernet_by_the_closed_form(w, factor):
    """The Ethernet part of a weight share w is 0.32 / 0.42 of it."""
    (means,) = mean_speedups(from_shares(w), MODEL, one_at_a_time(MODEL, {"ethernet_bytes_per_s": [factor * 25e9 / 8]}))
    part = w * 0.32 / 0.42
    assert means["ps_worker"] == pytest.approx(1 / (1 - part + part / factor), rel=1e-12)


def test_100_gigabit_by_the_published_identity():
    variations = one_at_a_time(MODEL, {"ethernet_bytes_per_s": load_variation()["ethernet_bytes_per_s"]})
    means = mean_speedups(from_shares(1.0), MODEL, variations)
    assert [point["ps_worker"] for point in means] == pytest.approx([0.42 / 0.9, 1.0, 0.42 / 0.18])


@given(st.integers(0, 1000), st.sampled_from(["none", "ideal"]))
def test_every_combination_equals_the_rescaled_parts(seed, overlap):
    """Parts of a step are inversely proportional to capacities: an independent way to the same means."""
    jobs, model = mixed_jobs(seed, 40), dataclasses.replace(MODEL, overlap=overlap)
    grid = {"peak_flops": (5e12, 4e13), "pcie_bytes_per_s": (10e9, 7e10), "nvlink_bytes_per_s": (2e10,)}
    base = base_values(MODEL)
    step = model.breakdown(jobs)
    names = {quantity.label: name for name, quantity in QUANTITIES.items()}
    variations = full_product(model, grid)
    assert [v.values for v in variations] == [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    for variation, means in zip(variations, mean_speedups(jobs, model, variations), strict=True):
        scaled = {
            name: seconds
            * base[names[PARTS[name].medium]]
            / variation.values.get(names[PARTS[name].medium], base[names[PARTS[name].medium]])
            for name, seconds in step.parts().items()
        }
        components = [
            sum(seconds for name, seconds in scaled.items() if PARTS[name].component == component)
            for component in ("T_d", "T_c", "T_w")
        ]
        total = np.max(components, axis=0) if overlap == "ideal" else np.sum(components, axis=0)
        expected = step.total_s / total
        for architecture, mean in means.items():
            assert mean == pytest.approx(expected[jobs.is_on(architecture)].mean(), rel=1e-10)


def test_means_by_class_and_weights():
    jobs = dataclasses.replace(from_shares([0.5, 0.5, 0.5], num_cnodes=[1, 3, 1]), architecture=np.array([2, 2, 0]))
    values = np.array([1.0, 5.0, 7.0])
    assert class_means(jobs, values) == {"1w1g": 7.0, "ps_worker": 3.0}
    assert class_means(jobs, values, jobs.num_cnodes) == {"1w1g": 7.0, "ps_worker": 4.0}


def test_curves_are_normalised_monotonic_and_flat_where_the_medium_is_not_used():
    jobs = mixed_jobs()
    curves = speedup_curves(jobs, MODEL, load_variation() | {"nvlink_bytes_per_s": (25e9, 300e9)})
    assert len(curves) == len(ARCHITECTURES) * 5
    assert [c.architecture for c in curves] == [name for name in ARCHITECTURES for _ in range(5)]
    uses_ethernet, uses_nvlink = ("ps_worker", "allreduce_cluster"), ("allreduce_local", "allreduce_cluster", "pearl")
    for curve in curves:
        assert (np.diff(curve.capacity_ratios) > 0).all()
        assert curve.speedups[curve.capacity_ratios == 1.0].tolist() == [1.0]
        assert (np.diff(curve.speedups) >= 0).all()
        assert (curve.speedups <= np.maximum(curve.capacity_ratios, 1.0) * (1 + 1e-12)).all()
        used = {"ethernet_bytes_per_s": uses_ethernet, "nvlink_bytes_per_s": uses_nvlink}.get(curve.quantity)
        is_flat = used is not None and curve.architecture not in used
        assert (curve.speedups == 1.0).all() == is_flat


def test_sensitivity_of_single_resource_jobs_by_hand():
    needs = {
        "peak_flops": dict(flops=1e12),
        "memory_bytes_per_s": dict(memory_bytes=1e12),
        "pcie_bytes_per_s": dict(input_bytes=1e9),
    }
    for quantity, need in needs.items():
        speedups = sensitivity(workloads(**need), MODEL, 3.0)["ps_worker"]
        assert speedups == pytest.approx({name: 3.0 if name == quantity else 1.0 for name in QUANTITIES})
        assert most_sensitive(speedups) == quantity
    weights = workloads(weight_traffic_bytes=1e9)
    assert most_sensitive(sensitivity(weights, MODEL)["ps_worker"]) == "ethernet_bytes_per_s"
    assert most_sensitive(sensitivity(port(weights, "1wng"), MODEL)["1wng"]) == "pcie_bytes_per_s"
    assert most_sensitive(sensitivity(port(weights, "pearl"), MODEL)["pearl"]) == "nvlink_bytes_per_s"
    assert most_sensitive(sensitivity(port(weights, "1w1g"), MODEL)["1w1g"]) is None


@given(st.integers(0, 100))
def test_small_changes_tell_the_shares_of_a_step(seed):
    """d log T / d log capacity is minus the share of the medium (no overlap)."""
    jobs = mixed_jobs(seed, 1)
    (speedups,) = sensitivity(jobs, MODEL, 1 + 1e-6).values()
    step = MODEL.breakdown(jobs)
    for name, quantity in QUANTITIES.items():
        share = step.by_medium()[quantity.label][0] / step.total_s[0]
        assert (speedups[name] - 1) / 1e-6 == pytest.approx(share, abs=1e-4)


def test_bad_input():
    jobs = from_shares(0.5)
    for call in (
        lambda: with_capacities(MODEL, {"disk_bytes_per_s": 1e9}),
        lambda: speedup_curves(jobs, MODEL, {"disk_bytes_per_s": [1e9]}),
    ):
        with pytest.raises(UnknownNameError, match="hardware quantity 'disk_bytes_per_s'.*ethernet_bytes_per_s"):
            call()
    for value in (0.0, -1.0):
        with pytest.raises(ConfigError, match=r"Hardware\.ethernet_bytes_per_s=.* must be a positive number"):
            one_at_a_time(MODEL, {"ethernet_bytes_per_s": [value]})
        with pytest.raises(ConfigError, match=r"Processor\.peak_flops=.* must be a positive number"):
            full_product(MODEL, {"peak_flops": [value]})
    with pytest.raises(ConfigError, match="grid is empty"):
        full_product(MODEL, {})
    with pytest.raises(ConfigError, match="peak_flops has no values"):
        one_at_a_time(MODEL, {"peak_flops": []})
    with pytest.raises(ConfigError, match=r"factor=1\.0"):
        sensitivity(jobs, MODEL, 1.0)
