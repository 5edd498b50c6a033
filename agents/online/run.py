"""An online run, phase by phase: the teacher and the baselines on the stream, the warm-up, then the agent.

A run that was stopped goes on at its last checkpoint and ends as it would have without the stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure

from agents.actor_critic import build_actor_critic
from agents.callbacks import Checkpoints, RolloutStatistics
from agents.checkpoint import load_weights, read_info, resume_training, save_network
from agents.learner import Learner, fine_tune
from agents.online.environment import LOG, StreamVecEnv, StreamVectorEnv
from agents.online.folder import STREAM, OnlineFolder
from agents.online.measures import StreamMeasures, interval_costs, measure
from agents.online.monitor import StopAtEnd, StreamMonitor, measure_cluster
from agents.online.replay import find_teacher, play_stream
from agents.online.result import StreamResult, write_result
from agents.online.settings import OnlineSettings, first_world
from agents.online.stream import Stream, build_stream
from agents.pipeline import World, find_scheduler, run_warmup
from agents.ppo import build_ppo
from agents.progress import PhaseBar
from agents.run_folder import WARMUP
from agents.settings import build_scenario
from dl2env.scenarios import Scenario
from dl2env.schedulers.base import IntervalScheduler, Scheduler
from dl2env.sim.simulator import JobRecords

Say = Callable[[str], None]

AGENT = "agent"
"""Name of the learner in tables and figures."""

_ENDLESS = 10**12
"""Decisions to learn from: the stream ends long before, and rates that fall towards this number stay as they are."""


@dataclass(frozen=True)
class OnlineWorld:
    """What a run needs, made before anything is trained, so that wrong input ends the run at once."""

    scenario: Scenario
    stream: Stream
    before: World
    teacher_name: str
    teacher: IntervalScheduler
    baselines: dict[str, Scheduler]


def build_online_world(settings: OnlineSettings) -> OnlineWorld:
    """Draws the stream and finds the schedulers.

    Raises:
        Dl2EnvError: Something is unknown, missing or wrong.
    """
    scenario = build_scenario(settings.run)
    stream = build_stream(scenario, settings.stream)
    name = settings.run.warmup.teacher
    teacher = find_teacher(name, stream.config)
    before = World(first_world(settings, settings.stream.segments[0]), (), (), teacher, {})
    baselines = {other: find_scheduler(other) for other in settings.online.baselines if other != name}
    if settings.online.checkpoint is not None:
        read_info(Path(settings.online.checkpoint))
    return OnlineWorld(scenario, stream, before, name, teacher, baselines)


def run_online(
    folder: OnlineFolder, *, show_bars: bool = True, say: Say = print, command: list[str] | None = None
) -> Path:
    """Runs what is not complete yet.

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
    settings = folder.online
    if folder.is_complete(STREAM) and folder.summary.is_file():
        say(folder.table.read_text(encoding="utf-8").rstrip("\n"))
        return folder.summary
    torch.set_num_threads(settings.run.threads)
    world = build_online_world(settings)
    folder.bind_scenario(world.scenario.name, world.scenario.hash())
    stream = world.stream
    say(
        f"{world.scenario.name}, {stream.workload.num_jobs} jobs in {stream.num_intervals} intervals, run folder "
        f"{folder.path}; the first run also compiles the simulator, about a minute"
    )
    others = play_others(world, show_bars)
    if settings.run.warmup.enabled and settings.online.checkpoint is None and not folder.is_complete(WARMUP):
        run_warmup(folder, world.before, show_bars, say)
    return learn_online(folder, world, others, show_bars, say, command)


def play_others(world: OnlineWorld, show_bars: bool = False) -> dict[str, JobRecords]:
    """The teacher, then the baselines, on the stream."""
    records = {}
    for name, scheduler in {world.teacher_name: world.teacher, **world.baselines}.items():
        with PhaseBar(name, "interval", show_bars) as bar:
            records[name] = play_stream(scheduler, world.stream, bar.move_to)
    return records


def build_stream_env(settings: OnlineSettings, world: OnlineWorld) -> StreamVecEnv:
    """The stream for the run's learner."""
    online = settings.online
    guard = None
    if online.guard == "rollout":
        guard = {"horizon": online.guard_horizon, "tolerance": online.guard_tolerance}
    env = StreamVectorEnv(
        world.stream,
        settings.learner.num_envs,
        world.teacher,
        guard,
        online.practice_intervals,
        practice_ends_episodes=settings.discounts_intervals,
        choose_from_practice=online.choose_from_practice,
    )
    return StreamVecEnv(env, settings.run.agent)


