"""Frozen scenarios: named worlds with training, validation and test workloads that never change.

A scenario is a TOML file in `data/scenarios`. Once results on it have been published its world is not edited; a better
one gets the next version. `Scenario.hash` is stored with results and tells whether two of them are comparable.
"""

from __future__ import annotations

from dl2env.scenarios.reader import load_scenario
from dl2env.scenarios.scenario import SPLITS, TRACE_PARTS, Scenario, Split, split_seed
from dl2env.scenarios.suite import get_scenario, list_scenarios, suite_names

__all__ = [
    "SPLITS",
    "TRACE_PARTS",
    "Scenario",
    "Split",
    "get_scenario",
    "list_scenarios",
    "load_scenario",
    "split_seed",
    "suite_names",
]
