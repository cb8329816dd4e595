"""Losses of certified training against their formulas, and the warm-up penalty against Shi et al.'s own code."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.ibp_tightness.losses import box_loss, cross_entropy, warmup_penalty
from models.box_mlp import BoxMlp
from models.box_net import Box


def test_the_box_loss_is_the_log_of_one_plus_exponentials_of_the_upper_margins():
    net, box = BoxMlp(6, 9, 3, 4, init="default", seeds=[0, 1]), Box(torch.rand(2, 3, 6), 0.1 * torch.rand(2, 3, 6))
    labels = torch.tensor([[0, 1, 3], [2, 2, 0]])
    margins = net.boxes(box, labels)[-1]
    upper = (margins.centre + margins.radius).scatter(2, labels[..., None], -torch.inf)
    torch.testing.assert_close(box_loss(margins, labels), torch.log1p(upper.exp().sum(2)).mean(1))


def test_an_empty_box_has_the_standard_loss():
    net, x = BoxMlp(6, 9, 3, 4, init="default", seeds=[0, 1]), torch.rand(2, 3, 6)
    labels = torch.tensor([[0, 1, 3], [2, 2, 0]])
    margins = net.boxes(Box(x, torch.zeros_like(x)), labels)[-1]
    torch.testing.assert_close(box_loss(margins, labels), cross_entropy(net(x), labels))
    torch.testing.assert_close(cross_entropy(net(x), labels)[1],
                               torch.nn.functional.cross_entropy(net(x)[1], labels[1]))


def published_penalty(input_radius: Tensor, boxes: list[tuple[Tensor, Tensor]], tol: float = 0.5) -> Tensor:
    """Shi et al., Fast-Certified-Robust-Training, regularization.py, for one network and boxes (lower, upper)."""
    growth = balance = 0.0
    for lower, upper in boxes:
        centre, diff = (upper + lower) / 2, (upper - lower) / 2
        growth += torch.relu(tol - input_radius.mean() / diff.mean().clamp(min=1e-12)) / tol
        mask_act, mask_inact = lower > 0, upper < 0
        mean_act, mean_inact = (centre * mask_act).mean(), (centre * mask_inact).mean()
        delta = (centre - centre.mean()) ** 2
        var_act, var_inact = (delta * mask_act).sum(), (delta * mask_inact).sum()
        mean_ratio, var_ratio = mean_act / -mean_inact, var_act / var_inact
        mean_ratio = torch.min(mean_ratio, 1 / mean_ratio.clamp(min=1e-12))
        var_ratio = torch.min(var_ratio, 1 / var_ratio.clamp(min=1e-12))
        term = (torch.relu(tol - mean_ratio) + torch.relu(tol - var_ratio)) / tol
        balance += term if term.isfinite() else 0.0
    return (growth + balance) / len(boxes)


def test_the_warm_up_penalty_is_the_published_one_for_each_replica():
    torch.manual_seed(0)
    inputs = Box(torch.rand(3, 8, 5), 0.1 * torch.rand(3, 8, 5))
    units = [Box(torch.randn(3, 8, 7) + shift, scale * torch.rand(3, 8, 7))
             for shift, scale in ((0.3, 0.5), (-0.9, 0.1))]
    units.append(Box(torch.rand(3, 8, 4) + 1, 0.1 * torch.rand(3, 8, 4)))  # no unit is inactive: no balance to ask for
    found = warmup_penalty(inputs, units)
    for replica in range(3):
        boxes = [tuple(end[replica] for end in box.ends) for box in units]
        torch.testing.assert_close(found[replica], published_penalty(inputs.radius[replica], boxes))


def test_the_warm_up_penalty_has_finite_gradients_where_no_unit_is_sure():
    centre = torch.zeros(1, 2, 3, requires_grad=True)
    warmup_penalty(Box(torch.zeros(1, 2, 3), torch.full((1, 2, 3), 0.1)), [Box(centre, torch.ones(1, 2, 3))]).backward()
    assert centre.grad.isfinite().all()
