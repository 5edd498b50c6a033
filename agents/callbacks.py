"""Callbacks of the fine-tuning: TensorBoard scalars, progress bar, validation, checkpoints.

They act at the start of a rollout, which is the border between two updates: the only moment at which a checkpoint can
be resumed exactly. SB3 writes the scalars `train/*` of an update with the next rollout's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from agents.checkpoint import save_network, save_training
from agents.progress import Watch
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


class BoundaryCallback(_Callback):
    """Does something at every n-th border between updates and at the end, early or not, once per border.

    Args:
        every: Updates between two times.
    """

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = max(1, every)
        self._last_update = -1

    def at_boundary(self) -> None:
        """What is done."""
        raise NotImplementedError

    def _on_rollout_start(self) -> None:
        is_due = self.model.updates_done % self._every == 0 or self.model.ended_early
        if is_due and not self.model.stop_requested:
            self._once()

    def _on_training_end(self) -> None:
        if not (self.model.stop_requested or self.model.ended_early):
            self._once()

    def _once(self) -> None:
        if self.model.updates_done != self._last_update:
            self._last_update = self.model.updates_done
            self.at_boundary()


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
    """A tqdm bar over decisions, with the mean return and, once there is one, the validation JCT.

    Args:
        total_decisions: Decisions of the whole training.
        description: What the bar is called.
        disable: Show nothing.
        num_updates: The training ends after that many updates, if that comes first.
        watch: Is told of the progress too.
    """

    def __init__(
        self,
        total_decisions: int,
        description: str = "ppo",
        disable: bool = False,
        num_updates: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__()
        self._total = total_decisions
        self._description = description
        self._disable = disable
        self._num_updates = num_updates
        self._watch = watch
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
        done, total = self.model.num_timesteps, self._expected_total()
        self._bar.total = total
        self._bar.set_postfix(self.shown, refresh=False)
        self._bar.update(done - self._bar.n)
        if self._watch is not None:
            self._watch(self._description, min(done, total), total)

    def _expected_total(self) -> int:
        """Decisions at the end, if updates go on to take as many as so far."""
        updates = self.model.updates_done
        if self._num_updates is None or updates == 0:
            return self._total
        return min(self._total, round(self.model.num_timesteps * self._num_updates / updates))

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the bar; again does nothing."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class UpdateLimit(_Callback):
    """Ends the training after a number of updates; must come before `Validation` and `Checkpoints`."""

    def __init__(self, num_updates: int) -> None:
        super().__init__()
        self._num_updates = num_updates

    def _on_rollout_start(self) -> None:
        if self.model.updates_done >= self._num_updates:
            self.model.ended_early = True


class Validation(BoundaryCallback):
    """Every few updates, runs the policy on validation workloads, logs `eval/*` and keeps the best network.

    With `patience` the training ends once that many validations in a row have brought no better network. A resumed
    training ends where one that was not stopped ends, provided that it is told of the earlier validations (`restore`).

    Args:
        evaluate: Figures of a scheduler, for example a `agents.validation.Validator`.
        every: Updates between validations; there is one more at the end.
        best: Checkpoint folder of the network with the lowest `metric`; None keeps none.
        metric: Key of `evaluate`'s result, lower is better.
        deterministic: Validate the most probable action instead of sampling.
        seed: Seeds the sampling, the same way each time.
        env_config: Stored with the checkpoint.
        bar: Progress bar that shows the metric.
        patience: See above; None: train to the end.
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
        patience: int | None = None,
    ) -> None:
        super().__init__(every)
        self._evaluate = evaluate
        self._folder = best
        self._metric = metric
        self._deterministic = deterministic
        self._seed = seed
        self._env_config = env_config
        self._bar = bar
        self._patience = patience
        self.num_worse = 0
        """Validations in a row, up to now, that were not the best so far."""
        self.best_value = float("inf")
        """Lowest metric so far."""
        self.history: list[tuple[int, dict[str, float]]] = []
        """(decisions, figures) of each validation of this run."""

    def restore(self, history: Sequence[Mapping[str, float]]) -> None:
        """Takes note of the validations, in order, before the checkpoint that the training is resumed from."""
        for figures in history:
            self._compare(figures[self._metric])

    def _compare(self, value: float) -> bool:
        """Whether a value is the best so far."""
        is_better = value < self.best_value
        self.best_value = min(value, self.best_value)
        self.num_worse = 0 if is_better else self.num_worse + 1
        return is_better

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        if self._patience is not None and self.num_worse >= self._patience:
            self.model.ended_early = True

    def at_boundary(self) -> None:
        """Validates."""
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
        if self._compare(value) and self._folder is not None:
            metrics = {**figures, "num_decisions": float(self.model.num_timesteps)}
            seed = int(self.model.seed or 0)
            save_network(self._folder, network, env_config=self._env_config, seed=seed, metrics=metrics)


class Checkpoints(_Callback):
    """Keeps a checkpoint to resume from: every few updates, when a stop is requested, and at the end, early or not.

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
        if self.model.updates_done % self._every == 0 or self.model.stop_requested or self.model.ended_early:
            self._save()

    def _on_training_end(self) -> None:
        # An early end has been saved at its border; SB3 makes one step more, which nothing is learned from.
        if self.model.is_between_updates and not self.model.ended_early:
            self._save()

    def _save(self) -> None:
        if self.model.updates_done != self._last_update:
            self._last_update = self.model.updates_done
            save_training(self._folder, self.model, env_config=self._env_config)
