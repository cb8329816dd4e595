"""Tightness against corners of the box, explicit matrices and Monte Carlo, and when bounds are exact."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from experiments.ibp_tightness.tightness import deep_tightness, gaussian_tightness, input_box, tightness
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp
from models.box_net import Box


def linear_net(*matrices: np.ndarray) -> BoxMlp:
    """x -> W_L ... W_1 x of one replica."""
    net = BoxMlp(matrices[0].shape[1], 1, len(matrices), 1, relu=False, bias=False).double()
    for stage, matrix in zip(net.stages, matrices, strict=True):
        stage[0].weight.data = torch.from_numpy(matrix)[None]
    return net


def test_the_optimal_radius_is_that_of_the_corners_and_the_loose_one_that_of_interval_bounds():
    net = BoxMlp(5, 7, 3, 4, relu=False, init="default", seeds=[0, 1]).double()
    x, radius = torch.rand(2, 3, 5).double(), torch.rand(2, 3, 5).double()
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=5))).double()
    corners = x[:, :, None] + signs * radius[:, :, None]
    outputs = net(corners.flatten(1, 2)).unflatten(1, (3, -1))
    best = (outputs.amax(2) - outputs.amin(2)) / 2
    loose = net.boxes(Box(x, radius))[-1].radius
    torch.testing.assert_close(tightness(net, x, radius), best / loose)


@pytest.mark.parametrize("labelled", [False, True])
def test_local_tightness_freezes_the_activation_pattern_in_both_terms(labelled):
    net = BoxMlp(6, 5, 3, 4, init="default", seeds=[0, 3]).double()
    x, radius, labels = torch.rand(2, 2, 6).double(), torch.rand(2, 2, 6).double(), torch.tensor([[0, 3], [2, 1]])
    found = tightness(net, x, radius, labels if labelled else None).detach().numpy()
    for replica, point in itertools.product(range(2), range(2)):
        matrices = [stage[0].weight[replica].detach().numpy() for stage in net.stages]
        active = [np.diag((z[replica, point] > 0).double().numpy()) for z in net.trace(x)[:-1]]
        label = int(labels[replica, point])
        margins = np.delete(np.eye(4) - np.eye(4)[label], label, 0) if labelled else np.eye(4)
        first, second, last = active[0] @ matrices[0], active[1] @ matrices[1], margins @ matrices[2]
        r = radius[replica, point].numpy()
        expected = (abs(last @ second @ first) @ r) / (abs(last) @ abs(second) @ abs(first) @ r)
        order = np.argsort([(label + step) % 4 for step in range(1, 4)]) if labelled else slice(None)
        np.testing.assert_allclose(found[replica, point][order], expected, rtol=1e-10)


def test_convolutions_with_batch_normalisation_have_the_tightness_of_their_jacobian():
    net = BoxCnn([2, 6, 6], 2, 3, 3, batch_norm=True, relu=False, seeds=0).double().eval()
    x, radius = torch.rand(1, 1, 72).double(), torch.rand(1, 1, 72).double()
    jacobian = torch.autograd.functional.jacobian(lambda point: net(point)[0, 0], x).view(3, 72)
    expected = jacobian.abs() @ radius[0, 0] / net.boxes(Box(x, radius))[-1].radius[0, 0]
    torch.testing.assert_close(tightness(net, x, radius)[0, 0], expected)


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], size=shape)


def test_weights_whose_signs_have_rank_one_are_exact_and_one_flipped_sign_is_not():
    rng = np.random.default_rng(0)
    left, middle, right = signs(rng, 5), signs(rng, 32), signs(rng, 20)
    inner = np.outer(middle, right) * rng.random((32, 20))
    outer = np.outer(left, middle) * rng.random((5, 32))
    ones = torch.ones(1, 1, 20).double()
    assert tightness(linear_net(inner, outer), ones, ones).sub(1).abs().max() < 1e-12
    inner[3, 4] *= -1
    flipped = tightness(linear_net(inner, outer), ones, ones)
    assert (flipped < 1).all() and (flipped > 0.99).all()


def test_the_closed_form_is_the_ratio_of_expected_radii():
    rng = np.random.default_rng(1)
    for width in (2, 9, 40):
        outer, inner = rng.standard_normal((2, 200_000, width))
        ratio = np.abs((outer * inner).sum(1)).mean() / np.abs(outer * inner).sum(1).mean()
        assert gaussian_tightness(width) == pytest.approx(ratio, rel=0.01)


def test_the_closed_form_of_one_unit_is_exact_and_of_many_falls_as_the_square_root():
    assert gaussian_tightness(1) == pytest.approx(1.0)
    assert gaussian_tightness(100_000) == pytest.approx(math.sqrt(math.pi / 200_000), rel=1e-4)
    assert deep_tightness(512, 2) == pytest.approx(gaussian_tightness(512), rel=1e-3)


def test_deep_gaussian_networks_follow_the_power_of_their_depth():
    net = BoxMlp(64, 128, 4, 10, relu=False, bias=False, init="gaussian", seeds=list(range(20))).double()
    ones = torch.ones(20, 1, 64).double()
    assert tightness(net, ones, ones).mean().item() == pytest.approx(deep_tightness(128, 4), rel=0.1)


def test_the_box_of_a_picture_ends_at_black_and_white_and_keeps_small_radii():
    x = torch.tensor([[[0.0, 0.3, 0.95, 1.0]], [[0.5, 0.5, 0.5, 0.5]]])
    lower, upper = input_box(x, torch.tensor([0.1, 0.25])).ends
    torch.testing.assert_close(lower[0, 0], torch.tensor([0.0, 0.2, 0.85, 0.9]))
    torch.testing.assert_close(upper[0, 0], torch.tensor([0.1, 0.4, 1.0, 1.0]))
    torch.testing.assert_close(input_box(x, 1e-7).radius[1, 0], torch.full((4,), 1e-7))


def test_an_output_that_no_input_can_change_counts_as_exact():
    zero = linear_net(np.zeros((3, 2)), np.ones((1, 3)))
    assert tightness(zero, torch.ones(1, 1, 2).double(), torch.ones(1, 1, 2).double()).item() == 1.0
