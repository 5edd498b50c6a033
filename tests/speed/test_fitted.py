from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from dl2env.errors import Dl2EnvError
from dl2env.speed.fitted import (
    FittedSpeed,
    add_sample,
    fill_estimate,
    fit_speed,
    probe_points,
    solve_fit,
    speed_terms,
    term_matrix,
)
from dl2env.speed.nnls import nnls_gram
from tests.speed.cases import close, job_type, parameters


def kkt_violation(matrix: np.ndarray, target: np.ndarray, x: np.ndarray) -> float:
    """How far x is from the optimum: largest positive gradient at zeros, largest gradient elsewhere, relative."""
    norms = np.linalg.norm(matrix, axis=0)
    gradient = matrix.T @ (target - matrix @ x) / np.where(norms > 0, norms, 1.0)
    violation = np.where(x > 0, np.abs(gradient), np.maximum(gradient, 0.0))
    return float(violation.max() / max(np.linalg.norm(target), 1e-300))


class TestNnls:
    def test_by_hand(self):
        # Unconstrained minimum (2, -1): the second variable leaves, the first becomes 5 / 3.
        gram = np.array([[3.0, 1.0], [1.0, 2.0]])
        assert nnls_gram(gram, gram @ np.array([2.0, -1.0])) == pytest.approx([5 / 3, 0.0])
        assert nnls_gram(gram, gram @ np.array([2.0, 1.0])) == pytest.approx([2.0, 1.0])
        assert nnls_gram(gram, np.array([-1.0, -1.0])).tolist() == [0.0, 0.0]

    def test_equals_scipy_on_random_problems(self):
        rng = np.random.default_rng(1)
        active = 0
        for _ in range(500):
            rows, columns = int(rng.integers(5, 30)), int(rng.integers(1, 7))
            matrix = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-4, 4, columns)
            target = matrix @ np.maximum(rng.normal(size=columns), 0) + rng.normal(size=rows)
            expected, _ = nnls(matrix, target)
            x = nnls_gram(matrix.T @ matrix, matrix.T @ target)
            scale = np.linalg.norm(matrix, axis=0)
            assert np.allclose(x * scale, expected * scale, rtol=1e-7, atol=1e-7 * np.linalg.norm(target))
            active += int((expected == 0).sum())
        assert active > 100  # the constraints mattered

    @given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6))
    def test_optimal_with_few_rows_and_repeated_columns(self, seed, rows, columns):
        rng = np.random.default_rng(seed)
        matrix = rng.integers(-3, 4, size=(rows, columns)).astype(np.float64)
        matrix = np.concatenate([matrix, matrix[:, :1], 2 * matrix[:, :1], np.zeros((rows, 1))], axis=1)
        target = rng.integers(-5, 6, size=rows).astype(np.float64)
        x = nnls_gram(matrix.T @ matrix, matrix.T @ target)
        assert (x >= 0).all() and np.isfinite(x).all()
        assert kkt_violation(matrix, target, x) < 1e-6
        residual = np.linalg.norm(matrix @ x - target)
        assert residual == pytest.approx(nnls(matrix, target)[1], abs=1e-6)

    def test_random_fits_of_speed_samples_equal_scipy(self):
        rng = np.random.default_rng(2)
        for _ in range(200):
            w, p = rng.integers(1, 17, (2, 12))
            step_s = rng.uniform(0.1, 3.0, 12)
            matrix = term_matrix(True, 32.0, w, p) / step_s[:, None]
            x = nnls_gram(matrix.T @ matrix, matrix.T @ np.ones(12))
            assert np.linalg.norm(matrix @ x - 1) == pytest.approx(nnls(matrix, np.ones(12))[1], abs=1e-9)


THETA = np.array([0.02, 0.3, 0.2, 0.01, 0.004])


