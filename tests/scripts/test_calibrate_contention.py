"""`scripts/calibrate_contention.py`, on few workloads."""

from __future__ import annotations

import pytest

from dl2env.evaluation.contention import measure_contention
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from scripts import calibrate_contention


def test_a_row_for_every_pair_of_strengths(capsys: pytest.CaptureFixture[str]) -> None:
    status = calibrate_contention.main(["--sharing", "0", "1.5", "--noise", "0.2", "0", "--workloads", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0 and len(lines) == 5
    rows = [line.split() for line in lines[1:]]
    assert [row[:2] for row in rows] == [["0", "0.2"], ["1.5", "0.2"], ["0", "0"], ["1.5", "0"]]
    scenario = get_scenario("dl2-small-v1").derive({"cluster.link_sharing": 1.5, "dynamics.speed_noise": 0.0})
    found = measure_contention(get_scheduler("drf"), scenario.config, scenario.workloads("train", 2))
    assert rows[3][2] == f"{100 * found.speed_variation:.1f}"
    assert rows[3][4] == f"{100 * found.mean_slowdown:.1f}"
    assert rows[3][6] == f"{100 * found.share_full:.1f}"
    assert rows[3][8] == f"{found.mean_jct_intervals:.2f}"
    assert {len(line) for line in lines} == {len(lines[0])}  # columns line up


def test_a_dash_where_nothing_could_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "toy-v1", "--sharing", "0", "--noise", "0", "--workloads", "1"]
    assert calibrate_contention.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "-"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "none-v1"], "unknown scenario 'none-v1'; choose one of: bursty-v1, diurnal-v1, dl2-"),
        (["--scheduler", "drff"], "unknown scheduler 'drff'; choose one of: "),
        (["--scheduler", "released-drf"], "scheduler 'released-drf' is for the faithful mode"),
        (["--sharing", "-1"], "cluster.link_sharing=-1.0 must lie in [0, 100]"),
        (["--noise", "1"], "dynamics.speed_noise=1.0 must lie in [0, 1)"),
        (["--workloads", "0"], "0 workloads asked for; give at least 1"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert calibrate_contention.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
