"""Many linear classifiers side by side, one weight vector for each point of some axes: ensembles trained in one fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LogisticRegressions(nn.Module):
    """Weights (S, D, K, R, p) in float64, zero at first, no intercept.

    S data sets' seeds, D draws of each, K settings, R more settings of the same data: ``axes`` gives each as a number or
    as the list of its values. Raises ValueError unless there are four axes.
    """

    def __init__(self, features: int, axes: Sequence[int | Sequence[float]]):
        super().__init__()
        if len(axes) != 4:
            raise ValueError(f"axes: {list(axes)} are {len(axes)} axes; seeds, draws and two settings are expected")
        shape = [axis if isinstance(axis, int) else len(axis) for axis in axes]
        self.weight = nn.Parameter(torch.zeros(*shape, features, dtype=torch.float64), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (S, D, K, R, n) of each data set's own inputs (S, D, n, p)."""
        return torch.einsum("sdnp,sdkrp->sdkrn", inputs, self.weight)
