"""The main job, phase by phase: record a teacher, warm up, fine-tune, compare on held-out workloads.

Phases that a run has completed are skipped, so a run that was stopped continues where its last checkpoint is. Ctrl-C
raises `KeyboardInterrupt` out of `run_pipeline` in every phase.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from stable_baselines3.common.logger import configure
from torch.utils.tensorboard import SummaryWriter

from agents.actor_critic import build_actor_critic
from agents.callbacks import Checkpoints, ProgressBar, RolloutStatistics, UpdateLimit, Validation
from agents.checkpoint import load_weights, read_info, resume_training, save_network
from agents.decision_layout import ObservationLayout, layout_of
from agents.demonstrations import DecisionMix, Demonstrations
from agents.learner import Learner, fine_tune
from agents.mixed_env import MixedVecEnv
from agents.networks import NetworkConfig, ObservationShape, build_network
from agents.observations import AgentVectorEnv, observed_shape
from agents.ppo import build_ppo
from agents.progress import PhaseBar, Watch
from agents.recording import record_demonstrations
from agents.run_folder import AGENT_NAMES, EVALUATION, FINE_TUNING, WARMUP, RunFolder
from agents.run_tensorboard import EpisodePictures
from agents.scheduler import CheckpointScheduler, NetworkScheduler
from agents.settings import EvaluationSettings, RunSettings, build_scenario
from agents.validation import MeanValidator, RecordedValidator, Validator
from agents.vec_env import SB3VecEnv
from agents.warmup import WarmupProgress, warm_up
from agents.warmup_files import check_files, read_files
from dl2env.config import EnvConfig
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios import Scenario
from dl2env.schedulers import get_scheduler, scheduler_names
from dl2env.schedulers.base import Scheduler, configured
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
        notes: What the user should know about the recordings to learn from.
        learned: Scenarios to fine-tune in; empty: the run's own.
    """

    scenario: Scenario
    validation: tuple[Workload, ...]
    test: tuple[Workload, ...]
    teacher: Scheduler | None
    baselines: Mapping[str, Scheduler]
    notes: tuple[str, ...] = ()
    learned: tuple[Scenario, ...] = ()

    @property
    def config(self) -> EnvConfig:
        """Configuration of the environments."""
        return self.scenario.config

    def validator(self, settings: EvaluationSettings) -> MeanValidator:
        """What fine-tuning is judged by: the validation workloads of each scenario that it learns in."""
        if not self.learned:
            return MeanValidator([Validator(self.config, self.validation, settings.batch)])
        num = settings.num_validation_workloads
        return MeanValidator(
            [Validator(own.config, own.workloads("validation", num), settings.batch) for own in self.learned]
        )


def run_pipeline(
    folder: RunFolder, *, show_bars: bool | Watch = True, say: Say = print, command: list[str] | None = None
) -> Path:
    """Runs the phases that are not complete yet.

    Args:
        folder: The run.
        show_bars: Show a progress bar per phase on stderr; a function is called instead.
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
    if settings.fine_tuning.enabled and not folder.is_complete(FINE_TUNING):
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
    has_files = settings.warmup.enabled and bool(settings.warmup.files)
    teacher = find_scheduler(settings.warmup.teacher) if settings.warmup.enabled and not has_files else None
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
        _check_sees_the_same(settings.warmup.teacher, teacher, settings.agent)
    for name, baseline in baselines.items():
        _check_fits(f"evaluation.baselines: {name!r}", baseline, configured(baseline, scenario.config))
    notes = check_files(*_files(settings, scenario.config)) if has_files else []
    learned = settings.ppo.scenarios if settings.algorithm == "ppo" else ()
    return World(
        scenario,
        tuple(scenario.workloads("validation", evaluation.num_validation_workloads)),
        tuple(scenario.workloads("test", evaluation.num_workloads)),
        teacher,
        baselines,
        tuple(notes),
        tuple(build_scenario(settings, name) for name in learned),
    )


def _files(
    settings: RunSettings, config: EnvConfig
) -> tuple[tuple[str, ...], tuple[float, ...], ObservationLayout, EnvConfig]:
    """What `agents.warmup_files` needs to know of a run."""
    layout = layout_of(config, settings.agent.observation, settings.agent.observation_scale)
    return settings.warmup.files, settings.warmup.file_weights, layout, config


def _check_fits(key: str, scheduler: Scheduler, config: EnvConfig) -> None:
    """Raises a `ConfigError` if the scheduler is a network that cannot read the observations."""
    if not isinstance(scheduler, NetworkScheduler):
        return
    try:
        scheduler.network.check_shape(observed_shape(scheduler.network.config, config))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _check_sees_the_same(name: str, teacher: Scheduler, agent: NetworkConfig) -> None:
    """Raises a `ConfigError` if the teacher needs the environments' own observation and the learner gets another."""
    if isinstance(teacher, NetworkScheduler) and teacher.network.config.observation == "native" != agent.observation:
        raise ConfigError(
            f"warmup.teacher={name!r} reads the environment's own observation, but the learner's is "
            f"{agent.observation!r}; set agent.observation=native or choose another teacher"
        )


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


