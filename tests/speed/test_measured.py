from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dl2env.config import ClusterConfig, EnvConfig, ServerGroup, SpeedConfig, WorkloadConfig
from dl2env.errors import ConfigError
from dl2env.speed import build_speed
from dl2env.speed.fitted import FittedSpeed, fit_speed
from dl2env.speed.measured import (
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    MISSING,
    RELEASED_TYPES,
    SCHEMA,
    TypeTable,
    clean_table,
    measured_parameters,
    read_speed_table,
    released_cells,
)
from dl2env.workload.job_types import load_job_types
from tests.golden import golden_params
from tests.speed.cases import close, job_type, parameters

FORM = FittedSpeed(np.array([0.02, 0.3, 0.2, 0.01, 0.004]), True, 12.0)


def form_speeds(max_workers: int, max_ps: int) -> np.ndarray:
    """(W, P) speeds of the form."""
    w, p = np.meshgrid(np.arange(1, max_workers + 1), np.arange(1, max_ps + 1), indexing="ij")
    return FORM.samples_per_s(w, p)


def cleaned(speed: np.ndarray, origin: np.ndarray, size: tuple[int, int]) -> TypeTable:
    return clean_table(TypeTable(speed, origin.astype(np.int8)), *size, is_synchronous=True, batch_size=12.0)


