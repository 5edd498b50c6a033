"""The vector environment: B clusters in one simulator, stepped by one kernel call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.envs import spaces
from dl2env.envs.episodes import Episodes, outcome, resolve, reward_weights
from dl2env.envs.rendering import RENDER_MODES, Renderer, check_render_mode
from dl2env.errors import ConfigError
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.workload.generator import WorkloadSource

Observation = dict[str, NDArray[np.float32]]


class SchedulingVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """B independent `SchedulingEnv`s with SAME_STEP autoreset.

    Everything that `SchedulingEnv` documents holds per environment; environment b equals a single environment built
    with `env_index=b` and reset with the same seed, step for step.

    Args:
        num_envs: B.
        config: What to simulate; default: scenario `dl2-small-v1`.
        scenario: Name of a frozen scenario instead of `config`; its training split is played.
        workloads: Where episodes' workloads come from, instead of the configuration's own generator.
        max_episode_steps: Truncate after that many decisions (what a time limit wrapper does for one environment).
        render_mode: None, `ansi` or `rgb_array`.

    Attributes:
        before_autoreset: Functions that `step` calls with the indices of environments whose episode has ended, before
            it starts their next one: the last chance to look at the simulator's state of that episode.

    Raises:
        Dl2EnvError: The configuration cannot be simulated.
    """

    metadata: dict[str, Any] = {
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        config: EnvConfig | None = None,
        *,
        scenario: str | None = None,
        workloads: WorkloadSource | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ConfigError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.config, source = resolve(config, scenario, workloads)
        self.simulator = ClusterSimulator(self.config, num_envs)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = spaces.observation_space(self.simulator)
        self.single_action_space = spaces.action_space(self.simulator)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episodes = Episodes(self.simulator, source)
        self._weights = reward_weights(self.config.reward)
        self._max_steps = max_episode_steps
        self._num_steps = np.zeros(num_envs, dtype=np.int64)
        self._ever_reset = False
        self.before_autoreset: list[Callable[[NDArray[np.int64]], None]] = []
        self._renderers = [Renderer(self.simulator, b) for b in range(num_envs)] if render_mode else []

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts a new episode everywhere.

        Args:
            seed: Starts each environment's episodes anew: with one seed s, episode k of environment b is keyed
                (s, b, k); a list gives each environment its own s. None goes on to the next episodes (the first
                reset then draws a seed).
            options: Not used.

        Returns:
            Observation and infos (`action_mask`).
        """
        self._seed(seed)
        self.episodes.start(np.arange(self.num_envs))
        self._num_steps[:] = 0
        for renderer in self._renderers:
            renderer.start()
        infos = _with_presence({"action_mask": self.action_masks()}, np.ones(self.num_envs, dtype=np.bool_))
        return self.simulator.observation(), infos

    def _seed(self, seed: int | list[int | None] | None) -> None:
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
        given = list(seed) if isinstance(seed, (list, tuple, np.ndarray)) else [seed] * self.num_envs
        if len(given) != self.num_envs:
            raise ConfigError(f"reset: {len(given)} seeds for {self.num_envs} environments; give one per environment")
        if not self._ever_reset and None in given:
            drawn = int(self.np_random.integers(2**31))
            given = [drawn if own is None else own for own in given]
        for b, own in enumerate(given):
            if own is not None:
                self.episodes.seed(b, int(own))
        self._ever_reset = True

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Takes one decision in each environment; finished ones start their next episode in the same step.

        Args:
            actions: (B,) indices in 0..3 J; anything outside counts as illegal.

        Returns:
            Observations, (B,) rewards, terminations, truncations, and infos, all of them fresh. In the infos,
            `action_mask` belongs to the observations, that is to the new episode where one has started; all else is
            about the step. `final_obs` and `final_info` hold the last observation and info of ended episodes.

        Raises:
            ResetNeeded: The environments have never been reset.
        """
        simulator = self.simulator
        if simulator.is_done.any():
            raise ResetNeeded("step: there is no running episode; call reset() first")
        if self._renderers:
            actions = np.asarray(actions)
            for renderer, action in zip(self._renderers, actions.tolist(), strict=True):
                renderer.before_step(action)
        report = simulator.step(actions)
        self._num_steps += 1
        rewards = report.reward_terms @ self._weights
        terminated, truncated = report.terminated, report.truncated
        if self._max_steps is not None:
            truncated = truncated | (self._num_steps >= self._max_steps)
        every = np.ones(self.num_envs, dtype=np.bool_)
        infos = _with_presence(
            {
                "interval_ended": report.interval_ended,
                "illegal_action": report.is_illegal,
                "reward_terms": _with_presence(dict(zip(REWARD_TERMS, report.reward_terms.T, strict=True)), every),
            },
            every,
        )
        for renderer, is_illegal in zip(self._renderers, report.is_illegal, strict=False):
            renderer.after_step(bool(is_illegal))
        done = terminated | truncated
        if done.any():
            infos |= self._finish(done, infos)
        infos["action_mask"], infos["_action_mask"] = simulator.action_masks(), every
        return simulator.observation(), rewards, terminated, truncated, infos

    def _finish(self, done: NDArray[np.bool_], infos: dict[str, Any]) -> dict[str, Any]:
        """Keeps the last observation and info of ended episodes, then starts the next ones."""
        ended = np.flatnonzero(done)
        state = self.simulator.state
        final_obs = np.full(self.num_envs, None, dtype=object)
        jct_s = np.full(self.num_envs, None, dtype=object)
        mean_jct_s = np.zeros(self.num_envs)
        num_unfinished = np.zeros(self.num_envs, dtype=np.int64)
        mask = np.zeros_like(state.mask)
        mask[ended] = state.mask[ended]
        last = self.simulator.observation(ended)
        for x, b in enumerate(ended.tolist()):
            final_obs[b] = {name: values[x].copy() for name, values in last.items()}
            jct_s[b], mean_jct_s[b], num_unfinished[b] = outcome(self.simulator, b).values()
        of_step = {key: values for key, values in infos.items() if not key.startswith("_")}
        of_step["reward_terms"] = {
            key: done if key.startswith("_") else values for key, values in infos["reward_terms"].items()
        }
        final_info = {
            "action_mask": mask,
            **of_step,
            "jct_s": jct_s,
            "mean_jct_s": mean_jct_s,
            "num_unfinished": num_unfinished,
        }
        for hook in self.before_autoreset:
            hook(ended)
        self.episodes.start(ended)
        self._num_steps[ended] = 0
        for b in ended.tolist() if self._renderers else ():
            self._renderers[b].start()
        return _with_presence({"final_obs": final_obs, "final_info": _with_presence(final_info, done)}, done)

    def action_masks(self) -> NDArray[np.bool_]:
        """(B, 3 J + 1) legal actions of the current observations."""
        return self.simulator.action_masks()

    def view(self) -> ClusterView:
        """Structured access to the clusters, for schedulers."""
        return ClusterView(self.simulator)

    def render(self) -> tuple[Any, ...] | None:
        """One frame (text or RGB array) per environment; None without a render mode."""
        if self.render_mode is None:
            return None
        if not self._ever_reset:
            raise ResetNeeded("render: there is no episode; call reset() first")
        return tuple(renderer.frame(self.render_mode) for renderer in self._renderers)


def _with_presence(infos: dict[str, Any], where: NDArray[np.bool_]) -> dict[str, Any]:
    """The infos and, for each key, Gymnasium's `_key` array, which says for which environments it holds."""
    return {name: values for key, value in infos.items() for name, values in ((key, value), (f"_{key}", where))}
