"""Forms, fits and folds of the speed validation on synthetic truths, and its errors on real measurements."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.fitting import Combination, combined, fit_steps
from dl2env.evaluation.speed_validation.folds import configuration_folds, group_folds
from dl2env.evaluation.speed_validation.forms import (
    CONSTANTS,
    FITTED,
    analytic_columns,
    analytic_constants,
    forms_of,
    optimus_columns,
    unfitted,
)
from dl2env.evaluation.speed_validation.readers import read_applications, read_ps_tables
from dl2env.evaluation.speed_validation.report import largest_group_error
from dl2env.evaluation.speed_validation.steps import MeasuredSteps
from dl2env.evaluation.speed_validation.validation import (
    CATALOGUE_FIT,
    FOLDS,
    GROUPS,
    IN_SAMPLE,
    UNFITTED,
    few_measurements,
    validate,
    worst_groups,
)
from dl2env.speed.analytic import analytic_parameters, step_time
from dl2env.speed.hardware import load_hardware
from dl2env.workload.job_types import JobType, load_job_types
from tests.golden import GOLDEN_DIR_VARIABLE, golden_dir, golden_files
from tests.scripts.calls import command, composed

ADAPTDL_DIR = Path(
    os.environ.get("DL2ENV_ADAPTDL_DIR")
    or Path(__file__).resolve().parents[2] / ".." / "shared" / "traces" / "adaptdl-osdi21"
)


def job_type(name: str) -> JobType:
    catalogue = "dl2" if name == "resnet-50" else "adaptdl"
    return next(t for t in load_job_types(catalogue) if t.name == name)


def synthetic_steps(kind: JobType, rng: np.random.Generator, size: int = 120) -> MeasuredSteps:
    """Placements of a type; step times are all 1."""
    if kind.uses_ps:
        w, p = rng.integers(1, 9, size), rng.integers(1, 9, size)
        server = np.arange(16)
        workers = (server < w[:, None]).astype(float)
        ps = ((server < (w + p)[:, None]) & (workers == 0)).astype(float)
        batch = np.full(size, kind.batch_size)
    else:
        servers = rng.integers(1, 7, size)
        workers = np.where(np.arange(6) < servers[:, None], rng.integers(1, 5, (size, 6)), 0).astype(float)
        workers = -np.sort(-workers, axis=1)
        ps, batch = np.zeros_like(workers), rng.choice([16.0, 64.0, 256.0], size)
    labels = np.array([f"{w.tolist()} {p.tolist()}" for w, p in zip(workers, ps, strict=True)])
    groups = np.array([f"{int((w + p > 0).sum())} servers" for w, p in zip(workers, ps, strict=True)])
    return MeasuredSteps(kind.name, workers, ps, batch, np.ones(size), labels, groups)


def with_truth(kind: JobType, steps: MeasuredSteps, theta: dict[str, float]) -> MeasuredSteps:
    constants = np.array([theta.get(name, 0.0) for name in CONSTANTS])
    return dataclasses.replace(steps, step_s=analytic_columns(kind, steps) @ constants)


TRUTHS = {
    "cifar10": dict(compute_s=0.09, input_s=0.01, ethernet_s=0.06, nvlink_s=0.02, fixed_s=0.03, worker_cost_s=0.002),
    "resnet-50": dict(compute_s=0.15, exchange_s=0.4, ps_service_s=0.43, worker_cost_s=0.009, ps_cost_s=0.002),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_columns_are_the_formula_of_the_simulator(name: str) -> None:
    """Catalogue features through the columns and through the simulator's parameters give the same step."""
    kind = dataclasses.replace(job_type(name), fixed_s=0.02, worker_cost_s=0.003)
    hardware = load_hardware("adaptdl-testbed")
    steps = synthetic_steps(kind, np.random.default_rng(0))
    by_columns = analytic_columns(kind, steps, pcie_group=4) @ analytic_constants(kind, hardware, "t4")
    cluster = ClusterConfig(servers=(ServerGroup(1, 48, 4, "t4"),))
    for batch in np.unique(steps.batch):
        scale = batch / kind.batch_size  # features are proportional to the batch, weight traffic is not
        scaled = dataclasses.replace(
            kind, flops=kind.flops * scale, memory_bytes=kind.memory_bytes * scale, input_bytes=kind.input_bytes * scale
        )
        parameters = analytic_parameters([scaled], cluster, hardware, 16, 16)
        here = steps.batch == batch
        direct = step_time(parameters, 0, steps.workers[here], steps.ps[here], pcie_group=4).total_s
        np.testing.assert_allclose(by_columns[here], direct, rtol=1e-12)


