"""One simulated cluster, one decision at a time, obvious rather than fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig
from dl2env.speed.parameters import SpeedParameters
from dl2env.workload.jobs import Workload
from tests.reference import noise, observation
from tests.reference.cluster import Cluster, Job, Server, read_types
from tests.reference.speed import EstimatedSpeed, Links, TrueSpeed

HOT_COST_S = 0.1  # per changed task of a model of HOT_COST_BYTES
HOT_COST_BYTES = 102.2e6
CHECKPOINT_COST_S = 11.0
CHECKPOINT_COST_PER_TASK_S = 0.9
TASKS_OF_ACTION = ((1, 0), (0, 1), (1, 1))  # (workers, PSs) of the three actions of a job slot


@dataclass
class StepResult:
    """What one decision did."""

    reward_terms: dict[str, float]
    interval_ended: bool = False
    is_illegal: bool = False
    terminated: bool = False
    truncated: bool = False


class ReferenceSimulator:
    """Simulates one episode by the rules of `docs/architecture.md`.

    Args:
        config: The environment; what it says about hardware and job types is taken from `parameters` instead.
        parameters: Job types and their speeds.
        estimate: (T, W + 2, P + 2, 2) estimated step seconds and, of these, communication seconds.
        workload: Jobs of the episode.
        type_features: (T, K) columns of the observation that describe a type; none by default.
    """

    def __init__(
        self,
        config: EnvConfig,
        parameters: SpeedParameters,
        estimate: NDArray[np.float64],
        workload: Workload,
        type_features: NDArray[np.float32] | None = None,
    ) -> None:
        self.config = config
        self.rules = config.dynamics
        self.workload = workload
        self.types = read_types(parameters)
        self.type_features = np.zeros((len(self.types), 0), np.float32) if type_features is None else type_features
        self.cluster = Cluster(config.cluster, parameters.gpu_kinds, self.rules.placement, self.rules.load_by_sum)
        self.true_speed = TrueSpeed(self.cluster, config.cluster, config.speed, parameters)
        self.learn(estimate)
        self.jobs = [
            Job(
                index=i,
                type=self.types[int(workload.type_idx[i])],
                arrival_s=float(workload.arrival_s[i]),
                epochs=float(workload.epochs[i]),
                true_epochs=float(workload.true_epochs[i]),
                samples_per_epoch=float(workload.samples_per_epoch[i]),
            )
            for i in range(workload.num_jobs)
        ]
        self.interval = 0
        self.num_admitted = 0
        self.active: list[Job] = []  # admitted and unfinished, in arrival order
        self._fixed_window: list[Job] = []
        self.is_terminated = False
        self.is_truncated = False
        # Waiting in idle intervals before the first decision belongs to the first step.
        self._pending = _no_reward()
        self._start_interval()
        while self.rules.auto_advance and not self.active and not self.is_over:
            self._end_interval(self._pending)

    # ---------------------------------------------------------------- state

    @property
    def now_s(self) -> float:
        """Start of the present interval."""
        return self.interval * self.rules.interval_s

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def window(self) -> list[Job]:
        """Jobs in the slots, in arrival order."""
        if self.rules.window_skips_capped:
            return [job for job in self.active if not job.is_capped][: self.config.observation.window]
        return self._fixed_window

    @property
    def void(self) -> int:
        """The action that ends the interval."""
        return 3 * self.config.observation.window

    def links(self, on_network: Job | None = None) -> Links:
        """Sharing of links under the present placements; measured speeds know none.

        Args:
            on_network: A job to take as if its tasks exchanged weights across servers.
        """
        sharing = 0.0 if self.config.speed.model == "measured" else self.config.cluster.link_sharing
        return Links(self.active, len(self.cluster.servers), sharing, on_network)

    def allocations(self) -> list[tuple[int, int]]:
        """(workers, PSs) of every job of the episode."""
        return [(job.workers, job.ps) for job in self.jobs]

    def placements(self) -> list[dict[int, tuple[int, int]]]:
        """For every job: server id -> (workers, PSs) there."""
        return [{s: (t.workers, t.ps) for s, t in job.tasks.items()} for job in self.jobs]

    def finish_times(self) -> list[float]:
        """Finish time of every job in seconds, NaN while unfinished."""
        return [job.finish_s for job in self.jobs]

    def true_speeds(self) -> list[float]:
        """Samples/s that every job really trains at under the present placements, without noise."""
        links = self.links()
        return [self.true_speed.speed(job, links) for job in self.jobs]

    def estimated_speeds(self) -> list[float]:
        """Samples/s that schedulers expect of every job under the present placements."""
        links = self.links()
        return [self.estimated_speed.speed(j.type, j.workers, j.ps, links.job_stretch(j)) for j in self.jobs]

    def relative_speeds(self) -> list[float]:
        """Estimated speed of every job in units of its best isolated speed."""
        return [
            speed / best if (best := self.estimated_speed.best[job.type.index]) > 0.0 else 0.0
            for job, speed in zip(self.jobs, self.estimated_speeds(), strict=True)
        ]

    def observation(self) -> dict[str, NDArray[np.float64]]:
        """`jobs` (J, K + 23) and `cluster` (8,), in float64."""
        return observation.observe(self)

    def learn(self, estimate: NDArray[np.float64]) -> None:
        """Replaces what schedulers know of speeds, (T, W + 2, P + 2, 2)."""
        self.estimated_speed = EstimatedSpeed(estimate.copy(), self.types)

    # ---------------------------------------------------------------- decisions

    def mask(self) -> list[bool]:
        """Legality of every action."""
        legal = [False] * self.void + [True]
        for slot, job in enumerate(self.window):
            for kind, (workers, ps) in enumerate(TASKS_OF_ACTION):
                legal[3 * slot + kind] = self._is_legal(job, workers, ps)
        return legal

    def _is_legal(self, job: Job, workers: int, ps: int) -> bool:
        if ps > 0 and not job.type.needs_ps:
            return False
        if job.workers + workers > job.type.max_workers or job.ps + ps > job.type.max_ps:
            return False
        return not self.rules.mask_resources or self.cluster.choose(job, job.type.demand(workers, ps)) is not None

    def net_gain(self, job: Job, workers: int, ps: int) -> float:
        """Change of the summed relative speed of all jobs by a further placement; 0 if it is illegal or fails."""
        server = self.cluster.choose(job, job.type.demand(workers, ps))
        if server is None or not self._is_legal(job, workers, ps):
            return 0.0
        before = sum(self.relative_speeds())
        self.cluster.put(job, server, workers, ps)
        gain = sum(self.relative_speeds()) - before
        self.cluster.take_back(job, server, workers, ps)
        return gain

    def gain_ahead(self, job: Job, workers: int, ps: int) -> float:
        """The net gain, or that of one of 2 or 4 equal placements taken together if it is larger.

        The further tasks are taken to meet, and to do to others, what the first one does on its server, or would do if
        the job were on the network.
        """
        gain, demand = self.net_gain(job, workers, ps), job.type.demand(workers, ps)
        server = self.cluster.choose(job, demand)
        if server is None or not self._is_legal(job, workers, ps):
            return 0.0
        if job.type.needs_ps and not (job.workers > 0 and job.ps > 0):
            return gain
        held, before = (job.workers, job.ps), self.relative_speeds()
        scope = [server] if job.type.needs_one_server else self.cluster.servers
        if job.type.needs_one_server and not job.tasks:
            return gain
        free_cpus = sum(s.cpus - s.used_cpus for s in scope)
        free_gpus = sum(s.gpus - s.used_gpus for s in scope)
        self.cluster.put(job, server, workers, ps)
        links = self.links(on_network=None if job.type.needs_one_server else job)
        stretch = links.job_stretch(job)
        others = [other for other in self.active if other is not job]
        loss = sum(before[o.index] - self._relative(o, o.workers, o.ps, links.job_stretch(o)) for o in others)
        self.cluster.take_back(job, server, workers, ps)
        for n in (2, 4):
            counts = (held[0] + n * workers, held[1] + n * ps)
            if counts[0] > job.type.max_workers or counts[1] > job.type.max_ps:
                break
            if n * demand.cpus > free_cpus or n * demand.gpus > free_gpus:
                break
            if self.estimated_speed.best[job.type.index] > 0.0:
                gain = max(gain, (self._relative(job, *counts, stretch) - before[job.index]) / n - loss)
        return gain

    def _relative(self, job: Job, workers: int, ps: int, stretch: float) -> float:
        return self.estimated_speed.relative(job.type, workers, ps, stretch)

    def step(self, action: int) -> StepResult:
        """Takes one decision and whatever follows from it.

        Raises:
            RuntimeError: The episode has ended.
        """
        if self.is_over:
            raise RuntimeError("the episode has ended")
        result = StepResult(self._pending)
        self._pending = _no_reward()
        placed = False
        if action != self.void and self.mask()[action]:
            slot, kind = divmod(action, 3)
            before = sum(self.relative_speeds())
            placed = self.allocate(self.window[slot], *TASKS_OF_ACTION[kind])
            if placed:
                result.reward_terms["speed_gain"] += sum(self.relative_speeds()) - before
        result.is_illegal = action != self.void and not placed
        if not placed:
            self._end_interval(result.reward_terms)
            result.interval_ended = True
        if self._advance_to_choice(result.reward_terms):
            result.interval_ended = True
        result.terminated, result.truncated = self.is_terminated, self.is_truncated
        return result

    def allocate(self, job: Job, workers: int, ps: int) -> bool:
        """Starts tasks on the server that the placement rule gives; False when it gives none."""
        server = self.cluster.choose(job, job.type.demand(workers, ps))
        if server is None:
            return False
        self.cluster.put(job, server, workers, ps)
        return True

    def allocate_on(self, job: Job, server: Server, workers: int, ps: int) -> bool:
        """Starts tasks on a given server; False when they do not fit."""
        if not server.can_hold(job.type.demand(workers, ps)):
            return False
        self.cluster.put(job, server, workers, ps)
        return True

    def end_interval(self) -> StepResult:
        """Ends the interval without a decision, for schedulers that allocate by themselves."""
        result = StepResult(self._pending, interval_ended=True)
        self._pending = _no_reward()
        self._end_interval(result.reward_terms)
        result.terminated, result.truncated = self.is_terminated, self.is_truncated
        return result

    # ---------------------------------------------------------------- time

    def _advance_to_choice(self, reward_terms: dict[str, float]) -> bool:
        """With `auto_advance`, ends intervals until some job action is legal; whether any ended."""
        ended = False
        while self.rules.auto_advance and not self.is_over and not any(self.mask()[: self.void]):
            self._end_interval(reward_terms)
            ended = True
        return ended

    def _start_interval(self) -> None:
        while self.num_admitted < len(self.jobs) and self.jobs[self.num_admitted].arrival_s <= self.now_s:
            self.active.append(self.jobs[self.num_admitted])
            self.num_admitted += 1
        self.cluster.clear()
        for job in self.jobs:
            job.tasks.clear()
        if self.rules.initial_bundle:
            for job in self.active:
                self.allocate(job, *job.type.first_bundle)
        self._fixed_window = self.active[: self.config.observation.window]

    def _end_interval(self, reward_terms: dict[str, float]) -> None:
        interval_s = self.rules.interval_s
        links = self.links()
        for job in self.active:
            speed = self.true_speed.speed(job, links)
            gained = self._train(job, speed)
            reward_terms["progress"] += gained / job.epochs
            best = self.estimated_speed.best[job.type.index]
            if best > 0.0:
                reward_terms["ideal_progress"] += gained * job.samples_per_epoch / (best * interval_s)
        start_s, end_s = self.now_s, (self.interval + 1) * interval_s
        self.active = [job for job in self.active if not job.is_finished]
        self.interval += 1
        self.is_terminated = all(job.is_finished for job in self.jobs)
        self.is_truncated = not self.is_terminated and self.interval >= self.rules.max_intervals
        # Waiting before admission counts, but not that of jobs which the limit keeps from ever being admitted.
        for job in self.jobs[: self.num_admitted] if self.is_truncated else self.jobs:
            until_s = job.finish_s if job.is_finished else end_s
            reward_terms["jct"] -= max(0.0, min(until_s, end_s) - max(job.arrival_s, start_s)) / interval_s
        if not self.is_over:
            self._start_interval()

    def _train(self, job: Job, speed: float) -> float:
        """Trains a job until the interval's end; epochs gained."""
        allocation = (job.workers, job.ps)
        cost_s = self._scaling_cost_s(job, allocation)
        job.last_allocation = allocation
        if not job.can_train:
            return 0.0
        job.intervals_run += 1
        if np.isnan(job.start_s):
            job.start_s = self.now_s
        factor = noise.speed_factor(self.rules.speed_noise, self.workload.noise_key, job.index, self.interval)
        training_s = self.rules.interval_s - cost_s
        gain = speed * factor * training_s / job.samples_per_epoch
        remaining = job.true_epochs - job.epochs_done
        if gain < remaining:
            job.epochs_done += gain
            return gain
        job.epochs_done = job.true_epochs
        if self.rules.exact_finish:
            job.finish_s = self.now_s + cost_s + remaining / gain * training_s
        else:
            job.finish_s = (self.interval + 1) * self.rules.interval_s
        return remaining

    def _scaling_cost_s(self, job: Job, allocation: tuple[int, int]) -> float:
        last = job.last_allocation
        num_changed = abs(allocation[0] - last[0]) + abs(allocation[1] - last[1])
        if num_changed == 0 or not job.type.can_train(*last) or self.rules.scaling_cost == "none":
            return 0.0
        if self.rules.scaling_cost == "hot":
            cost_s = HOT_COST_S * num_changed * job.type.weight_bytes / HOT_COST_BYTES
        else:
            cost_s = CHECKPOINT_COST_S + CHECKPOINT_COST_PER_TASK_S * num_changed
        return min(cost_s, self.rules.interval_s)


def _no_reward() -> dict[str, float]:
    return dict.fromkeys(("progress", "jct", "ideal_progress", "speed_gain"), 0.0)
