"""Actor-critic networks: a permutation-equivariant one for any number of jobs, and the flat one of the DL2 paper.

Both map an observation (`jobs` (B, J, F), `cluster` (B, C)) to logits (B, 3 J + 1) and a value (B,). Letters as in
`slot_layers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from agents.slot_layers import DecodeSlots, EncodeSlots, Workspace
from dl2env.errors import ConfigError

NetworkKind = Literal["equivariant", "flat"]
ObservationKind = Literal["native", "paper", "released"]
ObservationScale = Literal["raw", "log"]

ACTIONS_PER_SLOT = 3
_SUM_SCALE = 0.05
"""Scale of the summed encodings in the context, so that with about 20 jobs a sum is of the size of a mean."""


@dataclass(frozen=True)
class NetworkConfig:
    """Kind and sizes of a network.

    Attributes:
        kind: `equivariant` (a job's logits depend on the job and the set of the others, not on the order) or `flat`
            (the multi-layer perceptron of the DL2 paper; tied to one J).
        slot_width: Width D of the layers per job slot (`equivariant`).
        context_width: Width H of the layers per sample (`equivariant`).
        hidden_width: Width of each hidden layer (`flat`). Paper: 256.
        hidden_layers: Hidden layers of each of the two networks (`flat`). Paper: 2.
        observation: What the network reads: `native` (the environment's own observation), `paper` or `released` (those
            of the DL2 paper and of its released code, see `dl2env.envs.paper_observation`).
        gain_prior: How strongly an untrained network (`equivariant`, `native`) follows what the speed model foretells:
            what each action's logit gets per unit of its gain ahead (the last columns of a job's observation), void's
            staying at 0. It is the start of three weights that are learned like all others. 0: no such path.
        observation_scale: Of the numbers in the observations `paper` and `released`: `raw` as in DL2, or `log`
            (log(1 + x), with the sign of x), which brings epochs and counts to one size.
    """

    kind: NetworkKind = "equivariant"
    slot_width: int = 48
    context_width: int = 96
    hidden_width: int = 256
    hidden_layers: int = 2
    gain_prior: float = 0.0
    observation: ObservationKind = "native"
    observation_scale: ObservationScale = "raw"

    def __post_init__(self) -> None:
        choices = {"kind": NetworkKind, "observation": ObservationKind, "observation_scale": ObservationScale}
        for name, known in choices.items():
            if getattr(self, name) not in get_args(known):
                raise ConfigError(
                    f"network.{name}={getattr(self, name)!r} is unknown; choose one of: {', '.join(get_args(known))}"
                )
        for name in ("slot_width", "context_width", "hidden_width", "hidden_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"network.{name}={getattr(self, name)} must be at least 1")
        if not 0.0 <= self.gain_prior < math.inf:
            raise ConfigError(f"network.gain_prior={self.gain_prior} must be a finite number, at least 0")
        if self.gain_prior > 0 and (self.kind, self.observation) != ("equivariant", "native"):
            raise ConfigError("network.gain_prior needs network.kind=equivariant and network.observation=native")


@dataclass(frozen=True)
class ObservationShape:
    """Sizes of an observation.

    Attributes:
        num_slots: J, job slots.
        slot_features: F, features of a slot.
        cluster_features: C, features of the cluster.
    """

    num_slots: int
    slot_features: int
    cluster_features: int

    @property
    def num_actions(self) -> int:
        """3 J + 1."""
        return ACTIONS_PER_SLOT * self.num_slots + 1


class ValueHead(nn.Linear):
    """Linear value output in the units of the returns, whose weights live in normalised units.

    The value is `mean + std * (w x + b)`. Moving the statistics adapts w and b so that no value changes (PopArt, van
    Hasselt et al., arXiv 1602.07714): what is learned survives, and the gradient stays of one size whatever the unit of
    the reward.
    """

    mean: Tensor
    std: Tensor
    num_rescales: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("num_rescales", torch.zeros((), dtype=torch.int64))

    def forward(self, features: Tensor) -> Tensor:
        """(B,) values from (B, width) features."""
        return super().forward(features).squeeze(1) * self.std + self.mean

    @torch.no_grad()
    def rescale(self, returns: Tensor, rate: float = 0.1) -> None:
        """Moves the statistics towards those of `returns` without changing any value.

        Args:
            returns: Returns seen lately, any shape, at least two.
            rate: Weight of the new statistics; the first calls average with equal weights instead.
        """
        rate = max(rate, 1.0 / (int(self.num_rescales) + 1))
        mean = torch.lerp(self.mean, returns.mean(), rate)
        std = torch.lerp(self.std, returns.std().clamp_min(1e-4), rate)
        self.weight.mul_(self.std / std)
        self.bias.copy_((self.bias * self.std + self.mean - mean) / std)
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.num_rescales += 1


class SchedulingNetwork(nn.Module):
    """Base class of the networks.

    Attributes:
        config: Kind and sizes.
        shape: Observation the network was built for; an equivariant network also takes any other J.
        value_head: Output layer of the value.
    """

    value_head: ValueHead

    def __init__(self, config: NetworkConfig, shape: ObservationShape) -> None:
        super().__init__()
        self.config = config
        self.shape = shape

    def forward(self, jobs: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, 3 J + 1) and values (B,)."""
        raise NotImplementedError

    def logits(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Logits (B, 3 J + 1) alone."""
        return self.forward(jobs, cluster)[0]

    def values(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Values (B,) alone."""
        return self.forward(jobs, cluster)[1]

    def shift_void(self, delta: float) -> None:
        """Adds a constant to the logit of void, whatever the observation."""
        raise NotImplementedError

    def scale_logits(self, factor: float) -> None:
        """Multiplies all logits by a factor, whatever the observation."""
        raise NotImplementedError

    def shift_prior(self, delta: float) -> None:
        """Adds a constant to the weights of the gains; networks without that path have nothing to change."""

    def check_shape(self, shape: ObservationShape) -> None:
        """Makes sure that the network can read observations of this shape.

        Raises:
            ConfigError: It cannot.
        """
        own = self.shape
        if (shape.slot_features, shape.cluster_features) != (own.slot_features, own.cluster_features):
            raise ConfigError(
                f"the network reads {own.slot_features} features per job and {own.cluster_features} of the cluster, "
                f"the environment has {shape.slot_features} and {shape.cluster_features}; use the job types and the "
                "observation.type_encoding that it was trained with"
            )
        if self.config.kind == "flat" and shape.num_slots != own.num_slots:
            raise ConfigError(
                f"a flat network works with the window it was trained with ({own.num_slots} job slots, not "
                f"{shape.num_slots}); set observation.window={own.num_slots} or train an equivariant network"
            )


class EquivariantNetwork(SchedulingNetwork):
    """Per-slot encoder, pool over the present slots, and the pooled context given back to every slot.

    A slot is present when one of its features is positive; rows of empty slots are all zero. Mean, maximum and sum of
    the slots' encodings form the context together with the cluster's features; from it come the value, void's logit
    and an offset of every slot's last hidden layer. Nothing depends on J or on the number of jobs.
    """

    def __init__(self, config: NetworkConfig, shape: ObservationShape) -> None:
        super().__init__(config, shape)
        width, context = config.slot_width, config.context_width
        self.slot_input = nn.Linear(shape.slot_features, width)
        self.cluster_input = nn.Linear(shape.cluster_features, width, bias=False)
        self.slot_hidden = nn.Linear(width, width)
        self.context_hidden = nn.Linear(3 * width + shape.cluster_features, context)
        self.context_to_slots = nn.Linear(context, width)
        self.slot_output = nn.Linear(width, width, bias=False)
        self.slot_logits = nn.Linear(width, ACTIONS_PER_SLOT)
        self.void_logit = nn.Linear(context, 1)
        if config.gain_prior > 0:
            self.gain_weight = nn.Parameter(torch.full((ACTIONS_PER_SLOT,), config.gain_prior))
        self.value_hidden = nn.Linear(context, context)
        self.value_head = ValueHead(context)
        _initialize(self, logits=(self.slot_logits, self.void_logit))
        self._workspace = Workspace()

    def forward(self, jobs: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, 3 J + 1) and values (B,)."""
        encoded, context = self._encode(jobs, cluster)
        return self._decode(encoded, context, jobs), self._value(context)

    def logits(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Logits (B, 3 J + 1) alone."""
        return self._decode(*self._encode(jobs, cluster), jobs)

    def values(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Values (B,) alone."""
        return self._value(self._encode(jobs, cluster)[1])

    def shift_void(self, delta: float) -> None:
        """Adds a constant to the logit of void."""
        with torch.no_grad():
            self.void_logit.bias.add_(delta)

    def scale_logits(self, factor: float) -> None:
        """Multiplies all logits by a factor."""
        _scale([*self.slot_logits.parameters(), *self.void_logit.parameters()], factor)
        if self.config.gain_prior > 0:
            _scale([self.gain_weight], factor)

    def shift_prior(self, delta: float) -> None:
        """Adds a constant to the weights of the gains."""
        if self.config.gain_prior > 0:
            with torch.no_grad():
                self.gain_weight.add_(delta)

    def _encode(self, jobs: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
        """Slot encodings (N, D) and context (B, H)."""
        present = (jobs.amax(dim=2) > 0).to(jobs.dtype)
        encoded, total, peak = EncodeSlots.apply(
            self._workspace,
            jobs,
            cluster,
            present,
            self.slot_input.weight,
            self.slot_input.bias,
            self.cluster_input.weight,
            self.slot_hidden.weight,
            self.slot_hidden.bias,
        )
        mean = total / present.sum(dim=1, keepdim=True).clamp_min(1.0)
        pooled = torch.cat([mean, peak, total * _SUM_SCALE, cluster], dim=1)
        return encoded, self.context_hidden(pooled).relu()

    def _decode(self, encoded: Tensor, context: Tensor, jobs: Tensor) -> Tensor:
        slots = DecodeSlots.apply(
            self._workspace,
            encoded,
            self.context_to_slots(context),
            self.slot_output.weight,
            self.slot_logits.weight,
            self.slot_logits.bias,
        )
        slots = slots.view(context.shape[0], -1, ACTIONS_PER_SLOT)
        if self.config.gain_prior > 0:
            slots = slots + jobs[:, :, -ACTIONS_PER_SLOT:] * self.gain_weight
        return torch.cat([slots.flatten(1), self.void_logit(context)], dim=1)

    def _value(self, context: Tensor) -> Tensor:
        return cast(Tensor, self.value_head(self.value_hidden(context).relu()))


class FlatNetwork(SchedulingNetwork):
    """Two separate perceptrons on the flattened observation, one for the policy and one for the value (DL2 paper)."""

    def __init__(self, config: NetworkConfig, shape: ObservationShape) -> None:
        super().__init__(config, shape)
        inputs = shape.num_slots * shape.slot_features + shape.cluster_features
        self.policy_body = _perceptron(inputs, config.hidden_width, config.hidden_layers)
        self.value_body = _perceptron(inputs, config.hidden_width, config.hidden_layers)
        self.policy_head = nn.Linear(config.hidden_width, shape.num_actions)
        self.value_head = ValueHead(config.hidden_width)
        _initialize(self, logits=(self.policy_head,))

    def forward(self, jobs: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, 3 J + 1) and values (B,)."""
        return self.logits(jobs, cluster), self.values(jobs, cluster)

    def logits(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Logits (B, 3 J + 1) alone."""
        return cast(Tensor, self.policy_head(self.policy_body(_flatten(jobs, cluster))))

    def values(self, jobs: Tensor, cluster: Tensor) -> Tensor:
        """Values (B,) alone."""
        return cast(Tensor, self.value_head(self.value_body(_flatten(jobs, cluster))))

    def shift_void(self, delta: float) -> None:
        """Adds a constant to the logit of void."""
        with torch.no_grad():
            self.policy_head.bias[-1] += delta

    def scale_logits(self, factor: float) -> None:
        """Multiplies all logits by a factor."""
        _scale([*self.policy_head.parameters()], factor)


def build_network(config: NetworkConfig, shape: ObservationShape) -> SchedulingNetwork:
    """A new network with random weights from torch's global generator."""
    kinds = {"equivariant": EquivariantNetwork, "flat": FlatNetwork}
    return kinds[config.kind](config, shape)


@torch.no_grad()
def _scale(parameters: Iterable[Tensor], factor: float) -> None:
    for parameter in parameters:
        parameter.mul_(factor)


def _flatten(jobs: Tensor, cluster: Tensor) -> Tensor:
    return torch.cat([jobs.flatten(1), cluster], dim=1)


def _perceptron(inputs: int, width: int, layers: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for i in range(layers):
        modules += [nn.Linear(inputs if i == 0 else width, width), nn.ReLU()]
    return nn.Sequential(*modules)


def _initialize(network: SchedulingNetwork, logits: tuple[nn.Linear, ...]) -> None:
    """Orthogonal weights; small ones before the logits, so that training starts from a nearly uniform policy."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            gain = 0.01 if module in logits else 1.0 if module is network.value_head else math.sqrt(2.0)
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
