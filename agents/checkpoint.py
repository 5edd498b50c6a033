"""Checkpoints: a folder of plain tensors and JSON, without pickled classes.

| file | content |
|---|---|
| `config.json` | versions, network, observation sizes, settings of environment and learner, seed, progress |
| `policy.pt` | the network's tensors |
| `training.pt` | the optimizer's tensors and numbers and the states of the random generators; for resuming |
| `environment.npz` | state of the environments; for resuming |
| `replay.npz` | experience replay of learners that have one; for resuming |

Tensors are read with `weights_only=True` and arrays without pickle, so loading a checkpoint runs no code from it, and
moving classes between modules breaks none.

**Resuming** from a checkpoint that was taken between two updates continues bit for bit on the same machine, library
versions, number of threads and environments. Not restored: the averages over the last 100 episodes that SB3 logs, which
start empty, and wall-clock times. If the environment offers no snapshot, it starts new episodes instead, under a seed
derived from the run's seed and its progress, so that they are not those of the first run.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agents.networks import NetworkConfig, ObservationShape, SchedulingNetwork, build_network
from dl2env.config import EnvConfig
from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, Dl2EnvError

if TYPE_CHECKING:
    from agents.learner import Learner

SCHEMA = "dl2env-checkpoint"
SCHEMA_VERSION = 1
_FREE_GROUPS = ("env", "ppo", "dl2", "metrics", "versions")


class CheckpointError(Dl2EnvError):
    """A checkpoint cannot be read or does not fit."""


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says about itself.

    Attributes:
        network: Kind and sizes of the network.
        shape: Sizes of the observations it was trained on.
        env: Environment configuration as plain values, if known.
        ppo: Settings of PPO as plain values, if it was trained by PPO.
        dl2: Settings of DL2's actor-critic as plain values, if it was trained by that.
        seed: Seed of the training run.
        num_decisions: Decisions learned from by reinforcement.
        num_updates: Updates by reinforcement learning.
        metrics: Figures of its validation, if any.
        versions: Versions of what it was made with.
    """

    network: NetworkConfig
    shape: ObservationShape
    env: dict[str, Any] | None = None
    ppo: dict[str, Any] | None = None
    dl2: dict[str, Any] | None = None
    seed: int = 0
    num_decisions: int = 0
    num_updates: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a checkpoint means."""
    import dl2env

    return {
        "dl2env": dl2env.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def save_network(
    folder: Path,
    network: SchedulingNetwork,
    *,
    env_config: EnvConfig | None = None,
    seed: int = 0,
    metrics: Mapping[str, float] | None = None,
) -> CheckpointInfo:
    """Saves a network alone, for example after the warm-up.

    Args:
        folder: Checkpoint folder; replaced as a whole if it exists.
        network: The network.
        env_config: Environment it was trained in.
        seed: Seed of the training run.
        metrics: Figures to keep with it.
    """
    info = CheckpointInfo(
        network=network.config,
        shape=network.shape,
        env=None if env_config is None else config_to_dict(env_config),
        seed=seed,
        metrics=dict(metrics or {}),
        versions=versions(),
    )
    _write(folder, info, network, {}, None)
    return info


def save_training(
    folder: Path,
    model: Learner,
    *,
    env_config: EnvConfig | None = None,
    metrics: Mapping[str, float] | None = None,
) -> CheckpointInfo:
    """Saves a learner with everything that resuming needs. Call it between two updates.

    Args:
        folder: Checkpoint folder; replaced as a whole if it exists.
        model: The learner.
        env_config: Environment it is trained in.
        metrics: Figures to keep with it.
    """
    from agents.vec_env import SB3VecEnv

    network = model.policy.network
    info = CheckpointInfo(
        network=network.config,
        shape=network.shape,
        env=None if env_config is None else config_to_dict(env_config),
        **{model.algorithm: asdict(model.config)},
        seed=int(model.seed or 0),
        num_decisions=model.num_timesteps,
        num_updates=model.updates_done,
        metrics=dict(metrics or {}),
        versions=versions(),
    )
    own, replay = model.training_state()
    training = {
        "optimizer": model.policy.optimizer.state_dict(),
        "action_rng": model.policy.generator.get_state(),
        "num_gradient_epochs": model._n_updates,
        **own,
    }
    environment = model.env.state() if isinstance(model.env, SB3VecEnv) else None
    if environment is not None and model._last_episode_starts is not None:
        environment["episode_starts"] = model._last_episode_starts
    _write(folder, info, network, training, environment, replay)
    return info


def _write(
    folder: Path,
    info: CheckpointInfo,
    network: SchedulingNetwork,
    training: dict[str, Any],
    environment: dict[str, Any] | None,
    replay: Mapping[str, Any] | None = None,
) -> None:
    """Writes beside the folder, then swaps, so that an interrupted save leaves the old checkpoint whole."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        torch.save({k: v.detach().cpu() for k, v in network.state_dict().items()}, fresh / "policy.pt")
        if training:
            torch.save(training, fresh / "training.pt")
        if environment is not None:
            np.savez(fresh / "environment.npz", **environment)
        if replay:
            np.savez(fresh / "replay.npz", **replay)
        content = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(info)}
        (fresh / "config.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        old = _set_aside(folder)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _set_aside(folder: Path) -> Path:
    """Where the checkpoint that is replaced lies for a moment."""
    return folder.with_name(f".{folder.name}-old")


def finish_swap(folder: Path) -> None:
    """Puts the old checkpoint back if the process that replaced it was killed before the new one was in place."""
    old = _set_aside(Path(folder))
    if old.is_dir() and not Path(folder).exists():
        old.rename(folder)


def read_info(folder: Path) -> CheckpointInfo:
    """Reads what a checkpoint says about itself.

    Raises:
        CheckpointError: The folder holds no checkpoint of a version this code reads.
    """
    path = Path(folder) / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder}: no checkpoint (config.json is missing); give a checkpoint folder") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); restore the file") from error
    if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
        raise CheckpointError(f"{path}: not a dl2env checkpoint; give a folder written by the training script")
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path}: schema version {version}, this code reads {SCHEMA_VERSION}; use a matching dl2env"
        )
    for key in _FREE_GROUPS:  # free-form groups are passed on as they are
        if not isinstance(content.get(key), (dict, type(None))):
            raise CheckpointError(f"{path}: {key} must be a group of keys; restore the file")
    free = {key: content.pop(key, None) for key in _FREE_GROUPS}
    try:
        info: CheckpointInfo = config_from_dict(CheckpointInfo, content, str(path))
    except ConfigError as error:
        raise CheckpointError(f"{error}; restore the file") from error
    return CheckpointInfo(
        **{
            **{name: getattr(info, name) for name in CheckpointInfo.__dataclass_fields__},
            **{key: free[key] for key in ("env", "ppo", "dl2")},
            "metrics": free["metrics"] or {},
            "versions": free["versions"] or {},
        }
    )


