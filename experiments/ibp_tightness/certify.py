"""Bounds on margins that certify an answer for a whole box: interval bounds and CROWN's backward bounds.

CROWN (Zhang et al., 2018, arXiv 1811.00866; DeepPoly has the same bounds) puts a line above and one below every ReLU
and carries the coefficients of a margin back to the inputs. The line above joins the ends of the unit's interval; the
one below is 0 or the identity, whichever leaves the smaller area. The intervals come from CROWN too, layer by layer, or
from interval bounds (CROWN-IBP), which is what large networks can afford.

A margin is logit j minus the logit of the label. Letters: R replicas, B points, N rows, K classes, D inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.box_net import Box, BoxNet

INTERVALS = ("crown", "ibp")


@torch.no_grad()
def ibp_margins(net: BoxNet, box: Box, labels: Tensor) -> Tensor:
    """Upper bounds of all margins by interval bound propagation with elision: (R, B, K), 0 at the label."""
    return net.boxes(box, labels)[-1].ends[1]


@torch.no_grad()
def crown_margins(net: BoxNet, box: Box, labels: Tensor, intervals: str = "crown", at_once: int = 64) -> Tensor:
    """Upper bounds of all margins by CROWN: (R, B, K), 0 at the label.

    box: of the inputs, (R, B, D); labels: (R, B). intervals: where the units' come from, ``crown`` or ``ibp``. at_once:
    points worked on together, which costs memory. Raises ValueError for other intervals.
    """
    if intervals not in INTERVALS:
        raise ValueError(f"intervals is {intervals!r}; it must be one of {', '.join(INTERVALS)}")
    parts = []
    for start in range(0, box.centre.shape[1], at_once):
        here = slice(start, start + at_once)
        part = Box(box.centre[:, here].contiguous(), box.radius[:, here].contiguous())
        units = unit_intervals(net, part, intervals)
        identity = torch.eye(net.outputs, dtype=part.centre.dtype, device=part.centre.device)
        rows = identity - identity[labels[:, here]][:, :, None]
        parts.append(upper_bounds(net, part, rows, units))
    return torch.cat(parts, 1)


@torch.no_grad()
def unit_intervals(net: BoxNet, box: Box, source: str) -> list[tuple[Tensor, Tensor]]:
    """Lower and upper ends of what each stage but the last gives before the ReLU, flat: (R, B, units)."""
    by_boxes = [tuple(end.flatten(2) for end in found.ends) for found in net.boxes(box)[:-1]]
    if source == "ibp" or not net.relu:
        return by_boxes
    units = by_boxes[:1]  # one affine map of a box: exact already
    for lower, upper in by_boxes[1:]:
        identity = torch.eye(lower.shape[2], dtype=lower.dtype, device=lower.device).expand(*lower.shape[:2], -1, -1)
        highest = upper_bounds(net, box, identity, units)
        lowest = -upper_bounds(net, box, -identity, units)
        units.append((torch.maximum(lower, lowest), torch.minimum(upper, highest)))
    return units


@torch.no_grad()
def upper_bounds(net: BoxNet, box: Box, rows: Tensor, units: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """CROWN's upper bounds of ``rows`` times the outputs of stage number len(units): (R, B, N).

    rows: (R, B, N, outputs of that stage). units: intervals of every ReLU before it.
    """
    points, total = rows.shape[1:3], 0.0
    constants = stage_constants(net, box)
    for place in reversed(range(len(units) + 1)):
        constant = constants[place]
        total = total + (rows @ constant.flatten(2)[..., None]).squeeze(-1)
        rows = net.stages[place].pull(rows.flatten(1, 2).unflatten(2, constant.shape[2:]))
        rows = rows.flatten(2).unflatten(1, points)
        if place and net.relu:
            rows, intercept = relax(rows, *units[place - 1])
            total = total + intercept
    return total + (rows @ box.centre[..., None] + rows.abs() @ box.radius[..., None]).squeeze(-1)


def stage_constants(net: BoxNet, box: Box) -> list[Tensor]:
    """What each stage makes of zeros, the shift of its affine map: each (R, 1, *outputs)."""
    found, zeros = [], torch.zeros_like(box.centre[:, :1])
    for stage in net.stages:
        found.append(stage(zeros))
        zeros = torch.zeros_like(found[-1])
    return found


def relax(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Upper bounds of ``rows`` times the ReLU of units by lines over the units.

    rows: (R, B, N, units); lower, upper: ends of the units' intervals, (R, B, units). Returns the coefficients of the
    units, (R, B, N, units), and the constants, (R, B, N).
    """
    crosses = (lower < 0) & (upper > 0)
    slope = torch.where(crosses, upper / (upper - lower).clamp(min=1e-30), (lower >= 0).to(lower.dtype))
    intercept = torch.where(crosses, -slope * lower, 0.0)
    below = torch.where(crosses, (upper > -lower).to(lower.dtype), slope)
    positive = rows.clamp(min=0)
    lined = positive * slope[:, :, None] + (rows - positive) * below[:, :, None]
    return lined, (positive @ intercept[..., None]).squeeze(-1)
