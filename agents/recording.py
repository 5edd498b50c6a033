"""Lets schedulers play and writes down what they see and do.

One scheduler may act while another one labels the states that it meets (DAgger, Ross et al., arXiv 1011.0686), and each
role may be filled by several schedulers that take turns by episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.demonstrations import Demonstrations
from agents.players import Cast, Player, pins_put_back
from dl2env.config_dict import config_to_dict
from dl2env.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from dl2env.envs.vector_env import SchedulingVectorEnv
    from dl2env.schedulers.base import Scheduler
    from dl2env.workload.generator import WorkloadSource
    from dl2env.workload.jobs import Workload

Arrays = dict[str, NDArray[Any]]
Progress = Callable[[int, int], None]

LEARNED = ("jobs", "cluster", "masks", "actions", "rewards", "interval_ended", "terminated", "truncated")
"""Arrays of a part that `Demonstrations` has."""


class Start(NamedTuple):
    """An episode that begins: its environment, its number there, and the digest of its workload."""

    env: int
    episode: int
    digest: str


@dataclass
class WorkloadLog:
    """A workload source that notes which workloads it handed out.

    Attributes:
        source: Where workloads come from.
        starts: What it handed out since someone emptied the list.
    """

    source: WorkloadSource
    starts: list[Start] = field(default_factory=list)

    def __call__(self, seed: int, env: int, episode: int) -> Workload:
        """The jobs of that episode."""
        workload = self.source(seed, env, episode)
        self.starts.append(Start(env, episode, workload.digest()))
        return workload


class Recorder:
    """Plays and records part after part; the parts in a row are one recording.

    Arrays of a part of T steps in B environments, time first:

    | array | shape | content |
    |---|---|---|
    | `jobs`, `cluster`, `masks` | (T, B, ...) | what was seen, and the legal actions |
    | `actions` | (T, B) int64 | what the teacher does: the labels |
    | `taken` | (T, B) int64 | what was done; only if others than the teachers act |
    | `rewards`, `interval_ended`, `terminated`, `truncated` | (T, B) | what came of it |
    | `pinned` | (T, B) int32 | server that the one who acted chose for its task; -1: the placement strategy chose |
    | `teacher`, `behaviour` | (T, B) uint8 | index of the player that labelled, that acted |
    | `final_jobs`, `final_cluster` | (E, ...) | last observation of the E episodes that ended, in the order \
of steps, then environments |
    | `next_jobs`, `next_cluster` | (B, ...) | the observation after the last step |
    | `start_step`, `start_env`, `start_episode`, `start_digest` | (S,) | episodes that began, the step of their first \