def test_columns_by_hand() -> None:
    kind = job_type("cifar10")  # batch size 128
    workers = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0]])
    steps = MeasuredSteps(
        "x", workers, np.zeros((3, 2)), np.array([128.0, 256, 64]), np.ones(3), np.array(["a"] * 3), np.array(["g"] * 3)
    )
    names = [CONSTANTS.index(name) for name in FITTED["all_reduce"]]
    # compute, input (its sharers), Ethernet (several servers), NVLink (several workers), fixed, workers
    assert analytic_columns(kind, steps)[:, names].tolist() == [
        [1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        [2.0, 6.0, 0.0, 1.0, 1.0, 3.0],
        [0.5, 1.0, 1.0, 1.0, 1.0, 3.0],
    ]
    columns, terms = optimus_columns(kind, steps)
    assert terms == ("M/w", "1", "w") and columns.tolist() == [[128, 1, 1], [256, 1, 3], [64, 1, 3]]


def test_optimus_columns_of_parameter_servers() -> None:
    kind = job_type("resnet-50")  # synchronous, global batch 32
    workers, ps = np.array([[1.0, 1, 0, 0]]), np.array([[0.0, 0, 1, 1]])
    steps = MeasuredSteps("x", workers, ps, np.array([32.0]), np.ones(1), np.array(["a"]), np.array(["g"]))
    columns, terms = optimus_columns(kind, steps)
    assert terms == ("M/w", "1", "w/p", "w", "p") and columns.tolist() == [[16, 1, 1, 2, 2]]


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.parametrize("name", TRUTHS)
def test_truth_is_recovered(name: str, loss: str) -> None:
    kind = job_type(name)
    steps = with_truth(kind, synthetic_steps(kind, np.random.default_rng(1)), TRUTHS[name])
    form = {f.name: f for f in forms_of(kind, steps, np.zeros(len(CONSTANTS)))}["fitted"]
    fit = fit_steps(form.columns, steps.step_s, form.combination, loss=loss)  # type: ignore[arg-type]
    np.testing.assert_allclose(fit.theta, [TRUTHS[name][term] for term in form.terms], rtol=1e-5)
    np.testing.assert_allclose(fit.predict(form.columns), steps.step_s, rtol=1e-6)


@pytest.mark.parametrize("exponent", [2.0, 5.0])
def test_overlap_and_its_degree_are_recovered(exponent: float) -> None:
    kind = job_type("cifar10")
    steps = synthetic_steps(kind, np.random.default_rng(2))
    form = {f.name: f for f in forms_of(kind, steps, np.zeros(len(CONSTANTS)))}["partial_overlap"]
    theta = np.array([TRUTHS["cifar10"][term] for term in form.terms])
    truth = combined(form.columns, theta, form.combination.parts, exponent)
    fit = fit_steps(form.columns, truth, form.combination)
    assert fit.exponent == exponent
    np.testing.assert_allclose(fit.predict(form.columns), truth, rtol=1e-3)


def test_maximum_of_parts() -> None:
    rng = np.random.default_rng(3)
    columns = np.stack([rng.uniform(1, 10, 200), rng.uniform(1, 10, 200), np.ones(200)], axis=1)
    parts = ((0,), (1,))
    truth = np.maximum(2.0 * columns[:, 0], columns[:, 1]) + 0.5
    np.testing.assert_allclose(combined(columns, np.array([2.0, 1.0, 0.5]), parts, math.inf), truth)
    fit = fit_steps(columns, truth, Combination(parts, (math.inf,)))
    np.testing.assert_allclose(fit.predict(columns), truth, rtol=0.02)


def test_absolute_loss_minds_outliers_less() -> None:
    columns = np.stack([np.linspace(1, 10, 50), np.ones(50)], axis=1)
    truth = columns @ np.array([1.0, 2.0])
    spoilt = truth.copy()
    spoilt[::10] *= 0.3
    absolute, squared = (fit_steps(columns, spoilt, loss=loss).predict(columns) for loss in ("absolute", "squared"))
    assert np.abs(absolute / truth - 1).max() < 0.01 < 0.1 < np.abs(squared / truth - 1).max()


def test_prior_decides_only_what_data_leave_open() -> None:
    columns = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [3.0, 3.0, 1.0]])
    truth = columns @ np.array([1.0, 3.0, 2.0])
    fit = fit_steps(columns, truth, prior=np.array([1.0, 4.0, 0.0]))
    np.testing.assert_allclose(fit.predict(columns), truth, rtol=1e-4)
    assert fit.theta[:2] == pytest.approx([0.5, 3.5], abs=0.01)  # the sum is known to be 4, not its parts
    unseen = fit_steps(columns * [1.0, 1.0, 0.0], columns[:, :2] @ [1.0, 3.0], prior=np.array([1.0, 4.0, 7.0]))
    assert unseen.theta[2] == pytest.approx(7.0)
    alone = fit_steps(columns, truth)
    np.testing.assert_allclose(alone.predict(columns), truth, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(), ((0, 1), (2,))]))
