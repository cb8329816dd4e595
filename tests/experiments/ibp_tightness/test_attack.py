"""The attack's gradient against automatic differentiation, and where its points may go."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.ibp_tightness.attack import ascend, loss_gradient, small_box, uniform_noise
from experiments.ibp_tightness.tightness import input_box
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp


@pytest.mark.parametrize("make, inputs", [
    (lambda: BoxMlp(6, 9, 3, 4, init="default", seeds=[0, 1]), 6),
    (lambda: BoxMlp(6, 9, 2, 4, relu=False, seeds=[0, 1]), 6),
    (lambda: BoxCnn([1, 6, 6], 2, 3, 4, batch_norm=True, seeds=[0, 1]).eval(), 36),
])
def test_the_gradient_is_that_of_each_points_cross_entropy(make, inputs):
    net = make().double()
    x, labels = torch.rand(2, 3, inputs).double().requires_grad_(), torch.tensor([[0, 1, 3], [2, 2, 0]])
    loss = cross_entropy(net(x).flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss_gradient(net, x, labels), torch.autograd.grad(loss, x)[0])


def test_attacked_points_stay_in_the_box_and_raise_the_loss():
    net = BoxMlp(20, 30, 3, 5, init="kaiming", seeds=[0, 1])
    x, labels = torch.rand(2, 40, 20), torch.randint(5, (2, 40))
    box, noise = input_box(x, torch.tensor([0.05, 0.2])), 2 * torch.rand(2, 40, 20) - 1
    losses = []
    for steps in (0, 10):
        points = ascend(net, box, labels, steps, noise)
        lower, upper = box.ends
        assert (points >= lower - 1e-6).all() and (points <= upper + 1e-6).all()
        losses.append(cross_entropy(net(points).flatten(0, 1), labels.flatten()).item())
    assert losses[1] > losses[0]


def test_sign_steps_reach_the_worst_corner_of_a_linear_network():
    net = BoxMlp(8, 5, 2, 2, relu=False, seeds=0)
    x, labels = torch.full((1, 4, 8), 0.5), torch.tensor([[0, 1, 0, 1]])
    box = input_box(x, 0.1)
    found = ascend(net, box, labels, 20, torch.zeros_like(x))
    worst = box.centre + box.radius * loss_gradient(net, x, labels).sign()
    torch.testing.assert_close(found, worst)


@pytest.mark.parametrize("shrink", [0.0, 0.1, 0.4, 1.0])
def test_the_small_box_stays_inside_the_large_one_and_near_the_point(shrink):
    box = input_box(torch.rand(2, 30, 6), 0.15)
    points = box.centre + box.radius * (2 * torch.rand(2, 30, 6) - 1)
    small = small_box(box, points, shrink)
    torch.testing.assert_close(small.radius, shrink * box.radius)
    assert (small.ends[0] >= box.ends[0] - 1e-6).all() and (small.ends[1] <= box.ends[1] + 1e-6).all()
    assert ((small.centre - points).abs() <= small.radius + 1e-6).all()


def test_noise_is_uniform_and_a_function_of_seed_step_and_purpose():
    noise = uniform_noise([3, 8], 5, 0, (4000,))
    assert noise.abs().max() <= 1 and abs(noise.mean()) < 0.03 and noise.var().item() == pytest.approx(1 / 3, rel=0.05)
    assert torch.equal(noise[1], uniform_noise([8], 5, 0, (4000,))[0])
    for other in (uniform_noise([8], 6, 0, (4000,)), uniform_noise([8], 5, 1, (4000,))):
        assert not torch.equal(noise[1], other[0])
