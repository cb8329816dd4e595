"""Losses of certified training, one number for each replica.

IBP's loss is the cross-entropy of the margins' upper bounds (Gowal et al., 2018, arXiv 1810.12715); SABR is the same on
a smaller box around an attacked point (Mueller et al., 2023, arXiv 2210.04871). The warm-up penalty is that of Shi et
al., 2021, arXiv 2103.17268, which keeps boxes from growing with depth and units from all being dead or all alive.

Letters: R replicas, B points, K classes, D inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from models.box_net import Box

TOLERANCE = 0.5  # of the penalty: what is closer to balance than this costs nothing


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over points: logits (R, B, K), labels (R, B) -> (R,)."""
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape).mean(1)


def box_loss(margins: Box, labels: Tensor) -> Tensor:
    """Cross-entropy of the upper bounds of margins (R, B, K), which are 0 at the label: (R,)."""
    return cross_entropy(margins.ends[1], labels)


def warmup_penalty(inputs: Box, units: Sequence[Box]) -> Tensor:
    """Penalty on the growth of boxes and on the balance of units, mean over layers: (R,).

    inputs: the box of the inputs (R, B, D); units: boxes before every ReLU, (R, B, ...).
    """
    start = inputs.radius.flatten(1).mean(1)
    return torch.stack([_growth(start, box) + _imbalance(box) for box in units]).mean(0)


def _growth(start: Tensor, box: Box) -> Tensor:
    size = box.radius.flatten(1).mean(1)
    return F.relu(TOLERANCE - start / size.clamp(min=1e-12)) / TOLERANCE


def _imbalance(box: Box) -> Tensor:
    """How far the sums over units surely active and surely inactive are from equal; 0 where either kind is missing."""
    centre = box.centre.flatten(1)
    lower, upper = (end.flatten(1) for end in box.ends)
    active, inactive = (lower > 0).to(centre.dtype), (upper < 0).to(centre.dtype)
    spread = (centre - centre.mean(1, keepdim=True)).square()
    means = _ratio((centre * active).sum(1), -(centre * inactive).sum(1))
    spreads = _ratio((spread * active).sum(1), (spread * inactive).sum(1))
    both = (active.sum(1) > 0) & (inactive.sum(1) > 0)
    cost = (F.relu(TOLERANCE - means) + F.relu(TOLERANCE - spreads)) / TOLERANCE
    return torch.where(both, cost, 0.0)


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    """The smaller over the larger of two positive numbers (R,); differentiable, and finite where both vanish."""
    return torch.minimum(one, other) / torch.maximum(one, other).clamp(min=1e-12)
