"""Who plays while decisions are recorded: schedulers that take turns by episode, acting or only labelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.schedulers.base import configured
from dl2env.schedulers.heuristic import Heuristic
from dl2env.schedulers.search import SearchScheduler

if TYPE_CHECKING:
    from dl2env.config import EnvConfig
    from dl2env.schedulers.base import Scheduler

MAX_PLAYERS = 255


@dataclass(frozen=True)
class Player:
    """A scheduler and how often it is drawn for an episode, relative to the other players."""

    scheduler: Scheduler
    weight: float = 1.0


@contextmanager
def pins_put_back(view: Any) -> Iterator[None]:
    """Restores the servers that schedulers have pinned for their next tasks."""
    pins = getattr(view, "pinned_server", None)
    yield
    if pins is not None and not np.array_equal(view.pinned_server, pins):
        view.pin_servers(pins)


class Cast:
    """Players of a role, one for each episode, drawn from a generator keyed (seed, role, environment, episode)."""

    def __init__(self, players: Sequence[Player], role: str, seed: int, num_envs: int) -> None:
        if not 1 <= len(players) <= MAX_PLAYERS:
            raise ConfigError(f"{role}: {len(players)} schedulers given; give 1 to {MAX_PLAYERS}")
        weights = np.array([player.weight for player in players], dtype=np.float64)
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise ConfigError(f"{role}: weights {weights.tolist()} must be positive")
        self._players = players
        self._role = role
        self._seed = seed
        self._limits = np.cumsum(weights / weights.sum())
        self.chosen: NDArray[np.uint8] = np.zeros(num_envs, dtype=np.uint8)
        self.draw(np.arange(num_envs), np.zeros(num_envs, dtype=np.int64))

    def draw(self, envs: NDArray[np.int64], episodes: NDArray[np.int64]) -> None:
        """Chooses the players of episodes that begin."""
        if len(self._players) == 1:
            return
        for env, episode in zip(envs.tolist(), episodes.tolist(), strict=True):
            rng = np.random.default_rng([self._seed, *self._role.encode(), env, episode])
            index = int(np.searchsorted(self._limits, rng.random(), side="right"))
            self.chosen[env] = min(index, len(self._players) - 1)

    def act(self, obs: Any, masks: NDArray[np.bool_], view: Any) -> NDArray[np.int64]:
        """Asks those players that are on."""
        if len(self._players) == 1:
            return self._ask(0, obs, masks, view, np.arange(len(masks)))
        actions = np.empty(len(masks), dtype=np.int64)
        before = getattr(view, "pinned_server", None)
        pins = None if before is None else before.copy()
        for k in np.unique(self.chosen).tolist():
            rows = np.flatnonzero(self.chosen == k)
            actions[rows] = self._ask(k, obs, masks, view, rows)[rows]
            if pins is not None:
                pins[rows] = view.pinned_server[rows]
                view.pin_servers(before)
        if pins is not None:
            view.pin_servers(pins)
        return actions

    def _ask(self, k: int, obs: Any, masks: NDArray[np.bool_], view: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B,) actions of player k, of which those in `rows` count."""
        scheduler = self._players[k].scheduler
        actions = np.asarray(scheduler.act(obs, masks, view), dtype=np.int64)
        inside = (actions >= 0) & (actions < masks.shape[1])
        legal = inside & masks[np.arange(len(masks)), np.where(inside, actions, 0)]
        if not legal[rows].all():
            action = actions[rows][~legal[rows]][0]
            raise ConfigError(
                f"{self._role} {scheduler.name!r} took action {action}, which is masked; it must follow the mask"
            )
        return actions


class Memory(IntEnum):
    """How much of what it saw before a scheduler decides by."""

    NONE = 0
    INTERVAL = 1
    """What it saw in the present interval."""
    ALL = 2


def memory_of(scheduler: Scheduler) -> Memory:
    """What is known about a scheduler: rules decide by the present state, as do networks that do not sample.

    Schedulers of the user's own may say so with an attribute `memory`: `none`, `interval` or `all`, the default.

    Raises:
        ConfigError: The attribute is something else.
    """
    own = getattr(scheduler, "memory", None)
    if own is not None:
        if not isinstance(own, str) or own.upper() not in Memory.__members__:
            raise ConfigError(f"scheduler {scheduler.name!r}: memory={own!r}; choose one of: none, interval, all")
        return Memory[own.upper()]
    if isinstance(scheduler, SearchScheduler):
        return Memory.INTERVAL
    is_rule = isinstance(scheduler, Heuristic) or type(scheduler).__module__.startswith("dl2env.schedulers.")
    return Memory.NONE if is_rule or getattr(scheduler, "deterministic", False) else Memory.ALL


def check_can_record(key: str, scheduler: Scheduler, config: EnvConfig) -> None:
    """Makes sure that a scheduler decides in a world as it would elsewhere.

    Raises:
        ConfigError: It brings its own knowledge of speeds, which the observation would not have.
    """
    wanted = configured(scheduler, config).estimate
    if wanted != config.estimate:
        raise ConfigError(
            f"{key} brings its own speed estimate ({wanted.kind}), but decides with the environment's "
            f"({config.estimate.kind}) while it is recorded; choose another scheduler or set env.estimate.kind"
        )
