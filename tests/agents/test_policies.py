from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from agents.networks import NetworkConfig
from agents.policies import EquivariantPolicy, FlatPolicy, NetworkPolicy, observation_shape, policy_class
from dl2env.errors import ConfigError
from tests.agents.learners import SMALL
from tests.agents.picking_env import PickingEnv

ENV = PickingEnv(16)


def policy(kind: str = "equivariant", seed: int = 0) -> NetworkPolicy:
    torch.manual_seed(seed)
    config = NetworkConfig(kind=kind, slot_width=8, context_width=8, hidden_width=8)  # type: ignore[arg-type]
    return policy_class(config)(
        ENV.single_observation_space,
        ENV.single_action_space,
        lambda _: 1e-3,
        network=config,  # type: ignore[arg-type]
    )


def observation(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, torch.Tensor], np.ndarray]:
    obs, _ = ENV.reset(seed=seed)
    return obs, {name: torch.from_numpy(values) for name, values in obs.items()}, ENV.action_masks()


@pytest.mark.parametrize("kind", ["equivariant", "flat"])
def test_acting_and_evaluating_agree(kind: str) -> None:
    net = policy(kind)
    _, obs, masks = observation()
    actions, values, log_prob = net(obs, action_masks=masks)
    again, log_prob_again, entropy = net.evaluate_actions(obs, actions, torch.from_numpy(masks))
    assert values.shape == again.shape == (16, 1) and log_prob.shape == entropy.shape == (16,)
    assert masks[np.arange(16), actions.numpy()].all()
    torch.testing.assert_close(again, values)
    torch.testing.assert_close(log_prob_again, log_prob)
    torch.testing.assert_close(net.predict_values(obs), values)
    distribution = net.get_distribution(obs, masks)
    torch.testing.assert_close(distribution.log_prob(actions), log_prob)
    torch.testing.assert_close(distribution.entropy(), entropy)


def test_predict_keeps_to_the_mask() -> None:
    net = policy()
    obs, tensors, masks = observation()
    for deterministic in (False, True):
        actions, _ = net.predict(obs, deterministic=deterministic, action_masks=masks)
        assert masks[np.arange(16), actions].all()
    best = net.get_distribution(tensors, masks).distribution.probs.argmax(dim=1)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(actions, best.numpy())
    single = {name: values[0] for name, values in obs.items()}
    action, _ = net.predict(single, deterministic=True, action_masks=masks[:1])
    assert action == actions[0]


def test_everything_that_learns_is_in_the_optimizer() -> None:
    net = policy()
    in_optimizer = {id(p) for group in net.optimizer.param_groups for p in group["params"]}
    assert in_optimizer == {id(p) for p in net.parameters()} == {id(p) for p in net.network.parameters()}


def test_same_seed_same_weights() -> None:
    for a, b in zip(policy(seed=1).parameters(), policy(seed=1).parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b) for a, b in zip(policy(seed=1).parameters(), policy(seed=2).parameters(), strict=True)
    )


def test_kinds_and_classes() -> None:
    assert policy_class(NetworkConfig()) is EquivariantPolicy
    assert policy_class(NetworkConfig(kind="flat")) is FlatPolicy
    arguments: Any = (ENV.single_observation_space, ENV.single_action_space, lambda _: 1e-3)
    with pytest.raises(ConfigError, match="FlatPolicy"):
        FlatPolicy(*arguments, network=SMALL)


def test_other_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="Scheduling-v0"):
        observation_shape(spaces.Box(-1, 1, (4,)))
    with pytest.raises(ConfigError, match="Scheduling-v0"):
        observation_shape(spaces.Dict({"jobs": spaces.Box(-1, 1, (4,)), "cluster": spaces.Box(-1, 1, (4,))}))
    with pytest.raises(ConfigError, match=r"Discrete\(13\)"):
        EquivariantPolicy(ENV.single_observation_space, spaces.Discrete(12), lambda _: 1e-3)  # type: ignore[arg-type]
