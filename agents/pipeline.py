"""The main job, phase by phase: record a teacher, warm up, fine-tune, compare on held-out workloads.

Phases that a run has completed are skipped, so a run that was stopped continues where its last checkpoint is. Ctrl-C
raises `KeyboardInterrupt` out of `run_pipeline` in every phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.logger import configure
from torch.utils.tensorboard import SummaryWriter

from agents.callbacks import Checkpoints, ProgressBar, RolloutStatistics, Validation
from agents.checkpoint import load_weights, read_info, resume_training, save_network
from agents.demonstrations import Demonstrations
from agents.networks import ObservationShape, build_network
from agents.ppo import SchedulingPPO, build_ppo, fine_tune
from agents.progress import PhaseBar
from agents.recording import record_demonstrations
from agents.run_folder import AGENT_NAMES, EVALUATION, FINE_TUNING, WARMUP, RunFolder
from agents.scheduler import CheckpointScheduler, NetworkScheduler
from agents.settings import build_scenario
from agents.validation import Validator
from agents.vec_env import SB3VecEnv
from agents.warmup import WarmupProgress, warm_up
from dl2env.config import EnvConfig
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios import Scenario
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import Scheduler, configured
from dl2env.sim.simulator import ClusterSimulator
from dl2env.workload.jobs import Workload

Say = Callable[[str], None]


@dataclass(frozen=True)
class World:
    """What a run needs of its scenario, made before anything is trained, so that wrong input ends the run at once.

    Attributes:
        scenario: The scenario, overrides applied.
        validation: Validation workloads.
        test: Test workloads; part of the run's record, the evaluation makes them again.
        teacher: Scheduler to learn from, if there is a warm-up.
        baselines: Schedulers to compare with, by name.
    """

    scenario: Scenario
    validation: tuple[Workload, ...]
    test: tuple[Workload, ...]
    teacher: Scheduler | None
    baselines: Mapping[str, Scheduler]

    @property
    def config(self) -> EnvConfig:
        """Configuration of the environments."""
        return self.scenario.config


def run_pipeline(
    folder: RunFolder, *, show_bars: bool = True, say: Say = print, command: list[str] | None = None
) -> Path:
    """Runs the phases that are not complete yet.

    Args:
        folder: The run.
        show_bars: Show a progress bar per phase on stderr.
        say: Receives what the user should read.
        command: Command line of the run, stored with its result.

    Returns:
        Path of `summary.json`.

    Raises:
        Dl2EnvError: Something in the settings or in the files they name is wrong.
        KeyboardInterrupt: The user stopped the run; it can be resumed.
    """
    from agents.run_evaluation import evaluate_run

    settings = folder.settings
    if folder.is_complete(EVALUATION) and folder.table.is_file():
        say(folder.table.read_text(encoding="utf-8").rstrip("\n"))
        return folder.summary
    torch.set_num_threads(settings.threads)
    world = build_world(folder)
    folder.bind_scenario(world.scenario.name, world.scenario.hash())
    say(f"{world.scenario.name}, run folder {folder.path}; the first run also compiles the simulator, about a minute")
    if settings.warmup.enabled and not folder.is_complete(WARMUP):
        run_warmup(folder, world, show_bars, say)
    if settings.ppo.enabled and not folder.is_complete(FINE_TUNING):
        run_fine_tuning(folder, world, show_bars, say)
    return evaluate_run(folder, world, show_bars, say, command)


def build_world(folder: RunFolder) -> World:
    """Reads the scenario, its workloads and the schedulers that the settings name.

    Raises:
        Dl2EnvError: One of them is unknown, missing or wrong.
    """
    settings = folder.settings
    scenario = build_scenario(settings)
    evaluation = settings.evaluation
    baselines = {name: find_scheduler(name) for name in evaluation.baselines}
    teacher = find_scheduler(settings.warmup.teacher) if settings.warmup.enabled else None
    if teacher is not None and configured(teacher, scenario.config).estimate != scenario.config.estimate:
        raise ConfigError(
            f"warmup.teacher={settings.warmup.teacher!r} brings its own speed estimate, but decides with the "
            "environment's while it is recorded; choose another teacher and set env.estimate"
        )
    known = {*baselines, *AGENT_NAMES, *scheduler_names()}
    for name in evaluation.compare_with:
        if name not in known:
            raise UnknownNameError("scheduler in evaluation.compare_with", name, sorted(known))
    if teacher is not None:
        _check_fits(f"warmup.teacher={settings.warmup.teacher!r}", teacher, scenario.config)
    for name, baseline in baselines.items():
        _check_fits(f"evaluation.baselines: {name!r}", baseline, configured(baseline, scenario.config))
    return World(
        scenario,
        tuple(scenario.workloads("validation", evaluation.num_validation_workloads)),
        tuple(scenario.workloads("test", evaluation.num_workloads)),
        teacher,
        baselines,
    )


def _check_fits(key: str, scheduler: Scheduler, config: EnvConfig) -> None:
    """Raises a `ConfigError` if the scheduler is a network that cannot read the observations."""
    if not isinstance(scheduler, NetworkScheduler):
        return
    state = ClusterSimulator(config, 1, max_jobs=1).state
    shape = ObservationShape(state.obs_jobs.shape[1], state.obs_jobs.shape[2], state.obs_cluster.shape[1])
    try:
        scheduler.network.check_shape(shape)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def find_scheduler(name: str) -> Scheduler:
    """A scheduler by registered name, import path or checkpoint folder.

    Raises:
        Dl2EnvError: There is none, or it cannot be built.
    """
    if (Path(name) / "config.json").is_file():
        return CheckpointScheduler(name)
    return get_scheduler(name)


def stream_seed(seed: int, stream: str) -> int:
    """Seed of a part of the run, different for each part."""
    return int(np.random.SeedSequence([seed, *stream.encode()]).generate_state(1)[0])


def make_env(world: World, num_envs: int) -> SchedulingVectorEnv:
    """Environments that play training workloads."""
    return SchedulingVectorEnv(num_envs, world.config, workloads=world.scenario.workload_source("train"))


def record_teacher(folder: RunFolder, world: World, show_bars: bool) -> Demonstrations:
    """Lets the teacher play."""
    assert world.teacher is not None
    settings = folder.settings
    env = make_env(world, settings.warmup.num_envs)
    with PhaseBar(f"record {world.teacher.name}", "decision", show_bars) as bar:
        return record_demonstrations(
            env,
            world.teacher,
            settings.warmup.num_decisions,
            seed=stream_seed(settings.seed, "recording"),
            progress=bar.move_to,
        )


def run_warmup(folder: RunFolder, world: World, show_bars: bool, say: Say) -> None:
    """Records the teacher, trains a new network to decide like it, and saves that."""
    settings = folder.settings
    started = time.perf_counter()
    demos = record_teacher(folder, world, show_bars)
    torch.manual_seed(stream_seed(settings.seed, "network"))
    network = build_network(
        settings.agent, ObservationShape(demos.jobs.shape[2], demos.jobs.shape[3], demos.cluster.shape[2])
    )
    with SummaryWriter(folder.tensorboard) as writer, PhaseBar("warm-up", "step", show_bars) as bar:

        def progress(now: WarmupProgress) -> None:
            bar.move_to(now.step, now.total_steps, loss=f"{now.loss:.3f}", accuracy=f"{now.accuracy:.3f}")

        result = warm_up(
            network,
            demos,
            settings.warmup,
            settings.ppo.discounting,
            seed=settings.seed,
            progress=progress,
            log=writer.add_scalar,
        )
    figures = {key: float(value) for key, value in asdict(result).items()}
    save_network(folder.warmup, network, env_config=world.config, seed=settings.seed, metrics=figures)
    elapsed_s = time.perf_counter() - started
    folder.complete(WARMUP, **figures, num_decisions=demos.num_decisions, wall_s=elapsed_s)
    say(
        f"warm-up: {demos.num_decisions} decisions of {settings.warmup.teacher}, of held-out ones "
        f"{100 * result.accuracy:.1f} % matched; {elapsed_s:.0f} s; checkpoint {folder.warmup}"
    )


def build_learner(folder: RunFolder, world: World) -> SchedulingPPO:
    """The learner where the run left off: at its last checkpoint, after the warm-up, or new."""
    settings = folder.settings
    env = SB3VecEnv(make_env(world, settings.ppo.num_envs))
    model = build_ppo(env, settings.ppo, settings.agent, seed=settings.seed)
    if folder.last.is_dir():
        resume_training(folder.last, model)
    elif folder.is_complete(WARMUP):
        load_weights(folder.warmup, model.policy.network)
    # Without a logger of our own SB3 would make a folder in the system's place for temporary files.
    model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
    return model


def run_fine_tuning(folder: RunFolder, world: World, show_bars: bool, say: Say) -> None:
    """Fine-tunes by PPO, with validations and checkpoints."""
    settings = folder.settings
    started = time.perf_counter()
    model = build_learner(folder, world)
    first = model.num_timesteps
    bar = ProgressBar(settings.ppo.num_decisions, "fine-tuning", disable=not show_bars)
    validate = _RecordedValidator(folder, model, Validator(world.config, world.validation, settings.evaluation.batch))
    validation = Validation(
        validate,
        every=settings.ppo.validate_every,
        best=folder.best,
        seed=stream_seed(settings.seed, "sampling"),
        env_config=world.config,
        bar=bar,
    )
    if first and folder.best.is_dir():
        validation.best_value = read_info(folder.best).metrics["avg_jct"]
    checkpoints = Checkpoints(folder.last, settings.ppo.checkpoint_every, env_config=world.config)
    try:
        is_done = fine_tune(model, settings.ppo.num_decisions, [RolloutStatistics(), bar, validation, checkpoints])
    finally:
        bar.close()
        model.logger.close()
    if not is_done:
        raise KeyboardInterrupt
    elapsed_s = time.perf_counter() - started
    learned = model.num_timesteps - first
    folder.complete(
        FINE_TUNING,
        num_decisions=model.num_timesteps,
        num_updates=model.updates_done,
        best=dict(read_info(folder.best).metrics),
        wall_s=elapsed_s,
    )
    say(
        f"fine-tuning: {learned} decisions in {elapsed_s:.0f} s; best mean JCT on validation workloads "
        f"{validation.best_value:.3f} intervals; checkpoints {folder.last}, {folder.best}"
    )


class _RecordedValidator:
    """A validator that keeps its figures in the run folder."""

    def __init__(self, folder: RunFolder, model: SchedulingPPO, validator: Validator) -> None:
        self._folder = folder
        self._model = model
        self._validator = validator
        # Validations after the checkpoint that a run resumes from are made again.
        done = folder.read_validations() if model.num_timesteps else []
        self._history = [figures for figures in done if figures["num_decisions"] < model.num_timesteps]

    def __call__(self, scheduler: Scheduler) -> dict[str, float]:
        figures = self._validator(scheduler)
        self._history.append({"num_decisions": self._model.num_timesteps, **figures})
        self._folder.write_validations(self._history)
        return figures
