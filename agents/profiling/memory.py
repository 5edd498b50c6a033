"""Counts the bytes that memory-bound operators move.

What counts, operator by operator, as PyTorch runs them one after the other (eager, nothing fused):

- An operator for which PyTorch's FLOP counter has a formula (matrix products, convolutions, fused attention, and their
  backward passes) is compute-bound. Its FLOPs count, its bytes do not: the step-time model charges one or the other.
- Views, allocations and reads of a single number move nothing.
- Every other operator reads each tensor argument once and writes each new tensor once; a tensor changed in place is
  read and written, or only written where its old values do not matter (`fill_`, `copy_`, random numbers).
- Look-ups (embedding, gather, index) read the elements they fetch, not the whole table; scatters likewise.
- Elements that a broadcast repeats count once, and so does a tensor that is passed twice.

So an operator that goes over its data twice (batch normalisation: statistics, then values) still counts it once, and
caches are taken to keep nothing between operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


def _flash_flops(query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _flash_backward_flops(
    grad: Any, query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


def _convolution_backward_flops(
    grad: Any, image: Any, weight: Any, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    is_transposed, needed = args[4], args[7]
    products = 2 * prod(image if is_transposed else grad) * prod(weight[1:])
    return products * (needed[0] + needed[1])


FLOP_FORMULAS: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _flash_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _flash_backward_flops,
    aten.convolution_backward: _convolution_backward_flops,
}
"""What PyTorch's FLOP counter lacks: fused attention as a CPU runs it, which it knows on GPUs only, and the gradient of
grouped convolutions, which it counts too high by the number of groups."""

# "output": as many elements as the result has; "rows": the rows that an argument's indices name; else: as many as that
# argument has.
_PARTLY_ACCESSED: dict[str, tuple[str, str]] = {
    "embedding": ("weight", "rows:indices"),
    "_embedding_bag": ("weight", "rows:indices"),
    "_embedding_bag_forward_only": ("weight", "rows:indices"),
    "embedding_renorm_": ("self", "rows:indices"),
    "gather": ("self", "output"),
    "index": ("self", "output"),
    "index_select": ("self", "output"),
    "take": ("self", "output"),
    "nll_loss_forward": ("self", "target"),
    "nll_loss2d_forward": ("self", "target"),
    "index_put_": ("self", "values"),
    "index_add_": ("self", "source"),
    "index_copy_": ("self", "source"),
    "scatter_": ("self", "index"),
    "scatter_add_": ("self", "index"),
    "scatter_reduce_": ("self", "index"),
}
# Arguments that only tell a shape.
_NOT_READ: dict[str, str] = {
    "nll_loss_backward": "self",
    "nll_loss2d_backward": "self",
    "avg_pool2d_backward": "self",
    "avg_pool3d_backward": "self",
    "_adaptive_avg_pool2d_backward": "self",
    "max_pool2d_with_indices_backward": "self",
    "max_pool3d_with_indices_backward": "self",
}
_WRITTEN_ONLY = frozenset(
    ("fill_", "zero_", "copy_", "bernoulli_", "uniform_", "normal_", "random_", "exponential_", "log_normal_")
)
_FREE = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense", "set_", "resize_")
)

KINDS = ("normalisation", "pooling", "embedding", "softmax and loss", "copies", "optimiser", "element-wise")
"""Kinds of memory-bound operators; reductions and everything that has no kind of its own count as element-wise."""

_KIND_WORDS: dict[str, tuple[str, ...]] = {
    "normalisation": ("_norm",),
    "pooling": ("pool",),
    "embedding": ("embedding",),
    "softmax and loss": ("softmax", "nll_loss", "mse_loss", "cross_entropy", "ctc_loss"),
}
_COPIES = frozenset(
    ("clone", "copy_", "_to_copy", "cat", "stack", "constant_pad_nd", "slice_backward", "select_backward")
)
_NORM_REDUCTIONS = ("linalg_", "vector_norm")


def is_compute_bound(function: Any) -> bool:
    """Whether an operator's FLOPs count rather than its bytes."""
    packet = getattr(function, "_overloadpacket", None)
    return packet in flop_registry or packet in FLOP_FORMULAS


def kind_of(name: str) -> str:
    """Kind of a memory-bound operator of forward or backward pass, by its name."""
    if name in _COPIES:
        return "copies"
    if any(word in name for word in _NORM_REDUCTIONS):
        return "element-wise"
    for kind, words in _KIND_WORDS.items():
        if any(word in name for word in words):
            return kind
    return "element-wise"


