"""The batched box-constrained minimiser against scipy's solvers, one problem at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, minimize, rosen, rosen_der

from experiments.adversarial.lbfgs import Solver

EXACT = Solver(max_iterations=500, value_tolerance=0.0, gradient_tolerance=1e-9)


def least_squares(problems: int, rows: int, columns: int):
    generator = np.random.default_rng(3)
    return generator.standard_normal((problems, rows, columns)), generator.standard_normal((problems, rows))


def test_bounded_least_squares_equals_scipys_active_set_solution():
    matrices, sides = least_squares(6, 15, 9)
    a, b = torch.from_numpy(matrices), torch.from_numpy(sides)

    def problem(points, rows):
        residual = torch.einsum("bij,bj->bi", a[rows], points) - b[rows]
        return residual.square().sum(1) / 2, torch.einsum("bij,bi->bj", a[rows], residual)

    ours = EXACT.minimise(problem, torch.full((6, 9), 0.05, dtype=torch.float64), -0.1, 0.3).numpy()
    for row in range(6):
        reference = lsq_linear(matrices[row], sides[row], bounds=(-0.1, 0.3), method="bvls", tol=1e-14)
        np.testing.assert_allclose(ours[row], reference.x, atol=1e-6)
        assert ((ours[row] == -0.1) | (ours[row] == 0.3)).any(), "the bounds were meant to be active"


@pytest.mark.parametrize("lower, upper", [(-3.0, 3.0), (-0.5, 0.8)])
def test_the_rosenbrock_valley_ends_where_scipys_lbfgsb_ends(lower, upper):
    starts = np.array([[-0.3, 0.4, 0.1], [0.7, -0.4, 0.5]])

    def problem(points, rows):
        values = np.array([rosen(point) for point in points.numpy()])
        slopes = np.array([rosen_der(point) for point in points.numpy()])
        return torch.from_numpy(values), torch.from_numpy(slopes)

    ours = EXACT.minimise(problem, torch.from_numpy(starts), lower, upper).numpy()
    for start, found in zip(starts, ours, strict=True):
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
        bounds = [(lower, upper)] * 3
        reference = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", bounds=bounds, options=options)
        np.testing.assert_allclose(found, reference.x, atol=1e-5)


def test_a_row_has_the_same_minimiser_alone_and_among_harder_ones():
    scales = torch.tensor([[1.0, 1.0], [1.0, 50.0], [1.0, 3000.0]], dtype=torch.float64)

    def problem(points, rows):
        return (scales[rows] * (points - 0.3) ** 2).sum(1), 2 * scales[rows] * (points - 0.3)

    start = torch.zeros(3, 2, dtype=torch.float64)
    together = Solver().minimise(problem, start, 0.0, 1.0)
    alone = Solver().minimise(lambda points, rows: problem(points, rows + 2), start[:1], 0.0, 1.0)
    torch.testing.assert_close(together, torch.full_like(start, 0.3), atol=1e-4, rtol=0)
    torch.testing.assert_close(together[2:], alone, atol=1e-12, rtol=0)


def test_iterations_are_limited():
    calls = []

    def problem(points, rows):
        calls.append(len(rows))
        return (points**4).sum(1), 4 * points**3

    Solver(max_iterations=3, backtracks=1).minimise(problem, torch.ones(2, 5, dtype=torch.float64), -9.0, 9.0)
    assert len(calls) == 1 + 3
