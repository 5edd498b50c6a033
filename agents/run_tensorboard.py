"""What TensorBoard shows of a run besides scalars: pictures of one episode now and then, and its settings at the end.

The pictures are of the same validation workload each time, so that turning the step slider shows how the policy
changes. They cost the policy's time for one episode and about half a second for drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.logger import Image

from agents.callbacks import BoundaryCallback
from agents.scheduler import NetworkScheduler
from dl2env.config import EnvConfig
from dl2env.envs.scheduling_env import SchedulingEnv
from dl2env.evaluation.figures import new_figure

if TYPE_CHECKING:
    from agents.settings import RunSettings
    from dl2env.schedulers.base import Scheduler
    from dl2env.workload.jobs import Workload

Pixels = NDArray[np.uint8]
"""(height, width, 3) RGB."""


class EpisodePictures(BoundaryCallback):
    """Plays a fixed workload now and then, and logs `episode/jct_cdf` and `episode/allocations` as pictures.

    The policy samples with a generator of its own, so pictures change nothing in the training.

    Args:
        config: Environment.
        workload: The workload.
        every: Updates between pictures; there are more at the end.
        others: Schedulers whose JCTs on this workload are drawn beside the policy's, by name.
        seed: Seeds the sampling, the same way each time.
    """

    def __init__(
        self,
        config: EnvConfig,
        workload: Workload,
        every: int,
        others: Mapping[str, Scheduler] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(every)
        self._config = config
        self._workload = workload
        self._schedulers = dict(others or {})
        self._seed = seed
        self._others: dict[str, NDArray[np.float64]] | None = None

    def at_boundary(self) -> None:
        """Plays, draws and logs."""
        if self._others is None:
            self._others = other_jct(self._schedulers, self._config, self._workload)
        policy = self.model.policy
        policy.set_training_mode(False)
        scheduler = NetworkScheduler(policy.network, seed=self._seed, name=self.model.algorithm)
        jct, allocations = play_episode(scheduler, self._config, self._workload)
        decisions = self.model.num_timesteps
        cdf = draw_jct_cdf({"policy": jct, **self._others}, f"one validation workload, {decisions} decisions learned")
        for name, picture in (("jct_cdf", cdf), ("allocations", allocations)):
            # The other formats of the logger have no pictures.
            self.logger.record(f"episode/{name}", Image(picture, "HWC"), exclude=("stdout", "log", "json", "csv"))
        self.logger.dump(decisions)


def play_episode(scheduler: Scheduler, config: EnvConfig, workload: Workload) -> tuple[NDArray[np.float64], Pixels]:
    """Lets a scheduler play one workload.

    Returns:
        JCT of each job in intervals, NaN if it did not finish, and a Gantt chart of the allocations.

    Raises:
        DependencyNotInstalled: matplotlib is missing.
    """
    env = SchedulingEnv(config, workloads=lambda *_: workload, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    is_over = False
    while not is_over:
        batch = {name: values[None] for name, values in observation.items()}
        action = scheduler.act(batch, env.action_masks()[None], env.view())[0]
        observation, _, terminated, truncated, info = env.step(int(action))
        is_over = terminated or truncated
    picture: Pixels = env.render()
    env.close()
    return np.asarray(info["jct_s"], dtype=np.float64) / config.dynamics.interval_s, picture


def other_jct(
    schedulers: Mapping[str, Scheduler], config: EnvConfig, workload: Workload
) -> dict[str, NDArray[np.float64]]:
    """JCT in intervals of each job of a workload under other schedulers."""
    from dl2env.evaluation.runner import run_scheduler

    jct = {}
    for name, scheduler in schedulers.items():
        records = run_scheduler(scheduler, config, [workload]).records[0]
        jct[name] = (records.finish_s - records.arrival_s) / config.dynamics.interval_s
    return jct


def draw_jct_cdf(jct: Mapping[str, NDArray[np.float64]], title: str) -> Pixels:
    """Draws the distribution of JCT over jobs, a curve per scheduler; unfinished jobs (NaN) keep it below 1.

    Raises:
        ConfigError: matplotlib is missing.
    """
    figure, (axes,) = new_figure(6.4, 4.0)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # `new_figure` says so if there is no matplotlib

    for name, values in jct.items():
        finished = np.sort(values[~np.isnan(values)])
        share = np.arange(1, len(finished) + 1) / len(values)
        axes.step(finished, share, where="post", label=name, linewidth=2.0 if name == "policy" else 1.2)
    axes.set_xscale("log")
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("job completion time in scheduling intervals")
    axes.set_ylabel("share of jobs")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def write_hparams(folder: Path, settings: RunSettings, metrics: Mapping[str, float]) -> None:
    """Writes a run's settings with its final metrics, for TensorBoard's table of hyper-parameters.

    Args:
        folder: Of the run's event files.
        settings: Settings; those of groups that the run does not use are left out.
        metrics: Final figures by name.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        named = {f"final/{name}": value for name, value in metrics.items()}
        # Into the same folder, so that the table's row is the run itself.
        writer.add_hparams(hyper_parameters(settings), named, run_name=".")


def hyper_parameters(settings: RunSettings) -> dict[str, str | float | bool]:
    """The settings that a run uses, by dotted key, as values that TensorBoard's table can hold."""
    groups: dict[str, Any] = {"agent": asdict(settings.agent)}
    if settings.warmup.enabled:
        groups["warmup"] = asdict(settings.warmup)
    if settings.fine_tuning.enabled:
        groups[settings.algorithm] = asdict(settings.fine_tuning)
    values: dict[str, Any] = {
        "scenario": settings.scenario.name,
        "algorithm": settings.algorithm,
        "seed": settings.seed,
        **{f"{group}.{key}": value for group, keys in groups.items() for key, value in keys.items()},
        **settings.overrides,
    }
    plain = {key: value for key, value in values.items() if value not in (None, (), [])}
    return {key: value if isinstance(value, str | int | float | bool) else str(value) for key, value in plain.items()}
