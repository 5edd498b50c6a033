"""Modules, losses and batches that cannot be counted: one clear error, and nothing of the user's changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from agents.profiling.results import StepSettings
from agents.profiling.step import profile_step
from agents.profiling.training_step import TrainingStep, load_training_step
from dl2env.errors import ConfigError
from scripts import profile_model


class Scale(nn.Module):
    """Calls something on its input before a linear layer."""

    def __init__(self, first: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.first = first
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Linear layer after the call."""
        self.first(x)
        return self.linear(x)


class WeightedLoss(nn.Module):
    """A loss with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, output: torch.Tensor) -> torch.Tensor:
        """Weighted mean."""
        return (output * self.weight).mean()


@pytest.mark.parametrize("execution", ["fake", "real"])
def test_a_module_that_changes_its_input_leaves_the_users_batch_alone(execution: Any) -> None:
    batch = torch.ones(4, 8)
    step = TrainingStep(Scale(lambda x: x.mul_(2)), batch, None, torch.zeros(4, 8))
    profile_step(step, StepSettings(execution=execution))
    assert (batch == 1).all()


def test_a_loss_with_weights_is_refused_and_gets_no_gradient() -> None:
    loss = WeightedLoss()
    with pytest.raises(ConfigError, match="loss has trainable parameters.*part of the module"):
        profile_step(TrainingStep(nn.Linear(8, 8), torch.ones(4, 8), loss))
    assert loss.weight.grad is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
def test_scripted_modules() -> None:
    with pytest.raises(ConfigError, match=r"TorchScript.*as it was before torch\.jit\.script"):
        profile_step(TrainingStep(torch.jit.script(nn.Linear(8, 8)), torch.ones(4, 8), torch.sum))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("row", [-1, 10])
def test_look_ups_beyond_the_table(sparse: bool, row: int) -> None:
    step = TrainingStep(nn.Embedding(10, 4, sparse=sparse), torch.tensor([[0, row], [1, 2]]), torch.sum)
    with pytest.raises(ConfigError, match="looks up rows .* of an embedding table of 10 rows"):
        profile_step(step)


def test_cross_entropy_over_one_class() -> None:
    with pytest.raises(ConfigError, match="one class only.*binary cross-entropy"):
        profile_step(TrainingStep(nn.Linear(8, 1), torch.ones(4, 8), None, torch.zeros(4, dtype=torch.int64)))


def test_code_that_exits(tmp_path: Path) -> None:
    exits = TrainingStep(Scale(lambda x: exit(3)), torch.ones(4, 8), torch.sum)
    with pytest.raises(ConfigError, match=r"does not run on the batch \(SystemExit: 3\)"):
        profile_step(exits)
    file = tmp_path / "reads_arguments.py"
    file.write_text("import sys\nsys.exit('usage: --data FOLDER')\n")
    with pytest.raises(ConfigError, match=r"cannot be run \(SystemExit: usage: --data FOLDER\)"):
        load_training_step(str(file))
    file.write_text("import sys\ndef training_step():\n    sys.exit(4)\n")
    with pytest.raises(ConfigError, match=r"the factory fails \(SystemExit: 4\)"):
        load_training_step(str(file))


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        profile_model.main(["mine.py", "--samples-per-epoch", "many"])
    message = capsys.readouterr().err
    assert exit_info.value.code == 2
    assert message.startswith("error: argument --samples-per-epoch") and message.count("\n") == 1


WHOLE_NUMBERS = {
    "linear": (nn.Linear(8, 8), (4, 8)),
    "linear without bias": (nn.Linear(8, 8, bias=False), (4, 8)),
    "convolution": (nn.Conv1d(8, 8, 3), (4, 8, 8)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16), (3, 4, 8)),
    "LSTM cell": (nn.LSTMCell(8, 8), (4, 8)),
    "activation": (nn.Sequential(nn.GELU(), nn.Linear(8, 8)), (4, 8)),
    "softmax": (nn.Sequential(nn.Softmax(-1), nn.Linear(8, 8)), (4, 8)),
    "normalisation": (nn.LayerNorm(8), (4, 8)),
}


@pytest.mark.parametrize("execution", ["fake", "real"])
@pytest.mark.parametrize("what", WHOLE_NUMBERS)
def test_whole_numbers_do_not_go_into_floating_point_layers(what: str, execution: Any) -> None:
    module, shape = WHOLE_NUMBERS[what]
    batch = torch.ones(shape, dtype=torch.long)
    with pytest.raises(ConfigError, match="the module does not run on the batch"):
        profile_step(TrainingStep(module, batch), StepSettings(execution=execution))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("execution", ["fake", "real"])
def test_nor_into_recurrent_ones(layer: Any, execution: Any) -> None:
    step = TrainingStep(layer(8, 8), torch.ones(3, 4, 8, dtype=torch.long), lambda output: output[0].sum())
    with pytest.raises(ConfigError, match="the module does not run on the batch"):
        profile_step(step, StepSettings(execution=execution))


@pytest.mark.parametrize("execution", ["fake", "real"])
def test_whole_numbers_that_become_others_are_fine(execution: Any) -> None:
    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.linear = nn.Embedding(9, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.embedding(x) + x[..., None] * 0.5).softmax(-1)

    step = TrainingStep(Casts(), torch.ones(4, dtype=torch.long), lambda output: output.mean())
    assert profile_step(step, StepSettings(execution=execution)).flops["forward"] == 2 * 4 * 8 * 8
