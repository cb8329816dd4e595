"""The compiled inner problem against scipy's root finder and against derivatives of scipy's minima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from data.gaussian_logistic import LAWS
from experiments.data_selection.prox import expectations, proximal_logit
from experiments.data_selection.quadrature import Limit, Nodes


@pytest.mark.parametrize("pull", [1e-5, 1e-3, 0.1, 3.0, 1e4])
@pytest.mark.parametrize("centre", [-40.0, -3.0, 0.0, 0.7, 25.0])
@pytest.mark.parametrize("label", [0, 1])
def test_the_proximal_logit_is_the_root_that_scipy_finds(centre, pull, label):
    """Down to pulls where a plain Newton iteration cycles."""
    def equation(v: float) -> float:
        return expit(v) - label + pull * (v - centre)

    v, left = proximal_logit(centre, pull, label)
    reach = 1 / pull + 1
    assert abs(left) < 1e-10
    assert v == pytest.approx(brentq(equation, centre - reach, centre + reach, xtol=1e-13), rel=1e-9, abs=1e-9)


def envelope(point: np.ndarray, nodes: Nodes) -> float:
    """E[kept * min_v (w loss + mu / 2 (v - c)^2)], every minimum by scipy."""
    a0, a_s, a, mu = point
    total = 0.0
    for i, weight in enumerate(nodes.weight):
        for noise, noise_weight in zip(nodes.noise, nodes.noise_weight, strict=True):
            centre = a0 * nodes.direction[i] + a_s * nodes.surrogate[i] + a * noise
            for label in (0, 1):
                def value(v, label=label, centre=centre, i=i):
                    loss = np.logaddexp(0, v) - label * v
                    return nodes.loss_weight[i] * loss + mu / 2 * (v - centre) ** 2
                found = minimize_scalar(value, bounds=(centre - 30, centre + 30), method="bounded", options={"xatol": 1e-10})
                chance = nodes.label[i] if label else 1 - nodes.label[i]
                total += weight * noise_weight * chance * nodes.kept[i] * found.fun
    return total


def test_gradient_and_hessian_are_the_derivatives_of_the_expected_minimum():
    whole = Limit(2.29, LAWS["misspec"], 5.0, 2.75, 0.95, 1.0, True).nodes(0.5)
    few = [part[40:900:211] for part in list(vars(whole).values())[:6]]
    nodes = Nodes(*few, whole.noise[18:22], whole.noise_weight[18:22])
    point = np.array([1.2, 0.3, 0.8, 0.4])
    gradient, hessian, worst = expectations(*point, *vars(nodes).values())
    numeric = [(envelope(point + shift, nodes) - envelope(point - shift, nodes)) / 2e-4 for shift in 1e-4 * np.eye(4)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-9)
    columns = [(expectations(*(point + shift), *vars(nodes).values())[0]
                - expectations(*(point - shift), *vars(nodes).values())[0]) / 2e-6 for shift in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(hessian, np.stack(columns, axis=1), rtol=1e-6, atol=1e-10)
    assert worst < 1e-10