def build_online_learner(folder: OnlineFolder, env: StreamVecEnv) -> Learner:
    """The learner where the run left off: at its last checkpoint, at its start checkpoint, or new."""
    settings = folder.settings
    model: Learner
    if settings.algorithm == "dl2":
        model = build_actor_critic(env, settings.dl2, settings.agent, seed=settings.seed)
    else:
        model = build_ppo(env, settings.ppo, settings.agent, seed=settings.seed)
    start = folder.online.online.checkpoint
    if folder.last.is_dir():
        resume_training(folder.last, model)
    elif start is not None:
        load_weights(Path(start), model.policy.network)
    elif folder.is_complete(WARMUP):
        load_weights(folder.warmup, model.policy.network)
    model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
    return model


def learn_online(
    folder: OnlineFolder,
    world: OnlineWorld,
    others: dict[str, JobRecords],
    show_bars: bool,
    say: Say,
    command: list[str] | None,
) -> Path:
    """Lets the agent schedule the stream and learn from it; writes the result and returns its path."""
    online, stream = folder.online.online, world.stream
    started, cpu_started = time.perf_counter(), time.process_time()
    interval_s = stream.config.dynamics.interval_s
    teacher = others[world.teacher_name]
    teacher_costs = interval_costs(teacher.arrival_s, teacher.finish_s, interval_s, stream.num_intervals)
    vec_env = build_stream_env(folder.online, world)
    env = vec_env.stream_env
    model = build_online_learner(folder, vec_env)
    checkpoints = Checkpoints(folder.last, folder.online.learner.checkpoint_every, env_config=stream.config)
    try:
        with PhaseBar(AGENT, "interval", show_bars) as bar:
            monitor = StreamMonitor(env, teacher_costs, online.window, bar)
            if not env.is_finished:
                fine_tune(model, _ENDLESS, [StopAtEnd(env), RolloutStatistics(), monitor, checkpoints])
    finally:
        model.logger.close()

    def result(measures: dict[str, StreamMeasures]) -> StreamResult:
        return StreamResult(
            teacher=world.teacher_name,
            agent=AGENT,
            window=online.window,
            stream=stream,
            measures=measures,
            log=np.array(env.log, dtype=np.float64).reshape(len(env.log), len(LOG)),
            facts={
                "scenario": folder.scenario,
                "versions": folder.versions,
                "seed": folder.settings.seed,
                "settings": folder.plain_settings,
                "workload_digest": stream.workload.digest(),
                "num_decisions": model.num_timesteps,
                "num_updates": model.updates_done,
                "command": command or [],
            },
            timing={"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_started},
        )

    if not env.is_finished:
        own = measure_cluster(env.cluster, stream, teacher_costs, online.window)
        if own is not None:
            costs = teacher_costs[: len(own.costs)]
            path = write_result(
                folder.partial, result({AGENT: own, **_measure_all(others, stream, costs, online.window)})
            )
            say(f"until interval {len(own.costs)}: {path}")
        raise KeyboardInterrupt
    everyone = {AGENT: env.cluster.records(0), **others}
    finished = result(_measure_all(everyone, stream, teacher_costs, online.window))
    save_network(folder.final, model.policy.network, env_config=stream.config, seed=folder.settings.seed)
    folder.table.write_text(finished.table() + "\n", encoding="utf-8")
    say(finished.table())
    path = write_result(folder.summary, finished)
    folder.partial.unlink(missing_ok=True)
    folder.complete(STREAM, num_decisions=model.num_timesteps, wall_s=finished.timing["wall_s"])
    say(f"curves: tensorboard --logdir {folder.path}; figures: {folder.path}")
    return path


def _measure_all(
    records: dict[str, JobRecords], stream: Stream, teacher_costs: NDArray[np.float64], window: int
) -> dict[str, StreamMeasures]:
    measures: dict[str, StreamMeasures] = {}
    for name, record in records.items():
        measures[name] = measure(
            record.arrival_s,
            record.finish_s,
            stream.segment_of_job,
            teacher_costs,
            interval_s=stream.config.dynamics.interval_s,
            num_segments=len(stream.segments),
            window=window,
        )
    return measures
