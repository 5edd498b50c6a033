from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger

from agents.callbacks import Checkpoints, ProgressBar, RolloutStatistics, Validation
from agents.checkpoint import load_network, read_info
from agents.learner import fine_tune
from agents.validation import Validator
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from tests.agents.learners import picking_learner
from tests.agents.picking_env import PickingEnv


class Memory(KVWriter):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        self.rows.append((step, dict(key_values)))

    def close(self) -> None:
        pass


class CountRight:
    """Validation by the share of wrong actions; remembers who was asked."""

    def __init__(self, values: list[float] | None = None) -> None:
        self.calls = 0
        self._values = values

    def __call__(self, scheduler: Any) -> dict[str, float]:
        self.calls += 1
        if self._values is not None:
            return {"avg_jct": self._values[self.calls - 1]}
        env = PickingEnv(64)
        obs, _ = env.reset(seed=1)
        actions = scheduler.act(obs, env.action_masks(), env)
        return {"avg_jct": float((actions != env.answer).mean()), "other": 2.0}


class SendInterrupt(BaseCallback):
    """What Ctrl-C does, in the middle of the given rollouts."""

    def __init__(self, *rollouts: int) -> None:
        super().__init__()
        self._rollouts = list(rollouts)

    def _on_step(self) -> bool:
        done, within = divmod(self.num_timesteps, 128)
        if within == 64 and done in self._rollouts:
            self._rollouts.remove(done)
            os.kill(os.getpid(), signal.SIGINT)
        return True


def test_scalars() -> None:
    model = picking_learner()
    memory = Memory()
    model.set_logger(Logger(None, [memory]))
    fine_tune(model, 4 * 128, [RolloutStatistics(), Validation(CountRight(), every=2)])
    steps = [step for step, _ in memory.rows]
    assert steps == [0, 128, 256, 256, 384, 512, 512]
    rows = [row for _, row in memory.rows]
    rollout = {"rollout/void_share", "rollout/decisions_per_interval", "rollout/ep_rew_mean", "rollout/avg_jct_s"}
    assert rollout <= set(rows[5])
    assert rows[0]["eval/other"] == 2.0 and "train/loss" not in rows[0]
    train = {"train/loss", "train/entropy_loss", "train/approx_kl", "train/entropy_coef", "train/value_std"}
    assert train <= set(rows[5]) and train <= set(rows[6])
    # A validation stands at the decision count of the network it is about.
    assert ["eval/avg_jct" in row for row in rows] == [True, False, False, True, False, False, True]


def test_validation_keeps_the_best_network(tmp_path: Path) -> None:
    model = picking_learner()
    evaluate = CountRight([3.0, 2.0, 5.0, 4.0])
    kept: list[torch.Tensor] = []

    def evaluate_and_copy(scheduler: Any) -> dict[str, float]:
        kept.append(torch.cat([p.detach().flatten().clone() for p in scheduler.network.parameters()]))
        return evaluate(scheduler)

    validation = Validation(evaluate_and_copy, every=1, best=tmp_path / "best")
    fine_tune(model, 3 * 128, [validation])
    assert [value["avg_jct"] for _, value in validation.history] == [3.0, 2.0, 5.0, 4.0]
    assert [decisions for decisions, _ in validation.history] == [0, 128, 256, 384]
    assert validation.best_value == 2.0
    net, info = load_network(tmp_path / "best")
    assert info.metrics == {"avg_jct": 2.0, "num_decisions": 128.0}
    assert torch.equal(torch.cat([p.flatten() for p in net.parameters()]), kept[1])


def test_validation_does_not_change_the_training() -> None:
    models = [picking_learner(seed=3) for _ in range(2)]
    fine_tune(models[0], 3 * 128)
    fine_tune(models[1], 3 * 128, [Validation(CountRight(), every=1), RolloutStatistics()])
    for a, b in zip(models[0].policy.parameters(), models[1].policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_checkpoints_are_written_in_time_and_at_the_end(tmp_path: Path) -> None:
    model = picking_learner()
    seen: list[int] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            seen.append(read_info(tmp_path / "last").num_updates)
            return True

    fine_tune(model, 5 * 128, [Checkpoints(tmp_path / "last", every=2), Look()])
    assert seen == [0] * 32 + [2] * 32 + [4] * 16
    assert read_info(tmp_path / "last").num_updates == 5


def test_ctrl_c_finishes_the_update_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    model, reference = picking_learner(), picking_learner()
    validation = Validation(CountRight(), every=1)
    handler = signal.getsignal(signal.SIGINT)
    is_done = fine_tune(model, 10 * 128, [SendInterrupt(2), validation, Checkpoints(tmp_path / "last", every=100)])
    assert not is_done and signal.getsignal(signal.SIGINT) is handler
    assert read_info(tmp_path / "last").num_updates == 3
    assert [decisions for decisions, _ in validation.history] == [0, 128, 256]
    fine_tune(reference, 10 * 128, [SendInterrupt(2)])
    net, _ = load_network(tmp_path / "last")
    for a, b in zip(net.parameters(), reference.policy.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    model = picking_learner()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(model, 10 * 128, [SendInterrupt(1), Twice(), Checkpoints(tmp_path / "last", every=1)])
    assert signal.getsignal(signal.SIGINT) is handler
    assert read_info(tmp_path / "last").num_updates == 1


class Twice(BaseCallback):
    """A second Ctrl-C right after the first."""

    model: Any

    def _on_step(self) -> bool:
        if self.model.stop_requested:
            os.kill(os.getpid(), signal.SIGINT)
        return True


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    model = picking_learner()
    bar = ProgressBar(2 * 128, "learning")
    fine_tune(model, 2 * 128, [bar, Validation(CountRight([3.5, 2.5]), every=2, bar=bar)])
    shown = capsys.readouterr().err
    assert "learning" in shown and "256/256" in shown and "avg_jct=3.500" in shown
    bar.close()


def test_validator_runs_the_evaluation() -> None:
    scenario = get_scenario("toy-v1")
    figures = Validator(scenario.config, scenario.workloads("validation", 4))(get_scheduler("drf"))
    assert set(figures) == {"avg_jct", "p99_jct", "gpu_utilisation", "cpu_utilisation", "unfinished", "share_full"}
    assert figures["avg_jct"] > 0 and figures["unfinished"] == 0 and 0 < figures["gpu_utilisation"] <= 1
