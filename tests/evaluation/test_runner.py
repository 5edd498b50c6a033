"""The runner: pairing, batching, guards, interruption."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dl2env.config import EnvConfig
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.metrics import METRIC_NAMES
from dl2env.evaluation.runner import SchedulerError, SchedulerResult, evaluate, run_scheduler
from dl2env.scenarios import get_scenario
from dl2env.schedulers.registry import get_scheduler
from dl2env.sim.simulator import ClusterSimulator
from tests.evaluation.fakes import AlwaysVoid, Answers, FirstLegal, small_scenario


def same_results(a: SchedulerResult, b: SchedulerResult) -> bool:
    return a.metrics == b.metrics and all(
        np.array_equal(x.finish_s, y.finish_s, equal_nan=True) for x, y in zip(a.records, b.records, strict=True)
    )


def test_toy_by_hand() -> None:
    """Void keeps (1, 1): 180 samples at 1/s and 384 at 1/s."""
    evaluation = evaluate([AlwaysVoid()], get_scenario("toy-v1"))
    (metrics,) = evaluation.results["void"].metrics
    (records,) = evaluation.results["void"].records
    assert records.jct_s == pytest.approx([180.0, 384.0], abs=1e-5)
    assert metrics.mean_jct_intervals == pytest.approx((180 + 384) / 2 / 120)
    assert metrics.makespan_s == pytest.approx(384.0)
    assert metrics.mean_queueing_s == 0.0
    # Alone at (2, 2) each trains 2 samples/s: 90 s and 192 s.
    assert metrics.mean_slowdown == pytest.approx(2.0)
    # Two jobs for two intervals, one for two more: 2 * 2 + 2 * 1 = 6 of 4 GPUs in 4 intervals; CPUs twice that of 6.
    assert metrics.gpu_utilisation == pytest.approx(6 / 16)
    assert metrics.cpu_utilisation == pytest.approx(12 / 24)
    assert metrics.num_intervals == 4
    assert evaluation.results["void"].num_illegal.tolist() == [0]
    assert metrics.num_decisions == 4


def test_every_scheduler_gets_the_same_workloads() -> None:
    scenario = small_scenario()
    evaluation = evaluate([FirstLegal(), AlwaysVoid()], scenario, "validation", num_workloads=6)
    assert list(evaluation.results) == ["first-legal", "void"]
    digests = [workload.digest() for workload in scenario.workloads("validation", 6)]
    assert [workload.digest() for workload in evaluation.workloads] == digests
    for result in evaluation.results.values():
        for records, workload in zip(result.records, evaluation.workloads, strict=True):
            assert np.array_equal(records.arrival_s, workload.arrival_s)
            assert np.array_equal(records.type_idx, workload.type_idx)
        assert result.values("num_unfinished").sum() == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_results_do_not_depend_on_the_batch(batch: int) -> None:
    scenario = small_scenario(**{"dynamics.speed_noise": 0.2})
    workloads = scenario.workloads("test", 7)
    whole = run_scheduler(FirstLegal(), scenario.config, workloads)
    assert same_results(run_scheduler(FirstLegal(), scenario.config, workloads, batch=batch), whole)
    reverse = run_scheduler(FirstLegal(), scenario.config, workloads[::-1], batch=batch)
    assert reverse.metrics == whole.metrics[::-1]


def test_result_is_that_of_a_plain_loop() -> None:
    scenario = small_scenario()
    workload = scenario.workloads("test", 3)[2]
    sim = ClusterSimulator(scenario.config, 1)
    sim.load([0], [workload])
    decisions = 0
    while not sim.is_done[0]:
        sim.step(sim.action_masks().argmax(axis=1))
        decisions += 1
    result = run_scheduler(FirstLegal(), scenario.config, scenario.workloads("test", 3), batch=2)
    assert np.array_equal(result.records[2].finish_s, sim.records(0).finish_s)
    assert result.metrics[2].num_decisions == decisions


def test_a_scheduler_may_choose_its_window_but_not_its_world() -> None:
    class Wide(FirstLegal):
        window = 5

        def configure(self, config: EnvConfig) -> EnvConfig:
            return replace(config, observation=replace(config.observation, window=self.window))

        def act(self, observation: Any, action_mask: np.ndarray[Any, Any], view: Any) -> np.ndarray[Any, Any]:
            assert action_mask.shape[1] == 3 * self.window + 1
            return super().act(observation, action_mask, view)

    class Cheat(FirstLegal):
        def configure(self, config: EnvConfig) -> EnvConfig:
            return replace(config, cluster=replace(config.cluster, link_sharing=0.0))

    scenario = small_scenario()
    evaluation = evaluate({"wide": Wide(), "narrow": FirstLegal()}, scenario, num_workloads=2)
    assert [result.config.observation.window for result in evaluation.results.values()] == [5, 3]
    with pytest.raises(ConfigError, match="may change only"):
        evaluate([Cheat()], scenario, num_workloads=2)


def test_illegal_actions_are_counted_per_workload() -> None:
    scenario = get_scenario("toy-v1")
    # A worker for X, then a bundle for Y, for which a CPU is missing: it ends the interval like void.
    plan = iter([0, 5])

    def follow(mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.full(len(mask), next(plan, mask.shape[1] - 1))

    result = run_scheduler(Answers(follow), scenario.config, [*scenario.workloads("test", 1)] * 2)
    assert result.num_illegal.tolist() == [1, 1]
    for records in result.records:
        assert records.jct_s == pytest.approx([90.0, 384.0], abs=1e-5)


def test_truncated_episodes_keep_their_jobs() -> None:
    scenario = small_scenario(**{"dynamics.max_intervals": 2})
    result = run_scheduler(AlwaysVoid(), scenario.config, scenario.workloads("test", 4))
    assert (result.values("num_jobs") == 5).all()
    assert (result.values("num_unfinished") > 0).all()
    assert [records.end_s for records in result.records] == [2400.0] * 4
    longer = small_scenario(**{"dynamics.max_intervals": 3})
    more = run_scheduler(AlwaysVoid(), longer.config, scenario.workloads("test", 4))
    assert (more.values("mean_jct_s") > result.values("mean_jct_s")).all()  # bounds grow with the time looked at


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda mask: np.zeros(len(mask) + 1, dtype=np.int64), r"shape \(3,\); return one per environment, \(2,\)"),
        (lambda mask: 0, r"shape \(\); return one per environment"),
        (lambda mask: np.zeros(len(mask)), "type float64; return integers"),
        (lambda mask: mask[:, 0], "type bool; return integers"),
        (lambda mask: np.full(len(mask), -1), "returned action -1 in environment 0; actions are 0 to 9"),
        (lambda mask: np.array([9, 10]), "returned action 10 in environment 1"),
        (lambda mask: [[1], [1, 2]], "returned no array of actions"),
        (lambda mask: None, r"shape \(\)"),
    ],
)
def test_broken_schedulers_are_named(answer: Any, message: str) -> None:
    scenario = small_scenario()
    with pytest.raises(SchedulerError, match=f"scheduler 'odd'.*{message}"):
        evaluate([Answers(answer)], scenario, num_workloads=2)


def test_lists_of_integers_will_do() -> None:
    scenario = small_scenario()
    workloads = scenario.workloads("test", 2)
    listed = run_scheduler(Answers(lambda mask: mask.argmax(axis=1).tolist()), scenario.config, workloads)
    assert same_results(listed, run_scheduler(FirstLegal(), scenario.config, workloads))


def test_a_scheduler_may_say_anything_about_finished_environments() -> None:
    """Two workloads of different length; the environment that ends first gets a nonsense action, which is ignored."""
    scenario = small_scenario()
    candidates = scenario.workloads("test", 8)
    lengths = run_scheduler(FirstLegal(), scenario.config, candidates).values("num_decisions")
    workloads = [candidates[lengths.argmin()], candidates[lengths.argmax()]]
    expected = run_scheduler(FirstLegal(), scenario.config, workloads)
    seen_finished = []

    def answer(mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        finished = ~mask[:, :-1].any(axis=1)
        seen_finished.append(finished.any())
        return np.where(finished, 10_000, mask.argmax(axis=1))

    assert same_results(run_scheduler(Answers(answer), scenario.config, workloads), expected)
    assert any(seen_finished)


def test_latency_leaves_out_the_first_call_and_finished_environments() -> None:
    calls: list[int] = []

    def slow_start(mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        time.sleep(0.001 if calls else 0.3)
        calls.append(int(mask[:, :-1].any(axis=1).sum()))
        return mask.argmax(axis=1)

    scenario = small_scenario()
    latency = run_scheduler(Answers(slow_start), scenario.config, scenario.workloads("test", 2)).latency
    assert (latency.num_calls, latency.num_decisions) == (len(calls) - 1, sum(calls[1:]))
    assert 0.001 * latency.num_calls <= latency.total_s
    assert 0.001 <= latency.p99_call_s < 0.3
    assert latency.ms_per_decision == pytest.approx(1e3 * latency.total_s / sum(calls[1:]))


def test_heuristics_on_the_toy_are_as_its_description_says() -> None:
    expected = {"drf": [90.0, 252.0], "fifo": [90.0, 252.0], "srtf": [90.0, 252.0], "optimus": [180.0, 192.0]}
    evaluation = evaluate({name: get_scheduler(name) for name in expected}, get_scenario("toy-v1"))
    for name, jct_s in expected.items():
        assert evaluation.results[name].records[0].jct_s == pytest.approx(jct_s, abs=1e-4), name


def test_errors_inside_a_scheduler_say_whose_they_are() -> None:
    def fail(mask: Any) -> Any:
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        evaluate([Answers(fail, name="mine")], small_scenario(), num_workloads=1)
    assert caught.value.__notes__ == ["raised by scheduler 'mine'"]


def test_interruption_keeps_finished_schedulers() -> None:
    def interrupt(mask: Any) -> Any:
        raise KeyboardInterrupt

    scenario = small_scenario()
    evaluation = evaluate([AlwaysVoid(), Answers(interrupt), FirstLegal()], scenario, num_workloads=2)
    assert evaluation.interrupted
    assert list(evaluation.results) == ["void"]
    with pytest.raises(KeyboardInterrupt):
        evaluate([Answers(interrupt)], scenario, num_workloads=2)


def test_progress_counts_workloads() -> None:
    calls: list[tuple[str, int, int]] = []
    evaluate(
        {"a": AlwaysVoid(), "b": FirstLegal()},
        small_scenario(),
        num_workloads=5,
        batch=3,
        progress=lambda *call: calls.append(call),
    )
    assert calls == [(name, done, 5) for name in "ab" for done in range(1, 6)]


def test_names_must_be_distinct_and_present() -> None:
    scenario = small_scenario()
    with pytest.raises(ConfigError, match="two schedulers are named 'void'"):
        evaluate([AlwaysVoid(), AlwaysVoid()], scenario)
    with pytest.raises(ConfigError, match="no schedulers"):
        evaluate([], scenario)
    with pytest.raises(ConfigError, match="in batches of 0"):
        evaluate([AlwaysVoid()], scenario, num_workloads=2, batch=0)


@pytest.mark.parametrize("wrong", ["drf", AlwaysVoid, object()])
def test_what_is_no_scheduler_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no scheduler; give objects such as get_scheduler\('drf'\)"):
        evaluate([wrong], small_scenario(), num_workloads=1)


def test_scores_by_name_metric_and_training_run() -> None:
    evaluation = evaluate({"a": AlwaysVoid(), "b": FirstLegal()}, small_scenario(), num_workloads=4)
    runs = evaluation.scores(["a", "b"], "makespan_s")
    assert runs.shape == (2, 4)
    assert np.array_equal(runs[1], evaluation.results["b"].values("makespan_s"))
    assert evaluation.scores("a")[0] == evaluation.results["a"].metrics[0].mean_jct_intervals
    with pytest.raises(UnknownNameError, match="unknown scheduler of this evaluation 'c'; choose one of: a, b"):
        evaluation.scores("c")
    with pytest.raises(UnknownNameError, match="unknown metric 'jct'"):
        evaluation.scores("a", "jct")
    assert all(np.isfinite(evaluation.scores("a", metric)).all() for metric in METRIC_NAMES)
