"""The stream as a vector environment: environment 0 is the cluster, the others are copies of it to practise in.

Learners know nothing of all this. What they step are always copies: the decisions of an interval are first made in copy
0, and when it ends they, or the teacher's, are carried out on the cluster. The cluster thus moves on by one interval
whenever environment 0 ends one. The other environments play intervals that begin in the cluster's present state: their
decisions have no consequences, but the speed model tells what they would be worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.networks import NetworkConfig
from agents.observations import AgentVectorEnv, Observation
from agents.online.shadow import RolloutGuard, check_model_is_known, copy_present, shadow_simulator
from agents.online.stream import Stream
from agents.vec_env import SB3VecEnv
from dl2env.config import EnvConfig
from dl2env.envs import spaces
from dl2env.envs.episodes import reward_weights
from dl2env.schedulers.base import ClusterView, IntervalScheduler
from dl2env.sim.simulator import ClusterSimulator, Snapshot
from dl2env.sim.state import REWARD_TERMS

NO_CHOICE, ACCEPTED, OVERRIDDEN, PRACTISED = range(4)
"""Who decided an interval: nobody could, the agent, the teacher in its place, or the agent as it practised."""

LOG = ("interval", "decider", "agent_cost", "teacher_cost", "num_decisions")
"""Columns of `StreamVectorEnv.log`."""


class StreamVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """One pass over a stream; see the module's documentation. The contract is that of `SchedulingVectorEnv`.

    Rewards of environment 0 are those that the cluster paid, or what the model predicts where other decisions than its
    own were carried out. Environment 0 is done when the stream is over; a practising one goes
    back to the cluster's present after `practice_intervals` intervals.

    Args:
        stream: The stream.
        num_envs: B; 1: the cluster alone.
        teacher: Who decides where the guard overrides the agent.
        guard_options: Arguments of `RolloutGuard`; None: the agent's decisions are always carried out.
        practice_intervals: Intervals that practice goes on for before it returns to the present.
        practice_ends_episodes: Flag that return as a truncated episode. Learners that look beyond the end of an
            interval need it; for others it is only slower.
        choose_from_practice: Carry out, of all decisions for the present interval that the agent has made in
            environment 0 and meanwhile in practice, those that are predicted to cost least. Needs a guard.

    Attributes:
        simulator: The copies, which is what learners see.
        cluster: The cluster itself.
        is_finished: The stream is over; no further step is possible.
        log: A row of `LOG` per interval that was decided.
        before_autoreset: See `SchedulingVectorEnv`.

    Raises:
        ConfigError: Guard or practice need to know the speeds and this world's schedulers do not.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        stream: Stream,
        num_envs: int,
        teacher: IntervalScheduler,
        guard_options: Mapping[str, Any] | None = None,
        practice_intervals: int = 1,
        practice_ends_episodes: bool = False,
        choose_from_practice: bool = False,
    ) -> None:
        self.stream = stream
        self.config: EnvConfig = stream.config
        self.num_envs = num_envs
        if num_envs > 1:
            check_model_is_known(self.config, "practice")
        self.cluster = ClusterSimulator(self.config, 1)
        self.simulator = shadow_simulator(self.cluster, num_envs)
        self.single_observation_space = spaces.observation_space(self.simulator)
        self.single_action_space = spaces.action_space(self.simulator)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._teacher = teacher
        self._guard = None if guard_options is None else RolloutGuard(self.cluster, teacher, **guard_options)
        self._practice_intervals = practice_intervals
        self._practice_ends_episodes = practice_ends_episodes
        self._choose_from_practice = choose_from_practice
        self._weights = reward_weights(self.config.reward)
        self.before_autoreset: list[Callable[[NDArray[np.int64]], None]] = []
        self._intervals_left = np.zeros(num_envs, dtype=np.int64)
        self._decisions: list[list[int]] = [[] for _ in range(num_envs)]  # since each was last copied
        self._is_fresh = np.zeros(num_envs, dtype=np.bool_)  # is in the interval that the cluster is in
        self._best: tuple[float, list[int]] | None = None  # practice for the present interval, with its predicted cost
        self.log: list[tuple[float, ...]] = []
        self.is_finished = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Goes to the start of the stream, which is the same whatever the seed."""
        self.cluster.load([0], [self.stream.workload])
        self.is_finished = False
        self.log = []
        self._best = None
        self._return_to_present(np.arange(self.num_envs))
        return self.simulator.observation(), {"action_mask": self.action_masks()}

    def _return_to_present(self, envs: NDArray[np.int64]) -> None:
        copy_present(self.cluster, self.simulator, envs.tolist())
        self._intervals_left[envs] = self._practice_intervals
        self._is_fresh[envs] = True
        for b in envs.tolist():
            self._decisions[b] = []

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Takes one decision in each environment; see `SchedulingVectorEnv.step`."""
        actions = np.asarray(actions, dtype=np.int64)
        report = self.simulator.step(actions)
        terms, ended = report.reward_terms, report.interval_ended
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        for b in np.flatnonzero(self._is_fresh).tolist():
            self._decisions[b].append(int(actions[b]))
        self._intervals_left -= ended
        if self._choose_from_practice and self._guard is not None:
            for b in np.flatnonzero(ended[1:] & self._is_fresh[1:]).tolist():
                cost = self._guard.predict(self.simulator, b + 1)
                if self._best is None or cost < self._best[0]:
                    self._best = cost, self._decisions[b + 1]
        self._is_fresh &= ~ended
        back = ended & (self._intervals_left <= 0) | self.simulator.is_done
        back[0] = False
        if self._practice_ends_episodes:
            truncated |= back
        if ended[0]:
            terms[0] = self._carry_out(terms[0])
            self.is_finished = bool(self.cluster.is_done[0])
            terminated[0] = self.is_finished and self._all_done()
            truncated[0] = self.is_finished and not terminated[0]
        every = np.ones(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {
            "interval_ended": ended,
            "illegal_action": report.is_illegal,
            "reward_terms": dict(zip(REWARD_TERMS, terms.T, strict=True)),
        }
        done = terminated | truncated
        if done.any():
            infos |= self._final(np.flatnonzero(done), done)
        if not self.is_finished:
            back[0] = ended[0]
            if back.any():
                self._return_to_present(np.flatnonzero(back))
        infos["action_mask"], infos["_action_mask"] = self.action_masks(), every
        return self.simulator.observation(), terms @ self._weights, terminated, truncated, infos

    def _carry_out(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Moves the cluster on by an interval; returns the reward terms of the agent's last decision."""
        cluster = self.cluster
        interval = int(cluster.state.env["interval"][0])
        decider, agent_cost, teacher_cost = ACCEPTED, np.nan, np.nan
        decisions = self._decisions[0]
        if cluster.state.env["num_legal"][0] == 0:
            decider = NO_CHOICE
        elif self._guard is not None:
            teacher_cost = self._guard.predict_teacher()
            agent_cost = self._guard.predict(self.simulator, 0)
            if self._best is not None and self._best[0] < agent_cost:
                decider = PRACTISED
                agent_cost, decisions = self._best
            if not self._guard.accepts(agent_cost, teacher_cost):
                decider = OVERRIDDEN
        self.log.append((interval, decider, agent_cost, teacher_cost, len(decisions)))
        self._best = None
        self._is_fresh[:] = False
        if decider == OVERRIDDEN:
            self._teacher.run_intervals(cluster, 1)
            return predicted
        for action in decisions:
            report = cluster.step(np.array([action]))
        assert report.interval_ended[0], "the cluster has left the copy of it"
        return predicted if decider == PRACTISED else np.asarray(report.reward_terms[0])

    def _all_done(self) -> bool:
        env = self.cluster.state.env[0]
        return bool(env["num_finished"] == env["num_jobs"])

    def _final(self, ended: NDArray[np.int64], done: NDArray[np.bool_]) -> dict[str, Any]:
        """Last observations of environments that end."""
        state = self.simulator.state
        final_obs = np.full(self.num_envs, None, dtype=object)
        for b in ended.tolist():
            final_obs[b] = {"jobs": state.obs_jobs[b].copy(), "cluster": state.obs_cluster[b].copy()}
        for hook in self.before_autoreset:
            hook(ended)
        return {"final_obs": final_obs, "_final_obs": done, "final_info": {}, "_final_info": done}

    def action_masks(self) -> NDArray[np.bool_]:
        """(B, 3 J + 1) legal actions of the current observations."""
        return self.simulator.action_masks()

    def view(self) -> ClusterView:
        """Structured access to the copies, for exploration rules."""
        return ClusterView(self.simulator)

    @property
    def interval(self) -> int:
        """The cluster's present interval."""
        return int(self.cluster.state.env["interval"][0])

    def state(self) -> dict[str, NDArray[Any]]:
        """Plain arrays from which `restore` continues step for step."""
        parts: dict[str, NDArray[Any]] = {}
        for name, simulator in (("simulator", self.simulator), ("cluster", self.cluster)):
            snapshot = simulator.snapshot()
            parts |= {f"{name}/{key}": values for key, values in snapshot.arrays.items()}
            parts[f"{name}.is_done"] = snapshot.is_done
        parts["log"] = np.array(self.log, dtype=np.float64).reshape(len(self.log), len(LOG))
        parts["decisions"] = np.array([a for made in self._decisions for a in made], dtype=np.int64)
        parts["num_decisions"] = np.array([len(made) for made in self._decisions])
        parts["is_fresh"] = self._is_fresh.copy()
        if self._best is not None:
            parts["best_cost"], parts["best"] = np.array(self._best[0]), np.array(self._best[1], dtype=np.int64)
        parts["intervals_left"] = self._intervals_left.copy()
        parts["workload"] = np.array(self.stream.workload.digest())
        return parts

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues from a `state` of the same stream.

        Raises:
            ValueError: It is another stream.
        """
        if str(state["workload"]) != self.stream.workload.digest():
            raise ValueError("the stream has changed since")
        for name, simulator in (("simulator", self.simulator), ("cluster", self.cluster)):
            arrays = {key.partition("/")[2]: values for key, values in state.items() if key.startswith(f"{name}/")}
            simulator.restore(Snapshot(arrays, state[f"{name}.is_done"]))
        self.log = [tuple(row) for row in state["log"].tolist()]
        parts = np.split(state["decisions"], np.cumsum(state["num_decisions"])[:-1])
        self._decisions = [made.tolist() for made in parts]
        self._is_fresh = state["is_fresh"].copy()
        self._best = (float(state["best_cost"]), state["best"].tolist()) if "best" in state else None
        self._intervals_left = state["intervals_left"].copy()
        self.is_finished = bool(self.cluster.is_done[0])


class StreamVecEnv(SB3VecEnv):
    """The stream for learners, with the observation that their network reads.

    Args:
        stream_env: The stream.
        network: Says which observation.
    """

    def __init__(self, stream_env: StreamVectorEnv, network: NetworkConfig) -> None:
        self.stream_env = stream_env
        is_native = network.observation == "native"
        env: Any = stream_env if is_native else AgentVectorEnv(stream_env, network)  # type: ignore[arg-type]
        super().__init__(env)

    def state(self) -> dict[str, NDArray[Any]] | None:
        """Plain arrays from which `restore` continues step for step."""
        return {
            **{f"stream/{name}": values for name, values in self.stream_env.state().items()},
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> Any:
        """Continues from a `state` of the same stream; returns the observation."""
        kept = {name.partition("/")[2]: values for name, values in state.items() if name.startswith("stream/")}
        self.stream_env.restore(kept)
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._sums = {}
        observe = getattr(self.env, "observe", self.stream_env.simulator.observation)
        return self._fresh(observe())