def make_env(world: World, num_envs: int, agent: NetworkConfig | None = None) -> SchedulingVectorEnv | AgentVectorEnv:
    """Environments that play training workloads, with the observation that an agent reads."""
    env = SchedulingVectorEnv(num_envs, world.config, workloads=world.scenario.workload_source("train"))
    return env if agent is None or agent.observation == "native" else AgentVectorEnv(env, agent)


def make_learning_env(settings: RunSettings, world: World) -> SB3VecEnv:
    """Environments to fine-tune in."""
    num_envs = settings.fine_tuning.num_envs
    if not world.learned:
        return SB3VecEnv(make_env(world, num_envs, settings.agent))
    sizes = [len(part) for part in np.array_split(np.arange(num_envs), len(world.learned))]
    parts = [
        SB3VecEnv(make_env(dataclasses.replace(world, scenario=scenario), size, settings.agent))
        for scenario, size in zip(world.learned, sizes, strict=True)
    ]
    return MixedVecEnv(parts, [scenario.name for scenario in world.learned])


def record_teacher(folder: RunFolder, world: World, show_bars: bool | Watch) -> Demonstrations:
    """Lets the teacher play."""
    assert world.teacher is not None
    settings = folder.settings
    env = make_env(world, settings.warmup.num_envs, settings.agent)
    with PhaseBar(f"record {world.teacher.name}", "decision", show_bars) as bar:
        return record_demonstrations(
            cast(SchedulingVectorEnv, env),  # of an agent's environment the same parts are used
            world.teacher,
            settings.warmup.num_decisions,
            seed=stream_seed(settings.seed, "recording"),
            progress=bar.move_to,
        )


def decisions_to_learn(folder: RunFolder, world: World, show_bars: bool | Watch, say: Say) -> DecisionMix:
    """Reads the recordings that the settings name, or lets the teacher play."""
    settings = folder.settings
    if not settings.warmup.files:
        return DecisionMix((record_teacher(folder, world, show_bars),))
    for note in world.notes:
        say(f"note: {note}")
    with PhaseBar("read decisions", "file", show_bars) as bar:
        return read_files(*_files(settings, world.config), bar.move_to)


def run_warmup(folder: RunFolder, world: World, show_bars: bool | Watch, say: Say) -> None:
    """Records the teacher or reads recordings, trains a new network to decide like them, and saves that."""
    settings = folder.settings
    started = time.perf_counter()
    demos = decisions_to_learn(folder, world, show_bars, say)
    torch.manual_seed(stream_seed(settings.seed, "network"))
    first = demos.recordings[0]
    network = build_network(
        settings.agent, ObservationShape(first.jobs.shape[2], first.jobs.shape[3], first.cluster.shape[2])
    )
    with SummaryWriter(folder.tensorboard) as writer, PhaseBar("warm-up", "step", show_bars) as bar:

        def progress(now: WarmupProgress) -> None:
            bar.move_to(now.step, now.total_steps, loss=f"{now.loss:.3f}", accuracy=f"{now.accuracy:.3f}")

        result = warm_up(
            network,
            demos,
            settings.warmup,
            settings.fine_tuning.discounting,
            seed=settings.seed,
            progress=progress,
            log=writer.add_scalar,
        )
    figures = {key: float(value) for key, value in asdict(result).items()}
    save_network(folder.warmup, network, env_config=world.config, seed=settings.seed, metrics=figures)
    elapsed_s = time.perf_counter() - started
    if settings.warmup.files:
        provenance = {"recordings": [dict(recording.provenance) for recording in demos.recordings]}
        folder.complete(WARMUP, **figures, **provenance, num_decisions=demos.num_decisions, wall_s=elapsed_s)
    else:
        folder.complete(WARMUP, **figures, num_decisions=demos.num_decisions, wall_s=elapsed_s)
    source = ", ".join(settings.warmup.files) or settings.warmup.teacher
    say(
        f"warm-up: {demos.num_decisions} decisions of {source}, of held-out ones "
        f"{100 * result.accuracy:.1f} % matched; {elapsed_s:.0f} s; checkpoint {folder.warmup}"
    )