class TestForms:
    def test_synchronous_by_hand(self):
        fit = FittedSpeed(THETA, True, 32.0)
        step_s = 0.02 * 32 / 4 + 0.3 + 0.2 * 4 / 2 + 0.01 * 4 + 0.004 * 2
        assert fit.step_s(4, 2) == pytest.approx(step_s)
        assert fit.samples_per_s(4, 2) == pytest.approx(32 / step_s)

    def test_asynchronous_by_hand(self):
        # The paper's w / (t0 + t1 w/p + t2 w + t3 p) steps/s.
        fit = FittedSpeed(np.array([9.9, 0.3, 0.2, 0.01, 0.004]), False, 32.0)
        assert fit.samples_per_s(4, 2) == pytest.approx(32 * 4 / (0.3 + 0.2 * 2 + 0.01 * 4 + 0.004 * 2))

    @given(st.booleans(), st.integers(1, 64), st.integers(0, 64))
    def test_kernel_and_arrays_agree(self, synchronous, w, p):
        assert close(speed_terms(synchronous, 32.0, w, p), term_matrix(synchronous, 32.0, w, p))

    @pytest.mark.parametrize("synchronous", [True, False])
    def test_fit_recovers_its_own_form(self, synchronous):
        theta = THETA * (np.arange(5) > 0) if not synchronous else THETA
        truth = FittedSpeed(theta, synchronous, 32.0)
        w, p = probe_points(16, 16, 10).T
        fit = fit_speed(w, p, truth.samples_per_s(w, p), is_synchronous=synchronous, batch_size=32.0)
        assert fit.theta == pytest.approx(theta, rel=1e-6, abs=1e-9)

    def test_fit_weighs_relative_errors(self):
        # Two constant levels of time, 1 s and 3 s: relative least squares gives sum(1/T) / sum(1/T^2) = 1.2 s.
        fit = fit_speed([1, 1], [0, 0], [1.0, 1.0 / 3.0], is_synchronous=False, batch_size=1.0)
        assert fit.step_s(1, 0) == pytest.approx(1.2)

    def test_failed_runs_are_left_out(self):
        w, p = probe_points(16, 16, 12).T
        speed = FittedSpeed(THETA, True, 32.0).samples_per_s(w, p)
        speed[3], speed[5], speed[7] = 0.0, -1e-13, np.nan
        fit = fit_speed(w, p, speed, is_synchronous=True, batch_size=32.0)
        assert fit.theta == pytest.approx(THETA, rel=1e-6)
        with pytest.raises(Dl2EnvError, match="no sample has a positive speed"):
            fit_speed([1], [1], [0.0], is_synchronous=True, batch_size=1.0)

    def test_samples_can_be_added_one_by_one(self):
        equations = np.zeros((5, 6))
        w, p = probe_points(8, 8, 12).T
        steps = FittedSpeed(THETA, True, 32.0).step_s(w, p)
        for k in range(12):
            add_sample(equations, True, 32.0, w[k], p[k], steps[k], 1.0)
        add_sample(equations, True, 32.0, 1.0, 1.0, np.inf, 1.0)  # a failed run
        assert solve_fit(equations) == pytest.approx(THETA, rel=1e-6)


class TestProbes:
    @pytest.mark.parametrize("num_probes", [5, 10, 17])
    @pytest.mark.parametrize("caps", [(16, 16), (3, 2), (1, 1), (8, 0), (64, 64)])
    def test_within_the_caps(self, caps, num_probes):
        points = probe_points(*caps, num_probes)
        assert points.shape == (num_probes, 2)
        assert points.min(axis=0).tolist() == [1, min(1, caps[1])]
        assert (points <= caps).all()

    @pytest.mark.parametrize("num_probes", [5, 10])
    def test_all_terms_can_be_told_apart(self, num_probes):
        w, p = probe_points(16, 16, num_probes).T
        matrix = term_matrix(True, 1.0, w, p)
        matrix /= np.linalg.norm(matrix, axis=0)
        assert np.linalg.cond(matrix) < 30


class TestFillEstimate:
    def test_by_hand(self):
        record = parameters(job_type(), caps=(2, 2)).types[0]
        estimate = np.full((4, 4, 2), 7.0)
        estimate[0], estimate[:, 0] = (np.inf, 0.0), (np.inf, 0.0)
        best = fill_estimate(THETA, record, True, estimate)
        fit = FittedSpeed(THETA, True, 12.0)
        w, p = np.meshgrid([1, 2, 3], [1, 2, 3], indexing="ij")
        assert close(estimate[1:, 1:, 0], fit.step_s(w, p))
        assert close(estimate[1:, 1:, 1], 0.3 + 0.2 * w / p)
        assert np.isinf(estimate[0, :, 0]).all() and np.isinf(estimate[:, 0, 0]).all()
        assert best == pytest.approx(fit.samples_per_s([1, 1, 2, 2], [1, 2, 1, 2]).max())

    def test_without_network_there_is_no_communication(self):
        for kind in (job_type(architecture="pearl"), job_type(architecture="1w1g")):
            record = parameters(kind, caps=(2, 2)).types[0]
            estimate = np.ones((4, 4, 2))
            fill_estimate(THETA, record, True, estimate)
            assert (estimate[1:, :, 1] == 0).all()
        estimate = np.ones((4, 4, 2))
        fill_estimate(THETA, parameters(job_type(), caps=(2, 2)).types[0], False, estimate)
        assert (estimate[1:, :, 1] == 0).all()
