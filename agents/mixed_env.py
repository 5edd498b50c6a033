"""Environments of several scenarios at once, so that one policy learns in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from agents.vec_env import SB3VecEnv
from dl2env.errors import ConfigError


class MixedVecEnv(SB3VecEnv):
    """Several `SB3VecEnv`s side by side; environments are numbered through.

    Args:
        parts: The environments of each scenario; their observations must have the same form.
        names: Names of the scenarios, for messages.

    Raises:
        ConfigError: The observations differ in form.
    """

    def __init__(self, parts: Sequence[SB3VecEnv], names: Sequence[str]) -> None:
        first = parts[0]
        for part, name in zip(parts, names, strict=True):
            if part.observation_space != first.observation_space or part.action_space != first.action_space:
                raise ConfigError(
                    f"the observations of {name} and {names[0]} differ in form; use the same observation.window, and "
                    "observation.type_encoding=features where the job types differ"
                )
        self.parts = tuple(parts)
        super().__init__(first.env)
        sizes = [part.num_envs for part in parts]
        self.num_envs = sum(sizes)
        self._borders = np.cumsum(sizes)[:-1]
        self.interval_ended = np.zeros(self.num_envs, dtype=np.bool_)
        self.is_illegal = np.zeros(self.num_envs, dtype=np.bool_)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()

    def reset(self) -> VecEnvObs:
        """Starts new episodes everywhere; each part derives a seed of its own from that of the last `seed`."""
        seed = self._seeds[0]
        if seed is not None:
            for part, own in zip(self.parts, np.random.SeedSequence(seed).spawn(len(self.parts)), strict=True):
                part.seed(int(own.generate_state(1)[0]))
        self._reset_seeds()
        self._reset_options()
        observations = [part.reset() for part in self.parts]
        self._read_flags()
        return _joined(observations)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Keeps the actions for `step_wait`."""
        for part, own in zip(self.parts, np.split(np.asarray(actions).reshape(-1), self._borders), strict=True):
            part.step_async(own)

    def step_wait(self) -> VecEnvStepReturn:
        """Makes the step."""
        results = [part.step_wait() for part in self.parts]
        self._read_flags()
        observations, rewards, dones, infos = zip(*results, strict=True)
        listed = [info for own in infos for info in own]
        return _joined(observations), np.concatenate(rewards), np.concatenate(dones), listed

    def _read_flags(self) -> None:
        self.interval_ended = np.concatenate([part.interval_ended for part in self.parts])
        self.is_illegal = np.concatenate([part.is_illegal for part in self.parts])

    def pop_statistics(self) -> dict[str, float]:
        """Means over the environments of the parts' averages."""
        found = [(part.num_envs, part.pop_statistics()) for part in self.parts]
        total = sum(size for size, own in found if own)
        return {name: sum(size * own[name] for size, own in found if own) / total for name in found[0][1]}

    def close(self) -> None:
        """Closes the environments."""
        for part in self.parts:
            part.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of each environment asked for."""
        every = [value for part in self.parts for value in part.get_attr(attr_name)]
        return [every[i] for i in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Sets an attribute of all environments."""
        if len(self._chosen(indices)) != self.num_envs:
            raise NotImplementedError("the environments share their attributes; set them for all")
        for part in self.parts:
            part.set_attr(attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What a method returns for each environment asked for."""
        every = [row for part in self.parts for row in part.env_method(method_name, *method_args, **method_kwargs)]
        return [every[i] for i in self._chosen(indices)]

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """One rendered frame per environment."""
        return [image for part in self.parts for image in part.get_images()]

    def state(self) -> dict[str, NDArray[Any]] | None:
        """The parts' states, or None if one offers none."""
        found: dict[str, NDArray[Any]] = {}
        for k, part in enumerate(self.parts):
            own = part.state()
            if own is None:
                return None
            found |= {f"part{k}/{name}": values for name, values in own.items()}
        return found

    def restore(self, state: dict[str, NDArray[Any]]) -> VecEnvObs:
        """Continues from a `state`; returns the observation."""
        observations = []
        for k, part in enumerate(self.parts):
            prefix = f"part{k}/"
            own = {name.removeprefix(prefix): values for name, values in state.items() if name.startswith(prefix)}
            observations.append(part.restore(own))
        return _joined(observations)


def _joined(observations: Sequence[Any]) -> dict[str, NDArray[np.float32]]:
    return {name: np.concatenate([own[name] for own in observations]) for name in observations[0]}
