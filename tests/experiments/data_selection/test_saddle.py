"""The saddle-point solver against the authors' values, a simulation at finite size, and itself from other starts."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from data.gaussian_logistic import LAWS
from experiments.data_selection.quadrature import Limit, misclassification
from experiments.data_selection.saddle import ACCEPTED, START, Equations, SolveFailed

NEAR = Limit(2.29, LAWS["misspec"], 5.0, 5.0, 0.0, 1.0, False)


def line(limit: Limit, ridge: float, *shares: float):
    found = None
    for share in shares:
        found = Equations(limit, limit.nodes(share), ridge).solve(None if found is None else found.unknowns)
    return found


def error(limit: Limit, solution) -> float:
    return float(misclassification(limit.law, limit.norm, torch.tensor(solution.cosine, dtype=torch.float64)))


def rows() -> list[dict]:
    text = (Path(__file__).parent / "official.csv").read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['kind']}-{row['hardness']}-{row['share']}")
def test_the_lines_agree_with_the_authors_values(row):
    number = {name: float(value) for name, value in row.items() if name not in ("kind", "labels")}
    limit = Limit(number["ratio"], LAWS[row["labels"]], 5.0, number["along"], number["across"], number["hardness"], False)
    solution = line(limit, number["ridge"], 1.0, number["share"])
    assert abs(error(limit, solution) - number["error"]) <= number["tolerance"]


def test_solutions_have_small_residuals_and_do_not_depend_on_the_start():
    equations = Equations(NEAR, NEAR.nodes(0.3), 0.001)
    cold, warm = equations.solve(), line(NEAR, 0.001, 1.0, 0.8, 0.5, 0.3)
    far = equations.solve(np.array([0.1, 0.0, -2.0, 3.0]))
    for solution in (cold, warm, far):
        assert solution.residual < ACCEPTED and solution.proximal < ACCEPTED
        np.testing.assert_allclose(solution.unknowns, warm.unknowns, atol=1e-9)


def test_the_spurious_branches_are_not_taken():
    """Newton's method on the plain equations ends at a to 0 and mu to infinity here, with tiny residuals."""
    limit = Limit(36.85, LAWS["misspec"], 5.0, 5.0, 0.0, 0.0, False)
    solution = Equations(limit, limit.nodes(1.0), 0.001).solve()
    assert 0.05 < math.exp(solution.unknowns[2]) < 5 and 0.05 < math.exp(solution.unknowns[3]) < 50
    assert 0.08 < error(limit, solution) < 0.09


def test_the_solution_is_a_minimum_in_the_weights_of_a_maximum_in_mu():
    limit = Limit(2.29, LAWS["misspec"], 5.0, 2.75, 0.95, 0.5, True)
    equations = Equations(limit, limit.nodes(0.5), 0.01)
    hessian = equations.at(equations.solve().unknowns).hessian
    reduced = hessian[:3, :3] - np.outer(hessian[:3, 3], hessian[3, :3]) / hessian[3, 3]
    assert hessian[3, 3] < 0 and np.linalg.eigvalsh(reduced).min() > 0


def test_the_jacobian_is_the_derivative_of_the_equations():
    limit = Limit(2.29, LAWS["misspec2"], 5.0, 2.75, 0.95, -1.0, False)
    equations, point = Equations(limit, limit.nodes(0.4), 0.01), np.array([1.3, 0.2, 0.1, -1.0])
    numeric = np.stack([(equations.at(point + shift).values - equations.at(point - shift).values) / 2e-6
                        for shift in 1e-6 * np.eye(4)], axis=1)
    np.testing.assert_allclose(equations.at(point).jacobian, numeric, atol=1e-7)


def test_a_surrogate_without_an_other_part_is_the_limit_of_small_other_parts():
    """Up to corners of the keeping probability, which are ends of panels only where there is no other part."""
    nearly = Limit(2.29, LAWS["misspec"], 5.0, 5.0, 1e-3, 1.0, False)
    exact, close = line(NEAR, 0.01, 1.0, 0.5), line(nearly, 0.01, 1.0, 0.5)
    assert abs(error(NEAR, exact) - error(nearly, close)) < 3e-4


def test_random_subsets_are_the_full_sample_of_a_smaller_ratio():
    """Keeping a share at random is a full sample with N / p times the share, at the ridge divided by it."""
    kept = Limit(2.29, LAWS["misspec"], 5.0, 5.0, 0.0, 0.0, False)
    fewer = Limit(2.29 * 0.4, LAWS["misspec"], 5.0, 5.0, 0.0, 0.0, False)
    assert error(kept, line(kept, 0.01, 1.0, 0.4)) == pytest.approx(error(fewer, line(fewer, 0.025, 1.0)), abs=1e-9)


def test_a_failed_solve_is_an_error(monkeypatch):
    monkeypatch.setattr(Equations, "_newton", lambda self, start: None)
    monkeypatch.setattr(Equations, "_descend", lambda self, start, rough: np.array(START))
    with pytest.raises(SolveFailed, match="no saddle point at ridge 0.1"):
        Equations(NEAR, NEAR.nodes(0.5), 0.1).solve()
