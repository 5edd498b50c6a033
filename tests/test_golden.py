"""The faithful mode against recorded results of the released DL2 simulator (skipped where they are absent)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dl2env.envs.paper_observation import PaperState
from dl2env.schedulers.base import ClusterView
from dl2env.schedulers.registry import get_scheduler
from dl2env.schedulers.released import released_config
from dl2env.sim.simulator import ClusterSimulator
from tests.golden import Golden, golden_params, load_golden

TOLERANCE = 1e-9
HEURISTICS = ("DRF", "FIFO", "SRTF", "Tetris", "Optimus")


def allocations(sim: ClusterSimulator, golden: Golden) -> dict[str, list[int]]:
    """[workers, PSs] by job id, of jobs that hold a task."""
    jobs = sim.state.jobs[0]
    active = sim.state.active[0, : int(sim.state.env[0]["num_active"])]
    return {
        str(golden.job_ids[i]): [int(jobs[i]["workers"]), int(jobs[i]["ps"])]
        for i in active
        if jobs[i]["workers"] or jobs[i]["ps"]
    }


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("path", golden_params())
def test_heuristic(path: Path, name: str) -> None:
    golden = load_golden(path)
    expected = golden.heuristics[name]
    config = released_config(golden.config)
    sim = ClusterSimulator(config, 1, speed=golden.parameters)
    sim.load([0], [golden.workload])
    scheduler = get_scheduler(f"released-{name.lower()}")
    view = ClusterView(sim)
    rewards, held, used = [], [], []
    totals = np.array([sim.state.rules[0]["total_cpus"], sim.state.rules[0]["total_gpus"]])
    while not sim.is_done[0]:
        before = allocations(sim, golden)
        free = np.array([sim.state.env[0]["free_cpus"], sim.state.env[0]["free_gpus"]])
        report = sim.step(scheduler.act({}, sim.action_masks(), view))
        if report.interval_ended[0]:
            rewards.append(float(report.reward_terms[0, 0]))
            held.append(before)
            used.append((1.0 - free / totals).tolist())
    records = sim.records(0)
    ends = golden.end_times(records.finish_s)
    assert ends == pytest.approx({int(k): v for k, v in expected["end_time"].items()}, abs=TOLERANCE)
    jct = golden.jct_slots(records.finish_s)
    assert jct == pytest.approx({int(k): v for k, v in expected["jct"].items()}, abs=TOLERANCE)
    assert np.mean(list(jct.values())) == pytest.approx(expected["avg_jct"], abs=TOLERANCE)
    assert max(ends.values()) + 1 == pytest.approx(expected["makespan"], abs=TOLERANCE)
    assert len(rewards) == expected["num_slots"]
    assert np.mean(rewards) == pytest.approx(expected["mean_reward"], abs=TOLERANCE)
    first = len(expected["alloc_first20"])
    nonzero = [{k: v for k, v in slot.items() if any(v)} for slot in expected["alloc_first20"]]
    assert held[:first] == nonzero
    assert rewards[:first] == pytest.approx(expected["slot_rewards_first20"], abs=TOLERANCE)
    assert np.array(used[:first]) == pytest.approx(np.array(expected["util_first20"]), abs=TOLERANCE)


@pytest.mark.parametrize("path", golden_params())
def test_environment_transitions(path: Path) -> None:
    golden = load_golden(path)
    sim = ClusterSimulator(golden.config, 1, speed=golden.parameters)
    sim.load([0], [golden.workload])
    observed = PaperState(sim, "released")
    for number, step in enumerate(golden.rl["steps"]):
        mask = sim.action_masks()[0]
        assert int(sim.state.env[0]["interval"]) == step["t"]
        if "mask" in step:
            assert mask.astype(int).tolist() == step["mask"], number
            state = observed.read()[0]
            assert state == pytest.approx(np.array(step["state"]), abs=TOLERANCE), number
        report = sim.step([step["a"]])
        assert bool(report.interval_ended[0]) == step["move"], number
        assert (not report.is_illegal[0] and bool(mask[:-1].any())) == step["valid"], number
        assert report.reward_terms[0, 0] == pytest.approx(step["r"], abs=TOLERANCE), number
    assert bool(sim.is_done[0]) == golden.rl["finished"]
    if golden.rl["finished"]:
        records = sim.records(0)
        ends = {int(k): v for k, v in golden.rl["end_time"].items()}
        assert golden.end_times(records.finish_s) == pytest.approx(ends, abs=TOLERANCE)
