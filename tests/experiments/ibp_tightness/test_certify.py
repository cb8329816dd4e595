"""Bounds against the truth on tiny networks: by enumerating activation patterns, by mixed integers, by sampling."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from experiments.ibp_tightness.certify import crown_margins, ibp_margins, relax, unit_intervals, upper_bounds
from experiments.ibp_tightness.exact import Program, exact_tightness
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp
from models.box_net import Box

LABEL = 1


def tiny(depth: int = 3, seed: int = 0) -> tuple[BoxMlp, Box]:
    net = BoxMlp(2, 3, depth, 3, init="default", seeds=seed).double()
    return net, Box(torch.tensor([[[0.4, -0.3]]]).double(), torch.tensor([[[0.9, 0.7]]]).double())


def exhaustive_maximum(net: BoxMlp, box: Box, row: np.ndarray) -> float:
    """The largest ``row`` times the outputs: a linear program for every activation pattern."""
    weights = [stage[0].weight[0].detach().numpy() for stage in net.stages]
    biases = [stage[0].bias[0, 0].detach().numpy() for stage in net.stages]
    lower, upper = (end[0, 0].numpy() for end in box.ends)
    units, best = [len(bias) for bias in biases[:-1]], -np.inf
    for pattern in itertools.product([0.0, 1.0], repeat=sum(units)):
        linear, constant, rows, sides = np.eye(len(lower)), np.zeros(len(lower)), [], []
        for weight, bias, active in zip(weights, biases, np.split(np.array(pattern), np.cumsum(units)), strict=True):
            linear, constant = weight @ linear, weight @ constant + bias
            if len(active):  # active units are at least 0, the others at most 0
                sign = 1 - 2 * active
                rows.append(sign[:, None] * linear)
                sides.append(-sign * constant)
                linear, constant = active[:, None] * linear, active * constant
        found = linprog(-(row @ linear), np.concatenate(rows), np.concatenate(sides),
                        bounds=list(zip(lower, upper, strict=True)))
        best = max(best, -found.fun + row @ constant) if found.success else best
    return best


def margin_rows(classes: int) -> np.ndarray:
    return np.eye(classes) - np.eye(classes)[LABEL]


@pytest.mark.parametrize("seed", range(4))
def test_mixed_integers_find_the_maximum_over_all_activation_patterns(seed):
    net, box = tiny(seed=seed)
    program = Program.of(net, box)
    for row in margin_rows(3)[[0, 2]]:
        assert program.maximum(row) == pytest.approx(exhaustive_maximum(net, box, row), abs=1e-6)


@pytest.mark.parametrize("depth, seed", [(2, 0), (3, 1), (4, 2), (4, 5)])
def test_bounds_stand_in_their_order(depth, seed):
    """Truth, triangle relaxation, CROWN, CROWN on interval bounds, and above all the margins of interval bounds."""
    net, box = tiny(depth, seed)
    program, labels = Program.of(net, box), torch.tensor([[LABEL]])
    crown, crown_ibp, ibp = (bounds[0, 0].numpy() for bounds in (
        crown_margins(net, box, labels), crown_margins(net, box, labels, "ibp"), ibp_margins(net, box, labels)))
    for j, row in enumerate(margin_rows(3)):
        chain = [program.maximum(row), program.maximum(row, integral=False), crown[j], crown_ibp[j]]
        assert all(low <= high + 1e-6 for low, high in itertools.pairwise(chain)), chain
        assert chain[0] <= ibp[j] + 1e-6
    assert crown[LABEL] == ibp[LABEL] == 0


def test_with_every_unit_stable_crown_is_exact():
    net, box = tiny(3, 2)
    small = Box(box.centre, 1e-4 * box.radius)
    row = margin_rows(3)[0]
    assert all(((low > 0) | (high < 0)).all() for low, high in unit_intervals(net, small, "crown"))
    found = crown_margins(net, small, torch.tensor([[LABEL]]))[0, 0, 0].item()
    assert found == pytest.approx(exhaustive_maximum(net, small, row), abs=1e-9)


def test_for_a_linear_network_crown_is_exact_and_interval_bounds_are_not():
    net = BoxMlp(4, 6, 3, 2, relu=False, init="default", seeds=[0, 1]).double()
    box = Box(torch.rand(2, 3, 4).double(), torch.rand(2, 3, 4).double())
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4))).double()
    outputs = net((box.centre[:, :, None] + signs * box.radius[:, :, None]).flatten(1, 2)).unflatten(1, (3, -1))
    labels = torch.zeros(2, 3, dtype=torch.long)
    truth = (outputs[..., 1] - outputs[..., 0]).amax(2)
    torch.testing.assert_close(crown_margins(net, box, labels)[..., 1], truth)
    assert (ibp_margins(net, box, labels)[..., 1] > truth + 1e-6).all()


@pytest.mark.parametrize("intervals", ["crown", "ibp"])
def test_bounds_hold_for_convolutions_with_batch_normalisation(intervals):
    net = BoxCnn([1, 6, 6], 2, 5, 3, batch_norm=True, mean=[0.2], deviation=[0.5], seeds=[0, 1]).double().eval()
    box = Box(torch.rand(2, 2, 36).double(), 0.1 * torch.rand(2, 2, 36).double())
    labels = torch.tensor([[0, 1], [2, 1]])
    signs = 2 * torch.rand(2, 2, 200, 36).double().round() - 1
    points = box.centre[:, :, None] + signs * box.radius[:, :, None]
    logits = net(points.flatten(1, 2)).unflatten(1, (2, 200))
    margins = logits - logits.take_along_dim(labels[..., None, None], 3)
    bounds = crown_margins(net, box, labels, intervals)
    assert (margins.amax(2) <= bounds + 1e-9).all()
    assert (bounds <= ibp_margins(net, box, labels) + 1e-9).all()


def test_working_on_few_points_at_once_changes_nothing():
    net = BoxMlp(5, 8, 4, 3, init="default", seeds=[0, 1]).double()
    box, labels = Box(torch.rand(2, 7, 5).double(), 0.3 * torch.rand(2, 7, 5).double()), torch.randint(3, (2, 7))
    whole, parts = (crown_margins(net, box, labels, at_once=count) for count in (7, 3))
    torch.testing.assert_close(whole, parts)


def test_lines_over_a_unit_touch_the_relu_at_the_ends_of_its_interval():
    lower, upper = torch.tensor([[[-1.0, -2.0, -3.0, 1.0]]]), torch.tensor([[[3.0, 1.0, -1.0, 2.0]]])
    above, shift = relax(torch.eye(4)[None, None], lower, upper)
    for end in (lower, upper):
        torch.testing.assert_close((above[0, 0] * end[0]).sum(1) + shift[0, 0], end[0, 0].clamp(min=0))
    below, zero = relax(-torch.eye(4)[None, None], lower, upper)
    assert torch.equal(-below[0, 0].diag(), torch.tensor([1.0, 0.0, 0.0, 1.0])) and not zero.any()


def test_rows_are_bounded_at_any_stage():
    net, box = tiny(4, 7)
    units = unit_intervals(net, box, "crown")
    row = torch.tensor([[[[1.0, -2.0, 0.5]]]]).double()
    points = box.centre + box.radius * (2 * torch.rand(1, 500, 2).double() - 1)
    for stage in range(4):
        bound = upper_bounds(net, box, row, units[:stage]).item()
        assert (net.trace(points)[stage][0] @ row[0, 0, 0]).max().item() <= bound + 1e-9


def test_exact_tightness_is_the_exhaustive_range_over_interval_bounds():
    net, box = tiny(3, 1)
    rows = np.eye(3)
    widths = [exhaustive_maximum(net, box, row) + exhaustive_maximum(net, box, -row) for row in rows]
    loose = net.boxes(box)[-1].radius[0, 0].detach().numpy()
    np.testing.assert_allclose(exact_tightness(net, box), np.array(widths) / 2 / loose, rtol=1e-6)


def test_other_intervals_are_refused():
    net, box = tiny()
    with pytest.raises(ValueError, match="crown, ibp"):
        crown_margins(net, box, torch.tensor([[LABEL]]), intervals="milp")
