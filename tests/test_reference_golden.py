"""The reference simulator reproduces the released DL2 simulator's recorded outcomes."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden import Golden, golden_params, load_golden
from tests.reference import ReferenceSimulator
from tests.reference.schedulers import RELEASED

PATHS = golden_params(slow=("g01",))
TOLERANCE = 1e-9

load = cache(load_golden)


def by_id(values: dict[str, Any]) -> dict[int, Any]:
    """JSON objects have text keys; job ids are numbers."""
    return {int(key): value for key, value in values.items()}


def simulator(golden: Golden, **dynamics: Any) -> ReferenceSimulator:
    config = dataclasses.replace(golden.config, dynamics=dataclasses.replace(golden.config.dynamics, **dynamics))
    return ReferenceSimulator(config, golden.parameters, golden.estimate, golden.workload)


@pytest.mark.parametrize("name", sorted(RELEASED))
@pytest.mark.parametrize("path", PATHS)
def test_heuristic_is_reproduced(path: Path, name: str) -> None:
    golden = load(path)
    expected = golden.heuristics[name]
    sim = simulator(golden, initial_bundle=False)
    rewards: list[float] = []
    while not sim.is_over:
        slot = sim.interval
        RELEASED[name](sim)
        if slot < len(expected["alloc_first20"]):
            allocations = dict(zip(golden.job_ids, sim.allocations(), strict=True))
            for job_id, allocation in by_id(expected["alloc_first20"][slot]).items():
                assert allocations[job_id] == tuple(allocation), f"slot {slot}, job {job_id}"
            recorded = {int(job_id) for job_id in expected["alloc_first20"][slot]}
            assert all(total == (0, 0) for job_id, total in allocations.items() if job_id not in recorded)
            assert sim.cluster.utilisation() == pytest.approx(expected["util_first20"][slot], abs=TOLERANCE)
        rewards.append(sim.end_interval().reward_terms["progress"])
    assert sim.is_terminated
    assert len(rewards) == expected["num_slots"]
    recorded_rewards = expected["slot_rewards_first20"]
    assert rewards[: len(recorded_rewards)] == pytest.approx(recorded_rewards, abs=TOLERANCE)
    assert np.mean(rewards) == pytest.approx(expected["mean_reward"], abs=TOLERANCE)
    finish_s = sim.finish_times()
    assert golden.end_times(finish_s) == pytest.approx(by_id(expected["end_time"]), abs=TOLERANCE)
    jct = golden.jct_slots(finish_s)
    assert jct == pytest.approx(by_id(expected["jct"]), abs=TOLERANCE)
    assert np.mean(list(jct.values())) == pytest.approx(expected["avg_jct"], abs=TOLERANCE)
    assert max(golden.end_times(finish_s).values()) + 1.0 == pytest.approx(expected["makespan"], abs=TOLERANCE)


def released_state(sim: ReferenceSimulator, window: int) -> np.ndarray:
    """The six rows of the released state: type, slots since arrival, remaining fraction, dominant share, counts."""
    state = np.zeros((6, window))
    for slot, job in enumerate(sim.window):
        age = (sim.now_s - job.arrival_s) / sim.rules.interval_s
        share = sim.cluster.dominant_share(job)
        state[:, slot] = [job.type.index + 1, age, job.remaining_fraction, share, job.workers, job.ps]
    return state


@pytest.mark.parametrize("path", PATHS)
def test_rl_transitions_are_reproduced(path: Path) -> None:
    golden = load(path)
    sim = simulator(golden)
    slot_rewards, utilisation = [], []
    for number, step in enumerate(golden.rl["steps"]):
        where = f"step {number}"
        mask = sim.mask()
        if "mask" in step:
            assert mask == [bool(legal) for legal in step["mask"]], where
        if "state" in step:
            np.testing.assert_allclose(
                released_state(sim, golden.config.observation.window), step["state"], atol=TOLERANCE, err_msg=where
            )
        assert sim.interval == step["t"], where
        before = sim.cluster.utilisation()
        result = sim.step(step["a"])
        is_stored = any(mask[:-1]) and not result.is_illegal
        assert (result.interval_ended, is_stored) == (step["move"], step["valid"]), where
        assert result.reward_terms["progress"] == pytest.approx(step["r"], abs=TOLERANCE), where
        if result.interval_ended:
            slot_rewards.append(result.reward_terms["progress"])
            utilisation.append(before)
    assert sim.is_terminated == golden.rl["finished"]
    assert slot_rewards == pytest.approx(golden.rl["slot_rewards"], abs=TOLERANCE)
    assert [cpu for cpu, _ in utilisation] == pytest.approx(golden.rl["cpu_util"], abs=TOLERANCE)
    assert [gpu for _, gpu in utilisation] == pytest.approx(golden.rl["gpu_util"], abs=TOLERANCE)
    end_times = {job: end for job, end in golden.end_times(sim.finish_times()).items() if end == end}
    assert end_times == pytest.approx(by_id(golden.rl["end_time"]), abs=TOLERANCE)
    if golden.rl["finished"]:
        jct = golden.jct_slots(sim.finish_times())
        assert np.mean(list(jct.values())) == pytest.approx(golden.rl["avg_jct"], abs=TOLERANCE)
        assert np.mean(slot_rewards) == pytest.approx(golden.rl["mean_reward"], abs=TOLERANCE)
