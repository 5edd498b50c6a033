"""`scripts/profile_model.py`: a user's file outside the repository becomes a job type that a scenario runs on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dl2env.config import EnvConfig, JobSizeConfig, WorkloadConfig
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers import get_scheduler
from dl2env.workload.generator import build_workload_source
from dl2env.workload.job_types import load_job_types
from scripts import profile_model

ROOT = Path(__file__).resolve().parents[2]

USER_FILE = """
import helper
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, broken=False):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.linear = nn.Linear(9 if broken else 8, 3)

    def forward(self, tokens):
        return self.linear(self.table(tokens).mean(1))


def training_step(batch_size=4):
    return Two(), torch.arange(batch_size * 2).reshape(batch_size, 2), torch.zeros(batch_size, dtype=torch.int64)


def with_loss():
    return Two(), {"tokens": torch.zeros(4, 2, dtype=torch.int64)}, lambda output: output.square().mean()


def broken():
    return Two(broken=True), torch.zeros(4, 2, dtype=torch.int64), helper.loss


def looks_at_values():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x) if x.sum() > 0 else self.linear(-x)

    return Branch(), torch.ones(4, 2), helper.loss


def nothing_to_train():
    return nn.ReLU(), torch.ones(4, 2), helper.loss


def cut_off():
    return nn.Sequential(nn.Linear(2, 2), Cut()), torch.ones(4, 2), helper.loss


class Cut(nn.Module):
    def forward(self, x):
        return x.detach()


def no_gradient():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("rounding has no gradient")

    class Rounded(nn.Linear):
        def forward(self, x):
            return Round.apply(super().forward(x))

    return Rounded(2, 2), torch.ones(4, 2), helper.loss


def many_losses():
    return nn.Linear(2, 2), torch.ones(4, 2), lambda y: y


def no_loss():
    return nn.Linear(2, 2), torch.ones(4, 2)


def unclear():
    return nn.Bilinear(2, 2, 2), (torch.ones(4, 2), torch.ones(4, 2), ), helper.loss, torch.ones(3)


def lazy():
    return nn.LazyLinear(2), torch.ones(4, 2), helper.loss


def locked():
    import threading

    module = nn.Linear(2, 2)
    module.lock = threading.Lock()
    return module, torch.ones(4, 2), helper.loss


def returns_a_module():
    return nn.Linear(2, 2)


def returns_no_module():
    return helper, torch.ones(4, 2)


def four_without_loss():
    return nn.Linear(2, 2), torch.ones(4, 2), 3, torch.ones(4, 2)


def fails():
    raise OSError("weights not found")


def odd_target():
    return nn.Linear(2, 2), torch.ones(4, 2), torch.ones(4, 7)


def no_function_loss():
    return nn.Linear(2, 2), torch.ones(4, 2), lambda y: undefined


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside the repository, with a space in its name, that holds the user's files."""
    made = tmp_path / "my models"
    made.mkdir()
    (made / "mine.py").write_text(USER_FILE, encoding="utf-8")
    (made / "helper.py").write_text("def loss(y, *_):\n    return y.sum()\n", encoding="utf-8")
    (made / "syntax.py").write_text("def f(:\n", encoding="utf-8")
    monkeypatch.chdir(made)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    return made


def run(*arguments: str, name: str = "mine", output: str = "out.toml") -> int:
    given = list(arguments)
    defaults = {"--name": name, "--output": output, "--samples-per-epoch": "1000"}
    for key, value in defaults.items():
        if key not in given:
            given += [key, value]
    return profile_model.main(given)


def test_users_file_becomes_a_job_type_and_a_scenario_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mine.py", "--architecture", "ps_worker", "--batch-size", "16", "--samples-source", "our logs") == 0
    printed = capsys.readouterr().out
    assert "427 trainable parameters" in printed and "wrote out.toml" in printed
    assert run("mine.py:with_loss", "--append", "--optimizer", "adam", name="other") == 0
    one, other = load_job_types(folder / "out.toml")
    assert (one.name, one.batch_size, one.architecture, one.sources["samples_per_epoch"]) == (
        "mine",
        16,
        "ps_worker",
        "our logs",
    )
    assert one.flops == 2 * 16 * 8 * 3 * 3
    assert one.weight_traffic_bytes == 2 * 427 * 4
    assert (other.dense_weight_bytes, other.embedding_weight_bytes) == (27 * 4, 400 * 4)
    assert other.weight_traffic_bytes == 3.5 * 427 * 4
    config = EnvConfig(
        workload=WorkloadConfig(job_types=str(folder / "out.toml"), num_jobs=6, sizes=JobSizeConfig(mean_s=2000.0))
    )
    result = run_scheduler(get_scheduler("drf"), config, [build_workload_source(config)(0, 0, 0)])
    assert np.isfinite(result.records[0].finish_s).all()


def test_same_command_writes_the_same_file(folder: Path) -> None:
    assert run("mine.py") == 0
    first = (folder / "out.toml").read_bytes()
    assert run("mine.py", "--overwrite") == 0
    assert (folder / "out.toml").read_bytes() == first
    assert sorted(file.name for file in folder.glob("*.toml")) == ["out.toml"]


def test_factory_by_import_path_from_the_working_directory(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "nets.py").write_text(USER_FILE.replace("import helper", "helper = None"), encoding="utf-8")
    assert run("package.nets:training_step") == 0
    assert run("mine.py:training_step", output="same.toml") == 0
    (one,), (same,) = load_job_types(folder / "out.toml"), load_job_types(folder / "same.toml")
    assert one == same


