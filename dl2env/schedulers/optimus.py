"""Optimus: the task with the largest reduction of remaining time per dominant resource."""

from __future__ import annotations

import dataclasses
import math

from dl2env.config import EnvConfig, EstimateConfig
from dl2env.errors import ConfigError
from dl2env.jit import inline_kernel
from dl2env.schedulers.codes import OPTIMUS
from dl2env.schedulers.heuristic import Heuristic, counts_after, has_kind, shares_server
from dl2env.sim.placement import BUNDLE, PS, WORKER, action_demand
from dl2env.sim.speeds import estimated_speed


@inline_kernel
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


@inline_kernel
def score_optimus(state, b, i, legal, params):
    """The task that saves most remaining time per dominant share; `params[0]`: whether pairs are considered too."""
    job = state.jobs[b, i]
    job_type = state.types[job.type]
    rules = state.rules[0]
    estimate = state.estimate[b % state.estimate.shape[0], job.type]
    is_paired = shares_server(state.classes[job.type], state.demands)
    # A job that lacks a role it needs starts first: the missing role, or both at once.
    is_stopped = job.workers == 0 or (job_type.max_ps > 0 and job.ps == 0)
    best = 0.0
    best_kind = -1
    for kind in (PS, WORKER, BUNDLE):
        if not has_kind(legal, kind) or (kind == BUNDLE and params[0] == 0.0 and not is_stopped):
            continue
        saved = _time_saved(job, job_type, is_paired, estimate, kind)
        cpus, gpus = action_demand(job_type, kind)
        share = 0.0
        if rules.total_cpus > 0:
            share = cpus / rules.total_cpus
        if rules.total_gpus > 0:
            share = max(share, gpus / rules.total_gpus)
        utility = saved / share
        if utility > best:
            best = utility
            best_kind = kind
    return best, best_kind


class OptimusScheduler(Heuristic):
    """Greedy marginal gain: one worker or parameter server (PS) at a time, until nothing is gained.

    The next task is the one that saves most remaining time per dominant share. Source: Peng et al., EuroSys 2018. Every
    job first gets one worker and one PS; ties go to the PS, then by arrival. Speeds are isolated ones: Optimus does not
    see contention. Its own placement (equal numbers on the fewest servers) is replaced by the scenario's strategy.

    Args:
        estimate: What it knows of speeds: None (what the scenario says), `exact`, `fitted` (resource-speed functions
            from probes of each type and from observed speeds) or `noisy`.
        noise: Relative error of probes or estimates, see `EstimateConfig`.
        num_probes: Probes per type (`fitted`), ten by default.
        bundle: Also consider one worker and one PS at once, which gets it over ridges of the speed surface (ours).
    """

    code = OPTIMUS

    def __init__(
        self, estimate: str | None = None, noise: float = 0.0, bundle: bool = False, num_probes: int | None = None
    ) -> None:
        if noise and estimate not in ("fitted", "noisy"):
            raise ConfigError("optimus: noise needs estimate=fitted or estimate=noisy")
        if num_probes is not None and estimate != "fitted":
            raise ConfigError("optimus: num_probes needs estimate=fitted")
        self._estimate: EstimateConfig | None = None
        if estimate is not None:
            probes = {} if num_probes is None else {"num_probes": num_probes}
            self._estimate = EstimateConfig(kind=estimate, noise=noise, **probes)  # type: ignore[arg-type]
        super().__init__(bundle)
        parts = ["optimus", *([estimate] if estimate else []), *([f"{noise:g}"] if noise else [])]
        parts += [f"{num_probes}-probes"] if num_probes is not None else []
        self.name = "-".join([*parts, *(["bundle"] if bundle else [])])

    def configure(self, config: EnvConfig) -> EnvConfig:
        """Sees every job, and knows speeds as its options say."""
        config = super().configure(config)
        return config if self._estimate is None else dataclasses.replace(config, estimate=self._estimate)
