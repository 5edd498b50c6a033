"""Figures of a scheduler on validation workloads, while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dl2env.config import EnvConfig

if TYPE_CHECKING:
    from agents.learner import Learner
    from agents.run_folder import RunFolder
    from dl2env.schedulers.base import Scheduler
    from dl2env.workload.jobs import Workload


class Validator:
    """Runs schedulers on fixed workloads.

    Args:
        config: Environment.
        workloads: Validation workloads; never those of the final test.
        batch: Environments simulated at once.
    """

    def __init__(self, config: EnvConfig, workloads: Sequence[Workload], batch: int = 64) -> None:
        self._config = config
        self._workloads = list(workloads)
        self._batch = batch

    def __call__(self, scheduler: Scheduler) -> dict[str, float]:
        """Means over the workloads.

        Returns:
            `avg_jct` and `p99_jct` in intervals, `gpu_utilisation`, `cpu_utilisation`, `unfinished` jobs per workload
            (0 unless episodes were truncated) and `share_full`, the share of intervals that ended with a full cluster.
        """
        from dl2env.evaluation.runner import run_scheduler

        metrics = run_scheduler(scheduler, self._config, self._workloads, batch=self._batch).metrics
        interval_s = self._config.dynamics.interval_s
        columns: dict[str, list[float]] = {
            "avg_jct": [m.mean_jct_intervals for m in metrics],
            "p99_jct": [m.p99_jct_s / interval_s for m in metrics],
            "gpu_utilisation": [m.gpu_utilisation for m in metrics],
            "cpu_utilisation": [m.cpu_utilisation for m in metrics],
            "unfinished": [m.num_unfinished for m in metrics],
            "share_full": [m.share_full for m in metrics],
        }
        return {name: float(np.mean(values)) for name, values in columns.items()}


class MeanValidator:
    """Means of the figures of several validators, one per scenario.

    Args:
        validators: The validators.
    """

    def __init__(self, validators: Sequence[Validator]) -> None:
        self._validators = list(validators)

    def __call__(self, scheduler: Scheduler) -> dict[str, float]:
        """The figures of `Validator`."""
        found = [validator(scheduler) for validator in self._validators]
        return {name: float(np.mean([figures[name] for figures in found])) for name in found[0]}


class RecordedValidator:
    """A validator that keeps its figures in the run folder.

    Args:
        folder: The run.
        model: The learner, which says how far it has come.
        validator: Makes the figures.

    Attributes:
        history: Figures of the validations that count: a resumed run makes those after its checkpoint again.
    """

    def __init__(self, folder: RunFolder, model: Learner, validator: MeanValidator) -> None:
        self._folder = folder
        self._model = model
        self._validator = validator
        done = folder.read_validations() if model.num_timesteps else []
        self.history = [figures for figures in done if figures["num_decisions"] < model.num_timesteps]

    def __call__(self, scheduler: Scheduler) -> dict[str, float]:
        """The figures of the validator, kept with the decisions and updates made so far."""
        figures = self._validator(scheduler)
        progress = {"num_decisions": self._model.num_timesteps, "num_updates": self._model.updates_done}
        self.history.append({**progress, **figures})
        self._folder.write_validations(self.history)
        return figures
