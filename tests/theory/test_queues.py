"""Queues with known answers: rigid jobs that arrive at random must wait as long as queueing theory says.

Jobs start and servers are released at interval borders only. So a job's wait is that of a queue whose arrivals are
delayed to the next border and whose service times are rounded up to whole intervals of length h. Its mean is known
exactly for one server and bounded on both sides for several, and both tend to the classic formulas as h -> 0.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dl2env.config import EnvConfig
from dl2env.sim.simulator import ClusterSimulator
from tests.schedulers.worlds import parameters
from tests.theory.worlds import RIGID, fifo_starts, rigid_config, rigid_workload, run

MEAN_S = 100.0  # mean service time
CONFIDENCE = 0.999


def erlang_c_wait(rate: float, mean_s: float, num_servers: int) -> float:
    """Mean wait of an M/M/c queue: C(c, a) / (c / mean_s - rate), C the probability that all servers are busy."""
    offered = rate * mean_s
    rho = offered / num_servers
    busy = offered**num_servers / math.factorial(num_servers) / (1.0 - rho)
    all_busy = busy / (sum(offered**k / math.factorial(k) for k in range(num_servers)) + busy)
    return all_busy / (num_servers / mean_s - rate)


def rounded_wait(rate: float, mean_s: float, interval_s: float) -> float:
    """Exact mean wait of an M/M/1 queue with borders.

    Half an interval to the next border, and from there the Pollaczek-Khinchine mean `rate E[S'^2] / (2 (1 - rho'))` of
    the rounded service S' = h G, G geometric with p = 1 - exp(-h / mean). For the second part: with A the work (in
    intervals) of the Poisson arrivals of one interval, the backlog at a border follows U <- max(U + A - 1, 0), whence
    E[U] = (Var A - rho (1 - rho)) / (2 (1 - rho)); jobs of the same batch ahead add rho / 2; Var A = rate h E[G^2].
    """
    p = -math.expm1(-interval_s / mean_s)
    mean, square = interval_s / p, interval_s**2 * (2.0 - p) / p**2
    return interval_s / 2 + rate * square / (2.0 * (1.0 - rate * mean))


def draw(rng: np.random.Generator, rate: float, num_jobs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.cumsum(rng.exponential(1.0 / rate, num_jobs)), rng.exponential(MEAN_S, num_jobs)


def mean_waits(
    load: float, num_servers: int, interval_s: float, *, seeds: int, num_jobs: int, warm_up: int
) -> NDArray[np.float64]:
    """(seeds,) mean wait of the jobs after the first ones, in independent runs.

    First come, first served by the initial bundles: each active job in arrival order gets its one worker if a server is
    free, and there is nothing left to decide. That is FIFO (see below) at the price of one decision per episode.
    """
    config = rigid_config(num_servers, num_jobs, interval_s)
    sim = ClusterSimulator(with_bundles(config), seeds, max_jobs=num_jobs, speed=parameters([RIGID]))
    rate = load * num_servers / MEAN_S
    rngs = [np.random.default_rng([seed, num_servers, int(100 * load)]) for seed in range(seeds)]
    sim.load(range(seeds), [rigid_workload(*draw(rng, rate, num_jobs)) for rng in rngs])
    while not sim.is_done.all():
        sim.step(np.full(seeds, sim.num_actions - 1))
    waits = [sim.records(b).start_s - sim.records(b).arrival_s for b in range(seeds)]
    return np.array([wait[warm_up:].mean() for wait in waits])


def with_bundles(config: EnvConfig) -> EnvConfig:
    """The same world with initial bundles, and one job slot, since nothing is left to decide."""
    return dataclasses.replace(
        config,
        dynamics=dataclasses.replace(config.dynamics, initial_bundle=True),
        observation=dataclasses.replace(config.observation, window=1),
    )


def interval_of(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Confidence interval of the mean by Student's t."""
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(samples) - 1) * samples.std(ddof=1) / math.sqrt(len(samples))
    return float(samples.mean() - half), float(samples.mean() + half)


