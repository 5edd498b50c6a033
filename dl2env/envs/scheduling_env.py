"""The single environment: one cluster of the batch simulator behind Gymnasium's interface."""

from __future__ import annotations

from operator import index, mul
from typing import Any, SupportsIndex

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
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


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Scheduling of elastic deep-learning training jobs on a GPU cluster.

    ## Description
    Jobs with workers and parameter servers (PSs) arrive at a cluster of servers. Time is cut into scheduling
    intervals. At the start of each, all allocations are given back and the agent builds new ones, one task or bundle
    per step; void ends the decisions, the jobs train for the interval, and the next one begins. How fast a job trains
    follows from its counts, its placement and the jobs it shares links with (`docs/architecture.md`). The setting is
    that of DL2 (Peng et al., arXiv 1909.06040), the speed model is derived from Wang et al., arXiv 1910.05930.

    ## Action space
    `Discrete(3 J + 1)` for J job slots: `3 i` one worker for the job in slot i, `3 i + 1` one PS, `3 i + 2` one of each
    on one server, `3 J` void. `action_masks()` and `info["action_mask"]` say what is legal; void always is. An
    illegal action counts as void and sets `info["illegal_action"]`.

    ## Observation space
    `Dict`, float32:

    | key | shape | range | meaning |
    |---|---|---|---|
    | jobs | (J, F) | [-1, 1] | per slot: columns of the job's type, then `sim.features.JOB_FEATURES`; 0 if empty |
    | cluster | (C,) | [0, 1] | `sim.features.CLUSTER_FEATURES` |

    ## Rewards
    Weighted sum of the terms of `RewardConfig`; `info["reward_terms"]` has each.

    ## Starting state
    The first interval in which a job is present. Episode k after `reset(seed=s)` plays the workload keyed
    (s, env_index, k).

    ## Episode end
    Terminated when the last job has finished, truncated after `dynamics.max_intervals` intervals. The last info has
    `jct_s` (seconds per job in arrival order, NaN for unfinished jobs), `mean_jct_s` (over the finished jobs) and
    `num_unfinished`.

    ## Arguments
    See `__init__`.

    ## Version history
    * v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 4}

    def __init__(
        self,
        config: EnvConfig | None = None,
        *,
        scenario: str | None = None,
        workloads: WorkloadSource | None = None,
        env_index: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Builds the environment.

        Args:
            config: What to simulate; default: scenario `dl2-small-v1`.
            scenario: Name of a frozen scenario instead of `config`; its training split is played.
            workloads: Where episodes' workloads come from, instead of the configuration's own generator.
            env_index: Key of this environment among others with the same seed.
            render_mode: None, `ansi` or `rgb_array`.

        Raises:
            Dl2EnvError: The configuration cannot be simulated.
        """
        check_render_mode(render_mode)
        self.config, source = resolve(config, scenario, workloads)
        self.simulator = ClusterSimulator(self.config, num_envs=1)
        self.render_mode = render_mode
        self.observation_space = spaces.observation_space(self.simulator)
        self.action_space = spaces.action_space(self.simulator)
        self.episodes = Episodes(self.simulator, source, env_index)
        self._weights = reward_weights(self.config.reward).tolist()
        self._only_env = np.zeros(1, dtype=np.int64)
        self._action = np.zeros(1, dtype=np.int64)
        self._num_actions = self.simulator.num_actions
        self._ever_reset = False
        self._renderer = Renderer(self.simulator, 0) if render_mode else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts the next episode; a seed starts the sequence of episodes anew.

        Args:
            seed: Key of the episodes; without one the first reset draws it.
            options: Not used.

        Returns:
            Observation and info (`action_mask`).
        """
        super().reset(seed=seed)
        if seed is None and not self._ever_reset:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self.episodes.seed(0, seed)
        self._ever_reset = True
        self.episodes.start(self._only_env)
        if self._renderer is not None:
            self._renderer.start()
        return self._observe(), {"action_mask": self.action_masks()}

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Takes one decision.

        Args:
            action: Index in 0..3 J; anything outside counts as illegal.

        Raises:
            ResetNeeded: There is no running episode.
            ConfigError: The action is not an integer.
        """
        if self.simulator.is_done[0]:
            raise ResetNeeded("step: there is no running episode; call reset() first")
        try:
            action = min(max(index(action), -1), self._num_actions)
        except TypeError as error:
            raise ConfigError(f"step: the action must be an integer, got {action!r}") from error
        if self._renderer is not None:
            self._renderer.before_step(action)
        self._action[0] = action
        report = self.simulator.step(self._action)
        terms = report.reward_terms[0].tolist()
        terminated, truncated = report.terminated.item(), report.truncated.item()
        info: dict[str, Any] = {
            "action_mask": self.action_masks(),
            "reward_terms": dict(zip(REWARD_TERMS, terms, strict=True)),
            "interval_ended": report.interval_ended.item(),
            "illegal_action": report.is_illegal.item(),
        }
        if self._renderer is not None:
            self._renderer.after_step(info["illegal_action"])
        if terminated or truncated:
            info.update(outcome(self.simulator, 0))
        return self._observe(), sum(map(mul, terms, self._weights)), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """(3 J + 1,) legal actions of the current observation; the name is the one sb3-contrib looks for."""
        mask: NDArray[np.bool_] = self.simulator.state.mask[0]
        return mask.copy()

    def view(self) -> ClusterView:
        """Structured access to the cluster, for schedulers (batched, with one environment)."""
        return ClusterView(self.simulator)

    def render(self) -> Any:
        """A table as text (`ansi`) or a Gantt chart as an RGB array (`rgb_array`); None without a render mode."""
        if self._renderer is not None and not self._ever_reset:
            raise ResetNeeded("render: there is no episode; call reset() first")
        return None if self._renderer is None or self.render_mode is None else self._renderer.frame(self.render_mode)

    def _observe(self) -> Observation:
        return {name: values[0] for name, values in self.simulator.observation().items()}
