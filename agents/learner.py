"""What all learners share: the contract with callbacks and checkpoints, and training until a number of decisions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

if TYPE_CHECKING:
    from stable_baselines3.common.logger import Logger

    from agents.policies import NetworkPolicy


class Learner(Protocol):
    """An SB3 algorithm that callbacks and checkpoints can work with.

    Attributes:
        algorithm: Name; the key of its settings in a run and in a checkpoint.
        policy: The policy, with its network, optimizer and generator.
        config: Its settings, a dataclass.
        env: Its environments.
        seed: Seed of everything.
        num_timesteps: Decisions learned from since the start of training, earlier runs included.
        stop_requested: Set by whoever wants the training to end at the next border between updates, to go on later.
        ended_early: Set at a border between updates by a callback that ends the training there for good.
        ep_info_buffer: The last episodes.
    """

    algorithm: ClassVar[str]
    policy: NetworkPolicy
    config: Any
    env: Any
    seed: int | None
    num_timesteps: int
    stop_requested: bool
    ended_early: bool
    ep_info_buffer: Any
    _n_updates: int
    _last_obs: Any
    _last_episode_starts: Any

    @property
    def logger(self) -> Logger:
        """Receives scalars."""
        ...

    @property
    def updates_done(self) -> int:
        """Updates since the start of training, earlier runs included."""
        ...

    @property
    def is_between_updates(self) -> bool:
        """Whether it stands exactly between two updates."""
        ...

    def learn(self, total_timesteps: int, callback: Any = None, *, reset_num_timesteps: bool = True) -> Any:
        """Trains on that many further decisions."""
        ...

    def training_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What resuming needs besides network, optimizer and environments: plain values or tensors, and arrays."""
        ...

    def restore_training(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Continues from a `training_state` of a learner with the same settings."""
        ...


class _StopOnRequest(BaseCallback):
    """Ends the training at the next border between updates once a stop is requested, or where it ended early."""

    _is_last: bool = False

    def _on_rollout_start(self) -> None:
        # SB3 can be stopped after a step only; the other callbacks see the request at this same border.
        self._is_last = self.model.stop_requested  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        return not (self._is_last or self.model.ended_early)  # type: ignore[attr-defined]


@contextmanager
def _ctrl_c_requests_stop(model: Learner) -> Iterator[None]:
    """The first Ctrl-C asks for a stop at the next border between updates, the second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.SIG_IGN:  # one of several runs at a time: whoever started it decides
        yield
        return

    def request(signum: int, frame: FrameType | None) -> None:
        model.stop_requested = True
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def fine_tune(model: Learner, total_decisions: int, callbacks: Sequence[BaseCallback] = ()) -> bool:
    """Trains until the learner has seen `total_decisions` decisions, those of earlier runs included.

    The first Ctrl-C lets the running update finish and keeps a checkpoint if `agents.callbacks.Checkpoints` is among
    the callbacks; a second one raises `KeyboardInterrupt`, and the last periodic checkpoint stays. To go on later,
    build a new learner and resume from that checkpoint.

    Args:
        model: The learner; a resumed one goes on where it stopped.
        total_decisions: Rounded up to whole updates. The schedules end there.
        callbacks: See `agents.callbacks`.

    Returns:
        Whether the training is complete, early or not; False if the user stopped it.
    """
    remaining = total_decisions - model.num_timesteps
    if remaining <= 0:
        return True
    model.stop_requested = model.ended_early = False
    with _ctrl_c_requests_stop(model):
        model.learn(
            remaining,
            callback=[_StopOnRequest(), *callbacks],
            reset_num_timesteps=model.num_timesteps == 0,
        )
    return not model.stop_requested


def derived_rng_seed(seed: int, part: int) -> int:
    """Seed of a part of a learner that draws for itself."""
    return int(np.random.SeedSequence([seed, part]).generate_state(1)[0])
