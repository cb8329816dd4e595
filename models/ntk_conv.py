"""The convolutional network in NTK parametrisation: one convolution, an activation, one linear readout, no bias.

f(x) = (m P)^-1/2 sum_{j,p} v_jp act((u_j * x)_p / sqrt(9 c)): m filters of 3 x 3 over c channels at P positions, u
standard normal, v uniform in {-1, 1}. The paper names a two-layer convolutional network and its width; filter size,
stride and the scale of the readout are choices made here.
Source: Zhu et al., arXiv 2205.11787, section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class NtkConv(nn.Module):
    """width filters on pictures of ``channels`` x ``side`` x ``side`` pixels; float64.

    Raises ValueError for an unknown activation.
    """

    def __init__(self, width: int, channels: int, side: int, stride: int = 1, activation: str = "relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: {activation!r} is not one of {', '.join(ACTIVATIONS)}")
        self.stride, self.activation = stride, ACTIVATIONS[activation]
        across = (side - 1) // stride + 1
        self.u = nn.Parameter(torch.randn(width, channels, 3, 3, dtype=torch.float64))
        self.v = nn.Parameter(torch.randint(0, 2, (width, across, across)).to(torch.float64) * 2 - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n,) for pictures (n, channels, side, side)."""
        fan_in = self.u[0].numel()
        hidden = self.activation(conv2d(x, self.u, stride=self.stride, padding=1) / fan_in**0.5)
        return (hidden * self.v).sum((1, 2, 3)) / self.v.numel() ** 0.5
