"""What a step must do to one environment, replayed in plain Python from its recount."""

from __future__ import annotations

import math

import numpy as np

from dl2env.evaluation.recount import Counts, Matrix, Recount
from dl2env.sim import dynamics
from dl2env.sim.noise import interval_noise
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import REWARD_TERMS
from dl2env.speed.fitted import term_matrix


class Replay(Recount):
    """A recount that can take a decision and let time pass.

    Args:
        sim: The simulator, before the step.
        b: Environment.

    Attributes:
        next_job: First job not yet admitted.
        used_s: (2,) CPU and GPU unit seconds allocated so far.
        num_full: Ended intervals at whose end some demand fitted no server.
        fit: (T, 5, 6) normal equations of the online fit, or (0, 5, 6).
        reward: Reward terms of the replayed step.
        is_terminated: The last job has finished.
        is_truncated: The interval limit was reached.
    """

    def __init__(self, sim: ClusterSimulator, b: int) -> None:
        super().__init__(sim, b)
        env = sim.state.env[b]
        self._noise_key = int(env["noise_key"])
        self._pending_wait = float(env["pending_wait"])
        self.next_job = int(env["next_job"])
        self.used_s = np.array([env["used_cpu_s"], env["used_gpu_s"]])
        self.num_full = int(env["num_intervals_full"])
        self.fit = sim.state.fit[b].copy() if sim.config.estimate.kind == "fitted" else np.zeros((0, 5, 6))
        self.reward = dict.fromkeys(REWARD_TERMS, 0.0)
        self.is_terminated = False
        self.is_truncated = False

    def act(self, k: int, kind: int) -> bool:
        """Replays a job action; False when it fails."""
        before = self.relative(self.counts).sum()
        if not self.place(k, kind):
            return False
        self.reward["speed_gain"] += float(self.relative(self.counts).sum() - before)
        return True

    def end_interval(self, finish_s: Matrix) -> None:
        """Replays what follows the end of an interval, up to the next decision or the end of the episode.

        Args:
            finish_s: (N,) finish times seen after the step. They decide only where a job's work ends with the interval
                to within rounding.
        """
        while True:
            self._train(finish_s)
            self.interval += 1
            self.is_terminated = bool(np.isfinite(self.jobs["finish_s"]).all())
            while True:
                self.is_truncated = not self.is_terminated and self.interval >= self._rules.max_intervals
                if self.is_terminated or self.is_truncated:
                    return
                self._begin_interval()
                if self.active or not self._rules.auto_advance:
                    break
                # An empty cluster passes over intervals until a job is admitted.
                if self.jobs["arrival_s"][self.next_job] > (self._rules.max_intervals - 1) * self._rules.interval_s:
                    self.interval = self._rules.max_intervals
                else:
                    self.interval += 1
            if not self._rules.auto_advance or self.is_legal[self.slots].any():
                return

    def charge_waiting(self) -> None:
        """Charges the time that jobs admitted since the last step have waited."""
        self.reward["jct"] -= self._pending_wait
        self._pending_wait = 0.0

    def _begin_interval(self) -> None:
        now_s = self.interval * self._rules.interval_s
        trained = np.where(self.can_train[:, None], self.counts, 0)
        for k, i in enumerate(self.active):
            self.jobs["last_workers"][i], self.jobs["last_ps"][i] = trained[k]
        while self.next_job < len(self.jobs) and self.jobs["arrival_s"][self.next_job] <= now_s:
            self._pending_wait += (now_s - self.jobs["arrival_s"][self.next_job]) / self._rules.interval_s
            self.active.append(self.next_job)
            self.next_job += 1
        self.tasks = np.zeros((len(self.active), len(self._capacity), 2), np.int64)
        self.forget()
        self.pinned = -1
        if self._rules.initial_bundle:
            for k, (_, max_ps) in enumerate(self.caps):
                self.place(k, 2 if max_ps > 0 else 0)

    def _cost_s(self, i: int, counts: Counts) -> float:
        """Training time that a change of job i's allocation costs."""
        job = self.jobs[i]
        changed = abs(int(counts[0]) - int(job["last_workers"])) + abs(int(counts[1]) - int(job["last_ps"]))
        if changed == 0 or job["last_workers"] == 0 or self._rules.scaling_cost == "none":
            return 0.0
        if self._rules.scaling_cost == "hot":
            weights = float(self._types["weight_bytes"][job["type"]]) / dynamics.HOT_REFERENCE_BYTES
            return min(dynamics.HOT_S_PER_TASK * changed * weights, self._rules.interval_s)
        return min(dynamics.CHECKPOINT_S + dynamics.CHECKPOINT_S_PER_TASK * changed, self._rules.interval_s)

    def _train(self, finish_s: Matrix) -> None:
        interval_s = self._rules.interval_s
        now_s = self.interval * interval_s
        counts, can_train, speed = self.counts, self.can_train, self.true_speed.copy()
        held = np.einsum("ar,aru->au", counts, self.task_demand)
        kept = []
        for k, i in enumerate(self.active):
            job = self.jobs[i]  # a view
            self.reward["jct"] -= 1.0
            job["gpu_s"] += held[k, 1] * interval_s
            if not can_train[k]:
                kept.append(k)
                continue
            if self._rules.speed_noise > 0:
                key, share = np.uint64(self._noise_key), self._rules.speed_noise
                speed[k] *= interval_noise(key, i, self.interval, share)
            self._observe(int(job["type"]), counts[k], float(speed[k]))
            if math.isnan(job["start_s"]):
                job["start_s"] = now_s
            job["num_resizes"] += job["last_workers"] > 0 and (
                (job["last_workers"], job["last_ps"]) != tuple(counts[k].tolist())
            )
            job["intervals_run"] += 1
            cost_s = self._cost_s(i, counts[k])
            gain = float(speed[k]) * (interval_s - cost_s) / float(job["samples_per_epoch"])
            left = float(job["true_epochs"] - job["epochs_done"])
            finishes = gain >= left
            if math.isclose(gain, left, rel_tol=1e-9):
                finishes = bool(finish_s[i] <= now_s + interval_s * (1 + 1e-9))
            if finishes:
                gain = max(gain, left)
                spent_s = cost_s + left / gain * (interval_s - cost_s) if self._rules.exact_finish else interval_s
                job["finish_s"] = now_s + spent_s
                job["epochs_done"] = job["true_epochs"]
                self.reward["jct"] += 1.0 - spent_s / interval_s
                gain = left
            else:
                job["epochs_done"] += gain
                kept.append(k)
            self.reward["progress"] += gain / float(job["epochs"])
            best = self._best_speed[job["type"]]
            if best > 0:
                self.reward["ideal_progress"] += gain * float(job["samples_per_epoch"]) / float(best) / interval_s
        self.used_s += self.used.sum(axis=0) * interval_s
        self.num_full += bool((self.num_fit == 0).any())
        self.active = [self.active[k] for k in kept]
        self.tasks = self.tasks[kept]
        self.forget()

    def _observe(self, t: int, counts: Counts, speed: float) -> None:
        """Adds an observed speed to the normal equations of a type."""
        if len(self.fit) == 0 or speed <= 0.0:
            return
        kind = self._types[t]
        workers, ps = counts.tolist()
        step_s = (1.0 if kind["is_synchronous"] else workers) * float(kind["batch_size"]) / speed
        if not math.isfinite(step_s) or step_s <= 0.0:
            return
        terms = term_matrix(bool(kind["is_synchronous"]), float(kind["batch_size"]), workers, ps) / step_s
        self.fit[t] += np.outer(terms, [*terms, 1.0])
