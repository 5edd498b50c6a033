"""The observation of the DL2 paper, and that of its released code, as wrappers of the environments.

Both are raw (not normalised) and know neither the cluster nor the speeds; only the first J jobs by arrival are seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dl2env.envs.scheduling_env import Observation, SchedulingEnv
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from dl2env.sim.simulator import ClusterSimulator

Layout = Literal["paper", "released"]

PAPER_COLUMNS = ("intervals_run", "remaining_epochs", "dominant_share", "workers", "ps")
"""Columns of layout `paper` after the L columns of the one-hot type."""

RELEASED_ROWS = ("type", "intervals_since_arrival", "remaining_fraction", "dominant_share", "workers", "ps")
"""Rows of layout `released`."""

FlatObservation = NDArray[np.float64]


class PaperState:
    """Reads the paper's observation from a simulator.

    Layouts, J job slots and L job types; columns or rows of empty slots are 0:

    - `paper` (J, L + 5): one-hot type, intervals the job has run, remaining epochs as the user estimates them, the
      dominant share, workers and PSs of this interval.
    - `released` (6, J): the number of the type from 1, intervals since arrival, 1 - epochs done / epochs (negative when
      a job needs more epochs than its user said), then as above.

    They are float64, so that the released state is met to the last digit.

    Args:
        simulator: The simulator.
        layout: `paper` or `released`.

    Raises:
        ConfigError: Unknown layout.
    """

    def __init__(self, simulator: ClusterSimulator, layout: Layout) -> None:
        if layout not in get_args(Layout):
            raise ConfigError(f"layout={layout!r} is unknown; choose one of: {', '.join(get_args(Layout))}")
        self._simulator = simulator
        self._layout = layout
        self._num_types = len(simulator.speed.type_names)

    def space(self) -> spaces.Box:
        """Space of one environment's observation."""
        config = self._simulator.config
        J, L = self._simulator.window, self._num_types
        intervals, max_workers, max_ps = (
            float(config.dynamics.max_intervals),
            float(config.workload.max_workers),
            float(config.workload.max_ps),
        )
        if self._layout == "paper":
            high = np.array([1.0] * L + [intervals, np.inf, 1.0, max_workers, max_ps])
            return spaces.Box(0.0, np.tile(high, (J, 1)), dtype=np.float64)
        low = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, 0.0])
        high = np.array([float(L), intervals, 1.0, 1.0, max_workers, max_ps])
        return spaces.Box(np.tile(low[:, None], J), np.tile(high[:, None], J), dtype=np.float64)

    def read(self, env_idx: NDArray[np.integer] | slice = slice(None)) -> FlatObservation:
        """Fresh observations of the given environments (all by default), stacked along the first axis."""
        state = self._simulator.state
        window = state.window[env_idx]
        is_present = window >= 0
        row = np.maximum(window, 0)
        jobs = state.jobs[env_idx]
        shown = jobs[np.arange(len(row))[:, None], row]  # one look-up of whole records is faster than one per field

        def of_job(field: str) -> NDArray[np.float64]:
            return shown[field].astype(np.float64)

        epochs, epochs_done = of_job("epochs"), of_job("epochs_done")
        held = [of_job("dominant_share"), of_job("workers"), of_job("ps")]
        if self._layout == "paper":
            one_hot = np.eye(self._num_types)[of_job("type").astype(np.int64)]
            columns = [of_job("intervals_run"), np.maximum(epochs - epochs_done, 0.0), *held]
            observation = np.concatenate([one_hot, np.stack(columns, axis=2)], axis=2)
            observation[~is_present] = 0.0
            return observation
        # Empty slots read job 0, or zeroed memory: nothing to divide by.
        fraction = 1.0 - np.divide(epochs_done, epochs, out=np.ones_like(epochs), where=is_present)
        interval_s = float(state.rules["interval_s"][0])
        now_s = state.env["interval"][env_idx] * interval_s
        age = (now_s[:, None] - of_job("arrival_s")) / interval_s
        observation = np.stack([of_job("type") + 1.0, age, fraction, *held], axis=1)
        observation *= is_present[:, None]
        return observation


class PaperObservation(gymnasium.ObservationWrapper[FlatObservation, np.int64, Observation], RecordConstructorArgs):
    """A `SchedulingEnv` with the observation of the paper, see `PaperState`.

    Args:
        env: The environment, possibly wrapped by wrappers that leave the observation alone.
        layout: `paper` or `released`.

    Raises:
        ConfigError: Unknown layout, or another kind of environment.
    """

    def __init__(self, env: gymnasium.Env[Observation, np.int64], layout: Layout = "paper") -> None:
        RecordConstructorArgs.__init__(self, layout=layout)
        gymnasium.ObservationWrapper.__init__(self, env)
        base = env.unwrapped
        if not isinstance(base, SchedulingEnv):
            raise ConfigError(f"PaperObservation wraps SchedulingEnv, not {type(base).__name__}")
        self._base = base
        self._state = PaperState(base.simulator, layout)
        self.observation_space: Any = self._state.space()

    def observation(self, observation: Observation) -> FlatObservation:
        """The paper's observation of the present state, whatever the environment's own."""
        flat: FlatObservation = self._state.read()[0]
        return flat

    def action_masks(self) -> NDArray[np.bool_]:
        """(3 J + 1,) legal actions."""
        return self._base.action_masks()


if TYPE_CHECKING:
    _VectorWrapper = VectorWrapper[FlatObservation, NDArray[np.int64], Observation, NDArray[np.int64], NDArray[Any]]
else:
    _VectorWrapper = VectorWrapper  # takes no type arguments before Gymnasium 1.4


class PaperVectorObservation(_VectorWrapper):
    """A `SchedulingVectorEnv` with the observation of the paper, see `PaperState`.

    Args:
        env: The environment, possibly wrapped by wrappers that leave the observation alone.
        layout: `paper` or `released`.

    Raises:
        ConfigError: Unknown layout, or another kind of environment.
    """

    def __init__(self, env: VectorEnv[Observation, NDArray[np.int64], NDArray[Any]], layout: Layout = "paper") -> None:
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, SchedulingVectorEnv):
            raise ConfigError(f"PaperVectorObservation wraps SchedulingVectorEnv, not {type(base).__name__}")
        self._base = base
        self._state = PaperState(base.simulator, layout)
        self.single_observation_space = self._state.space()
        self.observation_space = batch_space(self.single_observation_space, base.num_envs)
        # The last observation of an episode must be read before the next one starts, within the base's step.
        self._ended: dict[int, FlatObservation] = {}
        base.before_autoreset.append(self._keep_final)

    def _keep_final(self, ended: NDArray[np.int64]) -> None:
        self._ended = dict(zip(ended.tolist(), self._state.read(ended), strict=True))

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FlatObservation, dict[str, Any]]:
        """Starts a new episode everywhere."""
        _, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._state.read(), infos

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[FlatObservation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Takes one decision in each environment; `final_obs` of ended episodes has the paper's form too."""
        _, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            for b, observation in self._ended.items():
                infos["final_obs"][b] = observation
        return self._state.read(), rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """(B, 3 J + 1) legal actions."""
        return self._base.action_masks()
