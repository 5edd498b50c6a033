from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dl2env.config import EnvConfig, EstimateConfig, SpeedConfig, WorkloadConfig
from dl2env.speed.analytic import isolated_step_time, samples_per_s
from dl2env.speed.estimate import SpeedEstimate, best_speed, estimate_tables, estimated_speed
from dl2env.speed.fitted import solve_fit
from tests.speed.cases import CLUSTER, all_types, close, job_type, parameters

W, P = 6, 5
TYPES = all_types()
ANALYTIC = parameters(*TYPES, caps=(W, P))


def config(kind: str = "exact", **estimate: Any) -> EnvConfig:
    return EnvConfig(
        cluster=CLUSTER,
        workload=WorkloadConfig(max_workers=W, max_ps=P),
        estimate=EstimateConfig(kind=kind, **estimate),  # type: ignore[arg-type]
    )


class TestExact:
    def test_is_the_isolated_table(self):
        tables = estimate_tables(ANALYTIC, config())
        assert (tables.estimate == isolated_step_time(ANALYTIC, W, P)).all()
        assert tables.fit.shape == (0, 5, 6)

    def test_follows_overlap_and_pcie_sharing_of_the_configuration(self):
        changed = dataclasses.replace(
            config(), speed=SpeedConfig(overlap="ideal"), cluster=dataclasses.replace(CLUSTER, pcie_group=4)
        )
        expected = isolated_step_time(ANALYTIC, W, P, pcie_group=4, ideal_overlap=True)
        assert (estimate_tables(ANALYTIC, changed).estimate == expected).all()
        assert not (expected == isolated_step_time(ANALYTIC, W, P)).all()

    def test_best_speed_is_the_best_within_the_caps(self):
        tables = estimate_tables(ANALYTIC, config())
        for t, kind in enumerate(TYPES):
            cap_w, cap_p = int(ANALYTIC.types[t]["max_workers"]), int(ANALYTIC.types[t]["max_ps"])
            speeds = [
                float(samples_per_s(ANALYTIC, t, w, tables.estimate[t, w, p, 0]))
                for w in range(1, cap_w + 1)
                for p in (range(1, cap_p + 1) if kind.uses_ps else [0])
            ]
            assert tables.best_speed[t] == pytest.approx(max(speeds), rel=1e-14)
        # Beyond the cap it would be faster, which must not count.
        beyond = estimated_speed(ANALYTIC, tables.estimate)[TYPES.index(_named("1wng-False")), 5, 0]
        assert beyond > tables.best_speed[TYPES.index(_named("1wng-False"))]

    def test_measured_table_has_no_communication(self):
        two = parameters(job_type(), job_type("async", synchronous=False), caps=(W, P))
        table = np.zeros((2, W + 2, P + 2))
        table[:, 1:, 1:] = np.arange(1, (W + 1) * (P + 1) + 1).reshape(W + 1, P + 1)
        table[0, 2, 2] = -1e-13
        tables = estimate_tables(two._replace(table=table), config())
        assert close(tables.estimate[0, 1, 3, 0], 12 / 3.0)
        assert close(tables.estimate[1, 4, 3, 0], 4 * 12 / table[1, 4, 3])  # each of four workers has its own batch
        assert tables.estimate[0, 2, 2].tolist() == [np.inf, 0.0]
        assert tables.estimate[0, 0, 1].tolist() == [np.inf, 0.0]
        assert (tables.estimate[..., 1] == 0).all()
        assert close(tables.best_speed, table[:, : W + 1, : P + 1].max(axis=(1, 2)))


def _named(name: str) -> Any:
    return next(kind for kind in TYPES if kind.name == name)