def test_options_of_the_job_type(folder: Path) -> None:
    options = ["--worker-cpus", "3", "--worker-gpus", "2", "--ps-cpus", "4", "--ps-gpus", "1", "--max-workers", "5"]
    options += ["--global-batch", "--samples", "8", "--architecture", "ps_worker", "--precision", "bf16-true"]
    assert run("mine.py", *options) == 0
    (one,) = load_job_types(folder / "out.toml")
    assert (one.worker_cpus, one.worker_gpus, one.ps_cpus, one.ps_gpus, one.max_workers) == (3, 2, 4, 1, 5)
    assert (one.synchronous, one.batch_size, one.dense_weight_bytes) == (True, 8, 27 * 2)


def test_models_that_look_at_values_run_for_real(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mine.py:looks_at_values") == 2
    assert "--execution real" in capsys.readouterr().err
    assert run("mine.py:looks_at_values", "--execution", "real") == 0
    (one,) = load_job_types(folder / "out.toml")
    assert one.flops == 2 * 2 * 4 * 2 * 2


WRONG = {
    "mine.py:broken": "does not run on the batch",
    "mine.py:nothing_to_train": "no trainable parameter",
    "mine.py:cut_off": "no backward pass is possible",
    "mine.py:no_gradient": "rounding has no gradient",
    "mine.py:many_losses": "must be one number",
    "mine.py:no_loss": "give a loss function or a target",
    "mine.py:unclear": "say how many samples it holds (--samples)",
    "mine.py:lazy": "run it once",
    "mine.py:locked": "make copy.deepcopy work",
    "mine.py:returns_a_module": "return (module, inputs",
    "mine.py:returns_no_module": "must be a torch.nn.Module",
    "mine.py:four_without_loss": "must be a loss function",
    "mine.py:fails": "weights not found",
    "mine.py:odd_target": "give a function loss(output, target)",
    "mine.py:no_function_loss": "the loss does not run",
    "mine.py:absent": "it has: training_step, with_loss",
    "mine.py:number": "no function 'number'",
    "absent.py": "no such file",
    "syntax.py": "mend the file",
    "no_such_package.models:make": "cannot be imported",
    "mine": "no import path",
    "mine:": "no import path",
}


@pytest.mark.parametrize("model", WRONG)
def test_wrong_models_end_with_one_line(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert WRONG[model] in error
    assert not list(folder.glob("*.toml"))


WRONG_OPTIONS: dict[str, tuple[list[str], str]] = {
    "optimizer": (["--optimizer", "adamm"], "choose one of: adagrad, adam"),
    "precision": (["--precision", "fp8"], "choose one of: 16-mixed"),
    "architecture": (["--architecture", "ring"], "choose one of: ps_worker"),
    "sparse": (["--sparse", "some"], "choose one of: declared"),
    "attention": (["--attention", "flash"], "choose one of: unfused"),
    "execution": (["--execution", "gpu"], "choose one of: fake"),
    "replicas": (["--architecture", "pearl", "--replicas", "9"], "1 to 8"),
    "samples": (["--samples", "0"], "must be positive"),
    "samples per epoch": (["--samples-per-epoch", "-1"], "must be positive"),
    "cpus": (["--worker-cpus", "-1"], "must not be negative"),
    "nothing asked for": (["--worker-cpus", "0", "--worker-gpus", "0"], "asks for nothing"),
    "name": (["--name", ""], "non-empty"),
    "suffix": (["--output", "types.json"], "named <name>.toml"),
    "fit": (["--output", "x_fit.toml"], "not <name>_fit.toml"),
    "folder": (["--output", "absent/x.toml"], "no folder"),
    "shipped": (["--shipped"], "takes no MODEL"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_wrong_options_end_with_one_line(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, words = WRONG_OPTIONS[case]
    assert run("mine.py", *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert words in error


def test_batch_size_needs_a_parameter_of_the_factory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mine.py:with_loss", "--batch-size", "8") == 2
    assert "has no parameter batch_size" in capsys.readouterr().err


def test_files_are_kept_unless_told_otherwise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mine.py") == 0
    written = (folder / "out.toml").read_text(encoding="utf-8")
    assert run("mine.py") == 2
    assert "(--append)" in capsys.readouterr().err
    assert run("mine.py", "--append") == 2
    assert "appears twice" in capsys.readouterr().err
    (folder / "bad.toml").write_text("[[job_type]", encoding="utf-8")
    assert run("mine.py", "--append", output="bad.toml") == 2
    assert "bad.toml: not valid TOML" in capsys.readouterr().err
    assert (folder / "out.toml").read_text(encoding="utf-8") == written
    assert (folder / "bad.toml").read_text(encoding="utf-8") == "[[job_type]"
    assert sorted(file.name for file in folder.iterdir() if file.suffix == ".toml") == ["bad.toml", "out.toml"]


@pytest.mark.parametrize("missing", ["MODEL", "--name", "--samples-per-epoch", "--output"])
def test_missing_arguments_are_named(missing: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"MODEL": ["mine.py"], "--name": ["--name", "x"], "--output": ["--output", "x.toml"]}
    given["--samples-per-epoch"] = ["--samples-per-epoch", "5"]
    arguments = [word for key, words in given.items() if key != missing for word in words]
    assert profile_model.main(arguments) == 2
    assert f"{missing} is missing" in capsys.readouterr().err


def test_command_runs_from_anywhere(folder: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "scripts" / "profile_model.py"), "mine.py", "--name", "m"]
    command += ["--output", "m.toml", "--samples-per-epoch", "10"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("wrote m.toml\n")