def test_constants_are_never_negative(seed: int, parts: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(seed)
    columns, step_s = rng.uniform(0, 5, (30, 4)), rng.uniform(0.1, 9, 30)
    fit = fit_steps(columns, step_s, Combination(parts, (1.0, 3.0) if parts else (1.0,)))
    assert (fit.theta >= 0).all() and np.isfinite(fit.predict(columns)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_folds_never_share_a_configuration(seed: int, num_folds: int) -> None:
    rng = np.random.default_rng(seed)
    kind = job_type("cifar10")
    base = synthetic_steps(kind, rng, 40)
    repeated = rng.integers(0, 40, 200)  # configurations repeat
    steps = MeasuredSteps(
        base.name, base.workers[repeated], base.ps[repeated], base.batch[repeated], base.step_s[repeated],
        base.configuration[repeated], base.group[repeated],
    )  # fmt: skip
    for splits, labels in (
        (configuration_folds(steps, num_folds, rng), steps.configuration),
        (group_folds(steps), steps.group),
    ):
        for train, test in splits:
            assert len(train) and len(test)
            assert not set(labels[train]) & set(labels[test])
            assert sorted([*train, *test]) == list(range(steps.size))
        tested = np.concatenate([test for _, test in splits])
        assert sorted(tested) == list(range(steps.size))


def test_held_out_steps_do_not_touch_their_prediction() -> None:
    """Changing one configuration's measurements leaves its own cross-validated predictions as they are."""
    kind = job_type("cifar10")
    steps = with_truth(kind, synthetic_steps(kind, np.random.default_rng(4), 48), TRUTHS["cifar10"])
    here = steps.configuration == steps.configuration[0]
    other = dataclasses.replace(steps, step_s=np.where(here, 50.0 * steps.step_s, steps.step_s))
    hardware = load_hardware("adaptdl-testbed")
    first, second = (
        validate("x", "x", [s], [kind], hardware, "t4", num_folds=3).applications[0] for s in (steps, other)
    )
    for model in ("optimus", "fitted", "partial_overlap"):
        a, b = first.models[model].predicted, second.models[model].predicted
        np.testing.assert_array_equal(a[FOLDS][here], b[FOLDS][here])
        assert not np.allclose(a[FOLDS][~here], b[FOLDS][~here], rtol=1e-9)
    group = steps.group == steps.group[0]
    spoilt = dataclasses.replace(steps, step_s=np.where(group, 50.0 * steps.step_s, steps.step_s))
    third = validate("x", "x", [spoilt], [kind], hardware, "t4", num_folds=3).applications[0]
    np.testing.assert_array_equal(
        first.models["fitted"].predicted[GROUPS][group], third.models["fitted"].predicted[GROUPS][group]
    )


def test_too_many_folds_and_unknown_application() -> None:
    kind = job_type("cifar10")
    steps = synthetic_steps(kind, np.random.default_rng(5), 5)
    with pytest.raises(ConfigError, match="folds=60"):
        configuration_folds(steps, 60, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="no job type 'cifar10'"):
        validate("x", "x", [steps], load_job_types("dl2"), load_hardware("adaptdl-testbed"), "t4")
    single = dataclasses.replace(kind, architecture="1w1g")
    with pytest.raises(ConfigError, match="1w1g cannot be fitted"):
        forms_of(single, steps, np.zeros(len(CONSTANTS)))


def test_noise_free_truth_leaves_no_error_and_seed_decides() -> None:
    kind = job_type("cifar10")
    steps = with_truth(kind, synthetic_steps(kind, np.random.default_rng(6), 60), TRUTHS["cifar10"])
    hardware = load_hardware("adaptdl-testbed")
    results = [validate("x", "x", [steps], [kind], hardware, "t4", num_folds=3, few_sizes=[8]) for _ in range(2)]
    assert results[0].error("fitted", FOLDS) < 3e-3 < 0.02 < results[0].error("optimus", FOLDS)
    assert results[0].error(UNFITTED, IN_SAMPLE) == results[0].error(UNFITTED, FOLDS) > 0.02
    assert largest_group_error(results[0], "fitted") < 1e-2
    assert results[0].applications[0].few == results[1].applications[0].few
    assert worst_groups(results[0].applications[0])[0][1] < 2e-2


def test_catalogue_knows_what_few_measurements_leave_open() -> None:
    """With measurements of one server only, the catalogue's Ethernet time stays."""
    kind = unfitted(job_type("cifar10"))
    hardware = load_hardware("adaptdl-testbed")
    constants = analytic_constants(kind, hardware, "t4")
    steps = synthetic_steps(kind, np.random.default_rng(7))
    steps = dataclasses.replace(steps, step_s=analytic_columns(kind, steps) @ constants)  # the catalogue is right
    few = few_measurements(forms_of(kind, steps, constants), steps, [3], 30, "absolute", np.random.default_rng(0))
    assert few[3]["fitted"] < 0.02 < few[3]["fitted_alone"]


def test_values_of_the_fit_file_can_be_taken_away() -> None:
    kind = job_type("resnet-50")
    assert kind.worker_bytes_per_s is not None
    bare = unfitted(kind)
    assert bare.worker_bytes_per_s is None and bare.worker_cost_s == 0.0 and bare.flops == kind.flops


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from scripts import command_line
    from scripts.validate_speed import validate_speed

    kind = job_type("cifar10")
    steps = with_truth(kind, synthetic_steps(kind, np.random.default_rng(8), 60), TRUTHS["cifar10"])
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    rows = ["placement,local_bsz,step_time,sync_time"]
    for workers, batch, step_s in zip(steps.workers, steps.batch, steps.step_s, strict=True):
        rows.append(f"{''.join(str(int(n)) for n in workers if n)},{batch:g},{float(step_s)!r},0.1")
    (tmp_path / "data" / "cifar10" / "placements.csv").write_text("\n".join(rows))
    options = ["adaptdl.path=data", "speed_tables=null", "few_sizes=[4]", "few_repeats=2", "folds=3", "run_dir=out"]
    with command(monkeypatch, tmp_path, *options):
        command_line.run(validate_speed, "validate_speed")
    out = capsys.readouterr().out
    assert out.rstrip().splitlines()[-1] == "out/summary.json" and "k-fold" in out
    assert (tmp_path / "out" / "adaptdl.png").stat().st_size > 10_000
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = summary["results"]["adaptdl"]
    assert found["mape"]["fitted"]["folds"] < 3e-3  # what the prior costs
    constants = found["applications"]["cifar10"]["models"]["fitted"]["constants"]
    assert constants["compute_s"] == pytest.approx(0.09, rel=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["adaptdl.path=nowhere", "speed_tables=null"], ["adaptdl.path=nowhere", "adaptdl=null"]),
        (["adaptdl=null", "speed_tables.path=nowhere"], ["speed_tables.path=nowhere", "speed_tables=null"]),
        (["adaptdl=null", "speed_tables=null"], ["both are null"]),
        (["loss=cubed"], ["loss"]),
        (["folds=1"], ["folds=1"]),
        (["few_sizes=[0]"], ["few_sizes"]),
    ],
)
def test_wrong_settings(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    words: list[str],
) -> None:
    from scripts import command_line
    from scripts.validate_speed import validate_speed

    with command(monkeypatch, tmp_path, *options), pytest.raises(SystemExit) as end:
        command_line.run(validate_speed, "validate_speed")
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1 and all(word in error for word in words)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_configuration_file_gives_the_settings() -> None:
    from scripts.validate_speed import read_settings

    values = composed(config="validate_speed")
    values["adaptdl"]["path"], values["speed_tables"]["path"] = "a", "b"
    found = read_settings(values)
    assert found.adaptdl is not None and found.adaptdl.hardware == "adaptdl-testbed" and found.folds == 10