@pytest.mark.parametrize("num_servers", [1, 2, 5])
@pytest.mark.parametrize("interval_s", [1.0, 17.0, 250.0])
def test_every_job_starts_when_the_recursion_says(num_servers: int, interval_s: float) -> None:
    rng = np.random.default_rng([num_servers, int(interval_s)])
    arrival_s, service_s = draw(rng, 0.9 * num_servers / MEAN_S, 40)
    workload = rigid_workload(arrival_s, service_s)
    config = rigid_config(num_servers, 40, interval_s)
    rounded = np.ceil(arrival_s / interval_s) * interval_s, np.ceil(service_s / interval_s) * interval_s
    expected = fifo_starts(*rounded, num_servers)
    for name, rules in (("fifo", config), ("void", with_bundles(config))):
        records = run(name, rules, workload)
        np.testing.assert_allclose(records.start_s, expected, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(records.finish_s, expected + service_s, rtol=1e-12, err_msg=name)
    # Borders only delay, and never by more than the recursion with h more of everything.
    early = fifo_starts(arrival_s, service_s, num_servers)
    late = fifo_starts(arrival_s + interval_s, service_s + interval_s, num_servers)
    assert (early <= expected + 1e-9).all() and (expected <= late + 1e-9).all()


def check_one_server(load: float, interval_s: float, **size: int) -> None:
    waits = mean_waits(load, 1, interval_s, **size)
    low, high = interval_of(waits)
    rate = load / MEAN_S
    exact = rounded_wait(rate, MEAN_S, interval_s)
    assert low < exact < high, (low, exact, high)
    assert (high - low) / exact < 0.3  # the interval says something
    assert erlang_c_wait(rate, MEAN_S, 1) < exact


@pytest.mark.parametrize(("load", "interval_s"), [(0.3, 10.0), (0.6, 10.0), (0.6, 50.0), (0.75, 20.0)])
def test_one_server(load: float, interval_s: float) -> None:
    check_one_server(load, interval_s, seeds=40, num_jobs=3000, warm_up=300)


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [5.0, 10.0])
@pytest.mark.parametrize("load", [0.5, 0.7, 0.85])
def test_one_server_for_long(load: float, interval_s: float) -> None:
    check_one_server(load, interval_s, seeds=60, num_jobs=12_000, warm_up=3000)


def check_several_servers(load: float, num_servers: int, interval_s: float, **size: int) -> None:
    """Between M/M/c and M/M/c with all service longer by the factor 1 + h / mean, plus h for the borders.

    The mean wait of a first-come-first-served queue grows with its service times in the increasing convex order. S
    rounded up is at least S, and at most S + h, which has the mean of (1 + h / mean) S but varies less.
    """
    low, high = interval_of(mean_waits(load, num_servers, interval_s, **size))
    rate = load * num_servers / MEAN_S
    lower = erlang_c_wait(rate, MEAN_S, num_servers)
    upper = interval_s + erlang_c_wait(rate, MEAN_S + interval_s, num_servers)
    assert lower < high and low < upper, (lower, low, high, upper)
    assert (high - low) / lower < 0.5 and (upper - lower) / lower < 0.5


@pytest.mark.parametrize(("load", "num_servers"), [(0.7, 2), (0.75, 4)])
def test_several_servers(load: float, num_servers: int) -> None:
    check_several_servers(load, num_servers, 3.0, seeds=40, num_jobs=3000, warm_up=300)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "num_servers"), [(0.6, 2), (0.8, 2), (0.8, 4), (0.9, 8)])
def test_several_servers_for_long(load: float, num_servers: int) -> None:
    check_several_servers(load, num_servers, 2.0, seeds=40, num_jobs=8000, warm_up=2000)


def test_the_formulas_are_right() -> None:
    # One server: rho / (mu (1 - rho)); two servers, offered load 1: C = 1/3.
    assert erlang_c_wait(0.006, 100.0, 1) == pytest.approx(0.6 * 100.0 / 0.4)
    assert erlang_c_wait(1.0, 1.0, 2) == pytest.approx(1 / 3)
    # Borders that come ever closer make no difference; the bias is of the order of the interval.
    for load in (0.3, 0.8):
        rate = load / MEAN_S
        bias = [rounded_wait(rate, MEAN_S, h) - erlang_c_wait(rate, MEAN_S, 1) for h in (8.0, 4.0, 2.0, 1.0, 1e-3)]
        assert all(b > 0 for b in bias) and bias[-1] < 2e-2
        assert all(1.9 < one / other < 2.3 for one, other in zip(bias[:3], bias[1:4], strict=True))


def test_waits_shrink_to_the_continuous_queue_as_intervals_do() -> None:
    rng = np.random.default_rng(5)
    arrival_s, service_s = draw(rng, 0.8 / MEAN_S, 300)
    exact = fifo_starts(arrival_s, service_s, 1)
    gaps = []
    for interval_s in (40.0, 10.0, 2.5, 0.6):
        records = run("void", with_bundles(rigid_config(1, 300, interval_s)), rigid_workload(arrival_s, service_s))
        gaps.append(float((records.start_s - exact).mean()))
    assert all(0 < small < 0.4 * large for large, small in zip(gaps, gaps[1:], strict=False)), gaps
    assert gaps[-1] < 5.0
