"""The two halves of the equivariant network that run once per job slot, with hand-written gradients.

These layers are where training time goes: they touch B * J rows, everything else B. Autograd on the same formulas
spends most of its time not on matrix products but on passes over temporaries larger than the processor's cache. Here
both directions walk through the batch in blocks that fit the cache and reuse their scratch memory, about twice as fast
on one core. `tests/agents/test_networks.py` compares both with plain autograd.

Letters: B environments or samples, J job slots, F features of a slot, C features of the cluster, D slot width,
N = B * J rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK_ROWS = 2560
"""Rows of a block: about 0.5 MiB per array at width 48, so that the few arrays of a step stay in a 2 MiB cache."""


class Workspace:
    """Memory for activations that is handed out by a forward pass and comes back with its backward pass.

    A training step needs tens of megabytes for a fraction of a second. Taken from the system anew each time, the page
    faults cost about a fifth of the step. A buffer whose backward pass never runs is simply forgotten. Running a
    backward pass twice finds its memory reused; autograd's version check then raises.
    """

    _MAX_SHAPES = 4

    def __init__(self) -> None:
        self._free: defaultdict[tuple[Any, ...], list[Tensor]] = defaultdict(list)

    def take(self, shape: tuple[int, int], like: Tensor) -> Tensor:
        """A tensor of this shape with arbitrary content, of the type and device of `like`."""
        free = self._free.get((shape, like.dtype, like.device))
        return free.pop() if free else like.new_empty(shape)

    def give(self, *tensors: Tensor) -> None:
        """Takes tensors back. Nobody may use them afterwards."""
        for tensor in tensors:
            if len(self._free) >= self._MAX_SHAPES:
                self._free.clear()
            self._free[(tuple(tensor.shape), tensor.dtype, tensor.device)].append(tensor.detach())

    def __deepcopy__(self, memo: dict[int, Any]) -> Workspace:
        """A copy of a network starts with no memory of its own."""
        return Workspace()


def _blocks(batch: int, num_slots: int) -> list[tuple[slice, slice]]:
    """Slices of samples and of their rows, one pair per block."""
    samples = max(1, _BLOCK_ROWS // max(1, num_slots))
    starts = range(0, batch, samples)
    return [
        (slice(i, min(i + samples, batch)), slice(i * num_slots, min(i + samples, batch) * num_slots)) for i in starts
    ]


def _relu_backward(grad: Tensor, activation: Tensor) -> Tensor:
    """Zeroes `grad` in place where the rectified `activation` is zero."""
    return torch.ops.aten.threshold_backward.grad_input(grad, activation, 0, grad_input=grad)


class EncodeSlots(torch.autograd.Function):
    """Two layers per slot, then a pool over the slots that hold a job.

    `x = relu(jobs W_in' + b_in + cluster W_cluster')`, `h = relu(x W_mid' + b_mid)`, rows of empty slots zero.

    Inputs: jobs (B, J, F), cluster (B, C), present (B, J) of zeros and ones, w_in (D, F), b_in (D,), w_cluster (D, C),
    w_mid (D, D), b_mid (D,). Outputs: h (N, D) and the sum and the maximum of h over a sample's slots, each (B, D).
    No gradient flows to jobs, cluster and present, which are data. The backward pass uses the gradient of h as
    scratch memory, so h may have one consumer only, `DecodeSlots`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        workspace: Workspace,
        jobs: Tensor,
        cluster: Tensor,
        present: Tensor,
        w_in: Tensor,
        b_in: Tensor,
        w_cluster: Tensor,
        w_mid: Tensor,
        b_mid: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs the two layers and the pool."""
        batch, num_slots, _ = jobs.shape
        width = b_in.shape[0]
        rows = jobs.reshape(batch * num_slots, -1)
        shift = torch.addmm(b_in, cluster, w_cluster.t())
        x = workspace.take((rows.shape[0], width), rows)
        h = workspace.take((rows.shape[0], width), rows)
        total = rows.new_empty(batch, width)
        peak = torch.empty_like(total)
        has_empty = not bool(present.all())
        for samples, block in _blocks(batch, num_slots):
            xb, hb = x[block], h[block]
            x3, h3 = xb.view(-1, num_slots, width), hb.view(-1, num_slots, width)
            x3.copy_(shift[samples].unsqueeze(1))
            xb.addmm_(rows[block], w_in.t()).clamp_min_(0.0)
            torch.addmm(b_mid, xb, w_mid.t(), out=hb).clamp_min_(0.0)
            if has_empty:
                h3.mul_(present[samples].unsqueeze(2))
            torch.sum(h3, 1, out=total[samples])
            torch.amax(h3, 1, out=peak[samples])
        ctx.workspace, ctx.memory, ctx.num_slots = workspace, (x, h), num_slots
        # An alias: autograd marks what a forward pass returns, and the workspace must stay unmarked.
        h = h.detach()
        ctx.save_for_backward(rows, cluster, x, h, peak, w_mid)
        return h, total, peak

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_total: Tensor, grad_peak: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the weights."""
        rows, cluster, x, h, peak, w_mid = ctx.saved_tensors
        num_slots, width, batch = ctx.num_slots, h.shape[1], peak.shape[0]
        g_in = rows.new_zeros(width, rows.shape[1])
        g_mid = rows.new_zeros(width, width)
        g_b_mid = rows.new_zeros(width)
        g_shift = rows.new_empty(batch, width)
        blocks = _blocks(batch, num_slots)
        scratch = rows.new_empty(blocks[0][1].stop, width)
        for samples, block in blocks:
            xb, hb, gh = x[block], h[block], grad_h[block]
            gx = scratch[: xb.shape[0]]
            h3, gh3, is_peak = (a.view(-1, num_slots, width) for a in (hb, gh, gx))
            gh3 += grad_total[samples].unsqueeze(1)
            # Slots that share the maximum (jobs that look alike) share its gradient. Ties at zero are cut off below.
            torch.eq(h3, peak[samples].unsqueeze(1), out=is_peak)
            share = grad_peak[samples] / is_peak.sum(1)
            gh3.addcmul_(is_peak, share.unsqueeze(1))
            # Rows of empty slots are zero in h, so this cuts their gradient too.
            _relu_backward(gh, hb)
            g_mid.addmm_(gh.t(), xb)
            g_b_mid += gh.sum(0)
            torch.mm(gh, w_mid, out=gx)
            _relu_backward(gx, xb)
            g_in.addmm_(gx.t(), rows[block])
            torch.sum(gx.view(-1, num_slots, width), 1, out=g_shift[samples])
        ctx.workspace.give(*ctx.memory, grad_h)
        ctx.memory = None
        return None, None, None, None, g_in, g_shift.sum(0), g_shift.t() @ cluster, g_mid, g_b_mid


