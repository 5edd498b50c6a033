from __future__ import annotations

import dataclasses
import tomllib

import numpy as np
import pytest

from dl2env.errors import Dl2EnvError
from dl2env.resources import data_path
from dl2env.speed.analytic import isolated_step_time
from dl2env.speed.calibration import fit_job_type
from dl2env.speed.measured import MEASURED, TypeTable
from dl2env.workload.job_types import load_job_types
from scripts import fit_job_types
from tests.golden import golden_dir, golden_files
from tests.speed.cases import HARDWARE, job_type, parameters

TRUTH = dict(
    compute_efficiency=0.25,
    memory_efficiency=0.25,
    worker_bytes_per_s=6e8,
    ps_bytes_per_s=1e9,
    worker_cost_s=0.02,
    ps_cost_s=0.005,
)


def speeds(kind, size: int = 9) -> TypeTable:
    step_s = isolated_step_time(parameters(kind, caps=(size, size)), size, size)[0, 1:-1, 1:-1, 0]
    batches = 1.0 if kind.synchronous else np.arange(1, size + 1)[:, None]
    speed = batches * kind.batch_size / step_s
    return TypeTable(speed, np.full(speed.shape, MEASURED, np.int8))


@pytest.mark.parametrize("synchronous", [True, False])
def test_recovers_the_constants_behind_a_table(synchronous):
    truth = job_type(synchronous=synchronous, **TRUTH)
    start = job_type(synchronous=synchronous, fixed_s=9.0)  # earlier fits are forgotten
    fit = fit_job_type(start, speeds(truth), HARDWARE, "slow")
    assert fit.mean_error < 1e-3
    if synchronous:  # asynchronous jobs cannot tell computation from exchange
        assert fit.values == pytest.approx(TRUTH, rel=2e-3)
    assert fit.num_cells == 81 and fit.num_failed == 0


def test_hardware_bounds_the_fit():
    # Faster than the processor allows.
    kind = job_type(compute_efficiency=1.0, memory_efficiency=1.0)
    table = speeds(kind)
    fit = fit_job_type(kind, dataclasses.replace(table, samples_per_s=1.3 * table.samples_per_s), HARDWARE, "slow")
    assert fit.values["compute_efficiency"] == 1.0
    assert "worker_bytes_per_s" not in fit.values  # nothing is left for the exchange


def test_failed_and_unmeasured_cells_are_left_out():
    truth = job_type(**TRUTH)
    table = speeds(truth)
    table.samples_per_s[3, 3] = 1e-13
    table.origin[0, 0], table.samples_per_s[0, 0] = 0, 1e6
    fit = fit_job_type(truth, table, HARDWARE, "slow")
    assert (fit.num_cells, fit.num_failed) == (79, 1)
    assert fit.values == pytest.approx(TRUTH, rel=2e-3)


def test_unfit_input_is_named():
    with pytest.raises(Dl2EnvError, match="'job': only types with parameter servers"):
        fit_job_type(job_type(architecture="pearl"), speeds(job_type()), HARDWARE, "slow")
    with pytest.raises(Dl2EnvError, match="'job': 4 measured cells"):
        fit_job_type(job_type(), speeds(job_type(), size=2), HARDWARE, "slow")


def test_committed_fits_are_physical():
    hardware_rate = 6.25e9
    for kind in load_job_types("dl2"):
        assert 0.01 < kind.compute_efficiency <= 1.0
        assert kind.worker_bytes_per_s is None or 1e7 < kind.worker_bytes_per_s < hardware_rate
        assert kind.ps_bytes_per_s is None or 1e7 < kind.ps_bytes_per_s < 2e10
        assert kind.fixed_s == 0.0 and 0.0 < kind.worker_cost_s < 0.3
        assert "fitted" in kind.sources["worker_cost_s"]


class TestCommand:
    def test_writes_what_is_committed(self, tmp_path, capsys):
        if not golden_files():
            pytest.skip(f"no recorded tables in {golden_dir()}; name their folder in DL2ENV_GOLDEN_DIR")
        if fit_job_types.read_tables(golden_dir())["resnet-50"].samples_per_s.shape != (17, 17):
            pytest.skip("the recorded tables are not those of up to 17 workers and PSs that the fit was made from")
        output = tmp_path / "fit.toml"
        assert fit_job_types.main([str(golden_dir()), "--output", str(output)]) == 0
        assert output.read_text() == data_path("job_types", "dl2_fit.toml").read_text()
        assert "resnet-50" in capsys.readouterr().out
        # No worse than the free form fitted to all published rows, within half a percentage point.
        published = [9.6, 11.3, 6.8, 4.8, 9.7, 3.1, 4.9, 9.1]
        lines = [line for line in output.read_text().splitlines() if "cells" in line]
        errors = [float(line.split()[2]) for line in lines]
        assert all(error <= limit + 0.5 for error, limit in zip(errors, published, strict=True))
        assert set(tomllib.loads(output.read_text())) == {"source", *(kind.name for kind in load_job_types("dl2"))}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nothing.json"], "nothing.json: cannot be read"),
            (["."], "no JSON file in it"),
            (["table.json"], "no speeds of 'resnet-50'; it has: other"),
            (["table.json", "--hardware", "abacus"], "unknown hardware 'abacus'"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(self, tmp_path, monkeypatch, capsys, arguments, message):
        folder = tmp_path / "empty"
        folder.mkdir()
        monkeypatch.chdir(folder)
        (tmp_path / "table.json").write_text(
            '{"schema": "dl2env-speed-table/1", "types": {"other": {"speed": [[1.0]]}}}'
        )
        arguments = [str(tmp_path / "table.json") if a == "table.json" else a for a in arguments]
        assert fit_job_types.main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.startswith("error: ") and error.count("\n") == 1
