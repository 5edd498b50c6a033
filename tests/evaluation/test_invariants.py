"""The invariant checker accepts every run of the simulator, and notices every way in which one could go wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.evaluation.invariants import InvariantChecker, InvariantError, check_records, check_state, checked
from dl2env.evaluation.runner import run_scheduler
from dl2env.schedulers import get_scheduler
from dl2env.schedulers.base import ClusterView, IntervalScheduler
from dl2env.sim.simulator import ClusterSimulator
from dl2env.sim.state import PACK, RULES_DTYPE, Report, State
from dl2env.workload.jobs import Workload
from tests.evaluation.fakes import Answers, FirstLegal, small_scenario
from tests.evaluation.invariant_worlds import JOBS, corrupt, play, rich_world
from tests.schedulers.worlds import Job, Type, answers, random_world, workload, world
from tests.sim.random_cases import random_action

# ------------------------------------------------------------------------------------------- what is right passes


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_random_worlds_violate_nothing(seed: int) -> None:
    rng, sim = random_world(seed)
    with InvariantChecker(sim) as checker:
        checker.check()
        sim.load([0, 1, 2], [reload_of(sim, b) for b in range(3)])
        play(sim, seed, limit=40)
    for b in np.flatnonzero(sim.is_done).tolist():
        check_records(sim.records(b), reload_of(sim, b), sim.config, env=b)


def reload_of(sim: ClusterSimulator, b: int) -> Workload:
    """The workload that environment b plays."""
    jobs = sim.state.jobs[b, : sim.state.env[b]["num_jobs"]]
    return Workload(
        *(jobs[name].copy() for name in ("arrival_s", "type", "epochs", "true_epochs", "samples_per_epoch")),
        sim.speed.type_names,
        int(sim.state.env[b]["noise_key"]),
    )


@pytest.mark.parametrize("kind", ["analytic", "measured", "fitted", "noisy"])
def test_the_rich_world_is_rich(kind: str) -> None:
    sim = rich_world(kind)
    seen = {"on network": 0, "stretched": 0, "resized": 0, "several intervals at once": 0}
    with InvariantChecker(sim):
        rng = np.random.default_rng(3)
        while not sim.is_done[0]:
            before = int(sim.state.env["interval"][0])
            sim.step([random_action(rng, sim.action_masks()[0].tolist(), 0.15, 0.0)])
            jobs = sim.state.jobs[0]
            seen["on network"] += int(jobs["is_on_network"].sum())
            seen["stretched"] += int((jobs["stretch"] > 1).sum())
            seen["several intervals at once"] += int(sim.state.env["interval"][0]) > before + 1
    seen["resized"] = int(sim.state.jobs["num_resizes"].sum())
    assert np.isfinite(sim.records(0).finish_s).all()
    assert seen["on network"] and seen["resized"] and (seen["stretched"] or kind == "measured"), seen


def test_an_empty_cluster_is_passed_over_as_the_rules_say() -> None:
    jobs = [Job(samples=50.0), Job(samples=50.0, arrival_s=5_000.5), Job(samples=70.0, arrival_s=90_000.0)]
    for max_intervals in (2000, 300):
        sim = world([Type(fixed_s=1.0)], jobs, [(8, 4)], max_intervals=max_intervals)
        with InvariantChecker(sim):
            while not sim.is_done[0]:
                sim.step(answers(get_scheduler("fifo"), sim))
        check_records(sim.records(0), workload(sim, jobs), sim.config)


def test_a_simulator_is_watched_only_inside_the_context() -> None:
    sim = rich_world()
    checker = InvariantChecker(sim)
    assert InvariantChecker.watching(sim) is None
    with checker:
        assert InvariantChecker.watching(sim) is checker
        with pytest.raises(ConfigError, match="another one watches"), InvariantChecker(sim):
            pass
    assert InvariantChecker.watching(sim) is None and "step" not in vars(sim) and "load" not in vars(sim)
    with pytest.raises(ConfigError, match="every=0 must be at least 1"):
        InvariantChecker(sim, every=0)


# ---------------------------------------------------------------------------------- whatever the kernels get wrong


def place_some(sim: ClusterSimulator) -> int:
    """Plays to a decision with jobs on the network, finished and yet to come; returns a legal action."""
    sim.step([sim.num_actions - 1])
    for action in (5, 6, 0):
        assert not sim.step([action]).is_illegal[0]
    env, jobs = sim.state.env[0], sim.state.jobs[0]
    assert env["num_finished"] > 0 and env["next_job"] < len(JOBS) and jobs["is_on_network"].sum() >= 2
    assert (jobs["stretch"] > 1).any() or sim.speed.table.size > 0
    return int(np.flatnonzero(sim.action_masks()[0])[0])


def somewhere(sim: ClusterSimulator, name: str) -> tuple[int, ...]:
    """Index of a record or number of a state array that is in use."""
    state = sim.state
    env = state.env[0]
    job = int(next(i for i in state.active[0, : env["num_active"]] if state.jobs[0, i]["is_on_network"]))
    server = int(state.entries[0, job, 0]["server"])
    return {
        "env": (0,),
        "jobs": (0, job),
        "active": (0, 0),
        "entries": (0, job, 0),
        "servers": (0, server),
        "least_loaded": (0, 1),
        "server_jobs": (0, server, 0),
        "server_entries": (0, server, 0),
        "specs": (server,),
        "types": (0,),
        "classes": (0,),
        "demands": (0,),
        "compute_s": (0, 0),
        "table": (0, 1, 1),
        "num_fit": (0, 0),
        "estimate": (0, 0, 1, 1, 0),
        "best_speed": (0, 0),
        "fit": (0, 0, 1, 1),
        "type_features": (0, 0),
        "rules": (0,),
        "window": (0, 0),
        "obs_jobs": (0, 0, 9),
        "obs_cluster": (0, 5),
        "mask": (0, 0),
    }[name]


def fields_of(sim: ClusterSimulator) -> list[tuple[str, str | None]]:
    return [(name, f) for name in State._fields for f in getattr(sim.state, name).dtype.names or (None,)]


@pytest.mark.parametrize(
    ("name", "field"), fields_of(rich_world()), ids=lambda value: "" if value is None else str(value)
)
def test_a_step_that_leaves_any_one_number_wrong_is_noticed(
    name: str, field: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"fit": "fitted", "table": "measured"}.get(name, "analytic")
    sim = rich_world(kind)
    action = place_some(sim)
    right = ClusterSimulator.step

    def wrong(self: ClusterSimulator, actions: Any) -> Report:
        report = right(self, actions)
        corrupt(getattr(self.state, name), somewhere(self, name), field)
        return report

    start = sim.snapshot()
    with InvariantChecker(sim):
        sim.step([action])  # nothing to complain about
        sim.restore(start)
        monkeypatch.setattr(ClusterSimulator, "step", wrong)
        with pytest.raises(InvariantError) as caught:
            sim.step([action])
    assert caught.value.invariant and str(caught.value).startswith(f"invariant {caught.value.invariant!r} violated")


@pytest.mark.parametrize("name", Report._fields)
def test_a_wrong_report_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = rich_world()
    action = place_some(sim)
    right = ClusterSimulator.step
    for column in range(4 if name == "reward_terms" else 1):

        def wrong(self: ClusterSimulator, actions: Any, column: int = column) -> Report:
            report = right(self, actions)
            values = getattr(report, name)
            at = (0, column) if values.ndim == 2 else 0
            values[at] = not values[at] if values.dtype == np.bool_ else values[at] + 1e-3
            return report

        start = sim.snapshot()
        monkeypatch.setattr(ClusterSimulator, "step", wrong)
        with InvariantChecker(sim), pytest.raises(InvariantError, match="report|reward|work"):
            sim.step([action])
        sim.restore(start)
        monkeypatch.setattr(ClusterSimulator, "step", right)


MUTANTS: dict[str, tuple[Any, dict[str, Any]]] = {  # a rule that the kernels get wrong, and the world that shows it
    "interval_s": (90.0, {}),
    "link_sharing": (0.4, {}),
    "speed_noise": (0.2, {}),
    "total_cpus": (16.0, {}),
    "total_gpus": (10.0, {}),
    "max_workers": (5.0, {}),
    "max_ps": (4.0, {}),
    "max_intervals": (3, {}),
    "window": (2, {}),
    "pcie_group": (2, {}),
    "placement": (PACK, {}),
    "scaling_cost": (0, {}),
    "is_measured": (False, {"kind": "measured"}),
    "is_ideal_overlap": (True, {}),
    "initial_bundle": (False, {}),
    "mask_resources": (False, {}),
    "window_skips_capped": (True, {}),
    "auto_advance": (False, {}),
    "exact_finish": (False, {}),
    "load_by_sum": (True, {"placement": "least_loaded"}),
    "fit_online": (False, {"kind": "fitted"}),
    "refresh_whole_mask": (False, {}),
}


def test_every_rule_has_a_mutant() -> None:
    assert set(MUTANTS) == set(RULES_DTYPE.names or ())


@pytest.mark.parametrize("rule", MUTANTS)
def test_kernels_that_break_a_rule_are_noticed(rule: str) -> None:
    value, options = MUTANTS[rule]
    mutated(lambda sim: sim.state.rules.__setitem__(rule, value), **options)


TYPE_FIELDS = rich_world().speed.types.dtype.names


@pytest.mark.parametrize("field", TYPE_FIELDS)
def test_kernels_that_misread_a_job_type_are_noticed(field: str) -> None:
    def misread(sim: ClusterSimulator) -> None:
        types = sim.state.types.copy()  # the speed model keeps the right ones
        for t in range(len(types)):
            corrupt(types, (t,), field)
        types["architecture"] %= 5
        types["max_workers"] = np.minimum(types["max_workers"], 4)
        types["max_ps"] = np.minimum(types["max_ps"], 3)
        sim.state = sim.state._replace(types=types)

    if field in ("max_workers", "max_ps"):  # the caps of the table hold no more

        def misread(sim: ClusterSimulator) -> None:
            types = sim.state.types.copy()
            types[field] = np.maximum(types[field] - 1, 0)
            sim.state = sim.state._replace(types=types)

    mutated(misread)


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [("compute_s", None, "analytic"), ("table", None, "measured"), ("specs", "cpus", "analytic")]
    + [("specs", "gpus", "analytic"), ("demands", "cpus", "analytic"), ("demands", "initial_fit", "analytic")],
)
def test_kernels_that_misread_constants_are_noticed(name: str, field: str | None, kind: str) -> None:
    def misread(sim: ClusterSimulator) -> None:
        array = getattr(sim.state, name).copy()
        corrupt(array, (slice(None),) if field is None else (0,), field) if field else array.__imul__(1.1)
        sim.state = sim.state._replace(**{name: array})

    mutated(misread, kind)


def mutated(mutate: Callable[[ClusterSimulator], None], kind: str = "analytic", **dynamics: Any) -> None:
    """Plays until the checker complains of a simulator that is wrong from the start, but consistently so."""
    sim = rich_world(kind, **dynamics)
    mutate(sim)
    with pytest.raises(InvariantError), InvariantChecker(sim):
        for seed in range(8):
            sim.load([0], [workload(sim, JOBS, noise_key=3)])
            play(sim, seed, limit=60)


def edit_after(monkeypatch: pytest.MonkeyPatch, edit: Callable[[State], None]) -> None:
    """Makes the end of every interval do something more."""
    right = ClusterSimulator.step

    def wrong(self: ClusterSimulator, actions: Any) -> Report:
        report = right(self, actions)
        if report.interval_ended[0]:
            edit(self.state)
        return report

    monkeypatch.setattr(ClusterSimulator, "step", wrong)


def lose_a_job(state: State) -> None:
    env = state.env[0]
    env["num_active"] -= 1  # the last one is no longer served
    state.jobs[0, state.active[0, env["num_active"]]]["slot"] = -1


def finish_without_work(state: State) -> None:
    env = state.env[0]
    env["num_active"] -= 1
    env["num_finished"] += 1
    job = state.jobs[0, state.active[0, env["num_active"]]]
    job["finish_s"] = env["interval"] * 100.0
    job["start_s"] = 0.0
    job["slot"] = -1


def give_work_away(state: State) -> None:
    for i in state.active[0, : state.env[0]["num_active"]]:
        state.jobs[0, i]["epochs_done"] += 1e-3


def start_early(state: State) -> None:
    started = ~np.isnan(state.jobs["start_s"][0])
    state.jobs["start_s"][0, started] -= 100.0


def finish_late(state: State) -> None:
    finished = state.jobs["finish_s"][0]
    finished[:] = np.ceil(finished / 100.0) * 100.0


def turn_time_back(state: State) -> None:
    state.env[0]["interval"] -= 1


@pytest.mark.parametrize(
    ("edit", "invariant"),
    [
        (lose_a_job, "jobs"),
        (finish_without_work, "work"),
        (give_work_away, "work"),
        (start_early, "times"),
        (finish_late, "times"),
        (turn_time_back, "times|jobs|time"),
    ],
)
def test_faults_are_named(edit: Callable[[State], None], invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = rich_world()
    edit_after(monkeypatch, edit)
    with InvariantChecker(sim), pytest.raises(InvariantError, match=f"^invariant '({invariant})' violated"):
        sim.step([sim.num_actions - 1])


def test_the_error_says_where() -> None:
    sim = rich_world()
    place_some(sim)
    job = int(sim.state.active[0, 0])
    sim.state.entries[0, job, 0]["workers"] += 20
    sim.state.jobs[0, job]["workers"] += 20
    with pytest.raises(InvariantError, match=f"'caps' violated in environment 0, interval 1, job {job}: ") as caught:
        check_state(sim)
    error = caught.value
    assert (error.invariant, error.env, error.interval, error.job) == ("caps", 0, 1, job)
    assert "\n" not in str(error)


def test_tasks_that_exceed_a_server_are_noticed_even_if_every_counter_agrees() -> None:
    sim = world([Type(fixed_s=1.0, caps=(9, 9))], [Job()], [(2, 1), (2, 1)])
    sim.state.specs["gpus"] = 3  # the kernels believe in more GPUs than there are
    sim.load([0], [workload(sim, [Job()])])
    sim.state.demands["initial_fit"] = 2
    with pytest.raises(InvariantError, match="'capacity'|'bookkeeping'"), InvariantChecker(sim):
        sim.load([0], [workload(sim, [Job()])])
        play(sim, void_share=0.0)


def test_faults_in_the_last_step_of_an_episode_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(samples=50.0)]
    sim = world([Type(fixed_s=1.0)], jobs, [(8, 4)], initial_bundle=True)
    edit_after(monkeypatch, finish_late)
    with InvariantChecker(sim), pytest.raises(InvariantError, match="'times' violated.*job 0: finish_s is 100.0"):
        sim.step([sim.num_actions - 1])


def test_finished_environments_must_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = world([Type(fixed_s=1.0)], [Job(samples=50.0)], [(8, 4)], initial_bundle=True)
    with InvariantChecker(sim):
        sim.step([sim.num_actions - 1])
        assert sim.is_done[0]
        sim.step([0])
        right = ClusterSimulator.step
        monkeypatch.setattr(ClusterSimulator, "step", lambda s, a: right(s, a)._replace(is_illegal=np.array([True])))
        with pytest.raises(InvariantError, match="is_illegal of a finished environment"):
            sim.step([0])


@pytest.mark.parametrize("every", [1, 7, 10_000])
def test_interval_ends_are_checked_however_seldom_the_rest_is(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = rich_world()
    with InvariantChecker(sim, every):
        play(sim, void_share=0.0, limit=3)
        edit_after(monkeypatch, give_work_away)
        with pytest.raises(InvariantError, match="'work'"):
            play(sim)


# --------------------------------------------------------------------------------------------------- in an evaluation


def test_a_checked_scheduler_gives_the_same_results() -> None:
    scenario = small_scenario()
    workloads = scenario.workloads("test", 2)
    for scheduler in (FirstLegal(), get_scheduler("optimus-fitted")):
        plain = run_scheduler(scheduler, scenario.config, workloads)
        watched = run_scheduler(checked(scheduler), scenario.config, workloads, batch=2)
        assert watched.name == plain.name and watched.metrics == plain.metrics and watched.config == plain.config
        for k, records in enumerate(watched.records):
            check_records(records, workloads[k], watched.config, env=k)


def test_a_checked_scheduler_finds_a_wrong_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = small_scenario()
    edit_after(monkeypatch, give_work_away)
    with pytest.raises(InvariantError, match="'work'"):
        run_scheduler(checked(FirstLegal()), scenario.config, scenario.workloads("test", 1))


@pytest.mark.parametrize("label", ["jobs.epochs_done", "mask", "env.interval", "servers.free_gpus"])
def test_a_scheduler_that_changes_the_simulator_is_named(label: str) -> None:
    class Meddler(FirstLegal):
        name = "meddler"

        def act(self, observation: Any, action_mask: Any, view: ClusterView) -> Any:
            array, _, field = label.partition(".")
            values = getattr(view.simulator.state, array)
            corrupt(values, (0,) * values.ndim, field or None)
            return super().act(observation, action_mask, view)

    scenario = small_scenario()
    with pytest.raises(InvariantError, match=f"scheduler 'meddler' changed {re.escape(label)} of the simulator"):
        run_scheduler(checked(Meddler()), scenario.config, scenario.workloads("test", 1))


def test_a_scheduler_may_pin_servers_and_answer_illegally() -> None:
    class Pins(FirstLegal):
        def act(self, observation: Any, action_mask: Any, view: ClusterView) -> Any:
            view.pin_servers(np.full(len(action_mask), int(view.free_gpus[0]) % 4))
            return super().act(observation, action_mask, view)

    scenario = small_scenario()
    workloads = scenario.workloads("test", 2)
    assert run_scheduler(checked(Pins()), scenario.config, workloads).num_illegal.sum() > 0
    illegal = Answers(lambda mask: np.argmin(mask, axis=1))
    assert run_scheduler(checked(illegal), scenario.config, workloads).num_illegal.sum() > 0


def test_a_scheduler_must_be_shown_the_simulators_mask() -> None:
    sim = rich_world()
    with pytest.raises(InvariantError, match="'mask'.*another mask"):
        checked(FirstLegal()).act(sim.observation(), ~sim.action_masks(), ClusterView(sim))


INTERVAL_FAULTS = [lose_a_job, finish_without_work, start_early, turn_time_back]


def gain_too_much(state: State) -> None:
    job = state.jobs[0, state.active[0, 0]]
    job["epochs_done"] += 0.5 * (job["true_epochs"] - job["epochs_done"])


def hold_too_much(state: State) -> None:
    state.env[0]["used_cpu_s"] *= 3.0


def train_without_workers(state: State) -> None:
    state.jobs[0, state.active[0, 0]]["last_workers"] = 0


@pytest.mark.parametrize("kind", ["analytic", "measured"])
@pytest.mark.parametrize("edit", [None, *INTERVAL_FAULTS, gain_too_much, hold_too_much, train_without_workers])
def test_intervals_that_a_kernel_decides_are_checked(
    edit: Callable[[State], None] | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, drf = rich_world(kind), checked(get_scheduler("drf"), by_intervals=True)
    assert isinstance(drf, IntervalScheduler) and not isinstance(checked(get_scheduler("drf")), IntervalScheduler)
    assert not isinstance(checked(FirstLegal(), by_intervals=True), IntervalScheduler)
    right = ClusterSimulator.run_intervals

    def wrong(self: ClusterSimulator, *args: Any) -> NDArray[np.int64]:
        num_illegal = right(self, *args)
        if edit is not None:
            edit(self.state)
        return num_illegal

    monkeypatch.setattr(ClusterSimulator, "run_intervals", wrong)
    if edit is None:
        drf.run_intervals(sim, 1000)
        assert sim.is_done.all()
        check_records(sim.records(0), workload(sim, JOBS, noise_key=3), sim.config)
    else:
        with pytest.raises(InvariantError):
            drf.run_intervals(sim, 1000)


def test_one_of_many_checkers_is_enough() -> None:
    sim = rich_world()
    first, second = checked(FirstLegal()), checked(FirstLegal())
    for scheduler in (first, second, first):
        sim.step(answers(scheduler, sim))
    assert InvariantChecker.watching(sim) is not None
