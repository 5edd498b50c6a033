"""The measurements of `scripts/benchmark.py`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import dl2env  # noqa: F401 - registers the environments
from dl2env.config import EnvConfig
from dl2env.scenarios import Scenario, get_scenario

if TYPE_CHECKING:
    from scripts.benchmark import BenchmarkSettings

_CALIBRATION_STEPS = 1_000_000
_NUM_SCORES = 16
"""Random score matrices that are used in turn, so that no time and little memory goes into drawing them."""


@dataclass(frozen=True)
class Rates:
    """Results of one measurement.

    Attributes:
        name: What was measured.
        unit: What was counted.
        per_cpu_s: Units per CPU-second, one entry per repetition.
        per_wall_s: Units per second of wall-clock time.
    """

    name: str
    unit: str
    per_cpu_s: tuple[float, ...]
    per_wall_s: tuple[float, ...]

    def line(self) -> str:
        """One line of the printed table."""
        low, median, high = np.quantile(self.per_cpu_s, [0.0, 0.5, 1.0])
        wall = np.median(self.per_wall_s)
        return f"{self.name:<48} {median:>14,.0f} [{low:,.0f}, {high:,.0f}] {self.unit}/CPU-s, {wall:,.0f}/s wall"

    def plain(self) -> dict[str, Any]:
        """Values for JSON."""
        return {**dataclasses.asdict(self), "median_per_cpu_s": float(np.median(self.per_cpu_s))}


Sample = Callable[[], tuple[int, float, float]]
"""Measures once; returns how many units took how many CPU and wall-clock seconds."""


@dataclass(frozen=True)
class Case:
    """A measurement; `prepare` builds what it needs, compiles kernels and fills caches, and returns the sample."""

    name: str
    unit: str
    prepare: Callable[[], Sample]

    def measure(self, repeats: int) -> Rates:
        """Prepares, then samples `repeats` times."""
        sample = self.prepare()
        results = [sample() for _ in range(repeats)]
        return Rates(
            self.name,
            self.unit,
            tuple(count / max(cpu_s, 1e-9) for count, cpu_s, _ in results),
            tuple(count / max(wall_s, 1e-9) for count, _, wall_s in results),
        )


def cases(settings: BenchmarkSettings) -> Iterator[Case]:
    """All measurements, in the order in which they are printed."""
    scenario = get_scenario(settings.scenario)
    yield Case("calibration: Python loop", "iteration", lambda: _timed(_python_loop))
    yield Case("calibration: numpy multiply-add", "element", lambda: _timed(_numpy_loop))
    for window in settings.windows:
        for batch in settings.batches:
            name = f"vector env step, J = {window}, B = {batch}"
            yield Case(name, "decision", _vector_case(scenario, window, batch, settings.seconds))
    yield Case("single env step, gymnasium.make", "decision", _single_case(settings.scenario, settings.seconds))
    for scheduler in ("drf", "optimus"):
        yield Case(f"runner, {scheduler}", "episode", _runner_case(scenario, scheduler, settings.episodes))
    for threads in settings.threads:
        for part in ("collection", "update"):
            name = f"PPO {part}, B = {settings.num_envs}, {threads} torch thread{'s' if threads > 1 else ''}"
            yield Case(name, "decision", _ppo_case(scenario, settings.num_envs, threads, part))


def _timed(work: Callable[[], int]) -> Sample:
    def sample() -> tuple[int, float, float]:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        count = work()
        return count, time.process_time() - cpu_s, time.perf_counter() - wall_s

    sample()
    return sample


def _python_loop() -> int:
    total = 0
    for i in range(_CALIBRATION_STEPS):
        total += i * i
    return _CALIBRATION_STEPS


def _numpy_loop() -> int:
    values = np.linspace(0.0, 1.0, 10_000)
    rounds = 2_000
    for _ in range(rounds):
        np.multiply(values, 0.999, out=values)
        np.add(values, 0.001, out=values)
    return rounds * len(values)


class _RandomActions:
    """Legal actions at random, cheaply, and outside of what is timed."""

    def __init__(self, batch: int, num_actions: int) -> None:
        rng = np.random.default_rng(0)
        self._scores = 0.1 + rng.random((_NUM_SCORES, batch, num_actions), dtype=np.float32)
        self._turn = 0

    def __call__(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        self._turn = (self._turn + 1) % _NUM_SCORES
        return np.asarray((self._scores[self._turn] * mask).argmax(axis=-1), dtype=np.int64)


def _config(scenario: Scenario, window: int) -> EnvConfig:
    observation = dataclasses.replace(scenario.config.observation, window=window)
    return dataclasses.replace(scenario.config, observation=observation)


def _vector_case(scenario: Scenario, window: int, batch: int, seconds: float) -> Callable[[], Sample]:
    def prepare() -> Sample:
        from dl2env.envs.vector_env import SchedulingVectorEnv

        env = SchedulingVectorEnv(batch, _config(scenario, window), workloads=scenario.workload_source("train"))
        choose = _RandomActions(batch, int(env.single_action_space.n))  # type: ignore[attr-defined]
        _, infos = env.reset(seed=0)
        mask = infos["action_mask"]
        # Past the first episodes, so that the environments are in different places of theirs.
        has_ended = np.zeros(batch, dtype=np.bool_)
        while not has_ended.all():
            _, _, terminated, truncated, infos = env.step(choose(mask))
            mask = infos["action_mask"]
            has_ended |= terminated | truncated

        def sample() -> tuple[int, float, float]:
            nonlocal mask
            cpu_s = wall_s = 0.0
            count = 0
            while cpu_s < seconds:
                actions = choose(mask)
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                infos = env.step(actions)[4]
                cpu_s += time.process_time() - cpu_start
                wall_s += time.perf_counter() - wall_start
                mask = infos["action_mask"]
                count += batch
            return count, cpu_s, wall_s

        return sample

    return prepare


def _single_case(scenario: str, seconds: float) -> Callable[[], Sample]:
    def prepare() -> Sample:
        env = gymnasium.make("dl2env/Scheduling-v0", scenario=scenario)
        choose = _RandomActions(1, int(env.action_space.n))  # type: ignore[attr-defined]
        mask = env.reset(seed=0)[1]["action_mask"]
        env.step(int(choose(mask[None])[0]))
        mask = env.reset(seed=0)[1]["action_mask"]

        def sample() -> tuple[int, float, float]:
            nonlocal mask
            cpu_s = wall_s = 0.0
            count = 0
            while cpu_s < seconds:
                action = int(choose(mask[None])[0])
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                _, _, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    _, info = env.reset()
                cpu_s += time.process_time() - cpu_start
                wall_s += time.perf_counter() - wall_start
                mask = info["action_mask"]
                count += 1
            return count, cpu_s, wall_s

        return sample

    return prepare


def _runner_case(scenario: Scenario, name: str, episodes: int) -> Callable[[], Sample]:
    def prepare() -> Sample:
        from dl2env.evaluation.runner import run_scheduler
        from dl2env.schedulers import get_scheduler

        workloads = scenario.workloads("train", episodes)
        scheduler = get_scheduler(name)

        def work() -> int:
            run_scheduler(scheduler, scenario.config, workloads)
            return len(workloads)

        return _timed(work)

    return prepare


def _ppo_case(scenario: Scenario, num_envs: int, threads: int, part: str) -> Callable[[], Sample]:
    def prepare() -> Sample:
        import torch
        from stable_baselines3.common.logger import Logger

        from agents.ppo import PPOConfig, build_ppo
        from agents.vec_env import SB3VecEnv
        from dl2env.envs.vector_env import SchedulingVectorEnv

        torch.set_num_threads(threads)
        env = SchedulingVectorEnv(num_envs, scenario.config, workloads=scenario.workload_source("train"))
        config = PPOConfig()
        minibatch_size = min(config.minibatch_size or num_envs, config.steps_per_update * num_envs)
        model = build_ppo(SB3VecEnv(env), dataclasses.replace(config, minibatch_size=minibatch_size))
        model.set_logger(Logger(None, []))
        _, callback = model._setup_learn(10**9, None)
        assert model.env is not None
        vec_env, decisions = model.env, model.n_steps * num_envs

        def collect() -> int:
            model.collect_rollouts(vec_env, callback, model.rollout_buffer, model.n_steps)
            return decisions

        def update() -> int:
            model.train()
            return decisions

        if part == "collection":
            return _timed(collect)
        collect()
        return _timed(update)

    return prepare