@pytest.mark.slow
@pytest.mark.skipif(not ADAPTDL_DIR.is_dir(), reason=f"no measurements in {ADAPTDL_DIR}; see DL2ENV_ADAPTDL_DIR")
def test_errors_on_adaptdl_measurements() -> None:
    """As docs/speed_validation.md has them, with a small margin."""
    measurements = read_applications(ADAPTDL_DIR)
    assert sum(steps.size for steps in measurements) == 7103
    result = validate(
        "adaptdl", "AdaptDL", measurements, load_job_types("adaptdl"), load_hardware("adaptdl-testbed"), "t4"
    )
    assert result.error("fitted", FOLDS) < 0.092 < 0.10
    assert result.error("fitted", GROUPS) < 0.098
    assert result.error("partial_overlap", FOLDS) < 0.077
    assert 0.45 < result.error(UNFITTED, IN_SAMPLE) < 0.475
    for scheme in (IN_SAMPLE, FOLDS, GROUPS):
        assert result.error("fitted", scheme) < result.error("optimus", scheme)
    for application in result.applications:
        errors = [np.abs(application.errors(model, FOLDS)).mean() for model in ("fitted", "optimus")]
        assert errors[0] < errors[1] and errors[0] < 0.112


@pytest.mark.slow
@pytest.mark.skipif(not golden_files(), reason=f"no golden files in {golden_dir()}; see {GOLDEN_DIR_VARIABLE}")
def test_errors_on_measured_ps_tables() -> None:
    """As docs/speed_validation.md has them, with a small margin."""
    job_types = load_job_types("dl2")
    measurements = read_ps_tables(golden_dir(), job_types)
    assert [steps.size for steps in measurements] == [189, 181, 51, 50, 51, 66, 66, 51]
    assert sum(steps.num_failed for steps in measurements) == 9
    result = validate("ps", "PS tables", measurements, job_types, load_hardware("dl2-testbed"), "gtx-1080ti")
    assert result.error("fitted", FOLDS) < 0.081 < 0.15
    assert result.error("fitted", GROUPS) < 0.096
    assert result.error(CATALOGUE_FIT, IN_SAMPLE) < 0.08
    assert 0.83 < result.error(UNFITTED, IN_SAMPLE) < 0.86
    for scheme in (IN_SAMPLE, FOLDS, GROUPS):  # the two forms span the same step times here
        assert result.error("fitted", scheme) < result.error("optimus", scheme) + 2e-4
