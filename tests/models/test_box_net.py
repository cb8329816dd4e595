"""Boxes against corners and samples, initial weights against their rules, and replicas against single networks."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp
from models.box_net import INITS, Box


@pytest.mark.parametrize("init", INITS)
def test_a_replica_depends_on_its_own_seed_alone(init):
    together, alone = (BoxCnn([2, 8, 8], 2, 3, 4, init=init, seeds=seeds) for seeds in ([5, 9], 9))
    for several, one in zip(together.parameters(), alone.parameters(), strict=True):
        assert torch.equal(several[1], one[0])


@pytest.mark.parametrize("init, deviation", [
    ("gaussian", 400**-0.5), ("kaiming", (2 / 400) ** 0.5), ("default", (3 * 400) ** -0.5),
    ("shi", math.sqrt(2 * math.pi) / 400),
])
def test_initial_weights_have_the_spread_of_their_rule(init, deviation):
    weight = BoxMlp(400, 300, 2, 3, init=init).stages[0][0].weight
    assert weight.std().item() == pytest.approx(deviation, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=0.02 * deviation)


def test_shis_rule_leaves_the_last_layer_to_torchs_default():
    weight = BoxMlp(20, 400, 2, 30, init="shi").stages[-1][0].weight
    assert weight.abs().max() <= 400**-0.5 and weight.std().item() == pytest.approx((3 * 400) ** -0.5, rel=0.05)


def test_repeated_replicas_stand_side_by_side():
    net = BoxCnn([1, 8, 8], 2, 3, 4, batch_norm=True, seeds=[0, 1])
    x = torch.rand(2, 3, 64)
    torch.testing.assert_close(net.repeat(3)(x.repeat_interleave(3, 0)), net(x).repeat_interleave(3, 0))
    assert net.replicas == 2


def test_the_box_of_one_affine_layer_touches_its_corners():
    net = BoxMlp(4, 1, 1, 3, init="default").double()
    centre, radius = torch.rand(1, 1, 4).double(), torch.rand(1, 1, 4).double()
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4))).double()
    values = net(centre + signs * radius)
    lower, upper = net.boxes(Box(centre, radius))[-1].ends
    torch.testing.assert_close(lower[0, 0], values.amin((0, 1)))
    torch.testing.assert_close(upper[0, 0], values.amax((0, 1)))


@pytest.mark.parametrize("make", [
    lambda: BoxMlp(5, 8, 4, 3, init="default", seeds=[0, 1]),
    lambda: BoxCnn([1, 6, 6], 3, 5, 4, batch_norm=True, seeds=[0, 1]),
    lambda: BoxMlp(5, 8, 3, 3, relu=False, seeds=[0, 1]),
])
def test_boxes_hold_every_point_of_the_input_box_and_margins_every_difference(make):
    net = make().double().eval()
    inputs = 36 if isinstance(net, BoxCnn) else 5
    centre, radius = torch.rand(2, 1, inputs).double(), 0.2 * torch.rand(2, 1, inputs).double()
    points = centre + radius * (2 * torch.rand(2, 400, inputs).double().round() - 1)
    labels = torch.tensor([[1], [2]])
    boxes, margins = net.boxes(Box(centre, radius)), net.boxes(Box(centre, radius), labels)[-1]
    for values, box in zip(net.trace(points), boxes, strict=True):
        lower, upper = box.ends
        assert (values >= lower - 1e-9).all() and (values <= upper + 1e-9).all()
    logits = net(points)
    differences = logits - logits.take_along_dim(labels[..., None], 2)
    separate = boxes[-1].radius + boxes[-1].radius.take_along_dim(labels[..., None], 2)
    others = torch.arange(net.outputs) != labels[..., None]
    assert (differences <= margins.ends[1] + 1e-9).all() and (margins.radius[others] <= separate[others] + 1e-9).all()
    assert margins.ends[1].take_along_dim(labels[..., None], 2).abs().max() == 0


def test_rectifying_a_box_clips_its_ends():
    box = Box(torch.tensor([0.0, 2.0, -3.0]), torch.tensor([1.0, 1.0, 1.0])).rectified()
    assert torch.equal(torch.stack(box.ends), torch.tensor([[0.0, 1.0, 0.0], [1.0, 3.0, 0.0]]))


def test_coefficients_pulled_back_are_gradients():
    net = BoxCnn([2, 6, 5], 3, 3, 4, batch_norm=True, seeds=[0, 1]).double().eval()
    x = torch.rand(2, 3, 60).double().requires_grad_()
    rows = torch.randn(2, 3, 2, 4).double()
    found = net.pull(rows, net.patterns(x))
    for row in range(2):
        (gradient,) = torch.autograd.grad((net(x) * rows[:, :, row]).sum(), x)
        torch.testing.assert_close(found[:, :, row], gradient)


@pytest.mark.parametrize("make, message", [
    (lambda: BoxMlp(3, 4, 0, 2), "depth is 0"), (lambda: BoxMlp(3, 4, 2, 2, init="he"), "gaussian, kaiming"),
    (lambda: BoxCnn([3, 32, 32], 4, 4, 10), "2, 3, 5, 7, 9, 11, 13"),
])
def test_impossible_networks_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
