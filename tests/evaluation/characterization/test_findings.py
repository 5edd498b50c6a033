"""Findings: by hand on four jobs, and on the committed synthetic population beside the published figures."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.characterization import findings
from dl2env.evaluation.characterization.findings import (
    ALL,
    HEADLINES,
    PORTED,
    Characterization,
    characterize,
    characterize_population,
    variants,
)
from dl2env.evaluation.characterization.settings import (
    CharacterizationSettings,
    EfficiencySettings,
    GridSettings,
)
from dl2env.speed.characterization import PARTS, StepModel
from dl2env.speed.hardware import Efficiency
from dl2env.speed.what_if import QUANTITIES
from tests.evaluation.characterization.populations import BASE, four_jobs, one_second_jobs, population

MODEL = StepModel(BASE)
GRID = {"ethernet_bytes_per_s": (3.125e9, 12.5e9), "peak_flops": (11e12, 22e12)}


def found_on(jobs: Any, model: StepModel = MODEL, **settings: Any) -> Characterization:
    return characterize_population(jobs, CharacterizationSettings(**settings), model, GRID)


class TestByHand:
    FOUND = found_on(four_jobs())

    def test_classes(self):
        views = {view.name: view for view in self.FOUND.classes}
        assert list(views) == ["1w1g", "1wng", "ps_worker", ALL]
        ps = views["ps_worker"]
        assert (ps.num_jobs, ps.job_share, ps.cnode_share) == (2, 0.5, pytest.approx(20 / 23))
        assert (ps.mean_cnodes, ps.median_cnodes) == (10.0, 10.0)
        assert views[ALL].cnode_share == views[ALL].job_share == 1.0

    def test_both_weightings(self):
        views = {view.name: view for view in self.FOUND.classes}
        # Shares of weights 1 and 0.5 with 4 and 16 cNodes.
        assert views["ps_worker"].communication_share("job") == pytest.approx(0.75)
        assert views["ps_worker"].communication_share("cnode") == pytest.approx((4 * 1.0 + 16 * 0.5) / 20)
        assert views[ALL].communication_share("job") == pytest.approx((1.0 + 0.5 + 0.5 + 0.0) / 4)
        assert views[ALL].communication_share("cnode") == pytest.approx((4 + 8 + 1) / 23)
        ethernet = views["ps_worker"].shares["job"]["ethernet"]
        assert ethernet == pytest.approx(0.75 * 0.32 / 0.42)
        assert views["1wng"].shares["cnode"]["memory_bound"] == pytest.approx(0.3)
        for view in views.values():
            for shares in view.shares.values():
                assert set(shares) == set(PARTS) and sum(shares.values()) == pytest.approx(1.0)

    def test_figures_are_the_views(self):
        figures = self.FOUND.figures
        assert figures["communication_share_cnode"].ours == pytest.approx(13 / 23)
        assert figures["communication_share_job"].ours == pytest.approx(0.5)
        assert figures["job_share_ps_worker"].ours == 0.5
        # 21 x 4/4 and 1 / (0.5 / 21 + 0.5) x 8/16 = 0.95: one of two gains throughput, both gain per cNode.
        assert figures["allreduce_local_gain_share"].ours == 0.5
        assert figures["allreduce_local_not_gaining_cnode_share"].ours == 0.0
        assert figures["ethernet_25_to_100_speedup"].ours == pytest.approx((7 / 3 + 1 / (1 - 4 / 7 * 0.5)) / 2)
        assert figures["weights_below_10gb_share"].ours is None
        assert figures["weights_below_10gb_share"].is_met is figures["weights_below_10gb_share"].difference is None

    def test_ports(self):
        result = self.FOUND.port_result("ps_worker", "allreduce_local", "none")
        assert result is not None
        assert result.gain.single_cnode == pytest.approx([21.0, 1 / (0.5 / 21 + 0.5)])
        assert result.gain.throughput == pytest.approx([21.0, 0.5 / (0.5 / 21 + 0.5)])
        assert (result.single_share, result.throughput_share) == (1.0, 0.5)
        ideal = self.FOUND.port_result("ps_worker", "allreduce_local", "ideal")
        assert ideal is not None
        assert ideal.gain.single_cnode == pytest.approx([21.0, 1.0])
        sources = [(r.source, r.target) for r in self.FOUND.ports if r.overlap == "none"]
        assert sources == [(s, t) for s in ("1wng", "ps_worker") for t in ("allreduce_local", "allreduce_cluster")]

    def test_curves_and_sensitivities(self):
        assert list(self.FOUND.curves) == ["1w1g", "1wng", "ps_worker", PORTED]
        (curve,) = [c for c in self.FOUND.curves["ps_worker"] if c.quantity == "ethernet_bytes_per_s"]
        assert curve.capacity_ratios.tolist() == [1.0, 4.0]
        assert curve.speedups == pytest.approx([1.0, (7 / 3 + 1 / (1 - 4 / 7 * 0.5)) / 2])
        speedups = self.FOUND.sensitivities["1w1g"]
        assert speedups["memory_bytes_per_s"] == pytest.approx(1 / 0.75)
        assert speedups["pcie_bytes_per_s"] == pytest.approx(1 / 0.9)
        assert speedups["ethernet_bytes_per_s"] == 1.0

    def test_product_has_every_combination(self):
        values = [tuple(variation.values.values()) for variation, _ in self.FOUND.product]
        assert values == [(e, f) for e in GRID["ethernet_bytes_per_s"] for f in GRID["peak_flops"]]
        assert [means["1w1g"] for _, means in self.FOUND.product] == pytest.approx([1, 1 / 0.85, 1, 1 / 0.85])

    def test_cases(self):
        cases = {case.label: case for case in self.FOUND.cases}
        base = cases["as chosen"]
        assert base.figures["communication_share_cnode"] == self.FOUND.figures["communication_share_cnode"].ours
        assert base.leading_resource == "ethernet_bytes_per_s"
        assert base.communication_leads and base.most_gain is False
        # Longest component is communication: the first job (4 cNodes); the second and the 1wng job tie.
        assert base.bound_share == pytest.approx(4 / 23)
        # Half of the links' rate doubles T_w where 0.7 falls to 0.5: by 1.4.
        slow = cases["all links at 50 %"].figures["communication_share_cnode"]
        assert slow == pytest.approx((4 + 16 * 0.7 / 1.2 + 2 * 0.7 / 1.2) / 23)
        weak = cases["FLOP/s and GPU memory at 25 %"].figures["communication_share_cnode"]
        assert weak == pytest.approx((4 + 18 * 0.5 / (0.5 + 0.5 * 0.7 / 0.25)) / 23)

    def test_comparison(self):
        names = [self.FOUND.comparison.architectures[i] for i in self.FOUND.comparison.best]
        # The first job does nothing but communicate, so on one cNode nothing is left of its step.
        assert names == ["1w1g", "allreduce_cluster", "allreduce_local", "1w1g"]


def test_variants_differ_by_their_label_only():
    models = variants(MODEL)
    efficiencies = {label: model.hardware.efficiency for label, model in models.items()}
    assert models["as chosen"] == MODEL
    assert efficiencies["FLOP/s at 25 %"] == Efficiency(compute=0.25)
    assert efficiencies["all links at 50 %"] == Efficiency(pcie=0.5, ethernet=0.5, nvlink=0.5)
    assert models["ideal overlap"] == dataclasses.replace(MODEL, overlap="ideal")
    assert models["PCIe not shared"] == dataclasses.replace(MODEL, pcie_group=0)
    assert len(set(map(repr, models.values()))) == len(models)


def test_a_population_without_ps_workers_has_no_findings_on_them():
    found = found_on(population(one_second_jobs("1w1g", 0.0, 0.3, 1)))
    assert found.ports == [] and PORTED not in found.curves
    assert [found.figures[key].ours for key in HEADLINES] == [0.0, None, None]
    case = found.cases[0]
    assert case.most_gain is None and case.leading_resource is None and not case.communication_leads


def test_limited_gpu_memory_needs_known_weights():
    with pytest.raises(ConfigError, match="weights unknown"):
        found_on(four_jobs(), gpu_memory_bytes=16e9)
    known = four_jobs()
    weights = dataclasses.replace(
        known.workloads, dense_weight_bytes=np.full(4, 6e9), embedding_weight_bytes=np.zeros(4)
    )
    known = dataclasses.replace(known, workloads=weights)
    assert (found_on(known, gpu_memory_bytes=16e9).comparison.samples_per_s > 0).all()
    # With two more values per weight (Adam) 18 GB are too much for a GPU; host memory has room.
    adam = dataclasses.replace(known, optimizer_slots=np.full(4, 2.0))
    comparison = found_on(adam, gpu_memory_bytes=16e9).comparison
    fits = dict(zip(comparison.architectures, (comparison.samples_per_s > 0).all(axis=1), strict=True))
    assert [name for name, fit in fits.items() if fit] == ["1wng", "ps_worker"]


@pytest.fixture(scope="module")
def synthetic() -> Characterization:
    return characterize(CharacterizationSettings(num_jobs=40_000))


class TestSyntheticPopulation:
    """Collective figures on the project's own generator, which was calibrated to them: circular as evidence.

    Tolerances are wide: 2 points on shares and 0.05 on the mean speedup, as in the population's own definition.
    """

    def test_the_three_figures_of_the_abstract(self, synthetic):
        ours = {key: synthetic.figures[key].ours for key in HEADLINES}
        expected = {"communication_share_cnode": 0.62, "allreduce_local_gain_share": 0.60}
        for key, value in expected.items():
            assert ours[key] == pytest.approx(value, abs=0.02)
        assert ours["ethernet_25_to_100_speedup"] == pytest.approx(1.7, abs=0.05)

    def test_secondary_figures(self, synthetic):
        ours = {key: result.ours for key, result in synthetic.figures.items()}
        assert ours["job_share_ps_worker"] == pytest.approx(0.29, abs=0.02)
        assert ours["cnode_share_ps_worker"] == pytest.approx(0.81, abs=0.03)
        assert ours["ps_worker_communication_over_80_share"] > 0.38
        assert ours["allreduce_local_not_gaining_cnode_share"] == pytest.approx(0.226, abs=0.02)

    def test_most_sensitive_resources(self, synthetic):
        leads = {name: max(speedups, key=speedups.get) for name, speedups in synthetic.sensitivities.items()}
        assert leads["1w1g"] == "memory_bytes_per_s"
        assert leads["1wng"] == "pcie_bytes_per_s"
        assert leads["ps_worker"] == "ethernet_bytes_per_s"

    def test_what_cannot_be_met_is_said(self, synthetic):
        """With 59 % of jobs on one GPU the job-level mean cannot be 62 %, and the assumed 23.4 % is not reproduced."""
        missed = {result.figure.key for result in synthetic.missed}
        assert {"communication_share_job", "allreduce_local_cap_share_ideal_overlap"} <= missed
        assert not missed & set(HEADLINES)

    def test_same_seed_same_numbers(self, synthetic):
        again = characterize(CharacterizationSettings(num_jobs=40_000))
        other = characterize(CharacterizationSettings(num_jobs=40_000, seed=1))
        values = [{k: r.ours for k, r in found.figures.items()} for found in (synthetic, again, other)]
        assert values[0] == values[1] != values[2]
        assert synthetic.population.digest() == again.population.digest() != other.population.digest()


class TestSettings:
    def test_defaults_are_the_base_of_the_paper(self):
        settings = CharacterizationSettings()
        assert settings.step_model() == StepModel(BASE)
        assert set(settings.hardware_grid()) == set(QUANTITIES) - {"nvlink_bytes_per_s"}

    def test_everything_reaches_the_model(self):
        settings = CharacterizationSettings(
            hardware="pai-testbed",
            gpu="v100",
            efficiency=EfficiencySettings(compute=0.25, nvlink=0.5),
            overlap="ideal",
            pcie_group="root",
            cluster_shares_pcie=False,
        )
        model = settings.step_model()
        assert model.hardware.efficiency == Efficiency(compute=0.25, nvlink=0.5)
        assert (model.hardware.name, model.gpu, model.overlap) == ("pai-testbed", "v100", "ideal")
        assert (model.pcie_group, model.cluster_shares_pcie) == (4, False)
        assert CharacterizationSettings(pcie_group="none").step_model().pcie_group == 0

    def test_grid_can_be_replaced_extended_and_cut(self):
        grid = GridSettings(peak_flops=(), nvlink_bytes_per_s=(1e11,), pcie_bytes_per_s=(2e10, 3e10))
        values = CharacterizationSettings(grid=grid).hardware_grid()
        assert list(values) == ["memory_bytes_per_s", "pcie_bytes_per_s", "ethernet_bytes_per_s", "nvlink_bytes_per_s"]
        assert values["pcie_bytes_per_s"] == (2e10, 3e10) and values["nvlink_bytes_per_s"] == (1e11,)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (dict(overlap="some"), "overlap='some' is unknown; choose one of: none, ideal"),
            (dict(pcie_group="rack"), "pcie_group='rack' is unknown; choose one of: server, root, none"),
            (dict(num_jobs=0), "num_jobs=0 must be at least 1"),
            (dict(seed=-1), "seed=-1"),
            (dict(sensitivity_factor=1.0), r"sensitivity_factor=1\.0 must be above 1"),
            (dict(gpu_memory_bytes=0.0), r"gpu_memory_bytes=0\.0 must be positive"),
            (dict(efficiency=EfficiencySettings(pcie=0.0)), r"Efficiency\.pcie=0\.0 must be a positive number"),
            (dict(efficiency=EfficiencySettings(pcie=1.5)), r"Efficiency\.pcie=1\.5 must not exceed 1"),
            (
                dict(grid=GridSettings(ethernet_bytes_per_s=(0.0,))),
                r"grid\.ethernet_bytes_per_s: 0\.0 must be positive",
            ),
            (dict(population="jobs.csv", num_jobs=5), "jobs.csv is used whole; leave num_jobs out"),
            (dict(population="nothing.csv"), "nothing.csv"),
        ],
    )
    def test_wrong_values(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            findings.characterize(CharacterizationSettings(**changes))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (dict(hardware="pai"), "unknown hardware 'pai'"),
            (dict(gpu="h100"), "unknown GPU type 'h100'"),
            (dict(population="pai"), "unknown population 'pai'"),
        ],
    )
    def test_unknown_names(self, changes, message):
        with pytest.raises(UnknownNameError, match=message):
            characterize(CharacterizationSettings(**changes))

    def test_an_empty_grid_is_refused(self):
        nothing = GridSettings(*(5 * [()]))
        with pytest.raises(ConfigError, match="grid is empty"):
            characterize(CharacterizationSettings(num_jobs=10, grid=nothing))
