"""Embedding tables: which parameters are tables, how many rows a step touches, and tables cut to those rows.

A sparse gradient holds only the rows that the batch looks up, and a sparse optimiser changes only those. To count that
without sparse tensors, a step is run on a table that has just so many rows and an ordinary gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from dl2env.errors import ConfigError

_LOOKUPS = {function: inspect.signature(function) for function in (F.embedding, F.embedding_bag)}


@dataclass
class TableUse:
    """How one parameter was used in a forward pass.

    Attributes:
        indices: Index tensors of its look-ups.
        is_sparse: Every look-up asked for a sparse gradient.
        is_dense_too: Something else used it as well (a tied output layer), so that its gradient is dense.
    """

    indices: list[torch.Tensor] = field(default_factory=list)
    is_sparse: bool = True
    is_dense_too: bool = False


class TableUses(TorchFunctionMode):
    """Records how parameters are used while it is active; `uses` maps the `id` of each to its use."""

    def __init__(self, parameters: Mapping[int, torch.nn.Parameter]) -> None:
        super().__init__()
        self.uses = {key: TableUse() for key in parameters}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function and notes which parameters it takes."""
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        table = None
        if function in _LOOKUPS:
            call = _bound(function, args, kwargs)
            index, table = _index_and_table(call)
            use = self.uses.get(id(table))
            if use is not None:
                use.indices.append(index)
                use.is_sparse &= bool(call["sparse"])
        elif any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result)):
            for leaf in tree_leaves((args, kwargs)):
                if id(leaf) in self.uses:
                    self.uses[id(leaf)].is_dense_too = True
        return result


class CutTables(TorchFunctionMode):
    """Gives look-ups other tables and dense gradients while it is active.

    Attributes:
        tables: Replacement by `id` of the parameter, with as many rows as a step touches.
        wraps_indices: Bring indices into the range of the smaller table (uncounted).
    """

    def __init__(self, tables: Mapping[int, torch.nn.Parameter], wraps_indices: bool) -> None:
        super().__init__()
        self.tables = tables
        self.wraps_indices = wraps_indices

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function; a look-up in a replaced table goes to its replacement."""
        kwargs = kwargs or {}
        if function not in _LOOKUPS:
            return function(*args, **kwargs)
        call = {**_bound(function, args, kwargs), "sparse": False}
        index, table = _index_and_table(call)
        cut = self.tables.get(id(table))
        if cut is not None:
            if self.wraps_indices:  # fake look-ups do not check their indices, real ones do
                with _disable_current_modes():
                    index = index % len(cut)
            call.update(input=index, weight=cut, padding_idx=None)
        return function(**call)


def _bound(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    call = _LOOKUPS[function].bind(*args, **kwargs)
    call.apply_defaults()
    return dict(call.arguments)


def _index_and_table(call: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Index and table of a look-up; F.embedding_bag also takes them in the other order."""
    index, table = call["input"], call["weight"]
    return (table, index) if index.is_floating_point() else (index, table)


def touched_rows(num_rows: int, indices: list[torch.Tensor], real: Mapping[int, torch.Tensor]) -> tuple[int, bool]:
    """Rows of a table that a step touches, and whether they were counted.

    They are counted where the values of all indices are known: the index tensors are inputs or views of inputs.
    Otherwise each look-up counts as a row of its own, up to the size of the table.

    Args:
        num_rows: Size of the table.
        indices: Index tensors, fake or real.
        real: Input tensor with values by the storage of the fake one that stood for it.

    Raises:
        ConfigError: A known index is no row of the table.
    """
    values = [_with_values(index, real) for index in indices]
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        rows = torch.unique(torch.cat([value.reshape(-1).cpu() for value in known]))
        if rows.numel() and not 0 <= int(rows[0]) <= int(rows[-1]) < num_rows:
            raise ConfigError(
                f"the batch looks up rows {int(rows[0])} to {int(rows[-1])} of an embedding table of {num_rows} rows, "
                "counted from 0; mend the batch or enlarge the table"
            )
        return int(rows.numel()), True
    return min(num_rows, sum(index.numel() for index in indices)), False


def _with_values(index: torch.Tensor, real: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    original = real.get(int(index.untyped_storage()._cdata))
    if original is None:
        return index if type(index) in (torch.Tensor, torch.nn.Parameter) and not index.is_meta else None
    if original.is_meta or original.dtype != index.dtype:
        return None
    offset = original.storage_offset() + int(index.storage_offset())
    return original.as_strided(tuple(index.shape), tuple(index.stride()), offset)
