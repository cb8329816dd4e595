"""The batched Newton solver against scikit-learn, one problem at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from experiments.data_selection.newton import Problem, kept_rows

RIDGES = (0.1, 1e-3)


def problem(single: bool = False, spread: float = 1.0) -> Problem:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((3, 60, 12))
    y = (x[:, :, 0] + generator.standard_normal((3, 60)) > 0).astype(float)
    weights = np.exp(spread * generator.standard_normal((3, 60))) * (generator.random((3, 60)) < 0.7)
    tensors = (torch.from_numpy(part) for part in (x, y, weights))
    return Problem(*kept_rows(*tensors), torch.tensor(RIDGES, dtype=torch.float64), 60, single)


def solved(one: Problem, steps: int) -> torch.Tensor:
    theta = torch.zeros(3, len(RIDGES), 12, dtype=torch.float64)
    for _ in range(steps):
        theta = theta + one.direction(theta)[0]
    return theta


@pytest.mark.parametrize("single", [False, True])
def test_every_solution_is_scikit_learns(single):
    one = problem(single)
    theta = solved(one, 15)
    assert one.gradient(theta).abs().max() < 1e-10
    for row in range(3):
        for column, ridge in enumerate(RIDGES):
            reference = LogisticRegression(C=1 / (ridge * one.full_size), fit_intercept=False, tol=1e-12, max_iter=500)
            reference.fit(one.x[row], one.y[row], sample_weight=one.weights[row].numpy())
            np.testing.assert_allclose(theta[row, column], reference.coef_[0], atol=1e-5)


def test_very_uneven_weights_are_damped_and_still_solved():
    one = problem(spread=4.0)
    assert one.gradient(solved(one, 40)).abs().max() < 1e-9


def test_the_step_never_raises_the_objective():
    one = problem(spread=4.0)
    theta = torch.zeros(3, len(RIDGES), 12, dtype=torch.float64)
    values = []
    for _ in range(12):
        values.append(one._value(theta, one._logits(theta)))
        theta = theta + one.direction(theta)[0]
    assert bool((torch.stack(values).diff(dim=0) <= 1e-12).all())


def test_kept_rows_are_those_of_positive_weight_in_their_order():
    x = torch.arange(12.0).view(2, 6, 1)
    weights = torch.tensor([[0.0, 2, 0, 1, 0, 0], [1, 0, 1, 0, 3, 0]])
    rows, labels, kept = kept_rows(x, x[..., 0], weights)
    assert rows[..., 0].tolist() == labels.tolist() == [[1.0, 3.0, 0.0], [6.0, 8.0, 10.0]]
    assert kept.tolist() == [[2.0, 1.0, 0.0], [1.0, 1.0, 3.0]]
