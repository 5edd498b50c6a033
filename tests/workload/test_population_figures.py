"""Published figures as data, and measured figures on jobs small enough to compute by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.characterization import PaiWorkloads
from dl2env.speed.hardware import load_hardware
from dl2env.workload.population import generate_population, load_population_config
from dl2env.workload.population_figures import (
    MARK_WEIGHTS,
    PublishedFigure,
    compare_figures,
    figure_residuals,
    load_published_figures,
    measure_figures,
)

BASE = load_hardware("pai-base")
GPU = BASE.gpu("pai-base")


def jobs_of_one_second(rows: list[tuple[str, int, float, float, float]]) -> PaiWorkloads:
    """Jobs whose step takes a second on base hardware: (architecture, cNodes, shares of weights, input, memory)."""
    architecture, n, weight, data, memory = (np.array(column) for column in zip(*rows, strict=True))
    per_byte = np.select(
        [architecture == "1wng", architecture == "ps_worker"],
        [1 / BASE.effective_pcie, 1 / BASE.effective_ethernet + 1 / BASE.effective_pcie],
        np.inf,
    )
    return PaiWorkloads(
        architecture=architecture,
        num_cnodes=n,
        batch_size=np.array([32.0]),
        flops=np.maximum(1 - weight - data - memory, 0.0) * GPU.peak_flops * 0.7,
        memory_bytes=memory * GPU.memory_bytes_per_s * 0.7,
        input_bytes=data * BASE.effective_pcie / np.where(architecture == "1wng", n, 1),
        weight_traffic_bytes=weight / per_byte,
    )


class TestMeasuredByHand:
    JOBS = jobs_of_one_second(
        [
            ("1w1g", 1, 0.0, 0.6, 0.3),
            ("1wng", 4, 0.5, 0.1, 0.3),
            ("ps_worker", 5, 0.9, 0.0, 0.1),
            ("ps_worker", 190, 0.0, 0.5, 0.3),
        ]
    )
    FOUND = measure_figures(JOBS, BASE, weight_bytes=[1e9, 2e9, 9.99e9, 10e9])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("communication_share_cnode", (4 * 0.5 + 5 * 0.9) / 200),
            ("communication_share_job", 1.4 / 4),
            ("ps_worker_communication_share_cnode", 5 * 0.9 / 195),
            ("ps_worker_communication_over_80_share", 0.5),
            ("compute_bound_share_cnode", (0.1 + 4 * 0.1 + 190 * 0.2) / 200),
            ("memory_bound_share_cnode", (0.3 + 4 * 0.3 + 5 * 0.1 + 190 * 0.3) / 200),
            ("compute_share_cnode", (0.4 + 4 * 0.4 + 5 * 0.1 + 190 * 0.5) / 200),
            ("memory_over_compute_bound_least", 0.4 / 0.2),
            ("input_share_1w1g", 0.6),
            ("input_over_50_share_1w1g", 1.0),
            ("input_share_distributed_cnode", (4 * 0.1 + 190 * 0.5) / 199),
            ("input_share_distributed_job", 0.6 / 3),
            ("job_share_1w1g", 0.25),
            ("job_share_1wng", 0.25),
            ("job_share_ps_worker", 0.5),
            ("cnode_share_ps_worker", 195 / 200),
            ("ps_worker_over_8_cnodes_share", 0.5),
            ("over_128_cnodes_job_share", 0.25),
            ("over_128_cnodes_cnode_share", 190 / 200),
            ("weights_below_10gb_share", 0.75),
            # Job 3 keeps its 5 cNodes and takes 0.9/21 + 0.1 s; job 4 shares PCIe with 8: 0.5 * 8 + 0.5 s on 8 of 190.
            ("allreduce_local_gain_share", 0.5),
            ("allreduce_local_not_gaining_share", 0.5),
            ("allreduce_local_not_gaining_cnode_share", 0.5),
            ("allreduce_local_max_speedup", 1 / (0.9 / 21 + 0.1)),
            # Under ideal overlap job 3 takes 0.9 s, then 0.1 s: 9x, not 21x.
            ("allreduce_local_cap_share_ideal_overlap", 0.0),
            ("allreduce_cluster_max_speedup", 1 / (0.9 * 0.34 / 0.42 + 0.1)),
            ("allreduce_cluster_gain_share", 0.5),
            ("allreduce_cluster_gain_share_of_others", 0.0),
            ("ethernet_25_to_100_speedup", (1 / (1 - 0.9 * 4 / 7) + 1) / 2),
            ("memory_lead_1w1g", 0.3 - 0.6),
            ("pcie_lead_1wng", 0.6 - 0.3),
            ("ethernet_lead_ps_worker", 0.45 * 0.32 / 0.42 - (0.25 + 0.45 * 0.1 / 0.42)),
        ],
    )
    def test_value(self, key, value):
        assert self.FOUND[key] == pytest.approx(value, rel=1e-12, abs=1e-12)

    def test_every_published_figure_is_measured_and_no_other(self):
        assert set(self.FOUND) == set(load_published_figures())

    def test_most_sensitive_after_the_port(self):
        """After the port job 3 takes 1/7 s, of which 0.7 is memory; job 4 4.5 s, of which 4 wait for PCIe."""
        memory = (0.1 / (0.9 / 21 + 0.1) + 0.3 / 4.5) / 2
        assert self.FOUND["memory_lead_allreduce_local"] == pytest.approx(memory - 4 / 4.5 / 2)

    def test_a_job_of_weights_alone_reaches_the_bound_under_ideal_overlap(self):
        jobs = jobs_of_one_second([("ps_worker", 4, 1.0, 0.0, 0.0), ("ps_worker", 4, 0.5, 0.0, 0.5)])
        assert measure_figures(jobs, BASE)["allreduce_local_cap_share_ideal_overlap"] == 0.5

    def test_without_contention_input_data_costs_no_more_after_the_port(self):
        jobs = jobs_of_one_second([("ps_worker", 8, 0.1, 0.5, 0.4)])
        assert measure_figures(jobs, BASE)["allreduce_local_not_gaining_cnode_share"] == 1.0
        assert measure_figures(jobs, BASE, pcie_group=0)["allreduce_local_not_gaining_cnode_share"] == 0.0
        assert measure_figures(jobs, BASE)["allreduce_cluster_gain_share"] == 0.0
        assert measure_figures(jobs, BASE, cluster_shares_pcie=False)["allreduce_cluster_gain_share"] == 1.0

    def test_figures_of_absent_classes_and_unknown_weights_are_left_out(self):
        found = measure_figures(jobs_of_one_second([("1w1g", 1, 0.0, 0.2, 0.4)]), BASE)
        assert {"allreduce_local_gain_share", "pcie_lead_1wng", "weights_below_10gb_share"}.isdisjoint(found)
        assert found["input_share_1w1g"] == pytest.approx(0.2)
        assert found["cnode_share_ps_worker"] == 0.0
        comparison = {it.figure.key: it for it in compare_figures(found)}["allreduce_local_gain_share"]
        assert comparison.measured is None and comparison.difference is None and not comparison.is_met

    def test_unknown_gpu(self):
        with pytest.raises(UnknownNameError, match="unknown GPU type 'none'"):
            measure_figures(self.JOBS, BASE, gpu="none")


class TestPublished:
    FIGURES = load_published_figures()

    def test_headlines(self):
        values = {key: (it.value, it.mark) for key, it in self.FIGURES.items()}
        assert values["communication_share_cnode"] == (0.62, "abstract")
        assert values["allreduce_local_gain_share"] == (0.60, "abstract")
        assert values["ethernet_25_to_100_speedup"] == (1.7, "abstract")
        assert values["allreduce_local_not_gaining_cnode_share"] == (0.226, "recalled B")

    @pytest.mark.parametrize("key", FIGURES)
    def test_words_and_weights_follow_the_mark(self, key):
        figure = self.FIGURES[key]
        assert (figure.wording == "as we understand the paper") == figure.mark.startswith("recalled")
        assert (figure.wording == "published") == (figure.mark == "abstract")
        assert figure.weight == (MARK_WEIGHTS[figure.mark] if figure.target else 0.0)
        assert figure.target or figure.reason
        if figure.mark in ("recalled C", "derived"):
            assert figure.weight == 0

    def test_marks_weigh_by_confidence(self):
        order = ("abstract", "second-hand", "second-hand, weak", "recalled B", "recalled B-", "recalled C")
        weights = [MARK_WEIGHTS[mark] for mark in order]
        assert weights == sorted(weights, reverse=True) and weights[-1] == 0 and len(set(weights)) == len(weights)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no [[figure]] table"),
            ("figure = 3", "no [[figure]] table"),
            ("figure = [3]", "figure 1: must be a table"),
            ("[[figure]]\nkey = 'a'", "figure 1: PublishedFigure.__init__() missing"),
            ("[[figure]]\nkeys = 'a'", "figure 1.keys: unknown key"),
            ("[[figure", "not valid TOML"),
            ("value = 'x'", "figure 1.value: expected float"),
            ("mark = 'rumour'", "mark='rumour'; choose one of: abstract"),
            ("relation = 'near'", "relation='near'; choose one of: equal, above, below"),
            ("part = 'x'", "part='x'; choose one of: breakdown"),
            ("weighting = 'x'", "weighting='x'; choose one of: job, cnode, none"),
            ("tolerance = 0.0", "tolerance=0.0 must be positive"),
            ("value = nan", "figure 1.value: nan is no value"),
        ],
    )
    def test_bad_file(self, tmp_path: Path, text: str, message: str):
        fields = {
            "key": "'a'",
            "text": "'t'",
            "value": "0.5",
            "relation": "'equal'",
            "tolerance": "0.1",
            "weighting": "'job'",
            "mark": "'abstract'",
            "part": "'port'",
        }
        if " = " in text and "figure" not in text:
            key, value = text.split(" = ")
            text = "[[figure]]\n" + "\n".join(f"{k} = {v}" for k, v in (fields | {key: value}).items())
        path = tmp_path / "figures.toml"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_published_figures(path)
        assert str(path) in str(caught.value) and message in str(caught.value)

    def test_key_given_twice_and_missing_file(self, tmp_path: Path):
        text = (
            "[[figure]]\nkey = 'a'\ntext = 't'\nvalue = 1\nrelation = 'equal'\ntolerance = inf\nweighting = 'job'\n"
            "mark = 'abstract'\npart = 'port'\n"
        )
        path = tmp_path / "figures.toml"
        path.write_text(text)
        assert load_published_figures(path)["a"].tolerance == math.inf
        path.write_text(text * 2)
        with pytest.raises(ConfigError, match="figure 2: key='a' appears twice"):
            load_published_figures(path)
        with pytest.raises(ConfigError, match="cannot be read"):
            load_published_figures(tmp_path / "none.toml")


def figure(**changes: Any) -> PublishedFigure:
    values: dict[str, Any] = dict(
        key="a", text="t", value=0.4, relation="equal", tolerance=0.1, weighting="job", mark="abstract", part="port"
    )
    return PublishedFigure(**(values | changes))


class TestErrors:
    def test_miss(self):
        assert figure().miss(0.45) == 0
        assert figure().miss(0.6) == pytest.approx(0.1) and figure().miss(0.2) == pytest.approx(-0.1)
        above, below = figure(relation="above"), figure(relation="below", tolerance=math.inf)
        assert above.miss(0.39) == pytest.approx(-0.01) and above.miss(0.55) == pytest.approx(0.05)
        assert below.miss(-1e9) == 0 and below.miss(0.5) == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("changes", "measured", "error"),
        [
            ({}, 0.45, 0.5),
            ({"mark": "second-hand, weak"}, 0.2, -2 * math.sqrt(0.4)),
            ({"mark": "recalled C"}, 0.9, 0.0),
            ({"target": False}, 0.9, 0.0),
            ({"relation": "above"}, 0.45, 0.0),
            ({"relation": "above"}, 0.5, 1.0),
            ({"relation": "below"}, 0.35, 0.0),
            ({"relation": "below"}, 0.4, 1.0),
            ({"relation": "above", "tolerance": math.inf}, 0.42, 0.0),
            ({"relation": "above", "tolerance": math.inf}, 0.40, -1.0),
            ({"relation": "below", "tolerance": math.inf}, 0.42, 2.0),
        ],
    )
    def test_residual(self, changes, measured, error):
        assert figure_residuals({"a": measured}, [figure(**changes)])[0] == pytest.approx(error, abs=1e-12)

    def test_what_is_not_measured_is_no_error(self):
        assert figure_residuals({}, [figure()]).tolist() == [0.0]


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 40))
def test_shares_are_shares_and_weightings_agree_for_equal_jobs(seed: int, size: int) -> None:
    population = generate_population(load_population_config("pai_assumed"), size, np.random.default_rng(seed))
    found = population.figures(BASE)
    for key, value in found.items():
        if key.endswith(("_share", "_share_cnode", "_share_job", "_share_1w1g")):
            assert 0 <= value <= 1, key
    total = sum(found[key] for key in ("job_share_1w1g", "job_share_1wng", "job_share_ps_worker"))
    assert total == pytest.approx(1)
    if (population.workloads.num_cnodes == population.workloads.num_cnodes[0]).all():
        assert found["communication_share_cnode"] == pytest.approx(found["communication_share_job"])
    if "allreduce_local_gain_share" in found:
        assert found["allreduce_local_gain_share"] + found["allreduce_local_not_gaining_share"] == pytest.approx(1)
        assert 1 <= found["ethernet_25_to_100_speedup"] <= 7 / 3
        assert found["allreduce_local_max_speedup"] <= 21 * (1 + 1e-12)
