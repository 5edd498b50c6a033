"""The vector environment: B clusters in one simulator, stepped by one kernel call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.envs import spaces
from dl2env.envs.episodes import Episodes, resolve, reward_weights
from dl2env.envs.rendering import RENDER_MODES, Renderer
from dl2env.errors import ConfigError
from dl2env.schedulers.base import ClusterView
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.workload.generator import WorkloadSource

Observation = dict[str, NDArray[np.float32]]


class SchedulingVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[np.bool_]]):
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
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ConfigError(f"render_mode={render_mode!r} is unknown; choose one of: {', '.join(RENDER_MODES)}")
        self.config, source = resolve(config, scenario)
        self.simulator = ClusterSimulator(self.config, num_envs)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = spaces.observation_space(self.simulator)
        self.single_action_space = spaces.action_space(self.simulator)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episodes = Episodes(self.simulator, workloads or source)
        self._weights = reward_weights(self.config.reward)
        self._max_steps = max_episode_steps
        self._num_steps = np.zeros(num_envs, dtype=np.int64)
        self._ever_reset = False
        self._all_envs = np.ones(num_envs, dtype=np.bool_)
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
        return self.simulator.observation(), self._with_presence({"action_mask": self.action_masks()})

    def _seed(self, seed: int | list[int | None] | None) -> None:
        if seed is None and not self._ever_reset:
            seed = int(self.np_random.integers(2**31))
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            for b in range(self.num_envs):
                self.episodes.seed(b, int(seed))
        elif seed is not None:
            if len(seed) != self.num_envs:
                raise ConfigError(
                    f"reset: {len(seed)} seeds for {self.num_envs} environments; give one per environment"
                )
            for b, own in enumerate(seed):
                if own is not None:
                    self.episodes.seed(b, own)
        self._ever_reset = True

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Takes one decision in each environment; finished ones start their next episode in the same step."""
        report = self.simulator.step(actions)
        self._num_steps += 1
        rewards = report.reward_terms @ self._weights
        truncated = report.truncated
        if self._max_steps is not None:
            truncated |= (self._num_steps >= self._max_steps) & ~report.terminated
        infos: dict[str, Any] = {
            "interval_ended": report.interval_ended,
            "illegal_action": report.is_illegal,
            "reward_terms": self._with_presence(dict(zip(REWARD_TERMS, report.reward_terms.T, strict=True))),
        }
        for b, renderer in enumerate(self._renderers):
            if report.interval_ended[b]:
                renderer.record()
        done = report.terminated | truncated
        if done.any():
            self._finish(np.flatnonzero(done), done, infos)
        infos["action_mask"] = self.action_masks()
        return self.simulator.observation(), rewards, report.terminated, truncated, self._with_presence(infos)

    def _finish(self, ended: NDArray[np.int64], done: NDArray[np.bool_], infos: dict[str, Any]) -> None:
        """Keeps the last observation and outcome of ended episodes, then starts the next ones."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        jct_s = np.full(self.num_envs, None, dtype=object)
        mean_jct_s = np.full(self.num_envs, np.nan)
        unfinished = np.zeros(self.num_envs, dtype=np.int64)
        masks = np.zeros((self.num_envs, self.simulator.num_actions), dtype=np.bool_)
        state = self.simulator.state
        for b in ended:
            final_obs[b] = {"jobs": state.obs_jobs[b].copy(), "cluster": state.obs_cluster[b].copy()}
            records = self.simulator.records(int(b))
            finished = ~np.isnan(records.finish_s)
            jct_s[b] = records.jct_s[finished]
            unfinished[b] = int((~finished).sum())
            if finished.any():
                mean_jct_s[b] = jct_s[b].mean()
            masks[b] = state.mask[b]
        infos["final_obs"] = final_obs
        infos["_final_obs"] = done.copy()
        infos["final_info"] = {
            key: value
            for name, values in (
                ("action_mask", masks),
                ("jct_s", jct_s),
                ("mean_jct_s", mean_jct_s),
                ("num_unfinished", unfinished),
            )
            for key, value in ((name, values), (f"_{name}", done.copy()))
        }
        infos["_final_info"] = done.copy()
        self.episodes.start(ended)
        self._num_steps[ended] = 0
        for b in ended if self._renderers else ():
            self._renderers[b].start()

    def _with_presence(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Adds Gymnasium's `_key` arrays, which say for which environments a key holds."""
        for key in [key for key in infos if not key.startswith("_") and f"_{key}" not in infos]:
            infos[f"_{key}"] = self._all_envs.copy()
        return infos

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
        return tuple(renderer.frame(self.render_mode) for renderer in self._renderers)
