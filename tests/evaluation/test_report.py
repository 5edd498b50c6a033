"""Table, summary, job table and plots."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.evaluation.plots import plot_jct_cdf, plot_reductions
from dl2env.evaluation.report import (
    build_summary,
    compare,
    format_table,
    package_versions,
    write_jobs,
    write_summary,
)
from dl2env.evaluation.runner import Evaluation, evaluate
from dl2env.scenarios import get_scenario
from tests.evaluation.fakes import AlwaysVoid, Answers, FirstLegal, small_scenario


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return evaluate({"drf": FirstLegal(), "optimus": AlwaysVoid(), "mine": FirstLegal()}, small_scenario(), "test", 8)


def test_comparison_with_baselines(evaluation: Evaluation) -> None:
    rows = {row.name: row for row in compare(evaluation)}
    drf, optimus = evaluation.scores("drf"), evaluation.scores("optimus")
    assert list(rows["drf"].reductions) == ["optimus"]
    assert rows["drf"].reductions["optimus"].estimate == pytest.approx(1 - drf.mean() / optimus.mean())
    assert rows["mine"].reductions["drf"] == (0.0, 0.0, 0.0)  # the same decisions under another name
    assert rows["mine"].improvements["drf"] == pytest.approx((0.5, 0.5, 0.5))
    assert rows["mine"].mean_jct == rows["drf"].mean_jct
    assert list(compare(evaluation, baselines=("none",))[0].reductions) == []


def test_a_further_scheduler_changes_no_interval(evaluation: Evaluation) -> None:
    fewer = Evaluation(
        evaluation.scenario,
        evaluation.split,
        evaluation.workloads,
        {name: evaluation.results[name] for name in ("mine", "optimus")},
    )
    assert compare(fewer)[0].reductions["optimus"] == compare(evaluation)[2].reductions["optimus"]


def test_table_is_aligned_and_complete(evaluation: Evaluation) -> None:
    title, header, *lines = format_table(evaluation).splitlines()
    assert title.startswith("small-v1, 8 test workloads. JCT in intervals of 1200 s")
    columns = [match.start() for match in re.finditer(r"(?<!\S)\S+( \S+)*", header)]
    assert re.split(r"  +", header) == [
        "scheduler", "mean JCT", "less than drf", "less than optimus", "p99 JCT", "GPU use", "illegal", "unfinished",
        "ms/decision",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines] == ["drf", "optimus", "mine"]
    for line in lines:
        for column in columns[1:]:
            assert line[column - 1] == " " and line[column] != " "
    mean = evaluation.scores("optimus").mean()
    assert f"{mean:.2f} [" in lines[1]
    cells = re.split(r"  +", lines[0])
    reduction = 100 * (1 - evaluation.scores("drf").mean() / mean)
    assert cells[2] == "-"
    assert cells[3].startswith(f"{reduction:.1f} % [")


def test_table_flags_what_is_not_whole() -> None:
    bad = Answers(lambda mask: np.where(mask[:, 0], mask.shape[1] - 1, 0), name="bad")
    cut = evaluate([bad], small_scenario(**{"dynamics.max_intervals": 2}), num_workloads=1)
    text = format_table(Evaluation(cut.scenario, cut.split, cut.workloads, cut.results, interrupted=True))
    assert re.search(r"\d\*", text)
    assert (
        "* some jobs did not finish before truncation: their JCT counts as the time up to there and what their" in text
    )
    assert "interrupted" in text.splitlines()[-1]
    assert "[" not in text.splitlines()[2]  # one workload: no interval is pretended


def test_summary_is_reproducible_and_plain(evaluation: Evaluation, tmp_path: Path) -> None:
    again = evaluate(
        {"drf": FirstLegal(), "optimus": AlwaysVoid(), "mine": FirstLegal()}, small_scenario(), "test", 8, batch=3
    )
    texts = []
    for i, run in enumerate((evaluation, again)):
        path = write_summary(tmp_path / str(i) / "summary.json", build_summary(run, command=["x.py", "a=1"], seed=3))
        content = json.loads(path.read_text())
        assert set(content.pop("timing")) == {"drf", "optimus", "mine"}
        texts.append(json.dumps(content))
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content["schema_version"] == 1
    assert content["scenario"] == {"name": "small-v1", "version": 1, "hash": evaluation.scenario.hash()}
    assert content["workload_digests"] == [workload.digest() for workload in evaluation.workloads]
    assert content["command"] == ["x.py", "a=1"]
    mine = content["schedulers"]["mine"]
    assert mine["per_workload"]["mean_jct_intervals"] == evaluation.scores("mine").tolist()
    assert mine["reduction_vs"]["drf"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert mine["num_illegal"] == [0] * 8
    assert (mine["window"], mine["estimate"]["kind"]) == (3, "exact")
    assert content["versions"]["numpy"] == np.__version__
    assert content["versions"]["dl2env"]
    assert not list(tmp_path.glob("**/*.part"))


def test_summary_of_one_workload_has_no_bounds(tmp_path: Path) -> None:
    summary = build_summary(evaluate([AlwaysVoid()], get_scenario("toy-v1")))
    write_summary(tmp_path / "summary.json", summary)
    bounds = summary["schedulers"]["void"]["mean_jct_intervals"]
    assert bounds == {"estimate": pytest.approx(2.35), "low": None, "high": None}


def test_unwritable_places_and_values_are_named(evaluation: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (
        lambda path: write_summary(path, {}),
        lambda path: write_jobs(path, evaluation),
        lambda path: plot_jct_cdf(evaluation, path),
    ):
        with pytest.raises(ConfigError, match="file/out: cannot be written .*; choose another folder"):
            write(tmp_path / "file" / "out")
    with pytest.raises(ConfigError, match="holds a value that JSON cannot"):
        write_summary(tmp_path / "summary.json", {"x": float("nan")})
    with pytest.raises(ConfigError, match="holds a value that JSON cannot"):
        write_summary(tmp_path / "summary.json", {"x": np.zeros(2)})
    assert not (tmp_path / "summary.json").exists()


def test_versions_name_loaded_packages_only() -> None:
    code = (
        "import dl2env.evaluation.report as r; v = r.package_versions(); "
        "assert 'torch' not in v and 'matplotlib' not in v and {'python', 'numpy', 'dl2env'} <= set(v), v"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert package_versions()["python"].startswith("3.")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_job_table(evaluation: Evaluation, tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "jobs.csv", evaluation)
    rows = read_csv(path)
    assert len(rows) == 3 * 8 * 5
    chosen = [row for row in rows if row["scheduler"] == "optimus" and row["workload"] == "7"]
    assert [float(row["jct_s"]) for row in chosen] == evaluation.results["optimus"].records[7].jct_s.tolist()
    workload = evaluation.workloads[7]
    assert [row["type"] for row in chosen] == [workload.type_names[t] for t in workload.type_idx]
    cut = evaluate([AlwaysVoid()], small_scenario(**{"dynamics.max_intervals": 2}), num_workloads=1)
    rows = read_csv(write_jobs(tmp_path / "cut.csv", cut))
    unfinished = [row for row in rows if row["finish_s"] == ""]
    assert unfinished
    assert all(float(row["jct_s"]) > max(0.0, 2400 - float(row["arrival_s"])) for row in unfinished)
    mean_jct_s = cut.results["void"].metrics[0].mean_jct_s
    assert np.mean([float(row["jct_s"]) for row in rows]) == pytest.approx(mean_jct_s, rel=1e-12)


def test_plots_are_png_files(evaluation: Evaluation, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for path in (
        plot_jct_cdf(evaluation, tmp_path / "plots" / "cdf.png"),
        plot_reductions(evaluation, tmp_path / "reductions.png"),
    ):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5000


def test_plots_draw_the_data(evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dl2env.evaluation import plots

    figures = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: figures.append(figure) or path)
    plots.plot_jct_cdf(evaluation, tmp_path / "cdf.png")
    plots.plot_reductions(evaluation, tmp_path / "reductions.png")
    curves, bars = (figure.axes[0] for figure in figures)
    assert [line.get_label() for line in curves.lines] == ["drf", "optimus", "mine"]
    jct = np.sort(np.concatenate([records.jct_s for records in evaluation.results["optimus"].records])) / 1200
    assert curves.lines[1].get_xdata() == pytest.approx(jct)
    assert curves.lines[1].get_ydata()[-1] == 1.0
    widths = sorted(round(patch.get_width(), 9) for patch in bars.patches)
    reduction = 100 * (1 - evaluation.scores("drf").mean() / evaluation.scores("optimus").mean())
    back = 100 * (1 - evaluation.scores("optimus").mean() / evaluation.scores("drf").mean())
    assert widths == pytest.approx(sorted([back, 0.0, reduction, reduction]))


def test_plots_count_unfinished_jobs_like_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dl2env.evaluation import plots

    figures = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: figures.append(figure) or path)
    cut = evaluate([AlwaysVoid()], small_scenario(**{"dynamics.max_intervals": 2}), num_workloads=2)
    plots.plot_jct_cdf(cut, tmp_path / "cdf.png")
    mean = np.mean(figures[0].axes[0].lines[0].get_xdata())
    assert mean == pytest.approx(cut.results["void"].values("mean_jct_intervals").mean())


def test_missing_matplotlib_and_missing_baseline_say_the_cure(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no baseline to compare with was run; add one of: fifo"):
        plot_reductions(evaluation, tmp_path / "x.png", baselines=["fifo"])
    empty = Evaluation(evaluation.scenario, "test", evaluation.workloads)
    with pytest.raises(ConfigError, match="holds no results"):
        plot_jct_cdf(empty, tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="plots need matplotlib; install it with"):
        plot_jct_cdf(evaluation, tmp_path / "x.png")