def _load_tensors(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file; the checkpoint is incomplete, use another one") from error
    except Exception as error:
        raise _damaged(path, error) from error
    return loaded


def _load_arrays(path: Path) -> dict[str, Any]:
    """Arrays of a file; none if there is no such file."""
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # NumPy raises five kinds for damaged files
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path}: cannot be read ({type(error).__name__}); the checkpoint is damaged, use another one"
    )


def load_weights(folder: Path, network: SchedulingNetwork) -> None:
    """Puts a checkpoint's tensors into a network.

    Raises:
        CheckpointError: The file cannot be read or belongs to a network of other sizes.
    """
    path = Path(folder) / "policy.pt"
    try:
        network.load_state_dict(_load_tensors(path))
    except RuntimeError as error:
        raise CheckpointError(
            f"{path}: made for a network of other kind or sizes; use the run's own settings"
        ) from error


def load_network(folder: Path) -> tuple[SchedulingNetwork, CheckpointInfo]:
    """A checkpoint's network, ready to decide, and what the checkpoint says about itself.

    Raises:
        CheckpointError: The folder holds no readable checkpoint.
    """
    info = read_info(folder)
    network = build_network(info.network, info.shape)
    load_weights(folder, network)
    return network.requires_grad_(False).eval(), info


def resume_training(folder: Path, model: Learner) -> CheckpointInfo:
    """Puts a learner built with the same settings where a checkpoint left off; see the module's documentation.

    Args:
        folder: Checkpoint folder written by `save_training`.
        model: A learner just built.

    Raises:
        CheckpointError: The checkpoint cannot be read, or the learner has other settings.
    """
    folder = Path(folder)
    info = read_info(folder)
    network = model.policy.network
    if (info.network, info.shape) != (network.config, network.shape):
        raise CheckpointError(f"{folder}: made with {info.network} on {info.shape}; use the run's own settings")
    load_weights(folder, network)
    training = _load_tensors(folder / "training.pt")
    try:
        model.policy.optimizer.load_state_dict(training["optimizer"])
        model._n_updates = int(training["num_gradient_epochs"])
        model.num_timesteps = info.num_decisions
        _resume_environment(folder, model, info)
        model.restore_training(training, _load_arrays(folder / "replay.npz"))
        model.policy.generator.set_state(training["action_rng"])
    except CheckpointError:
        raise
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{folder}: does not fit this run ({error}); use the run's own settings") from error
    return info


def _resume_environment(folder: Path, model: Learner, info: CheckpointInfo) -> None:
    from agents.vec_env import SB3VecEnv

    path = folder / "environment.npz"
    env = model.env
    assert env is not None
    if path.exists() and isinstance(env, SB3VecEnv):
        state = _load_arrays(path)
        starts = state.pop("episode_starts")
        if len(starts) != env.num_envs:
            raise ValueError(f"{len(starts)} environments were saved, this run has {env.num_envs}")
        model._last_obs = env.restore(state)
        model._last_episode_starts = starts
        return
    env.seed(int(np.random.SeedSequence([info.seed, info.num_decisions]).generate_state(1)[0]))
    model._last_obs = env.reset()
    model._last_episode_starts = np.ones(env.num_envs, dtype=np.bool_)
