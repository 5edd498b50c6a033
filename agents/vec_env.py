"""The native vector environment as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import Wrapper
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from dl2env.errors import ConfigError


class SB3VecEnv(VecEnv):
    """Steps a `SchedulingVectorEnv` for SB3, which cannot use Gymnasium's vector environments itself.

    Only environments whose episode just ended get an info of their own, with `terminal_observation`,
    `TimeLimit.truncated` and `episode` (`r` return, `l` decisions, `t` seconds since the start, `mean_jct_s`,
    `num_unfinished`); the others share one empty dictionary per step, since building one each is a large part of a fast
    environment's time.

    Args:
        env: Vector environment with SAME_STEP autoreset, `action_masks()` and the key `interval_ended` in its infos.

    Attributes:
        interval_ended: (B,) whether the last step ended a scheduling interval.
        is_illegal: (B,) whether the action of the last step failed or was masked, which ends the interval.
    """

    def __init__(self, env: VectorEnv) -> None:
        if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise ConfigError(
                "SB3VecEnv needs a vector environment with SAME_STEP autoreset, such as SchedulingVectorEnv"
            )
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.interval_ended = np.zeros(self.num_envs, dtype=np.bool_)
        self.is_illegal = np.zeros(self.num_envs, dtype=np.bool_)
        self._actions = np.zeros(self.num_envs, dtype=np.int64)
        self._native_obs: dict[str, NDArray[np.float32]] | None = None
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._started_s = time.perf_counter()
        self._void = int(env.single_action_space.n) - 1  # type: ignore[attr-defined]
        self._sums: dict[str, float] = {}

    def reset(self) -> VecEnvObs:
        """Starts a new episode everywhere, with the seed given to `seed` since the last reset, if any."""
        # One number for all: the environment derives its episodes from (seed, environment, episode).
        obs, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self.interval_ended = np.zeros(self.num_envs, dtype=np.bool_)
        self.is_illegal = np.zeros(self.num_envs, dtype=np.bool_)
        self._sums = {}
        self._native_obs = None
        return self._fresh(obs)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Keeps the actions for `step_wait`."""
        self._actions = np.asarray(actions, dtype=np.int64).reshape(self.num_envs)

    def step_wait(self) -> VecEnvStepReturn:
        """Makes the step."""
        obs, rewards, terminated, truncated, infos = self.env.step(self._actions)
        dones = terminated | truncated
        self.interval_ended = np.array(infos["interval_ended"], dtype=np.bool_)
        self.is_illegal = np.array(infos.get("illegal_action", self.is_illegal & False), dtype=np.bool_)
        self._returns += rewards
        self._lengths += 1
        self._count(infos)
        listed: list[dict[str, Any]] = [{}] * self.num_envs
        for b in np.flatnonzero(dones):
            listed[b] = self._final_info(int(b), bool(truncated[b] and not terminated[b]), infos)
        return self._fresh(obs), np.array(rewards, dtype=np.float32), np.array(dones), listed

    def _final_info(self, b: int, is_truncated: bool, infos: dict[str, Any]) -> dict[str, Any]:
        final = infos.get("final_info", {})
        episode = {
            "r": float(self._returns[b]),
            "l": int(self._lengths[b]),
            "t": time.perf_counter() - self._started_s,
            **{key: final[key][b].item() for key in ("mean_jct_s", "num_unfinished") if key in final},
        }
        self._returns[b] = 0.0
        self._lengths[b] = 0
        return {
            "terminal_observation": infos["final_obs"][b],
            "TimeLimit.truncated": is_truncated,
            "episode": episode,
        }

    def _fresh(self, obs: dict[str, NDArray[np.float32]]) -> VecEnvObs:
        """The observation in memory that the next step leaves alone: SB3 stores it only after that step."""
        last, self._native_obs = self._native_obs, obs
        if last is None:
            return {name: values.copy() for name, values in obs.items()}
        return {k: v.copy() if np.may_share_memory(v, last[k]) else v for k, v in obs.items()}

    def _count(self, infos: dict[str, Any]) -> None:
        sums = self._sums
        counts: dict[str, NDArray[Any]] = {
            "void": self._actions == self._void,
            "intervals": self.interval_ended,
            "illegal": infos.get("illegal_action", np.zeros(0)),
        }
        for name, values in infos.get("reward_terms", {}).items():
            if not name.startswith("_"):
                counts[f"reward_{name}"] = values
        for name, values in counts.items():
            sums[name] = sums.get(name, 0.0) + float(values.sum())
        sums["decisions"] = sums.get("decisions", 0.0) + self.num_envs

    def pop_statistics(self) -> dict[str, float]:
        """Averages over the decisions since the last call, then starts counting anew.

        Returns:
            `void_share`, `illegal_share`, `decisions_per_interval` and, per reward term, `reward_<term>` per decision;
            empty if there was no decision.
        """
        sums, self._sums = self._sums, {}
        decisions = sums.pop("decisions", 0.0)
        if decisions == 0.0:
            return {}
        intervals, void, illegal = (sums.pop(name) for name in ("intervals", "void", "illegal"))
        return {
            "void_share": void / decisions,
            "illegal_share": illegal / decisions,
            "decisions_per_interval": decisions / max(intervals, 1.0),
            **{name: total / decisions for name, total in sums.items()},
        }

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of the vector environment, once per environment asked for."""
        return [getattr(self.env, attr_name)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Sets an attribute of the vector environment."""
        if len(self._chosen(indices)) != self.num_envs:
            raise NotImplementedError("the environments share their attributes; set them for all")
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Rows of what a method of the vector environment returns, one per environment asked for."""
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [None if result is None else result[i] for i in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: type[Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """No environment is wrapped."""
        return [False] * len(self._chosen(indices))

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """One rendered frame per environment."""
        frames: Any = self.env.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def _chosen(self, indices: VecEnvIndices) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return list(indices) if isinstance(indices, Iterable) else [indices]

    def state(self) -> dict[str, NDArray[Any]] | None:
        """Plain arrays from which `restore` continues step for step; None if the environment offers no snapshot."""
        simulator, episodes = getattr(self.env, "simulator", None), getattr(self.env, "episodes", None)
        if simulator is None or episodes is None or self._native_obs is None:
            return None
        snapshot = simulator.snapshot()
        counters = episodes.state()
        return {
            **{f"simulator/{name}": values for name, values in snapshot.arrays.items()},
            "is_done": snapshot.is_done,
            # 128-bit seeds fit no integer array.
            "seeds": np.array([str(seed) for seed in counters["seeds"]]),
            "next_episode": np.array(counters["next_episode"]),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> VecEnvObs:
        """Continues from a `state` of an environment with the same configuration and size; returns the observation."""
        simulator = self.env.simulator  # type: ignore[attr-defined]
        arrays = {name.partition("/")[2]: values for name, values in state.items() if name.startswith("simulator/")}
        snapshot = type(simulator.snapshot())(arrays, state["is_done"])
        self.env.reset(seed=0)  # so that the environment knows it has been started
        simulator.restore(snapshot)
        counters = {"seeds": [int(seed) for seed in state["seeds"]], "next_episode": state["next_episode"].tolist()}
        self.env.episodes.restore(counters)  # type: ignore[attr-defined]
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._sums = {}
        observe = getattr(self.env, "observe", simulator.observation)
        return self._fresh(observe())
