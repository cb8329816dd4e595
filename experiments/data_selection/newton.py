"""Ridge logistic regression by damped Newton iterations, batched over data sets and ridges.

minimise (1 / N) sum over kept samples of w * loss(y, <theta, x>) + ridge / 2 |theta|^2, no intercept, with N the size of
the full sample and not of the subset: with the latter every curve shifts. In scikit-learn C = 1 / (ridge * N).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

SLACK = 1e-13  # of the loss, lest rounding near the optimum look like a rise


@dataclass(frozen=True)
class Problem:
    """B data sets with common ridges: x (B, n, p), y (B, n), weights (B, n), ridges (R,), full sample size N.

    single: form and factor Hessians in float32. Gradients stay in float64, so the solution is as exact and only the
    last iterations converge linearly, by 1e-4 or so each. For weights of order 1; large ones make Hessians too uneven.
    """

    x: Tensor
    y: Tensor
    weights: Tensor
    ridges: Tensor
    full_size: int
    single: bool = False

    def gradient(self, theta: Tensor) -> Tensor:
        """Of the objective at theta (B, R, p), same shape."""
        return self._gradient(theta, torch.sigmoid(self._logits(theta)))

    def _logits(self, theta: Tensor) -> Tensor:
        return theta @ self.x.mT  # (B, R, n)

    def _gradient(self, theta: Tensor, chances: Tensor) -> Tensor:
        wrong = self.weights[:, None] * (chances - self.y[:, None]) / self.full_size
        return wrong @ self.x + self.ridges[:, None] * theta

    def direction(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The damped Newton step and the gradient at theta, both (B, R, p); the step halves until the objective falls."""
        logits = self._logits(theta)
        chances = torch.sigmoid(logits)
        gradient = self._gradient(theta, chances)
        curvature = self.weights[:, None] * chances * (1 - chances) / self.full_size
        kind = torch.float32 if self.single else self.x.dtype
        x, curvature = self.x.to(kind), curvature.to(kind)
        step = torch.stack([_solve(x, curvature[:, ridge], self.ridges[ridge].to(kind), gradient[:, ridge].to(kind))
                            for ridge in range(len(self.ridges))], dim=1).to(gradient)
        return step * self._length(theta, step, logits, (gradient * step).sum(-1))[..., None], gradient

    def _length(self, theta: Tensor, step: Tensor, logits: Tensor, slope: Tensor) -> Tensor:
        moved, length = self._logits(step), torch.ones_like(slope)
        start = self._value(theta, logits)
        for _ in range(40):
            value = self._value(theta + length[..., None] * step, logits + length[..., None] * moved)
            risen = value > start + 1e-4 * length * slope + SLACK * (1 + start)
            if not risen.any():
                break
            length = torch.where(risen, length / 2, length)
        return length

    def _value(self, theta: Tensor, logits: Tensor) -> Tensor:
        losses = softplus(logits) - self.y[:, None] * logits
        fit = (self.weights[:, None] * losses).sum(-1) / self.full_size
        return fit + self.ridges / 2 * theta.square().sum(-1)


def _solve(x: Tensor, curvature: Tensor, ridge: Tensor, gradient: Tensor) -> Tensor:
    scaled = x * curvature.sqrt()[..., None]
    hessian = scaled.mT @ scaled
    hessian.diagonal(dim1=1, dim2=2).add_(ridge)
    return -torch.cholesky_solve(gradient[..., None], torch.linalg.cholesky(hessian))[..., 0]


def kept_rows(x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of positive weight, moved to the front and cut to the largest number in any data set.

    x (B, N, p), y (B, N), weights (B, N), the last with zeros where a data set keeps fewer rows than another.
    """
    count = int((weights > 0).sum(1).max())
    rows = (weights > 0).to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :count]
    return (x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1])), y.gather(1, rows), weights.gather(1, rows))