decision (T: after this part) and digests of their workloads |

    Args:
        env: Vector environment; reset with `seed`.
        teachers: Who labels; each episode has one of them, drawn by weight.
        behaviours: Who acts, likewise; none: the teachers.
        seed: Seeds the workloads and the draws.
        log: The environment's workload source, if digests are wanted.

    Raises:
        ConfigError: There are no or too many teachers, or a weight is not positive.
    """

    def __init__(
        self,
        env: SchedulingVectorEnv,
        teachers: Sequence[Player],
        behaviours: Sequence[Player] = (),
        *,
        seed: int = 0,
        log: WorkloadLog | None = None,
    ) -> None:
        self._env = env
        self._teachers = Cast(teachers, "teacher", seed, env.num_envs)
        self._behaviours = Cast(behaviours, "behaviour", seed, env.num_envs) if behaviours else None
        self._log = log
        self._view = env.view()
        self._can_pin = hasattr(self._view, "pin_servers")
        self._rows = np.arange(env.num_envs)
        self._obs, _ = env.reset(seed=seed)
        self._masks = env.action_masks()
        self._episode = np.zeros(env.num_envs, dtype=np.int64)
        self.steps_done = 0

    def record(
        self,
        num_steps: int,
        progress: Callable[[int], None] | None = None,
        *,
        begun: Arrays | None = None,
        stop: Callable[[], bool] | None = None,
        keep: Callable[[Callable[[], Arrays]], None] | None = None,
    ) -> Arrays:
        """Records the next part.

        Args:
            num_steps: T.
            progress: Called after each step with the steps of this part so far.
            begun: The first steps of this part, if it was begun earlier and followed until there.
            stop: Asked before each step; true ends the part early.
            keep: Called after each step with a function that returns the part so far.

        Returns:
            Its arrays.

        Raises:
            ConfigError: A player took an illegal action.
        """
        part = self._empty(num_steps)
        finals: list[Mapping[str, NDArray[np.float32]]] = []
        starts: list[tuple[int, Start]] = []
        first = 0
        if begun is not None:
            first = len(begun["actions"])
            for name, values in part.items():
                values[:first] = begun[name]
            finals = [
                {"jobs": jobs, "cluster": cluster}
                for jobs, cluster in zip(begun["final_jobs"], begun["final_cluster"], strict=True)
            ]
            columns = (
                begun.get(f"start_{name}", np.empty(0)).tolist() for name in ("step", "env", "episode", "digest")
            )
            starts = [(step, Start(env, k, digest.decode())) for step, env, k, digest in zip(*columns, strict=True)]
        elif self.steps_done == 0:
            starts = [(0, start) for start in self._new_starts()]
        for t in range(first, num_steps):
            if stop is not None and stop():
                return self._finished(part, t, finals, starts)
            self._decide_into(part, t)
            finals.extend(self._step_into(part, t, _taken(part)[t]))
            starts.extend((t + 1, start) for start in self._new_starts())
            if progress is not None:
                progress(t + 1)
            if keep is not None:
                keep(partial(self._finished, part, t + 1, finals, starts))
        return self._finished(part, num_steps, finals, starts)

    def _finished(
        self,
        part: Arrays,
        steps: int,
        finals: Sequence[Mapping[str, NDArray[np.float32]]],
        starts: Sequence[tuple[int, Start]],
    ) -> Arrays:
        finished = {name: values[:steps] for name, values in part.items()}
        for name in ("jobs", "cluster"):
            finished[f"next_{name}"] = self._obs[name].copy()
            empty = np.empty((0, *self._obs[name].shape[1:]), dtype=np.float32)
            finished[f"final_{name}"] = np.stack([final[name] for final in finals]) if finals else empty
        if self._log is not None:
            finished["start_step"] = np.array([step for step, _ in starts], dtype=np.int64)
            finished["start_env"] = np.array([start.env for _, start in starts], dtype=np.int64)
            finished["start_episode"] = np.array([start.episode for _, start in starts], dtype=np.int64)
            finished["start_digest"] = np.array([start.digest for _, start in starts], dtype="S64")
        return finished

    def follow(
        self,
        part: Arrays,
        where: str,
        *,
        ask_from: NDArray[np.int64] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Goes through a part that was recorded before, to record what comes after it.

        Args:
            part: Its arrays.
            where: Its name in error messages.
            ask_from: (B,) steps of the recording from which on the players are asked again for each environment, so
                that they remember what they saw; None: never, only the environments move.
            progress: Called after each step with the steps of this part so far.

        Raises:
            TraceError: World or players no longer do the same.
        """
        everywhere = np.ones(self._env.num_envs, dtype=np.bool_)
        again = self._empty(1)
        for t in range(len(part["actions"])):
            self._see_into(again, 0)
            names = dict.fromkeys(("jobs", "cluster", "masks"), everywhere)
            asked = ~everywhere if ask_from is None else self.steps_done >= ask_from
            if asked.any():
                self._decide_into(again, 0)
                names |= {name: asked for name in ("actions", "taken") if name in part}
            if self._can_pin and "pinned" in part:
                self._view.pin_servers(part["pinned"][t])
            taken = _taken(part)[t]
            if self._masks[self._rows, taken].all():
                self._step_into(again, 0, taken)
                names |= dict.fromkeys(("rewards", "interval_ended", "terminated", "truncated"), everywhere)
            for name, rows in names.items():
                if not np.array_equal(again[name][0][rows], part[name][t][rows]):
                    raise TraceError(
                        f"{where}: {name} of step {t} are no longer the same, so the recording cannot be continued; "
                        "record into another folder"
                    )
            self._new_starts()
            if progress is not None:
                progress(t + 1)

    def _empty(self, steps: int) -> Arrays:
        size = (steps, self._env.num_envs)
        arrays: Arrays = {
            "jobs": np.empty((steps, *self._obs["jobs"].shape), dtype=np.float32),
            "cluster": np.empty((steps, *self._obs["cluster"].shape), dtype=np.float32),
            "masks": np.empty((steps, *self._masks.shape), dtype=np.bool_),
            "actions": np.empty(size, dtype=np.int64),
            "rewards": np.empty(size, dtype=np.float32),
            **{name: np.empty(size, dtype=np.bool_) for name in ("interval_ended", "terminated", "truncated")},
            "pinned": np.full(size, -1, dtype=np.int32),
            "teacher": np.empty(size, dtype=np.uint8),
        }
        if self._behaviours is not None:
            arrays["taken"] = np.empty(size, dtype=np.int64)
            arrays["behaviour"] = np.empty(size, dtype=np.uint8)
        return arrays

    def _see_into(self, part: Arrays, t: int) -> None:
        part["jobs"][t], part["cluster"][t], part["masks"][t] = self._obs["jobs"], self._obs["cluster"], self._masks

    def _decide_into(self, part: Arrays, t: int) -> None:
        """Asks the players, and writes down what they see and say."""
        self._see_into(part, t)
        for cast, actions, who in (
            (self._teachers, "actions", "teacher"),
            (self._behaviours, "taken", "behaviour"),
        ):
            if cast is None:
                continue
            if cast is self._teachers and self._behaviours is not None:
                # Some schedulers also pin the server of the next task; those that only label must not.
                with pins_put_back(self._view):
                    part[actions][t] = cast.act(self._obs, self._masks, self._view)
            else:
                part[actions][t] = cast.act(self._obs, self._masks, self._view)
            part[who][t] = cast.chosen
        if self._can_pin:
            part["pinned"][t] = self._view.pinned_server

    def _step_into(self, part: Arrays, t: int, taken: NDArray[np.int64]) -> list[Mapping[str, NDArray[np.float32]]]:
        """Takes actions, writes down what comes of them; returns the last observations of episodes that ended."""
        self._obs, rewards, terminated, truncated, infos = self._env.step(taken)
        self._masks = self._env.action_masks()
        self.steps_done += 1
        part["rewards"][t] = rewards
        part["interval_ended"][t] = infos["interval_ended"]
        part["terminated"][t], part["truncated"][t] = terminated, truncated
        ended = np.flatnonzero(part["terminated"][t] | part["truncated"][t])
        self._episode[ended] += 1
        for cast in (self._teachers, self._behaviours):
            if cast is not None:
                cast.draw(ended, self._episode[ended])
        return [infos["final_obs"][b] for b in ended.tolist()]

    def _new_starts(self) -> list[Start]:
        if self._log is None:
            return []
        starts = list(self._log.starts)
        self._log.starts.clear()
        return starts


