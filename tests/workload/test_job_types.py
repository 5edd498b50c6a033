"""Job-type catalogues: the shipped values, the overlay of fitted values, and every error."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.speed.parameters import ARCHITECTURES
from dl2env.workload.job_types import FIT_FIELDS, JobType, load_job_types, type_features

VALUES: dict[str, Any] = {
    "name": "net",
    "architecture": "ps_worker",
    "synchronous": True,
    "batch_size": 32,
    "samples_per_epoch": 3200,
    "worker_cpus": 2,
    "worker_gpus": 1,
    "ps_cpus": 2,
    "ps_gpus": 0,
    "flops": 1e12,
    "memory_bytes": 1e10,
    "input_bytes": 1e7,
    "weight_traffic_bytes": 2e8,
    "dense_weight_bytes": 1e8,
    "embedding_weight_bytes": 0.0,
}


def toml(**changes: Any) -> str:
    values = {**VALUES, **changes}
    lines = ["[[job_type]]"]
    for key, value in values.items():
        if value is not None:
            lines.append(f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(toml() + toml(name="other", batch_size=64))
    return path


def test_dl2_sizes_and_data_sets() -> None:
    types = load_job_types("dl2")
    assert [t.name for t in types] == [
        "resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text", "dssm", "wlm",
    ]  # fmt: skip
    sizes_mb = [102.2, 553.4, 6.92, 42.1, 36.5, 24, 6, 19.2]
    batches = [115, 115, 390, 120, 780, 193, 349, 165]
    np.testing.assert_allclose([t.weight_bytes / 1e6 for t in types], sizes_mb)
    np.testing.assert_allclose([t.weight_traffic_bytes / 2e6 for t in types], sizes_mb)
    np.testing.assert_allclose([t.samples_per_epoch / t.batch_size for t in types], batches)
    assert [t.worker_gpus for t in types] == [1, 1, 1, 1, 1, 0, 0, 1]
    assert {(t.architecture, t.synchronous, t.worker_cpus, t.ps_cpus, t.ps_gpus) for t in types} == {
        ("ps_worker", True, 2, 2, 0)
    }


def test_dl2_features_follow_from_the_networks() -> None:
    resnet, vgg = load_job_types("dl2", include=["resnet-50", "vgg-16"])
    # multiply-adds x 2 operations x (forward + 2 backward) x batch
    assert resnet.flops == pytest.approx(4.09e9 * 2 * 3 * 32, rel=0.01)
    assert vgg.flops == pytest.approx(15.47e9 * 2 * 3 * 32, rel=0.01)
    assert resnet.input_bytes == pytest.approx(224 * 224 * 3 * 4 * 32, rel=0.001)


def test_pai_traffic_is_three_and_a_half_times_the_trainable_bytes() -> None:
    """Ring all-reduce over 8 GPUs, 4 (n - 1) / n: holds for the recalled values of three of the models."""
    types = {t.name: t for t in load_job_types("pai")}
    assert len(types) == 6
    for name in ("resnet50", "bert", "speech"):
        assert types[name].weight_traffic_bytes == pytest.approx(3.5 * types[name].weight_bytes, rel=0.005)


@pytest.mark.parametrize("name", ["dl2", "pai", "pai-mixed"])
def test_every_catalogue_value_has_a_source(name: str) -> None:
    for job_type in load_job_types(name):
        for field in dataclasses.fields(job_type):
            value = getattr(job_type, field.name)
            if field.name not in ("name", "sources") and value not in (None, 0, False):
                assert job_type.sources.get(field.name), f"{job_type.name}.{field.name}"


def test_mixed_catalogue_differs_from_pai_in_global_batches_only() -> None:
    """Models of dense weights keep the global batch of 8 replicas; everything else is as in `pai`."""
    plain = {t.name: t for t in load_job_types("pai")}
    for job_type in load_job_types("pai-mixed"):
        expected = plain.pop(job_type.name)
        if job_type.name in ("resnet50", "nmt", "bert"):
            work = ("batch_size", "flops", "memory_bytes", "input_bytes")
            scaled = {field: 8 * getattr(expected, field) for field in work}
            expected = dataclasses.replace(expected, synchronous=True, **scaled)
        assert job_type == expected
    assert plain == {}


def test_include_keeps_the_catalogue_order(catalogue: Path) -> None:
    assert [t.name for t in load_job_types(catalogue, include=("other", "net"))] == ["net", "other"]
    assert [t.name for t in load_job_types(str(catalogue), include=("other",))] == ["other"]


def test_fit_file_replaces_values_and_sources(catalogue: Path) -> None:
    catalogue.with_name("mine_fit.toml").write_text(
        'source = "fitted to a table"\n[other]\ncompute_efficiency = 0.25\nps_bytes_per_s = 2e8\nworker_cost_s = 0.01\n'
        '[other.sources]\nworker_cost_s = "by hand"\n'
    )
    net, other = load_job_types(catalogue)
    assert net.compute_efficiency is None and net.ps_bytes_per_s is None and net.worker_cost_s == 0.0
    assert (other.compute_efficiency, other.ps_bytes_per_s, other.worker_cost_s) == (0.25, 2e8, 0.01)
    assert other.sources["ps_bytes_per_s"] == "fitted to a table"
    assert other.sources["worker_cost_s"] == "by hand"


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        ("[third]\nfixed_s = 1.0\n", ["third", "net, other"]),
        ("[net]\nflops = 1.0\n", ["flops", "ps_bytes_per_s"]),
        ("[net]\nps_bytes_per_s = 0.0\n", ["ps_bytes_per_s", "positive"]),
        ("net = 3\n", ["net", "table"]),
        ("[net\n", ["mine_fit.toml", "TOML"]),
    ],
)
def test_wrong_fit_file(catalogue: Path, fit: str, words: list[str]) -> None:
    catalogue.with_name("mine_fit.toml").write_text(fit)
    with pytest.raises(ConfigError) as error:
        load_job_types(catalogue)
    assert_one_line(error, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (toml(flops=-1.0), ["mine.toml", "net", "flops", "negative"]),
        (toml(flops=float("nan")), ["flops", "finite"]),
        (toml(flops=float("inf")), ["flops", "finite"]),
        (toml(batch_size=0), ["batch_size", "positive"]),
        (toml(samples_per_epoch=0), ["samples_per_epoch", "positive"]),
        (toml(worker_gpus=0.5), ["worker_gpus", "whole"]),
        (toml(worker_gpus="one"), ["worker_gpus", "number"]),
        (toml(ps_cpus=True), ["ps_cpus", "number"]),
        (toml(synchronous=1), ["synchronous", "true or false"]),
        (toml(max_workers=0), ["max_workers", "positive"]),
        (toml(architecture="ring"), ["ring", "all_reduce"]),
        (toml(worker_cpus=0, worker_gpus=0), ["net", "worker", "nothing"]),
        (toml(flops=0, memory_bytes=0), ["net", "no time"]),
        (toml(flops=None), ["flops", "missing"]),
        (toml(gpus=1), ["gpus", "unknown key"]),
        (toml(sources=3), ["sources", "texts"]),
        (toml() + '[job_type.sources]\nflopps = "?"\n', ["flopps"]),
        (toml() + toml(), ["net", "twice"]),
        (toml(name=""), ["name", "string"]),
        ("", ["mine.toml", "[[job_type]]"]),
        ("[[job_type]\n", ["mine.toml", "TOML"]),
    ],
)
def test_wrong_catalogue(tmp_path: Path, content: str, words: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        load_job_types(path)
    assert_one_line(error, words)


def test_missing_files_and_unknown_names(tmp_path: Path, catalogue: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        load_job_types(tmp_path / "none.toml")
    assert_one_line(missing, ["none.toml", "no such file"])
    with pytest.raises(ConfigError) as folder:
        load_job_types(tmp_path)
    assert_one_line(folder, [str(tmp_path)])
    with pytest.raises(UnknownNameError) as name:
        load_job_types("dl3")
    assert_one_line(name, ["dl3", "dl2", "pai"])
    assert "_fit" not in str(name.value)
    with pytest.raises(UnknownNameError) as included:
        load_job_types(catalogue, include=["net", "nets"])
    assert_one_line(included, ["'nets'", "net, other"])


def assert_one_line(error: pytest.ExceptionInfo[Exception], words: list[str]) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_job_types_are_values() -> None:
    one, same = JobType(**VALUES), JobType(**{**VALUES, "sources": {"flops": "a guess"}})
    assert one == same and hash(one) == hash(same)
    assert one != JobType(**{**VALUES, "flops": 2e12})
    assert isinstance(one.batch_size, float) and isinstance(one.worker_cpus, int)


def test_features_of_a_hand_made_type() -> None:
    job_type = JobType(
        **{**VALUES, "flops": 1e11, "batch_size": 100, "synchronous": False, "architecture": "pearl", "fixed_s": 1e-4}
    )
    features, names = type_features([job_type])
    values = dict(zip(names, features[0].tolist(), strict=True))
    assert values["flops"] == pytest.approx(0.5)  # midway between 1e8 and 1e14
    assert values["batch"] == pytest.approx(0.4)  # 10^2 of 10^5
    assert values["fixed"] == 0.0
    assert values["ps_rate"] == values["compute_efficiency"] == 1.0  # left to the hardware
    assert values["synchronous"] == 0.0
    assert [values[f"is_{name}"] for name in ARCHITECTURES] == [0, 0, 0, 1, 0]


magnitudes = st.floats(0.0, 1e18, allow_nan=False)


@given(magnitudes, magnitudes, magnitudes, st.floats(1e-9, 1e12), st.sampled_from(sorted(ARCHITECTURES)), st.booleans())
def test_features_stay_in_the_unit_box(
    memory: float, traffic: float, cost: float, rate: float, architecture: str, synchronous: bool
) -> None:
    job_type = JobType(
        **{
            **VALUES,
            "memory_bytes": memory,
            "weight_traffic_bytes": traffic,
            "worker_cost_s": cost,
            "ps_bytes_per_s": rate,
            "architecture": architecture,
            "synchronous": synchronous,
        }
    )
    features, names = type_features([job_type, job_type])
    assert features.shape == (2, len(names)) and features.dtype == np.float32
    assert np.isfinite(features).all() and (features >= 0).all() and (features <= 1).all()


def test_fit_fields_exist_and_are_optional() -> None:
    defaults = {f.name: f.default for f in dataclasses.fields(JobType)}
    assert all(defaults[name] in (None, 0.0) for name in FIT_FIELDS)


def test_data_path_finds_the_checkout() -> None:
    assert data_path("job_types", "dl2.toml").is_file()


def test_data_path_inside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "dl2env"
    (tmp_path / "site" / "data").mkdir(parents=True)  # somebody else's folder of that name
    monkeypatch.setattr("dl2env.resources.__file__", str(package / "resources.py"))
    with pytest.raises(ConfigError) as error:
        data_path("hardware.toml")
    assert_one_line(error, ["data folder", "install"])
    (package / "data" / "job_types").mkdir(parents=True)
    assert data_path("hardware.toml") == package / "data" / "hardware.toml"
