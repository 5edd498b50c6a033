"""Made-up results."""

from __future__ import annotations

from typing import Any

from agents.paper.record import JCT, Record

BASE: dict[str, Any] = {
    "experiment": "dl2",
    "seed": 1,
    "scenario": "toy-v1",
    "scenario_hash": "h",
    "tested_in": "dl2",
    "settings": {"seed": 1},
    "settings_digest": "s",
    "scale": 1.0,
    "workloads": "w",
    "num_workloads": 3,
    "schedulers": {},
    "curve": [[0, 0, 6.0], [100, 10, 5.0], [200, 20, 4.0]],
    "levels": {"drf": 5.5},
    "num_updates": 20,
    "num_decisions": 200,
    "decision_ms": None,
    "timing": {"cpu_s": 1.0},
    "code_digest": "c",
    "versions": {"dl2env": "0"},
    "command": "python",
}


def record(experiment: str = "dl2", seed: int = 1, jct: dict[str, list[float]] | None = None, **values: Any) -> Record:
    """A result with these mean JCTs by scheduler and workload."""
    jct = jct or {"fine-tuned": [4.0, 5.0, 6.0], "drf": [8.0, 10.0, 12.0]}
    schedulers = {name: {JCT: scores} for name, scores in jct.items()}
    own = {"experiment": experiment, "seed": seed, "schedulers": schedulers, "num_workloads": len(jct["fine-tuned"])}
    return Record(**{**BASE, **own, "tested_in": experiment, **values})