class DecodeSlots(torch.autograd.Function):
    """One hidden layer and the logits per slot, from the slot's encoding and the sample's context.

    `y = relu(h W_out' + shift)`, `logits = y W_logits' + b_logits`.

    Inputs: h (N, D), shift (B, D) (what the context adds to every slot of a sample), w_out (D, D), w_logits (K, D),
    b_logits (K,). Output: logits (N, K).
    """

    @staticmethod
    def forward(
        ctx: Any,
        workspace: Workspace,
        h: Tensor,
        shift: Tensor,
        w_out: Tensor,
        w_logits: Tensor,
        b_logits: Tensor,
    ) -> Tensor:
        """Runs the layer and the logits."""
        batch, width = shift.shape
        num_slots = h.shape[0] // batch
        y = workspace.take((h.shape[0], width), h)
        logits = h.new_empty(h.shape[0], b_logits.shape[0])
        for samples, block in _blocks(batch, num_slots):
            yb = y[block]
            yb.view(-1, num_slots, width).copy_(shift[samples].unsqueeze(1))
            yb.addmm_(h[block], w_out.t()).clamp_min_(0.0)
            torch.addmm(b_logits, yb, w_logits.t(), out=logits[block])
        ctx.save_for_backward(h, y, w_out, w_logits)
        ctx.workspace, ctx.memory, ctx.batch = workspace, y, batch
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logits: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs."""
        h, y, w_out, w_logits = ctx.saved_tensors
        batch, width = ctx.batch, h.shape[1]
        num_slots = h.shape[0] // batch
        grad_logits = grad_logits.contiguous()
        g_h = ctx.workspace.take((h.shape[0], width), h)
        g_shift = h.new_empty(batch, width)
        g_out = torch.zeros_like(w_out)
        g_logits = torch.zeros_like(w_logits)
        blocks = _blocks(batch, num_slots)
        scratch = h.new_empty(blocks[0][1].stop, width)
        for samples, block in blocks:
            yb, gl = y[block], grad_logits[block]
            gy = scratch[: yb.shape[0]]
            torch.mm(gl, w_logits, out=gy)
            _relu_backward(gy, yb)
            g_logits.addmm_(gl.t(), yb)
            g_out.addmm_(gy.t(), h[block])
            torch.sum(gy.view(-1, num_slots, width), 1, out=g_shift[samples])
            torch.mm(gy, w_out, out=g_h[block])
        ctx.workspace.give(ctx.memory)
        ctx.memory = None
        return None, g_h, g_shift, g_out, g_logits, grad_logits.sum(0)
