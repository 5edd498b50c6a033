"""What a user hands over: a module, an example batch and a loss; and where it is found."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from dl2env.errors import ConfigError

DEFAULT_FACTORY = "training_step"
"""Function that is called when a .py file is named without one."""


@dataclass(frozen=True)
class TrainingStep:
    """One training step of a model.

    Attributes:
        module: The model. It is copied, never changed. Made within `with torch.device("meta")`, it takes no memory.
        inputs: Example batch: one tensor, a tuple of positional arguments or a dictionary of keyword arguments.
        loss: `loss(output)`, or `loss(output, target)` if there is a target; None: `default_loss`.
        target: Labels. They count as input data, so give them here rather than inside `loss`.
        samples: Samples in the batch, where its first dimension does not tell (tokens, for example).
    """

    module: torch.nn.Module
    inputs: Any
    loss: Callable[..., torch.Tensor] | None = None
    target: Any = None
    samples: float | None = None


def default_loss(output: Any, target: Any = None) -> torch.Tensor:
    """Loss of a step that names none.

    Without a target the output itself, a single number. With labels of an integer type, cross-entropy over the last
    dimension of the output; with a target of the output's shape, mean squared error.

    Raises:
        ConfigError: None of these fits.
    """
    if not isinstance(output, torch.Tensor):
        raise ConfigError(f"the module returns {type(output).__name__}, no tensor; give a loss function that takes it")
    if target is None:
        if output.numel() != 1:
            raise ConfigError(
                f"the module returns shape {tuple(output.shape)}, no single loss; give a loss function or a target"
            )
        return output.reshape(())
    if isinstance(target, torch.Tensor) and not target.is_floating_point() and output.shape[:-1] == target.shape:
        if output.shape[-1] == 1:
            raise ConfigError(
                f"output {tuple(output.shape)} has one class only, which cross-entropy cannot tell from others; give a "
                "function loss(output, target), such as binary cross-entropy"
            )
        return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
    if isinstance(target, torch.Tensor) and target.is_floating_point() and output.shape == target.shape:
        return F.mse_loss(output, target)
    shape = tuple(target.shape) if isinstance(target, torch.Tensor) else type(target).__name__
    raise ConfigError(
        f"no loss is known for output {tuple(output.shape)} and target {shape}; give a function loss(output, target)"
    )


def load_training_step(path: str, batch_size: int | None = None) -> TrainingStep:
    """Calls a user's factory.

    Args:
        path: `package.module:factory`, or `file.py:factory`, or `file.py` with a function `training_step`. The factory
            returns a `TrainingStep` or a tuple (module, inputs), (module, inputs, loss or target) or
            (module, inputs, loss, target).
        batch_size: Passed to the factory's parameter of that name.

    Raises:
        ConfigError: Nothing can be imported there, or the factory fails or returns something else.
    """
    with _user_folders(path):
        factory = _factory(path)
        arguments = {}
        if batch_size is not None:
            try:
                has_parameter = "batch_size" in inspect.signature(factory).parameters
            except (TypeError, ValueError):
                has_parameter = False
            if not has_parameter:
                raise ConfigError(
                    f"{path}: the factory has no parameter batch_size; give it one, or leave --batch-size out"
                )
            arguments["batch_size"] = batch_size
        try:
            made = factory(**arguments)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            raise ConfigError(f"{path}: the factory fails ({_short(error)}); call it by hand to mend it") from error
    return _as_step(path, made)


def _as_step(path: str, made: Any) -> TrainingStep:
    if isinstance(made, TrainingStep):
        step = made
    elif isinstance(made, tuple) and 2 <= len(made) <= 4:
        module, inputs, *rest = made
        has_loss = bool(rest) and callable(rest[0])
        loss = rest[0] if has_loss else None
        target = rest[-1] if len(rest) == 2 or (rest and not has_loss) else None
        if len(rest) == 2 and not has_loss and rest[0] is not None:
            raise ConfigError(f"{path}: the third of four values must be a loss function, not {_kind(rest[0])}")
        step = TrainingStep(module, inputs, loss, target)
    else:
        raise ConfigError(
            f"{path}: the factory returns {_kind(made)}; return (module, inputs, loss function or target) or a "
            "TrainingStep"
        )
    if not isinstance(step.module, torch.nn.Module):
        raise ConfigError(f"{path}: the factory's first value is {_kind(step.module)}; it must be a torch.nn.Module")
    return step


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _short(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _user_folders(path: str) -> Iterator[None]:
    """Lets user code import what lies in the working directory, or beside its file, as running it would."""
    file, _ = _file_and_name(path)
    folder = str(Path.cwd() if file is None else file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _file_and_name(path: str) -> tuple[Path | None, str]:
    """File and function of `file.py` or `file.py:factory`; None and the function of an import path."""
    if path.endswith(".py"):
        return Path(path), DEFAULT_FACTORY
    place, _, name = path.rpartition(":") if ":" in path else (path, "", "")
    return (Path(place) if place.endswith(".py") else None), name


def _factory(path: str) -> Callable[..., Any]:
    file, name = _file_and_name(path)
    if file is not None:
        module = _module_of_file(path, file)
    else:
        module_name = path.rpartition(":")[0]
        if not all(part.isidentifier() for part in (*module_name.split("."), name)):
            raise ConfigError(f"{path}: no import path; write package.module:factory or file.py:factory")
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:  # whatever the user's code raises, or a command line it reads
            raise ConfigError(
                f"{path}: cannot be imported ({_short(error)}); write package.module:factory, importable from the "
                "working directory"
            ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"]
        raise ConfigError(
            f"{path}: no function {name!r} there; "
            + (f"it has: {', '.join(functions)}" if functions else f"define one, for example {DEFAULT_FACTORY}()")
        )
    made: Callable[..., Any] = factory
    return made


def _module_of_file(path: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise ConfigError(f"{path}: no such file; give the path of a .py file")
    name = f"_profiled_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise ConfigError(f"{path}: cannot be run ({_short(error)}); mend the file") from error
    return module