def _taken(part: Arrays) -> NDArray[np.int64]:
    return part["taken" if "taken" in part else "actions"]


def record_demonstrations(
    env: SchedulingVectorEnv,
    teacher: Scheduler,
    num_decisions: int,
    *,
    seed: int = 0,
    behaviours: Sequence[Player] = (),
    progress: Progress | None = None,
) -> Demonstrations:
    """Records a teacher in memory.

    The teacher decides within the environment's window, so that every label is an action the learner has.

    Args:
        env: Vector environment; reset with `seed`.
        teacher: Any scheduler.
        num_decisions: Decisions in all; rounded up to a multiple of the number of environments.
        seed: Seeds the workloads.
        behaviours: Who acts; none: the teacher.
        progress: Called after each step with the decisions so far and their total.

    Raises:
        ConfigError: The teacher took an illegal action, or no decision is asked for.
    """
    if num_decisions < 1:
        raise ConfigError(f"warmup: {num_decisions} decisions asked for; record at least 1")
    steps = -(-num_decisions // env.num_envs)
    recorder = Recorder(env, [Player(teacher)], behaviours, seed=seed)
    report = None if progress is None else lambda t: progress(t * env.num_envs, steps * env.num_envs)
    return demonstrations_of(recorder.record(steps, report), _provenance(env, teacher, seed))


def demonstrations_of(part: Arrays, provenance: Mapping[str, Any]) -> Demonstrations:
    """What can be learned from a part; one without rewards and flags, of a foreign file, gives labels only."""
    learned = {name: part[name] for name in LEARNED if name in part}
    size = part["actions"].shape
    learned.setdefault("rewards", np.zeros(size, dtype=np.float32))
    for name in ("interval_ended", "terminated", "truncated"):
        learned.setdefault(name, np.zeros(size, dtype=np.bool_))
    return Demonstrations(**learned, provenance=provenance, taken=part.get("taken"), has_rewards="rewards" in part)


def _provenance(env: SchedulingVectorEnv, teacher: Scheduler, seed: int) -> dict[str, Any]:
    import dl2env

    config = getattr(env, "config", None)
    return {
        "teacher": teacher.name,
        "seed": seed,
        "env": None if config is None else config_to_dict(config),
        "dl2env": dl2env.__version__,
    }
