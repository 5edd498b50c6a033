"""What is written: tables with honest wording, plots, a page without a network, and a summary of plain numbers."""

from __future__ import annotations

import html.parser
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.characterization import plots, report, tables
from dl2env.evaluation.characterization.findings import (
    HEADLINES,
    Characterization,
    characterize,
    characterize_population,
)
from dl2env.evaluation.characterization.settings import CharacterizationSettings
from dl2env.speed.characterization import StepModel
from tests.evaluation.characterization.populations import BASE, four_jobs, one_second_jobs, population

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def found() -> Characterization:
    return characterize(CharacterizationSettings(num_jobs=3000))


@pytest.fixture(scope="module")
def written(found: Characterization, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return report.write_report(found, tmp_path_factory.mktemp("report"), ["characterize.py", "num_jobs=3000"])


class Page(html.parser.HTMLParser):
    """Tags that were opened and not closed, ids, links and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(str(attributes["id"]))
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]
        if tag == "img":
            self.pictures.append(attributes)
        if tag not in ("meta", "img", "input", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_no_network(written):
    text = written["report"].read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {link for link in page.links if not link.startswith(("#", "data:"))} == set()
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"url\(|@import|https?://", text)
    assert len(page.pictures) == 4 and all(picture["alt"] for picture in page.pictures)
    assert {"figures", "breakdown-job", "breakdown-cnode", "ports", "choice", "sensitivity", "product", "cases"} <= set(
        page.ids
    )
    assert text.count('class="sortable"') == 9


def test_page_says_what_the_population_is_and_rests_on(found, written):
    text = " ".join(written["report"].read_text(encoding="utf-8").split())
    assert "This population is synthetic. It is not PAI data" in text
    for line in report.assumptions(found):
        assert line.split(":")[0] in text
    assert "characterize.py num_jobs=3000" in text


def test_plots_are_png_files_of_sensible_size(written):
    assert list(written) == [*plots.PLOTS, "report", "summary"]
    for name in plots.PLOTS:
        data = written[name].read_bytes()
        assert data.startswith(b"\x89PNG") and written[name].name == f"{name}.png"
        width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
        assert 600 <= width <= 2000 and 200 <= height <= 2000


def test_stacked_bars_are_the_shares(found):
    figure = plots.plot_breakdown(found)
    for axes, weighting in zip(figure.axes, tables.WEIGHTINGS, strict=True):
        ends = {}
        for container in axes.containers:
            for view, bar in zip(found.classes, container, strict=True):
                assert bar.get_x() == pytest.approx(ends.get(view.name, 0.0))
                ends[view.name] = bar.get_x() + bar.get_width()
        assert ends == pytest.approx({view.name: 100.0 for view in found.classes})
        ethernet = next(c for c in axes.containers if c.get_label() == tables.PART_LABELS["ethernet"])
        assert [bar.get_width() for bar in ethernet] == pytest.approx(
            [100 * view.shares[weighting]["ethernet"] for view in found.classes]
        )


def test_distributions_rise_from_0_to_100_percent(found):
    for figure in (plots.plot_distributions(found), plots.plot_speedups(found)):
        curves = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) > 2]
        assert len(curves) >= 6
        for line in curves:
            x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
            assert (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()
            assert (y[0], y[-1]) == (0.0, pytest.approx(100.0))


def test_distribution_by_hand():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plots._cdf(axes, np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]))
    (line,) = axes.lines
    points = sorted(set(zip(line.get_xdata(), line.get_ydata(), strict=True)))
    assert points == [(1.0, 0.0), (1.0, 25.0), (2.0, 75.0), (3.0, 100.0)]


def test_speedup_plot_shows_the_share_that_does_not_gain(found):
    """The curve at a speedup of 1 is the published kind of figure: jobs that do not gain."""
    axes = plots.plot_speedups(found).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "throughput")
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    at_one = y[np.searchsorted(x, 1.0, side="right") - 1]
    assert at_one / 100 == pytest.approx(found.figures["allreduce_local_not_gaining_share"].ours, abs=2e-3)


def test_summary_has_the_promised_numbers(found, written):
    summary = json.loads(written["summary"].read_text())
    assert summary["schema"] == "dl2env-characterization"
    for key in HEADLINES:
        assert isinstance(summary[key], float) and math.isfinite(summary[key])
        assert summary[key] == summary["figures"][key]["ours"] == found.figures[key].ours
    assert 0 < summary["communication_share_job"] < summary["communication_share_cnode"] < 1
    for key, figure in summary["figures"].items():
        assert figure["ours"] is not None, key
        assert figure["difference"] == pytest.approx(figure["ours"] - figure["published"])
        assert figure["mark"] and figure["wording"] and figure["weighting"] in ("job", "cnode", "none")
    assert summary["not_met"] == [key for key, figure in summary["figures"].items() if not figure["is_met"]]
    assert summary["meets_all_published_figures"] is False
    assert summary["classes"]["all"]["communication_share"]["cnode"] == pytest.approx(
        summary["communication_share_cnode"]
    )
    assert summary["cases"]["as chosen"]["allreduce_local_gain_share"] == summary["allreduce_local_gain_share"]
    assert len(summary["hardware_product"]) == 4 * 3 * 3 * 2
    assert summary["population"]["kind"] == "synthetic" and summary["population"]["num_jobs"] == 3000
    assert summary["command"] == ["characterize.py", "num_jobs=3000"]


def test_summary_is_reproducible_but_for_its_timing(found):
    again = characterize(CharacterizationSettings(num_jobs=3000))
    first, second = report.build_summary(found), report.build_summary(again)
    assert first.pop("timing").keys() == second.pop("timing").keys()
    assert first == second


def test_nothing_recalled_is_printed_as_published(found):
    rows = tables.figures_table(found).rows
    sources = [row.whole_cells[-1].text for row in rows]
    for result, source in zip(found.figures.values(), sources, strict=True):
        mark = result.figure.mark
        if mark == "recalled C":
            assert source.startswith("assumed")
        elif mark.startswith("recalled"):
            assert source.startswith("as we understand the paper") and mark in source
        else:
            assert source == mark
    assert sum(source == "abstract" for source in sources) == 4  # 62 % in both readings, 60 %, 1.7x


def test_figures_are_shown_with_difference_and_verdict(found):
    rows = {row.whole_cells[0].text: row.whole_cells for row in tables.figures_table(found).rows}
    for result in found.figures.values():
        _, ours, published, difference, verdict, _ = rows[result.figure.text]
        unit = "x" if tables.is_ratio(result.figure) else "%"
        assert ours.text.endswith(unit) and published.text.endswith(unit)
        assert difference.text[0] in "+-"
        assert (verdict.text == "met") is result.is_met


def test_figures_as_text():
    assert tables.show(0.6189, False) == "61.9 %"
    assert tables.show(-0.0111, False, signed=True) == "-1.1 points"
    assert tables.show(1.684, True) == "1.68x"
    assert tables.show(0.02, True, signed=True) == "+0.02"
    assert tables.show(None, True) == tables.show(math.nan, False) == "–"


def test_a_population_without_ps_workers_is_reported_too(tmp_path):
    jobs = population(one_second_jobs("1w1g", 0.0, [0.3, 0.1], 1, 0.4), one_second_jobs("pearl", 0.3, 0.1, 6))
    found = characterize_population(
        jobs, CharacterizationSettings(), StepModel(BASE), {"memory_bytes_per_s": (1e12, 2e12)}
    )
    paths = report.write_report(found, tmp_path)
    assert "speedups" not in paths
    text = paths["report"].read_text()
    assert "not in this population" in text and "This population is synthetic" not in text
    summary = json.loads(paths["summary"].read_text())
    assert summary["ethernet_25_to_100_speedup"] is summary["allreduce_local_gain_share"] is None
    assert summary["figures"]["weights_below_10gb_share"]["is_met"] is None
    assert summary["communication_share_job"] == pytest.approx(
        0.02 / 0.42 * 0.3 / (0.02 / 0.42 * 0.3 + 0.6 + 0.6) / 3, rel=1e-12
    )


def test_verdict_names_what_is_not_met(found):
    text = report.verdict(found)
    assert "does not meet all at once" in text
    for result in found.missed:
        assert result.figure.key in text
    compared = [result for result in found.figures.values() if result.is_met is not None]
    assert text.startswith(f"{len(compared) - len(found.missed)} of {len(compared)} published figures")


def test_ones_own_jobs_have_nothing_to_meet():
    found = characterize_population(
        four_jobs(), CharacterizationSettings(), StepModel(BASE), {"memory_bytes_per_s": (1e12, 2e12)}
    )
    text = report.verdict(found)
    assert "hold for these jobs too, within our tolerances. Other here than published: " in text
    assert found.missed and all(result.figure.key in text for result in found.missed)
    cells = {tables.verdict(result, "file").text for result in found.figures.values()}
    assert {"alike", "different"} <= cells <= {"alike", "different", "not in this population"}
    shown = {row.whole_cells[4].text for row in tables.figures_table(found).rows}
    assert not shown & {"met", "not met"}


def test_assumptions_follow_the_model():
    model = StepModel(BASE, overlap="ideal", pcie_group=4, cluster_shares_pcie=False)
    found = characterize_population(four_jobs(), CharacterizationSettings(), model, {"peak_flops": (1e13,)})
    text = " ".join(report.assumptions(found))
    assert "Ideal overlap" in text and "Up to 4 replicas" in text and "but not on AllReduce-Cluster" in text
    assert "Ethernet 25 Gb/s at 70 %" in text and "GPU compute 11 TFLOPS at 70 %" in text
    assert "synthetic" not in text


def test_folders_that_cannot_be_written_are_named(found, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="file.*choose another folder"):
        report.write_report(found, blocked / "inside")
