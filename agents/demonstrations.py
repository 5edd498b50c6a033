"""Recorded decisions of a teacher: the data of the supervised warm-up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agents.returns import Discounting, discounted_returns
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from dl2env.envs.vector_env import SchedulingVectorEnv
    from dl2env.schedulers.base import Scheduler

SCHEMA = "dl2env-demonstrations"
SCHEMA_VERSION = 1

_ARRAYS = ("jobs", "cluster", "masks", "actions", "rewards", "interval_ended", "terminated", "truncated")


@dataclass(frozen=True)
class Demonstrations:
    """T decisions in each of B environments, in the order they were made.

    Attributes:
        jobs: (T, B, J, F) float32 observations of the job slots.
        cluster: (T, B, C) float32 observations of the cluster.
        masks: (T, B, A) bool, legal actions.
        actions: (T, B) int64, what the teacher did.
        rewards: (T, B) float32.
        interval_ended: (T, B) bool, the decision ended a scheduling interval.
        terminated: (T, B) bool, it ended the episode.
        truncated: (T, B) bool, it ended the episode by the interval limit.
        provenance: Teacher, seed, environment, version.
    """

    jobs: NDArray[np.float32]
    cluster: NDArray[np.float32]
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    interval_ended: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_decisions(self) -> int:
        """T * B."""
        return int(self.actions.size)

    @property
    def num_envs(self) -> int:
        """B."""
        return int(self.actions.shape[1])

    def returns(self, discounting: Discounting) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(T, B) discounted returns and the discount at which each one's recording stops; 0 where it is complete."""
        done = self.terminated | self.truncated
        return discounted_returns(self.rewards, self.interval_ended, done, self.truncated, discounting)

    def save(self, path: Path) -> None:
        """Writes an npz file that holds arrays and JSON, nothing pickled."""
        header = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "provenance": dict(self.provenance)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            arrays = {name: getattr(self, name) for name in _ARRAYS}
            np.savez(file, header=np.array(json.dumps(header)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Demonstrations:
        """Reads what `save` wrote.

        Raises:
            TraceError: The file is missing, damaged or of another kind or version.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                header = json.loads(str(arrays["header"]))
                if (header["schema"], header["schema_version"]) != (SCHEMA, SCHEMA_VERSION):
                    raise TraceError(
                        f"{path}: {header['schema']} version {header['schema_version']}, this code reads {SCHEMA} "
                        f"version {SCHEMA_VERSION}; record it again"
                    )
                return cls(**{name: arrays[name] for name in _ARRAYS}, provenance=header["provenance"])
        except FileNotFoundError as error:
            raise TraceError(f"{path}: no such file; record demonstrations first") from error
        except TraceError:
            raise
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise TraceError(f"{path}: not a file of recorded decisions ({error}); record it again") from error


def record_demonstrations(
    env: SchedulingVectorEnv,
    teacher: Scheduler,
    num_decisions: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Demonstrations:
    """Lets a teacher play and writes down what it sees and does.

    The teacher decides within the environment's window, so that every label is an action the learner has.

    Args:
        env: Vector environment; reset with `seed`.
        teacher: Any scheduler.
        num_decisions: Decisions in all; rounded up to a multiple of the number of environments.
        seed: Seeds the workloads.
        progress: Called after each step with the decisions so far and their total.

    Raises:
        ConfigError: The teacher took an illegal action, or no decision is asked for.
    """
    if num_decisions < 1:
        raise ConfigError(f"warmup: {num_decisions} decisions asked for; record at least 1")
    steps = -(-num_decisions // env.num_envs)
    obs, _ = env.reset(seed=seed)
    size = (steps, env.num_envs)
    masks = env.action_masks()
    arrays: dict[str, NDArray[Any]] = {
        "jobs": np.empty((steps, *obs["jobs"].shape), dtype=np.float32),
        "cluster": np.empty((steps, *obs["cluster"].shape), dtype=np.float32),
        "masks": np.empty((steps, *masks.shape), dtype=np.bool_),
        "actions": np.empty(size, dtype=np.int64),
        "rewards": np.empty(size, dtype=np.float32),
        **{name: np.empty(size, dtype=np.bool_) for name in ("interval_ended", "terminated", "truncated")},
    }
    view = env.view()
    rows = np.arange(env.num_envs)
    for t in range(steps):
        actions = np.asarray(teacher.act(obs, masks, view), dtype=np.int64)
        if not masks[rows, actions].all():
            b = int(np.argmin(masks[rows, actions]))
            raise ConfigError(
                f"teacher {teacher.name!r} took action {actions[b]}, which is masked; a teacher must follow the mask"
            )
        arrays["jobs"][t], arrays["cluster"][t] = obs["jobs"], obs["cluster"]
        arrays["masks"][t], arrays["actions"][t] = masks, actions
        obs, rewards, terminated, truncated, infos = env.step(actions)
        masks = env.action_masks()
        arrays["rewards"][t] = rewards
        arrays["interval_ended"][t] = infos["interval_ended"]
        arrays["terminated"][t], arrays["truncated"][t] = terminated, truncated
        if progress is not None:
            progress((t + 1) * env.num_envs, steps * env.num_envs)
    return Demonstrations(**arrays, provenance=_provenance(env, teacher, seed))


def _provenance(env: SchedulingVectorEnv, teacher: Scheduler, seed: int) -> dict[str, Any]:
    import dl2env

    config = getattr(env, "config", None)
    return {
        "teacher": teacher.name,
        "seed": seed,
        "env": None if config is None else config_to_dict(config),
        "dl2env": dl2env.__version__,
    }
