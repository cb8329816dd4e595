"""Affine layers of many networks at once, through which points, boxes and rows of coefficients travel.

Every layer knows three maps of its weights W: ``forward`` takes points x to W x + b, ``spread`` takes the radii of a
box to |W| r (interval bound propagation; Gowal et al., 2018, arXiv 1810.12715) and ``pull`` takes coefficients on the
outputs to W^T a, the coefficients that they amount to on the inputs (backward bounds, gradients).

Letters: R replicas (independent networks), B points, N rows of coefficients; shapes without them are a layer's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ReplicaLinear(nn.Module):
    """R independent affine maps of vectors; weight (R, outputs, inputs), bias (R, 1, outputs) or None."""

    def __init__(self, replicas: int, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(replicas, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(replicas, 1, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(R, B, inputs) -> (R, B, outputs)."""
        return torch.bmm(x, self.weight.mT) if self.bias is None else torch.baddbmm(self.bias, x, self.weight.mT)

    def spread(self, radius: Tensor) -> Tensor:
        """Radii (R, B, inputs) -> (R, B, outputs)."""
        return torch.bmm(radius, self.weight.abs().mT)

    def spread_margins(self, radius: Tensor, labels: Tensor) -> Tensor:
        """Radii of output j minus output y, the two rows of weights subtracted before the absolute value (elision).

        radius: (R, B, inputs); labels y: (R, B). Returns (R, B, outputs), zero at j = y.
        """
        outputs = self.weight.shape[1]
        differences = (self.weight[:, None] - self.weight[:, :, None]).abs().flatten(1, 2)  # row (y, j)
        every = torch.bmm(radius, differences.mT).unflatten(2, (outputs, outputs))
        return every.take_along_dim(labels[..., None, None], 2).squeeze(2)

    def pull(self, rows: Tensor) -> Tensor:
        """Coefficients (R, N, outputs) -> (R, N, inputs)."""
        return torch.bmm(rows, self.weight)


class ReplicaConv(nn.Module):
    """R independent convolutions of pictures of one size, run as one grouped convolution.

    in_shape: channels, height, width; ``out_shape`` likewise. weight (R, channels, inputs, k, k), bias (R, channels).
    """

    def __init__(self, replicas: int, in_shape: Sequence[int], channels: int, kernel: int, stride: int, padding: int):
        super().__init__()
        self.replicas, self.stride, self.padding = replicas, stride, padding
        self.weight = nn.Parameter(torch.empty(replicas, channels, in_shape[0], kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(replicas, channels))
        sides = [(side + 2 * padding - kernel) // stride + 1 for side in in_shape[1:]]
        self.out_shape = (channels, *sides)
        self.lost = [(side + 2 * padding - kernel) % stride for side in in_shape[1:]]  # pixels no output looks at

    def forward(self, x: Tensor) -> Tensor:
        """(R, B, *in_shape) -> (R, B, *out_shape)."""
        return self._convolve(x, self.weight, self.bias.flatten())

    def spread(self, radius: Tensor) -> Tensor:
        """Radii (R, B, *in_shape) -> (R, B, *out_shape)."""
        return self._convolve(radius, self.weight.abs(), None)

    def pull(self, rows: Tensor) -> Tensor:
        """Coefficients (R, N, *out_shape) -> (R, N, *in_shape)."""
        pulled = F.conv_transpose2d(_as_groups(rows), self.weight.flatten(0, 1), stride=self.stride,
                                    padding=self.padding, output_padding=self.lost, groups=self.replicas)
        return _as_replicas(pulled, self.replicas)

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        mapped = F.conv2d(_as_groups(x), weight.flatten(0, 1), bias, self.stride, self.padding, groups=self.replicas)
        return _as_replicas(mapped, self.replicas)


def _as_groups(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(1, 2)


def _as_replicas(x: Tensor, replicas: int) -> Tensor:
    return x.unflatten(1, (replicas, -1)).transpose(0, 1)


class ReplicaScale(nn.Module):
    """A map of each channel (axis 2) by itself; a subclass gives the factor and the shift, each (R or 1, channels)."""

    def coefficients(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        factor, shift = self.coefficients()
        return x * _beside(factor, x) + _beside(shift, x)

    def spread(self, radius: Tensor) -> Tensor:
        return radius * _beside(self.coefficients()[0].abs(), radius)

    def pull(self, rows: Tensor) -> Tensor:
        return rows * _beside(self.coefficients()[0], rows)


def _beside(values: Tensor, x: Tensor) -> Tensor:
    """Per-channel values (R, channels) with the axes of x (R, B, channels, ...)."""
    return values.view(values.shape[0], 1, -1, *[1] * (x.ndim - 3))


class Normalise(ReplicaScale):
    """Pictures minus a data set's mean over its standard deviation, for each channel; the same for all replicas."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor([list(mean)]), persistent=False)
        self.register_buffer("deviation", torch.tensor([list(deviation)]), persistent=False)

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Factor and shift, each (1, channels)."""
        return 1 / self.deviation, -self.mean / self.deviation


class ReplicaBatchNorm(ReplicaScale):
    """Batch normalisation of each replica over its own points.

    In training all maps use the statistics of the last batch given to ``observe``, the clean one, so that boxes and
    attacked points see the affine map that the clean points saw; in evaluation the running averages.
    """

    def __init__(self, replicas: int, channels: int, momentum: float = 0.1, eps: float = 1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(replicas, channels))
        self.bias = nn.Parameter(torch.zeros(replicas, channels))
        self.register_buffer("running_mean", torch.zeros(replicas, channels))
        self.register_buffer("running_var", torch.ones(replicas, channels))
        self.batch: tuple[Tensor, Tensor] | None = None

    def observe(self, x: Tensor) -> Tensor:
        """Take the statistics of a batch (R, B, channels, ...), move the running ones, and map it."""
        values = x.transpose(1, 2).flatten(2)
        self.batch = values.mean(2), values.var(2, unbiased=False)
        with torch.no_grad():
            count = values.shape[2]
            self.running_mean.lerp_(self.batch[0], self.momentum)
            self.running_var.lerp_(self.batch[1] * count / max(1, count - 1), self.momentum)
        return self(x)

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Factor and shift, each (R, channels)."""
        use_batch = self.training and self.batch is not None
        mean, var = self.batch if use_batch else (self.running_mean, self.running_var)
        factor = self.weight / torch.sqrt(var + self.eps)
        return factor, self.bias - mean * factor


class Reshape(nn.Module):
    """The same numbers in another shape; all three maps are one."""

    def __init__(self, before: Sequence[int], after: Sequence[int]):
        super().__init__()
        self.before, self.after = tuple(before), tuple(after)

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], *self.after)

    def spread(self, radius: Tensor) -> Tensor:
        return self(radius)

    def pull(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], *self.before)
