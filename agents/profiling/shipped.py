"""The networks of `data/job_types/profiled.toml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from agents.profiling.record import JobOptions, format_catalogue, job_type_of
from agents.profiling.results import StepProfile, StepSettings
from agents.profiling.step import profile_step
from agents.profiling.training_step import load_training_step

COMMAND = "python scripts/profile_model.py --shipped"
_MODELS = "agents.profiling.models"


@dataclass(frozen=True)
class ShippedModel:
    """One network: where it is defined, how its step is run and what its job type says."""

    factory: str
    settings: StepSettings
    options: JobOptions

    def profile(self) -> StepProfile:
        """Counts its training step."""
        return profile_step(load_training_step(f"{_MODELS}.{self.factory}"), self.settings)


def _model(
    factory: str, optimizer: str, name: str, samples: float, samples_source: str, **options: object
) -> ShippedModel:
    extra = dict(options)
    sources = {"samples_per_epoch": samples_source, **dict(extra.pop("sources", {}))}  # type: ignore[call-overload]
    job = JobOptions(name, samples, sources=sources, origin=factory, **extra)  # type: ignore[arg-type]
    return ShippedModel(factory, StepSettings(optimizer=optimizer), job)


SHIPPED: tuple[ShippedModel, ...] = (
    _model("vision:resnet50", "sgd-momentum", "resnet-50", 1_281_167, "ImageNet-1k training images"),
    _model(
        *("vision:vgg16", "sgd-momentum", "vgg-16", 1_281_167, "ImageNet-1k training images"), architecture="ps_worker"
    ),
    _model(
        *("transformers:bert_base", "adamw", "bert-base", 87_599, "SQuAD 1.1 training questions, one sequence each"),
    ),
    _model(
        *("transformers:gpt2_small", "adamw", "gpt2-small", 8_800_000),
        "about 9 billion tokens (OpenWebText; assumed) in sequences of 1024",
    ),
    _model(
        *("transformers:transformer_nmt", "adam", "transformer-nmt", 126_000_000),
        "4.5 M sentence pairs of WMT'14 English-German x 28 tokens per sentence (assumed)",
        sources={"batch_size": "target tokens in the example batch, 192 sentence pairs x 32 tokens"},
    ),
    _model("speech:deep_speech", "adam", "deep-speech", 281_241, "LibriSpeech 960 h utterances; the data is assumed"),
    _model(
        *("recommenders:dlrm", "sgd", "dlrm", 4_195_197_692),
        "training samples of Criteo's terabyte data set as MLPerf uses it",
        architecture="pearl",
        max_workers=8,
        sources={"max_workers": "8 GPUs of one NVLink server"},
    ),
    _model("recommenders:dssm", "sgd", "dssm", 100_000_000, "assumed; the data is private", architecture="ps_worker"),
)
"""All of them, in the order of the file."""


def shipped_catalogue(profile_of: Callable[[ShippedModel], StepProfile] = ShippedModel.profile) -> str:
    """Text of `data/job_types/profiled.toml`.

    Args:
        profile_of: Where the counts come from.
    """
    header = (
        "Well-known networks, counted from their definitions in agents/profiling/models: one training step of each.\n"
        f"Written by: {COMMAND}\n"
        "What each value means and how far to trust it: docs/profiling.md. Do not edit by hand.\n"
        f"PyTorch {torch_version()}\n"
    )
    return format_catalogue([job_type_of(profile_of(model), model.options) for model in SHIPPED], header)


def torch_version() -> str:
    """Version of PyTorch without its build; another one may split operators differently and so move other bytes."""
    return torch.__version__.partition("+")[0]
