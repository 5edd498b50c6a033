"""Counts what one training step of a PyTorch module needs: FLOPs, bytes moved, weights, input and touched rows.

The step is run on fake tensors, which have shapes but no values: it takes no memory and no arithmetic, whatever the
size of the model. A module whose shapes or branches depend on values is run for real instead (`execution="real"`).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from agents.profiling.element_types import RealElementTypes
from agents.profiling.lookups import CutTables, TableUses, touched_rows
from agents.profiling.memory import FLOP_FORMULAS, KINDS, MemoryCounter, kind_of
from agents.profiling.optimizers import get_optimizer
from agents.profiling.recurrent import FusedRecurrentLayers
from agents.profiling.results import PHASES, PRECISIONS, StepProfile, StepSettings, Table
from agents.profiling.training_step import TrainingStep, default_loss
from dl2env.errors import ConfigError


def profile_step(step: TrainingStep, settings: StepSettings | None = None) -> StepProfile:
    """Counts one training step: forward pass, loss, backward pass and optimiser, state already there.

    The module is copied and put in training mode; the user's module, its weights and buffers and the random states of
    PyTorch and Python stay as they are.

    Raises:
        ConfigError: The module cannot be copied, has nothing to train, does not run on the batch or cannot go backward.
    """
    settings = settings or StepSettings()
    samples = _samples(step)
    with _undisturbed():
        return _Run(step, settings, samples).profile()


def _samples(step: TrainingStep) -> float:
    if step.samples is not None:
        if not step.samples > 0:
            raise ConfigError(f"samples={step.samples} must be positive")
        return step.samples
    tensors = _all_tensors((step.inputs, step.target))
    sizes = {int(tensor.shape[0]) for tensor in tensors if tensor.dim() > 0}
    if len(sizes) != 1 or 0 in sizes:
        found = ", ".join(str(tuple(tensor.shape)) for tensor in tensors) or "none"
        raise ConfigError(
            f"the batch size is unclear from the shapes of the example batch ({found}): first dimensions differ or are "
            "missing; say how many samples it holds (--samples)"
        )
    return sizes.pop()


def _all_tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Puts back random states and switches; turns off what would make counts depend on the CPU at hand."""
    python_state = random.getstate()
    (uses_mkldnn, *_) = torch.backends.mkldnn.set_flags(_enabled=False)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(list(devices)), torch.enable_grad():
            yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=uses_mkldnn)
        random.setstate(python_state)


