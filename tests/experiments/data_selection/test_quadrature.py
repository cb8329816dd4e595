"""Gaussian integrals against closed forms, sampling and scipy's adaptive rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from data.gaussian_logistic import LAWS
from experiments.data_selection.quadrature import Limit, corners, half_line, keeping, keeping_scale, misclassification


def test_weights_sum_to_one_and_breaks_are_ends_of_panels():
    nodes, weights = half_line([0.1, 7.0])
    assert weights.sum() == pytest.approx(1, abs=1e-9) and nodes.min() > 0 and nodes.max() < 6.5
    assert weights @ (nodes < 0.1) == pytest.approx(2 * norm.cdf(0.1) - 1, abs=1e-12)
    assert weights @ nodes**4 == pytest.approx(3, abs=1e-6)


@pytest.mark.parametrize("hardness", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("deviation", [2.9, 5.0])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.95])
def test_the_scale_keeps_the_wanted_share(hardness, deviation, share):
    scale = keeping_scale(hardness, deviation, share)

    def kept(z: float) -> float:
        return keeping(np.array([deviation * z]), hardness, scale)[0] * norm.pdf(z)

    breaks = [logit / deviation for logit in corners(hardness, scale)]
    found = 2 * quad(kept, 0, 9, points=breaks or None, limit=200)[0]
    assert found == pytest.approx(share, abs=1e-7)


def test_everything_is_kept_at_share_one():
    nodes = Limit(2.29, LAWS["misspec"], 5.0, 5.0, 0.0, 1.0, True).nodes(1.0)
    assert (nodes.kept == 1).all() and (nodes.loss_weight == 1).all()


@pytest.mark.parametrize("across", [0.0, 0.95])
def test_nodes_average_to_the_share_and_weights_undo_it(across):
    nodes = Limit(2.29, LAWS["misspec2"], 5.0, 2.75, across, -0.5, True).nodes(0.3)
    assert nodes.weight @ nodes.kept == pytest.approx(0.3, abs=1e-4)
    np.testing.assert_allclose(nodes.kept * nodes.loss_weight, 1)


@pytest.mark.parametrize("name", LAWS)
def test_the_error_formula_agrees_with_a_large_test_sample(name):
    generator = np.random.default_rng(5)
    truth, other = generator.standard_normal((2, 1_000_000))
    label = generator.random(len(truth)) < LAWS[name].probability(5 * truth)
    for cosine in (-0.3, 0.0, 0.7, 4.0):
        sampled = ((cosine * truth + other > 0) != label).mean()
        assert float(misclassification(LAWS[name], 5.0, torch.tensor(cosine).double())) == pytest.approx(sampled, abs=0.002)


def test_the_error_of_the_misspecified_step_has_a_closed_form():
    """P(error) = 0.05 + 0.9 * angle / pi for a step of 0.95, at the angle between the classifier and the truth."""
    cosines = torch.tensor([0.0, 0.5, 2.0, 30.0, math.inf], dtype=torch.float64)
    angles = torch.atan2(torch.ones(5, dtype=torch.float64), cosines)
    angles[-1] = 0
    np.testing.assert_allclose(misclassification(LAWS["misspec"], 5.0, cosines), 0.05 + 0.9 * angles / math.pi, atol=1e-4)
