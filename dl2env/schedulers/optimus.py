"""Optimus: the task with the largest reduction of remaining time per dominant resource."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dl2env.config import EnvConfig, EstimateConfig
from dl2env.errors import ConfigError
from dl2env.jit import kernel
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.heuristic import Heuristic, counts_after, shares_server
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand
from dl2env.sim.speeds import estimated_speed


@kernel
def _time_saved(job, job_type, is_paired, estimate, kind):
    """Seconds of remaining time that an action saves, by isolated estimated speeds; infinite for the first tasks."""
    left = max(job.epochs - job.epochs_done, 0.0) * job.samples_per_epoch
    workers, num_ps = counts_after(job, job_type, is_paired, kind)
    now = estimated_speed(estimate, job_type, job.workers, job.ps, 1.0)
    then = estimated_speed(estimate, job_type, workers, num_ps, 1.0)
    if then <= 0.0:
        return -math.inf
    if now <= 0.0:
        return math.inf
    return left / now - left / then


@kernel
def choose_optimus(jobs, window, mask, types, classes, demands, estimates, rules, allow_bundle, actions):
    """Writes Optimus' action of each environment; `actions` comes filled with void."""
    total_cpus = rules[0].total_cpus
    total_gpus = rules[0].total_gpus
    for b in range(window.shape[0]):
        best = 0.0
        for slot in range(window.shape[1]):
            i = window[b, slot]
            if i < 0:
                break
            job = jobs[b, i]
            job_type = types[job.type]
            estimate = estimates[b % estimates.shape[0], job.type]
            is_paired = shares_server(classes[job.type], demands)
            # A job that lacks a role it needs starts first: the missing role, or both at once.
            is_stopped = job.workers == 0 or (job_type.max_ps > 0 and job.ps == 0)
            for kind in (PS, WORKER, BUNDLE):
                if not mask[b, 3 * slot + kind]:
                    continue
                if kind == BUNDLE and not (allow_bundle or is_stopped):
                    continue
                saved = _time_saved(job, job_type, is_paired, estimate, kind)
                cpus, gpus = action_demand(job_type, kind)
                share = 0.0
                if total_cpus > 0:
                    share = cpus / total_cpus
                if total_gpus > 0:
                    share = max(share, gpus / total_gpus)
                utility = saved / share
                if utility > best:
                    best = utility
                    actions[b] = 3 * slot + kind


class OptimusScheduler(Heuristic):
    """Greedy marginal gain: one worker or parameter server (PS) at a time, until nothing is gained.

    The next task is the one that saves most remaining time per dominant share. Source: Peng et al., EuroSys 2018. Every
    job first gets one worker and one PS; ties go to the PS, then by arrival. Speeds are isolated ones: Optimus does not
    see contention. Its own placement (equal numbers on the fewest servers) is replaced by the scenario's strategy.

    Args:
        estimate: What it knows of speeds: None (what the scenario says), `exact`, `fitted` (resource-speed functions
            from ten probes per type and from observed speeds) or `noisy`.
        noise: Relative error of probes or estimates, see `EstimateConfig`.
        bundle: Also consider one worker and one PS at once, which gets it over ridges of the speed surface (ours).
    """

    def __init__(self, estimate: str | None = None, noise: float = 0.0, bundle: bool = False) -> None:
        if noise and estimate not in ("fitted", "noisy"):
            raise ConfigError("optimus: noise needs estimate=fitted or estimate=noisy")
        self._estimate = EstimateConfig(kind=estimate, noise=noise) if estimate is not None else None  # type: ignore[arg-type]
        self._bundle = bundle
        parts = ["optimus", *([estimate] if estimate else []), *([f"{noise:g}"] if noise else [])]
        self.name = "-".join([*parts, *(["bundle"] if bundle else [])])

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Sees every job, and knows speeds as its options say."""
        config = super().configure(config)
        return config if self._estimate is None else dataclasses.replace(config, estimate=self._estimate)

    def _choose(self, mask: NDArray[np.bool_], view: ClusterView, actions: NDArray[np.int64]) -> None:
        s = view.simulator.state
        choose_optimus(
            s.jobs, s.window, mask, s.types, s.classes, s.demands, s.estimate, s.rules, self._bundle, actions
        )
