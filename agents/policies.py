"""The networks as policies of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from agents.masked import log_prob_and_entropy, masked_log_softmax, masked_sample
from agents.networks import NetworkConfig, ObservationShape, SchedulingNetwork, build_network
from dl2env.errors import ConfigError

Observation = dict[str, Tensor]


def observation_shape(space: spaces.Space) -> ObservationShape:
    """Sizes of an observation space.

    Raises:
        ConfigError: The space is not `Dict(jobs=Box(J, F), cluster=Box(C,))`.
    """
    boxes = space.spaces if isinstance(space, spaces.Dict) else {}
    shapes = {name: box.shape or () for name, box in boxes.items()}
    if set(shapes) != {"jobs", "cluster"} or len(shapes["jobs"]) != 2 or len(shapes["cluster"]) != 1:
        raise ConfigError(
            "these policies read observations Dict(jobs=Box(J, F), cluster=Box(C,)); use dl2env/Scheduling-v0 without "
            "observation wrappers"
        )
    return ObservationShape(*shapes["jobs"], *shapes["cluster"])


class _Untouched(BaseFeaturesExtractor):
    """Stands where SB3 expects a features extractor; the networks read the observation themselves."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, features_dim=1)


class NetworkPolicy(MaskableMultiInputActorCriticPolicy):
    """Base class: everything MaskablePPO asks of a policy, answered by a `SchedulingNetwork`.

    Attributes:
        network: The network.
        generator: Source of the sampled actions (of `forward`; `predict` uses torch's global generator).

    Args:
        observation_space: `Dict(jobs=Box(J, F), cluster=Box(C,))`.
        action_space: `Discrete(3 J + 1)`.
        lr_schedule: Learning rate by remaining progress.
        network: Sizes of the network; its kind must be the class's own.
        optimizer_kwargs: Arguments of Adam besides the learning rate.
    """

    default_network: NetworkConfig
    network: SchedulingNetwork
    generator: torch.Generator

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        network: NetworkConfig | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.network_config = network or self.default_network
        if self.network_config.kind != self.default_network.kind:
            raise ConfigError(
                f"{type(self).__name__} holds {self.default_network.kind} networks; network.kind is "
                f"{self.network_config.kind!r}"
            )
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            features_extractor_class=_Untouched,
            normalize_images=False,
            # One call for all parameters: with tens of small tensors Adam's own Python loop costs more than its sums.
            optimizer_kwargs={"eps": 1e-5, "fused": True, **(optimizer_kwargs or {})},
        )

    def _build(self, lr_schedule: Schedule) -> None:
        shape = observation_shape(self.observation_space)
        if self.action_space != spaces.Discrete(shape.num_actions):
            raise ConfigError(
                f"{shape.num_slots} job slots need Discrete({shape.num_actions}), not {self.action_space}"
            )
        self.network = build_network(self.network_config, shape)
        self.generator = torch.Generator()
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": self._dummy_schedule,
            "network": self.network_config,
            "optimizer_kwargs": self.optimizer_kwargs,
        }

    def forward(  # type: ignore[override]
        self, obs: Observation, deterministic: bool = False, action_masks: NDArray[Any] | Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions (B,), values (B, 1) and log probabilities (B,)."""
        logits, values = self.network(obs["jobs"], obs["cluster"])
        log_probs = masked_log_softmax(logits, self._mask(action_masks, logits))
        actions = log_probs.argmax(dim=1) if deterministic else masked_sample(log_probs, self.generator)
        return actions, values.unsqueeze(1), log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)

    def evaluate_actions(  # type: ignore[override]
        self, obs: Observation, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, 1), log probabilities (B,) of the actions and entropies (B,), differentiable."""
        logits, values = self.network(obs["jobs"], obs["cluster"])
        log_prob, entropy = log_prob_and_entropy(logits, self._mask(action_masks, logits), actions.long())
        return values.unsqueeze(1), log_prob, entropy

    def get_distribution(  # type: ignore[override]
        self, obs: Observation, action_masks: NDArray[Any] | None = None
    ) -> MaskableDistribution:
        """The distribution over actions as SB3's object; `predict` uses it."""
        distribution = self.action_dist.proba_distribution(
            action_logits=self.network.logits(obs["jobs"], obs["cluster"])
        )
        if action_masks is not None:
            distribution.apply_masking(action_masks)
        return distribution

    def predict_values(self, obs: Observation) -> Tensor:  # type: ignore[override]
        """Values (B, 1)."""
        return self.network.values(obs["jobs"], obs["cluster"]).unsqueeze(1)

    def _mask(self, action_masks: NDArray[Any] | Tensor | None, logits: Tensor) -> Tensor:
        if action_masks is None:
            return torch.ones_like(logits, dtype=torch.bool)
        return torch.as_tensor(action_masks, dtype=torch.bool, device=logits.device).reshape(logits.shape)


class EquivariantPolicy(NetworkPolicy):
    """Policy with an `EquivariantNetwork`."""

    default_network = NetworkConfig(kind="equivariant")


class FlatPolicy(NetworkPolicy):
    """Policy with a `FlatNetwork`."""

    default_network = NetworkConfig(kind="flat")


def policy_class(config: NetworkConfig) -> type[NetworkPolicy]:
    """The policy class that holds networks of this kind."""
    return {"equivariant": EquivariantPolicy, "flat": FlatPolicy}[config.kind]
