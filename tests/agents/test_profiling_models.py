"""The shipped networks: published sizes and FLOPs, the committed catalogue, and that scenarios run on it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agents.profiling import JobOptions, StepProfile, StepSettings, job_type_of, profile_step
from agents.profiling.models import elementary, recommenders, transformers
from agents.profiling.record import format_record
from agents.profiling.shipped import COMMAND, SHIPPED, shipped_catalogue, torch_version
from agents.profiling.traffic import weight_traffic_bytes
from dl2env.config import ClusterConfig, EnvConfig, JobSizeConfig, ServerGroup, WorkloadConfig
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.resources import data_path
from dl2env.schedulers import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.speed.hardware import load_hardware
from dl2env.workload.generator import build_workload_source
from dl2env.workload.job_types import JobType, load_job_types

CATALOGUE = data_path("job_types", "profiled.toml")


@cache
def profile_of(name: str) -> StepProfile:
    (model,) = (model for model in SHIPPED if model.options.name == name)
    return model.profile()


PARAMETERS_M = {
    "resnet-50": 25.557,
    "vgg-16": 138.358,
    "bert-base": 109.484,  # 109.482 of the uncased base model, and 1538 in the head
    "gpt2-small": 124.440,
}


@pytest.mark.parametrize("name", PARAMETERS_M)
def test_numbers_of_parameters_are_the_published_ones(name: str) -> None:
    assert round(profile_of(name).num_parameters / 1e6, 3) == PARAMETERS_M[name]


def test_translator_is_the_base_model() -> None:
    """65 M as published; 3.1 M weights per encoder and 4.2 M per decoder layer, and one table of 37,000 words."""
    profile = profile_of("transformer-nmt")
    encoder, decoder = (
        4 * 513 * 512 + 513 * 2048 + 2049 * 512 + 2 * 1024,
        8 * 513 * 512 + 513 * 2048 + 2049 * 512 + 3 * 1024,
    )
    assert profile.num_parameters == 6 * (encoder + decoder) + 37000 * 512
    assert profile.num_parameters == pytest.approx(65e6, rel=0.03)


def test_flops_of_resnet_50_and_vgg_16_are_the_published_ones() -> None:
    """4.09 and 15.47 G multiply-adds per image; backward twice that but for the input's gradient."""
    for name, multiply_adds, first_layer in (
        ("resnet-50", 4.09e9, 112 * 112 * 64 * 3 * 49),
        ("vgg-16", 15.47e9, 224 * 224 * 64 * 3 * 9),
    ):
        profile = profile_of(name)
        forward = profile.flops["forward"] / profile.samples
        assert forward == pytest.approx(2 * multiply_adds, rel=1e-3)
        assert profile.flops["backward"] / profile.samples == 2 * forward - 2 * first_layer


def test_flops_of_bert_base_are_the_published_ones() -> None:
    """22.5 GFLOPs for 128 tokens as recalled: 85 M weights in the layers, and scores and mixtures of 12 layers."""
    profile = profile_step(transformers.bert_base(batch_size=1, tokens=128))
    products = 2 * 128 * 12 * 12 * 768**2 + 2 * 2 * 12 * 128**2 * 768
    head = 2 * 128 * 768 * 2
    assert profile.flops["forward"] == products + head
    assert profile.flops["forward"] == pytest.approx(22.5e9, rel=0.01)
    assert profile.flops["backward"] == 2 * profile.flops["forward"]


def test_flops_of_gpt2_are_six_per_weight_and_token_and_attention() -> None:
    profile = profile_of("gpt2-small")
    tokens = 8 * 1024
    weights = 12 * 12 * 768**2 + 50257 * 768
    assert profile.total_flops == 6 * tokens * weights + 3 * 8 * 12 * 2 * 2 * 1024**2 * 768


def test_resnet_50_against_the_recalled_pai_row() -> None:
    """FLOPs, input, traffic and weights agree with the recalled values; bytes moved are 15 % above them."""
    profile, (recalled,) = profile_of("resnet-50"), load_job_types("pai", include=["resnet50"])
    counted = job_type_of(profile, JobOptions("r", 1.0))
    assert counted.flops == pytest.approx(recalled.flops, rel=0.01)
    assert counted.weight_traffic_bytes == pytest.approx(recalled.weight_traffic_bytes, rel=0.005)
    assert counted.dense_weight_bytes == pytest.approx(recalled.dense_weight_bytes, rel=0.005)
    assert counted.input_bytes == pytest.approx(recalled.input_bytes, rel=0.02)
    assert counted.memory_bytes / recalled.memory_bytes == pytest.approx(1.15, abs=0.01)