class TestNoisy:
    def test_speeds_are_off_by_the_stated_factor(self):
        exact = estimate_tables(ANALYTIC, config())
        noisy = estimate_tables(ANALYTIC, config("noisy", noise=0.2), np.random.default_rng(3))
        finite = np.isfinite(exact.estimate[..., 0])
        factor = exact.estimate[..., 0][finite] / noisy.estimate[..., 0][finite]
        assert 0.8 <= factor.min() < 0.82 and 1.18 < factor.max() <= 1.2
        assert abs(factor.mean() - 1) < 0.02
        share = exact.estimate[..., 1][finite] / exact.estimate[..., 0][finite]
        assert close(noisy.estimate[..., 1][finite] / noisy.estimate[..., 0][finite], share)
        assert close(noisy.best_speed, best_speed(ANALYTIC, noisy.estimate))
        assert np.isinf(noisy.estimate[..., 0][~finite]).all()

    def test_draws_follow_the_generator(self):
        first, second, other = (
            estimate_tables(ANALYTIC, config("noisy", noise=0.2), np.random.default_rng(seed)).estimate
            for seed in (3, 3, 4)
        )
        assert (first == second).all()
        assert not (first == other).all()


class TestFitted:
    def test_without_noise_a_world_of_the_fitted_form_is_known_exactly(self):
        # Ethernet free: what is left of the step-time model has the form of the resource-speed function.
        kinds = [
            job_type(str(sync), synchronous=sync, ethernet_bytes_per_s=1e18, ps_bytes_per_s=2e9, worker_cost_s=0.01)
            for sync in (True, False)
        ]
        p = parameters(*kinds, caps=(W, P))
        exact, fitted = (estimate_tables(p, config(kind)) for kind in ("exact", "fitted"))
        finite = np.isfinite(exact.estimate[..., 0])
        assert close(fitted.estimate[..., 0][finite], exact.estimate[..., 0][finite], 1e-5)
        assert close(fitted.best_speed, exact.best_speed, 1e-5)
        assert np.isinf(fitted.estimate[..., 0][~finite]).all()

    def test_a_few_noisy_probes_come_close_for_every_architecture(self):
        exact = estimate_tables(ANALYTIC, config())
        fitted = estimate_tables(ANALYTIC, config("fitted", noise=0.05, num_probes=12), np.random.default_rng(0))
        finite = np.isfinite(exact.estimate[..., 0])
        error = np.abs(fitted.estimate[..., 0][finite] / exact.estimate[..., 0][finite] - 1)
        assert error.mean() < 0.15
        assert fitted.fit.shape == (len(TYPES), 5, 6)
        assert (fitted.estimate[..., 1] <= fitted.estimate[..., 0]).all()

    def test_returned_equations_are_those_of_the_estimate(self):
        fitted = estimate_tables(ANALYTIC, config("fitted", noise=0.1), np.random.default_rng(1))
        theta = solve_fit(fitted.fit[0])
        step_s = theta @ [12.0 / 3, 1.0, 3 / 2, 3.0, 2.0]
        assert close(fitted.estimate[0, 3, 2, 0], step_s)


class TestSpeedEstimate:
    ESTIMATE = SpeedEstimate(ANALYTIC, estimate_tables(ANALYTIC, config()).estimate)

    def test_broadcasts_and_stretches_communication_only(self):
        step_s, communication_s = self.ESTIMATE.table[0, 3, 2]
        speed = self.ESTIMATE.samples_per_s(0, 3, [2, 2], [1.0, 2.5])
        assert close(speed, [12 / step_s, 12 / (step_s + 1.5 * communication_s)])
        step_s, communication_s = self.ESTIMATE.table[1, 3, 2]
        assert close(self.ESTIMATE.samples_per_s(1, 3, 2, 2.0), 3 * 12 / (step_s + communication_s))

    def test_allocations_that_cannot_train_have_speed_zero(self):
        assert (self.ESTIMATE.samples_per_s([0, 0, 1, 8], [0, 1, 0, 2], [1, 0, 1, 0], 3.0) == 0).all()
        assert np.isinf(self.ESTIMATE.step_s(0, 0, 1))
