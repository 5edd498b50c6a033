"""A small world with a short stream, and settings of runs on it."""

from __future__ import annotations

from typing import Any

from agents.online.stream import Segment, Stream, StreamConfig, build_stream
from dl2env.config import DynamicsConfig, EnvConfig
from dl2env.scenarios import Scenario
from tests.agents.worlds import small_config

SEGMENTS = (Segment(12, ("resnet-50", "vgg-16"), 0.5), Segment(10, (), 1.0))

SETTINGS: dict[str, Any] = {
    "seed": 3,
    "workload": {"max_workers": 3, "max_ps": 3, "sizes": {"mean_s": 3000.0}},
    "env": {"cluster": {"servers": [{"count": 3, "gpu_type": "gtx-1080ti"}]}, "observation": {"window": 4}},
    "agent": {"slot_width": 8, "context_width": 8},
    "warmup": {"num_envs": 4, "num_decisions": 512, "epochs": 1, "minibatch_size": 128},
    "ppo": {"num_envs": 3, "steps_per_update": 16, "minibatch_size": 48, "epochs": 1, "checkpoint_every": 2},
    "dl2": {"num_envs": 1, "learning_starts": 16, "batch_size": 16, "replay_size": 64, "checkpoint_every": 3},
    "stream": {
        "segments": [
            {"intervals": 14, "types": ["resnet-50", "vgg-16"], "rate": 0.5},
            {"intervals": 10, "rate": 1.0},
        ],
        "drain_intervals": 200,
    },
    "online": {"guard_horizon": 30, "baselines": ["void"], "window": 5},
}


def changed(**groups: dict[str, Any]) -> dict[str, Any]:
    return {**SETTINGS, **{group: {**SETTINGS[group], **values} for group, values in groups.items()}}


def world(**dynamics: Any) -> Scenario:
    config: EnvConfig = small_config()
    own = DynamicsConfig(**{"speed_noise": 0.3, **dynamics})
    small = EnvConfig(config.cluster, config.workload, dynamics=own, observation=config.observation)
    return Scenario("small", 1, "", small)


def small_stream(seed: int = 0, **dynamics: Any) -> Stream:
    return build_stream(world(**dynamics), StreamConfig(SEGMENTS, seed, drain_intervals=200))
