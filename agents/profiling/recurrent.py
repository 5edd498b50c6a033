"""Recurrent layers as GPUs run them: one kernel per cell, and products with the weights over all time steps at once.

PyTorch on a CPU runs an LSTM as a dozen small operators per time step and adds up the gradient of the recurrent weights
step by step, which moves many times the bytes. cuDNN fuses the element-wise part of a cell and forms the gradients of
the weights in one product. FLOPs are the same. The stand-in here has the right shapes, gradients and costs, no values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from agents.profiling.memory import MemoryCounter


@dataclass(frozen=True)
class Cell:
    """Costs of a fused cell, in values per sample, time step and unit.

    Attributes:
        gates: Products that enter, each once from the input and once from the last state.
        forward: Values read and written: both sets of gates and the last state; new state and what backward needs.
        backward: Values read and written: gradients, saved values and states; gradients of gates and state; and the
            gradients of gates read again for the sums that the biases need.
    """

    gates: int
    forward: int
    backward: int


_LSTM = Cell(gates=4, forward=4 + 4 + 1 + 2 + 4, backward=2 + 4 + 2 + 4 + 1 + 4)
_GRU = Cell(gates=3, forward=3 + 3 + 1 + 1 + 5, backward=1 + 5 + 3 + 3 + 1 + 6)
_PLAIN = Cell(gates=1, forward=1 + 1 + 1, backward=2 + 1 + 1)
_CELLS = {torch.lstm: _LSTM, torch.gru: _GRU, torch.rnn_tanh: _PLAIN, torch.rnn_relu: _PLAIN}


class _FusedCell(torch.autograd.Function):
    """The element-wise part of a layer over all time steps."""

    @staticmethod
    def forward(ctx: Any, counter: MemoryCounter, cell: Cell, *tensors: torch.Tensor | None) -> Any:
        input_gates, last_state = tensors[0], tensors[2]
        assert input_gates is not None and last_state is not None
        num_rows, units = input_gates.shape[0], input_gates.shape[1] // cell.gates
        ctx.counter, ctx.cell, ctx.row = counter, cell, num_rows * units * input_gates.element_size()
        ctx.like = [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]
        ctx.set_materialize_grads(False)
        counter.record("rnn_cell", cell.forward * ctx.row)
        final = last_state.new_empty(last_state.shape, dtype=input_gates.dtype)
        return input_gates.new_empty(num_rows, units), final, torch.empty_like(final)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.counter.record("rnn_cell_backward", ctx.cell.backward * ctx.row)
        given = next(gradient for gradient in gradients if gradient is not None)
        made = [None if like is None else given.new_empty(like[0], dtype=like[1]) for like in ctx.like]
        return (None, None, *made)


class FusedRecurrentLayers(TorchFunctionMode):
    """Puts the stand-in in place of `nn.LSTM`, `nn.GRU` and `nn.RNN` while it is active, for fake tensors.

    Packed sequences and LSTMs with projections stay as they are.
    """

    def __init__(self, counter: MemoryCounter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function, or the stand-in of a recurrent layer."""
        cell = _CELLS.get(function)
        is_plain = cell is not None and not kwargs and len(args) == 9 and isinstance(args[3], bool)
        if not is_plain:
            return function(*args, **(kwargs or {}))
        assert cell is not None
        weights, has_biases, layers, is_bidirectional = args[2], args[3], args[4], args[7]
        per_layer = 4 if has_biases else 2
        if len(weights) != per_layer * layers * (2 if is_bidirectional else 1):
            return function(*args)
        return self._run(cell, per_layer, *args)

    def _run(
        self,
        cell: Cell,
        per_layer: int,
        x: torch.Tensor,
        states: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        is_training: bool,
        is_bidirectional: bool,
        is_batch_first: bool,
    ) -> Any:
        hidden, memory = states if isinstance(states, tuple) else (states, states)
        directions = 2 if is_bidirectional else 1
        leading = x.shape[:2]  # time and batch in the caller's order: the costs are the same
        finals: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in range(layers):
            parts = []
            for index in range(layer * directions, (layer + 1) * directions):
                w_input, w_hidden, *biases = weights[index * per_layer : (index + 1) * per_layer]
                rows = x.reshape(leading.numel(), x.shape[2])
                previous = rows.new_empty(leading.numel(), w_hidden.shape[1]).requires_grad_()
                out, *final = _FusedCell.apply(
                    self.counter,
                    cell,
                    F.linear(rows, w_input),
                    F.linear(previous, w_hidden),
                    hidden[index],
                    memory[index],
                    *biases,
                )
                finals.append((final[0], final[1]))
                parts.append(out.unflatten(0, leading))
            with self.counter.paused():  # cuDNN writes both directions into one tensor
                x = torch.cat(parts, dim=2) if directions == 2 else parts[0]
            if dropout > 0 and layer < layers - 1:
                x = F.dropout(x, dropout, is_training)
        with self.counter.paused():
            last = [torch.stack(state) for state in zip(*finals, strict=True)]
        return (x, *last) if cell is _LSTM else (x, last[0])
