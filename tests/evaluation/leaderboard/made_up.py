"""Made-up entries: what a run writes, without running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import dl2env
from dl2env.evaluation.leaderboard.entry import ENTRY_METRICS, QUANTILE_LEVELS, Entry, aggregate, compact
from dl2env.evaluation.leaderboard.json_file import rounded, rounded_all
from dl2env.evaluation.leaderboard.limits import Limits, mean_metrics

HASH = "a" * 64


def entry(
    scheduler: str = "drf",
    scenario: str = "world-v1",
    factor: float = 1.0,
    num_workloads: int = 20,
    seed: int = 0,
    **changes: Any,
) -> Entry:
    """JCTs that depend on the workload, times a factor and a little noise of its own that averages out."""
    shared = np.random.default_rng([seed, len(scenario)]).lognormal(9.0, 0.4, num_workloads)
    own = np.random.default_rng([seed, *scheduler.encode()])
    jct_s = shared * own.lognormal(0.0, 0.05 if scheduler != "drf" else 1e-9, num_workloads)
    jct_s *= factor * shared.mean() / jct_s.mean()
    columns = {name: np.abs(own.normal(1.0, 0.1, num_workloads)) for name in ENTRY_METRICS}
    for name in ENTRY_METRICS:
        if name.endswith("jct_s"):
            columns[name] = jct_s * (1.0 if name == "mean_jct_s" else own.uniform(0.5, 4.0))
        elif name.startswith("num_"):
            columns[name] = np.full(num_workloads, {"num_unfinished": 0, "num_illegal": 0}.get(name, 60))
    columns["mean_jct_intervals"] = jct_s / 1200.0
    per_workload = {name: compact(values) for name, values in columns.items()}
    jobs = np.sort(own.lognormal(9.0, 1.0, 500)) * factor
    return replace(
        Entry(
            scheduler=scheduler,
            scheduler_name=scheduler,
            options={},
            options_digest="0" * 16,
            scenario=scenario,
            scenario_hash=HASH,
            split="test",
            trim=(0.0, 0.0),
            interval_s=1200.0,
            seeds={"workloads": 0, "scheduler": None},
            is_deterministic=True,
            is_oracle=False,
            estimate={"kind": "exact", "noise": 0.0, "num_probes": 10},
            workload_digests=tuple(f"{k:016x}" for k in range(num_workloads)),
            metrics={
                name: aggregate(name, np.broadcast_to(np.asarray(v, float), (num_workloads,)))
                for name, v in per_workload.items()
            },
            per_workload=per_workload,
            jct_quantiles_s=tuple(rounded(float(q)) for q in np.quantile(jobs, QUANTILE_LEVELS)),
            timing={"wall_s": 1.5, "ms_per_decision": 0.01, "p99_call_ms": 0.2, "cpu_ms_per_episode": 2.5},
            version=dl2env.__version__,
            code_digest="c" * 16,
            versions={"python": "3.11.2"},
            command=f"python scripts/leaderboard.py 'schedulers=[{scheduler}]' 'scenarios=[{scenario}]'",
        ),
        **changes,
    )


def limits(
    scenario: str = "world-v1",
    bound: float = 0.4,
    search: float = 0.45,
    num_workloads: int = 20,
    num_searched: int = 10,
    seed: int = 0,
    **changes: Any,
) -> Limits:
    """A bound and a search at fixed shares of the JCTs in DRF's entry of the same seed, up to its little noise."""
    shared = np.random.default_rng([seed, len(scenario)]).lognormal(9.0, 0.4, num_workloads)
    bound_s, search_s = rounded_all(bound * shared), rounded_all(search * shared[:num_searched])
    return replace(
        Limits(
            scenario=scenario,
            scenario_hash=HASH,
            split="test",
            interval_s=1200.0,
            workload_digests=tuple(f"{k:016x}" for k in range(num_workloads)),
            metrics=mean_metrics(np.array(bound_s), np.array(search_s)),
            bound_jct_s=tuple(bound_s),
            search_jct_s=tuple(search_s),
            search_num_unfinished=0,
            options={"search_workloads": 10, "search_seconds": 60.0, "search_horizon": 25},
            timing={"wall_s": 1.0, "bound_cpu_s": 0.1, "search_cpu_s": 0.9},
            version=dl2env.__version__,
            code_digest="c" * 16,
            versions={"python": "3.11.2"},
            command=f"python scripts/leaderboard.py 'schedulers=[drf]' 'scenarios=[{scenario}]'",
        ),
        **changes,
    )
