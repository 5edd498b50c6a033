"""How a training step is run, and what is counted in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from agents.profiling.optimizers import OptimizerFactory, get_optimizer
from dl2env.errors import ConfigError, UnknownNameError

PHASES = ("forward", "backward", "optimizer")

PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "32-true": (torch.float32, None),
    "16-mixed": (torch.float32, torch.float16),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-true": (torch.float16, None),
    "bf16-true": (torch.bfloat16, None),
}
"""Type of the weights, and that of the automatic mixed precision if there is any."""

SparsePolicy = Literal["declared", "all", "none"]
AttentionKind = Literal["unfused", "fused"]
Execution = Literal["fake", "real"]
_CHOICES = {"sparse": ("declared", "all", "none"), "attention": ("unfused", "fused"), "execution": ("fake", "real")}


@dataclass(frozen=True)
class StepSettings:
    """How a training step is run.

    Attributes:
        optimizer: Key of `agents.profiling.optimizers.OPTIMIZERS`, or a function from parameters to an optimiser.
        precision: Key of `PRECISIONS`.
        sparse: Which embedding tables have sparse gradients: those `declared` so (`sparse=True`), `all` that are used
            for look-ups only (as in TensorFlow), or `none`.
        attention: `unfused`: scores and probabilities of scaled dot-product attention are written to memory; `fused`:
            one compute-bound kernel (FlashAttention), without dropout inside it.
        execution: On `fake` tensors, or for `real` on a copy of the module.
    """

    optimizer: str | OptimizerFactory = "sgd-momentum"
    precision: str = "32-true"
    sparse: SparsePolicy = "declared"
    attention: AttentionKind = "unfused"
    execution: Execution = "fake"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UnknownNameError("precision", self.precision, list(PRECISIONS))
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise ConfigError(f"{key}={getattr(self, key)!r} is unknown; choose one of: {', '.join(choices)}")
        if isinstance(self.optimizer, str):
            get_optimizer(self.optimizer)


@dataclass(frozen=True)
class Table:
    """An embedding table.

    Attributes:
        name: The parameter's name in the module.
        num_rows: Rows of the table.
        touched_rows: Rows that the step looks up; all of them where the gradient is dense.
        is_sparse: Whether gradient and optimiser touch only those rows.
        is_counted: Touched rows were counted in the batch's values, repeated ones once; otherwise each look-up counts.
        row_bytes: Bytes of a row.
    """

    name: str
    num_rows: int
    touched_rows: int
    is_sparse: bool
    is_counted: bool
    row_bytes: int


@dataclass(frozen=True)
class StepProfile:
    """What one training step needs.

    Attributes:
        samples: Samples in the batch.
        flops: Operations of compute-bound operators (2 per multiply-add) by phase.
        memory_bytes: Bytes moved by memory-bound operators by phase.
        memory_bytes_by_kind: The same by kind of operator (`agents.profiling.memory.KINDS`).
        memory_bytes_by_operator: The same by operator.
        compute_bound_calls: Calls of compute-bound operators, by operator.
        input_bytes: Bytes of the example batch, target included.
        num_parameters: Trainable parameters.
        num_frozen: Parameters that are not trained.
        dense_weight_bytes, embedding_weight_bytes: Trainable weights, without optimiser state.
        dense_slot_bytes, embedding_slot_bytes: Optimiser state of the same shapes (momenta and the like).
        dense_gradient_bytes: Gradients that are exchanged whole.
        row_gradient_bytes: Sparse gradients: touched rows of embedding tables.
        tables: Embedding tables.
        settings: How the step was run.
    """

    samples: float
    flops: dict[str, int]
    memory_bytes: dict[str, int]
    memory_bytes_by_kind: dict[str, int]
    memory_bytes_by_operator: dict[str, int]
    compute_bound_calls: dict[str, int]
    input_bytes: int
    num_parameters: int
    num_frozen: int
    dense_weight_bytes: int
    embedding_weight_bytes: int
    dense_slot_bytes: int
    embedding_slot_bytes: int
    dense_gradient_bytes: int
    row_gradient_bytes: int
    tables: tuple[Table, ...]
    settings: StepSettings

    @property
    def total_flops(self) -> int:
        """Operations of the whole step."""
        return sum(self.flops.values())

    @property
    def total_memory_bytes(self) -> int:
        """Bytes moved in the whole step."""
        return sum(self.memory_bytes.values())
