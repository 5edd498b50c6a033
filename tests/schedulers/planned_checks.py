"""What planned rules have in common is tested in one way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dl2env.schedulers import get_scheduler
from tests.schedulers.rules_gangs import next_action
from tests.schedulers.test_rules import without_traps
from tests.schedulers.worlds import answers, random_states, random_world


def check_decisions(
    name: str, options: Mapping[str, Any], rule: Callable[[Any], Any], view: Callable[..., Any]
) -> None:
    """Every decision on random worlds is that of the plain rule.

    Args:
        name: Registered scheduler.
        options: Its options.
        rule: Gives the wanted gangs of a view, in order.
        view: Makes what the rule sees of a simulator, an environment and a speed share.
    """
    scheduler = get_scheduler(name, **options)
    share = options.get("speed_share", 0.8)
    decisions: Counter[str] = Counter()
    for seed in range(12):
        for sim, _, mask in random_states(seed, mask_resources=True, num_steps=60):
            chosen = answers(scheduler, sim)
            for b in np.flatnonzero(~sim.is_done).tolist():
                wanted = rule(view(sim, b, share))
                expected = next_action(sim, b, mask, wanted)
                order = [(gang.index, tasks) for gang, tasks in wanted]
                assert chosen[b] == expected, f"seed {seed}: {chosen[b]}, rule {expected}, order {order}"
                decisions["void" if expected == sim.num_actions - 1 else "wpb"[expected % 3]] += 1
    assert min(decisions[kind] for kind in ("void", "w", "p", "b")) > 20, f"the cases are one-sided: {decisions}"


def check_whole_episodes(name: str) -> None:
    """Whole random episodes are legal, and every job that can finish does."""
    scheduler = get_scheduler(name)
    finished = 0
    for seed in range(10):
        _, sim = random_world(seed, mask_resources=True, max_intervals=5000, is_wide=True)
        if without_traps(sim):
            while not sim.is_done.all():
                assert scheduler.run_intervals(sim, 100).sum() == 0  # type: ignore[attr-defined]
            for b in range(sim.num_envs):
                assert np.isfinite(sim.records(b).finish_s).all(), f"seed {seed}: a job starves"
            finished += 1
    assert finished >= 3
