"""Projected gradient ascent on the cross-entropy inside a box, for all replicas at once.

Source: Madry et al., 2018, arXiv 1706.06083: a random start, then steps of the gradient's sign. The gradient in the
inputs is written out with the network's own ``pull``, so that no weight's gradient is worked out on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from models.box_net import Box, BoxNet


@torch.no_grad()
def ascend(net: BoxNet, box: Box, labels: Tensor, steps: int, noise: Tensor, reach: float = 2.5) -> Tensor:
    """Points of a box (R, B, D) after ``steps`` sign steps from a random start: (R, B, D).

    labels: (R, B). noise: uniform in [-1, 1], (R, B, D), where in the box to start. reach: all steps together, in radii
    of the box.
    """
    lower, upper = box.ends
    points = box.centre + noise * box.radius
    for _ in range(steps):
        points = points + reach / steps * box.radius * loss_gradient(net, points, labels).sign()
        points = points.clamp(lower, upper)
    return points


@torch.no_grad()
def loss_gradient(net: BoxNet, points: Tensor, labels: Tensor) -> Tensor:
    """Gradient of each point's cross-entropy in its inputs: points (R, B, D), labels (R, B) -> (R, B, D)."""
    outputs = net.trace(points)
    errors = outputs[-1].softmax(-1) - one_hot(labels, net.outputs).to(points.dtype)
    patterns = [(z > 0).to(z.dtype) for z in outputs[:-1]] if net.relu else None
    return net.pull(errors[:, :, None], patterns)[:, :, 0]


def small_box(box: Box, points: Tensor, shrink: float) -> Box:
    """SABR's box: ``shrink`` times the radius, around the points but shifted to stay inside ``box``; (R, B, D)."""
    lower, upper = box.ends
    radius = shrink * box.radius
    return Box(points.clamp(lower + radius, upper - radius), radius)


def uniform_noise(seeds: Sequence[int], step: int, purpose: int, shape: Sequence[int]) -> Tensor:
    """Uniform numbers in [-1, 1], (seeds, *shape), row by row a pure function of (seed, step, purpose)."""
    rows = [np.random.default_rng((seed, step, purpose)).random(shape, dtype=np.float32) for seed in seeds]
    return torch.from_numpy(2 * np.stack(rows) - 1)