class TestRead:
    def test_own_form(self, tmp_path):
        path = tmp_path / "table.json"
        entry = {"batch_size": 12, "speed": [[1, 2, None], [4, 5, 6]], "measured": [[1, 1, 1], [1, 0, 1]]}
        path.write_text(json.dumps({"schema": SCHEMA, "types": {"job": entry, "plain": {"speed": [[3.0]]}}}))
        tables = read_speed_table(path)
        job = tables["job"]
        assert job.samples_per_s[1, 0] == 2 and job.samples_per_s[2, 1] == 6  # by (workers, PSs)
        assert job.origin.T.tolist() == [[MEASURED, MEASURED, MISSING], [MEASURED, MISSING, MEASURED]]
        assert job.batch_size == 12
        assert tables["plain"].origin.tolist() == [[MEASURED]]
        assert job.describe() == "2 missing, 4 measured, 0 interpolated, 0 extrapolated, 0 failed runs"

    def test_released_form_prefers_the_extended_table(self, tmp_path):
        path = tmp_path / "released.json"
        small, large = np.full((2, 2), 1.0), np.arange(9.0).reshape(3, 3)
        path.write_text(json.dumps({"speed_table": {"5": small.tolist()}, "speed_table_ext": {"5": large.tolist()}}))
        tables = read_speed_table(path)
        assert list(tables) == ["seq2seq"]
        assert close(tables["seq2seq"].samples_per_s, large.T)  # [ps - 1][workers - 1] in the file
        assert tables["seq2seq"].origin.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]  # odd counts were measured

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "not valid JSON"),
            ("[]", "no speed table"),
            ({"schema": "other"}, "no speed table"),
            ({"schema": SCHEMA, "types": []}, "types must map"),
            ({"schema": SCHEMA, "types": {"a": {}}}, r"types\.a\.speed is missing"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1], [1, 2]]}}}, r"types\.a\.speed: rows differ"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [1, 2]}}}, "list of lists"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1, "x"]]}}}, r"types\.a\.speed\[0\]\[1\]='x'"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1]], "measured": [[1, 1]]}}}, "shape of speed"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[True]]}}}, r"speed\[0\]\[0\]=True must be a number"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1]], "measured": [[2]]}}}, r"=2 must be true or false"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1]], "measured": [[None]]}}}, "must be true or false"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1]], "measured": [["x"]]}}}, "must be true or false"),
            ({"speed_table": {"1": [[False]]}}, r"speed_table.1\[0\]\[0\]=False must be a number"),
            ({"schema": SCHEMA, "types": {"a": {"speed": [[1]], "batch_size": -2}}}, "batch_size=-2"),
            ({"speed_table": {"9": [[1.0]]}}, r"speed_table\.9: type numbers are 1 to 8"),
            ('{"speed_table": {"1": [[NaN]]}}', r"speed_table\.1\[0\]\[0\]=nan"),
        ],
    )
    def test_bad_files_are_named_with_the_key_at_fault(self, tmp_path, content, message):
        path = tmp_path / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ConfigError, match=message) as caught:
            read_speed_table(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)

    def test_missing_file(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_speed_table(tmp_path / "nothing.json")


def test_released_cells_have_the_published_counts():
    # Counts known for 16 x 16 allocations, from the published rows.
    assert [int(released_cells(t, 16, 16).sum()) for t in range(1, 9)] == [182, 182, 47, 47, 47, 58, 58, 47]


class TestClean:
    def test_a_complete_table_stays(self):
        speed = form_speeds(4, 4)
        table = cleaned(speed, np.full((4, 4), MEASURED), (4, 4))
        assert close(table.samples_per_s, speed)
        assert (table.origin == MEASURED).all()

    def test_cells_beyond_follow_the_fitted_form(self):
        table = cleaned(form_speeds(5, 5), np.full((5, 5), MEASURED), (8, 7))
        assert close(table.samples_per_s, form_speeds(8, 7), 1e-6)
        assert (table.origin[:5, :5] == MEASURED).all()
        assert (table.origin[5:] == EXTRAPOLATED).all() and (table.origin[:, 5:] == EXTRAPOLATED).all()

    def test_failed_runs_are_dropped_counted_and_interpolated(self):
        noise = np.random.default_rng(0).uniform(0.9, 1.1, (5, 5))
        speed = form_speeds(5, 5) * noise
        speed[2, 2], speed[0, 3] = -1e-13, 0.0
        table = cleaned(speed, np.full((5, 5), MEASURED), (5, 5))
        assert table.num_failed == 2
        assert table.origin[2, 2] == table.origin[0, 3] == INTERPOLATED
        assert (table.origin == INTERPOLATED).sum() == 2
        w, p = (axis + 1 for axis in np.nonzero(table.origin == MEASURED))
        fit = fit_speed(w, p, speed[w - 1, p - 1], is_synchronous=True, batch_size=12.0)

        def ratio(i: int, j: int) -> float:
            return float(fit.samples_per_s(i + 1, j + 1) / speed[i, j])

        both_axes = ((ratio(1, 2) + ratio(3, 2)) / 2 + (ratio(2, 1) + ratio(2, 3)) / 2) / 2
        assert table.samples_per_s[2, 2] == pytest.approx(fit.samples_per_s(3, 3) / both_axes)
        along_ps = (ratio(0, 2) + ratio(0, 4)) / 2  # no measured cell with fewer workers
        assert table.samples_per_s[0, 3] == pytest.approx(fit.samples_per_s(1, 4) / along_ps)

    def test_odd_counts_only(self):
        speed = form_speeds(5, 5)
        origin = np.full((5, 5), MISSING)
        origin[::2, ::2] = MEASURED
        speed[origin == MISSING] = 1e9  # must not be used
        table = cleaned(speed, origin, (5, 5))
        assert (table.origin == np.where(origin == MEASURED, MEASURED, INTERPOLATED)).all()
        assert close(table.samples_per_s, form_speeds(5, 5), 1e-6)

    def test_a_smaller_table_is_cut(self):
        table = cleaned(form_speeds(5, 5), np.full((5, 5), MEASURED), (2, 3))
        assert close(table.samples_per_s, form_speeds(2, 3))


class TestParameters:
    def tables(self, **changes: Any) -> dict[str, TypeTable]:
        speed = form_speeds(3, 3)
        return {"job": TypeTable(speed, np.full(speed.shape, MEASURED, np.int8), **changes)}

    def test_table_is_indexed_by_type_workers_ps(self):
        p = measured_parameters(parameters(job_type(), caps=(2, 2)), self.tables(), 2, 2)
        assert p.table.shape == (1, 4, 4)
        assert (p.table[:, 0] == 0).all() and (p.table[:, :, 0] == 0).all()
        assert close(p.table[0, 3, 2], FORM.samples_per_s(3, 2))

    def test_raw_values_are_kept(self):
        tables = self.tables()
        tables["job"].samples_per_s[1, 1] = -1e-13
        p = parameters(job_type(), caps=(2, 2))
        assert measured_parameters(p, tables, 2, 2, raw=True).table[0, 2, 2] == -1e-13
        assert measured_parameters(p, tables, 2, 2).table[0, 2, 2] > 1.0

    def test_raw_needs_one_cell_beyond_the_caps(self):
        p = parameters(job_type(), caps=(3, 3))
        with pytest.raises(ConfigError, match="'job' must hold all cells up to 4 workers and 4"):
            measured_parameters(p, self.tables(), 3, 3, raw=True)
        assert measured_parameters(p, self.tables(), 3, 3).table.shape == (1, 5, 5)

    def test_types_that_cannot_be_measured_are_named(self):
        with pytest.raises(ConfigError, match="no type 'other'; it has: job"):
            measured_parameters(parameters(job_type("other")), self.tables(), 2, 2)
        with pytest.raises(ConfigError, match="'job' has no parameter servers"):
            measured_parameters(parameters(job_type(architecture="pearl")), self.tables(), 2, 2)
        with pytest.raises(ConfigError, match="batch_size 32, its job type has 12"):
            measured_parameters(parameters(job_type()), self.tables(batch_size=32.0), 2, 2)

    def test_a_measured_model_needs_a_table(self):
        with pytest.raises(ConfigError, match=r"speed\.table"):
            SpeedConfig(model="measured")


@pytest.mark.parametrize("path", golden_params())
def test_recorded_tables_build_both_raw_and_clean(path):
    recorded = json.loads(path.read_text())
    w, p = recorded["config"]["max_workers"], recorded["config"]["max_ps"]
    servers = (ServerGroup(4, cpus=8, gpus=8, gpu_type="gtx-1080ti"),)
    built = {}
    for clean in (False, True):
        config = EnvConfig(
            cluster=ClusterConfig(servers=servers, hardware="dl2-testbed"),
            workload=WorkloadConfig(max_workers=w, max_ps=p),
            speed=SpeedConfig(model="measured", table=str(path), clean_table=clean),
        )
        built[clean] = build_speed(load_job_types("dl2"), config)
    assert built[True].type_names == RELEASED_TYPES
    raw = np.array([recorded["speed_table_ext"][str(t)] for t in range(1, 9)])  # [type][ps - 1][workers - 1]
    assert (built[False].table[:, 1:, 1:] == raw.transpose(0, 2, 1)[:, : w + 1, : p + 1]).all()
    assert (built[True].table[:, 1:, 1:] > 0.1).all()
    for t in range(8):
        measured = released_cells(t + 1, w + 1, p + 1) & (built[False].table[t, 1:, 1:] > 1e-6)
        assert close(built[True].table[t, 1:, 1:][measured], built[False].table[t, 1:, 1:][measured])