@dataclass
class _Run:
    """One profile in the making."""

    step: TrainingStep
    settings: StepSettings
    samples: float
    memory: MemoryCounter = field(default_factory=MemoryCounter)
    real_inputs: dict[int, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fake = FakeTensorMode(allow_non_fake_inputs=True) if self.settings.execution == "fake" else None
        self.weight_type, self.mixed_type = PRECISIONS[self.settings.precision]
        self.loss: Callable[..., torch.Tensor] = self.step.loss or default_loss
        if isinstance(self.loss, nn.Module) and any(p.requires_grad for p in self.loss.parameters()):
            raise ConfigError(
                "the loss has trainable parameters, which would not be counted; make it part of the module"
            )
        self.module = self._copy_of_module().train()
        self.parameters = {
            name: parameter for name, parameter in self.module.named_parameters() if parameter.requires_grad
        }
        if not self.parameters:
            raise ConfigError("the module has no trainable parameter; give one that has (requires_grad=True)")
        self.inputs, self.target = tree_map(self._copy_of_input, (self.step.inputs, self.step.target))

    def profile(self) -> StepProfile:
        tables = self._tables()
        flop_counter = FlopCounterMode(display=False, custom_mapping=FLOP_FORMULAS)
        with self._on_tensors():
            cut = {
                id(self.parameters[t.name]): self._cut_table(self.parameters[t.name], t) for t in tables if t.is_sparse
            }
            trained = {name: cut.get(id(parameter), parameter) for name, parameter in self.parameters.items()}
            optimizer = self._optimizer(list(trained.values()))
            with flop_counter, self.memory, CutTables(cut, wraps_indices=self.fake is None):
                self.memory.phase = "forward"
                loss = self._forward()
                flops = {"forward": flop_counter.get_total_flops()}
                self.memory.phase = "backward"
                self._backward(loss)
                flops["backward"] = flop_counter.get_total_flops() - flops["forward"]
            optimizer.step()  # makes its state
            with flop_counter, self.memory:
                self.memory.phase = "optimizer"
                optimizer.step()
                flops["optimizer"] = flop_counter.get_total_flops()
        return self._summary(tables, trained, optimizer, flops)

    # What the step is run on ---------------------------------------------------------------------------------------

    def _on_tensors(self) -> Any:
        return self.fake or nullcontext()

    def _fake_like(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self.weight_type if tensor.is_floating_point() else tensor.dtype
        assert self.fake is not None
        if tensor.layout is not torch.strided:
            raise ConfigError(f"a tensor of layout {tensor.layout} cannot be profiled; use dense tensors")
        with self.fake:
            return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=dtype, device="cpu")

    def _copy_of_module(self) -> nn.Module:
        # torch.compile wraps a module; it is counted as it was before.
        original, memo = getattr(self.step.module, "_orig_mod", self.step.module), {}
        if any(isinstance(part, torch.jit.ScriptModule) for part in original.modules()):
            raise ConfigError("the module is a TorchScript program; give it as it was before torch.jit.script or trace")
        tensors = [*original.parameters(), *original.buffers()]
        for tensor in tensors:
            if nn.parameter.is_lazy(tensor):
                raise ConfigError("the module has lazy layers; run it once on the batch before it is profiled")
            if self.fake is None and tensor.is_meta:
                raise ConfigError("the module is on the meta device and has no values; use execution fake")
            if self.fake is not None:
                fake = self._fake_like(tensor)
                is_parameter = isinstance(tensor, nn.Parameter)
                memo[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
        try:
            copied = copy.deepcopy(original, memo)
        except Exception as error:  # whatever the user's class does
            raise ConfigError(f"the module cannot be copied ({_one_line(error)}); make copy.deepcopy work") from error
        return copied if self.fake is not None else copied.to(self.weight_type)

    def _copy_of_input(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if self.fake is None:
            copied = leaf.detach().clone()  # the module may change its input in place
            return copied.to(self.weight_type) if leaf.is_floating_point() else copied
        fake = self._fake_like(leaf)
        self.real_inputs[int(fake.untyped_storage()._cdata)] = leaf
        return fake

    def _cut_table(self, parameter: nn.Parameter, table: Table) -> nn.Parameter:
        shape = (max(table.touched_rows, 1), *parameter.shape[1:])
        return nn.Parameter(torch.zeros(shape, dtype=parameter.dtype, device=parameter.device))

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        make = self.settings.optimizer
        try:
            return get_optimizer(make)(parameters) if isinstance(make, str) else make(parameters)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"the optimizer cannot be made ({_one_line(error)}); choose another") from error

    # The step ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        fused = self.settings.attention == "fused"
        with ExitStack() as stack:
            kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH] if fused else [SDPBackend.MATH]
            stack.enter_context(sdpa_kernel(kernels, set_priority=True))
            if fused:
                stack.enter_context(_WithoutAttentionDropout())
            if self.fake is not None:
                stack.enter_context(FusedRecurrentLayers(self.memory))
                stack.enter_context(RealElementTypes())
            if self.mixed_type is not None:
                device = next(iter(self.parameters.values())).device.type
                stack.enter_context(torch.autocast(device, dtype=self.mixed_type))
            yield

    def _forward(self) -> torch.Tensor:
        try:
            with self._conditions():
                if isinstance(self.inputs, dict):
                    output = self.module(**self.inputs)
                else:
                    inputs = self.inputs if isinstance(self.inputs, (tuple, list)) else (self.inputs,)
                    output = self.module(*inputs)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            raise ConfigError(f"the module does not run on the batch ({_one_line(error)}); {self._cure()}") from error
        try:
            with self._conditions():
                loss = self.loss(output) if self.step.target is None else self.loss(output, self.target)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(f"the loss does not run on the output ({_one_line(error)}); {self._cure()}") from error
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ConfigError(f"the loss must be one number, not {found}; average it")
        if not loss.requires_grad:
            raise ConfigError(
                "no backward pass is possible: the loss depends on no trainable parameter; look for no_grad, detach or "
                "frozen weights"
            )
        return loss

    def _cure(self) -> str:
        if self.fake is None:
            return "make module(*inputs) and the loss work on their own"
        return "make module(*inputs) and the loss work on their own; if they do, use --execution real"

    def _backward(self, loss: torch.Tensor) -> None:
        try:
            loss.backward()
        except Exception as error:
            raise ConfigError(
                f"the backward pass fails ({_one_line(error)}); make loss.backward() work on its own"
                + ("; if it does, use --execution real" if self.fake is not None else "")
            ) from error

    # Results -------------------------------------------------------------------------------------------------------

    def _tables(self) -> tuple[Table, ...]:
        """Finds the embedding tables by running the forward pass once."""
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        recorder = TableUses({id(parameter): parameter for parameter in self.parameters.values()})
        with self._on_tensors(), recorder:
            self._forward()
        tables = []
        policy = self.settings.sparse
        for key, use in recorder.uses.items():
            if not use.indices:
                continue
            parameter = self.parameters[names[key]]
            is_sparse = not use.is_dense_too and (policy == "all" or (policy == "declared" and use.is_sparse))
            rows, is_counted = touched_rows(len(parameter), use.indices, self.real_inputs)
            row_bytes = parameter[:1].numel() * parameter.element_size()
            touched = rows if is_sparse else len(parameter)
            tables.append(Table(names[key], len(parameter), touched, is_sparse, is_counted, row_bytes))
        return tuple(tables)

    def _summary(
        self,
        tables: tuple[Table, ...],
        trained: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        flops: dict[str, int],
    ) -> StepProfile:
        by_phase, by_kind, by_operator = dict.fromkeys(PHASES, 0), dict.fromkeys(KINDS, 0), dict[str, int]()
        for (phase, operator), moved in self.memory.moved.items():
            by_phase[phase] += moved
            by_kind["optimiser" if phase == "optimizer" else kind_of(operator)] += moved
            if moved:
                by_operator[operator] = by_operator.get(operator, 0) + moved
        calls: dict[str, int] = {}
        for (_, operator), count in self.memory.compute_bound_calls.items():
            calls[operator] = calls.get(operator, 0) + count
        embedding_names = {table.name for table in tables}
        sparse_names = {table.name for table in tables if table.is_sparse}
        weights, slots = [0, 0], [0, 0]
        for name, parameter in self.parameters.items():
            is_embedding = name in embedding_names
            weights[is_embedding] += parameter.numel() * parameter.element_size()
            slots[is_embedding] += _slot_bytes(optimizer, trained[name]) * parameter.numel()
        return StepProfile(
            samples=self.samples,
            flops=flops,
            memory_bytes=by_phase,
            memory_bytes_by_kind=by_kind,
            memory_bytes_by_operator=by_operator,
            compute_bound_calls=calls,
            input_bytes=sum(t.numel() * t.element_size() for t in _all_tensors((self.inputs, self.target))),
            num_parameters=sum(parameter.numel() for parameter in self.parameters.values()),
            num_frozen=sum(p.numel() for p in self.module.parameters() if not p.requires_grad),
            dense_weight_bytes=weights[0],
            embedding_weight_bytes=weights[1],
            dense_slot_bytes=slots[0],
            embedding_slot_bytes=slots[1],
            dense_gradient_bytes=sum(
                p.numel() * p.element_size() for name, p in self.parameters.items() if name not in sparse_names
            ),
            row_gradient_bytes=sum(table.touched_rows * table.row_bytes for table in tables if table.is_sparse),
            tables=tables,
            settings=self.settings,
        )


def _slot_bytes(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> int:
    """Bytes of optimiser state per element of a parameter; scalars like step counters are left out."""
    state = optimizer.state.get(parameter, {})
    return sum(v.element_size() for v in state.values() if isinstance(v, torch.Tensor) and v.shape == parameter.shape)


def _one_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


class _WithoutAttentionDropout(torch.overrides.TorchFunctionMode):
    """Leaves dropout inside attention out, which fused kernels of a CPU lack."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.nn.functional.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            elif "dropout_p" in kwargs:
                kwargs["dropout_p"] = 0.0
        return function(*args, **kwargs)