def _distinct_elements(tensor: torch.Tensor) -> int:
    """Elements that lie in memory: those that a stride of 0 repeats count once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(size for size, stride in sizes if stride != 0 or size == 0)


def _tensor_bytes(tensor: torch.Tensor) -> int:
    return _distinct_elements(tensor) * tensor.element_size()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)] if value is not None else []


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    return _storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _partial_bytes(rule: str, tensor: torch.Tensor, values: Mapping[str, Any], outputs: list[torch.Tensor]) -> int:
    where, _, argument = rule.rpartition(":")
    if where == "rows":
        elements = values[argument].numel() * prod(tensor.shape[1:])
    else:
        elements = outputs[0].numel() if rule == "output" else values[rule].numel()
    return int(elements) * tensor.element_size()


def _arguments(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for i, argument in enumerate(function._schema.arguments):
        yield argument, args[i] if i < len(args) else kwargs.get(argument.name)


def moved_bytes(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """Bytes that one memory-bound operator reads and writes, after the rules of this module.

    Args:
        function: The operator, a `torch._ops.OpOverload`.
        args: Positional arguments it was called with.
        kwargs: Keyword arguments, likewise.
        result: What it returned.
    """
    name = function._overloadpacket.__name__
    if name in _FREE:
        return 0
    arguments = list(_arguments(function, args, kwargs))
    values = {argument.name: value for argument, value in arguments}
    storages = {_storage(tensor) for value in values.values() for tensor in _tensors(value)}
    outputs = [tensor for tensor in _tensors(result) if _storage(tensor) not in storages]
    is_creation = name.endswith("_like") or name.startswith("new_")
    partly, rule = _PARTLY_ACCESSED.get(name, ("", ""))
    total, seen, is_in_place = 0, set(), False
    for argument, value in arguments:
        tensors = _tensors(value)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        # Declared so because a loss scale may be taken out of them.
        is_written &= not (name.startswith("_fused_") and argument.name == "grads")
        is_in_place |= is_written and bool(tensors)
        if not is_written and (is_creation or _NOT_READ.get(name) == argument.name):
            continue
        passes = 1
        if is_written and not (name in _WRITTEN_ONLY or argument.kwarg_only):
            passes = 2
        for tensor in tensors:
            if _identity(tensor) in seen and not is_written:
                continue
            seen.add(_identity(tensor))
            moved = _partial_bytes(rule, tensor, values, outputs) if argument.name == partly else _tensor_bytes(tensor)
            total += passes * moved
    if not outputs and not is_in_place:
        return 0  # a view
    return total + sum(_tensor_bytes(tensor) for tensor in outputs)


@cache
def _is_composite(function: Any) -> bool:
    """Whether an operator has no kernel of its own and consists of others."""
    has_kernel = function.has_kernel_for_dispatch_key
    is_composite = has_kernel(torch._C.DispatchKey.CompositeImplicitAutograd)
    return is_composite and not has_kernel(torch._C.DispatchKey.CPU) and not is_compute_bound(function)


class MemoryCounter(TorchDispatchMode):
    """Adds up the bytes of memory-bound operators while it is active and `phase` is set.

    Enter it after PyTorch's FLOP counter: that one takes operators apart that have a kernel of their own.

    Attributes:
        phase: Part of the step that operators belong to; None: nothing is counted.
        moved: Bytes by (phase, operator).
        compute_bound_calls: Calls of compute-bound operators by (phase, operator).
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: str | None = None
        self.moved: Counter[tuple[str, str]] = Counter()
        self.compute_bound_calls: Counter[tuple[str, str]] = Counter()

    def record(self, operator: str, moved: int) -> None:
        """Adds bytes of something that is no operator of PyTorch."""
        if self.phase is not None:
            self.moved[self.phase, operator] += moved

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Counts nothing inside."""
        phase, self.phase = self.phase, None
        try:
            yield
        finally:
            self.phase = phase

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator and counts it."""
        kwargs = kwargs or {}
        is_operator = isinstance(function, torch._ops.OpOverload) and function.namespace != "prim"
        if is_operator and _is_composite(function):
            with self:
                return function.decompose(*args, **kwargs)
        result = function(*args, **kwargs)
        if self.phase is not None and is_operator:
            key = (self.phase, function._overloadpacket.__name__)
            if is_compute_bound(function):
                self.compute_bound_calls[key] += 1
            else:
                self.moved[key] += moved_bytes(function, args, kwargs, result)
        return result
