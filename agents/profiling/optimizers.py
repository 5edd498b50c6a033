"""Optimisers that a training step can be counted with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dl2env.errors import UnknownNameError

OptimizerFactory = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

# One operator after the other, as in the passes below; values of the settings change no count.
_UNFUSED: dict[str, Any] = {"lr": 1e-3, "foreach": False, "fused": False}

OPTIMIZERS: dict[str, OptimizerFactory] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, **_UNFUSED),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, **_UNFUSED),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, **_UNFUSED),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, foreach=False),
    "adam": lambda parameters: torch.optim.Adam(parameters, **_UNFUSED),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, **_UNFUSED),
    "sgd-momentum-fused": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True),
    "adam-fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
}
"""Names and constructors. `-fused`: one kernel per step that reads and writes each weight, gradient and slot once."""


def get_optimizer(name: str) -> OptimizerFactory:
    """Constructor of an optimiser.

    Raises:
        UnknownNameError: There is none of that name.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, list(OPTIMIZERS))
    return OPTIMIZERS[name]
