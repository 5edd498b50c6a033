from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.checkpoint import CheckpointError, save_network
from agents.networks import NetworkConfig, ObservationShape, build_network
from agents.scheduler import CheckpointScheduler, NetworkScheduler
from dl2env.envs.vector_env import SchedulingVectorEnv
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.scenarios import get_scenario
from dl2env.schedulers.base import Scheduler, configured
from tests.agents.learners import SMALL
from tests.agents.picking_env import CLUSTER, FEATURES, PickingEnv
from tests.agents.worlds import small_config


def network(config: NetworkConfig = SMALL, num_slots: int = 4) -> Any:
    torch.manual_seed(0)
    net = build_network(config, ObservationShape(num_slots, FEATURES, CLUSTER))
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(0.0, 0.3)
    return net


def test_actions_are_legal_and_reproducible() -> None:
    env = PickingEnv(1100)  # more than one forward pass
    obs, _ = env.reset(seed=0)
    masks = env.action_masks()
    net = network()
    for deterministic in (False, True):
        first, second = (NetworkScheduler(net, deterministic, seed=3).act(obs, masks, None) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert first.dtype == np.int64 and masks[np.arange(1100), first].all()
    logits = net.logits(torch.from_numpy(obs["jobs"]), torch.from_numpy(obs["cluster"])).detach().numpy()
    np.testing.assert_array_equal(first, np.where(masks, logits, -np.inf).argmax(axis=1))
    other = NetworkScheduler(net, seed=4).act(obs, masks, None)
    assert not np.array_equal(other, NetworkScheduler(net, seed=3).act(obs, masks, None))


def test_sampling_leaves_the_global_generator_alone() -> None:
    env = PickingEnv(8)
    obs, _ = env.reset(seed=0)
    before = torch.get_rng_state()
    NetworkScheduler(network()).act(obs, env.action_masks())
    assert torch.equal(torch.get_rng_state(), before)


def test_an_equivariant_network_decides_in_other_windows() -> None:
    env = PickingEnv(16, num_slots=9)
    obs, _ = env.reset(seed=0)
    actions = NetworkScheduler(network(num_slots=4)).act(obs, env.action_masks())
    assert env.action_masks()[np.arange(16), actions].all()
    flat = network(NetworkConfig(kind="flat", hidden_width=8), num_slots=4)
    with pytest.raises(ConfigError, match="observation.window=4"):
        NetworkScheduler(flat).act(obs, env.action_masks())


def test_a_checkpoint_is_a_scheduler_and_asks_for_its_observation(tmp_path: Path) -> None:
    config = small_config(window=4)
    native = SchedulingVectorEnv(2, config)
    jobs, cluster = (native.single_observation_space[k].shape for k in ("jobs", "cluster"))  # type: ignore[index]
    save_network(tmp_path / "agent", build_network(SMALL, ObservationShape(*jobs, *cluster)), env_config=config)
    scheduler = CheckpointScheduler(tmp_path / "agent", deterministic=True)
    assert isinstance(scheduler, Scheduler) and scheduler.name == "agent"
    # It asks for the window it was trained with, or for the one it is told to use.
    wide = small_config(window=6)
    assert configured(scheduler, wide) == config
    assert configured(CheckpointScheduler(tmp_path / "agent", window=6), config) == wide


def test_a_checkpoint_runs_in_the_evaluation(tmp_path: Path) -> None:
    scenario = get_scenario("toy-v1")
    native = SchedulingVectorEnv(1, scenario="toy-v1")
    jobs, cluster = (native.single_observation_space[k].shape for k in ("jobs", "cluster"))  # type: ignore[index]
    save_network(
        tmp_path / "agent", build_network(SMALL, ObservationShape(*jobs, *cluster)), env_config=scenario.config
    )
    result = run_scheduler(
        CheckpointScheduler(tmp_path / "agent"), scenario.config, scenario.workloads("test", 2), batch=1
    )
    assert result.name == "agent" and not result.num_illegal.any()


def test_a_damaged_configuration_is_named_with_its_file(tmp_path: Path) -> None:
    config = small_config()
    save_network(tmp_path / "agent", build_network(SMALL, ObservationShape(4, 5, 2)), env_config=config)
    file = tmp_path / "agent" / "config.json"
    content = json.loads(file.read_text())
    for damaged in ({"window": -3}, {"windows": 3}):
        file.write_text(json.dumps({**content, "env": {"observation": damaged}}))
        with pytest.raises(CheckpointError, match=r"agent/config\.json: env\.observation .* restore the file"):
            configured(CheckpointScheduler(tmp_path / "agent"), config)
    file.write_text(json.dumps({**content, "env": {}}))
    with pytest.raises(CheckpointError, match=r"env\.observation cannot be read"):
        configured(CheckpointScheduler(tmp_path / "agent"), config)
