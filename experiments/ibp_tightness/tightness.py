"""Propagation tightness: the radius of the optimal box of the outputs over that of the layer-wise interval bounds.

For a deep linear network tau = |W_L ... W_1| r / (|W_L| ... |W_1| r), elementwise and in [0, 1]. For a ReLU network the
activation pattern D_k at the point is frozen, W_k becomes D_k W_k in both terms, and tau is called local. Source: Mao
et al. (arXiv 2306.10426), section 3 and PI_functions.py of their repository; the closed forms at a Gaussian
initialisation are derived from E|N(0, 1)| = sqrt(2 / pi) and the mean of the chi distribution.

Letters: R replicas, B points, K outputs, D inputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.box_net import Box, BoxNet


def input_box(x: Tensor, eps: Tensor | float) -> Box:
    """All pictures within ``eps`` of x and inside [0, 1]: x (R, B, D), eps (R,) or a number."""
    eps = torch.as_tensor(eps, dtype=x.dtype, device=x.device).view(-1, 1, 1)
    below, above = torch.minimum(eps, x), torch.minimum(eps, 1 - x)  # exact where (x + eps) - (x - eps) would cancel
    return Box(x + (above - below) / 2, (above + below) / 2)


def tightness(net: BoxNet, x: Tensor, radius: Tensor, labels: Tensor | None = None, linear: bool = False) -> Tensor:
    """tau of every output (R, B, K), or with labels (R, B) of every margin but the label's own, (R, B, K - 1).

    x, radius: points and radii of their boxes (R, B, D). linear: treat every ReLU as the identity. An output that no
    input can change has a bound without error: 1.
    """
    patterns = None if linear else net.patterns(x)
    best = (net.pull(_rows(net, x, labels, patterns is None), patterns).abs() * radius[:, :, None]).sum(-1)
    loose = net.spread(radius, patterns, labels)
    tau = torch.where(loose > 0, best / loose, 1.0)
    return tau if labels is None else tau.take_along_dim(_others(labels, net.outputs), 2)


def _rows(net: BoxNet, x: Tensor, labels: Tensor | None, shared: bool) -> Tensor:
    """Coefficients on the logits: the outputs, shared by all points where no pattern differs, or the margins."""
    identity = torch.eye(net.outputs, dtype=x.dtype, device=x.device)
    if labels is not None:
        return identity - identity[labels][:, :, None]
    return identity.expand(net.replicas, 1 if shared else x.shape[1], -1, -1)


def _others(labels: Tensor, classes: int) -> Tensor:
    """The classes other than the label: (R, B) -> (R, B, K - 1)."""
    return (labels[..., None] + torch.arange(1, classes, device=labels.device)) % classes


def gaussian_tightness(width: float) -> float:
    """Ratio of the expected radii of a two-layer linear network with Gaussian weights: about sqrt(pi / (2 width)).

    E|W_2 W_1| = 2 G((w + 1) / 2) / (sqrt(pi) G(w / 2)) and E(|W_2||W_1|) = 2 w / pi for weights of variance one.
    """
    log_ratio = math.lgamma((width + 1) / 2) - math.lgamma(width / 2)
    return math.sqrt(math.pi) * math.exp(log_ratio) / width


def deep_tightness(width: int, layers: int) -> float:
    """The same for ``layers`` wide layers: (pi / (2 width)) ** ((layers - 1) / 2), its limit of many units."""
    return (math.pi / (2 * width)) ** ((layers - 1) / 2)
