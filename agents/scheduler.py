"""Trained networks as schedulers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from agents.checkpoint import CheckpointError, CheckpointInfo, load_network
from agents.masked import masked_sample
from agents.networks import ObservationShape, SchedulingNetwork
from agents.observations import observe
from dl2env.config import EnvConfig, ObservationConfig
from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError

if TYPE_CHECKING:
    from dl2env.schedulers.base import ClusterView, Observation

_MAX_BATCH = 512
"""Rows of one forward pass; more would only leave the cache."""


class NetworkScheduler:
    """A network that decides, by its most probable action or by sampling.

    It draws from its own generator, so evaluating during training does not change the training.

    Args:
        network: The network; used as it is at each decision, so a network in training may be passed.
        deterministic: Take the most probable action instead of sampling.
        seed: Seeds the sampling.
        name: What tables call it.
    """

    def __init__(
        self, network: SchedulingNetwork, deterministic: bool = False, seed: int = 0, name: str = "network"
    ) -> None:
        self.name = name
        self.network = network
        self.deterministic = deterministic
        self._device = next(network.parameters()).device
        self._generator = torch.Generator(self._device).manual_seed(seed)

    @torch.no_grad()
    def act(
        self, observation: Observation, action_mask: NDArray[np.bool_], view: ClusterView | None = None
    ) -> NDArray[np.int64]:
        """Decides.

        Args:
            observation: `jobs` (B, J, F) and `cluster` (B, C).
            action_mask: (B, 3 J + 1) legal actions.
            view: Needed by networks that read another observation than the environment's own.

        Returns:
            (B,) legal actions.

        Raises:
            ConfigError: The network cannot read observations of this shape.
        """
        if self.network.config.observation != "native":
            if view is None:
                raise ConfigError(
                    f"scheduler {self.name!r} reads the observation {self.network.config.observation!r}; pass the view"
                )
            observation = observe(self.network.config, view.simulator)
        jobs, cluster = observation["jobs"], observation["cluster"]
        self.network.check_shape(ObservationShape(jobs.shape[1], jobs.shape[2], cluster.shape[1]))
        actions = np.empty(len(jobs), dtype=np.int64)
        for start in range(0, len(jobs), _MAX_BATCH):
            rows = slice(start, start + _MAX_BATCH)
            actions[rows] = self._act(jobs[rows], cluster[rows], action_mask[rows])
        return actions

    def _act(
        self, jobs: NDArray[np.float32], cluster: NDArray[np.float32], mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        device = self._device
        logits = self.network.logits(torch.as_tensor(jobs, device=device), torch.as_tensor(cluster, device=device))
        scores = logits.masked_fill_(~torch.as_tensor(mask, device=device), -1e8)
        chosen = scores.argmax(dim=1) if self.deterministic else masked_sample(scores, self._generator)
        return np.asarray(chosen.cpu().numpy())


class CheckpointScheduler(NetworkScheduler):
    """A saved network that decides; see `agents.checkpoint`.

    Args:
        path: Checkpoint folder.
        deterministic: Take the most probable action instead of sampling.
        seed: Seeds the sampling.
        name: What tables call it; default: the name of the folder.
        window: Job slots to run with; default: as in training. Only equivariant networks take another number.

    Attributes:
        info: What the checkpoint says about itself.

    Raises:
        CheckpointError: The folder holds no readable checkpoint.
    """

    def __init__(
        self,
        path: str | Path,
        deterministic: bool = False,
        seed: int = 0,
        name: str | None = None,
        window: int | None = None,
    ) -> None:
        network, self.info = load_network(Path(path))
        self._path = Path(path)
        self._window = window
        super().__init__(network, deterministic, seed, name or Path(path).resolve().name)

    def configure(self, config: EnvConfig) -> EnvConfig:
        """The configuration to run it under: the observation it was trained on."""
        try:
            observation = trained_observation(self.info, config)
        except (ConfigError, KeyError) as error:
            raise CheckpointError(
                f"{self._path / 'config.json'}: env.observation cannot be read ({error}); restore the file"
            ) from error
        if self._window is not None:
            observation = dataclasses.replace(observation, window=self._window)
        return dataclasses.replace(config, observation=observation)


def trained_observation(info: CheckpointInfo, config: EnvConfig) -> ObservationConfig:
    """Observation that a checkpoint's network reads, for a run under `config`."""
    observation: ObservationConfig = config.observation
    if info.env is not None:
        observation = config_from_dict(ObservationConfig, info.env["observation"], "checkpoint env.observation")
    return observation
