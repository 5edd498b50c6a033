"""Counts of a training step against counts by hand, by other formulas, and by running the step for real."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from agents.profiling import StepSettings, TrainingStep, profile_step
from agents.profiling.memory import MemoryCounter
from agents.profiling.optimizers import OPTIMIZERS

SGD = StepSettings(optimizer="sgd")
REAL = StepSettings(optimizer="sgd", execution="real")


def total(output: torch.Tensor) -> torch.Tensor:
    """A loss that reads its input and writes 4 bytes; backward writes 4 bytes and repeats them without moving any."""
    return output.sum()


class Block(nn.Module):
    """A bit of everything: convolution, normalisations, pooling, dropout, attention, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.down = nn.Conv2d(8, 16, 1, stride=2, groups=2, bias=False)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.words = nn.Embedding(11, 16)

    def forward(self, images: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        x = self.down(self.conv(images)).flatten(2).transpose(1, 2)
        return self.layer(x + self.words(tokens)) @ self.words.weight.T


def block_step(batch: int = 2) -> TrainingStep:
    tokens = torch.arange(batch * 4).reshape(batch, 4) % 11
    return TrainingStep(Block(), (torch.ones(batch, 3, 8, 8), tokens), target=tokens)


# --- By hand


def test_linear_by_hand() -> None:
    """8 inputs, 4 outputs, batch 2. Inputs need no gradient, so backward has one product."""
    profile = profile_step(TrainingStep(nn.Linear(8, 4), torch.ones(2, 8), total), SGD)
    assert profile.flops == {"forward": 2 * 2 * 8 * 4, "backward": 2 * 2 * 8 * 4, "optimizer": 0}
    sum_forward = 2 * 4 * 4 + 4
    bias_gradient = 4 + 4 * 4  # the one repeated gradient in, four sums out
    weights = (8 * 4 + 4) * 4
    assert profile.memory_bytes == {
        "forward": sum_forward,
        "backward": 4 + bias_gradient,
        "optimizer": 3 * weights,  # weight -= rate * gradient
    }
    assert (profile.samples, profile.input_bytes, profile.num_parameters) == (2, 2 * 8 * 4, 36)
    assert (profile.dense_weight_bytes, profile.embedding_weight_bytes) == (weights, 0)
    assert profile.dense_gradient_bytes == weights


def test_convolution_by_hand() -> None:
    """3 to 4 channels, 3 x 3 on 8 x 8 pixels: 6 x 6 out; then 4 to 2, 1 x 1, whose input needs a gradient."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 2, 1, bias=False))
    profile = profile_step(TrainingStep(module, torch.ones(5, 3, 8, 8), total), SGD)
    first, second = 2 * 5 * 36 * 4 * 3 * 9, 2 * 5 * 36 * 2 * 4
    assert profile.flops["forward"] == first + second
    assert profile.flops["backward"] == first + 2 * second
    assert profile.memory_bytes == {
        "forward": 5 * 2 * 36 * 4 + 4,
        "backward": 4,
        "optimizer": 3 * 4 * (4 * 3 * 9 + 2 * 4),
    }
    assert profile.compute_bound_calls == {"convolution": 2, "convolution_backward": 2}


INDICES = torch.tensor([[0, 1, 1], [2, 9, 9]])  # four rows


@pytest.mark.parametrize("execution", ["fake", "real"])
@pytest.mark.parametrize("policy,rows", [("none", 10), ("declared", 10), ("all", 4)])
def test_embedding_by_hand(policy: Any, rows: int, execution: Any) -> None:
    """10 rows of 8 values. A sparse gradient, and what the optimiser changes, has the four rows that are looked up."""
    step = TrainingStep(nn.Embedding(10, 8), INDICES, total)
    profile = profile_step(step, StepSettings(optimizer="sgd", sparse=policy, execution=execution))
    assert profile.total_flops == 0
    index, fetched = 6 * 8, 6 * 8 * 4
    assert profile.memory_bytes == {
        "forward": (index + fetched + fetched) + (fetched + 4),
        "backward": 4 + (4 + index + rows * 8 * 4),
        "optimizer": 3 * rows * 8 * 4,
    }
    assert (profile.dense_weight_bytes, profile.embedding_weight_bytes) == (0, 320)
    is_sparse = policy == "all"
    assert profile.row_gradient_bytes == (4 * 32 if is_sparse else 0)
    assert profile.dense_gradient_bytes == (0 if is_sparse else 320)
    (table,) = profile.tables
    assert (table.num_rows, table.touched_rows, table.is_counted) == (10, rows, True)


def test_layer_norm_by_hand() -> None:
    """Two samples of 8 values: values, gain and offset in; values, mean and 1/deviation out."""
    profile = profile_step(TrainingStep(nn.LayerNorm(8), torch.ones(2, 8), total), SGD)
    values, vector, statistics = 2 * 8 * 4, 8 * 4, 2 * 2 * 4
    assert profile.memory_bytes == {
        "forward": (values + 2 * vector + values + statistics) + (values + 4),
        "backward": 4 + (4 + values + statistics + 2 * vector + 2 * vector),
        "optimizer": 3 * 2 * vector,
    }
    assert profile.memory_bytes_by_kind["normalisation"] == 3 * values + 2 * statistics + 6 * vector + 4


def test_batch_norm_relu_pool_by_hand() -> None:
    module = nn.Sequential(nn.BatchNorm2d(2, affine=False, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2))
    step = TrainingStep(nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), module), torch.ones(3, 2, 4, 4), total)
    by_operator = profile_step(step, SGD).memory_bytes_by_operator
    values, statistics = 3 * 2 * 16 * 4, 2 * 2 * 4
    assert by_operator["relu"] == 2 * values
    assert by_operator["threshold_backward"] == 3 * values  # gradient and result in, gradient out
    assert by_operator["native_batch_norm_backward"] == 3 * values + statistics  # gradient and input in, gradient out
    pooled, positions = values // 4, values // 4 // 4 * 8
    assert by_operator["max_pool2d_with_indices"] == values + pooled + positions
    assert by_operator["max_pool2d_with_indices_backward"] == 4 + positions + values


def test_operators_with_a_kernel_of_their_own_count_as_one() -> None:
    """PyTorch's FLOP counter takes these apart; GPUs and CPUs do not."""
    module = nn.Sequential(nn.Conv1d(2, 2, 1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Hardswish())
    by_operator = profile_step(TrainingStep(module, torch.ones(3, 2, 8), total), SGD).memory_bytes_by_operator
    values = 3 * 2 * 8 * 4
    expected = {"silu": 2, "silu_backward": 3, "upsample_nearest1d": 3, "upsample_nearest1d_backward": 3}
    assert {name: by_operator[name] / values for name in expected} == expected
    assert by_operator["hardswish_backward"] == 4 + 2 * 2 * values  # one repeated gradient and the input in
    assert not {"sigmoid", "mul", "_unsafe_index"} & set(by_operator)


# Passes over each weight, its gradient and its state, one after the other: each read or write of one tensor counts 1.
PASSES = {
    "sgd": 3,  # w += g
    "sgd-momentum": 2 + 3 + 3,  # m *= b; m += g; w += m
    "adagrad": 3 + 2 + 2 + 4,  # s += g g; sqrt; + eps; w += g / d
    "rmsprop": 2 + 3 + 2 + 2 + 4,  # s *= a; s += g g; sqrt; + eps; w += g / d
    "adam": 3 + 2 + 3 + 2 + 2 + 2 + 4,  # lerp m; v *= b; v += g g; sqrt; / c; + eps; w += m / d
    "adamw": 2 + 3 + 2 + 3 + 2 + 2 + 2 + 4,  # w *= 1 - decay first
    "sgd-momentum-fused": 5,  # w, g, m in; w, m out
    "adam-fused": 7,  # w, g, m, v in; w, m, v out
    "adamw-fused": 7,
}
SLOTS = {"sgd": 0, "sgd-momentum": 1, "adagrad": 1, "rmsprop": 1, "sgd-momentum-fused": 1}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_by_hand(name: str) -> None:
    module = nn.Linear(100, 100, bias=False)
    profile = profile_step(TrainingStep(module, torch.ones(2, 100), total), StepSettings(optimizer=name))
    weights = 4 * 100 * 100
    counters = profile.memory_bytes["optimizer"] - PASSES[name] * weights
    assert 0 <= counters <= 100  # step counters
    assert profile.dense_slot_bytes == SLOTS.get(name, 2) * weights
    assert profile.flops["optimizer"] == 0


# --- Against other counts


class OwnFlops(TorchDispatchMode):
    """FLOPs of products and convolutions by formulas of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.__name__.split(".")[0]
        if name in ("mm", "bmm"):
            self.flops += 2 * result.numel() * args[0].shape[-1]
        elif name == "addmm":
            self.flops += 2 * result.numel() * args[1].shape[-1]
        elif name == "convolution":
            self.flops += 2 * result.numel() * prod(args[1].shape[1:])
        elif name == "convolution_backward":
            needed = args[10][0] + args[10][1]
            self.flops += needed * 2 * args[0].numel() * prod(args[2].shape[1:])
        return result


def test_counter_agrees_with_pytorch_and_with_own_formulas() -> None:
    """What the memory counter leaves out is what the FLOP counter counts, and that is what the formulas give."""
    step = block_step()
    counter, flops, own = MemoryCounter(), FlopCounterMode(display=False), OwnFlops()
    torch.manual_seed(0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), own, flops, counter:
        counter.phase = "step"
        step.module(*step.inputs).sum().backward()
    counted = flops.get_flop_counts()["Global"]
    assert {operator for _, operator in counter.compute_bound_calls} == {packet.__name__ for packet in counted}
    assert not {operator for _, operator in counter.moved} & {packet.__name__ for packet in counted}
    # PyTorch's own formula takes the weight gradient of a convolution in two groups for twice what it is.
    grouped = 2 * 2 * 16 * 2 * 2 * 4
    assert flops.get_total_flops() - grouped == own.flops > 0
    with_cross_entropy = profile_step(step, SGD)
    assert with_cross_entropy.total_flops == own.flops
    calls: Counter[str] = Counter()
    for (_, operator), count in counter.compute_bound_calls.items():
        calls[operator] += count
    assert with_cross_entropy.compute_bound_calls == dict(calls)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_fake_and_real_tensors_give_the_same(precision: str) -> None:
    fake, real = (profile_step(block_step(), StepSettings("adam", precision, execution=e)) for e in ("fake", "real"))
    if precision != "32-true":  # fake batch statistics have another type
        assert fake.total_memory_bytes == pytest.approx(real.total_memory_bytes, rel=2e-3)
        real = replace(real, **{key: getattr(fake, key) for key in vars(fake) if key.startswith("memory_bytes")})
    assert fake == replace(real, settings=fake.settings)


@pytest.mark.parametrize("options", [{"groups": 8}, {"stride": 2}, {"padding": 1, "dilation": 2}])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_convolutions_go_backward_at_twice_the_cost(kind: Any, options: dict[str, int]) -> None:
    module = nn.Sequential(nn.Linear(9, 9), kind(8, 16, 3, **options))
    profile = profile_step(TrainingStep(module, torch.ones(2, 8, 9, 9), total), SGD)
    linear = 2 * 2 * 8 * 9 * 9 * 9
    assert profile.flops["backward"] - linear == 2 * (profile.flops["forward"] - linear) > 0


def test_meta_module_gives_the_same_without_memory() -> None:
    step = block_step()
    with torch.device("meta"):
        on_meta = Block()
    again = profile_step(TrainingStep(on_meta, step.inputs, target=step.target), SGD)
    assert again == profile_step(step, SGD)
    with torch.device("meta"):
        huge = nn.Sequential(nn.Linear(200_000, 200_000, bias=False))  # 160 GB
    assert profile_step(TrainingStep(huge, torch.ones(1, 200_000), total), SGD).num_parameters == 4 * 10**10


def test_low_precision_halves_weights_and_traffic_but_mixed_precision_does_not() -> None:
    profiles = {p: profile_step(block_step(), StepSettings("adam", p)) for p in ("32-true", "bf16-mixed", "bf16-true")}
    full, mixed, low = profiles.values()
    assert low.dense_weight_bytes * 2 == full.dense_weight_bytes == mixed.dense_weight_bytes
    assert low.dense_gradient_bytes * 2 == full.dense_gradient_bytes == mixed.dense_gradient_bytes
    assert low.total_flops == full.total_flops == mixed.total_flops
    assert mixed.memory_bytes["forward"] < full.memory_bytes["forward"] * 1.2
    assert low.memory_bytes["backward"] < full.memory_bytes["backward"]


def test_fused_attention_saves_bytes_and_has_flops() -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(16, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    step = TrainingStep(Attend(), torch.ones(2, 64, 16), total)
    unfused, fused = (profile_step(step, StepSettings(attention=a)) for a in ("unfused", "fused"))
    product = 2 * 2 * 2 * 64 * 64 * 8  # 2 samples, 2 heads, 64 x 64 scores of 8 values
    projection = 2 * 2 * 64 * 16 * 48
    assert unfused.flops["forward"] == fused.flops["forward"] == projection + 2 * product
    assert unfused.flops["backward"] == projection + 4 * product
    assert fused.flops["backward"] == projection + 5 * product  # scores are computed again
    assert fused.total_memory_bytes < unfused.total_memory_bytes / 3


def test_recurrent_layers_have_the_flops_of_cells_run_one_by_one() -> None:
    """But for the gradient of the first state, which the cells leave out, and far fewer bytes."""
    for cell, gates in ((nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)):

        class Tagger(nn.Module):
            def __init__(self, cell: Any) -> None:
                super().__init__()
                self.encoder = cell(4, 8, 2, batch_first=True, bidirectional=True, dropout=0.1)
                self.decoder = cell(4, 8, 4, batch_first=True)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                _, state = self.encoder(x)
                decoded: torch.Tensor = self.decoder(x, state)[0]
                return decoded

        step = TrainingStep(Tagger(cell), torch.ones(2, 5, 4), total)
        fused, one_by_one = profile_step(step, SGD), profile_step(step, REAL)
        assert fused.num_parameters == one_by_one.num_parameters
        assert fused.flops["forward"] == one_by_one.flops["forward"]
        first_states = 4 * 2 * 2 * 8 * gates * 8  # four layers and directions of the encoder, 2 samples
        assert fused.flops["backward"] - one_by_one.flops["backward"] == first_states
        assert fused.total_memory_bytes < one_by_one.total_memory_bytes / 1.5


# --- Tables


class TwoTables(nn.Module):
    """One table used for a look-up, one also for the output."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.EmbeddingBag(1000, 8, mode="sum", sparse=True)
        self.items = nn.Embedding(50, 8, sparse=True)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.users(users) + self.items(items[:, 0])) @ self.items.weight.T


def test_tied_tables_are_dense_and_views_of_inputs_are_counted() -> None:
    step = TrainingStep(TwoTables(), (torch.tensor([[1, 2], [2, 999]]), torch.tensor([[3, 4], [3, 5]])), total)
    for execution in ("fake", "real"):
        profile = profile_step(step, StepSettings("adam", sparse="all", execution=execution))  # type: ignore[arg-type]
        users, items = profile.tables
        assert (users.is_sparse, users.touched_rows, users.is_counted) == (True, 3, True)
        assert (items.is_sparse, items.touched_rows) == (False, 50)
        assert (profile.row_gradient_bytes, profile.dense_gradient_bytes) == (3 * 32, 50 * 32)
        assert profile.embedding_weight_bytes == 1050 * 32
        assert profile.embedding_slot_bytes == 2 * 1050 * 32


def test_unknown_indices_count_once_per_look_up() -> None:
    class Hashed(nn.Module):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.table = nn.Embedding(rows, 4, sparse=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x * 7 % self.table.num_embeddings)

    for rows, touched in ((100, 6), (5, 5)):
        (table,) = profile_step(TrainingStep(Hashed(rows), INDICES, total), SGD).tables
        assert (table.touched_rows, table.is_counted) == (touched, False)
    (table,) = profile_step(TrainingStep(Hashed(100), INDICES, total), REAL).tables
    assert (table.touched_rows, table.is_counted) == (4, True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_and_checkpointed_modules() -> None:
    """A compiled module counts as it was; recomputed activations cost one more forward pass of their part."""

    class Recomputing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(lambda y: self.second(self.first(y).relu()).relu(), x, use_reentrant=False)
            assert isinstance(hidden, torch.Tensor)
            return hidden

    product = 2 * 4 * 8 * 8
    step = TrainingStep(Recomputing(), torch.ones(4, 8), total)
    for execution in ("fake", "real"):
        profile = profile_step(step, StepSettings(execution=execution))  # type: ignore[arg-type]
        assert (profile.flops["forward"], profile.flops["backward"]) == (2 * product, 5 * product)
    linear = TrainingStep(nn.Linear(8, 8), torch.ones(4, 8), total)
    assert profile_step(replace(linear, module=torch.compile(linear.module))) == profile_step(linear)


def test_frozen_parameters_are_not_trained() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    module[0].requires_grad_(False)
    profile = profile_step(TrainingStep(module, torch.ones(2, 8), total), SGD)
    assert (profile.num_parameters, profile.num_frozen) == (36, 72)
    assert profile.dense_weight_bytes == profile.dense_gradient_bytes == 36 * 4
    assert profile.flops["backward"] == 2 * 2 * 8 * 4


# --- Properties


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 8), st.lists(st.integers(1, 30), min_size=2, max_size=4))
def test_activations_grow_with_the_batch_and_weights_do_not(batch: int, widths: list[int]) -> None:
    layers = [m for a, b in zip(widths, widths[1:], strict=False) for m in (nn.Linear(a, b), nn.Tanh())]
    module = nn.Sequential(*layers)
    one, two, four = (
        profile_step(TrainingStep(module, torch.ones(b, widths[0]), lambda y: (y * y).mean()), SGD)
        for b in (batch + 1, 2 * batch + 2, 4 * batch + 4)
    )
    assert two.total_flops == 2 * one.total_flops
    forward = 2 * (batch + 1) * sum(a * b for a, b in zip(widths, widths[1:], strict=False))
    assert one.flops["forward"] == forward
    assert one.flops["backward"] == 2 * forward - 2 * (batch + 1) * widths[0] * widths[1]
    growth = two.total_memory_bytes - one.total_memory_bytes
    assert four.total_memory_bytes - two.total_memory_bytes == 2 * growth > 0
    assert one.memory_bytes["optimizer"] == four.memory_bytes["optimizer"] == 3 * one.dense_weight_bytes
    assert sum(one.memory_bytes_by_kind.values()) == one.total_memory_bytes
    assert sum(one.memory_bytes_by_operator.values()) == one.total_memory_bytes


@pytest.mark.parametrize("execution", ["fake", "real"])
def test_same_result_twice_and_nothing_of_the_users_changes(execution: Any) -> None:
    step = block_step()
    step.module.eval()
    before = {name: tensor.clone() for name, tensor in step.module.state_dict().items()}
    inputs = [tensor.clone() for tensor in step.inputs]
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate(), torch.backends.mkldnn.enabled, torch.is_grad_enabled()
    settings_ = StepSettings("adam", execution=execution)
    with torch.no_grad():
        first = profile_step(step, settings_)
    assert first == profile_step(step, settings_)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), torch.backends.mkldnn.enabled, torch.is_grad_enabled()) == states[1:]
    assert not step.module.training and all(p.grad is None for p in step.module.parameters())
    after = step.module.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(a, b) for a, b in zip(inputs, step.inputs, strict=True))
    assert all(type(p) is nn.Parameter for p in step.module.parameters())
