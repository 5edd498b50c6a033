"""Callbacks of the fine-tuning: TensorBoard scalars, progress bar, validation, checkpoints.

They act at the start of a rollout, which is the border between two updates: the only moment at which a checkpoint can
be resumed exactly. SB3 writes the scalars `train/*` of an update with the next rollout's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from agents.checkpoint import save_network, save_training
from agents.scheduler import NetworkScheduler
from agents.vec_env import SB3VecEnv
from dl2env.config import EnvConfig

if TYPE_CHECKING:
    from agents.learner import Learner
    from dl2env.schedulers.base import Scheduler


class _Callback(BaseCallback):
    model: Learner  # type: ignore[assignment]

    def _on_step(self) -> bool:
        return True


class RolloutStatistics(_Callback):
    """Logs `rollout/avg_jct_s`, `rollout/void_share`, `rollout/decisions_per_interval`, reward terms and the like."""

    def _on_rollout_end(self) -> None:
        env = self.model.env
        if isinstance(env, SB3VecEnv):
            for name, value in env.pop_statistics().items():
                self.logger.record_mean(f"rollout/{name}", value)  # a learner may log several rollouts at once
        jct_s = [info["mean_jct_s"] for info in self.model.ep_info_buffer or () if "mean_jct_s" in info]
        if jct_s and not np.isnan(jct_s).all():
            self.logger.record("rollout/avg_jct_s", float(np.nanmean(jct_s)))
        self.logger.record("rollout/num_updates", self.model.updates_done)


class ProgressBar(_Callback):
    """A tqdm bar over decisions, with the mean return and, once there is one, the validation JCT."""

    def __init__(self, total_decisions: int, description: str = "ppo", disable: bool = False) -> None:
        super().__init__()
        self._total = total_decisions
        self._description = description
        self._disable = disable
        self._bar: Any = None
        self.shown: dict[str, str] = {}

    def _on_training_start(self) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=self._total,
            initial=self.model.num_timesteps,
            desc=self._description,
            unit="decision",
            unit_scale=True,
            disable=self._disable,
            dynamic_ncols=True,
        )

    def _on_rollout_end(self) -> None:
        episodes = self.model.ep_info_buffer
        if episodes:
            self.shown["return"] = f"{np.mean([info['r'] for info in episodes]):.2f}"
        self._bar.set_postfix(self.shown, refresh=False)
        self._bar.update(self.model.num_timesteps - self._bar.n)

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the bar; again does nothing."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Validation(_Callback):
    """Every few updates, runs the policy on validation workloads, logs `eval/*` and keeps the best network.

    Args:
        evaluate: Figures of a scheduler, for example a `agents.validation.Validator`.
        every: Updates between validations; there is one more at the end.
        best: Checkpoint folder of the network with the lowest `metric`; None keeps none.
        metric: Key of `evaluate`'s result, lower is better.
        deterministic: Validate the most probable action instead of sampling.
        seed: Seeds the sampling, the same way each time.
        env_config: Stored with the checkpoint.
        bar: Progress bar that shows the metric.
    """

    def __init__(
        self,
        evaluate: Callable[[Scheduler], Mapping[str, float]],
        every: int = 20,
        best: Path | None = None,
        metric: str = "avg_jct",
        deterministic: bool = False,
        seed: int = 0,
        env_config: EnvConfig | None = None,
        bar: ProgressBar | None = None,
    ) -> None:
        super().__init__()
        self._evaluate = evaluate
        self._every = max(1, every)
        self._folder = best
        self._metric = metric
        self._deterministic = deterministic
        self._seed = seed
        self._env_config = env_config
        self._bar = bar
        self._last_update = -1
        self.best_value = float("inf")
        self.history: list[tuple[int, dict[str, float]]] = []
        """(decisions, figures) of each validation of this run."""

    def _on_rollout_start(self) -> None:
        if self.model.updates_done % self._every == 0 and not self.model.stop_requested:
            self._validate()

    def _on_training_end(self) -> None:
        if not self.model.stop_requested:
            self._validate()

    def _validate(self) -> None:
        if self.model.updates_done == self._last_update:
            return
        self._last_update = self.model.updates_done
        network = self.model.policy.network
        self.model.policy.set_training_mode(False)
        figures = dict(self._evaluate(NetworkScheduler(network, self._deterministic, self._seed, self.model.algorithm)))
        for name, value in figures.items():
            self.logger.record(f"eval/{name}", value)
        # SB3 writes scalars after the next rollout only, which would show them one update late.
        self.logger.dump(self.model.num_timesteps)
        self.history.append((self.model.num_timesteps, figures))
        value = figures[self._metric]
        if self._bar is not None:
            self._bar.shown[self._metric] = f"{value:.3f}"
        if value < self.best_value:
            self.best_value = value
            if self._folder is not None:
                metrics = {**figures, "num_decisions": float(self.model.num_timesteps)}
                seed = int(self.model.seed or 0)
                save_network(self._folder, network, env_config=self._env_config, seed=seed, metrics=metrics)


class Checkpoints(_Callback):
    """Keeps a checkpoint to resume from: every few updates, when a stop is requested, and at the end.

    Args:
        folder: Checkpoint folder, overwritten each time.
        every: Updates between checkpoints.
        env_config: Stored with it.
    """

    def __init__(self, folder: Path, every: int = 10, env_config: EnvConfig | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._every = max(1, every)
        self._env_config = env_config
        self._last_update = -1

    def _on_rollout_start(self) -> None:
        if self.model.updates_done % self._every == 0 or self.model.stop_requested:
            self._save()

    def _on_training_end(self) -> None:
        if self.model.is_between_updates:
            self._save()

    def _save(self) -> None:
        if self.model.updates_done != self._last_update:
            self._last_update = self.model.updates_done
            save_training(self._folder, self.model, env_config=self._env_config)
