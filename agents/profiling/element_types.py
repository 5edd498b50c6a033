"""Element types that operators refuse: fake tensors have shapes and types, but not every check of real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agents.profiling.memory import is_compute_bound

_FLOATS_ONLY = frozenset(
    ("gelu", "silu", "mish", "hardswish", "hardsigmoid", "_softmax", "_log_softmax", "native_layer_norm")
)
"""Operators that no CPU or GPU runs on whole numbers, and fake tensors do."""


class RealElementTypes(TorchDispatchMode):
    """Raises the error that real tensors would: whole numbers in a product with others, or where none may be."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "_overloadpacket", function).__name__
        is_product = is_compute_bound(function)
        if is_product or name in _FLOATS_ONLY:
            found = [leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            whole = [dtype for dtype in found if not (dtype.is_floating_point or dtype.is_complex)]
            if whole and (len(whole) < len(found) or not is_product):
                text = f"{name} does not take {_short(whole[0])}"
                others = [dtype for dtype in found if dtype not in whole]
                raise RuntimeError(f"{text} with {_short(others[0])}" if others else text)
        return function(*args, **kwargs)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