def build_learner(folder: RunFolder, world: World) -> Learner:
    """The learner where the run left off: at its last checkpoint, after the warm-up, or new."""
    settings = folder.settings
    env = make_learning_env(settings, world)
    model: Learner
    if settings.algorithm == "dl2":
        model = build_actor_critic(env, settings.dl2, settings.agent, seed=settings.seed)
    else:
        model = build_ppo(env, settings.ppo, settings.agent, seed=settings.seed)
    if folder.last.is_dir():
        resume_training(folder.last, model)
    elif folder.is_complete(WARMUP):
        load_weights(folder.warmup, model.policy.network)
    # Without a logger of our own SB3 would make a folder in the system's place for temporary files.
    model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
    return model


def run_fine_tuning(folder: RunFolder, world: World, show_bars: bool | Watch, say: Say) -> None:
    """Fine-tunes by reinforcement learning, with validations and checkpoints."""
    settings = folder.settings
    tuning = settings.fine_tuning
    started = time.perf_counter()
    model = build_learner(folder, world)
    first = model.num_timesteps
    bar = ProgressBar(
        tuning.num_decisions,
        "fine-tuning",
        disable=show_bars is not True,
        num_updates=tuning.num_updates,
        watch=show_bars if callable(show_bars) else None,
    )
    validate = RecordedValidator(folder, model, world.validator(settings.evaluation))
    validation = Validation(
        validate,
        every=tuning.validate_every,
        best=folder.best,
        seed=stream_seed(settings.seed, "sampling"),
        env_config=world.config,
        bar=bar,
        patience=tuning.patience,
    )
    validation.restore(validate.history)
    checkpoints = Checkpoints(folder.last, tuning.checkpoint_every, env_config=world.config)
    limit = [] if tuning.num_updates is None else [UpdateLimit(tuning.num_updates)]
    try:
        is_done = fine_tune(
            model,
            tuning.num_decisions,
            [RolloutStatistics(), bar, *limit, validation, *_pictures(folder, world), checkpoints],
        )
    finally:
        bar.close()
        model.logger.close()
    if not is_done:
        raise KeyboardInterrupt
    elapsed_s = time.perf_counter() - started
    last = read_info(folder.last)
    learned = last.num_decisions - first
    is_early_stop = tuning.patience is not None and validation.num_worse >= tuning.patience
    folder.complete(
        FINE_TUNING,
        num_decisions=last.num_decisions,
        num_updates=last.num_updates,
        early_stop=is_early_stop,
        scenarios={own.name: own.hash() for own in world.learned or (world.scenario,)},
        best=dict(read_info(folder.best).metrics),
        wall_s=elapsed_s,
    )
    if is_early_stop:
        say(f"fine-tuning: early stop, {validation.num_worse} validations without a better one")
    say(
        f"fine-tuning: {learned} decisions in {elapsed_s:.0f} s; best mean JCT on validation workloads "
        f"{validation.best_value:.3f} intervals; checkpoints {folder.last}, {folder.best}"
    )


def _pictures(folder: RunFolder, world: World) -> list[EpisodePictures]:
    """The callback that draws episodes for TensorBoard, if the settings want it."""
    settings = folder.settings
    every = settings.evaluation.picture_every
    if every is None:
        return []
    others = {name: world.baselines[name] for name in settings.evaluation.compare_with if name in world.baselines}
    return [
        EpisodePictures(
            world.config,
            world.validation[0],
            every * settings.fine_tuning.validate_every,
            others,
            stream_seed(settings.seed, "pictures"),
        )
    ]