def test_bert_base_against_the_recalled_pai_row() -> None:
    """Sequences of 320 tokens give the recalled FLOPs and input; bytes moved agree in elementary operators only."""
    (recalled,) = load_job_types("pai", include=["bert"])
    shorter = profile_step(transformers.bert_base(tokens=320), StepSettings(optimizer="sgd"))
    assert shorter.total_flops == pytest.approx(recalled.flops, rel=0.005)
    assert 3 * 12 * 320 * 4 == pytest.approx(recalled.input_bytes, rel=0.005)  # three tensors of 32-bit numbers
    whole, in_parts = profile_of("bert-base"), profile_step(elementary.bert_base(), StepSettings(optimizer="adamw"))
    assert whole.total_flops == in_parts.total_flops
    assert whole.num_parameters == in_parts.num_parameters
    assert whole.total_memory_bytes / recalled.memory_bytes == pytest.approx(0.385, abs=0.01)
    assert in_parts.total_memory_bytes / recalled.memory_bytes == pytest.approx(0.925, abs=0.01)
    assert whole.embedding_weight_bytes == (30522 + 512 + 2) * 768 * 4
    assert 3 * whole.embedding_weight_bytes == pytest.approx(3 * recalled.embedding_weight_bytes, rel=0.01)
    traffic = weight_traffic_bytes("all_reduce", 8, whole.dense_gradient_bytes, 0)
    assert traffic == pytest.approx(recalled.weight_traffic_bytes, rel=0.03)


def test_dlrm_touches_its_tables_by_rows() -> None:
    profile = profile_of("dlrm")
    assert sum(recommenders.CRITEO_TABLES) == 187_767_399
    assert profile.embedding_weight_bytes == 187_767_399 * 128 * 4
    rows = sum(min(size, 8192) for size in recommenders.CRITEO_TABLES)
    assert profile.row_gradient_bytes == rows * 512
    assert profile.total_memory_bytes < 0.05 * profile.embedding_weight_bytes


def test_traffic_by_architecture() -> None:
    def traffic(architecture: str, replicas: int) -> float:
        return weight_traffic_bytes(architecture, replicas, 100.0, 10.0)

    assert traffic("1w1g", 8) == 0
    assert traffic("ps_worker", 50) == traffic("1wng", 2) == 220
    assert traffic("all_reduce", 8) == 3.5 * 100 + 14 * 10
    assert traffic("all_reduce", 1) == traffic("pearl", 1) == 0
    assert traffic("pearl", 8) == 3.5 * 110
    for architecture, replicas, words in (
        ("ring", 8, "choose one of: ps_worker"),
        ("pearl", 9, "1 to 8"),
        ("1wng", 0, "1 to 8"),
        ("all_reduce", 0, "at least 1"),
    ):
        with pytest.raises(ConfigError, match=words):
            traffic(architecture, replicas)


def test_committed_catalogue_is_what_the_command_writes() -> None:
    """The same text; with another version of PyTorch, which may split operators differently, about the same numbers."""
    text = shipped_catalogue(lambda model: profile_of(model.options.name))
    committed = CATALOGUE.read_text(encoding="utf-8")
    assert COMMAND in committed
    written_with = re.search(r"^# PyTorch (\S+)$", committed, flags=re.MULTILINE)
    assert written_with is not None
    if written_with[1] == torch_version():
        assert text == committed
        return
    for new, old in zip(*(tomllib.loads(t)["job_type"] for t in (text, committed)), strict=True):
        assert new.keys() == old.keys()
        for key, value in old.items():
            if isinstance(value, (int, float)):
                assert new[key] == pytest.approx(value, rel=0.03), (new["name"], key)


def test_every_number_of_the_catalogue_has_a_source() -> None:
    types = load_job_types("profiled")
    assert [t.name for t in types] == [m.options.name for m in SHIPPED]
    assert len(types) >= 6
    for table in tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["job_type"]:
        assert set(table) - {"name", "sources"} == set(table["sources"])


def test_records_are_read_back_as_they_were(tmp_path: Path) -> None:
    made = job_type_of(profile_of("dssm"), JobOptions('quo"ted \\ näme', 12.5, "ps_worker", max_workers=4))
    file = tmp_path / "own.toml"
    file.write_text(format_record(made), encoding="utf-8")
    (read,) = load_job_types(file)
    for entry in fields(JobType):
        if entry.name != "sources":
            expected = getattr(made, entry.name)
            is_number = isinstance(expected, float)
            assert getattr(read, entry.name) == (pytest.approx(expected, rel=1e-5) if is_number else expected)
    assert dict(read.sources) == dict(made.sources)


def test_scenario_runs_on_the_catalogue() -> None:
    """All eight types arrive, train at the speed of the step-time model and finish."""
    config = EnvConfig(
        cluster=ClusterConfig(servers=(ServerGroup(6, gpus=8, cpus=32, gpu_type="v100"),), hardware="pai-testbed"),
        workload=WorkloadConfig(
            job_types="profiled", num_jobs=24, max_workers=4, max_ps=4, sizes=JobSizeConfig(mean_s=3000.0)
        ),
    )
    sim = ClusterSimulator(config, 1)
    types = load_job_types("profiled")
    hardware = load_hardware("pai-testbed")
    gpu = hardware.gpu("v100")
    for job_type, seconds in zip(types, sim.speed.compute_s[:, 0], strict=True):
        compute = job_type.flops / (gpu.peak_flops * hardware.efficiency.compute)
        memory = job_type.memory_bytes / (gpu.memory_bytes_per_s * hardware.efficiency.memory)
        assert seconds == pytest.approx(compute + memory, rel=1e-12)
    workload = build_workload_source(config)(0, 0, 0)
    result = run_scheduler(get_scheduler("drf"), config, [workload])
    assert np.isfinite(result.records[0].finish_s).all()
    assert set(result.records[0].type_idx) == set(range(len(types)))
